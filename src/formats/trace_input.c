#include "formats/trace_input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/utf8.h"

sp_status sp_trace_open(sp_trace_input *in, const char *path, sp_error *error)
{
    *in = (sp_trace_input){.path = path, .fd = -1, .error = error};
    in->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (in->fd < 0) {
        return sp_fail_errno(error, errno == ENOENT ? SP_ERR_NOT_FOUND : SP_ERR_IO, "cannot open %s", path);
    }
    struct stat status;
    if (fstat(in->fd, &status) != 0) return sp_fail_errno(error, SP_ERR_IO, "cannot read %s", path);
    if (S_ISDIR(status.st_mode)) {
        errno = EISDIR;
        return sp_fail_errno(error, SP_ERR_IO, "cannot read %s", path);
    }
    if (!S_ISREG(status.st_mode)) return sp_fail(error, SP_ERR_IO, "%s is not a regular file", path);
    in->size = (uint64_t)status.st_size;
    return SP_OK;
}

void sp_trace_open_memory(sp_trace_input *in, const char *path, const void *data, size_t size, sp_error *error)
{
    *in = (sp_trace_input){.path = path, .memory = data, .fd = -1, .size = size, .error = error};
}

void sp_trace_close(sp_trace_input *in)
{
    if (in->fd >= 0) close(in->fd);
    in->fd = -1;
}

sp_status sp_trace_damaged(const sp_trace_input *in, const char *format, ...)
{
    char what[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return sp_fail(in->error, SP_ERR_CORRUPT, "%s: %s", in->path, what);
}

static sp_status cut_short(const sp_trace_input *in, const char *what)
{
    return sp_trace_damaged(in, "the file ends within %s (byte %llu)", what, (unsigned long long)in->size);
}

/* Bytes at `place`, which are there by the file's size. */
static sp_status read_at(const sp_trace_input *in, const char *what, uint64_t place, void *to, size_t size)
{
    if (in->memory) {
        memcpy(to, in->memory + place, size);
        return SP_OK;
    }
    for (char *at = to; size > 0;) {
        const ssize_t got = pread(in->fd, at, size, (off_t)place);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return sp_fail_errno(in->error, SP_ERR_IO, "cannot read %s", in->path);
        if (got == 0) return cut_short(in, what); /* it has become shorter since it was opened */
        at += got;
        place += (uint64_t)got;
        size -= (size_t)got;
    }
    return SP_OK;
}

static sp_status read_small(sp_trace_input *in, const char *what, void *to, size_t size)
{
    if (sp_trace_left(in) < size) return cut_short(in, what);
    if (size > SP_TRACE_WINDOW) {
        const sp_status status = read_at(in, what, in->place, to, size);
        in->place += size;
        return status;
    }
    if (in->place < in->window_start || in->place + size > in->window_start + in->window_size) {
        const uint64_t left = sp_trace_left(in);
        in->window_start = in->place;
        in->window_size = left < SP_TRACE_WINDOW ? (size_t)left : SP_TRACE_WINDOW;
        const sp_status status = read_at(in, what, in->place, in->window, in->window_size);
        if (status != SP_OK) return status;
    }
    memcpy(to, in->window + (in->place - in->window_start), size);
    in->place += size;
    return SP_OK;
}

sp_status sp_trace_begin(sp_trace_input *in, const char *magic, int32_t highest, const char *kind, int32_t *version)
{
    char found[8];
    if (in->size < sizeof found) return sp_trace_damaged(in, "too short to be %s", kind);
    sp_status status = read_small(in, "its signature", found, sizeof found);
    if (status != SP_OK) return status;
    if (memcmp(found, magic, sizeof found) != 0) {
        return sp_fail(in->error, SP_ERR_FOREIGN, "%s: not %s (it does not begin with %s)", in->path, kind, magic);
    }
    status = sp_trace_int32(in, "its version", version);
    if (status != SP_OK || (*version >= 1 && *version <= highest)) return status;
    const int32_t other = (int32_t)__builtin_bswap32((uint32_t)*version);
    in->swapped = other >= 1 && other <= highest;
    if (!in->swapped) {
        return sp_fail(in->error, SP_ERR_SCHEMA, "%s: version %d of %s is unknown", in->path, (int)*version, kind);
    }
    *version = other;
    return SP_OK;
}

sp_status sp_trace_end(const sp_trace_input *in)
{
    const uint64_t left = sp_trace_left(in);
    if (left == 0) return SP_OK;
    return sp_trace_damaged(in, "%llu byte%s after its end", (unsigned long long)left, left == 1 ? "" : "s");
}

sp_status sp_trace_int32(sp_trace_input *in, const char *what, int32_t *value)
{
    uint32_t raw = 0;
    const sp_status status = read_small(in, what, &raw, sizeof raw);
    *value = (int32_t)(in->swapped ? __builtin_bswap32(raw) : raw);
    return status;
}

sp_status sp_trace_int64(sp_trace_input *in, const char *what, int64_t *value)
{
    uint64_t raw = 0;
    const sp_status status = read_small(in, what, &raw, sizeof raw);
    *value = (int64_t)(in->swapped ? __builtin_bswap64(raw) : raw);
    return status;
}

sp_status sp_trace_int64_array(sp_trace_input *in, const char *what, uint64_t count, int64_t *values)
{
    if (count == 0) return SP_OK;
    if (count > sp_trace_left(in) / sizeof *values) return cut_short(in, what);
    const sp_status status = read_at(in, what, in->place, values, count * sizeof *values);
    in->place += count * sizeof *values;
    for (uint64_t i = 0; status == SP_OK && in->swapped && i < count; i++) {
        values[i] = (int64_t)__builtin_bswap64((uint64_t)values[i]);
    }
    return status;
}

sp_status sp_trace_skip(sp_trace_input *in, const char *what, uint64_t count)
{
    if (count > sp_trace_left(in)) return cut_short(in, what);
    in->place += count;
    return SP_OK;
}

sp_status sp_trace_check_count(const sp_trace_input *in, const char *what, int64_t count, uint64_t least)
{
    if (count < 0) return sp_trace_damaged(in, "%lld %s", (long long)count, what);
    if ((uint64_t)count > sp_trace_left(in) / least) {
        return sp_trace_damaged(in, "the file ends before its %lld %s", (long long)count, what);
    }
    return SP_OK;
}

sp_status sp_trace_text(sp_trace_input *in, const char *what, char **text)
{
    int32_t length;
    *text = NULL;
    sp_status status = sp_trace_int32(in, what, &length);
    if (status != SP_OK) return status;
    if (length < 0) return sp_trace_damaged(in, "%s has length %d", what, (int)length);
    if ((uint64_t)length > sp_trace_left(in)) return cut_short(in, what);
    char *raw = malloc((size_t)length + 1);
    if (raw == NULL) return sp_fail(in->error, SP_ERR_NO_MEMORY, "%s: out of memory for %s", in->path, what);
    status = read_small(in, what, raw, (size_t)length);
    raw[length] = '\0';
    if (status == SP_OK && memchr(raw, '\0', (size_t)length)) status = sp_trace_damaged(in, "%s has a NUL in it", what);
    if (status != SP_OK || sp_utf8_valid(raw, (size_t)length)) {
        if (status == SP_OK) *text = raw;
        else free(raw);
        return status;
    }
    *text = sp_utf8_repaired(raw); /* Latin-1, as Fortran programs may have it: the calls are worth more than the letters */
    free(raw);
    return *text ? SP_OK : sp_fail(in->error, SP_ERR_NO_MEMORY, "%s: out of memory for %s", in->path, what);
}
