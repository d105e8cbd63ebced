/*
 * scope_profiler.h - regions of C, C++ and Fortran programs, on one timeline with those of Python.
 *
 *     sp_init("profile", 0);                 // records into profile_rank00000.h5
 *     int solve = sp_region("solve");
 *     sp_begin(solve); ... sp_end(solve);    // or, for a block of C or C++:  { SP_SCOPE("solve"); ... }
 *     sp_finalize();                         // writes the file
 *
 * Inside a Python process in which scope_profiler records, nothing of this is needed but the regions: they are recorded into
 * the run of Python's ProfileManager, on the lane of the thread or task that calls, without a link to Python. See "One
 * timeline" below.
 *
 * Everything may be called from any thread. A profiler that is NULL or does not record makes every call harmless: it costs
 * one test. Functions that return int return an sp_status unless they say otherwise. Times are nanoseconds of
 * CLOCK_MONOTONIC (the clock behind Python's time.perf_counter_ns() on Linux). Strings are UTF-8 and NUL-terminated; the
 * library copies every string it keeps. Nothing in the library prints or ends the process.
 *
 * Macros that a program may define before it includes this header:
 *   SP_DISABLE_PROFILING   everything compiles to nothing, and no library is needed
 *   SP_NO_INLINE           the recording functions are called, not inlined (their test of "is anything recorded" too)
 *   SP_HEADER_ONLY         in C++17, in every source of the program or module: the program is not linked with the library, but
 *                          opens it when it starts (see scope_profiler_client.h; scope_profiler.c does the same for C)
 */
#ifndef SCOPE_PROFILER_H
#define SCOPE_PROFILER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(SP_HEADER_ONLY) && defined(__cplusplus) && __cplusplus < 201703L
#error "SP_HEADER_ONLY is for C++17 and later"
#endif

/* What opens the library hides its own functions of the same names. */
#if defined(SP_HEADER_ONLY) && defined(__cplusplus)
#define SP_API inline __attribute__((visibility("hidden")))
#elif defined(SP_CLIENT_SOURCE_)
#define SP_API __attribute__((visibility("hidden")))
#elif defined(__GNUC__)
#define SP_API __attribute__((visibility("default")))
#else
#define SP_API
#endif

#define SP_VERSION_MAJOR 1
#define SP_VERSION_MINOR 0
#define SP_VERSION_PATCH 0
#define SP_VERSION "1.0.0"

/* Version of the .spt files that are written. */
#define SP_FORMAT_VERSION 2

/* What sp_region() returns where there is nothing to record into. */
#define SP_INVALID_REGION (-1)

/*
 * Every status the library returns, in one table: X(name, value, text). Numbers up to SP_ERR_UNSUPPORTED are those of
 * earlier releases and never change; new ones are appended.
 */
#define SP_STATUS_MAP(X)                                                                                               \
    X(SP_OK, 0, "no error")                                                                                            \
    X(SP_ERR_INACTIVE, 1, "nothing is being recorded")                                                                 \
    X(SP_ERR_NO_CLOCK, 2, "no monotonic clock")                                                                        \
    X(SP_ERR_NO_MEMORY, 3, "out of memory")                                                                            \
    X(SP_ERR_IO, 4, "input or output failed")                                                                          \
    X(SP_ERR_UNMATCHED_END, 5, "a region was ended that is not open")                                                  \
    X(SP_ERR_OPEN_SCOPES, 6, "regions are still open")                                                                 \
    X(SP_ERR_UNSUPPORTED, 7, "not supported")                                                                          \
    X(SP_ERR_INVALID, 8, "invalid argument")                                                                           \
    X(SP_ERR_NOT_FOUND, 9, "no such file")                                                                             \
    X(SP_ERR_CORRUPT, 10, "damaged profile")                                                                           \
    X(SP_ERR_SCHEMA, 11, "unknown profile schema")                                                                     \
    X(SP_ERR_FOREIGN, 12, "not a profile")                                                                             \
    X(SP_ERR_NESTING, 13, "calls overlap without nesting")                                                             \
    X(SP_ERR_BUSY, 14, "in use")

