#include "formats/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the character at `at`, 0 if there is none; `left` > 0. */
static size_t character(const uint8_t *at, size_t left)
{
    const uint8_t lead = at[0];
    if (lead < 0x80) return 1;
    const size_t size = lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
    if (size == 0 || size > left) return 0;
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
    }
    if (lead == 0xe0 && at[1] < 0xa0) return 0; /* overlong */
    if (lead == 0xed && at[1] > 0x9f) return 0; /* surrogate */
    if (lead == 0xf0 && at[1] < 0x90) return 0; /* overlong */
    if (lead == 0xf4 && at[1] > 0x8f) return 0; /* above U+10FFFF */
    return size;
}

bool sp_utf8_valid(const char *text, size_t size)
{
    const uint8_t *at = (const uint8_t *)text, *end = at + size;
    while (at < end) {
        const size_t step = character(at, (size_t)(end - at));
        if (step == 0) return false;
        at += step;
    }
    return true;
}

char *sp_utf8_repaired(const char *text)
{
    const uint8_t *at = (const uint8_t *)text, *end = at + strlen(text);
    char *copy = malloc(3 * (size_t)(end - at) + 1), *to = copy;
    if (copy == NULL) return NULL;
    while (at < end) {
        const size_t step = character(at, (size_t)(end - at));
        if (step) memcpy(to, at, step);
        else memcpy(to, "\xef\xbf\xbd", 3);
        to += step ? step : 3;
        at += step ? step : 1;
    }
    *to = '\0';
    return copy;
}
