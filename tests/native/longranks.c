/*
 * MPI ranks that record many calls: rank r CALLS + 1000 r pairs below a call that stays open. Each prints its number, the peak of its
 * memory before the end and after it, and its statistics. Arguments: the prefix, CALLS, and "trace" for a trace of each rank.
 */
#include <scope_profiler_mpi.h>

#include <inttypes.h>

#include "long.h"

int main(int count, char **arguments)
{
    int rank;
    long before;
    sp_region_stats stats;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const long pairs = atol(arguments[2]) + 1000 * rank;
    if (sp_mpi_init(arguments[1], MPI_COMM_WORLD)) return 1;
    if (count > 3) sp_set_output_format(SP_OUTPUT_TRACE);
    const int all = sp_region("all"), outer = sp_region("outer"), inner = sp_region("inner");
    sp_begin(all);
    for (long i = 0; i < pairs; i++) record_pair(outer, inner);
    before = peak_kb();
    if (sp_mpi_finalize()) {
        printf("%d: %s\n", rank, sp_profiler_error_message(sp_default_profiler()));
        return 2;
    }
    sp_profiler_get_region_stats(sp_default_profiler(), inner, &stats);
    printf("%d %ld %ld %" PRId64 " %" PRId64 "\n", rank, before, peak_kb(), stats.calls, stats.total_ns);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
