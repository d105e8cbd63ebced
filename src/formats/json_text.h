/* json_text.h - check the JSON texts of a file, and take them apart, without building anything. */
#ifndef SP_FORMATS_JSON_TEXT_H
#define SP_FORMATS_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Whether `text` is a JSON list whose items all begin with `first` ('"': strings, '{': objects); `*count` is how many. NaN and
 * Infinity are taken, as Python's json writes them. Deeper nesting than 200 is refused.
 */
bool sp_json_list(const char *text, char first, uint64_t *count);

/* A piece of a JSON text as it is there: of a string with its quotes. */
typedef struct sp_json_piece {
    const char *at;
    size_t size;
} sp_json_piece;

/*
 * Hand out the members of an object, or the items of a list (`key` is empty), in order, until `sink` returns false. True: `text` is
 * one such value and nothing else, and all were taken; else some may have been handed out already. Without a `sink` the text is only
 * checked. Takes what sp_json_list takes.
 */
typedef bool (*sp_json_sink)(void *context, sp_json_piece key, sp_json_piece value);
bool sp_json_members(const char *text, sp_json_sink sink, void *context);
bool sp_json_items(const char *text, sp_json_sink sink, void *context);

#endif
