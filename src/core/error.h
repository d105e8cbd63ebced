/* Errors of cold paths: a status is returned, and the caller's sp_error, if there is one, gets the sentence. */
#ifndef SP_CORE_ERROR_H
#define SP_CORE_ERROR_H

#include "scope_profiler.h"

/*
 * Caller-owned message. `message` is always NUL-terminated UTF-8, one line, and names the file, field or region at fault.
 * `system` is the errno behind it, or 0.
 */
typedef struct sp_error {
    int system;
    char message[1000];
} sp_error;

/* Fill `error` (which may be NULL) and return `status`, so that a failure is one statement: return sp_fail(error, ...). */
sp_status sp_fail(sp_error *error, sp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, with errno's number and text appended: "cannot open x.h5: No such file or directory". */
sp_status sp_fail_errno(sp_error *error, sp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
