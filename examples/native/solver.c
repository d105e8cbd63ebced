/* A C program with regions: two threads, a recursion, and a file that `scope-profiler inspect solver_rank00000.h5` shows. */
#include <pthread.h>
#include <scope_profiler.h>
#include <stdio.h>

static double work(int count)
{
    SP_SCOPE("work"); /* until the end of the block */
    double sum = 0;
    for (int i = 1; i <= count; i++) sum += 1.0 / i;
    return sum;
}

static int fibonacci(int n)
{
    const int region = sp_region("fibonacci");
    sp_begin(region);
    const int value = n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
    sp_end(region);
    return value;
}

static void *helper(void *unused)
{
    sp_set_thread_name("helper");
    for (int i = 0; i < 5; i++) work(1000);
    return unused;
}

int main(void)
{
    pthread_t thread;
    if (sp_init("solver", 0) != SP_OK) return 1;
    const int solve = SP_REGION_AT("solve");
    pthread_create(&thread, NULL, helper, NULL);
    for (int step = 0; step < 3; step++) {
        sp_begin(solve);
        work(1000);
        sp_end(solve);
    }
    fibonacci(5);
    pthread_join(thread, NULL);
    printf("solve: %lld calls\n", (long long)sp_num_calls(solve));
    return sp_finalize();
}
