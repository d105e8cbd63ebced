/* A C library that has regions, and knows nothing of Python. */
#include <scope_profiler.h>

#include <pthread.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void kernel_run(int steps);
EXPORT void kernel_begin(const char *name);
EXPORT void kernel_end(const char *name);
EXPORT void kernel_threads(int count);
EXPORT void kernel_openmp(int threads);
EXPORT int kernel_active(void);
EXPORT int kernel_tell(const char *key, const char *value);

void kernel_run(int steps)
{
    int i;
    SP_SCOPE("c.kernel");
    for (i = 0; i < steps; i++) {
        const int region = SP_REGION_AT("c.step");
        sp_begin(region);
        sp_end(region);
    }
}

void kernel_begin(const char *name)
{
    sp_begin(sp_region(name));
}

void kernel_end(const char *name)
{
    sp_end(sp_region(name));
}

static void *on_thread(void *number)
{
    char name[16];
    snprintf(name, sizeof name, "native-%d", *(const int *)number);
    sp_set_thread_name(name);
    kernel_run(2);
    return NULL;
}

void kernel_threads(int count)
{
    pthread_t threads[64];
    int numbers[64], i;
    for (i = 0; i < count; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, on_thread, &numbers[i]);
    }
    for (i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

void kernel_openmp(int threads)
{
    (void)threads;
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
    {
        SP_SCOPE("omp.part");
        kernel_run(1);
    }
#endif
}

int kernel_tell(const char *key, const char *value)
{
    return sp_set_metadata(key, value);
}

int kernel_active(void)
{
    return sp_is_active();
}
