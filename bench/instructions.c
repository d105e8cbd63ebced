/* Enter and exit a region `count` times, for bench/instructions.py: the cost is the difference of two counts. */
#include <stdlib.h>
#include <string.h>

#include "core/run.h"

int main(int given, char **arguments)
{
    const long count = given > 1 ? atol(arguments[1]) : 1000;
    const bool tasks = given > 2 && strcmp(arguments[2], "tasks") == 0;
    const bool sums = given > 2 && strcmp(arguments[2], "sums") == 0;
    sp_switch gate = {0};
    sp_run *run;
    uint32_t id;
    if (sp_run_open(&(sp_run_options){.tracks_tasks = tasks, .sums = sums, .first_block = 1 << 20}, &gate, &run, NULL) != SP_OK) return 1;
    if (sp_run_region(run, "region", NULL, -1, NULL, NULL, &id, NULL) != SP_OK) return 1;
    for (long i = 0; i < count; i++) {
        sp_log *log = sp_log_current(atomic_load_explicit(&gate.token, memory_order_acquire));
        sp_slot *slot = log ? sp_log_enter(log, id) : NULL;
        if (slot) sp_log_exit(log, slot);
    }
    sp_run_drop(run);
    return 0;
}
