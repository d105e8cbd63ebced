#include "formats/output.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include "formats/utf8.h"
#include "platform/platform.h"

typedef struct sp_deflate {
    z_stream stream;
    unsigned char bytes[64 << 10];
} sp_deflate;

/* -- to the file ------------------------------------------------------------------------------------------------------ */

/* Where bytes go, and what became of them. */
typedef struct sink {
    int fd;
    const char *path;
    sp_deflate *deflate; /* NULL: not compressed */
    sp_status status;
    sp_error error;
} sink;

static void write_file(sink *to, const void *data, size_t size)
{
    const char *at = data;
    while (size > 0 && to->status == SP_OK) {
        const ssize_t done = write(to->fd, at, size);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) {
            to->status = sp_fail_errno(&to->error, SP_ERR_IO, "cannot write %s", to->path);
            return;
        }
        at += done;
        size -= (size_t)done;
    }
}

static void write_compressed(sink *to, const char *data, size_t size, int mode)
{
    sp_deflate *d = to->deflate;
    d->stream.next_in = (unsigned char *)data;
    d->stream.avail_in = (unsigned)size;
    int result;
    do {
        d->stream.next_out = d->bytes;
        d->stream.avail_out = sizeof d->bytes;
        result = deflate(&d->stream, mode);
        write_file(to, d->bytes, sizeof d->bytes - d->stream.avail_out);
    } while (to->status == SP_OK && (d->stream.avail_out == 0 || (mode == Z_FINISH && result != Z_STREAM_END)));
}

static void write_part(sink *to, const char *data, size_t size)
{
    if (to->deflate) write_compressed(to, data, size, Z_NO_FLUSH);
    else write_file(to, data, size);
}

static sink sink_of(const sp_output *out)
{
    return (sink){.fd = out->file.fd, .path = out->file.path, .deflate = out->deflate};
}

static void take_failure(sp_output *out, const sink *from)
{
    if (out->status != SP_OK || from->status == SP_OK) return;
    out->status = from->status;
    out->error = from->error;
}

/*
 * Writing is a third of what an export of millions of calls takes, the kernel's copy into its cache most of it: of outputs larger than
 * a buffer a thread writes the full one while the other is filled.
 */
struct sp_output_writer {
    pthread_t thread;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t changed;
    char *buffer; /* the writer's while `size` is not 0 */
    size_t size;
    bool stopped;
    sink to;
};

static void *write_behind(void *argument)
{
    sp_output_writer *writer = argument;
    pthread_mutex_lock(&writer->lock);
    for (;;) {
        while (writer->size == 0 && !writer->stopped) pthread_cond_wait(&writer->changed, &writer->lock);
        if (writer->size == 0) break;
        pthread_mutex_unlock(&writer->lock);
        write_part(&writer->to, writer->buffer, writer->size);
        pthread_mutex_lock(&writer->lock);
        writer->size = 0;
        pthread_cond_signal(&writer->changed);
    }
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

static void writer_free(sp_output_writer *writer)
{
    pthread_mutex_destroy(&writer->lock);
    pthread_cond_destroy(&writer->changed);
    free(writer->buffer);
    free(writer);
}

/* NULL: the caller writes. */
static sp_output_writer *writer_new(const sp_output *out)
{
    if (sp_platform_processors() < 2) return NULL;
    sp_output_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL) return NULL;
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->changed, NULL);
    writer->to = sink_of(out);
    writer->buffer = malloc(SP_OUTPUT_BUFFER + SP_OUTPUT_MARGIN);
    if (writer->buffer && sp_platform_start_thread(&writer->thread, write_behind, writer)) return writer;
    writer_free(writer);
    return NULL;
}