typedef enum sp_status {
#define SP_STATUS_ENUM(name, value, text) name = value,
    SP_STATUS_MAP(SP_STATUS_ENUM)
#undef SP_STATUS_ENUM
    SP_STATUS_END /* one more than the last; no status */
} sp_status;

/* What a profiler writes: HDF5 (`<prefix>_rank00000.h5`), or a trace (.spt), which has the calls and no lanes. */
typedef enum sp_output_format { SP_OUTPUT_HDF5 = 0, SP_OUTPUT_TRACE = 1 } sp_output_format;

/* One recording with its regions and its file; opaque. */
typedef struct sp_profiler sp_profiler;

/* A stack of calls that is not a thread's: a fiber's, a coroutine's; opaque. */
typedef struct sp_lane sp_lane;

/* The completed calls of a region; the minimum and the maximum are 0 where there are none. */
typedef struct sp_region_stats {
    int64_t calls;
    int64_t total_ns;
    int64_t min_ns;
    int64_t max_ns;
} sp_region_stats;

/* One open call, to be ended by sp_scope_end(). A slot of -1: nothing to end. The last two belong to the library. */
typedef struct sp_scope {
    sp_profiler *profiler;
    int region;
    int64_t slot;
    uint64_t thread;
} sp_scope;

/*
 * How a rank of a distributed run reaches the others: what sp_finalize_ranks() needs to write one file with them. With MPI
 * there is scope_profiler_mpi.h; this is for other transports. `send` and `receive` move `size` bytes, at most 2^28, in order between
 * this rank and another; they give SP_ERR_BUSY when `seconds` have passed, and any other status when they fail.
 */
typedef struct sp_link {
    int rank, size;
    double patience; /* seconds to wait for a rank that should be there */
    int (*send)(struct sp_link *link, int to, const void *data, size_t size, double seconds);
    int (*receive)(struct sp_link *link, int from, void *data, size_t size, double seconds);
    void *context;
} sp_link;

#ifndef SP_DISABLE_PROFILING

/* ---- the library ---- */

/* A status in words. Never NULL; unknown numbers give "unknown status". */
SP_API const char *sp_error_string(int status);

/* "major.minor.patch" of the library that is loaded. */
SP_API const char *sp_version(void);

/* Nanoseconds of CLOCK_MONOTONIC, or -1 where there is no such clock. */
SP_API int64_t sp_now_ns(void);

/* ---- the default profiler ---- */

/*
 * Start recording into `<prefix>_rank<rank as five digits>.h5`; a NULL prefix is "scope_profile". A default profiler that is
 * active already is replaced: what it has not written is given up. In a Python process whose ProfileManager records, the
 * regions join that run, and no file of their own is written. 0 if it worked. The directory of the file need not be there
 * yet: sp_finalize() fails as long as it is not.
 */
SP_API int sp_init(const char *prefix, int rank);

/* Write the file and stop. On failure the profiler goes on recording, and the call can be repeated. 0 when there is nothing
 * to finalize, or when Python writes the run. Regions that are open end now, and are marked as open in the file. */
SP_API int sp_finalize(void);

/*
 * The same for all ranks of a distributed run at once: every rank calls it, and `<prefix>.h5` has the calls of all. (Traces
 * stay one a rank.) A rank that does not come within `patience` is named in the error that the others get, and
 * the others are in the file all the same; so with an error the profiler goes on recording only if its calls are in no file.
 */
SP_API int sp_finalize_ranks(sp_link *link);

/*
 * The handle of the region `name`, made at its first use: found by a hash, good for as long as the process lives, through
 * every sp_init() and sp_finalize(). SP_INVALID_REGION for NULL, before the first sp_init() (unless Python records), and
 * without memory. `source_file` may be NULL and `source_line` -1: the first that names a place wins.
 */
SP_API int sp_region(const char *name);
SP_API int sp_region_at(const char *name, const char *source_file, int source_line);
#define SP_REGION_AT(name) sp_region_at((name), __FILE__, __LINE__)

/*
 * Enter a region; leave it. sp_end closes the newest open call of that region on the calling lane, whatever else is open; else
 * the newest on any lane of this thread, else of another thread. That one gets the time of this end, and is closed when its
 * thread next ends a region, or ends. Scopes are not ended from another thread by their region, only by their token.
 * Recursion has no limit. An end without a call to close is counted (the file's metadata have "unmatched_ends"), and is
 * sp_profiler_last_error().
 */
