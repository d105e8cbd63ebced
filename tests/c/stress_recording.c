/*
 * stress_recording.c - the core under everything at once, with the real clock: threads that nest regions, hand open calls over to
 * each other, come and go; one that collects all the time; one that looks at open calls, counts and times; one that opens,
 * closes and drops runs which the others are recording into. In the end every call was reported exactly once.
 *
 *   stress_recording [milliseconds]     how long (600; a minute with SCOPE_PROFILER_SOAK)
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
#include "core/run.h"

enum { THREADS = 10, REGIONS = 8, DEPTH = 10, BOXES = 16, NAMES = 20000 };
#ifdef __SANITIZE_THREAD__
enum { ROUNDS_AHEAD = 20 }; /* everything is slower there, and it is the meetings that count */
#else
enum { ROUNDS_AHEAD = 500 };
#endif

#define must(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef struct recording {
    sp_switch gate;
    sp_run *run;
} recording;

static recording nested, handed; /* calls of `handed` are closed by whoever finds them */
static sp_switch side;           /* its run changes all the time */
static _Atomic(bool) stop_workers, stop_others;

/* What was recorded, by thread (worker 0..THREADS-1, the rest: short threads) and region. */
static _Atomic(uint64_t) entered[REGIONS], entered_handed, short_threads;
static _Atomic(uint64_t) rounds, rounds_collected; /* of the workers; so that they do not run away from the collector */
static uint64_t reported[REGIONS], reported_handed, collections;

typedef struct box {
    _Atomic(sp_slot *) slot;
    sp_log *log;
} box;

static box boxes[BOXES];
static pthread_mutex_t box_lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

static void open_recording(recording *of, bool tasks)
{
    must(sp_run_open(&(sp_run_options){.tracks_threads = true, .tracks_tasks = tasks, .first_block = 16}, &of->gate, &of->run,
                     NULL) == SP_OK);
    char name[16];
    for (int i = 0; i < REGIONS; i++) {
        uint32_t id;
        snprintf(name, sizeof name, "region %d", i);
        must(sp_run_region(of->run, name, NULL, -1, NULL, NULL, &id, NULL) == SP_OK && id == (uint32_t)i);
    }
}

static sp_slot *enter(recording *of, uint32_t region, sp_log **log)
{
    *log = sp_log_current(atomic_load_explicit(&of->gate.token, memory_order_acquire));
    must(*log != NULL);
    sp_slot *slot = sp_log_enter(*log, region);
    must(slot != NULL);
    return slot;
}

/* Nested calls to a random depth. */
static void nest(uint64_t *seed, int depth)
{
    sp_log *log;
    const uint32_t region = next_random(seed) % REGIONS;
    sp_slot *slot = enter(&nested, region, &log);
    atomic_fetch_add_explicit(&entered[region], 1, memory_order_relaxed);
    for (uint32_t i = next_random(seed) % 3; i && depth < DEPTH; i--) nest(seed, depth + 1);
    sp_log_exit(log, slot);
}

/* Put an open call into a box, and close what was there. */
static void hand_over(uint64_t *seed)
{
    sp_log *log;
    sp_slot *mine = enter(&handed, next_random(seed) % REGIONS, &log);
    atomic_fetch_add_explicit(&entered_handed, 1, memory_order_relaxed);
    box *at = &boxes[next_random(seed) % BOXES];
    pthread_mutex_lock(&box_lock);
    sp_slot *found = at->slot;
    sp_log *found_log = at->log;
    at->slot = mine;
    at->log = log;
    pthread_mutex_unlock(&box_lock);
    if (found) sp_log_exit(found_log, found);
}

static void use_side(uint64_t *seed, sp_slot **held, sp_log **held_log)
{
    if (*held) {
        sp_log_exit(*held_log, *held);
        *held = NULL;
        return;
    }
    const uint64_t token = atomic_load_explicit(&side.token, memory_order_acquire);
    sp_log *log = token ? sp_log_current(token) : NULL;
    if (log == NULL) return;
    for (uint32_t i = next_random(seed) % 50; i; i--) {
        sp_slot *slot = sp_log_enter(log, 0);
        must(slot != NULL);
        sp_log_exit(log, slot);
    }
    *held = sp_log_enter(log, 0);
    *held_log = log;
}

