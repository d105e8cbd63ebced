#include "analysis/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/path_summary.h"
#include "analysis/resolve.h"
#include "analysis/wrap.h"
#include "core/hash.h"
#include "core/sort.h"

/* -- hash table from a key to a number -------------------------------------------------------------------------------- */

typedef struct entry {
    const char *text; /* NULL: an integer key */
    uint64_t key;     /* the integer, or the hash of the text */
    size_t value;
    bool taken;
} entry;

typedef struct table {
    entry *entries;
    size_t size, used;
} table;

static entry *table_slot(const table *t, const char *text, uint64_t key)
{
    size_t at = (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (t->size - 1);
    for (;; at = (at + 1) & (t->size - 1)) {
        entry *e = &t->entries[at];
        if (!e->taken || (e->key == key && (text == NULL || strcmp(e->text, text) == 0))) return e;
    }
}

/* The entry of a key, made with `value` if it is new (`*made`). NULL: out of memory. */
static entry *table_find(table *t, const char *text, uint64_t key, size_t value, bool *made)
{
    if (2 * t->used >= t->size) {
        table larger = {.size = t->size ? 2 * t->size : 64, .used = t->used};
        larger.entries = calloc(larger.size, sizeof *larger.entries);
        if (larger.entries == NULL) return NULL;
        for (size_t i = 0; i < t->size; i++) {
            if (t->entries[i].taken) *table_slot(&larger, t->entries[i].text, t->entries[i].key) = t->entries[i];
        }
        free(t->entries);
        *t = larger;
    }
    entry *e = table_slot(t, text, key);
    *made = !e->taken;
    if (e->taken) return e;
    *e = (entry){.text = text, .key = key, .value = value, .taken = true};
    t->used++;
    return e;
}

/* -- the plan: which rows of which parts make up a row ---------------------------------------------------------------- */

typedef struct piece {
    uint32_t row; /* of the result */
    uint32_t part;
    uint32_t source; /* row of the part */
} piece;

typedef struct plan {
    const sp_profile *const *parts;
    size_t part_count;
    sp_profile *out;
    piece *pieces; /* by row, then part */
    size_t piece_count;
    sp_thread_usage *usages; /* of the stored sums of all parts, by the threads' new numbers */
    size_t usage_count;
} plan;

static const sp_row *row_of(const plan *p, const piece *from)
{
    return &p->parts[from->part]->rows[from->source];
}

static char *copy_text(const char *text, bool *ok)
{
    if (text == NULL) return NULL;
    char *copy = strdup(text);
    if (copy == NULL) *ok = false;
    return copy;
}

/* Names of all parts, in order of appearance, and for each part the new number of each name. */
static bool plan_names(plan *p, uint32_t **numbers)
{
    table names = {0};
    size_t total = 0;
    bool ok = true, made;
    for (size_t i = 0; i < p->part_count; i++) total += p->parts[i]->name_count;
    p->out->names = calloc(total + 1, sizeof *p->out->names);
    ok = p->out->names != NULL;
    for (size_t i = 0; ok && i < p->part_count; i++) {
        const sp_profile *part = p->parts[i];
        numbers[i] = malloc((part->name_count + 1) * sizeof **numbers);
        ok = numbers[i] != NULL;
        for (size_t n = 0; ok && n < part->name_count; n++) {
            entry *e = table_find(&names, part->names[n], sp_hash(part->names[n]), p->out->name_count, &made);
            if (e == NULL) {
                ok = false;
            } else {
                numbers[i][n] = (uint32_t)e->value;
                if (made) p->out->names[p->out->name_count++] = copy_text(part->names[n], &ok);
            }
        }
    }
    free(names.entries);
    return ok;
}

static int by_row_then_part(const void *left, const void *right)
{
    const piece *a = left, *b = right;
    if (a->row != b->row) return a->row < b->row ? -1 : 1;
    if (a->part != b->part) return a->part < b->part ? -1 : 1;
    return (a->source > b->source) - (a->source < b->source);
}

typedef struct placed_row {
    uint32_t rank, place; /* place: order of appearance */
} placed_row;

static int by_rank_then_place(const void *left, const void *right)
{
    const placed_row *a = left, *b = right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

/* Number the rows rank by rank; within a rank they stay in order of appearance. */
static bool order_rows(plan *p)
{
    sp_profile *out = p->out;
    placed_row *places = malloc((out->row_count + 1) * sizeof *places);
    uint32_t *number = malloc((out->row_count + 1) * sizeof *number);
    sp_row *rows = calloc(out->row_count + 1, sizeof *rows);
    const bool ok = places && number && rows;
    for (size_t i = 0; ok && i < out->row_count; i++) {
        places[i] = (placed_row){.rank = out->rows[i].rank, .place = (uint32_t)i};
    }
    if (ok) sp_sort(places, out->row_count, sizeof *places, by_rank_then_place);
    for (size_t i = 0; ok && i < out->row_count; i++) {
        rows[i] = out->rows[places[i].place];
        number[places[i].place] = (uint32_t)i;
    }
    for (size_t i = 0; ok && i < p->piece_count; i++) p->pieces[i].row = number[p->pieces[i].row];
    if (ok) sp_sort(p->pieces, p->piece_count, sizeof *p->pieces, by_row_then_part);
    if (ok) {
        free(out->rows);
        out->rows = rows;
        rows = NULL;
    }
    free(places);
    free(number);
    free(rows);
    return ok;
}

static bool plan_rows(plan *p, uint32_t *const *numbers)
{
    size_t total = 0;
    bool ok = true, made;
    table rows = {0};
    for (size_t i = 0; i < p->part_count; i++) total += p->parts[i]->row_count;
    p->out->rows = calloc(total + 1, sizeof *p->out->rows);
    p->pieces = calloc(total + 1, sizeof *p->pieces);
    ok = p->out->rows && p->pieces && total < UINT32_MAX;
    for (size_t i = 0; ok && i < p->part_count; i++) {
        for (size_t r = 0; ok && r < p->parts[i]->row_count; r++) {
            const sp_row *row = &p->parts[i]->rows[r];
            const uint32_t name = numbers[i][row->name];
            entry *e = table_find(&rows, NULL, (uint64_t)row->rank << 32 | name, p->out->row_count, &made);
            if (e == NULL) {
                ok = false;
                break;
            }
            if (made) {
                p->out->rows[p->out->row_count++] = (sp_row){
                    .name = name, .rank = row->rank, .source_line = SP_UNKNOWN, .exclusive_total = SP_UNKNOWN};
            }
            p->pieces[p->piece_count++] = (piece){.row = (uint32_t)e->value, .part = (uint32_t)i, .source = (uint32_t)r};
        }
    }
    free(rows.entries);
    return ok && order_rows(p);
}

/* -- rows ------------------------------------------------------------------------------------------------------------- */

/* The inside of a JSON list, without brackets and blanks around; empty where there is no list of one object a call. */
static const char *list_inside(const char *text, size_t *size)
{
    *size = 0;
    if (text == NULL) return "";
    const char *begin = text, *end = text + strlen(text);
    while (begin < end && strchr(" \t\r\n", *begin)) begin++;
    while (end > begin && strchr(" \t\r\n", end[-1])) end--;
    if (end - begin < 2 || *begin != '[' || end[-1] != ']') return "";
    begin++;
    end--;
    while (begin < end && strchr(" \t\r\n", *begin)) begin++;
    *size = (size_t)(end - begin);
    return begin;
}

/* One list of the pieces' lists; calls of a piece without one get empty objects. NULL if no piece has one. */
static char *join_event_metadata(const plan *p, const piece *pieces, size_t count, bool *ok)
{
    size_t room = 3, size;
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        const sp_row *row = row_of(p, &pieces[i]);
        list_inside(row->event_metadata, &size);
        any |= size > 0;
        room += size > 0 ? size + 1 : 3 * (size_t)row->count;
    }
    if (!any) return NULL;
    char *text = malloc(room), *at = text;
    if (text == NULL) {
        *ok = false;
        return NULL;
    }
    *at++ = '[';
    for (size_t i = 0; i < count; i++) {
        const sp_row *row = row_of(p, &pieces[i]);
        const char *inside = list_inside(row->event_metadata, &size);
        if (size > 0 && row->count > 0) {
            memcpy(at, inside, size);
            at += size;
            *at++ = ',';
        }
        for (uint64_t c = 0; size == 0 && c < row->count; c++, at += 3) memcpy(at, "{},", 3);
    }
    if (at[-1] == ',') at--;
    memcpy(at, "]", 2);
    return text;
}

/* Of two aggregates: the calls themselves are not there to be looked at again. `before` calls are in `out`. */
static void pool_statistics(sp_row *out, uint64_t before, const sp_row *row)
{
    out->has_statistics &= row->has_statistics;
    if (out->has_statistics) sp_row_statistics_pool(&out->statistics, before, &row->statistics, row->aggregate_count);
}

static void add_aggregate(sp_row *out, const sp_row *row)
{
    if (!row->has_aggregate) return;
    if (row->aggregate_count) pool_statistics(out, out->aggregate_count, row);
    if (!out->has_aggregate || out->aggregate_count == 0) {
        const uint64_t count = out->aggregate_count + row->aggregate_count;
        out->has_aggregate = true;
        out->aggregate_count = count;
        out->aggregate_total = row->aggregate_total;
        out->aggregate_minimum = row->aggregate_minimum;
        out->aggregate_maximum = row->aggregate_maximum;
        out->aggregate_exclusive = row->aggregate_exclusive;
        return;
    }
    if (row->aggregate_count == 0) return;
    out->aggregate_count += row->aggregate_count;
    out->aggregate_total = sp_plus(out->aggregate_total, row->aggregate_total);
    if (row->aggregate_minimum < out->aggregate_minimum) out->aggregate_minimum = row->aggregate_minimum;
    if (row->aggregate_maximum > out->aggregate_maximum) out->aggregate_maximum = row->aggregate_maximum;
    out->aggregate_exclusive = sp_plus(out->aggregate_exclusive, row->aggregate_exclusive);
}

static bool fill_row(const plan *p, sp_row *out, const piece *pieces, size_t count)
{
    bool ok = true;
    for (size_t i = 0; i < count; i++) {
        const sp_row *row = row_of(p, &pieces[i]);
        out->count += row->count;
        if (out->source_file == NULL && row->source_file) {
            out->source_file = copy_text(row->source_file, &ok);
            out->source_line = row->source_line;
        }
        if (out->source_text == NULL) out->source_text = copy_text(row->source_text, &ok);
        if (out->tags == NULL) out->tags = copy_text(row->tags, &ok);
        if (!row->has_aggregate || !out->has_aggregate) out->has_statistics |= row->has_statistics;
        add_aggregate(out, row);
    }
    out->event_metadata = join_event_metadata(p, pieces, count, &ok);
    if (count != 1) return ok;
    const sp_row *row = row_of(p, pieces);
    out->statistics = row->statistics;
    out->has_percentiles = row->has_percentiles;
    memcpy(out->percentiles, row->percentiles, sizeof out->percentiles);
    out->exclusive_total = row->exclusive_total;
    out->source_line = row->source_line;
    return ok;
}

static size_t piece_run(const plan *p, size_t first)
{
    size_t count = 1;
    while (first + count < p->piece_count && p->pieces[first + count].row == p->pieces[first].row) count++;
    return count;
}

static bool fill_rows(plan *p)
{
    bool ok = true;
    for (size_t i = 0, count; ok && i < p->piece_count; i += count) {
        count = piece_run(p, i);
        sp_row *row = &p->out->rows[p->pieces[i].row];
        ok = fill_row(p, row, &p->pieces[i], count);
        row->first = p->out->call_count;
        if (!p->out->summary_only) p->out->call_count += row->count;
    }
    return ok;
}

static bool has_column(const plan *p, sp_column column)
{
    for (size_t i = 0; i < p->part_count; i++) {
        if (p->parts[i]->columns[column]) return true;
    }
    return false;
}

static bool fill_column(plan *p, sp_column column)
{
    sp_profile *out = p->out;
    if (out->call_count == 0 || !has_column(p, column)) return true;
    int64_t *target = sp_column_alloc(out->call_count);
    if (target == NULL) return false;
    out->columns[column] = target;
    for (size_t i = 0; i < p->piece_count; i++) {
        const sp_row *row = row_of(p, &p->pieces[i]);
        const int64_t *source = p->parts[p->pieces[i].part]->columns[column];
        if (source) memcpy(target, source + row->first, row->count * sizeof *target);
        for (uint64_t c = 0; source == NULL && c < row->count; c++) target[c] = sp_column_default(column);
        target += row->count;
    }
    return true;
}

/* Statistics of rows that came together from several pieces. */
static void renew_statistics(plan *p)
{
    for (size_t i = 0, count; i < p->piece_count; i += count) {
        count = piece_run(p, i);
        sp_row *row = &p->out->rows[p->pieces[i].row];
        if (count == 1 || !row->has_statistics || (row->has_aggregate && row->count == 0)) continue;
        row->has_statistics = !p->out->summary_only && row->count > 0;
        if (row->has_statistics) sp_row_statistics_compute(p->out, row, &row->statistics);
    }
}

/* -- lane tables ------------------------------------------------------------------------------------------------------ */

/* What renumbers the lanes of one set on one rank, and moves their times. */
typedef struct lane_shift {
    int64_t thread, task, time;
} lane_shift;

static int64_t moved(int64_t value, int64_t shift)
{
    return value == SP_UNKNOWN ? SP_UNKNOWN : sp_plus(value, shift);
}

static bool copy_thread(sp_profile *out, const sp_thread_info *thread, const lane_shift *shift)
{
    bool ok = true;
    sp_thread_info *copy = &out->threads[out->thread_count++];
    *copy = *thread;
    copy->index = moved(thread->index, shift->thread);
    copy->start_ns = moved(thread->start_ns, shift->time);
    copy->end_ns = moved(thread->end_ns, shift->time);
    copy->name = copy_text(thread->name, &ok);
    return ok;
}

static bool copy_task(sp_profile *out, const sp_task_info *task, const lane_shift *shift)
{
    bool ok = true;
    sp_task_info *copy = &out->tasks[out->task_count++];
    *copy = *task;
    copy->index = moved(task->index, shift->task);
    copy->thread_index = moved(task->thread_index, shift->thread);
    copy->creator_task = moved(task->creator_task, shift->task);
    copy->creator_thread = moved(task->creator_thread, shift->thread);
    copy->created_ns = moved(task->created_ns, shift->time);
    copy->done_ns = moved(task->done_ns, shift->time);
    copy->kind = copy_text(task->kind, &ok);
    copy->name = copy_text(task->name, &ok);
    copy->coro_name = copy_text(task->coro_name, &ok);
    return ok;
}

static bool reserve_lanes(sp_profile *out, size_t threads, size_t tasks)
{
    out->threads = calloc(threads + 1, sizeof *out->threads);
    out->tasks = calloc(tasks + 1, sizeof *out->tasks);
    return out->threads && out->tasks;
}

static bool add_process(sp_profile *out, const sp_process_info *process)
{
    bool ok = true;
    sp_process_info *larger = realloc(out->processes, (out->process_count + 1) * sizeof *larger);
    if (larger == NULL) return false;
    out->processes = larger;
    sp_process_info *copy = &larger[out->process_count++];
    *copy = *process;
    copy->name = copy_text(process->name, &ok);
    copy->reference = copy_text(process->reference, &ok);
    return ok;
}

static int by_process_rank(const void *left, const void *right)
{
    const sp_process_info *a = left, *b = right;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static int by_rank_alone(const void *key, const void *element)
{
    const uint32_t rank = *(const uint32_t *)key, other = ((const sp_process_info *)element)->rank;
    return (rank > other) - (rank < other);
}

/* The processes of all sets, one a rank: the first set that has the rank tells. */
static bool add_processes(plan *p)
{
    sp_profile *out = p->out;
    for (size_t i = 0; i < p->part_count; i++) {
        const size_t before = out->process_count;
        for (size_t k = 0; k < p->parts[i]->process_count; k++) {
            const sp_process_info *process = &p->parts[i]->processes[k];
            const bool known = sp_find(&process->rank, out->processes, before, sizeof *process, by_rank_alone);
            if (!known && !add_process(out, process)) return false;
        }
        sp_sort(out->processes, out->process_count, sizeof *out->processes, by_process_rank);
    }
    return true;
}

static bool copy_last_lanes(plan *p)
{
    const sp_profile *source = NULL;
    for (size_t i = 0; i < p->part_count; i++) {
        if (p->parts[i]->has_threads) source = p->parts[i];
    }
    const sp_profile *last = p->parts[p->part_count - 1];
    for (size_t i = 0; i < last->process_count; i++) {
        if (!add_process(p->out, &last->processes[i])) return false;
    }
    if (source == NULL) return true;
    const lane_shift none = {0};
    bool ok = reserve_lanes(p->out, source->thread_count, source->task_count);
    p->out->has_threads = true;
    for (size_t i = 0; ok && i < source->thread_count; i++) ok = copy_thread(p->out, &source->threads[i], &none);
    for (size_t i = 0; ok && i < source->task_count; i++) ok = copy_task(p->out, &source->tasks[i], &none);
    return ok;
}

/* -- metadata and auxiliary groups ------------------------------------------------------------------------------------ */

static sp_status copy_metadata(sp_profile *out, const sp_metadata *entry_)
{
    switch (entry_->kind) {
    case SP_VALUE_INT: return sp_profile_set_int(out, entry_->key, entry_->integer);
    case SP_VALUE_FLOAT: return sp_profile_set_float(out, entry_->key, entry_->real);
    case SP_VALUE_BOOL: return sp_profile_set_bool(out, entry_->key, entry_->integer != 0);
    case SP_VALUE_STRING: return sp_profile_set_string(out, entry_->key, entry_->text);
    case SP_VALUE_STRINGS:
        return sp_profile_set_strings(out, entry_->key, (const char *const *)entry_->list, entry_->size);
    }
    return SP_OK;
}

static bool add_metadata(sp_profile *out, const sp_profile *set)
{
    for (size_t i = 0; i < set->metadata_count; i++) {
        const sp_metadata *entry_ = &set->metadata[i];
        const sp_metadata *earlier = sp_profile_find_metadata(out, entry_->key);
        const bool larger = earlier && strcmp(entry_->key, "mpi_size") == 0 && entry_->kind == SP_VALUE_INT &&
                            earlier->kind == SP_VALUE_INT && entry_->integer > earlier->integer;
        if ((earlier == NULL || larger) && copy_metadata(out, entry_) != SP_OK) return false;
    }
    return true;
}

static bool copy_array(sp_array *out, const sp_array *array)
{
    *out = *array;
    bool ok = true;
    const size_t count = (size_t)sp_array_size(array);
    out->name = copy_text(array->name, &ok);
    out->data = calloc(count + 1, 8);
    if (out->data == NULL) {
        out->kind = SP_ARRAY_INT64; /* nothing to free behind it */
        return false;
    }
    if (array->kind != SP_ARRAY_STRING) {
        if (count > 0) memcpy(out->data, array->data, count * 8);
        return ok;
    }
    for (size_t i = 0; i < count; i++) ((char **)out->data)[i] = copy_text(((char *const *)array->data)[i], &ok);
    return ok;
}

static bool has_array(const sp_array *arrays, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(arrays[i].name, name) == 0) return true;
    }
    return false;
}

