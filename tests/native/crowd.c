/* Many threads, deep recursion or many names: argument 1 says which, argument 2 how many. */
#include <scope_profiler.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *work(void *number)
{
    char name[16];
    int i;
    snprintf(name, sizeof name, "t%ld", (long)(intptr_t)number);
    sp_set_thread_name(name);
    for (i = 0; i < 10; i++) {
        SP_SCOPE("outer");
        {
            SP_SCOPE("inner");
        }
    }
    return NULL;
}

static void threads(long count)
{
    pthread_t *all = malloc((size_t)count * sizeof *all);
    pthread_attr_t small;
    long i;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (i = 0; i < count; i++) {
        if (pthread_create(&all[i], &small, work, (void *)(intptr_t)i) != 0) abort();
    }
    for (i = 0; i < count; i++) pthread_join(all[i], NULL);
    free(all);
}

static void recurse(int region, long depth)
{
    if (depth == 0) return;
    sp_begin(region);
    recurse(region, depth - 1);
    sp_end(region);
}

static int names(long count)
{
    long i;
    for (i = 0; i < count; i++) {
        char name[32];
        int region;
        snprintf(name, sizeof name, "region-%ld", i);
        region = sp_region(name);
        if (region != (int)i || sp_region(name) != region) return 1;
        sp_begin(region);
        sp_end(region);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const long count = argc > 2 ? atol(argv[2]) : 0;
    if (argc < 3 || sp_init("crowd", 0) != 0) return 2;
    if (strcmp(argv[1], "threads") == 0) threads(count);
    if (strcmp(argv[1], "depth") == 0) recurse(sp_region("r"), count);
    if (strcmp(argv[1], "names") == 0 && names(count) != 0) return 3;
    return sp_finalize();
}