SP_API void sp_begin(int region);
SP_API void sp_end(int region);

/* sp_end() that tells: SP_ERR_UNMATCHED_END when there was no call to close, SP_ERR_INACTIVE when nothing is recorded. */
SP_API int sp_end_status(int region);

/* Calls that the calling thread has open. */
SP_API int sp_open_calls(void);

/* Times that a region was entered. Readable after sp_finalize(). */
SP_API int64_t sp_num_calls(int region);

/* Put what is complete into the file, and go on. */
SP_API int sp_flush(void);

/* Give up all calls, keep the regions. SP_ERR_OPEN_SCOPES while a region is open. */
SP_API int sp_reset(void);

/* Whether calls are recorded now (1) or not (0). */
SP_API int sp_is_active(void);

/* The file; NULL before sp_init(), and when Python writes it. Valid until the next call that changes it. */
SP_API const char *sp_output_path(void);

/* Choose what is written, any time before it is. SP_ERR_UNSUPPORTED for anything else than the two formats. */
SP_API int sp_set_output_format(sp_output_format format);
SP_API sp_output_format sp_current_output_format(void);

/* The profiler that the functions without one use; NULL before anything was to be recorded. */
SP_API sp_profiler *sp_default_profiler(void);

/* ---- profilers of one's own: each has its regions, calls and file ---- */

SP_API sp_profiler *sp_create(const char *prefix, int rank);

/* Let go of a profiler, without writing. Only when no thread uses it any more. */
SP_API void sp_destroy(sp_profiler *profiler);

SP_API int sp_profiler_finalize(sp_profiler *profiler);
SP_API int sp_profiler_finalize_ranks(sp_profiler *profiler, sp_link *link);
SP_API int sp_profiler_flush(sp_profiler *profiler);
SP_API int sp_profiler_reset(sp_profiler *profiler);
SP_API int sp_profiler_region(sp_profiler *profiler, const char *name);
SP_API int sp_profiler_region_at(sp_profiler *profiler, const char *name, const char *source_file, int source_line);
#define SP_PROFILER_REGION_AT(profiler, name) sp_profiler_region_at((profiler), (name), __FILE__, __LINE__)
SP_API void sp_profiler_begin(sp_profiler *profiler, int region);
SP_API void sp_profiler_end(sp_profiler *profiler, int region);

/* Leave the innermost open call on the calling lane, of whatever region. SP_ERR_UNMATCHED_END: there is none. */
SP_API int sp_profiler_end_last(sp_profiler *profiler);

SP_API int sp_profiler_is_active(const sp_profiler *profiler);
SP_API const char *sp_profiler_output_path(const sp_profiler *profiler);
SP_API int sp_profiler_set_output_format(sp_profiler *profiler, sp_output_format format);
SP_API sp_output_format sp_profiler_output_format(const sp_profiler *profiler);

/* The status of the last call that failed or could fail; SP_OK for NULL. */
SP_API sp_status sp_profiler_last_error(const sp_profiler *profiler);

/* What there is to say about it, naming the file or the region: one line, "" when all is well. Valid until the next call
 * that fails. */
SP_API const char *sp_profiler_error_message(const sp_profiler *profiler);

/* Statistics of the completed calls of a region, also after it was finalized. One pass over the calls that are not in the
 * file yet. */
SP_API int sp_profiler_get_region_stats(const sp_profiler *profiler, int region, sp_region_stats *stats);
SP_API int sp_profiler_num_regions(const sp_profiler *profiler);
SP_API const char *sp_profiler_region_name(const sp_profiler *profiler, int region);

SP_API int sp_hdf5_available(void);
SP_API sp_output_format sp_default_output_format(void);

/* ---- scopes: one call, ended by its token ---- */

/*
 * Enter a region and get a token of exactly this call; end it, on any thread. Refused with SP_ERR_UNMATCHED_END while a
 * newer call of the region is open on the same lane (the token stays good), and for a token that was ended before.
 */