static bool add_arrays(sp_array **arrays, size_t *count, const sp_array *more, size_t more_count)
{
    sp_array *larger = realloc(*arrays, (*count + more_count + 1) * sizeof *larger);
    if (larger == NULL) return false;
    *arrays = larger;
    const size_t before = *count;
    for (size_t i = 0; i < more_count; i++) {
        if (has_array(larger, before, more[i].name)) continue;
        larger[*count] = (sp_array){0};
        if (!copy_array(&larger[(*count)++], &more[i])) return false;
    }
    return true;
}

static sp_group *find_group(const sp_group *group, const char *name)
{
    for (size_t i = 0; i < group->group_count; i++) {
        if (strcmp(group->groups[i].name, name) == 0) return &group->groups[i];
    }
    return NULL;
}

/* A line profile's records are numbered: those of another set follow. */
static char *free_number(const sp_group *group)
{
    char name[32];
    size_t number = group->group_count;
    do snprintf(name, sizeof name, "%zu", number++);
    while (find_group(group, name));
    return strdup(name);
}

static bool add_group(sp_group *out, const sp_group *group)
{
    if (!add_arrays(&out->attributes, &out->attribute_count, group->attributes, group->attribute_count)) return false;
    if (!add_arrays(&out->datasets, &out->dataset_count, group->datasets, group->dataset_count)) return false;
    sp_group *larger = realloc(out->groups, (out->group_count + group->group_count + 1) * sizeof *larger);
    if (larger == NULL) return false;
    out->groups = larger;
    const bool numbered = out->name && strcmp(out->name, "line_profile") == 0;
    for (size_t i = 0; i < group->group_count; i++) {
        const sp_group *child = &group->groups[i];
        sp_group *same = find_group(out, child->name);
        if (same == NULL || numbered) {
            char *name = same ? free_number(out) : strdup(child->name);
            same = &out->groups[out->group_count];
            *same = (sp_group){.name = name};
            if (name == NULL) return false;
            out->group_count++;
        }
        if (!add_group(same, child)) return false;
    }
    return true;
}

