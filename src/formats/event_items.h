/*
 * event_items.h - the metadata of single calls, of rows that carry some: each row has one JSON text, a list of one object a
 * call, and exports want the objects one by one, in another order. 8 bytes a call of such rows.
 */
#ifndef SP_FORMATS_EVENT_ITEMS_H
#define SP_FORMATS_EVENT_ITEMS_H

#include "analysis/profile.h"

typedef struct sp_event_items {
    const sp_profile *profile;
    uint64_t **begins; /* by row: where each item begins; one more than there are calls. NULL: the row has none */
} sp_event_items;

/* Of the rows of one rank. */
sp_status sp_event_items_make(sp_event_items *items, const sp_profile *profile, uint32_t rank, sp_error *error);
void sp_event_items_free(sp_event_items *items);

/* The object of a row's call, as JSON; NULL when there is none or it is empty. */
const char *sp_event_items_get(const sp_event_items *items, const sp_row *row, uint64_t own, size_t *size);

#endif