SP_API sp_scope sp_profiler_scope_begin(sp_profiler *profiler, int region);
SP_API sp_scope sp_scope_begin(int region);
SP_API int sp_scope_end(sp_scope *scope);

/* ---- lanes: stacks of calls of a program's own fibers, coroutines, green threads ---- */

/*
 * A lane is listed as a task of the run: its steps, the time it held a thread and the time it waited. Calls belong to the
 * lane that holds the calling thread. A scheduler says sp_lane_switch(lane) before it lets a fiber run on a thread, and
 * sp_lane_switch(NULL) when it has given way: NULL is the thread's own lane. Returned is the lane that was left. A lane may
 * hold one thread at a time, and move between threads. sp_lane_end() frees it; it must not hold a thread then.
 */
SP_API sp_lane *sp_lane_create(const char *name);
SP_API sp_lane *sp_profiler_lane_create(sp_profiler *profiler, const char *name);
SP_API sp_lane *sp_lane_switch(sp_lane *lane);
SP_API void sp_lane_end(sp_lane *lane);

/* ---- what else a run tells ---- */

/* Name the calling thread in this run. (Threads that are not named have the name that the system knows.) */
SP_API int sp_set_thread_name(const char *name);
SP_API int sp_profiler_set_thread_name(sp_profiler *profiler, const char *name);

/* Metadata of the run; a key that is there is replaced. NULL takes it out. */
SP_API int sp_set_metadata(const char *key, const char *value);
SP_API int sp_profiler_set_metadata(sp_profiler *profiler, const char *key, const char *value);

/*
 * Take samples of where the program is, `hz` times a second (1 to 1,000,000) of processor time; finalizing writes them to
 * `<prefix>_rank<rank>.sps`, at most 2^20 of them. One profiler of a process samples at a time. SP_ERR_UNSUPPORTED for
 * another rate and where there is no such timer. The environment's SCOPE_PROFILER_SAMPLE_HZ has sp_init() start it.
 */
SP_API int sp_start_sampling(int hz);
SP_API int sp_stop_sampling(void);
SP_API int sp_profiler_start_sampling(sp_profiler *profiler, int hz);
SP_API int sp_profiler_stop_sampling(sp_profiler *profiler);

/* ---- one timeline: joining a host ---- */

/*
 * A host is what records: this library, or the extension module of the Python package. Each copy of the library in a process
 * (shared, or linked into some module) finds the host when it is loaded, and a host that is loaded later finds the copies:
 * both export `sp_host_v1`, a struct sp_host. A copy that has found a host hands everything of its default profiler to it.
 * Modules whose symbols are hidden can be handed the host instead: scope_profiler._core._C_API is a capsule of that name
 * with its address, and sp_attach(PyCapsule_GetPointer(capsule, "scope_profiler._core._C_API")) joins it.
 *
 * The structures below are the interface between copies of different versions: what is there never changes, new functions
 * are appended, and `size` says how many there are.
 */
#define SP_HOST_VERSION 1

struct sp_host;

/* Join a host. SP_ERR_UNSUPPORTED if it is of another kind; SP_ERR_BUSY while a run of one's own is active. NULL: look for one. */
SP_API int sp_attach(const struct sp_host *host);

/*
 * For who opens the library instead of linking with it: keep the address of the default profiler in *place, now and when a
 * host is joined; no longer.
 */
SP_API int sp_follow(sp_profiler **place);
SP_API void sp_unfollow(sp_profiler **place);

