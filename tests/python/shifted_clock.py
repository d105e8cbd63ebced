"""A monotonic clock that starts elsewhere and gains, for a program that loads this library before libc."""

from __future__ import annotations

# A clock that starts elsewhere and gains, as the process sees it: CLOCK_MONOTONIC is changed before the profiler reads it.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    static long long origin;
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    const int result = real(id, t);
    if (id != CLOCK_MONOTONIC) return result;
    long long ns = t->tv_sec * 1000000000LL + t->tv_nsec;
    if (!origin) origin = ns;
    ns = atoll(getenv("SHIM_START")) + (long long)((double)(ns - origin) * (1 + atof(getenv("SHIM_DRIFT"))));
    t->tv_sec = ns / 1000000000LL;
    t->tv_nsec = ns % 1000000000LL;
    return result;
}
int clock_nanosleep(clockid_t id, int flags, const struct timespec *until, struct timespec *left)
{
    static int (*real)(clockid_t, int, const struct timespec *, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_nanosleep");
    if (id != CLOCK_MONOTONIC || !(flags & TIMER_ABSTIME)) return real(id, flags, until, left);
    struct timespec now;
    clock_gettime(id, &now);
    const long long ns = (until->tv_sec - now.tv_sec) * 1000000000LL + until->tv_nsec - now.tv_nsec;
    if (ns <= 0) return 0;
    const struct timespec wait = {ns / 1000000000LL, ns % 1000000000LL};
    return real(id, 0, &wait, left);
}
ssize_t readlink(const char *path, char *buffer, size_t size)
{
    static ssize_t (*real)(const char *, char *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "readlink");
    if (strcmp(path, "/proc/self/ns/time") != 0) return real(path, buffer, size);
    memcpy(buffer, getenv("SHIM_START"), strlen(getenv("SHIM_START")));
    return (ssize_t)strlen(getenv("SHIM_START"));
}
"""
