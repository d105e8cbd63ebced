#include "report/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/unicode_ranges.h"

#define ELLIPSIS "\xe2\x80\xa6"
#define NAME_COLUMNS 100 /* names may have any length; a table shows their beginning and end */
#define LONE_BYTE 0xdc00u /* what a byte that is no character is added to */

/* -- putting together -- */

void sp_text_free(sp_text *text)
{
    free(text->data);
    *text = (sp_text){0};
}

void sp_text_bytes(sp_text *text, const char *bytes, size_t size)
{
    if (text->failed) return;
    if (text->size + size + 1 > text->room) {
        size_t room = text->room ? text->room : 256;
        while (room < text->size + size + 1) room *= 2;
        char *data = realloc(text->data, room);
        if (data == NULL) {
            text->failed = true;
            return;
        }
        text->data = data;
        text->room = room;
    }
    memcpy(text->data + text->size, bytes, size);
    text->size += size;
    text->data[text->size] = '\0';
}

void sp_text_add(sp_text *text, const char *more)
{
    sp_text_bytes(text, more, strlen(more));
}

void sp_text_format(sp_text *text, const char *format, ...)
{
    char piece[512];
    va_list arguments;
    va_start(arguments, format);
    const int size = vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    if (size < 0) return;
    if ((size_t)size < sizeof piece) {
        sp_text_bytes(text, piece, (size_t)size);
        return;
    }
    char *large = malloc((size_t)size + 1);
    if (large == NULL) {
        text->failed = true;
        return;
    }
    va_start(arguments, format);
    vsnprintf(large, (size_t)size + 1, format, arguments);
    va_end(arguments);
    sp_text_bytes(text, large, (size_t)size);
    free(large);
}

void sp_text_repeat(sp_text *text, const char *piece, size_t times)
{
    const size_t size = strlen(piece);
    for (size_t i = 0; i < times; i++) sp_text_bytes(text, piece, size);
}

/* -- characters -- */

/* The character at `*at`, which is moved behind it. */
static uint32_t next_character(const char **at, const char *end)
{
    const uint8_t *byte = (const uint8_t *)*at;
    const size_t left = (size_t)(end - *at);
    const uint8_t lead = byte[0];
    const size_t size = lead < 0x80 ? 1 : lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
    if (size == 1) {
        *at += 1;
        return lead;
    }
    uint32_t code = size == 2 ? lead & 0x1f : size == 3 ? lead & 0x0f : lead & 0x07;
    bool good = size > 0 && size <= left;
    for (size_t i = 1; good && i < size; i++) {
        good = (byte[i] & 0xc0) == 0x80;
        code = code << 6 | (byte[i] & 0x3f);
    }
    good = good && !(size == 3 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) && !(size == 4 && (code < 0x10000 || code > 0x10ffff));
    *at += good ? size : 1;
    return good ? code : LONE_BYTE + lead;
}

static bool in_ranges(const sp_code_range *ranges, size_t count, uint32_t code)
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (ranges[middle].last < code) low = middle + 1;
        else high = middle;
    }
    return low < count && ranges[low].first <= code;
}

#define IN_RANGES(ranges, code) in_ranges((ranges), sizeof(ranges) / sizeof *(ranges), (code))

static size_t columns_of(uint32_t code)
{
    if (code < 0x300) return code != 0xad; /* the soft hyphen is the one format character among these */
    if (IN_RANGES(sp_zero_ranges, code)) return 0;
    return IN_RANGES(sp_wide_ranges, code) ? 2 : 1;
}

size_t sp_columns(const char *text, size_t size)
{
    const char *at = text, *end = text + size;
    size_t columns = 0;
    while (at < end) columns += columns_of(next_character(&at, end));
    return columns;
}

static void escape(sp_text *text, uint32_t code)
{
    switch (code) {
    case '\n': sp_text_add(text, "\\n"); return;
    case '\r': sp_text_add(text, "\\r"); return;
    case '\t': sp_text_add(text, "\\t"); return;
    default: sp_text_format(text, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)code);
    }
}

void sp_text_printable(sp_text *text, const char *raw)
{
    const char *at = raw, *end = raw + strlen(raw), *begin = raw;
    while (at < end) {
        const char *character = at;
        const uint32_t code = next_character(&at, end);
        if (code >= ' ' && code < 0x7f) continue;
        if (!IN_RANGES(sp_escaped_ranges, code)) continue;
        sp_text_bytes(text, begin, (size_t)(character - begin));
        escape(text, code);
        begin = at;
    }
    sp_text_bytes(text, begin, (size_t)(end - begin));
}

