/* json_text.h - check the JSON texts of a file without building anything. */
#ifndef SP_FORMATS_JSON_TEXT_H
#define SP_FORMATS_JSON_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Whether `text` is a JSON list whose items all begin with `first` ('"': strings, '{': objects); `*count` is how many. NaN and
 * Infinity are taken, as Python's json writes them. Deeper nesting than 200 is refused.
 */
bool sp_json_list(const char *text, char first, uint64_t *count);

#endif
