#include "mpi/calls.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "mpi/names.h"

static _Atomic(int) recorded;

void sp_mpi_calls_begin(void)
{
    const char *word = getenv("SCOPE_PROFILER_MPI_CALLS");
    if (word) atomic_store(&recorded, strcmp(word, "1") == 0 || strcmp(word, "true") == 0 || strcmp(word, "yes") == 0 || strcmp(word, "on") == 0);
}

int sp_mpi_record_calls(int on)
{
    atomic_store(&recorded, on != 0);
    return SP_OK;
}

static bool is_recorded(void)
{
    return atomic_load_explicit(&recorded, memory_order_relaxed) && sp_is_active();
}

/* -- what calls have in common -- */

static long long bytes_of(long long count, MPI_Datatype type)
{
    int size = 0;
    if (count < 0 || type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &size) != MPI_SUCCESS || size < 0) return -1;
    return count * size;
}

static int peer_of(int rank)
{
    if (rank == MPI_PROC_NULL) return -2;
    return rank >= 0 ? rank : -1;
}

static int size_of(MPI_Comm comm)
{
    int size = 0;
    return PMPI_Comm_size(comm, &size) == MPI_SUCCESS ? size : 0;
}

static long long sum_of(const int *counts, MPI_Comm comm)
{
    long long sum = 0;
    const int size = size_of(comm);
    for (int i = 0; counts && i < size; i++) sum += counts[i];
    return sum;
}

static sp_mpi_call message(const char *operation, long long bytes, int peer, int tag, MPI_Comm comm)
{
    return (sp_mpi_call){operation, NULL, bytes, peer_of(peer), -1, tag >= 0 ? tag : -1, sp_mpi_number(comm)};
}

static sp_mpi_call collective(const char *operation, long long bytes, int root, MPI_Comm comm)
{
    return (sp_mpi_call){operation, NULL, bytes, -1, root >= 0 ? root : -1, -1, sp_mpi_number(comm)};
}

/*
 * `run`, as a call of a region when calls are recorded, and `then` with its outcome_ and the call_ before it is returned. `what`
 * says which call it is, and is not looked at otherwise.
 */
#define RECORDED_THEN(what, run, then)                                                                                 \
    do {                                                                                                               \
        if (!is_recorded()) return run;                                                                                \
        const sp_mpi_call call_ = what;                                                                                \
        const int region_ = sp_mpi_region_of(&call_);                                                                  \
        if (region_ >= 0) sp_begin(region_);                                                                           \
        const int outcome_ = run;                                                                                      \
        if (region_ >= 0) sp_end(region_);                                                                             \
        then;                                                                                                          \
        return outcome_;                                                                                               \
    } while (0)

#define RECORDED(what, run) RECORDED_THEN(what, run, (void)0)

/* The same for one that gives a request. */
#define REQUESTED(what, run, request)                                                                                  \
    RECORDED_THEN(what, run, if (outcome_ == MPI_SUCCESS) sp_mpi_keep_request(*(request), &call_))

/* The same for one that makes a communicator, which is numbered whether calls are recorded or not. */
#define MADE(name, parent, made, run)                                                                                  \
    do {                                                                                                               \
        int region_ = SP_INVALID_REGION;                                                                               \
        if (is_recorded()) {                                                                                           \
            const sp_mpi_call call_ = collective(name, -1, -1, parent);                                                \
            region_ = sp_mpi_region_of(&call_);                                                                        \
        }                                                                                                              \
        if (region_ >= 0) sp_begin(region_);                                                                           \
        const int outcome_ = run;                                                                                      \
        if (region_ >= 0) sp_end(region_);                                                                             \
        if (outcome_ == MPI_SUCCESS) sp_mpi_number_child(parent, *(made));                                             \
        return outcome_;                                                                                               \
    } while (0)

/* -- messages -- */