/* The functions of a host. They want a profiler or a lane that is not NULL and that this host made. */
typedef struct sp_host_calls {
    uint32_t version, size; /* SP_HOST_VERSION, sizeof of this structure where it was compiled */
    void (*begin)(sp_profiler *, int);
    void (*end)(sp_profiler *, int);
    void (*scope_begin)(sp_profiler *, int, sp_scope *);
    int (*scope_end)(sp_scope *);
    void (*scope_close)(sp_scope *); /* the same, whatever newer calls of its region are open */
    int (*end_last)(sp_profiler *);
    int (*region)(sp_profiler *, const char *, const char *, int);
    int (*init)(sp_profiler *, const char *, int);
    int (*finalize)(sp_profiler *);
    int (*flush)(sp_profiler *);
    int (*reset)(sp_profiler *);
    int64_t (*num_calls)(sp_profiler *, int);
    int (*region_stats)(sp_profiler *, int, sp_region_stats *);
    int (*num_regions)(sp_profiler *);
    const char *(*region_name)(sp_profiler *, int);
    int (*region_place)(sp_profiler *, int, const char **); /* the line, and the file */
    const char *(*output_path)(sp_profiler *);
    int (*set_output_format)(sp_profiler *, int);
    int (*output_format)(sp_profiler *);
    int (*last_error)(sp_profiler *);
    const char *(*error_message)(sp_profiler *);
    sp_lane *(*lane_create)(sp_profiler *, const char *);
    sp_lane *(*lane_switch)(sp_lane *);
    void (*lane_end)(sp_lane *);
    int (*set_thread_name)(sp_profiler *, const char *);
    int (*set_metadata)(sp_profiler *, const char *, const char *);
    int (*start_sampling)(sp_profiler *, int);
    int (*stop_sampling)(sp_profiler *);
    sp_profiler *(*join)(const char *const *names, const char *const *files, const int *lines, int count);
    int (*end_status)(sp_profiler *, int);
    int (*open_calls)(sp_profiler *);
    int (*finalize_ranks)(sp_profiler *, sp_link *);
} sp_host_calls;

/* The first words of every profiler. They are read by other threads than those that write them. */
typedef struct sp_profiler_head {
    const sp_host_calls *calls;
    uint64_t recording; /* 0: begin has nothing to do */
    uint64_t live;      /* 0: end has nothing to do either */
    uint32_t serial;    /* tells profilers of one host apart */
} sp_profiler_head;

/* What `sp_host_v1` is. `attach` tells the copy that exports it to join a host. */
typedef struct sp_host {
    uint32_t version, size;
    uint32_t rank; /* of several hosts, the one with the highest is joined: Python's has 2, a library 1 */
    const sp_host_calls *calls;
    int (*attach)(const struct sp_host *);
} sp_host;

#if !defined(SP_HEADER_ONLY) || !defined(__cplusplus)
/* This copy's. */
extern SP_API const sp_host sp_host_v1;
#endif

/* The default profiler, never NULL. Read it through the functions. */
extern SP_API sp_profiler *sp_current_profiler;

/* ---- the inlined part: one test when nothing is recorded ---- */

#if defined(__GNUC__)

static inline const sp_profiler_head *sp_head_(const sp_profiler *profiler)
{
    return (const sp_profiler_head *)(const void *)profiler;
}

static inline sp_profiler *sp_current_(void)
{
    return __atomic_load_n(&sp_current_profiler, __ATOMIC_ACQUIRE);
}

static inline void sp_profiler_begin_(sp_profiler *profiler, int region)
{
    if (profiler && __builtin_expect(__atomic_load_n(&sp_head_(profiler)->recording, __ATOMIC_RELAXED) != 0, 1)) {
        sp_head_(profiler)->calls->begin(profiler, region);
    }
}

static inline void sp_profiler_end_(sp_profiler *profiler, int region)
{
    if (profiler && __builtin_expect(__atomic_load_n(&sp_head_(profiler)->live, __ATOMIC_RELAXED) != 0, 1)) {
        sp_head_(profiler)->calls->end(profiler, region);
    }
}

static inline void sp_begin_(int region)
{
    sp_profiler_begin_(sp_current_(), region);
}

static inline void sp_end_(int region)
{
    sp_profiler_end_(sp_current_(), region);
}

/* The functions stay there for who takes their address, or calls them from another language. */
#ifndef SP_NO_INLINE
#define sp_begin(region) sp_begin_(region)
#define sp_end(region) sp_end_(region)
#define sp_profiler_begin(profiler, region) sp_profiler_begin_((profiler), (region))
#define sp_profiler_end(profiler, region) sp_profiler_end_((profiler), (region))
#endif

/* A place in the program that is a region. `known` is the region's handle behind the serial of its profiler. */
typedef struct sp_place {
    const char *name, *file;
    int line;
    uint64_t known;
} sp_place;

