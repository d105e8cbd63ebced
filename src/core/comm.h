/*
 * comm.h - the ranks of a distributed run, and what they tell each other. MPI itself is not here: a front end gives two
 * functions that move bytes between two ranks (mpi4py's, the C library's, or threads of a test).
 *
 *   rank 0 ─┬─ 1                  A binomial tree: a rank's parent is itself without its lowest set bit, and what hangs below
 *           ├─ 2 ── 3             rank r are the ranks right after it. So a gather that appends its children's bytes in
 *           └─ 4 ─┬─ 5            ascending order has them in rank order, and takes log2(size) steps.
 *                 └─ 6 ── 7
 *
 * Nothing waits for ever. Every message that is waited for has a time limit, and every message begins with a report: the
 * first problem that any rank below (or, on the way down, any rank at all) met. A rank that does not arrive is a problem like
 * any other: its parent reports it, and the rest of the tree goes on without what hangs below.
 */
#ifndef SP_CORE_COMM_H
#define SP_CORE_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

#define SP_COMM_PIECE_MAX ((size_t)1 << 28) /* bytes of one send; longer messages go in pieces */

typedef struct sp_comm sp_comm;
struct sp_comm {
    int rank, size;
    double patience; /* seconds to wait for a rank that should be here */
    /*
     * Move `size` bytes, at most SP_COMM_PIECE_MAX, in order between two ranks. SP_ERR_BUSY when `seconds` have passed, any
     * other status for a failure of the transport; neither fills a message.
     */
    sp_status (*send)(sp_comm *comm, int to, const void *data, size_t size, double seconds);
    sp_status (*receive)(sp_comm *comm, int from, void *data, size_t size, double seconds);
    void *context;
    uint64_t lost; /* bit k: the child rank + 2^k did not arrive, and is not waited for again */
    bool cut_off;  /* the parent is gone: nothing comes from rank 0 any more */
};

/* What went wrong, and where: the same on every rank after sp_comm_broadcast. SP_OK: nothing. */
typedef struct sp_report {
    int32_t status;
    int32_t rank;    /* whose problem it is; -1: nobody's */
    int32_t missing; /* the rank, or one that it hangs from, did not arrive */
    int32_t cut_off; /* whoever hears this hears nothing from rank 0 any more */
    int32_t system;  /* errno, or 0 */
    char message[492];
} sp_report;

/* Bytes that grow. */
typedef struct sp_bytes {
    char *data;
    size_t size, room;
} sp_bytes;

bool sp_bytes_add(sp_bytes *bytes, const void *data, size_t size); /* false: out of memory, nothing added */
void sp_bytes_free(sp_bytes *bytes);                               /* it is empty afterwards */

/* Note this rank's problem, unless there is a worse one than a missing rank already. */
void sp_report_note(sp_report *report, const sp_comm *comm, sp_status status, const sp_error *error);
/* Whether the ranks that are there can go on: all is well, but for missing ones. */
bool sp_report_may_go_on(const sp_report *report);
/* As an error of the caller; returns its status. */
sp_status sp_report_fail(const sp_report *report, sp_error *error);

/*
 * Bring bytes of all ranks to rank 0. `own` has this rank's, and afterwards those of its whole subtree: by `combine`, which
 * puts the bytes of children (ascending, those that arrived) after this rank's, or in rank order when `combine` is NULL.
 * `report` becomes the first problem of the subtree.
 */
typedef sp_status (*sp_combine)(void *context, sp_bytes *own, sp_bytes *children, size_t count, sp_error *error);
void sp_comm_gather(sp_comm *comm, sp_report *report, sp_bytes *own, sp_combine combine, void *context);

/*
 * Rank 0's report and bytes to all. A rank that hears nothing is cut off: its report says so, which is no case of a missing
 * rank but one of not going on, and those that hang from it hear that.
 */
void sp_comm_broadcast(sp_comm *comm, sp_report *report, sp_bytes *bytes);

/* A message from rank to rank, outside of the tree. */
sp_status sp_comm_send(sp_comm *comm, int to, const void *data, size_t size, double seconds, sp_error *error);
sp_status sp_comm_receive(sp_comm *comm, int from, sp_bytes *bytes, double seconds, sp_error *error);

#endif
