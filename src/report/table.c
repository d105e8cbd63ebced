#include "report/table.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/grow.h"

#define GAP 2
#define MARGIN 2
#define NARROWEST 8

void sp_table_column_add(sp_table *table, const char *title, bool number, bool flexible)
{
    table->columns[table->column_count++] = (sp_table_column){title, number, flexible};
}

static void take(sp_table *table, sp_text *cell)
{
    if (cell->data == NULL) sp_text_bytes(cell, "", 0);
    table->failed |= cell->failed || !sp_grow(&table->cells, &table->room, table->cell_count, sizeof *table->cells, 64);
    if (table->failed) sp_text_free(cell);
    else table->cells[table->cell_count++] = cell->data;
}

void sp_table_cell(sp_table *table, const char *text)
{
    sp_text cell = {0};
    sp_text_printable(&cell, text);
    take(table, &cell);
}

void sp_table_name(sp_table *table, const char *name)
{
    sp_text cell = {0};
    sp_text_name(&cell, name);
    take(table, &cell);
}

void sp_table_format(sp_table *table, const char *format, ...)
{
    char *text;
    va_list arguments;
    va_start(arguments, format);
    const int size = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (size < 0) {
        table->failed = true;
        return;
    }
    sp_table_cell(table, text);
    free(text);
}

/* Narrow the flexible columns, the widest first, until the table fits or they are as narrow as they get. */
static void fit(const sp_table *table, size_t *widths, size_t available)
{
    size_t total = GAP * (table->column_count - 1);
    for (size_t i = 0; i < table->column_count; i++) total += widths[i];
    while (total > available) {
        size_t widest = SIZE_MAX, next = NARROWEST;
        for (size_t i = 0; i < table->column_count; i++) {
            if (!table->columns[i].flexible || widths[i] <= NARROWEST) continue;
            if (widest == SIZE_MAX || widths[i] > widths[widest]) widest = i;
        }
        if (widest == SIZE_MAX) return;
        for (size_t i = 0; i < table->column_count; i++) {
            if (i != widest && table->columns[i].flexible && widths[i] > next) next = widths[i];
        }
        size_t step = widths[widest] - next;
        if (step > total - available) step = total - available;
        if (step == 0) step = 1;
        widths[widest] -= step;
        total -= step;
    }
}

static void write_row(const sp_table *table, const size_t *widths, const char *const *cells, sp_text *out)
{
    sp_text_repeat(out, " ", MARGIN);
    sp_text_add(out, "│ ");
    for (size_t i = 0; i < table->column_count; i++) {
        sp_text shown = {0};
        sp_text_cut(&shown, cells[i], widths[i], table->columns[i].flexible);
        const char *text = shown.data ? shown.data : "";
        const size_t columns = sp_columns(text, shown.size), padding = widths[i] > columns ? widths[i] - columns : 0;
        if (i > 0) sp_text_repeat(out, " ", GAP);
        if (table->columns[i].number) sp_text_repeat(out, " ", padding);
        sp_text_add(out, text);
        if (!table->columns[i].number) sp_text_repeat(out, " ", padding);
        sp_text_free(&shown);
    }
    sp_text_add(out, " │\n");
}

static void write_rule(const char *left, const char *right, size_t width, sp_text *out)
{
    sp_text_repeat(out, " ", MARGIN);
    sp_text_add(out, left);
    sp_text_repeat(out, "─", width);
    sp_text_add(out, right);
    sp_text_add(out, "\n");
}

static void write_table(const sp_table *table, sp_text *out, size_t width)
{
    size_t widths[SP_TABLE_COLUMNS], rule = GAP * (table->column_count - 1) + 2;
    const char *titles[SP_TABLE_COLUMNS];
    for (size_t i = 0; i < table->column_count; i++) {
        titles[i] = table->columns[i].title;
        widths[i] = sp_columns(titles[i], strlen(titles[i]));
    }
    for (size_t i = 0; i < table->cell_count; i++) {
        const size_t columns = sp_columns(table->cells[i], strlen(table->cells[i]));
        size_t *widest = &widths[i % table->column_count];
        if (columns > *widest) *widest = columns;
    }
    if (width > 0) fit(table, widths, width > MARGIN + 4 ? width - MARGIN - 4 : 0);
    for (size_t i = 0; i < table->column_count; i++) rule += widths[i];
    write_rule("╭", "╮", rule, out);
    write_row(table, widths, titles, out);
    write_rule("├", "┤", rule, out);
    for (size_t i = 0; i + table->column_count <= table->cell_count; i += table->column_count) {
        write_row(table, widths, (const char *const *)table->cells + i, out);
    }
    write_rule("╰", "╯", rule, out);
}

void sp_table_end(sp_table *table, sp_text *out, size_t width)
{
    if (table->failed) out->failed = true;
    else write_table(table, out, width);
    for (size_t i = 0; i < table->cell_count; i++) free(table->cells[i]);
    free(table->cells);
    *table = (sp_table){0};
}