static inline int sp_place_region_(sp_place *place, sp_profiler *profiler)
{
    const sp_profiler_head *head = sp_head_(profiler);
    const uint64_t known = __atomic_load_n(&place->known, __ATOMIC_RELAXED);
    if (__builtin_expect(known >> 32 == head->serial, 1)) return (int)(uint32_t)known;
    {
        const int region = head->calls->region(profiler, place->name, place->file, place->line);
        if (region >= 0) __atomic_store_n(&place->known, (uint64_t)head->serial << 32 | (uint32_t)region, __ATOMIC_RELAXED);
        return region;
    }
}

static inline sp_scope sp_place_enter_(sp_place *place)
{
    sp_profiler *profiler = sp_current_();
    sp_scope scope;
    scope.profiler = profiler;
    scope.region = SP_INVALID_REGION;
    scope.slot = -1;
    scope.thread = 0;
    if (__builtin_expect(__atomic_load_n(&sp_head_(profiler)->recording, __ATOMIC_RELAXED) != 0, 1)) {
        /* Through a copy, here and below: what no other function has seen stays in registers. */
        sp_scope begun = scope;
        sp_head_(profiler)->calls->scope_begin(profiler, sp_place_region_(place, profiler), &begun);
        scope = begun;
    }
    return scope;
}

static inline void sp_place_leave_(sp_scope *scope)
{
    if (__builtin_expect(scope->slot != -1, 1)) {
        sp_scope begun = *scope;
        sp_head_(begun.profiler)->calls->scope_close(&begun);
    }
}

#define SP_JOIN_INNER_(a, b) a##b
#define SP_JOIN_(a, b) SP_JOIN_INNER_(a, b)

/* The rest of the enclosing block is a call of the region `name`, a string literal, however the block is left. */
#define SP_SCOPE(name)                                                                                                 \
    static sp_place SP_JOIN_(sp_place_, __LINE__) = {"" name, __FILE__, __LINE__, 0};                                  \
    __attribute__((cleanup(sp_place_leave_), unused)) sp_scope SP_JOIN_(sp_scope_, __LINE__) =                         \
        sp_place_enter_(&SP_JOIN_(sp_place_, __LINE__))

#endif /* __GNUC__ */

#else /* SP_DISABLE_PROFILING: the same names, and nothing behind them */

