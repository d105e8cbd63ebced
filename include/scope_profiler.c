/*
 * scope_profiler.c - for programs that compile the profiler in, as they did before release 1.0:
 *
 *     cc -c scope_profiler.c
 *     cc program.c scope_profiler.o -lm -o program
 *
 * It opens the library when the program starts; scope_profiler_client.h says which, and what macros change. A program that
 * is linked with the library (-lscope_profiler) needs none of this.
 */
#define SP_CLIENT_SOURCE_
#include "scope_profiler.h"

#ifdef SP_DISABLE_PROFILING
typedef int sp_nothing_is_recorded; /* a source that has nothing is not C */
#else
#include "scope_profiler_client.h"
#endif
