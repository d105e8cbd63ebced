/* calls.h - MPI calls as regions: this library's MPI_Send and so on stand before those of MPI, which are PMPI_Send and so on. */
#ifndef SP_MPI_CALLS_H
#define SP_MPI_CALLS_H

/* What stands before MPI's functions must be seen by the program, whatever mpi.h says of them. */
#pragma GCC visibility push(default)
#include <mpi.h>
#pragma GCC visibility pop

/* A run begins: record calls if the environment asks for it. */
void sp_mpi_calls_begin(void);

#endif
