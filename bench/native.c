/*
 * native.c - what a recorded call costs a C program, in ns, beside what no recorder can do without: two clock reads and fresh
 * memory to write them to. All take turns in one process, in processor time of the thread; the median of the rounds counts.
 *
 *     native [ROUNDS]    prints a JSON object: name -> median ns of one call
 */
#include <scope_profiler.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "platform/counter.h"

#define CALLS 1000000
#define MAX_ROUNDS 201
#define SLOT 32 /* bytes that a call takes in a run with lanes */

#ifdef WITH_TRACY
#include <tracy/TracyC.h>
#endif

/* ---- what is measured: CALLS calls each ---- */

static void bare_pair(void)
{
    const size_t bytes = (size_t)CALLS * SLOT + ((size_t)2 << 20);
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    char *at = (char *)(((uintptr_t)memory + ((size_t)2 << 20) - 1) & ~(uintptr_t)(((size_t)2 << 20) - 1));
    madvise(at, bytes - (size_t)(at - memory), MADV_HUGEPAGE);
    for (int i = 0; i < CALLS; i++, at += SLOT) {
        volatile uint64_t *slot = (volatile uint64_t *)(void *)at;
        slot[0] = sp_processor_counter();
        slot[1] = sp_processor_counter();
    }
    munmap(memory, bytes);
}

static int region;

static void begin_end(void)
{
    for (int i = 0; i < CALLS; i++) {
        sp_begin(region);
        __asm__ __volatile__("" ::: "memory");
        sp_end(region);
    }
}

static void scope(void)
{
    for (int i = 0; i < CALLS; i++) {
        SP_SCOPE("scope");
        __asm__ __volatile__("" ::: "memory");
    }
}

#ifdef WITH_TRACY
static void tracy(void)
{
    for (int i = 0; i < CALLS; i++) {
        TracyCZoneN(zone, "zone", 1);
        __asm__ __volatile__("" ::: "memory");
        TracyCZoneEnd(zone);
    }
}
#endif

static void start(void)
{
    if (sp_init("/tmp/scope-profiler-bench", 0) != 0) abort();
    region = sp_region("region");
    sp_begin(region); /* the thread is known, and its first block is there */
    sp_end(region);
}

typedef struct measured {
    const char *name;
    void (*run)(void);
    int recording;
    double ns[MAX_ROUNDS];
} measured;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int ascending(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

int main(int count, char **arguments)
{
    static measured all[] = {
        {.name = "bare_pair", .run = bare_pair},
        {.name = "begin_end", .run = begin_end, .recording = 1},
        {.name = "scope", .run = scope, .recording = 1},
        {.name = "begin_end_inactive", .run = begin_end},
        {.name = "scope_inactive", .run = scope},
#ifdef WITH_TRACY
        {.name = "tracy", .run = tracy},
#endif
    };
    const size_t kinds = sizeof all / sizeof *all;
    int rounds = count > 1 ? atoi(arguments[1]) : 21;
    if (rounds < 1 || rounds > MAX_ROUNDS) rounds = 21;
    setenv("SCOPE_PROFILER_SPOOL", "0", 0);
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < kinds; i++) {
            if (all[i].recording) start();
            const double before = now();
            all[i].run();
            all[i].ns[round] = (now() - before) / CALLS;
            if (all[i].recording) {
                sp_profiler *profiler = sp_default_profiler();
                if (sp_profiler_reset(profiler) != SP_OK) abort();
                sp_set_output_format(SP_OUTPUT_TRACE);
                if (sp_finalize() != 0) abort();
            }
        }
    }
    remove("/tmp/scope-profiler-bench_rank00000.spt");
    for (size_t i = 0; i < kinds; i++) {
        qsort(all[i].ns, (size_t)rounds, sizeof(double), ascending);
        printf("%s\"%s\": %.2f", i ? ", " : "{", all[i].name, all[i].ns[rounds / 2]);
    }
    printf("}\n");
    return 0;
}
