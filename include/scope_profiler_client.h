/*
 * scope_profiler_client.h - the functions of scope_profiler.h for programs that are not linked with the library: they open
 * libscope_profiler.so.1 when they start, and hand everything to it. Not to be included by itself: scope_profiler.h includes
 * it in C++ where SP_HEADER_ONLY is defined, and scope_profiler.c is it for C.
 *
 * The library is the one that SCOPE_PROFILER_LIBRARY names (its path); else the one that the system's loader finds; else the
 * one that was installed with this header. Without any, sp_init() and sp_create() say so once on stderr and nothing is
 * recorded: sp_init() gives SP_ERR_NOT_FOUND.
 *
 * Macros, as releases before 1.0 had them:
 *   SP_USE_HDF5     profiles are written as HDF5 from the start; without it as .spt traces, until a format is chosen
 *   SP_NO_SAMPLING  sp_start_sampling() gives SP_ERR_UNSUPPORTED
 *
 * What is here is C99 and C++17 at once.
 */
#ifndef SCOPE_PROFILER_CLIENT_H
#define SCOPE_PROFILER_CLIENT_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#ifdef __cplusplus
extern "C" {
#define SP_CLIENT_ inline __attribute__((visibility("hidden")))
#define SP_CLIENT_ONCE_ inline __attribute__((visibility("hidden")))
#else
#define SP_CLIENT_ __attribute__((visibility("hidden")))
#define SP_CLIENT_ONCE_ static
#endif

/*
 * Every function that is handed on as it is: X(type, name, parameters, arguments, what it gives without a library).
 * Names are followed by no parenthesis here, because some are macros too.
 */
#define SP_CLIENT_GIVEN_ON_(X)                                                                                         \
    X(const char *, sp_error_string, (int status), (status), sp_client_text_(status))                                  \
    X(const char *, sp_version, (void), (), "")                                                                        \
    X(int64_t, sp_now_ns, (void), (), -1)                                                                              \
    X(int, sp_finalize, (void), (), SP_OK)                                                                             \
    X(int, sp_finalize_ranks, (sp_link * link), (link), SP_OK)                                                         \
    X(int, sp_region, (const char *name), (name), SP_INVALID_REGION)                                                   \
    X(int, sp_region_at, (const char *name, const char *file, int line), (name, file, line), SP_INVALID_REGION)        \
    X(int, sp_end_status, (int region), (region), SP_ERR_INACTIVE)                                                     \
    X(int, sp_open_calls, (void), (), 0)                                                                               \
    X(int64_t, sp_num_calls, (int region), (region), 0)                                                                \
    X(int, sp_flush, (void), (), SP_ERR_INACTIVE)                                                                      \
    X(int, sp_reset, (void), (), SP_ERR_INACTIVE)                                                                      \
    X(int, sp_is_active, (void), (), 0)                                                                                \
    X(const char *, sp_output_path, (void), (), NULL)                                                                  \
    X(int, sp_set_output_format, (sp_output_format format), (format), SP_ERR_INACTIVE)                                 \
    X(sp_profiler *, sp_default_profiler, (void), (), NULL)                                                            \
    X(int, sp_profiler_finalize, (sp_profiler * p), (p), SP_OK)                                                        \
    X(int, sp_profiler_finalize_ranks, (sp_profiler * p, sp_link * link), (p, link), SP_OK)                            \
    X(int, sp_profiler_flush, (sp_profiler * p), (p), SP_ERR_INACTIVE)                                                 \
    X(int, sp_profiler_reset, (sp_profiler * p), (p), SP_ERR_INACTIVE)                                                 \
    X(int, sp_profiler_region, (sp_profiler * p, const char *name), (p, name), SP_INVALID_REGION)                      \
    X(int, sp_profiler_region_at, (sp_profiler * p, const char *name, const char *file, int line),                     \
      (p, name, file, line), SP_INVALID_REGION)                                                                        \
    X(int, sp_profiler_end_last, (sp_profiler * p), (p), SP_ERR_INACTIVE)                                              \
    X(int, sp_profiler_is_active, (const sp_profiler *p), (p), 0)                                                      \
    X(const char *, sp_profiler_output_path, (const sp_profiler *p), (p), NULL)                                        \
    X(int, sp_profiler_set_output_format, (sp_profiler * p, sp_output_format format), (p, format), SP_ERR_INACTIVE)    \
    X(sp_status, sp_profiler_last_error, (const sp_profiler *p), (p), SP_OK)                                           \
    X(const char *, sp_profiler_error_message, (const sp_profiler *p), (p), "")                                        \
    X(int, sp_profiler_get_region_stats, (const sp_profiler *p, int region, sp_region_stats *stats),                   \
      (p, region, stats), SP_ERR_INACTIVE)                                                                             \
    X(int, sp_profiler_num_regions, (const sp_profiler *p), (p), 0)                                                    \
    X(const char *, sp_profiler_region_name, (const sp_profiler *p, int region), (p, region), NULL)                    \
    X(int, sp_hdf5_available, (void), (), 0)                                                                           \
    X(int, sp_scope_end, (sp_scope * scope), (scope), SP_ERR_INACTIVE)                                                 \
    X(sp_lane *, sp_lane_create, (const char *name), (name), NULL)                                                     \
    X(sp_lane *, sp_profiler_lane_create, (sp_profiler * p, const char *name), (p, name), NULL)                        \
    X(sp_lane *, sp_lane_switch, (sp_lane * lane), (lane), NULL)                                                       \
    X(int, sp_set_thread_name, (const char *name), (name), SP_ERR_INACTIVE)                                            \
    X(int, sp_profiler_set_thread_name, (sp_profiler * p, const char *name), (p, name), SP_ERR_INACTIVE)               \
    X(int, sp_set_metadata, (const char *key, const char *value), (key, value), SP_ERR_INACTIVE)                       \
    X(int, sp_profiler_set_metadata, (sp_profiler * p, const char *key, const char *value), (p, key, value),           \
      SP_ERR_INACTIVE)                                                                                                 \
    X(int, sp_stop_sampling, (void), (), SP_OK)                                                                        \
    X(int, sp_profiler_stop_sampling, (sp_profiler * p), (p), SP_OK)                                                   \
    X(int, sp_attach, (const struct sp_host *host), (host), SP_ERR_NOT_FOUND)

/* The others of the library: the client adds something to them, or they give nothing back. */
#define SP_CLIENT_TAKEN_(X)                                                                                            \
    X(int, sp_init, (const char *prefix, int rank), (), 0)                                                             \
    X(sp_profiler *, sp_create, (const char *prefix, int rank), (), 0)                                                 \
    X(sp_output_format, sp_current_output_format, (void), (), 0)                                                       \
    X(sp_output_format, sp_profiler_output_format, (const sp_profiler *p), (), 0)                                      \
    X(sp_scope, sp_profiler_scope_begin, (sp_profiler * p, int region), (), 0)                                         \
    X(sp_scope, sp_scope_begin, (int region), (), 0)                                                                   \
    X(int, sp_start_sampling, (int hz), (), 0)                                                                         \
    X(int, sp_profiler_start_sampling, (sp_profiler * p, int hz), (), 0)                                               \
    X(void, sp_destroy, (sp_profiler * p), (), 0)                                                                      \
    X(void, sp_lane_end, (sp_lane * lane), (), 0)                                                                      \
    X(int, sp_follow, (sp_profiler * *place), (), 0)                                                                   \
    X(void, sp_unfollow, (sp_profiler * *place), (), 0)

typedef struct sp_client_calls {
#define SP_CLIENT_FIELD_(type, name, parameters, arguments, otherwise) type(*name) parameters;
    SP_CLIENT_GIVEN_ON_(SP_CLIENT_FIELD_)
    SP_CLIENT_TAKEN_(SP_CLIENT_FIELD_)
#undef SP_CLIENT_FIELD_
} sp_client_calls;

typedef struct sp_client {
    sp_client_calls calls;
    int found; /* all of them */
    int busy;  /* some thread looks for the library */
    int told;  /* that there is none */
} sp_client;

/* The default profiler without a library: it never records. */
SP_CLIENT_ONCE_ sp_profiler_head sp_client_none_ = {NULL, 0, 0, 0};
SP_CLIENT_ sp_profiler *sp_current_profiler = (sp_profiler *)(void *)&sp_client_none_;
SP_CLIENT_ONCE_ sp_client sp_client_state_;

SP_CLIENT_ONCE_ const char *sp_client_text_(int status)
{
    switch (status) {
#define SP_CLIENT_TEXT_(name, value, text)                                                                             \
    case value: return text;
        SP_STATUS_MAP(SP_CLIENT_TEXT_)
#undef SP_CLIENT_TEXT_
    default: return "unknown status";
    }
}

/* -- finding the library -- */

/* Every function of a library, or none. */
SP_CLIENT_ONCE_ int sp_client_resolve_(void *library, sp_client_calls *calls)
{
    void *symbol;
#define SP_CLIENT_SYMBOL_(type, name, parameters, arguments, otherwise)                                                                 \
    symbol = dlsym(library, #name);                                                                                    \
    if (symbol == NULL) return 0;                                                                                      \
    memcpy(&calls->name, &symbol, sizeof symbol);
    SP_CLIENT_GIVEN_ON_(SP_CLIENT_SYMBOL_)
    SP_CLIENT_TAKEN_(SP_CLIENT_SYMBOL_)
#undef SP_CLIENT_SYMBOL_
    return 1;
}

SP_CLIENT_ONCE_ int sp_client_open_(const char *path, sp_client_calls *calls)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return 0;
    if (sp_client_resolve_(library, calls)) return 1;
    dlclose(library);
    return 0;
}

/* The library that lies where this header was installed. A path that depends on the current directory is none. */
SP_CLIENT_ONCE_ int sp_client_beside_(sp_client_calls *calls)
{
    static const char *const places[] = {"/../lib/", "/../lib64/", "/../lib/x86_64-linux-gnu/", "/../lib/aarch64-linux-gnu/"};
    const char *header = __FILE__, *slash = strrchr(header, '/');
    char path[4096];
    size_t i;
    if (*header != '/') return 0;
    for (i = 0; i < sizeof places / sizeof *places; i++) {
        const int length =
            snprintf(path, sizeof path, "%.*s%slibscope_profiler.so.1", (int)(slash - header), header, places[i]);
        if (length > 0 && (size_t)length < sizeof path && sp_client_open_(path, calls)) return 1;
    }
    return 0;
}

SP_CLIENT_ONCE_ int sp_client_search_(sp_client_calls *calls)
{
    /* A program with more rights than its user loads nothing that its user names. */
    const char *named = getauxval(AT_SECURE) ? NULL : getenv("SCOPE_PROFILER_LIBRARY");
    if (named && *named) return sp_client_open_(named, calls);
    return sp_client_open_("libscope_profiler.so.1", calls) || sp_client_beside_(calls);
}

/* What the library does, or NULL where there is none. */
SP_CLIENT_ONCE_ const sp_client_calls *sp_client_found_(void)
{
    return __atomic_load_n(&sp_client_state_.found, __ATOMIC_ACQUIRE) ? &sp_client_state_.calls : NULL;
}

SP_CLIENT_ONCE_ const sp_client_calls *sp_client_find_(void)
{
    if (sp_client_found_()) return sp_client_found_();
    /* A second thread does not wait: the first may be inside the loader, whose lock this one may hold. */
    if (__atomic_exchange_n(&sp_client_state_.busy, 1, __ATOMIC_ACQUIRE)) return NULL;
    if (sp_client_found_() == NULL && sp_client_search_(&sp_client_state_.calls) &&
        (sp_client_state_.calls.sp_follow)(&sp_current_profiler) == SP_OK) {
        __atomic_store_n(&sp_client_state_.found, 1, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&sp_client_state_.busy, 0, __ATOMIC_RELEASE);
    return sp_client_found_();
}

SP_CLIENT_ONCE_ const sp_client_calls *sp_client_needed_(void)
{
    const sp_client_calls *calls = sp_client_find_();
    if (calls == NULL && !__atomic_exchange_n(&sp_client_state_.told, 1, __ATOMIC_RELAXED)) {
        fputs("scope_profiler: nothing is recorded: libscope_profiler.so.1 was not found (SCOPE_PROFILER_LIBRARY may name it)\n",
              stderr);
    }
    return calls;
}

/* A module of a Python process joins its run without a call of any function here. Once for each source that includes this. */
__attribute__((constructor)) static void sp_client_starts_(void)
{
    (void)sp_client_find_();
}

/* A module that is unloaded is not written to any more. */
__attribute__((destructor)) static void sp_client_ends_(void)
{
    if (sp_client_found_()) (sp_client_state_.calls.sp_unfollow)(&sp_current_profiler);
}

/* -- the functions -- */

#define SP_CLIENT_FUNCTION_(type, name, parameters, arguments, otherwise)                                              \
    SP_CLIENT_ type(name) parameters                                                                                   \
    {                                                                                                                  \
        const sp_client_calls *calls = sp_client_found_();                                                             \
        return calls ? (calls->name)arguments : otherwise;                                                             \
    }
SP_CLIENT_GIVEN_ON_(SP_CLIENT_FUNCTION_)
#undef SP_CLIENT_FUNCTION_

SP_CLIENT_ sp_output_format sp_default_output_format(void)
{
#ifdef SP_USE_HDF5
    return SP_OUTPUT_HDF5;
#else
    return SP_OUTPUT_TRACE;
#endif
}

SP_CLIENT_ int sp_init(const char *prefix, int rank)
{
    const sp_client_calls *calls = sp_client_needed_();
    const int status = calls ? (calls->sp_init)(prefix, rank) : SP_ERR_NOT_FOUND;
    /* No path: Python writes the run. */
    if (status != SP_OK || (calls->sp_output_path)() == NULL) return status;
    return (calls->sp_set_output_format)(sp_default_output_format());
}

SP_CLIENT_ sp_profiler *sp_create(const char *prefix, int rank)
{
    const sp_client_calls *calls = sp_client_needed_();
    sp_profiler *profiler = calls ? (calls->sp_create)(prefix, rank) : NULL;
    if (profiler) (void)(calls->sp_profiler_set_output_format)(profiler, sp_default_output_format());
    return profiler;
}

SP_CLIENT_ sp_output_format sp_current_output_format(void)
{
    const sp_client_calls *calls = sp_client_found_();
    const int chosen = calls && (calls->sp_default_profiler)() != NULL;
    return chosen ? (calls->sp_current_output_format)() : sp_default_output_format();
}

SP_CLIENT_ sp_output_format sp_profiler_output_format(const sp_profiler *p)
{
    const sp_client_calls *calls = sp_client_found_();
    return calls && p ? (calls->sp_profiler_output_format)(p) : sp_default_output_format();
}

SP_CLIENT_ sp_scope sp_profiler_scope_begin(sp_profiler *p, int region)
{
    const sp_client_calls *calls = sp_client_found_();
    sp_scope scope = {p, region, -1, 0};
    return calls ? (calls->sp_profiler_scope_begin)(p, region) : scope;
}

SP_CLIENT_ sp_scope sp_scope_begin(int region)
{
    return sp_profiler_scope_begin(sp_current_(), region);
}

SP_CLIENT_ int sp_profiler_start_sampling(sp_profiler *p, int hz)
{
#ifdef SP_NO_SAMPLING
    (void)p;
    (void)hz;
    return SP_ERR_UNSUPPORTED;
#else
    const sp_client_calls *calls = sp_client_found_();
    return calls ? (calls->sp_profiler_start_sampling)(p, hz) : SP_ERR_INACTIVE;
#endif
}

SP_CLIENT_ int sp_start_sampling(int hz)
{
    return sp_profiler_start_sampling(sp_default_profiler(), hz);
}

SP_CLIENT_ void sp_destroy(sp_profiler *p)
{
    if (p && sp_client_found_()) (sp_client_state_.calls.sp_destroy)(p);
}

SP_CLIENT_ void sp_lane_end(sp_lane *lane)
{
    if (lane && sp_client_found_()) (sp_client_state_.calls.sp_lane_end)(lane);
}

SP_CLIENT_ int sp_follow(sp_profiler **place)
{
    return sp_client_found_() ? (sp_client_state_.calls.sp_follow)(place) : SP_ERR_NOT_FOUND;
}

SP_CLIENT_ void sp_unfollow(sp_profiler **place)
{
    if (sp_client_found_()) (sp_client_state_.calls.sp_unfollow)(place);
}

SP_CLIENT_ void (sp_begin)(int region)
{
    sp_begin_(region);
}

SP_CLIENT_ void (sp_end)(int region)
{
    sp_end_(region);
}

SP_CLIENT_ void (sp_profiler_begin)(sp_profiler *p, int region)
{
    sp_profiler_begin_(p, region);
}

SP_CLIENT_ void (sp_profiler_end)(sp_profiler *p, int region)
{
    sp_profiler_end_(p, region);
}

#undef SP_CLIENT_GIVEN_ON_
#undef SP_CLIENT_TAKEN_
#undef SP_CLIENT_
#undef SP_CLIENT_ONCE_

#ifdef __cplusplus
}
#endif
#endif
