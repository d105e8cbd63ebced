/* ranks.c - a run of all ranks: what moves bytes between them when they write their file. Nothing here waits for ever. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "mpi/calls.h"
#include "mpi/names.h"

#define TAG 22871 /* below the smallest upper bound that MPI allows; the same as Python's */
#define SHORTEST_NS 20000
#define LONGEST_NS 2000000

static MPI_Comm team = MPI_COMM_NULL;
static double timeout;

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Look at a request until it is done; after `seconds` it is taken back. */
static int finish(MPI_Request *request, double seconds)
{
    const double until = seconds_now() + seconds;
    struct timespec pause = {0, SHORTEST_NS};
    int done = 0;
    for (;;) {
        if (PMPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return SP_ERR_IO;
        if (done) return SP_OK;
        if (seconds_now() > until) break;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < LONGEST_NS) pause.tv_nsec *= 2;
    }
    PMPI_Cancel(request);
    PMPI_Request_free(request);
    return SP_ERR_BUSY;
}

static int send_bytes(sp_link *link, int to, const void *data, size_t size, double seconds)
{
    MPI_Request request;
    (void)link;
    if (PMPI_Isend(data, (int)size, MPI_BYTE, to, TAG, team, &request) != MPI_SUCCESS) return SP_ERR_IO;
    return finish(&request, seconds);
}

static int receive_bytes(sp_link *link, int from, void *data, size_t size, double seconds)
{
    MPI_Request request;
    (void)link;
    if (PMPI_Irecv(data, (int)size, MPI_BYTE, from, TAG, team, &request) != MPI_SUCCESS) return SP_ERR_IO;
    return finish(&request, seconds);
}

static bool is_open(void)
{
    int begun = 0, over = 0;
    PMPI_Initialized(&begun);
    PMPI_Finalized(&over);
    return begun && !over;
}

int sp_mpi_set_timeout(double seconds)
{
    if (!(seconds > 0) || !isfinite(seconds)) return SP_ERR_INVALID;
    timeout = seconds;
    return SP_OK;
}

static double patience(void)
{
    const char *text = getenv("SCOPE_PROFILER_MPI_TIMEOUT");
    if (timeout > 0) return timeout;
    const double seconds = text ? strtod(text, NULL) : 0;
    return seconds > 0 && isfinite(seconds) ? seconds : 300;
}

int sp_mpi_init(const char *prefix, MPI_Comm comm)
{
    int rank;
    if (!is_open()) return SP_ERR_INACTIVE;
    if (comm == MPI_COMM_NULL || PMPI_Comm_rank(comm, &rank) != MPI_SUCCESS) return SP_ERR_INVALID;
    if (!sp_mpi_number_communicators()) return SP_ERR_NO_MEMORY;
    const int status = sp_init(prefix, rank);
    if (status != SP_OK) return status;
    team = comm;
    sp_mpi_calls_begin();
    return SP_OK;
}

int sp_mpi_init_f(const char *prefix, MPI_Fint comm)
{
    return is_open() ? sp_mpi_init(prefix, PMPI_Comm_f2c(comm)) : SP_ERR_INACTIVE;
}

int sp_mpi_finalize(void)
{
    if (team == MPI_COMM_NULL || !is_open()) {
        team = MPI_COMM_NULL;
        return sp_finalize();
    }
    sp_link link = {.patience = patience(), .send = send_bytes, .receive = receive_bytes};
    if (PMPI_Comm_rank(team, &link.rank) != MPI_SUCCESS || PMPI_Comm_size(team, &link.size) != MPI_SUCCESS) return SP_ERR_IO;
    const int status = sp_finalize_ranks(&link);
    if (!sp_is_active()) team = MPI_COMM_NULL;
    return status;
}

/* A program that forgot it loses nothing; after this there is no way to the other ranks. */
int MPI_Finalize(void)
{
    if (team != MPI_COMM_NULL) (void)sp_mpi_finalize();
    team = MPI_COMM_NULL;
    return PMPI_Finalize();
}
