/*
 * trace_input.h - a native trace, read front to back: numbers in the byte order that it was written in, texts, arrays.
 *
 * Nothing is allocated because the file says so: every length is checked against the bytes that are left. Small reads go
 * through a window, arrays straight to where they belong, so a file of any size is read with a few kB beside its calls.
 */
#ifndef SP_FORMATS_TRACE_INPUT_H
#define SP_FORMATS_TRACE_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

#define SP_TRACE_WINDOW 8192

typedef struct sp_trace_input {
    const char *path;     /* for messages */
    const char *memory;   /* the bytes, or NULL: they come from `fd` */
    int fd;
    uint64_t size, place; /* of the file; of the next byte */
    bool swapped;         /* written in the other byte order */
    sp_error *error;
    uint64_t window_start;
    size_t window_size;
    char window[SP_TRACE_WINDOW];
} sp_trace_input;

/* SP_ERR_NOT_FOUND or SP_ERR_IO with the errno. */
sp_status sp_trace_open(sp_trace_input *in, const char *path, sp_error *error);
void sp_trace_open_memory(sp_trace_input *in, const char *path, const void *data, size_t size, sp_error *error);
void sp_trace_close(sp_trace_input *in);

static inline uint64_t sp_trace_left(const sp_trace_input *in)
{
    return in->size - in->place;
}

/* SP_ERR_CORRUPT with "path: what". */
sp_status sp_trace_damaged(const sp_trace_input *in, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * The eight bytes every trace begins with, then its version, which tells the byte order. SP_ERR_FOREIGN for another magic,
 * SP_ERR_SCHEMA for a version that is not 1..highest in either order. `kind` is what the file should be, for messages.
 */
sp_status sp_trace_begin(sp_trace_input *in, const char *magic, int32_t highest, const char *kind, int32_t *version);

/* SP_ERR_CORRUPT when bytes are left. */
sp_status sp_trace_end(const sp_trace_input *in);

/* `what` names the field when the file ends in it. */
sp_status sp_trace_int32(sp_trace_input *in, const char *what, int32_t *value);
sp_status sp_trace_int64(sp_trace_input *in, const char *what, int64_t *value);
sp_status sp_trace_int64_array(sp_trace_input *in, const char *what, uint64_t count, int64_t *values);
sp_status sp_trace_skip(sp_trace_input *in, const char *what, uint64_t count);

/* A count of things that take `least` bytes each: not negative, and no more than there is room for. */
sp_status sp_trace_check_count(const sp_trace_input *in, const char *what, int64_t count, uint64_t least);

/* A length (int32) and as many bytes: a malloc'ed text in valid UTF-8; NUL bytes in it are SP_ERR_CORRUPT. */
sp_status sp_trace_text(sp_trace_input *in, const char *what, char **text);

#endif