void sp_text_one_line(sp_text *text, const char *raw)
{
    sp_text joined = {0};
    for (const char *at = raw; *at; at++) {
        const bool blank = strchr(" \t\r\n\v\f", *at) != NULL;
        if (!blank) sp_text_bytes(&joined, at, 1);
        else if (joined.size && joined.data[joined.size - 1] != ' ') sp_text_add(&joined, " ");
    }
    if (joined.size && joined.data[joined.size - 1] == ' ') joined.data[--joined.size] = '\0';
    sp_text_printable(text, joined.data ? joined.data : "");
    text->failed |= joined.failed;
    sp_text_free(&joined);
}

/* -- cutting -- */

/* Bytes of the longest beginning that fits in `columns`. */
static size_t head_size(const char *text, size_t size, size_t columns)
{
    const char *at = text, *end = text + size;
    size_t used = 0;
    while (at < end) {
        const char *character = at;
        used += columns_of(next_character(&at, end));
        if (used > columns) return (size_t)(character - text);
    }
    return size;
}

/* Bytes of the longest ending. */
static size_t tail_size(const char *text, size_t size, size_t columns)
{
    size_t begin = size, used = 0;
    while (begin > 0) {
        size_t character = begin - 1;
        while (character > 0 && begin - character < 4 && ((uint8_t)text[character] & 0xc0) == 0x80) character--;
        const char *at = text + character;
        used += columns_of(next_character(&at, text + begin));
        if (at != text + begin) character = begin - 1; /* bytes that are no character go one by one */
        if (used > columns) break;
        begin = character;
    }
    return size - begin;
}

void sp_text_cut(sp_text *text, const char *raw, size_t columns, bool middle)
{
    const size_t size = strlen(raw);
    if (sp_columns(raw, size) <= columns) {
        sp_text_bytes(text, raw, size);
        return;
    }
    if (columns <= 1) {
        sp_text_add(text, columns ? ELLIPSIS : "");
        return;
    }
    const size_t tail = middle && columns >= 8 ? (columns - 1) / 2 : 0;
    sp_text_bytes(text, raw, head_size(raw, size, columns - 1 - tail));
    sp_text_add(text, ELLIPSIS);
    if (tail == 0) return;
    const size_t last = tail_size(raw, size, tail);
    sp_text_bytes(text, raw + size - last, last);
}

void sp_text_name(sp_text *text, const char *raw)
{
    sp_text name = {0};
    sp_text_printable(&name, raw);
    sp_text_cut(text, name.data ? name.data : "", NAME_COLUMNS, true);
    text->failed |= name.failed;
    sp_text_free(&name);
}

void sp_text_cut_box(sp_text *text, const char *line, size_t size, size_t columns)
{
    static const char *const edges[] = {"│", "╮", "╯", "┤"};
    if (sp_columns(line, size) <= columns) {
        sp_text_bytes(text, line, size);
        return;
    }
    for (size_t i = 0; i < 4; i++) {
        if (size < 3 || memcmp(line + size - 3, edges[i], 3) != 0) continue;
        sp_text_bytes(text, line, head_size(line, size, columns - 2));
        sp_text_add(text, i == 0 ? ELLIPSIS : "─");
        sp_text_add(text, edges[i]);
        return;
    }
    sp_text_bytes(text, line, head_size(line, size, columns - 1));
    sp_text_add(text, ELLIPSIS);
}

/* -- numbers -- */

void sp_text_double(sp_text *text, double value)
{
    char digits[40];
    if (isnan(value) || isinf(value)) {
        sp_text_add(text, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    int precision = 1;
    do snprintf(digits, sizeof digits, "%.*e", precision - 1, value);
    while (strtod(digits, NULL) != value && ++precision <= 17);
    const int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16) {
        sp_text_add(text, digits);
        return;
    }
    const int decimals = precision - 1 - exponent;
    sp_text_format(text, "%.*f", decimals > 1 ? decimals : 1, value);
}

void sp_text_count(sp_text *text, unsigned long long count)
{
    static const char units[] = "kMGTP";
    if (count < 1000) {
        sp_text_format(text, "%llu", count);
        return;
    }
    double value = (double)count;
    size_t unit = 0;
    for (;; unit++) {
        value /= 1000;
        if (value < 999.5 || units[unit] == 'P') break;
    }
    sp_text_format(text, value < 999.5 ? "%.3g%c" : "%.0f%c", value, units[unit]);
}
