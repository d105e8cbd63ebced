/*
 * A program of MPI ranks. Rank r enters "only r" r + 1 times and "all" 3 times, with "inner" inside; odd ranks have a thread.
 * Arguments: the prefix, and words: "calls" makes MPI calls and records them, "quiet" only makes them, "trace" writes traces, "late" ends after
 * MPI_Finalize, "kill" kills rank 1, "abort" has it abort the job, "hang" has all wait to be killed, "die R N" kills rank R N us after its
 * end began, "forget" leaves the end to MPI_Finalize, "absent N": rank N does not come, "threads": without them there is none.
 */
#include <pthread.h>
#include <scope_profiler_mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int argument_count;
static char **arguments;

static int is_asked(const char *word)
{
    int i;
    for (i = 2; i < argument_count; i++) {
        if (strcmp(arguments[i], word) == 0) return i;
    }
    return 0;
}

static void *work(void *count)
{
    int i;
    sp_set_thread_name("helper");
    for (i = 0; i < *(int *)count; i++) {
        SP_SCOPE("work");
    }
    return NULL;
}

static void *die(void *microseconds)
{
    struct timespec pause = {0, 1000L * *(int *)microseconds};
    nanosleep(&pause, NULL);
    kill(getpid(), SIGKILL);
    return NULL;
}

static void make_calls(int rank, int size)
{
    double numbers[4] = {0, 1, 2, 3}, sums[4];
    int i, all = rank;
    MPI_Comm copy, half;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    for (i = 0; i < 5; i++) MPI_Barrier(MPI_COMM_WORLD);
    MPI_Bcast(numbers, 4, MPI_DOUBLE, size - 1, MPI_COMM_WORLD);
    MPI_Allreduce(numbers, sums, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (all != size * (size - 1) / 2) exit(7);
    if (rank == 0) {
        MPI_Comm own;
        MPI_Comm_dup(MPI_COMM_SELF, &own); /* one more communicator here: handles differ from now on */
        MPI_Comm_free(&own);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Barrier(copy);
    MPI_Comm_split(copy, rank % 2, 0, &half);
    MPI_Barrier(half);
    MPI_Comm_free(&half);
    MPI_Comm_free(&copy);
    if (size == 1) return;
    if (rank == 0) {
        MPI_Isend(numbers, 4, MPI_DOUBLE, 1, 3, MPI_COMM_WORLD, &requests[0]);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        for (i = 0; i < 40; i++) MPI_Send(numbers, 1, MPI_BYTE, 1, 100 + i, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Recv(sums, 4, MPI_DOUBLE, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (sums[3] != 3) exit(8);
        for (i = 0; i < 40; i += 2) {
            MPI_Irecv(sums, 1, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[0]);
            MPI_Irecv(sums, 1, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[1]);
            MPI_Waitall(2, requests, statuses);
        }
    }
}

int main(int argc, char **argv)
{
    int rank, size, i, all, only, calls, status, absent;
    char name[40];
    pthread_t thread;
    argument_count = argc;
    arguments = argv;
    if (sp_mpi_init("too early", MPI_COMM_WORLD) != SP_ERR_INACTIVE) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (sp_mpi_init(argv[1], MPI_COMM_WORLD) != SP_OK) return 3;
    if (is_asked("trace")) sp_set_output_format(SP_OUTPUT_TRACE);
    if (is_asked("calls")) sp_mpi_record_calls(1);
    snprintf(name, sizeof name, "only %d", rank);
    all = sp_region("all");
    only = SP_REGION_AT(name);
    for (i = 0; i < 3; i++) {
        sp_begin(all);
        {
            SP_SCOPE("inner");
        }
        sp_end(all);
    }
    for (i = 0; i < rank + 1 && rank != 5; i++) {
        sp_begin(only);
        sp_end(only);
    }
    if (is_asked("threads") && rank % 2) {
        calls = rank + 1;
        pthread_create(&thread, NULL, work, &calls);
        pthread_join(thread, NULL);
    }
    if (is_asked("calls") || is_asked("quiet")) make_calls(rank, size);
    if (is_asked("kill") || is_asked("abort") || is_asked("hang")) {
        MPI_Barrier(MPI_COMM_WORLD);
        printf("waiting\n");
        fflush(stdout);
        if (rank == 1 && is_asked("kill")) kill(getpid(), SIGKILL);
        if (rank == 1 && is_asked("abort")) MPI_Abort(MPI_COMM_WORLD, 3);
        sleep(30);
    }
    if (is_asked("die")) {
        MPI_Barrier(MPI_COMM_WORLD);
        calls = atoi(argv[is_asked("die") + 2]);
        if (rank == atoi(argv[is_asked("die") + 1])) pthread_create(&thread, NULL, die, &calls);
    }
    absent = is_asked("absent") ? atoi(argv[is_asked("absent") + 1]) : -1;
    if (absent >= 0) sp_mpi_set_timeout(1);
    if (rank == absent) {
        sleep(8);
    } else if (!is_asked("late") && !is_asked("forget")) {
        status = sp_mpi_finalize();
        if (status != SP_OK) printf("%d: %s\n", rank, sp_profiler_error_message(sp_default_profiler()));
        fflush(stdout);
        if (absent >= 0) sleep(8);
        else if (status != SP_OK) return 4;
        if (status == SP_OK && (sp_num_calls(all) != 3 || sp_is_active() || sp_mpi_finalize() != SP_OK)) return 5;
    }
    if (absent >= 0) _exit(0);
    MPI_Finalize();
    if (is_asked("late") && sp_mpi_finalize() != SP_OK) return 6;
    return sp_mpi_init("too late", MPI_COMM_WORLD) == SP_ERR_INACTIVE ? 0 : 9;
}