static inline const char *sp_error_string(int status) { (void)status; return "profiling is disabled"; }
static inline const char *sp_version(void) { return SP_VERSION; }
static inline int64_t sp_now_ns(void) { return -1; }
static inline int sp_init(const char *prefix, int rank) { (void)prefix; (void)rank; return 0; }
static inline int sp_finalize(void) { return 0; }
static inline int sp_finalize_ranks(sp_link *link) { (void)link; return 0; }
static inline int sp_flush(void) { return 0; }
static inline int sp_reset(void) { return 0; }
static inline int sp_is_active(void) { return 0; }
static inline const char *sp_output_path(void) { return NULL; }
static inline int sp_set_output_format(sp_output_format format) { (void)format; return 0; }
static inline sp_output_format sp_current_output_format(void) { return SP_OUTPUT_TRACE; }
static inline sp_output_format sp_default_output_format(void) { return SP_OUTPUT_TRACE; }
static inline int sp_hdf5_available(void) { return 0; }
static inline sp_profiler *sp_default_profiler(void) { return NULL; }
static inline sp_profiler *sp_create(const char *prefix, int rank) { (void)prefix; (void)rank; return NULL; }
static inline void sp_destroy(sp_profiler *profiler) { (void)profiler; }
static inline int sp_profiler_finalize(sp_profiler *profiler) { (void)profiler; return 0; }
static inline int sp_profiler_finalize_ranks(sp_profiler *profiler, sp_link *link) { (void)profiler; (void)link; return 0; }
static inline int sp_profiler_flush(sp_profiler *profiler) { (void)profiler; return 0; }
static inline int sp_profiler_reset(sp_profiler *profiler) { (void)profiler; return 0; }
static inline int sp_profiler_end_last(sp_profiler *profiler) { (void)profiler; return 0; }
static inline int sp_profiler_is_active(const sp_profiler *profiler) { (void)profiler; return 0; }
static inline const char *sp_profiler_output_path(const sp_profiler *profiler) { (void)profiler; return NULL; }
static inline int sp_profiler_set_output_format(sp_profiler *profiler, sp_output_format format)
{
    (void)profiler;
    (void)format;
    return 0;
}
static inline sp_output_format sp_profiler_output_format(const sp_profiler *profiler)
{
    (void)profiler;
    return SP_OUTPUT_TRACE;
}
static inline sp_status sp_profiler_last_error(const sp_profiler *profiler) { (void)profiler; return SP_OK; }
static inline const char *sp_profiler_error_message(const sp_profiler *profiler) { (void)profiler; return ""; }
static inline int sp_profiler_get_region_stats(const sp_profiler *profiler, int region, sp_region_stats *stats)
{
    (void)profiler;
    (void)region;
    if (stats) stats->calls = stats->total_ns = stats->min_ns = stats->max_ns = 0;
    return SP_ERR_INACTIVE;
}
static inline int sp_profiler_num_regions(const sp_profiler *profiler) { (void)profiler; return 0; }
static inline const char *sp_profiler_region_name(const sp_profiler *profiler, int region)
{
    (void)profiler;
    (void)region;
    return NULL;
}
static inline sp_scope sp_profiler_scope_begin(sp_profiler *profiler, int region)
{
    sp_scope scope;
    scope.profiler = profiler;
    scope.region = region;
    scope.slot = -1;
    scope.thread = 0;
    return scope;
}
static inline sp_scope sp_scope_begin(int region) { return sp_profiler_scope_begin(NULL, region); }
static inline int sp_scope_end(sp_scope *scope) { (void)scope; return 0; }
static inline sp_lane *sp_lane_create(const char *name) { (void)name; return NULL; }
static inline sp_lane *sp_profiler_lane_create(sp_profiler *profiler, const char *name)
{
    (void)profiler;
    (void)name;
    return NULL;
}
static inline sp_lane *sp_lane_switch(sp_lane *lane) { (void)lane; return NULL; }
static inline void sp_lane_end(sp_lane *lane) { (void)lane; }
static inline int sp_set_thread_name(const char *name) { (void)name; return 0; }
static inline int sp_profiler_set_thread_name(sp_profiler *profiler, const char *name)
{
    (void)profiler;
    (void)name;
    return 0;
}
static inline int sp_set_metadata(const char *key, const char *value) { (void)key; (void)value; return 0; }
static inline int sp_profiler_set_metadata(sp_profiler *profiler, const char *key, const char *value)
{
    (void)profiler;
    (void)key;
    (void)value;
    return 0;
}
static inline int sp_end_status(int region) { (void)region; return 0; }
static inline int sp_open_calls(void) { return 0; }
static inline int sp_start_sampling(int hz) { (void)hz; return 0; }
static inline int sp_stop_sampling(void) { return 0; }
static inline int sp_profiler_start_sampling(sp_profiler *profiler, int hz) { (void)profiler; (void)hz; return 0; }
static inline int sp_profiler_stop_sampling(sp_profiler *profiler) { (void)profiler; return 0; }

/* The handles are not looked up, and the names are not kept in the program. */
#define sp_region(name) SP_INVALID_REGION
#define sp_region_at(name, file, line) SP_INVALID_REGION
#define SP_REGION_AT(name) SP_INVALID_REGION
#define sp_profiler_region(profiler, name) SP_INVALID_REGION
#define sp_profiler_region_at(profiler, name, file, line) SP_INVALID_REGION
#define SP_PROFILER_REGION_AT(profiler, name) SP_INVALID_REGION
#define sp_begin(region) ((void)(region))
#define sp_end(region) ((void)(region))
#define sp_profiler_begin(profiler, region) ((void)(profiler), (void)(region))
#define sp_profiler_end(profiler, region) ((void)(profiler), (void)(region))
#define sp_num_calls(region) ((void)(region), (int64_t)0)
#define SP_SCOPE(name) ((void)0)

#endif

#ifdef __cplusplus
}
#endif

#if defined(SP_HEADER_ONLY) && defined(__cplusplus) && !defined(SP_DISABLE_PROFILING)
#include "scope_profiler_client.h"
#endif
#endif