#define SEND(function, name)                                                                                           \
    int MPI_##function(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)                 \
    {                                                                                                                  \
        RECORDED(message(name, bytes_of(count, type), to, tag, comm), PMPI_##function(data, count, type, to, tag, comm)); \
    }
SEND(Send, "send")
SEND(Ssend, "ssend")
SEND(Bsend, "bsend")
SEND(Rsend, "rsend")

#define ISEND(function, name)                                                                                          \
    int MPI_##function(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) \
    {                                                                                                                  \
        REQUESTED(message(name, bytes_of(count, type), to, tag, comm),                                                 \
                  PMPI_##function(data, count, type, to, tag, comm, request), request);                                \
    }
ISEND(Isend, "isend")
ISEND(Issend, "issend")
ISEND(Ibsend, "ibsend")
ISEND(Irsend, "irsend")

int MPI_Recv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status)
{
    RECORDED(message("recv", bytes_of(count, type), from, tag, comm), PMPI_Recv(data, count, type, from, tag, comm, status));
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
    REQUESTED(message("irecv", bytes_of(count, type), from, tag, comm),
              PMPI_Irecv(data, count, type, from, tag, comm, request), request);
}

int MPI_Sendrecv(const void *sent, int count, MPI_Datatype type, int to, int tag, void *got, int got_count,
                 MPI_Datatype got_type, int from, int got_tag, MPI_Comm comm, MPI_Status *status)
{
    RECORDED(message("sendrecv", bytes_of(count, type), to, tag, comm),
             PMPI_Sendrecv(sent, count, type, to, tag, got, got_count, got_type, from, got_tag, comm, status));
}

int MPI_Sendrecv_replace(void *data, int count, MPI_Datatype type, int to, int tag, int from, int got_tag, MPI_Comm comm,
                         MPI_Status *status)
{
    RECORDED(message("sendrecv_replace", bytes_of(count, type), to, tag, comm),
             PMPI_Sendrecv_replace(data, count, type, to, tag, from, got_tag, comm, status));
}

int MPI_Probe(int from, int tag, MPI_Comm comm, MPI_Status *status)
{
    RECORDED(message("probe", -1, from, tag, comm), PMPI_Probe(from, tag, comm, status));
}

/* -- waits -- */

static sp_mpi_call wait_of(MPI_Request request)
{
    sp_mpi_call call = {"wait", NULL, -1, -1, -1, -1, -1};
    if (sp_mpi_find_request(request, &call)) {
        call.request = call.operation;
        call.operation = "wait";
        call.root = -1;
    }
    return call;
}

/* For several: what they have in common. */
static sp_mpi_call waits_of(const char *operation, int count, const MPI_Request *all)
{
    sp_mpi_call call = {operation, NULL, -1, -1, -1, -1, -1}, one;
    bool first = true;
    for (int i = 0; i < count; i++) {
        if (all[i] == MPI_REQUEST_NULL || !sp_mpi_find_request(all[i], &one)) continue;
        if (first) {
            call.request = one.operation;
            call.comm = one.comm;
        }
        if (call.request && strcmp(call.request, one.operation) != 0) call.request = NULL;
        if (call.comm != one.comm) call.comm = -1;
        first = false;
    }
    return call;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    RECORDED(wait_of(*request), PMPI_Wait(request, status));
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[])
{
    RECORDED(waits_of("waitall", count, requests), PMPI_Waitall(count, requests, statuses));
}

int MPI_Waitany(int count, MPI_Request requests[], int *which, MPI_Status *status)
{
    RECORDED(waits_of("waitany", count, requests), PMPI_Waitany(count, requests, which, status));
}

int MPI_Waitsome(int count, MPI_Request requests[], int *done, int which[], MPI_Status statuses[])
{
    RECORDED(waits_of("waitsome", count, requests), PMPI_Waitsome(count, requests, done, which, statuses));
}

/* -- collectives -- */

int MPI_Barrier(MPI_Comm comm)
{
    RECORDED(collective("barrier", 0, -1, comm), PMPI_Barrier(comm));
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    REQUESTED(collective("ibarrier", 0, -1, comm), PMPI_Ibarrier(comm, request), request);
}

int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    RECORDED(collective("bcast", bytes_of(count, type), root, comm), PMPI_Bcast(data, count, type, root, comm));
}

int MPI_Ibcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request)
{
    REQUESTED(collective("ibcast", bytes_of(count, type), root, comm), PMPI_Ibcast(data, count, type, root, comm, request), request);
}

int MPI_Reduce(const void *sent, void *got, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
    RECORDED(collective("reduce", bytes_of(count, type), root, comm), PMPI_Reduce(sent, got, count, type, op, root, comm));
}

int MPI_Ireduce(const void *sent, void *got, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm, MPI_Request *request)
{
    REQUESTED(collective("ireduce", bytes_of(count, type), root, comm),
              PMPI_Ireduce(sent, got, count, type, op, root, comm, request), request);
}

