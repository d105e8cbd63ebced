#include "analysis/stack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/merge.h"
#include "analysis/path_summary.h"
#include "analysis/resolve.h"
#include "analysis/wrap.h"

/* -- clocks: from one to another by two moments that both were read at ------------------------------------------------ */

typedef struct clock_map {
    int64_t from, to; /* the same moment on both */
    double rate;      /* ns of `to` in a ns of `from`, less 1 */
    int64_t error_ns; /* SP_UNKNOWN: nothing is known, and times stay */
} clock_map;

static const clock_map same_clock = {0};

static int64_t map_time(const clock_map *map, int64_t time)
{
    const int64_t since = time - map->from;
    return map->to + since + llrint((double)since * map->rate);
}

static bool moves(const clock_map *map)
{
    return map->error_ns != SP_UNKNOWN && (map->from != map->to || map->rate != 0);
}

/* Clocks do not differ by more: what looks like it is two readings too close together. */
#define DRIFT_MAX 1e-3

static clock_map map_between(int64_t from0, int64_t to0, int64_t from1, int64_t to1, int64_t error_ns)
{
    clock_map map = {.from = from0, .to = to0, .error_ns = error_ns};
    const double length = (double)(from1 - from0);
    /* The error of the readings, as a rate, must be small against the drift that is looked for. */
    if (length > 1e6 * (double)(error_ns + 1)) map.rate = ((double)(to1 - to0) - length) / length;
    if (fabs(map.rate) > DRIFT_MAX) map.rate = 0;
    return map;
}

/* From the process's clock to the one it was compared with. */
static clock_map to_reference(const sp_process_info *p)
{
    return map_between(p->start_ns, p->start_reference_ns, p->end_ns, p->end_reference_ns, p->error_ns);
}

static clock_map from_reference(const sp_process_info *p)
{
    return map_between(p->start_reference_ns, p->start_ns, p->end_reference_ns, p->end_ns, p->error_ns);
}

/* `first`, then `second`, as one map that is exact at the moment of `first`. */
static clock_map chain(const clock_map *first, const clock_map *second)
{
    return (clock_map){.from = first->from, .to = map_time(second, first->to),
                       .rate = (1 + first->rate) * (1 + second->rate) - 1, .error_ns = first->error_ns + second->error_ns};
}

/* From the clock of a process to that of `base`, the first process of the first set. */
static clock_map find_map(const sp_process_info *base, const sp_profile *set, const sp_process_info *process)
{
    const clock_map unknown = {.error_ns = SP_UNKNOWN};
    if (base == NULL || process == NULL) return unknown;
    if (process == base || (process->clock_domain && process->clock_domain == base->clock_domain)) return same_clock;
    if (process->error_ns == SP_UNKNOWN) return unknown;
    const clock_map own = to_reference(process);
    if (strcmp(process->reference, "rank 0") == 0) {
        const sp_process_info *root = sp_profile_process(set, 0);
        const clock_map further = root == process ? unknown : find_map(base, set, root);
        return further.error_ns == SP_UNKNOWN ? unknown : chain(&own, &further);
    }
    if (base->error_ns == SP_UNKNOWN || strcmp(process->reference, base->reference) != 0) return unknown;
    const clock_map back = from_reference(base);
    return chain(&own, &back);
}

/* -- a set with other ranks and times: arrays of its own, texts of the original ----------------------------------------- */

typedef struct view {
    sp_profile profile; /* its text pointers, and columns that did not move, are the original's */
    struct sp_path_summary paths;
    bool moved; /* start and end are its own */
} view;

/* A copy of an array; *array stays when there is nothing to copy. False: out of memory. */
static bool own_array(void *array_pointer, size_t count, size_t element)
{
    void *array;
    memcpy(&array, array_pointer, sizeof array);
    void *copy = malloc(count ? count * element : 1);
    if (copy == NULL) return false;
    if (count) memcpy(copy, array, count * element);
    memcpy(array_pointer, &copy, sizeof copy);
    return true;
}