static void *work(void *number)
{
    uint64_t seed = (uintptr_t)number * 77 + 1;
    sp_slot *held = NULL;
    sp_log *held_log = NULL;
    while (!atomic_load_explicit(&stop_workers, memory_order_relaxed)) {
        for (int i = 0; i < 20; i++) nest(&seed, 0);
        hand_over(&seed);
        use_side(&seed, &held, &held_log);
        atomic_fetch_add_explicit(&rounds, 1, memory_order_relaxed);
        while (rounds - rounds_collected > ROUNDS_AHEAD && !stop_workers) usleep(200);
    }
    if (held) sp_log_exit(held_log, held);
    return NULL;
}

static void *short_work(void *number)
{
    uint64_t seed = (uintptr_t)number * 99 + 5;
    sp_slot *held = NULL;
    sp_log *held_log = NULL;
    nest(&seed, 0);
    hand_over(&seed);
    use_side(&seed, &held, &held_log);
    if (number != NULL && (uintptr_t)number % 2) sp_thread_finish();
    if (held) sp_log_exit(held_log, held);
    return NULL;
}

static void *start_threads(void *none)
{
    for (uintptr_t i = 0; !atomic_load_explicit(&stop_workers, memory_order_relaxed); i++) {
        pthread_t threads[3];
        for (int t = 0; t < 3; t++) must(pthread_create(&threads[t], NULL, short_work, (void *)(i * 3 + (uintptr_t)t)) == 0);
        for (int t = 0; t < 3; t++) pthread_join(threads[t], NULL);
        atomic_fetch_add(&short_threads, 3);
        usleep(500);
    }
    return NULL;
}

static void check_tree(const sp_profile *profile)
{
    must(profile->nested);
    const int64_t *start = profile->columns[SP_COLUMN_START], *end = profile->columns[SP_COLUMN_END];
    const int64_t *parent = profile->columns[SP_COLUMN_PARENT_ID], *id = profile->columns[SP_COLUMN_CALL_ID];
    const int64_t *thread = profile->columns[SP_COLUMN_THREAD];
    int64_t roots = 0, exclusive = 0;
    uint64_t *position = malloc((profile->call_count + 1) * sizeof *position);
    for (uint64_t i = 0; i < profile->call_count; i++) {
        must(id[i] >= 0 && (uint64_t)id[i] < profile->call_count);
        position[id[i]] = i;
    }
    for (uint64_t i = 0; i < profile->call_count; i++) {
        must(start[i] <= end[i]);
        must((uint64_t)thread[i] < profile->thread_count);
        const sp_thread_info *lane = &profile->threads[thread[i]];
        must(start[i] - nested.run->start_ns >= lane->start_ns);
        must(lane->end_ns == SP_UNKNOWN || end[i] - nested.run->start_ns <= lane->end_ns);
        if (parent[i] < 0) {
            roots += end[i] - start[i];
            continue;
        }
        const uint64_t above = position[parent[i]];
        must(parent[i] < id[i] && thread[above] == thread[i] && start[above] <= start[i] && end[above] >= end[i]);
    }
    for (size_t i = 0; i < profile->row_count; i++) exclusive += profile->rows[i].exclusive_total;
    must(exclusive == roots);
    free(position);
}

static void collect_once(void)
{
    sp_profile *profile;
    rounds_collected = rounds;
    must(sp_run_collect(nested.run, 0, 0, &profile, NULL, NULL) == SP_OK);
    check_tree(profile);
    for (size_t i = 0; i < profile->row_count; i++) {
        const int region = profile->names[profile->rows[i].name][7] - '0';
        reported[region] += profile->rows[i].count;
    }
    sp_profile_release(profile);
    must(sp_run_collect(handed.run, 0, 0, &profile, NULL, NULL) == SP_OK);
    reported_handed += profile->call_count;
    sp_profile_release(profile);
    collections++;
}

static void *collect_all_the_time(void *none)
{
    while (!atomic_load_explicit(&stop_others, memory_order_relaxed)) collect_once();
    return NULL;
}

