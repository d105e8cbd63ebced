#include "core/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *sp_error_string(int status)
{
    switch (status) {
#define SP_STATUS_CASE(name, value, text)                                                                              \
    case value: return text;
        SP_STATUS_MAP(SP_STATUS_CASE)
#undef SP_STATUS_CASE
    default: return "unknown status";
    }
}

const char *sp_version(void)
{
    return SP_VERSION;
}

/* Control characters would break the one-line promise: a file or region name may contain them. */
static void keep_one_line(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = '?';
    }
}

/* A cut in the middle of a UTF-8 sequence would make the message undecodable: drop the broken tail. */
static void cut_at_character(char *text)
{
    size_t size = strlen(text), tail = size;
    while (tail > 0 && size - tail < 4 && ((unsigned char)text[tail - 1] & 0xc0) == 0x80) tail--;
    if (tail == 0) return;
    const unsigned char lead = (unsigned char)text[tail - 1];
    const size_t want = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (size - (tail - 1) < want) text[tail - 1] = '\0';
}

sp_status sp_fail(sp_error *error, sp_status status, const char *format, ...)
{
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->message, sizeof error->message, format, arguments);
        va_end(arguments);
        error->system = 0;
        cut_at_character(error->message);
        keep_one_line(error->message);
    }
    return status;
}

sp_status sp_fail_errno(sp_error *error, sp_status status, const char *format, ...)
{
    const int system = errno;
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->message, sizeof error->message, format, arguments);
        va_end(arguments);
        cut_at_character(error->message);
        const size_t used = strlen(error->message);
        snprintf(error->message + used, sizeof error->message - used, ": %s", strerror(system));
        error->system = system;
        keep_one_line(error->message);
    }
    return status;
}
