/*
 * spool.h - the file in which a run survives its process. docs/spool-format.md is its specification.
 *
 *   page 0   header: version, sizes, clock, who writes it
 *   then     chunks, each behind a header of its own: events of one thread | task rows | journal
 *
 * All of it is mapped shared, so that the page cache has every store of the process at the moment it dies, however it
 * dies. Nothing is synced: a spool is no help against the machine's own death, which no call would be worth waiting for.
 */
#ifndef SP_FORMATS_SPOOL_H
#define SP_FORMATS_SPOOL_H

#include "analysis/profile.h"
#include "core/run.h"
#include "core/store.h"

#define SP_SPOOL_VERSION 1

typedef struct sp_spool_options {
    const char *path;      /* of the spool; must not exist */
    const char *output;    /* the file that the run will be written to: told in the header */
    bool tracks_threads, tracks_tasks;
    bool sums;             /* the run keeps sums (totals.h) */
    uint64_t limit;        /* bytes the file may take; 0: no limit */
    bool keeps_newest;     /* at the limit the oldest calls go; else recording stops */
    bool ends_with_name;   /* recording stops, as at the limit, once the file was removed: nobody would read it */
} sp_spool_options;

/* Make a spool. SP_ERR_IO names the path. */
sp_status sp_spool_create(const sp_spool_options *options, sp_store **out, sp_error *error);

/* Tell the spool when the run started and what its first anchor is. */
void sp_spool_begin(sp_store *store, sp_ticks started, int64_t start_ns);

/* Remove the file (it is of no use any more) or leave it. The memory stays valid until the last reference is released. */
void sp_spool_finish(sp_store *store, bool keep);

/* Whether the file system that holds `directory` is local, so that a shared mapping is cheap and coherent there. */
bool sp_spool_is_local(const char *directory);

/* What a spool says about itself and its writer. */
typedef struct sp_spool_info {
    int64_t pid;
    bool alive;        /* the process that writes it lives */
    bool tracks_threads, tracks_tasks;
    int64_t start_ns;
    char output[2048];
} sp_spool_info;

/* SP_ERR_FOREIGN when it is no spool, SP_ERR_SCHEMA for an unknown version, SP_ERR_CORRUPT, SP_ERR_IO. */
sp_status sp_spool_inspect(const char *path, sp_spool_info *info, sp_error *error);

/* What was left unreported in the spool, read or salvaged. */
typedef struct sp_salvage {
    uint64_t open_calls;     /* calls that had not ended; they end at the last moment that the spool knows */
    uint64_t damaged_bytes;  /* of the file that could not be understood and were left out */
    bool limited;            /* recording had stopped because the limit was reached */
    uint64_t dropped_calls;  /* or these went to keep newer ones */
    uint64_t dropped_until;  /* ticks; none of them ended later */
    bool incomplete;         /* there was no room for all calls: those that are missing were in memory only */
    uint64_t values;         /* notes of values of single calls */
} sp_salvage;

/* A note of what single calls carry (core/values.h). Strings are whole, and nothing else is certain of them. */
typedef struct sp_spool_value {
    bool outcome;        /* of the call of `region` on the lane at start_ns; else of the calls within the interval there */
    uint64_t scope;      /* notes with the same number, not 0, are of one scope: the last counts */
    int64_t lane;        /* a task's index, or -2 - a thread's row */
    int64_t start_ns, end_ns; /* end SP_UNKNOWN: the scope was open */
    char *region, *text; /* region: of an outcome, else NULL */
} sp_spool_value;

typedef struct sp_spool_values {
    sp_spool_value *list; /* in the order in which they were noted */
    size_t count, size;
    int64_t *lanes;       /* of each call, in column order; NULL: there are no values */
    uint64_t calls;
} sp_spool_values;

void sp_spool_values_free(sp_spool_values *values);

/*
 * Put the values into the event metadata of the calls that they belong to, of a profile that was read with them and is the caller's
 * alone. What is no JSON object is left out. SP_ERR_NO_MEMORY: some rows may have theirs.
 */
sp_status sp_spool_values_tell(const sp_spool_values *values, sp_profile *profile);

/*
 * The calls in a spool as a profile, also while its process goes on recording (a view of one moment). Calls that are open
 * carry {"open": true} as event metadata. The file is not changed. `values` may be NULL.
 */
sp_status sp_spool_read(const char *path, uint32_t rank, sp_profile **out, sp_salvage *salvage, sp_spool_values *values,
                        sp_error *error);

#endif