static void *look_all_the_time(void *none)
{
    uint64_t counted = 0;
    char name[32];
    for (uint32_t i = 0; !atomic_load_explicit(&stop_others, memory_order_relaxed); i++) {
        recording *of = i % 2 ? &nested : &handed;
        uint32_t *ids, id;
        size_t count;
        must(sp_run_open_calls(of->run, &ids, &count, NULL) == SP_OK);
        for (size_t k = 0; k < count; k++) must(ids[k] < REGIONS);
        free(ids);
        int64_t *starts, *ends;
        must(sp_run_peek(of->run, i % REGIONS, &starts, &ends, &count, NULL) == SP_OK);
        for (size_t k = 0; k < count; k++) must(starts[k] <= ends[k]);
        free(starts);
        free(ends);
        if (i % 2) {
            const uint64_t now = sp_run_entries(of->run, 3);
            must(now >= counted);
            counted = now;
        }
        snprintf(name, sizeof name, "another %u", i % NAMES);
        must(sp_run_region(of->run, name, NULL, -1, NULL, NULL, &id, NULL) == SP_OK);
        usleep(300);
    }
    return NULL;
}

/* Runs that the workers record into, dropped under their hands. */
static void *change_runs(void *none)
{
    uint64_t seed = 3;
    while (!atomic_load_explicit(&stop_others, memory_order_relaxed)) {
        sp_switch closed = {0};
        sp_run *run;
        uint32_t id;
        must(sp_run_open(&(sp_run_options){.tracks_threads = true, .tracks_tasks = next_random(&seed) % 2}, &closed, &run,
                         NULL) == SP_OK);
        must(sp_run_region(run, "side", NULL, -1, NULL, NULL, &id, NULL) == SP_OK);
        sp_run_attach(run, &side);
        usleep(next_random(&seed) % 2000);
        if (next_random(&seed) % 2) {
            sp_profile *profile;
            must(sp_run_collect(run, 0, 0, &profile, NULL, NULL) == SP_OK);
            sp_profile_release(profile);
        }
        if (next_random(&seed) % 2) {
            sp_run_set_paused(run, true);
            sp_run_set_paused(run, false);
        }
        sp_run_drop(run);
        must(atomic_load(&side.token) == 0);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    int milliseconds = getenv("SCOPE_PROFILER_SOAK") ? 60000 : 600;
    if (count > 1) milliseconds = atoi(arguments[1]);
    open_recording(&nested, false);
    open_recording(&handed, true);
    pthread_t workers[THREADS], starter, others[3];
    for (uintptr_t i = 0; i < THREADS; i++) must(pthread_create(&workers[i], NULL, work, (void *)i) == 0);
    must(pthread_create(&starter, NULL, start_threads, NULL) == 0);
    must(pthread_create(&others[0], NULL, collect_all_the_time, NULL) == 0);
    must(pthread_create(&others[1], NULL, look_all_the_time, NULL) == 0);
    must(pthread_create(&others[2], NULL, change_runs, NULL) == 0);
    usleep((useconds_t)milliseconds * 1000);
    atomic_store(&stop_workers, true);
    for (int i = 0; i < THREADS; i++) pthread_join(workers[i], NULL);
    pthread_join(starter, NULL);
    atomic_store(&stop_others, true);
    for (int i = 0; i < 3; i++) pthread_join(others[i], NULL);
    for (int i = 0; i < BOXES; i++) {
        if (boxes[i].slot) sp_log_exit(boxes[i].log, boxes[i].slot);
    }
    collect_once();

    uint64_t total = 0;
    for (uint32_t i = 0; i < REGIONS; i++) {
        must(reported[i] == entered[i]);
        must(sp_run_entries(nested.run, i) == entered[i]);
        total += reported[i];
    }
    must(reported_handed == entered_handed);
    must(sp_run_lost(nested.run) == 0 && sp_run_lost(handed.run) == 0);
    must(nested.run->logs == NULL && handed.run->logs == NULL); /* all threads are gone, and all they recorded is reported */
    must(nested.run->row_count == THREADS + short_threads);
    printf("%llu calls, %llu handed over, %llu short threads, %llu collections\n", (unsigned long long)total,
           (unsigned long long)reported_handed, (unsigned long long)short_threads, (unsigned long long)collections);
    sp_run_drop(nested.run);
    sp_run_drop(handed.run);
    return 0;
}