#define REDUCE_ALL(function, name)                                                                                     \
    int MPI_##function(const void *sent, void *got, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)            \
    {                                                                                                                  \
        RECORDED(collective(name, bytes_of(count, type), -1, comm), PMPI_##function(sent, got, count, type, op, comm)); \
    }
REDUCE_ALL(Allreduce, "allreduce")
REDUCE_ALL(Scan, "scan")
REDUCE_ALL(Exscan, "exscan")

int MPI_Reduce_scatter_block(const void *sent, void *got, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    RECORDED(collective("reduce_scatter_block", bytes_of((long long)count * size_of(comm), type), -1, comm),
             PMPI_Reduce_scatter_block(sent, got, count, type, op, comm));
}

int MPI_Iallreduce(const void *sent, void *got, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    REQUESTED(collective("iallreduce", bytes_of(count, type), -1, comm),
              PMPI_Iallreduce(sent, got, count, type, op, comm, request), request);
}

int MPI_Reduce_scatter(const void *sent, void *got, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    RECORDED(collective("reduce_scatter", bytes_of(sum_of(counts, comm), type), -1, comm),
             PMPI_Reduce_scatter(sent, got, counts, type, op, comm));
}

/* What this rank gives, or where that is in place or only the root's, what it gets. */
int MPI_Gather(const void *sent, int count, MPI_Datatype type, void *got, int got_count, MPI_Datatype got_type, int root,
               MPI_Comm comm)
{
    RECORDED(collective("gather", sent == MPI_IN_PLACE ? bytes_of(got_count, got_type) : bytes_of(count, type), root, comm),
             PMPI_Gather(sent, count, type, got, got_count, got_type, root, comm));
}

int MPI_Gatherv(const void *sent, int count, MPI_Datatype type, void *got, const int got_counts[], const int places[],
                MPI_Datatype got_type, int root, MPI_Comm comm)
{
    RECORDED(collective("gatherv", sent == MPI_IN_PLACE ? -1 : bytes_of(count, type), root, comm),
             PMPI_Gatherv(sent, count, type, got, got_counts, places, got_type, root, comm));
}

int MPI_Scatter(const void *sent, int count, MPI_Datatype type, void *got, int got_count, MPI_Datatype got_type, int root,
                MPI_Comm comm)
{
    RECORDED(collective("scatter", got == MPI_IN_PLACE ? bytes_of(count, type) : bytes_of(got_count, got_type), root, comm),
             PMPI_Scatter(sent, count, type, got, got_count, got_type, root, comm));
}

int MPI_Scatterv(const void *sent, const int counts[], const int places[], MPI_Datatype type, void *got, int got_count,
                 MPI_Datatype got_type, int root, MPI_Comm comm)
{
    RECORDED(collective("scatterv", got == MPI_IN_PLACE ? -1 : bytes_of(got_count, got_type), root, comm),
             PMPI_Scatterv(sent, counts, places, type, got, got_count, got_type, root, comm));
}

int MPI_Allgather(const void *sent, int count, MPI_Datatype type, void *got, int got_count, MPI_Datatype got_type, MPI_Comm comm)
{
    RECORDED(collective("allgather", sent == MPI_IN_PLACE ? bytes_of(got_count, got_type) : bytes_of(count, type), -1, comm),
             PMPI_Allgather(sent, count, type, got, got_count, got_type, comm));
}

int MPI_Allgatherv(const void *sent, int count, MPI_Datatype type, void *got, const int got_counts[], const int places[],
                   MPI_Datatype got_type, MPI_Comm comm)
{
    RECORDED(collective("allgatherv", sent == MPI_IN_PLACE ? -1 : bytes_of(count, type), -1, comm),
             PMPI_Allgatherv(sent, count, type, got, got_counts, places, got_type, comm));
}

int MPI_Alltoall(const void *sent, int count, MPI_Datatype type, void *got, int got_count, MPI_Datatype got_type, MPI_Comm comm)
{
    RECORDED(collective("alltoall", size_of(comm) * (sent == MPI_IN_PLACE ? bytes_of(got_count, got_type) : bytes_of(count, type)), -1, comm),
             PMPI_Alltoall(sent, count, type, got, got_count, got_type, comm));
}

int MPI_Alltoallv(const void *sent, const int counts[], const int places[], MPI_Datatype type, void *got, const int got_counts[],
                  const int got_places[], MPI_Datatype got_type, MPI_Comm comm)
{
    RECORDED(collective("alltoallv", sent == MPI_IN_PLACE ? bytes_of(sum_of(got_counts, comm), got_type) : bytes_of(sum_of(counts, comm), type), -1, comm),
             PMPI_Alltoallv(sent, counts, places, type, got, got_counts, got_places, got_type, comm));
}

/* -- communicators -- */

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *made)
{
    MADE("dup", comm, made, PMPI_Comm_dup(comm, made));
}

int MPI_Comm_split(MPI_Comm comm, int color, int order, MPI_Comm *made)
{
    MADE("split", comm, made, PMPI_Comm_split(comm, color, order, made));
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int order, MPI_Info info, MPI_Comm *made)
{
    MADE("split_type", comm, made, PMPI_Comm_split_type(comm, type, order, info, made));
}

int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm *made)
{
    MADE("create", comm, made, PMPI_Comm_create(comm, group, made));
}

int MPI_Cart_create(MPI_Comm comm, int dimensions, const int sizes[], const int periods[], int reorder, MPI_Comm *made)
{
    MADE("create_cart", comm, made, PMPI_Cart_create(comm, dimensions, sizes, periods, reorder, made));
}

int MPI_Cart_sub(MPI_Comm comm, const int kept[], MPI_Comm *made)
{
    MADE("sub", comm, made, PMPI_Cart_sub(comm, kept, made));
}
