/* Two ranks that talk through scope_profiler_mpi.hpp. Arguments: the prefix, and "own" for files of their own, without the library for MPI. */
#include <scope_profiler_mpi.hpp>

#include <cstdio>
#include <cstring>
#include <utility>

int main(int argc, char **argv)
{
    int rank = 0;
    double numbers[4] = {1, 2, 3, 4}, got[4] = {0, 0, 0, 0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#ifdef WITH_LIBRARY
    if (sp_mpi_init(argv[1], MPI_COMM_WORLD) != SP_OK) return 2;
    sp_mpi_record_calls(1);
#else
    if (sp_init(argv[1], rank) != SP_OK) return 2;
#endif
    sp::mpi::barrier(MPI_COMM_WORLD);
    sp::mpi::bcast(numbers, 4, MPI_DOUBLE, 1, MPI_COMM_WORLD);
    sp::mpi::reduce(numbers, got, 4, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    sp::mpi::allreduce(numbers, got, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (got[1] != 4) return 3;
    if (rank == 0) {
        if (sp::mpi::send(numbers, 3, MPI_DOUBLE, 1, 5, MPI_COMM_WORLD) != MPI_SUCCESS) return 4;
        sp::mpi::Request request = sp::mpi::isend(numbers, 4, MPI_DOUBLE, 1, 6, MPI_COMM_WORLD);
        sp::mpi::Request moved(std::move(request));
        if (!moved.active() && moved.error() != MPI_SUCCESS) return 5;
        if (sp::mpi::wait(moved) != MPI_SUCCESS || moved.native() != MPI_REQUEST_NULL) return 6;
        for (int i = 0; i < 40; i++) sp::mpi::send(numbers, 0, MPI_BYTE, 1, 100 + i, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Status status;
        sp::mpi::recv(got, 4, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        sp::mpi::Request request = sp::mpi::irecv(got, 4, MPI_DOUBLE, 0, 6, MPI_COMM_WORLD);
        sp::mpi::wait(request);
        if (status.MPI_TAG != 5 || got[3] != 4) return 7;
        for (int i = 0; i < 40; i++) sp::mpi::recv(got, 0, MPI_BYTE, 0, 100 + i, MPI_COMM_WORLD);
    }
#ifdef WITH_LIBRARY
    const int status = sp_mpi_finalize();
#else
    const int status = sp_finalize();
#endif
    MPI_Finalize();
    return status;
}
