#include "core/thread_rows.h"

#include <stdlib.h>
#include <string.h>

/* Rows of the page that begins with row `first`: few for few threads, and few pages for many. */
static size_t page_rows(size_t first)
{
    enum { LEAST = 32, MOST = 1024 };
    return first < LEAST ? LEAST : first < MOST ? first : MOST;
}

static bool add_page(sp_run *run)
{
    const size_t first = run->rows_made, count = page_rows(first);
    if (first + count > run->row_size) {
        const size_t size = 2 * (first + count);
        sp_thread_row **rows = realloc(run->rows, size * sizeof *rows);
        if (rows == NULL) return false;
        run->rows = rows;
        run->row_size = size;
    }
    sp_thread_row *page = calloc(count, sizeof *page);
    if (page == NULL) return false;
    for (size_t i = 0; i < count; i++) run->rows[first + i] = &page[i];
    run->rows_made += count;
    return true;
}

bool sp_thread_row_rename(sp_thread_row *row, const char *name)
{
    const size_t size = strlen(name) + 1;
    char *kept = size <= sizeof row->short_name ? row->short_name : malloc(size);
    if (kept == NULL) return false;
    memcpy(kept, name, size);
    if (row->name != row->short_name) free(row->name);
    row->name = kept;
    return true;
}

sp_thread_row *sp_thread_row_new(sp_run *run, const char *name)
{
    if (run->row_count == run->rows_made && !add_page(run)) return NULL;
    sp_thread_row *row = run->rows[run->row_count];
    row->index = (int32_t)run->row_count;
    return sp_thread_row_rename(row, name) ? row : NULL;
}

void sp_thread_rows_free(sp_run *run)
{
    for (size_t i = 0; i < run->row_count; i++) {
        if (run->rows[i]->name != run->rows[i]->short_name) free(run->rows[i]->name);
    }
    for (size_t first = 0; first < run->rows_made; first += page_rows(first)) free(run->rows[first]);
    free(run->rows);
}