static bool open_view(view *v, const sp_profile *set)
{
    v->profile = *set;
    sp_profile *p = &v->profile;
    void **const arrays[] = {(void **)&p->rows, (void **)&p->threads, (void **)&p->tasks, (void **)&p->processes, (void **)&p->aux};
    const size_t counts[] = {p->row_count, p->thread_count, p->task_count, p->process_count, p->aux_count};
    const size_t sizes[] = {sizeof *p->rows, sizeof *p->threads, sizeof *p->tasks, sizeof *p->processes, sizeof *p->aux};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (own_array(arrays[i], counts[i], sizes[i])) continue;
        for (size_t k = i; k < sizeof counts / sizeof *counts; k++) *arrays[k] = NULL;
        p->stored_paths = NULL;
        return false;
    }
    if (p->stored_paths == NULL) return true;
    v->paths = *p->stored_paths;
    p->stored_paths = &v->paths;
    if (!own_array(&v->paths.rows, v->paths.row_count, sizeof *v->paths.rows)) {
        p->stored_paths = NULL;
        return false;
    }
    if (own_array(&v->paths.threads, v->paths.thread_count, sizeof *v->paths.threads)) return true;
    free(v->paths.rows);
    p->stored_paths = NULL;
    return false;
}

static void close_view(view *v)
{
    free(v->profile.rows);
    free(v->profile.threads);
    free(v->profile.tasks);
    free(v->profile.processes);
    free(v->profile.aux);
    if (v->profile.stored_paths) {
        free(v->paths.rows);
        free(v->paths.threads);
    }
    for (int c = SP_COLUMN_START; v->moved && c <= SP_COLUMN_END; c++) {
        sp_column_free(v->profile.columns[c], v->profile.call_count);
    }
}

static void renumber(sp_profile *p, uint32_t by)
{
    for (size_t i = 0; i < p->row_count; i++) p->rows[i].rank += by;
    for (size_t i = 0; i < p->thread_count; i++) p->threads[i].rank += by;
    for (size_t i = 0; i < p->task_count; i++) p->tasks[i].rank += by;
    for (size_t i = 0; i < p->process_count; i++) p->processes[i].rank += by;
    for (size_t i = 0; i < p->aux_count; i++) p->aux[i].rank += by;
    for (size_t i = 0; p->stored_paths && i < p->stored_paths->row_count; i++) p->stored_paths->rows[i].rank += by;
    for (size_t i = 0; p->stored_paths && i < p->stored_paths->thread_count; i++) p->stored_paths->threads[i].rank += by;
}

static int64_t start_of(const sp_profile *p)
{
    int64_t start = 0;
    sp_profile_get_int(p, "start_time_ns", &start);
    return start;
}

static void move_lane_time(int64_t *time, const clock_map *map, int64_t from, int64_t to)
{
    if (*time != SP_UNKNOWN) *time = map_time(map, from + *time) - to;
}

/* Lane times are relative to the start of their set, whose clock is that of its first process. */
static void move_lanes(sp_profile *p, uint32_t rank, const clock_map *map, int64_t from, int64_t to)
{
    for (size_t i = 0; i < p->thread_count; i++) {
        if (p->threads[i].rank != rank) continue;
        move_lane_time(&p->threads[i].start_ns, map, from, to);
        move_lane_time(&p->threads[i].end_ns, map, from, to);
    }
    for (size_t i = 0; i < p->task_count; i++) {
        if (p->tasks[i].rank != rank) continue;
        move_lane_time(&p->tasks[i].created_ns, map, from, to);
        move_lane_time(&p->tasks[i].done_ns, map, from, to);
    }
}

static bool own_columns(view *v)
{
    sp_profile *p = &v->profile;
    int64_t *columns[2];
    for (int c = 0; c < 2; c++) {
        columns[c] = sp_column_alloc(p->call_count);
        if (columns[c] == NULL) {
            if (c) sp_column_free(columns[0], p->call_count);
            return false;
        }
        memcpy(columns[c], p->columns[c], p->call_count * sizeof *columns[c]);
    }
    p->columns[SP_COLUMN_START] = columns[0];
    p->columns[SP_COLUMN_END] = columns[1];
    v->moved = true;
    return true;
}

static void move_rows(sp_profile *p, uint32_t rank, const clock_map *map)
{
    for (size_t i = 0; i < p->row_count; i++) {
        sp_row *row = &p->rows[i];
        if (row->rank != rank) continue;
        row->has_statistics = row->has_percentiles = false;
        for (uint64_t c = row->first; c < row->first + row->count; c++) {
            p->columns[SP_COLUMN_START][c] = map_time(map, p->columns[SP_COLUMN_START][c]);
            p->columns[SP_COLUMN_END][c] = map_time(map, p->columns[SP_COLUMN_END][c]);
        }
    }
}

