/*
 * store.h - where a run keeps what must outlive the process: event blocks, task pages and notes of everything else.
 *
 * A run without a store uses anonymous memory. A store maps its memory from a file (formats/spool.h is the one there is),
 * so that what was recorded is there after the process has been killed. Core knows only this interface.
 */
#ifndef SP_CORE_STORE_H
#define SP_CORE_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sp_store sp_store;

typedef enum sp_chunk_kind {
    SP_CHUNK_EVENTS = 1,
    SP_CHUNK_TASKS = 2,
    SP_CHUNK_JOURNAL = 3,
    SP_CHUNK_VALUES = 4,
    SP_CHUNK_TOTALS = 5,
} sp_chunk_kind;

/* What a note is about; docs/spool-format.md has the payloads. Numbers are stored: they never change. */
typedef enum sp_note_kind {
    SP_NOTE_REGION = 1,      /* index: id */
    SP_NOTE_THREAD = 2,      /* index: row */
    SP_NOTE_THREAD_END = 3,  /* index: row */
    SP_NOTE_STRING = 4,      /* index: id of the interned string */
    SP_NOTE_TASK_NAME = 5,   /* index: task */
    SP_NOTE_ANCHOR = 6,
    SP_NOTE_METADATA = 7,    /* JSON text of the run's metadata */
    SP_NOTE_COLLECT = 8,     /* a collection has chosen its calls; index: its number */
    SP_NOTE_CONFIRM = 9,     /* it is in a file; index: its number */
    SP_NOTE_LIMIT = 10,      /* the limit was reached */
    SP_NOTE_FILE = 11,       /* the collection with this number is in a file that is about to be put in place */
    SP_NOTE_FULL = 12,       /* there was no room for what came next, and it is in no store; told once */
    SP_NOTE_DROPPED = 13,    /* calls went to keep newer ones */
    /* in chunks of values only, which go when their calls are in a file */
    SP_NOTE_SCOPE = 14,      /* values of the calls in an interval of a lane */
    SP_NOTE_OUTCOME = 15,    /* values of one call */
} sp_note_kind;

/* A slot in a store, or how far a log was read: in the block with this sequence, up to the slot `index`. */
typedef struct sp_mark {
    uint32_t owner; /* row of the log */
    uint32_t index;
    uint64_t sequence;
} sp_mark;

/* By block, then by slot: for qsort and bsearch. */
static inline int sp_mark_compare(const void *a, const void *b)
{
    const sp_mark *x = a, *y = b;
    if (x->sequence != y->sequence) return x->sequence < y->sequence ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

typedef struct sp_store_operations {
    /* Zeroed memory for about `bytes`; *bytes becomes what there is. `owner`: the row of the log, or the page of tasks.
     * NULL when there is no room; errno tells why: EDQUOT is the store's own limit. */
    void *(*map)(sp_store *store, sp_chunk_kind kind, uint32_t owner, uint32_t stride, size_t *bytes);
    /* Memory that is written rarely from now on may leave; what is in it stays. */
    void (*park)(sp_store *store, void *memory, size_t bytes);
    /* The contents are not needed any more. */
    void (*drop)(sp_store *store, void *memory, size_t bytes);
    /* Whether dropping the block, or thinning it, gives room back. */
    bool (*can_drop)(sp_store *store, const void *memory);
    /* [from, to) of the block `memory` becomes zero, and whole pages of it are given back. */
    void (*thin)(sp_store *store, void *memory, char *from, char *to);
    /* Which block it is, in order of the calls of map. */
    uint64_t (*sequence)(const sp_store *store, const void *memory);
    /* Append a note: its parts one after the other. False when there is no room. */
    bool (*note)(sp_store *store, sp_note_kind kind, uint32_t index, const void *const *parts, const size_t *sizes, size_t count);
    /* Append a note to a chunk of values, at `used` bytes: where the next one goes, or 0 when there is no room in it. */
    size_t (*note_at)(sp_store *store, void *memory, size_t bytes, size_t used, sp_note_kind kind, const void *const *parts,
                      const size_t *sizes, size_t count);
    /* Around a fork, in the parent: nothing of the store is half done at that moment, nor before the child has copied what it needs. */
    void (*hold)(sp_store *store);
    void (*unhold)(sp_store *store);
    /* In a forked child, instead of unhold: what was recorded stays readable and writable, in private; the file is the parent's. */
    void (*inherit)(sp_store *store);
    /* How many pages of its memory were found to be gone, as its file was cut off or its disk failed. What was there reads as zero from
     * then on, what comes is in this process only, and nothing can be told to the store any more. */
    uint64_t (*lost)(const sp_store *store);
    void (*release)(sp_store *store);
} sp_store_operations;


struct sp_store {
    const sp_store_operations *operations;
    bool keeps_newest;    /* at the limit: the oldest calls go. Else recording stops. */
    size_t largest_block; /* bytes of slots, so that the limit is many blocks; 0: any */
    size_t most_values;   /* bytes of chunks of values, so that they leave room for calls; 0: any */
    _Atomic(int) references; /* its maker, the run, and every block */
};

static inline sp_store *sp_store_share(sp_store *store)
{
    atomic_fetch_add_explicit(&store->references, 1, memory_order_relaxed);
    return store;
}

#endif
