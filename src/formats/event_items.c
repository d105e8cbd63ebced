#include "formats/event_items.h"

#include <stdlib.h>
#include <string.h>

static const char blanks[] = " \t\r\n";

/* Past the value at `at`, up to the comma or bracket that ends it. NULL: the text ends before. */
static const char *skip_value(const char *at)
{
    int depth = 0;
    for (; *at; at++) {
        if (*at == '"') {
            for (at++; *at && *at != '"'; at++) {
                if (*at == '\\' && at[1]) at++;
            }
            if (*at == '\0') return NULL;
        } else if (*at == '{' || *at == '[') {
            depth++;
        } else if (depth == 0 && (*at == ',' || *at == ']')) {
            return at;
        } else if (*at == '}' || *at == ']') {
            depth--;
        }
    }
    return NULL;
}

/* Where the items of a list begin; the last entry is just past the end of the last one's separator. NULL without an
 * exhausted memory: the text is no list of `count` items. */
static uint64_t *find_items(const char *text, uint64_t count, bool *no_memory)
{
    uint64_t *begins = malloc((count + 1) * sizeof *begins);
    if (begins == NULL) {
        *no_memory = true;
        return NULL;
    }
    const char *at = text + strspn(text, blanks);
    if (*at != '[') goto no_list;
    for (uint64_t i = 0; i < count; i++) {
        at++; /* the bracket, or a comma */
        at += strspn(at, blanks);
        begins[i] = (uint64_t)(at - text);
        at = skip_value(at);
        if (at == NULL || (*at == ']') != (i + 1 == count)) goto no_list;
    }
    begins[count] = (uint64_t)(at - text) + 1;
    return begins;
no_list:
    free(begins);
    return NULL;
}

sp_status sp_event_items_make(sp_event_items *items, const sp_profile *profile, uint32_t rank, sp_error *error)
{
    bool no_memory = false;
    *items = (sp_event_items){.profile = profile, .begins = calloc(profile->row_count + 1, sizeof *items->begins)};
    if (items->begins == NULL) no_memory = true;
    for (size_t r = 0; !no_memory && r < profile->row_count; r++) {
        const sp_row *row = &profile->rows[r];
        if (row->rank != rank || row->event_metadata == NULL || row->count == 0) continue;
        items->begins[r] = find_items(row->event_metadata, row->count, &no_memory);
    }
    if (!no_memory) return SP_OK;
    sp_event_items_free(items);
    return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the metadata of calls");
}

void sp_event_items_free(sp_event_items *items)
{
    for (size_t r = 0; items->begins && r < items->profile->row_count; r++) free(items->begins[r]);
    free(items->begins);
    items->begins = NULL;
}

const char *sp_event_items_get(const sp_event_items *items, const sp_row *row, uint64_t own, size_t *size)
{
    const uint64_t *begins = items->begins[row - items->profile->rows];
    if (begins == NULL) return NULL;
    const char *begin = row->event_metadata + begins[own], *end = row->event_metadata + begins[own + 1] - 1;
    /* Up to the separator before the next item. */
    while (end > begin && strchr(blanks, end[-1])) end--;
    if (own + 1 < row->count && end > begin && end[-1] == ',') end--;
    while (end > begin && strchr(blanks, end[-1])) end--;
    *size = (size_t)(end - begin);
    return *size > 2 ? begin : NULL; /* "{}" */
}