/* Ranks that have calls, a lane or a process. */
static uint32_t rank_limit(const sp_profile *p)
{
    uint32_t limit = 0;
    for (size_t i = 0; i < p->row_count; i++) limit = p->rows[i].rank >= limit ? p->rows[i].rank + 1 : limit;
    for (size_t i = 0; i < p->process_count; i++) limit = p->processes[i].rank >= limit ? p->processes[i].rank + 1 : limit;
    return limit;
}

/* Move the times of every process of a view (`set` is the original) to the clock of `base`. */
static sp_status align_view(view *v, const sp_profile *set, const sp_process_info *base, int64_t *start, sp_error *error)
{
    sp_profile *p = &v->profile;
    const int64_t before = start_of(set);
    const clock_map first = find_map(base, set, set->process_count ? &set->processes[0] : NULL);
    *start = moves(&first) ? map_time(&first, before) : before;
    for (size_t i = 0; i < set->process_count; i++) {
        const uint32_t rank = set->processes[i].rank;
        const clock_map map = find_map(base, set, &set->processes[i]);
        sp_process_info *process = &p->processes[i];
        if (map.error_ns == SP_UNKNOWN) {
            process->error_ns = SP_UNKNOWN;
            continue;
        }
        move_lanes(p, rank, &map, before, *start);
        process->start_ns = map_time(&map, process->start_ns);
        process->end_ns = map_time(&map, process->end_ns);
        process->clock_domain = base->clock_domain;
        process->error_ns = map.error_ns;
        if (!moves(&map)) continue;
        if (p->summary_only) {
            return sp_fail(error, SP_ERR_UNSUPPORTED, "a profile without its calls cannot be moved to another clock");
        }
        if (!v->moved && !own_columns(v)) return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for a profile");
        move_rows(p, rank, &map);
        p->stored_paths = NULL;
        free(v->paths.rows);
        free(v->paths.threads);
        v->paths = (struct sp_path_summary){0};
    }
    return SP_OK;
}

/* -- the whole -------------------------------------------------------------------------------------------------------- */

static bool share_a_rank(const sp_profile *const *sets, size_t count)
{
    uint32_t limit = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t own = rank_limit(sets[i]);
        if (own > limit) limit = own;
    }
    size_t *owners = calloc((size_t)limit + 1, sizeof *owners);
    bool shared = owners == NULL;
    for (size_t i = 0; i < count && !shared; i++) {
        for (size_t k = 0; k < sets[i]->row_count && !shared; k++) {
            size_t *owner = &owners[sets[i]->rows[k].rank];
            shared = *owner && *owner != i + 1;
            *owner = i + 1;
        }
        for (size_t k = 0; k < sets[i]->process_count && !shared; k++) {
            size_t *owner = &owners[sets[i]->processes[k].rank];
            shared = *owner && *owner != i + 1;
            *owner = i + 1;
        }
    }
    free(owners);
    return shared;
}

/* Name the processes that have no name; the texts go into `*texts`, one after the other. */
static bool name_processes(sp_profile *p, const char *name, char ***texts, size_t *count)
{
    if (name == NULL) return true;
    for (size_t i = 0; i < p->process_count; i++) {
        if (p->processes[i].name[0]) continue;
        char **larger = realloc(*texts, (*count + 1) * sizeof *larger), *text = NULL;
        if (larger == NULL) return false;
        *texts = larger;
        if (p->process_count == 1) text = strdup(name);
        else if (asprintf(&text, "%s rank %u", name, p->processes[i].rank) < 0) text = NULL;
        if (text == NULL) return false;
        larger[(*count)++] = text;
        p->processes[i].name = text;
    }
    return true;
}

