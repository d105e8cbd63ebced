/*
 * path_summary.h - the calls of a profile summed by call path: what the printed table, and the file's summary, show.
 *
 *   calls                         nodes                       rows (one per node and rank)
 *     main                          0 main                      calls, inclusive, exclusive, covered, statistics
 *       ├─ solve                    ├─ 1 solve
 *       │    └─ solve               │    └─ 2 dot               A call directly inside one of its own region is a level of
 *       │         └─ dot            └─ 3 dot                    the same node (recursion); anything else that repeats
 *       └─ dot                                                  further down (mutual recursion) is a path of its own.
 *
 * One pass in call order, where parents come before their children: no recursion and no sort. Calls that carry ids are in
 * that order by id; others are nested first (call_tree.h). A node's parent has a smaller index than the node, and siblings
 * are in order of their first call on the lowest rank that has them.
 *
 * Calls that do not nest: where their lanes were recorded, exclusive times are clamped and the tree is still made; where
 * they were not, there is no tree, and every region is a root (`nested` is false, exclusive times are SP_UNKNOWN).
 */
#ifndef SP_ANALYSIS_PATH_SUMMARY_H
#define SP_ANALYSIS_PATH_SUMMARY_H

#include "analysis/collection.h"
#include "analysis/profile.h"

#define SP_PATH_ROOT (-1)

typedef struct sp_path_node {
    uint32_t name;  /* index into profile->names */
    int32_t parent; /* node, or SP_PATH_ROOT */
} sp_path_node;

/* What the calls of one node on one rank add up to. Times in ns. */
typedef struct sp_path_row {
    uint32_t node, rank;
    uint64_t count;    /* calls, every level of a recursion */
    bool recursive;    /* some call lies directly inside another of the same region */
    int64_t inclusive; /* of the outermost levels */
    int64_t exclusive; /* without the calls inside; SP_UNKNOWN when there is no tree */
    int64_t covered;   /* wall clock during which at least one call was open; SP_UNKNOWN without the calls */
    int64_t awaiting;  /* of the outermost levels; SP_UNKNOWN without the calls, or where tasks were not followed */
    /* over every level. `first` is the duration of the call that starts first, `last` of the one that ends last */
    sp_row_statistics statistics;
} sp_path_row;

/* What was recorded on one thread: `covered` is the wall clock during which it was inside at least one call. */
typedef struct sp_thread_usage {
    uint32_t rank;
    int64_t thread; /* as the thread column says; SP_UNKNOWN: calls of no known thread */
    uint64_t count;
    int64_t covered;
} sp_thread_usage;

typedef struct sp_path_summary {
    sp_path_node *nodes;
    size_t node_count;
    sp_path_row *rows; /* rank by rank, nodes ascending */
    size_t row_count;
    sp_thread_usage *threads; /* rank by rank, threads ascending; only calls that `visible` and `ranks` let through */
    size_t thread_count;
    double *percentiles; /* [node][percentile] over all ranks, ns; NULL unless asked for */
    size_t percentile_count;
    bool nested;  /* the nodes are a tree */
    bool clamped; /* some calls of a lane overlap: their exclusive times are clamped */
} sp_path_summary;

typedef struct sp_path_options {
    const bool *visible; /* by name; a region left out disappears between its callers and its calls. NULL: all */
    const uint32_t *ranks;
    size_t rank_count;         /* 0: all */
    const double *percentiles; /* 0..100, ascending; durations of every level */
    size_t percentile_count;
} sp_path_options;

/*
 * Sum up. `options` may be NULL. A profile without its calls gives what it stores: its paths, else one root per region.
 * 8 bytes a call while it runs (12 with percentiles, 64 when the calls have no ids). SP_ERR_NO_MEMORY, SP_ERR_UNSUPPORTED
 * (more calls on a rank than a tree can hold).
 */
sp_status sp_path_summary_make(const sp_profile *profile, const sp_path_options *options, sp_path_summary **out,
                               sp_error *error);
void sp_path_summary_free(sp_path_summary *summary); /* NULL is allowed */

/*
 * The same for the calls of a walk (collection.h), which are not kept: who walks finds each call's node, and has the calls of a region summed
 * up when they leave a node. Memory is that of the result. `threads`: how many there are, 0 when calls carry none. NULL when out of memory.
 */
typedef struct sp_path_stream sp_path_stream;
#define SP_PATH_NONE UINT32_MAX

sp_path_stream *sp_path_stream_new(const sp_profile *profile, int64_t threads);

/* The node of calls of a row under calls of the node `above` (SP_PATH_NONE: under none). SP_PATH_NONE: it failed, and nothing is summed any more. */
uint32_t sp_path_stream_find(sp_path_stream *stream, uint32_t above, uint32_t row);

/*
 * Calls of one row, `node` and `above`, the next ones of that row: each starts `steps` after the one before it, and the first after `before`.
 */
void sp_path_stream_sum(sp_path_stream *stream, uint32_t node, uint32_t above, int64_t before, const int64_t *steps, const int64_t *durations,
                        uint64_t count);

/* Calls as a sink gets them, for the sums of the threads. */
void sp_path_stream_threads(sp_path_stream *stream, const sp_collected *calls, size_t count);

/* The sums; the stream is gone. NULL: it had failed, for memory or for too many paths. NULL is allowed. */
sp_path_summary *sp_path_stream_finish(sp_path_stream *stream);

#endif
