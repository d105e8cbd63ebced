/*
 * scope_profiler_mpi.h - regions of MPI programs: one file for all ranks, and MPI calls as regions on request.
 *
 *     MPI_Init(&argc, &argv);
 *     sp_mpi_init("profile", MPI_COMM_WORLD);
 *     int solve = sp_region("solve");
 *     sp_begin(solve); ... sp_end(solve);
 *     sp_mpi_finalize();                        // writes profile.h5, on all ranks together
 *     MPI_Finalize();
 *
 * Link with libscope_profiler_openmpi or libscope_profiler_mpich, before the MPI library, as pkg-config gives them:
 * `pkg-config --cflags --libs scope_profiler_openmpi`. Everything of scope_profiler.h works as it does there. In the Python process
 * of an MPI run the regions join Python's run, which Python writes.
 */
#ifndef SCOPE_PROFILER_MPI_H
#define SCOPE_PROFILER_MPI_H

#include <mpi.h>

#include "scope_profiler.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef SP_DISABLE_PROFILING

/*
 * Start recording on this rank of `comm`, after MPI_Init. The ranks of `comm` write together: it must be there until
 * sp_mpi_finalize(). Not collective. SP_ERR_INACTIVE before MPI_Init and after MPI_Finalize, else as sp_init().
 */
SP_API int sp_mpi_init(const char *prefix, MPI_Comm comm);

/* The same for Fortran, whose communicators are integers (`comm%MPI_VAL` with mpi_f08). */
SP_API int sp_mpi_init_f(const char *prefix, MPI_Fint comm);

/*
 * Write `<prefix>.h5` with the calls of all ranks, and stop; collective. With sp_set_output_format(SP_OUTPUT_TRACE) on every rank,
 * each writes its own trace. An error of any rank is an error on every rank, and sp_profiler_error_message() names the rank. One
 * that does not come within the timeout is left out, and named. MPI_Finalize() does this when it was not done. After
 * MPI_Finalize() each rank writes a file of its own.
 */
SP_API int sp_mpi_finalize(void);

/* How long to wait for another rank, in seconds: 300, or what the environment's SCOPE_PROFILER_MPI_TIMEOUT says. */
SP_API int sp_mpi_set_timeout(double seconds);

/*
 * Whether MPI calls of this rank are regions (1) or not (0, unless the environment's SCOPE_PROFILER_MPI_CALLS is 1). They are
 * called as those of Python: "mpi:send kind=point-to-point bytes=32 peer=1 root=-1 tag=0 comm=0". Any rank for itself, any time.
 */
SP_API int sp_mpi_record_calls(int on);

/*
 * The region of an operation on a communicator, by the names that MPI calls have: "send", "allreduce", "wait" ... -1 is "unknown".
 * `request` is NULL, or for a wait the operation that is waited for. SP_INVALID_REGION when nothing is recorded.
 */
SP_API int sp_mpi_region(const char *operation, long long bytes, int peer, int root, int tag, MPI_Comm comm,
                         const char *request);

#else

static inline int sp_mpi_init(const char *prefix, MPI_Comm comm) { (void)prefix; (void)comm; return 0; }
static inline int sp_mpi_init_f(const char *prefix, MPI_Fint comm) { (void)prefix; (void)comm; return 0; }
static inline int sp_mpi_finalize(void) { return 0; }
static inline int sp_mpi_set_timeout(double seconds) { (void)seconds; return 0; }
static inline int sp_mpi_record_calls(int on) { (void)on; return 0; }
static inline int sp_mpi_region(const char *operation, long long bytes, int peer, int root, int tag, MPI_Comm comm,
                                const char *request)
{
    (void)operation;
    (void)bytes;
    (void)peer;
    (void)root;
    (void)tag;
    (void)comm;
    (void)request;
    return SP_INVALID_REGION;
}

#endif

#ifdef __cplusplus
}
#endif
#endif