/* Exclusive totals of a rank whose clock was stretched: its calls are a few ns longer or shorter. */
static sp_status renew(sp_profile *out, sp_error *error)
{
    for (size_t first = 0, count; first < out->row_count; first += count) {
        for (count = 1; first + count < out->row_count && out->rows[first + count].rank == out->rows[first].rank;) count++;
        bool changed = false;
        for (size_t i = first; i < first + count; i++) changed |= out->rows[i].count && !out->rows[i].has_statistics;
        if (!changed || !out->nested) continue;
        const sp_status status = sp_profile_resolve_rows(out, first, count, 0, error);
        if (status == SP_ERR_NESTING) out->nested = false;
        else if (status != SP_OK) return status;
    }
    return SP_OK;
}

/* The end of the whole is that of the set that ends last, by the clock of the first. */
static sp_status end_with_last(sp_profile *out, const sp_profile *const *sets, const sp_profile *const *parts, size_t count, sp_error *error)
{
    int64_t last, end;
    if (!sp_profile_get_int(out, "finalize_time_ns", &last)) return SP_OK;
    const int64_t first = last;
    for (size_t i = 0; i < count; i++) {
        if (!sp_profile_get_int(sets[i], "finalize_time_ns", &end)) continue;
        end = sp_plus(end, sp_minus(start_of(parts[i]), start_of(sets[i])));
        if (end > last) last = end;
    }
    if (last == first || sp_profile_set_int(out, "finalize_time_ns", last) == SP_OK) return SP_OK;
    return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for %zu profiles", count);
}

sp_status sp_profile_stack(const sp_profile *const *sets, const char *const *names, size_t count, bool align,
                           sp_profile **out, sp_error *error)
{
    *out = NULL;
    if (count == 0) return sp_fail(error, SP_ERR_INVALID, "no profiles to put together");
    view *views = calloc(count, sizeof *views);
    const sp_profile **parts = calloc(count, sizeof *parts);
    char **texts = NULL;
    size_t text_count = 0, opened = 0;
    bool moved = false;
    const bool renumbers = share_a_rank(sets, count);
    const sp_process_info *base = sets[0]->process_count ? &sets[0]->processes[0] : NULL;
    uint64_t next = 0;
    sp_status status = views && parts ? SP_OK : sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for %zu profiles", count);
    for (size_t i = 0; i < count && status == SP_OK; i++) {
        int64_t start = start_of(sets[i]);
        const bool fine = open_view(&views[i], sets[i]);
        opened = i + 1;
        if (!fine || !name_processes(&views[i].profile, names ? names[i] : NULL, &texts, &text_count)) {
            status = sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for %zu profiles", count);
            break;
        }
        if (align) status = align_view(&views[i], sets[i], base, &start, error);
        moved |= views[i].moved;
        if (next + rank_limit(sets[i]) > INT32_MAX) status = sp_fail(error, SP_ERR_INVALID, "there are too many ranks");
        if (status == SP_OK && renumbers) renumber(&views[i].profile, (uint32_t)next);
        next += rank_limit(sets[i]);
        /* The join reads the set's start from its metadata: a copy of them, with the start where it is now. */
        if (status == SP_OK && start != start_of(sets[i])) {
            sp_profile *described = sp_profile_copy((sp_profile *)sets[i], false);
            if (described == NULL || sp_profile_set_int(described, "start_time_ns", start) != SP_OK) {
                status = sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for %zu profiles", count);
            } else {
                views[i].profile.metadata = described->metadata;
                views[i].profile.metadata_count = described->metadata_count;
                described->metadata = NULL;
                described->metadata_count = 0;
            }
            sp_profile_release(described);
        }
        parts[i] = &views[i].profile;
    }
    if (status == SP_OK) status = sp_profile_join(parts, count, out, error);
    if (status == SP_OK) status = end_with_last(*out, sets, parts, count, error);
    if (status == SP_OK && moved) status = renew(*out, error);
    if (status == SP_OK && sp_profile_set_int(*out, "mpi_size", (int64_t)rank_limit(*out)) != SP_OK) {
        status = sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for %zu profiles", count);
    }
    for (size_t i = 0; i < opened; i++) {
        if (views[i].profile.metadata != sets[i]->metadata) sp_profile_clear_metadata(&views[i].profile);
        close_view(&views[i]);
    }
    for (size_t i = 0; i < text_count; i++) free(texts[i]);
    free(texts);
    free(views);
    free(parts);
    if (status != SP_OK) {
        sp_profile_release(*out);
        *out = NULL;
    }
    return status;
}
