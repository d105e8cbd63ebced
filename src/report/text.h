/*
 * text.h - text for people: put together in memory, measured in columns of a terminal, and without what could drive one.
 *
 * A region, task or file is named by whoever made the profile; its name must not be able to move the reader's cursor.
 * Texts are UTF-8. A byte that belongs to no character is shown as the escape \udcXX, as Python shows such file names.
 */
#ifndef SP_REPORT_TEXT_H
#define SP_REPORT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct sp_text {
    char *data; /* NUL-terminated once something was added; NULL before */
    size_t size, room;
    bool failed; /* out of memory: what followed was dropped */
} sp_text;

void sp_text_free(sp_text *text);
void sp_text_bytes(sp_text *text, const char *bytes, size_t size);
void sp_text_add(sp_text *text, const char *more);
void sp_text_format(sp_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sp_text_repeat(sp_text *text, const char *piece, size_t times);

/* `raw` with every character escaped that could do more than be seen. */
void sp_text_printable(sp_text *text, const char *raw);

/* The same with runs of white space as one blank: a message in one line. */
void sp_text_one_line(sp_text *text, const char *raw);

/* Columns that a text takes: 2 for wide characters, 0 for combining ones. */
size_t sp_columns(const char *text, size_t size);

/* At most `columns` of a printable text; "…" stands for what is left out, at the end or in the middle. */
void sp_text_cut(sp_text *text, const char *raw, size_t columns, bool middle);

/* A name as tables show it: printable, and of a long one the beginning and the end. */
void sp_text_name(sp_text *text, const char *raw);

/* A line of a box, which keeps its right edge when it is cut. */
void sp_text_cut_box(sp_text *text, const char *line, size_t size, size_t columns);

/* A double as Python writes it: the shortest that reads back the same, with a point or an exponent. */
void sp_text_double(sp_text *text, double value);

/* A count in at most three figures: 999, 1.5k, 100k, 1.23M. */
void sp_text_count(sp_text *text, unsigned long long count);

#endif
