/* terminal.c - what the command prints, and where. */
#include <errno.h>
#include <langinfo.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"

static bool closed;

bool cli_closed(void)
{
    return closed;
}

size_t cli_terminal_width(void)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO)) return 0;
    const char *columns = getenv("COLUMNS");
    const long wanted = columns ? strtol(columns, NULL, 10) : 0;
    size_t width = wanted > 0 && wanted < INT_MAX ? (size_t)wanted : 0;
    if (width == 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) width = size.ws_col;
    if (width == 0) width = 80;
    return width < 20 ? 20 : width;
}

/* UTF-8, or plain C, where everybody uses UTF-8 anyway. */
static bool is_unicode(void)
{
    const char *codeset = nl_langinfo(CODESET);
    return strcasecmp(codeset, "UTF-8") == 0 || strcasecmp(codeset, "UTF8") == 0 || strncmp(codeset, "ANSI", 4) == 0 ||
           strcmp(codeset, "US-ASCII") == 0 || strcmp(codeset, "ASCII") == 0;
}

/* What an encoding without line drawing gets instead. */
static void add_plain(sp_text *out, const char *text, size_t size)
{
    static const char *const drawing[] = {"╭", "╮", "╰", "╯", "├", "┤", "─", "│", "└", "…", "↻"};
    static const char replaced[] = "++++++-|`~@";
    for (size_t i = 0; i < size;) {
        if ((unsigned char)text[i] < 0x80) {
            sp_text_bytes(out, text + i++, 1);
            continue;
        }
        size_t d = 0;
        while (d < sizeof drawing / sizeof *drawing && (size - i < 3 || memcmp(text + i, drawing[d], 3) != 0)) d++;
        if (d < sizeof drawing / sizeof *drawing) sp_text_bytes(out, &replaced[d], 1);
        else sp_text_add(out, "?");
        do i++;
        while (i < size && ((unsigned char)text[i] & 0xc0) == 0x80);
    }
}

/* The lines as they are to be shown: cut to the terminal, in its encoding. */
static void adapt(const cli *c, const sp_text *text, sp_text *out)
{
    const bool unicode = is_unicode();
    for (const char *line = text->data; line && *line;) {
        const char *end = strchr(line, '\n');
        const size_t size = end ? (size_t)(end - line) : strlen(line);
        sp_text cut = {0};
        if (c->width) sp_text_cut_box(&cut, line, size, c->width);
        else sp_text_bytes(&cut, line, size);
        if (unicode) sp_text_bytes(out, cut.data, cut.size);
        else add_plain(out, cut.data, cut.size);
        if (end) sp_text_add(out, "\n");
        out->failed |= cut.failed;
        sp_text_free(&cut);
        line += size + (end != NULL);
    }
}

static int write_out(const char *data, size_t size)
{
    while (size > 0 && !closed) {
        const ssize_t written = write(STDOUT_FILENO, data, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            closed = true;
            return errno == EPIPE ? 0 : cli_fail("cannot write the output: %s", strerror(errno));
        }
        data += written;
        size -= (size_t)written;
    }
    return 0;
}

int cli_print(const cli *c, sp_text *text)
{
    sp_text shown = {0};
    adapt(c, text, &shown);
    const bool failed = text->failed || shown.failed;
    const int code = failed ? cli_no_memory() : write_out(shown.data ? shown.data : "", shown.size);
    sp_text_free(&shown);
    sp_text_free(text);
    return code;
}

void cli_clear(void)
{
    if (isatty(STDOUT_FILENO)) write_out("\x1b[H\x1b[2J", 7);
}

int cli_fail_text(const char *message)
{
    sp_text line = {0};
    sp_text_add(&line, "scope-profiler: ");
    sp_text_one_line(&line, message);
    sp_text_add(&line, "\n");
    if (line.data) fputs(line.data, stderr);
    sp_text_free(&line);
    return CLI_USAGE;
}

int cli_fail(const char *format, ...)
{
    char *message;
    va_list arguments;
    va_start(arguments, format);
    const int size = vasprintf(&message, format, arguments);
    va_end(arguments);
    if (size < 0) return cli_no_memory();
    cli_fail_text(message);
    free(message);
    return CLI_USAGE;
}

int cli_no_memory(void)
{
    fputs("scope-profiler: out of memory\n", stderr);
    return CLI_USAGE;
}

/* -- values -- */

bool cli_parse_count(const char *text, int64_t *value)
{
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return *end == '\0' && errno == 0;
}

bool cli_parse_percentage(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    if (end > text && *end == '%') end++;
    return end > text && *end == '\0' && *value >= 0.0 && *value <= 1e300;
}

size_t cli_find_name(const char *text, const char *const *names, size_t count)
{
    size_t i = 0;
    while (i < count && strcmp(names[i], text) != 0) i++;
    return i;
}
