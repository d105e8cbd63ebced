/* utf8.h - texts of files are UTF-8; what a C program passed in, or a damaged file holds, need not be. */
#ifndef SP_FORMATS_UTF8_H
#define SP_FORMATS_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF. */
bool sp_utf8_valid(const char *text, size_t size);

/* A malloc'ed copy of `text` with U+FFFD in the place of every byte that does not belong to a character. */
char *sp_utf8_repaired(const char *text);

#endif
