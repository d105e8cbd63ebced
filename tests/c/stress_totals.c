/*
 * stress_totals.c - runs that keep sums under everything at once, with the real clock: threads that nest regions, change lanes and
 * end calls of each other, short ones that come and go, one that collects all the time and one that looks. In the end every call was
 * summed exactly once.
 *
 *   stress_totals [milliseconds]     how long (400; a minute with SCOPE_PROFILER_SOAK)
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/collect.h"
#include "core/totals.h"

enum { THREADS = 8, REGIONS = 40, DEPTH = 6, BOXES = 8 };

#define must(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static sp_switch gate;
static sp_run *run;
static uint32_t ids[REGIONS];
static _Atomic(bool) stop, stop_others;
static _Atomic(uint64_t) made[REGIONS];
static uint64_t found[REGIONS], collections;

typedef struct box {
    sp_slot *slot;
    sp_log *log;
} box;

static box boxes[BOXES];
static pthread_mutex_t box_lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

static sp_slot *enter(sp_log **log, uint32_t region)
{
    *log = sp_log_current(atomic_load_explicit(&gate.token, memory_order_acquire));
    must(*log);
    sp_slot *slot = sp_log_enter(*log, ids[region]);
    must(slot);
    atomic_fetch_add_explicit(&made[region], 1, memory_order_relaxed);
    return slot;
}

/* What is open goes into a box, and what was there, perhaps another thread's, ends here. */
static void exchange(uint64_t *seed, sp_log *log, sp_slot *slot)
{
    box *at = &boxes[next_random(seed) % BOXES];
    pthread_mutex_lock(&box_lock);
    const box taken = *at;
    *at = (box){slot, log};
    pthread_mutex_unlock(&box_lock);
    if (taken.slot) sp_log_exit(taken.log, taken.slot);
}

static void nest(uint64_t *seed, int depth)
{
    sp_log *log;
    const uint32_t region = next_random(seed) % REGIONS;
    sp_slot *slot = enter(&log, region);
    const uint32_t lane = next_random(seed) % 8;
    if (lane < 3) sp_tally_set_lane(log, (const void *)(uintptr_t)(lane * 16));
    for (int i = next_random(seed) % 3; i > 0 && depth < DEPTH; i--) nest(seed, depth + 1);
    if (next_random(seed) % 64 == 0) exchange(seed, log, slot);
    else sp_log_exit(log, slot);
}

static void *work(void *number)
{
    uint64_t seed = (uintptr_t)number;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) nest(&seed, 0);
    return NULL;
}

static void *come_and_go(void *number)
{
    uint64_t seed = (uintptr_t)number;
    for (int i = 0; i < 20; i++) nest(&seed, 0);
    return NULL;
}

static void collect(void)
{
    sp_profile *profile;
    must(sp_run_collect(run, 0, 0, &profile, NULL, NULL) == SP_OK);
    for (size_t i = 0; i < profile->row_count; i++) {
        const sp_row *row = &profile->rows[i];
        const long region = strtol(profile->names[row->name], NULL, 10);
        must(row->has_aggregate && row->aggregate_count > 0);
        must(row->aggregate_minimum <= row->aggregate_maximum && row->aggregate_maximum <= row->aggregate_total);
        must(row->aggregate_exclusive >= 0 && row->aggregate_exclusive <= row->aggregate_total + 1);
        must(row->statistics.start_minimum <= row->statistics.end_maximum);
        found[region] += row->aggregate_count;
    }
    sp_profile_release(profile);
    collections++;
}

static void *collect_always(void *none)
{
    while (!atomic_load(&stop_others)) collect();
    return none;
}

static void *look_always(void *none)
{
    while (!atomic_load(&stop_others)) {
        uint32_t *open;
        size_t count;
        must(sp_run_open_calls(run, &open, &count, NULL) == SP_OK);
        free(open);
        (void)sp_run_entries(run, ids[0]);
        (void)sp_run_has_unreported(run);
        usleep(100);
    }
    return none;
}

int main(int given, char **arguments)
{
    const char *soak = getenv("SCOPE_PROFILER_SOAK");
    const long milliseconds = given > 1 ? atol(arguments[1]) : soak && *soak ? 60000 : 400;
    pthread_t threads[THREADS], others[2], short_one;
    must(sp_run_open(&(sp_run_options){.sums = true}, &gate, &run, NULL) == SP_OK);
    for (uint32_t i = 0; i < REGIONS; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u", i);
        must(sp_run_region(run, name, NULL, -1, NULL, NULL, &ids[i], NULL) == SP_OK);
    }
    for (uintptr_t i = 0; i < THREADS; i++) must(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    must(pthread_create(&others[0], NULL, collect_always, NULL) == 0);
    must(pthread_create(&others[1], NULL, look_always, NULL) == 0);
    for (long past = 0; past < milliseconds; past += 10) {
        must(pthread_create(&short_one, NULL, come_and_go, (void *)(uintptr_t)(past + 100)) == 0);
        must(pthread_join(short_one, NULL) == 0);
        usleep(10000);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++) must(pthread_join(threads[i], NULL) == 0);
    atomic_store(&stop_others, true);
    for (int i = 0; i < 2; i++) must(pthread_join(others[i], NULL) == 0);
    for (int i = 0; i < BOXES; i++) {
        if (boxes[i].slot) sp_log_exit(boxes[i].log, boxes[i].slot);
    }
    collect();
    uint64_t all = 0;
    for (int i = 0; i < REGIONS; i++) {
        must(found[i] == atomic_load(&made[i]));
        all += found[i];
    }
    must(sp_run_lost(run) == 0 && !sp_run_has_unreported(run));
    must(run->row_count <= THREADS + 2);
    printf("%llu calls, %llu collections, %zu logs\n", (unsigned long long)all, (unsigned long long)collections, run->row_count);
    sp_run_drop(run);
    return 0;
}
