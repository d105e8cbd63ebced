/* table.h - a boxed table of texts. */
#ifndef SP_REPORT_TABLE_H
#define SP_REPORT_TABLE_H

#include "report/text.h"

typedef struct sp_table_column {
    const char *title;
    bool number;   /* to the right */
    bool flexible; /* may be cut, in the middle, so that the table fits */
} sp_table_column;

#define SP_TABLE_COLUMNS 32

typedef struct sp_table {
    sp_table_column columns[SP_TABLE_COLUMNS];
    size_t column_count;
    char **cells; /* row by row, printable */
    size_t cell_count, room;
    bool failed;
} sp_table;

void sp_table_column_add(sp_table *table, const char *title, bool number, bool flexible);
/* Cells in the order of rows; texts are made printable. */
void sp_table_cell(sp_table *table, const char *text);
void sp_table_name(sp_table *table, const char *name); /* the beginning and the end of a long one */
void sp_table_format(sp_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Write the table and free it. `width`: columns of the terminal, 0: any. */
void sp_table_end(sp_table *table, sp_text *out, size_t width);

#endif