bool sp_profile_add_aux(sp_profile *out, const sp_profile *set)
{
    if (set->aux_count == 0) return true;
    sp_rank_aux *larger = realloc(out->aux, (out->aux_count + set->aux_count) * sizeof *larger);
    if (larger == NULL) return false;
    out->aux = larger;
    for (size_t i = 0; i < set->aux_count; i++) {
        sp_rank_aux *target = NULL;
        for (size_t j = 0; j < out->aux_count; j++) {
            if (out->aux[j].rank == set->aux[i].rank) target = &out->aux[j];
        }
        if (target == NULL) {
            target = &out->aux[out->aux_count++];
            *target = (sp_rank_aux){.rank = set->aux[i].rank};
        }
        if (!add_group(&target->root, &set->aux[i].root)) return false;
    }
    return true;
}

/* -- merge ------------------------------------------------------------------------------------------------------------ */

static bool same_kind(const sp_profile *const *parts, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (parts[i]->summary_only != parts[0]->summary_only) return false;
    }
    return true;
}

static sp_status begin(plan *p, const sp_profile *const *parts, size_t count, sp_error *error)
{
    *p = (plan){.parts = parts, .part_count = count};
    if (count == 0) return sp_fail(error, SP_ERR_INVALID, "no profiles to put together");
    if (!same_kind(parts, count)) {
        return sp_fail(error, SP_ERR_UNSUPPORTED, "profiles read without their calls cannot be put together with others");
    }
    p->out = sp_profile_new();
    uint32_t **numbers = calloc(count, sizeof *numbers);
    bool ok = p->out && numbers;
    if (ok) {
        p->out->summary_only = parts[0]->summary_only;
        p->out->aggregate = true;
        for (size_t i = 0; i < count; i++) p->out->aggregate &= parts[i]->aggregate;
        ok = plan_names(p, numbers) && plan_rows(p, numbers) && fill_rows(p);
    }
    for (size_t i = 0; numbers && i < count; i++) free(numbers[i]);
    free(numbers);
    return ok ? SP_OK : sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for %zu profiles", count);
}

