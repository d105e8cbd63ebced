/*
 * values.h - what single calls carry besides their times (metadata scopes and outcomes), in the store of their run.
 *
 * The front end keeps them as well, and puts them into the file with the calls; what is here is for the process that does not get
 * there. Notes of values fill chunks of their own, which go when the calls they belong to are in a file or were dropped. All do nothing
 * for a run without a store. Texts are JSON objects.
 */
#ifndef SP_CORE_VALUES_H
#define SP_CORE_VALUES_H

#include "core/run.h"

/* What a note of values begins with; behind it, of an outcome, the name of the region, and the text, each with its NUL. */
typedef struct sp_value {
    uint64_t scope; /* its number, by which its end finds its begin; 0: an outcome, or a scope that is over */
    int64_t lane;   /* a task's index, or -2 - a thread's row */
    sp_ticks start, end; /* end 0: the scope was open. Of an outcome: 0 */
} sp_value;

/* A scope begins: what to end it by, or 0. */
uint64_t sp_values_open(sp_run *run, int64_t lane, sp_ticks start, const char *text);

/* It ends; `text` is what counts. `scope` 0: its begin was not noted. */
void sp_values_close(sp_run *run, uint64_t scope, int64_t lane, sp_ticks start, sp_ticks end, const char *text);

/* Values of the one call of `region` on the lane that started then. */
void sp_values_outcome(sp_run *run, int64_t lane, sp_ticks start, const char *region, const char *text);

/* Before a collection: to be given to sp_values_drop once its calls are in a file. Scopes that are still open stay. */
uint32_t sp_values_mark(sp_run *run);
void sp_values_drop(sp_run *run, uint32_t mark);

/* With run->lock held: calls that ended before this went to make room. What was noted while `needed` says so stays. */
void sp_values_drop_before(sp_run *run, sp_ticks ticks, bool (*needed)(const sp_run *run, sp_ticks from, sp_ticks until));

/* With run->lock held: the oldest chunk of at least `bytes`, because calls are worth more. False: there is none that may go. */
bool sp_values_drop_oldest(sp_run *run, size_t bytes);

void sp_values_free(sp_run *run);

#endif
