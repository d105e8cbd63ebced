/*
 * output.h - a text or binary file that is written front to back: buffered, compressed where its name ends in .gz, and put
 * in its place only when it is whole (file_replace.h). It does not wait for the disk: an export can be made again.
 *
 * Writers do not check each call: the first failure is kept, what follows is dropped, and sp_output_commit tells it.
 */
#ifndef SP_FORMATS_OUTPUT_H
#define SP_FORMATS_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/error.h"
#include "formats/file_replace.h"

#define SP_OUTPUT_BUFFER ((size_t)256 << 10)
#define SP_OUTPUT_MARGIN 512 /* what one of the inline writers below may add before it looks at the size */

typedef struct sp_output_writer sp_output_writer;

typedef struct sp_output {
    char *buffer; /* SP_OUTPUT_BUFFER + SP_OUTPUT_MARGIN */
    size_t used;
    uint64_t written; /* bytes before the buffer, not compressed */
    uint64_t reserved; /* up to where space was asked for on the disk */
    bool unreserved;   /* it is not any more */
    struct sp_deflate *deflate; /* NULL: not compressed */
    sp_output_writer *writer;   /* NULL: whoever fills the buffer writes it */
    sp_replacement file;
    sp_status status;
    sp_error error;
} sp_output;

/* Begin to write the file at `path`. On failure nothing is left behind and no abort is needed. */
sp_status sp_output_begin(sp_output *out, const char *path, sp_error *error);

/* Finish and put it in place. On failure the old file, if any, is as it was. Frees the output. */
sp_status sp_output_commit(sp_output *out, sp_error *error);

/* Leave no trace. Frees the output. */
void sp_output_abort(sp_output *out);

/* Note a failure of the writer's own. */
void sp_output_fail(sp_output *out, sp_status status, const char *what);

/* Empty the buffer. Inline writers call it when there is less than the margin left. */
void sp_output_flush(sp_output *out);

void sp_output_long(sp_output *out, const void *data, size_t size);

/* Inline, because texts are put together from many short pieces. */
static inline void sp_output_bytes(sp_output *out, const void *data, size_t size)
{
    if (__builtin_expect(size >= SP_OUTPUT_BUFFER - out->used, 0)) {
        sp_output_long(out, data, size);
        return;
    }
    memcpy(out->buffer + out->used, data, size);
    out->used += size;
}

static inline void sp_output_text(sp_output *out, const char *text)
{
    sp_output_bytes(out, text, strlen(text));
}

#define SP_OUTPUT_LITERAL(out, literal) sp_output_bytes((out), (literal), sizeof(literal) - 1)

static inline void sp_output_char(sp_output *out, char c)
{
    out->buffer[out->used++] = c;
    if (__builtin_expect(out->used >= SP_OUTPUT_BUFFER, 0)) sp_output_flush(out);
}

/* To write in place: at least SP_OUTPUT_MARGIN bytes; then where what was written ends. */
static inline char *sp_output_room(sp_output *out)
{
    return out->buffer + out->used;
}

static inline void sp_output_took(sp_output *out, const char *end)
{
    out->used = (size_t)(end - out->buffer);
    if (__builtin_expect(out->used >= SP_OUTPUT_BUFFER, 0)) sp_output_flush(out);
}

/* In place, at `to`; they return where it ends. What they touch behind that is less than 32 bytes. */
#define SP_PUT_LITERAL(to, literal) ((char *)memcpy((to), (literal), sizeof(literal) - 1) + sizeof(literal) - 1)
char *sp_put_integer(char *to, int64_t value);
char *sp_put_micros(char *to, int64_t ns);       /* as sp_output_decimal with 3 digits */
char *sp_put_millionths(char *to, int64_t value); /* the same with 6 digits */
char *sp_put_short_seconds(char *to, int64_t ns); /* the same number as sp_decimal_seconds makes: 0.00000011 is "110e-9" */

/*
 * A double of 0.0005 to 2^53 as a plain decimal that reads back as the same double: 17 digits, without trailing zeros. Many
 * times faster than sp_output_double.
 */
char *sp_put_plain_double(char *to, double value);

void sp_output_integer(sp_output *out, int64_t value);

/*
 * value / 10^digits, exactly, without trailing zeros: 1500 with 3 digits is "1.5". Numbers of seconds (9 digits) or
 * microseconds (3) from ns, which no double rounds.
 */
void sp_output_decimal(sp_output *out, int64_t value, unsigned digits);

/* The same of seconds, in place as above. */
char *sp_decimal_seconds(char *to, int64_t ns);

/* The shortest text that reads back as the same double. NaN and infinities, which JSON does not have, become null. */
void sp_output_double(sp_output *out, double value);

/* A text in quotes, with what JSON wants escaped; bytes that are not UTF-8 become U+FFFD. malloc'ed. NULL: out of memory. */
char *sp_json_quoted(const char *text);
void sp_output_json_text(sp_output *out, const char *text);

/* A piece of valid JSON with null for NaN and the infinities that Python writes. The first: malloc'ed, NULL: out of memory. */
char *sp_json_strict(const char *text, size_t size);
void sp_output_json_piece(sp_output *out, const char *text, size_t size);

#endif