/* Exchange the full buffer for the one that is written. */
static void hand_over(sp_output *out)
{
    sp_output_writer *writer = out->writer;
    pthread_mutex_lock(&writer->lock);
    while (writer->size > 0) pthread_cond_wait(&writer->changed, &writer->lock);
    take_failure(out, &writer->to);
    char *const full = out->buffer;
    out->buffer = writer->buffer;
    writer->buffer = full;
    writer->size = out->status == SP_OK ? out->used : 0;
    pthread_cond_signal(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
}

/* Wait until all is written, and write no more. */
static void end_writer(sp_output *out)
{
    sp_output_writer *writer = out->writer;
    if (writer == NULL) return;
    pthread_mutex_lock(&writer->lock);
    writer->stopped = true;
    pthread_cond_signal(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
    pthread_join(writer->thread, NULL);
    take_failure(out, &writer->to);
    writer_free(writer);
    out->writer = NULL;
}

/* A file system may hold space that is reserved against the limit of a process, and end the process with a signal. */
static bool size_is_limited(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur != RLIM_INFINITY;
}

/*
 * Space on the disk for what is about to be written. Where it is left to the kernel to find some later, ext4 makes a rename over an
 * older file find all of it, and begin to write: half of the time of an export of millions of calls, on a slow disk seconds. What is too
 * much is given back at the end; a file system that has no such function, or is nearly full, does without.
 */
static void reserve_space(sp_output *out)
{
    const uint64_t least = (uint64_t)4 << 20, most = (uint64_t)64 << 20, end = out->written + out->used;
    if (out->deflate || out->unreserved || end <= out->reserved || end < SP_OUTPUT_BUFFER) return;
    const uint64_t more = end < least ? least : end > most ? most : end;
    out->unreserved = size_is_limited() || fallocate(out->file.fd, FALLOC_FL_KEEP_SIZE, (off_t)out->reserved, (off_t)more) < 0;
    out->reserved += more;
}

static void give_back_space(const sp_output *out)
{
    if (out->reserved <= out->written) return;
    const int ignored = ftruncate(out->file.fd, (off_t)out->written); /* what is in the file stays as it is */
    (void)ignored;
}

void sp_output_flush(sp_output *out)
{
    reserve_space(out);
    if (out->used >= SP_OUTPUT_BUFFER && out->written == 0) out->writer = writer_new(out);
    if (out->writer) {
        hand_over(out);
    } else if (out->status == SP_OK) {
        sink to = sink_of(out);
        write_part(&to, out->buffer, out->used);
        take_failure(out, &to);
    }
    out->written += out->used;
    out->used = 0;
}

static bool is_gzip(const char *path)
{
    const size_t size = strlen(path);
    return size > 3 && strcmp(path + size - 3, ".gz") == 0;
}

/* windowBits + 16 asks zlib for a gzip header; its own has no time and no name, so that equal input gives equal files. */
static bool begin_deflate(sp_output *out)
{
    out->deflate = calloc(1, sizeof *out->deflate);
    if (out->deflate == NULL) return false;
    if (deflateInit2(&out->deflate->stream, 5, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK) return true;
    free(out->deflate);
    out->deflate = NULL;
    return false;
}

static void free_output(sp_output *out)
{
    end_writer(out);
    if (out->deflate) deflateEnd(&out->deflate->stream);
    free(out->deflate);
    free(out->buffer);
    out->deflate = NULL;
    out->buffer = NULL;
}

sp_status sp_output_begin(sp_output *out, const char *path, sp_error *error)
{
    *out = (sp_output){.status = SP_OK};
    out->buffer = malloc(SP_OUTPUT_BUFFER + SP_OUTPUT_MARGIN);
    if (out->buffer == NULL || (is_gzip(path) && !begin_deflate(out))) {
        free_output(out);
        return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory to write %s", path);
    }
    const sp_status status = sp_replace_begin(&out->file, path, error);
    if (status != SP_OK) free_output(out);
    out->file.unsynced = true;
    return status;
}

sp_status sp_output_commit(sp_output *out, sp_error *error)
{
    sp_output_flush(out);
    end_writer(out);
    if (out->status == SP_OK && out->deflate) {
        sink to = sink_of(out);
        write_compressed(&to, NULL, 0, Z_FINISH);
        take_failure(out, &to);
    }
    if (out->status != SP_OK) {
        const sp_status status = out->status;
        if (error) *error = out->error;
        sp_output_abort(out);
        return status;
    }
    free_output(out);
    give_back_space(out);
    return sp_replace_commit(&out->file, error);
}

void sp_output_abort(sp_output *out)
{
    free_output(out);
    sp_replace_abort(&out->file);
}

void sp_output_fail(sp_output *out, sp_status status, const char *what)
{
    if (out->status == SP_OK) out->status = sp_fail(&out->error, status, "cannot write %s: %s", out->file.path, what);
}

/* -- values ----------------------------------------------------------------------------------------------------------- */

void sp_output_long(sp_output *out, const void *data, size_t size)
{
    const char *at = data;
    while (size > 0) {
        const size_t room = SP_OUTPUT_BUFFER - out->used, part = size < room ? size : room;
        memcpy(out->buffer + out->used, at, part);
        out->used += part;
        at += part;
        size -= part;
        if (out->used == SP_OUTPUT_BUFFER) sp_output_flush(out);
    }
}

static const char pairs[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748495051525354555657"
    "585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

/* Digits of a number, right-aligned: returns where they begin. */
static char *digits_before(char *end, uint64_t value)
{
    while (value >= 100) {
        end -= 2;
        memcpy(end, pairs + 2 * (value % 100), 2);
        value /= 100;
    }
    if (value < 10) {
        *--end = (char)('0' + value);
        return end;
    }
    end -= 2;
    memcpy(end, pairs + 2 * value, 2);
    return end;
}

static uint64_t magnitude(int64_t value)
{
    return value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
}

static const uint64_t powers[] = {
    1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000, 10000000000, 100000000000, 1000000000000,
    10000000000000, 100000000000000, 1000000000000000, 10000000000000000, 100000000000000000, 1000000000000000000,
    10000000000000000000u};

/* Of a number above 0. From its length in bits: log10(2) is 1233 / 4096; one less where that rounds up. */
static unsigned digit_count(uint64_t value)
{
    const unsigned bits = 64 - (unsigned)__builtin_clzll(value), most = bits * 1233 >> 12;
    return most + 1 - (value < powers[most]);
}

/* In place: a copy of digits that were just put together elsewhere would wait for them. */
static inline char *put_whole(char *to, uint64_t value)
{
    if (value < 10) {
        *to = (char)('0' + value);
        return to + 1;
    }
    char *const end = to + digit_count(value);
    digits_before(end, value);
    return end;
}

char *sp_put_integer(char *to, int64_t value)
{
    if (value < 0) *to++ = '-';
    return put_whole(to, magnitude(value));
}

void sp_output_integer(sp_output *out, int64_t value)
{
    sp_output_took(out, sp_put_integer(sp_output_room(out), value));
}

/* Inlined for each power, by which the compiler then multiplies instead of dividing. */
static inline __attribute__((always_inline)) char *put_decimal(char *to, int64_t value, unsigned digits, uint64_t power)
{
    const uint64_t size = magnitude(value), whole = size / power;
    uint32_t rest = (uint32_t)(size - whole * power);
    if (value < 0) *to++ = '-';
    to = put_whole(to, whole);
    if (rest == 0) return to;
    char *end = to + 1 + digits, *at = end;
    *to = '.';
    for (unsigned left = digits; left > 1; left -= 2, rest /= 100) memcpy(at -= 2, pairs + (size_t)2 * (rest % 100), 2);
    if (digits % 2) *--at = (char)('0' + rest);
    while (end[-1] == '0') end--;
    return end;
}

char *sp_decimal_seconds(char *to, int64_t ns)
{
    return put_decimal(to, ns, 9, 1000000000);
}

char *sp_put_short_seconds(char *to, int64_t ns)
{
    if (ns <= 0 || ns >= 1000000) return sp_decimal_seconds(to, ns);
    return SP_PUT_LITERAL(put_whole(to, (uint64_t)ns), "e-9");
}

char *sp_put_millionths(char *to, int64_t value)
{
    return put_decimal(to, value, 6, 1000000);
}

char *sp_put_micros(char *to, int64_t ns)
{
    return put_decimal(to, ns, 3, 1000);
}

void sp_output_decimal(sp_output *out, int64_t value, unsigned digits)
{
    char *const to = sp_output_room(out);
    if (digits == 9) sp_output_took(out, sp_decimal_seconds(to, value));
    else if (digits == 3) sp_output_took(out, sp_put_micros(to, value));
    else sp_output_took(out, put_decimal(to, value, digits, powers[digits]));
}

/* The program around us may have set a locale with a decimal comma. */
static size_t shortest(char *text, size_t room, double value)
{
    const locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0), before = uselocale(plain);
    int size = 0;
    for (int precision = 15; precision <= 17; precision++) {
        size = snprintf(text, room, "%.*g", precision, value);
        if (strtod(text, NULL) == value) break;
    }
    uselocale(before);
    if (plain) freelocale(plain);
    return (size_t)size;
}

static char *put_double(char *to, double value)
{
    return isfinite(value) ? to + shortest(to, 32, value) : SP_PUT_LITERAL(to, "null");
}

void sp_output_double(sp_output *out, double value)
{
    sp_output_took(out, put_double(sp_output_room(out), value));
}

char *sp_put_plain_double(char *to, double value)
{
    if (!(value >= 0 && value < 0x1p53)) return put_double(to, value); /* of a damaged file */
    char text[48], *const middle = text + 24, *end = middle;
    uint64_t whole = (uint64_t)value;
    /* The fraction as a fixed-point number of 64 bits: exact, since its lowest bit is worth at least 2^-64. */
    unsigned __int128 rest = (unsigned __int128)((value - (double)whole) * 0x1p64);
    char *begin = digits_before(middle, whole);
    const int places = whole > 0 ? 17 - (int)(middle - begin) : 20;
    for (int i = 0; i < places; i++) {
        rest *= 10;
        *end++ = (char)('0' + (int)(rest >> 64));
        rest &= UINT64_MAX;
    }
    if (rest >> 63) { /* round up */
        char *at = end;
        while (at > middle && at[-1] == '9') *--at = '0';
        if (at > middle) at[-1]++;
        else begin = digits_before(middle, ++whole);
    }
    while (end > middle && end[-1] == '0') end--;
    memcpy(to, begin, (size_t)(middle - begin));
    to += middle - begin;
    if (end == middle) return to;
    *to++ = '.';
    memcpy(to, middle, (size_t)(end - middle));
    return to + (end - middle);
}

/* Write what stands for a character in a JSON text; returns where it ends. */
static char *escape(char *to, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    if (c >= 0x20 && c != 0x7f && c != '"' && c != '\\') {
        *to++ = (char)c;
        return to;
    }
    *to++ = '\\';
    switch (c) {
    case '"':
    case '\\': *to++ = (char)c; return to;
    case '\n': *to++ = 'n'; return to;
    case '\r': *to++ = 'r'; return to;
    case '\t': *to++ = 't'; return to;
    case '\b': *to++ = 'b'; return to;
    case '\f': *to++ = 'f'; return to;
    default: break;
    }
    to[0] = 'u';
    to[1] = to[2] = '0';
    to[3] = hex[c >> 4];
    to[4] = hex[c & 15];
    return to + 5;
}

char *sp_json_quoted(const char *text)
{
    char *repaired = NULL;
    if (!sp_utf8_valid(text, strlen(text))) {
        repaired = sp_utf8_repaired(text);
        if (repaired == NULL) return NULL;
        text = repaired;
    }
    char *quoted = malloc(6 * strlen(text) + 3), *to = quoted;
    if (quoted) {
        *to++ = '"';
        for (; *text; text++) to = escape(to, (unsigned char)*text);
        memcpy(to, "\"", 2);
    }
    free(repaired);
    return quoted;
}

void sp_output_json_text(sp_output *out, const char *text)
{
    char *quoted = sp_json_quoted(text);
    if (quoted) sp_output_text(out, quoted);
    else sp_output_fail(out, SP_ERR_NO_MEMORY, "out of memory");
    free(quoted);
}

/* The length of a number that is none in JSON at the beginning of `at`; 0 if there is none. */
static size_t no_number(const char *at, size_t left)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t size = strlen(words[i]);
        if (size <= left && memcmp(at, words[i], size) == 0) return size;
    }
    return 0;
}

char *sp_json_strict(const char *text, size_t size)
{
    char *strict = malloc(size + size / 3 + 2), *to = strict; /* "NaN" grows by one character */
    bool quoted = false;
    for (size_t i = 0; strict && i < size; i++) {
        const char c = text[i];
        const size_t skip = quoted || (c != 'N' && c != 'I' && c != '-') ? 0 : no_number(text + i, size - i);
        if (skip) {
            memcpy(to, "null", 4);
            to += 4;
            i += skip - 1;
            continue;
        }
        if (c == '"') quoted = !quoted;
        *to++ = c;
        if (quoted && c == '\\' && i + 1 < size) *to++ = text[++i];
    }
    if (strict) *to = '\0';
    return strict;
}

void sp_output_json_piece(sp_output *out, const char *text, size_t size)
{
    char *strict = sp_json_strict(text, size);
    if (strict) sp_output_text(out, strict);
    else sp_output_fail(out, SP_ERR_NO_MEMORY, "out of memory");
    free(strict);
}
