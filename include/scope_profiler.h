/*
 * scope_profiler.h - the one installed C header of scope-profiler.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC (the clock behind Python's time.perf_counter_ns() on Linux). Strings are UTF-8
 * and NUL-terminated; the library copies every string it keeps. Nothing in the library prints or ends the process.
 */
#ifndef SCOPE_PROFILER_H
#define SCOPE_PROFILER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SP_API __attribute__((visibility("default")))
#else
#define SP_API
#endif

#define SP_VERSION_MAJOR 1
#define SP_VERSION_MINOR 0
#define SP_VERSION_PATCH 0
#define SP_VERSION "1.0.0"

/*
 * Every status the library returns, in one table: X(name, value, text). Numbers up to SP_ERR_UNSUPPORTED are those of
 * earlier releases and never change; new ones are appended.
 */
#define SP_STATUS_MAP(X)                                                                                               \
    X(SP_OK, 0, "no error")                                                                                            \
    X(SP_ERR_INACTIVE, 1, "nothing is being recorded")                                                                 \
    X(SP_ERR_NO_CLOCK, 2, "no monotonic clock")                                                                        \
    X(SP_ERR_NO_MEMORY, 3, "out of memory")                                                                            \
    X(SP_ERR_IO, 4, "input or output failed")                                                                          \
    X(SP_ERR_UNMATCHED_END, 5, "a region was ended that is not open")                                                  \
    X(SP_ERR_OPEN_SCOPES, 6, "regions are still open")                                                                 \
    X(SP_ERR_UNSUPPORTED, 7, "not supported")                                                                          \
    X(SP_ERR_INVALID, 8, "invalid argument")                                                                           \
    X(SP_ERR_NOT_FOUND, 9, "no such file")                                                                             \
    X(SP_ERR_CORRUPT, 10, "damaged profile")                                                                           \
    X(SP_ERR_SCHEMA, 11, "unknown profile schema")                                                                     \
    X(SP_ERR_FOREIGN, 12, "not a profile")                                                                             \
    X(SP_ERR_NESTING, 13, "calls overlap without nesting")                                                             \
    X(SP_ERR_BUSY, 14, "in use")

typedef enum sp_status {
#define SP_STATUS_ENUM(name, value, text) name = value,
    SP_STATUS_MAP(SP_STATUS_ENUM)
#undef SP_STATUS_ENUM
} sp_status;

/* The name of a status in words. Never NULL; unknown numbers give "unknown status". */
SP_API const char *sp_error_string(int status);

/* "major.minor.patch" of the library that is loaded. */
SP_API const char *sp_version(void);

/* Nanoseconds of CLOCK_MONOTONIC, or -1 where there is no such clock. */
SP_API int64_t sp_now_ns(void);

#ifdef __cplusplus
}
#endif
#endif