static sp_status finish(plan *p, sp_status status, sp_profile **out)
{
    free(p->pieces);
    free(p->usages);
    if (status != SP_OK) {
        sp_profile_release(p->out);
        p->out = NULL;
    }
    *out = p->out;
    return status;
}

sp_status sp_profile_merge(const sp_profile *const *parts, size_t count, sp_profile **out, sp_error *error)
{
    plan p;
    sp_status status = begin(&p, parts, count, error);
    if (status != SP_OK) return finish(&p, status, out);
    bool ok = true;
    for (sp_column column = SP_COLUMN_START; ok && column < SP_COLUMN_COUNT; column++) {
        if (column != SP_COLUMN_CALL_ID && column != SP_COLUMN_PARENT_ID) ok = fill_column(&p, column);
    }
    ok = ok && copy_last_lanes(&p) && add_metadata(p.out, parts[count - 1]) && sp_profile_add_aux(p.out, parts[count - 1]);
    if (!ok) return finish(&p, sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for %zu profiles", count), out);
    renew_statistics(&p);
    for (size_t i = 0; i < p.out->row_count; i++) p.out->rows[i].exclusive_total = SP_UNKNOWN;
    p.out->nested = p.out->aggregate; /* without single calls there is nothing to resolve */
    return finish(&p, SP_OK, out);
}

/* -- union ------------------------------------------------------------------------------------------------------------ */

/* The numbers of one rank's lanes: `thread` and `task` are the next free ones, `shift` is what the current set is moved by. */
typedef struct rank_use {
    uint32_t rank;
    size_t sets;     /* that have calls on it */
    size_t last_set; /* the last of them, plus one */
    int64_t thread, task;
    lane_shift shift;
} rank_use;

typedef struct rank_uses {
    rank_use *uses;
    size_t count;
    table ranks;
    bool failed; /* out of memory */
    rank_use spare;
} rank_uses;

static rank_use *use_of(rank_uses *u, uint32_t rank)
{
    bool made;
    entry *e = table_find(&u->ranks, NULL, rank, u->count, &made);
    rank_use *larger = e && made ? realloc(u->uses, (u->count + 1) * sizeof *larger) : u->uses;
    if (e == NULL || larger == NULL) {
        u->failed = true;
        return &u->spare;
    }
    u->uses = larger;
    if (made) u->uses[u->count++] = (rank_use){.rank = rank};
    return &u->uses[e->value];
}

static void begin_set(rank_uses *u, int64_t time)
{
    u->spare.shift = (lane_shift){.time = time};
    for (size_t i = 0; i < u->count; i++) {
        u->uses[i].shift = (lane_shift){.thread = u->uses[i].thread, .task = u->uses[i].task, .time = time};
    }
}

/* A rank that the set before it did not have. */
static rank_use *use_in_set(rank_uses *u, uint32_t rank)
{
    rank_use *use = use_of(u, rank);
    use->shift.time = u->spare.shift.time;
    return use;
}

static void renumber(int64_t *column, const sp_row *row, int64_t shift, int64_t *next)
{
    for (uint64_t c = row->first; column && c < row->first + row->count; c++) {
        column[c] = moved(column[c], shift);
        if (column[c] >= *next) *next = column[c] + 1;
    }
}

static void raise_to(int64_t *next, int64_t used)
{
    if (used >= *next) *next = used + 1;
}

static bool add_lanes(sp_profile *out, const sp_profile *set, rank_uses *u)
{
    out->has_threads |= set->has_threads;
    for (size_t i = 0; i < set->thread_count; i++) {
        rank_use *use = use_in_set(u, set->threads[i].rank);
        if (!copy_thread(out, &set->threads[i], &use->shift)) return false;
        raise_to(&use->thread, out->threads[out->thread_count - 1].index);
    }
    for (size_t i = 0; i < set->task_count; i++) {
        rank_use *use = use_in_set(u, set->tasks[i].rank);
        if (!copy_task(out, &set->tasks[i], &use->shift)) return false;
        raise_to(&use->task, out->tasks[out->task_count - 1].index);
    }
    return !u->failed;
}

/* What the set's stored sums say of threads, which have their new numbers now. */
static void take_usages(plan *p, const sp_profile *set, rank_uses *u)
{
    for (size_t i = 0; set->stored_paths && i < set->stored_paths->thread_count; i++) {
        sp_thread_usage usage = set->stored_paths->threads[i];
        usage.thread = moved(usage.thread, use_in_set(u, usage.rank)->shift.thread);
        p->usages[p->usage_count++] = usage;
    }
}

static bool place_lanes(plan *p, rank_uses *u)
{
    sp_profile *const out = p->out;
    size_t threads = 0, tasks = 0, usages = 0;
    for (size_t i = 0; i < p->part_count; i++) {
        threads += p->parts[i]->thread_count;
        tasks += p->parts[i]->task_count;
        usages += p->parts[i]->stored_paths ? p->parts[i]->stored_paths->thread_count : 0;
    }
    p->usages = calloc(usages + 1, sizeof *p->usages);
    if (p->usages == NULL || !reserve_lanes(out, threads, tasks)) return false;
    int64_t origin = 0, start;
    const bool has_origin = sp_profile_get_int(out, "start_time_ns", &origin);
    for (size_t i = 0; i < p->part_count; i++) {
        begin_set(u, has_origin && sp_profile_get_int(p->parts[i], "start_time_ns", &start) ? sp_minus(start, origin) : 0);
        for (size_t k = 0; k < p->piece_count; k++) {
            if (p->pieces[k].part != i) continue;
            const sp_row *row = &out->rows[p->pieces[k].row];
            rank_use *use = use_in_set(u, row->rank);
            if (row->count > 0 && use->last_set != i + 1) {
                use->last_set = i + 1;
                use->sets++;
            }
            if (out->summary_only) continue;
            renumber(out->columns[SP_COLUMN_THREAD], row, use->shift.thread, &use->thread);
            renumber(out->columns[SP_COLUMN_TASK], row, use->shift.task, &use->task);
        }
        if (!add_lanes(out, p->parts[i], u)) return false;
        take_usages(p, p->parts[i], u);
    }
    return !u->failed;
}

/* A region that two sets have on the same rank. */
static const char *repeated_region(const plan *p)
{
    for (size_t i = 1; i < p->piece_count; i++) {
        const piece *own = &p->pieces[i], *before = own - 1;
        if (own->row == before->row && own->part != before->part) return p->out->names[p->out->rows[own->row].name];
    }
    return NULL;
}

/* The smallest call id of rows that follow each other: where the ids of their new tree begin. */
static int64_t first_id(const sp_profile *profile, size_t first_row, size_t row_count)
{
    const int64_t *ids = profile->columns[SP_COLUMN_CALL_ID];
    int64_t smallest = INT64_MAX;
    for (size_t i = first_row; ids && i < first_row + row_count; i++) {
        const sp_row *row = &profile->rows[i];
        for (uint64_t c = row->first; c < row->first + row->count; c++) {
            if (ids[c] >= 0 && ids[c] < smallest) smallest = ids[c];
        }
    }
    return smallest == INT64_MAX ? 0 : smallest;
}

/* Where several sets have calls on a rank, their tree is that of all of them. */
static sp_status resolve_shared(plan *p, rank_uses *u, sp_error *error)
{
    sp_profile *const out = p->out;
    out->nested = true;
    for (size_t i = 0; i < p->part_count; i++) out->nested &= p->parts[i]->nested;
    if (out->summary_only || out->aggregate) return SP_OK;
    for (size_t first = 0, count; first < out->row_count; first += count) {
        const uint32_t rank = out->rows[first].rank;
        count = 1;
        while (first + count < out->row_count && out->rows[first + count].rank == rank) count++;
        if (use_of(u, rank)->sets < 2) continue;
        sp_error reason;
        const sp_status status = sp_profile_resolve_rows(out, first, count, first_id(out, first, count), &reason);
        if (status == SP_ERR_NESTING) out->nested = false;
        if (status == SP_OK || status == SP_ERR_NESTING) continue;
        if (error) *error = reason;
        return status;
    }
    return SP_OK;
}

/* The number of each of a set's names in the result. NULL: out of memory. */
static uint32_t *name_numbers(table *names, const sp_profile *set)
{
    uint32_t *numbers = malloc((set->name_count + 1) * sizeof *numbers);
    bool made;
    for (size_t n = 0; numbers && n < set->name_count; n++) {
        const entry *e = table_find(names, set->names[n], sp_hash(set->names[n]), 0, &made);
        if (e) {
            numbers[n] = (uint32_t)e->value;
        } else {
            free(numbers);
            numbers = NULL;
        }
    }
    return numbers;
}

static bool add_path_nodes(sp_path_summary *out, table *nodes, const sp_path_summary *paths, const uint32_t *names,
                           uint32_t *placed)
{
    bool made;
    for (size_t n = 0; n < paths->node_count; n++) {
        const int32_t parent =
            paths->nodes[n].parent < 0 ? SP_PATH_ROOT : (int32_t)placed[paths->nodes[n].parent];
        const uint32_t name = names[paths->nodes[n].name];
        const entry *e = table_find(nodes, NULL, (uint64_t)(uint32_t)(parent + 1) << 32 | name, out->node_count, &made);
        if (e == NULL) return false;
        placed[n] = (uint32_t)e->value;
        if (made) out->nodes[out->node_count++] = (sp_path_node){.name = name, .parent = parent};
    }
    for (size_t r = 0; r < paths->row_count; r++) {
        sp_path_row *row = &out->rows[out->row_count++];
        *row = paths->rows[r];
        row->node = placed[row->node];
    }
    return true;
}

static int by_rank_then_node(const void *left, const void *right)
{
    const sp_path_row *a = left, *b = right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

static int by_rank_then_thread(const void *left, const void *right)
{
    const sp_thread_usage *a = left, *b = right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return (a->thread > b->thread) - (a->thread < b->thread);
}

/* The sums by call path of all sets; none when a set with calls has none. False: out of memory. */
static bool join_paths(plan *p)
{
    size_t node_room = 1, row_room = 1;
    for (size_t i = 0; i < p->part_count; i++) {
        const sp_path_summary *paths = p->parts[i]->stored_paths;
        if (paths == NULL && p->parts[i]->row_count) return true;
        if (paths == NULL) continue;
        node_room += paths->node_count;
        row_room += paths->row_count;
    }
    sp_path_summary *out = calloc(1, sizeof *out);
    if (out == NULL) return false;
    out->nested = true;
    out->nodes = calloc(node_room, sizeof *out->nodes);
    out->rows = calloc(row_room, sizeof *out->rows);
    out->threads = p->usages;
    out->thread_count = p->usage_count;
    p->usages = NULL;
    table names = {0}, nodes = {0};
    bool ok = out->nodes && out->rows, made;
    for (size_t n = 0; ok && n < p->out->name_count; n++) {
        ok = table_find(&names, p->out->names[n], sp_hash(p->out->names[n]), n, &made) != NULL;
    }
    for (size_t i = 0; ok && i < p->part_count; i++) {
        const sp_path_summary *paths = p->parts[i]->stored_paths;
        if (paths == NULL) continue;
        uint32_t *numbers = name_numbers(&names, p->parts[i]);
        uint32_t *placed = malloc((paths->node_count + 1) * sizeof *placed);
        ok = numbers && placed && add_path_nodes(out, &nodes, paths, numbers, placed);
        out->nested &= paths->nested;
        out->clamped |= paths->clamped;
        free(numbers);
        free(placed);
    }
    free(names.entries);
    free(nodes.entries);
    if (!ok) {
        sp_path_summary_free(out);
        return false;
    }
    sp_sort(out->rows, out->row_count, sizeof *out->rows, by_rank_then_node);
    sp_sort(out->threads, out->thread_count, sizeof *out->threads, by_rank_then_thread);
    p->out->stored_paths = out;
    return true;
}

static sp_status put_side_by_side(plan *p, sp_error *error)
{
    rank_uses u = {0};
    bool ok = true;
    for (sp_column column = SP_COLUMN_START; ok && column < SP_COLUMN_COUNT; column++) ok = fill_column(p, column);
    for (size_t i = 0; ok && i < p->part_count; i++) ok = add_metadata(p->out, p->parts[i]) && sp_profile_add_aux(p->out, p->parts[i]);
    ok = ok && place_lanes(p, &u) && add_processes(p);
    /* Where a tree is made again, sums by call path are those of the old ones. */
    bool remade = false;
    for (size_t i = 0; i < u.count; i++) remade |= u.uses[i].sets > 1 && !p->out->summary_only && !p->out->aggregate;
    ok = ok && (remade || join_paths(p));
    const sp_status status = ok ? resolve_shared(p, &u, error)
                                : sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for %zu profiles", p->part_count);
    free(u.uses);
    free(u.ranks.entries);
    return status;
}

sp_status sp_profile_union(const sp_profile *const *sets, size_t count, sp_profile **out, sp_error *error)
{
    plan p;
    sp_status status = begin(&p, sets, count, error);
    const char *repeated = status == SP_OK ? repeated_region(&p) : NULL;
    if (repeated) status = sp_fail(error, SP_ERR_INVALID, "region '%.200s' is in more than one set", repeated);
    if (status == SP_OK) status = put_side_by_side(&p, error);
    return finish(&p, status, out);
}

/* -- join ------------------------------------------------------------------------------------------------------------- */

/* The first set that has a rank, for every rank; false with the rank in `*shared` where a second one has it too. */
static bool ranks_apart(const plan *p, uint32_t *shared, bool *no_memory)
{
    table owners = {0};
    bool apart = true, made;
    for (size_t i = 0; apart && i < p->piece_count; i++) {
        const piece *from = &p->pieces[i];
        const uint32_t rank = p->out->rows[from->row].rank;
        const entry *e = table_find(&owners, NULL, rank, from->part, &made);
        *no_memory = e == NULL;
        apart = e && e->value == from->part;
        *shared = rank;
    }
    free(owners.entries);
    return apart;
}

sp_status sp_profile_join(const sp_profile *const *sets, size_t count, sp_profile **out, sp_error *error)
{
    plan p;
    uint32_t shared = 0;
    bool no_memory = false;
    sp_status status = begin(&p, sets, count, error);
    if (status == SP_OK && !ranks_apart(&p, &shared, &no_memory) && !no_memory) {
        status = sp_fail(error, SP_ERR_INVALID, "rank %u is in more than one set", shared);
    }
    if (status == SP_OK) status = put_side_by_side(&p, error);
    if (status == SP_OK && no_memory) status = sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for %zu profiles", count);
    return finish(&p, status, out);
}
