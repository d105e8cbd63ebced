/* names.h - the regions of MPI calls: what they are called, and how communicators are numbered (docs/distributed.md). */
#ifndef SP_MPI_NAMES_H
#define SP_MPI_NAMES_H

#include <stdbool.h>

#include "scope_profiler_mpi.h"

#define SP_MPI_SHAPES 32   /* regions of an operation on one communicator that differ by bytes, peer and tag */
#define SP_MPI_CHILDREN 64 /* numbered communicators made from one; further ones are -1 */

/* What a call is called by. -1: unknown; a peer of -2: MPI_PROC_NULL. Operations are constant texts of this library. */
typedef struct sp_mpi_call {
    const char *operation, *request;
    long long bytes;
    int peer, root, tag, comm;
} sp_mpi_call;

/* The region of a call. Past SP_MPI_SHAPES of an operation it is one in whose name bytes, peer and tag are -1. */
int sp_mpi_region_of(const sp_mpi_call *call);

/* Number COMM_WORLD and COMM_SELF; from then on those made from them have numbers. */
bool sp_mpi_number_communicators(void);

/* -1 for one that is not known. */
int sp_mpi_number(MPI_Comm comm);

/* `made` came from `parent` (MPI_COMM_NULL on a rank that is in no part). */
void sp_mpi_number_child(MPI_Comm parent, MPI_Comm made);

/* Requests remember their operation until others take their place: in a table that is never full, only forgetful. */
void sp_mpi_keep_request(MPI_Request request, const sp_mpi_call *call);
bool sp_mpi_find_request(MPI_Request request, sp_mpi_call *call);

#endif
