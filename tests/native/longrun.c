/*
 * Records CALLS pairs below a call that stays open, and prints its peak memory and its statistics. Words behind it: "flush" halfway, and
 * "trace" instead of HDF5.
 */
#include <scope_profiler.h>

#include <inttypes.h>

#include "long.h"

static int argument_count;
static char **words;

static int is_asked(const char *word)
{
    int i;
    for (i = 2; i < argument_count; i++) {
        if (strcmp(words[i], word) == 0) return 1;
    }
    return 0;
}

int main(int count, char **arguments)
{
    const long pairs = atol(arguments[1]);
    sp_region_stats before, after;
    argument_count = count;
    words = arguments;
    if (sp_init("longrun", 0)) return 1;
    if (is_asked("trace")) sp_set_output_format(SP_OUTPUT_TRACE);
    const int flushes = is_asked("flush");
    const int all = sp_region("all"), outer = sp_region("outer"), inner = sp_region("inner");
    sp_begin(all);
    for (long i = 0; i < pairs; i++) {
        record_pair(outer, inner);
        if (flushes && i == pairs / 2 && sp_flush()) return 2;
    }
    sp_profiler_get_region_stats(sp_default_profiler(), inner, &before);
    if (sp_finalize()) return 3;
    sp_profiler_get_region_stats(sp_default_profiler(), inner, &after);
    if (memcmp(&before, &after, sizeof after)) return 4;
    printf("%ld %" PRId64 " %" PRId64 "\n", peak_kb(), after.calls, after.total_ns);
    sp_profiler_get_region_stats(sp_default_profiler(), all, &after);
    return after.calls == 0 ? 0 : 5; /* of completed calls */
}
