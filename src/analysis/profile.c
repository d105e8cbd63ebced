#include "analysis/profile.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/path_summary.h"
#include "platform/platform.h"

const double sp_percentile_ranks[SP_PERCENTILE_COUNT] = {50.0, 95.0, 99.0};

char *sp_text_copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

int64_t sp_column_default(sp_column column)
{
    return column == SP_COLUMN_AWAIT ? 0 : SP_UNKNOWN;
}

/* -- life of a profile -- */

uint64_t sp_profile_calls(const sp_profile *profile)
{
    uint64_t calls = 0;
    for (size_t i = 0; i < profile->row_count; i++) calls += sp_row_calls(&profile->rows[i]);
    return calls;
}

sp_profile *sp_profile_new(void)
{
    sp_profile *profile = calloc(1, sizeof *profile);
    if (profile == NULL) return NULL;
    profile->nested = true;
    atomic_init(&profile->references, 1);
    return profile;
}

sp_profile *sp_profile_share(sp_profile *profile)
{
    atomic_fetch_add_explicit(&profile->references, 1, memory_order_relaxed);
    return profile;
}

static void free_texts(char **texts, size_t count)
{
    if (texts == NULL) return;
    for (size_t i = 0; i < count; i++) free(texts[i]);
    free(texts);
}

void sp_array_free(sp_array *array)
{
    free(array->name);
    if (array->kind != SP_ARRAY_STRING) {
        free(array->data);
        return;
    }
    free_texts(array->data, sp_array_size(array));
}

void sp_group_free(sp_group *group)
{
    free(group->name);
    for (size_t i = 0; i < group->attribute_count; i++) sp_array_free(&group->attributes[i]);
    for (size_t i = 0; i < group->dataset_count; i++) sp_array_free(&group->datasets[i]);
    for (size_t i = 0; i < group->group_count; i++) sp_group_free(&group->groups[i]);
    free(group->attributes);
    free(group->datasets);
    free(group->groups);
}

static void free_metadata(sp_metadata *entry)
{
    free(entry->key);
    free(entry->text);
    free_texts(entry->list, entry->size);
}

static void free_rows(sp_profile *profile)
{
    for (size_t i = 0; i < profile->row_count; i++) {
        const sp_row *row = &profile->rows[i];
        free(row->source_file);
        free(row->source_text);
        free(row->tags);
        free(row->event_metadata);
    }
    free(profile->rows);
}

static void free_lanes(sp_profile *profile)
{
    for (size_t i = 0; i < profile->thread_count; i++) free(profile->threads[i].name);
    free(profile->threads);
    for (size_t i = 0; i < profile->task_count; i++) {
        free(profile->tasks[i].kind);
        free(profile->tasks[i].name);
        free(profile->tasks[i].coro_name);
    }
    free(profile->tasks);
    for (size_t i = 0; i < profile->process_count; i++) {
        free(profile->processes[i].name);
        free(profile->processes[i].reference);
    }
    free(profile->processes);
}

/* Rows and lanes from which on freeing them leaves megabytes in malloc, between what was allocated since. */
#define TRIM_FROM 10000

static void free_aux(sp_profile *profile)
{
    for (size_t i = 0; i < profile->aux_count; i++) sp_group_free(&profile->aux[i].root);
    free(profile->aux);
}

/* What copies share. */
static void free_body(sp_profile *profile)
{
    for (int c = 0; c < SP_COLUMN_COUNT; c++) sp_column_free(profile->columns[c], profile->call_count);
    free_texts(profile->names, profile->name_count);
    free_lanes(profile);
    sp_path_summary_free(profile->stored_paths);
    free_aux(profile);
}

void sp_profile_release(sp_profile *profile)
{
    if (profile == NULL) return;
    if (atomic_fetch_sub_explicit(&profile->references, 1, memory_order_acq_rel) != 1) return;
    sp_profile_clear_metadata(profile);
    if (profile->owner == NULL || profile->own_rows) free_rows(profile);
    if (profile->owner && profile->own_aux) free_aux(profile);
    if (profile->owner && profile->own_gpu) sp_column_free(profile->columns[SP_COLUMN_GPU], profile->call_count);
    if (profile->owner) sp_profile_release(profile->owner);
    else free_body(profile);
    const bool large = profile->owner == NULL && profile->row_count + profile->thread_count + profile->task_count >= TRIM_FROM;
    free(profile);
    if (large) sp_platform_trim();
}

/* -- copies -- */

/* Copy a text into a fresh profile; a NULL stays NULL. False: out of memory. */
static bool copy_text(char **to, const char *from)
{
    *to = sp_text_copy(from);
    return from == NULL || *to != NULL;
}

/* Room for `count` zeroed elements; false: out of memory. Nothing is allocated for none. */
static bool make_room(void *pointer_to_array, size_t count, size_t size)
{
    void *array = count ? calloc(count, size) : NULL;
    memcpy(pointer_to_array, &array, sizeof array);
    return count == 0 || array != NULL;
}

static bool copy_texts(char ***to, char *const *from, size_t count)
{
    if (!make_room(to, count, sizeof **to)) return false;
    for (size_t i = 0; i < count; i++) {
        if (!copy_text(&(*to)[i], from[i])) return false;
    }
    return true;
}

static bool copy_rows(sp_profile *to, const sp_profile *from)
{
    if (!make_room(&to->rows, from->row_count, sizeof *to->rows)) return false;
    to->row_count = from->row_count;
    for (size_t i = 0; i < from->row_count; i++) {
        sp_row *row = &to->rows[i];
        *row = from->rows[i];
        row->source_file = row->source_text = row->tags = row->event_metadata = NULL;
        if (!copy_text(&row->source_file, from->rows[i].source_file) ||
            !copy_text(&row->source_text, from->rows[i].source_text) || !copy_text(&row->tags, from->rows[i].tags) ||
            !copy_text(&row->event_metadata, from->rows[i].event_metadata)) {
            return false;
        }
    }
    return true;
}

static bool copy_metadata(sp_profile *to, const sp_profile *from)
{
    if (!make_room(&to->metadata, from->metadata_count, sizeof *to->metadata)) return false;
    to->metadata_count = from->metadata_count;
    for (size_t i = 0; i < from->metadata_count; i++) {
        const sp_metadata *entry = &from->metadata[i];
        sp_metadata *copy = &to->metadata[i];
        copy->kind = entry->kind;
        copy->integer = entry->integer;
        copy->real = entry->real;
        if (!copy_text(&copy->key, entry->key) || !copy_text(&copy->text, entry->text)) return false;
        if (!make_room(&copy->list, entry->size, sizeof *copy->list)) return false;
        copy->size = entry->size;
        for (size_t j = 0; j < entry->size; j++) {
            if (!copy_text(&copy->list[j], entry->list[j])) return false;
        }
    }
    return true;
}

sp_profile *sp_profile_copy(sp_profile *profile, bool own_rows)
{
    sp_profile *copy = sp_profile_new();
    if (copy == NULL) return NULL;
    memcpy(copy->columns, profile->columns, sizeof copy->columns);
    copy->call_count = profile->call_count;
    copy->names = profile->names;
    copy->name_count = profile->name_count;
    copy->threads = profile->threads;
    copy->thread_count = profile->thread_count;
    copy->has_threads = profile->has_threads;
    copy->tasks = profile->tasks;
    copy->task_count = profile->task_count;
    copy->processes = profile->processes;
    copy->process_count = profile->process_count;
    copy->stored_paths = profile->stored_paths;
    copy->aux = profile->aux;
    copy->aux_count = profile->aux_count;
    copy->aggregate = profile->aggregate;
    copy->summary_only = profile->summary_only;
    copy->nested = profile->nested;
    copy->schema = profile->schema;
    const bool has_own = profile->own_rows || profile->own_gpu || profile->own_aux;
    copy->owner = sp_profile_share(profile->owner && !has_own ? profile->owner : profile);
    copy->own_rows = own_rows;
    if (!own_rows) {
        copy->rows = profile->rows;
        copy->row_count = profile->row_count;
    }
    if (copy_metadata(copy, profile) && (!own_rows || copy_rows(copy, profile))) return copy;
    sp_profile_release(copy);
    return NULL;
}

void sp_profile_take_gpu(sp_profile *copy, int64_t *column)
{
    copy->columns[SP_COLUMN_GPU] = column;
    copy->own_gpu = true;
    copy->stored_paths = NULL; /* their sums are without these times; they are made anew where they are needed */
    for (size_t i = 0; i < copy->row_count; i++) {
        sp_row *row = &copy->rows[i];
        if (row->has_statistics) sp_row_statistics_compute(copy, row, &row->statistics);
    }
}

void sp_profile_drop_aux(sp_profile *copy)
{
    copy->aux = NULL;
    copy->aux_count = 0;
    copy->own_aux = true;
}

/* -- metadata -- */

const sp_metadata *sp_profile_find_metadata(const sp_profile *profile, const char *key)
{
    for (size_t i = 0; i < profile->metadata_count; i++) {
        if (strcmp(profile->metadata[i].key, key) == 0) return &profile->metadata[i];
    }
    return NULL;
}

bool sp_profile_get_int(const sp_profile *profile, const char *key, int64_t *value)
{
    const sp_metadata *found = sp_profile_find_metadata(profile, key);
    if (found == NULL || found->kind != SP_VALUE_INT) return false;
    *value = found->integer;
    return true;
}

void sp_profile_clear_metadata(sp_profile *profile)
{
    for (size_t i = 0; i < profile->metadata_count; i++) free_metadata(&profile->metadata[i]);
    free(profile->metadata);
    profile->metadata = NULL;
    profile->metadata_count = 0;
}

void sp_profile_drop_metadata(sp_profile *profile, const char *key)
{
    sp_metadata *entry = (sp_metadata *)sp_profile_find_metadata(profile, key);
    if (entry == NULL) return;
    free_metadata(entry);
    const size_t after = (size_t)(profile->metadata + --profile->metadata_count - entry);
    memmove(entry, entry + 1, after * sizeof *entry);
}

/* Put `entry`, whose parts now belong to the profile or are freed, in the place of its key. */
static sp_status put_metadata(sp_profile *profile, sp_metadata *entry)
{
    sp_metadata *old = (sp_metadata *)sp_profile_find_metadata(profile, entry->key);
    if (old) {
        free_metadata(old);
        *old = *entry;
        return SP_OK;
    }
    sp_metadata *grown = realloc(profile->metadata, (profile->metadata_count + 1) * sizeof *grown);
    if (grown == NULL) {
        free_metadata(entry);
        return SP_ERR_NO_MEMORY;
    }
    profile->metadata = grown;
    grown[profile->metadata_count++] = *entry;
    return SP_OK;
}

static sp_status put_value(sp_profile *profile, const char *key, sp_metadata value)
{
    value.key = sp_text_copy(key);
    if (value.key == NULL) {
        free_metadata(&value);
        return SP_ERR_NO_MEMORY;
    }
    return put_metadata(profile, &value);
}

sp_status sp_profile_set_int(sp_profile *profile, const char *key, int64_t value)
{
    return put_value(profile, key, (sp_metadata){.kind = SP_VALUE_INT, .integer = value});
}

sp_status sp_profile_set_float(sp_profile *profile, const char *key, double value)
{
    return put_value(profile, key, (sp_metadata){.kind = SP_VALUE_FLOAT, .real = value});
}

sp_status sp_profile_set_bool(sp_profile *profile, const char *key, bool value)
{
    return put_value(profile, key, (sp_metadata){.kind = SP_VALUE_BOOL, .integer = value});
}

sp_status sp_profile_set_string(sp_profile *profile, const char *key, const char *value)
{
    char *text = sp_text_copy(value);
    if (text == NULL) return SP_ERR_NO_MEMORY;
    return put_value(profile, key, (sp_metadata){.kind = SP_VALUE_STRING, .text = text});
}

sp_status sp_profile_set_strings(sp_profile *profile, const char *key, const char *const *list, size_t size)
{
    sp_metadata value = {.kind = SP_VALUE_STRINGS, .size = size};
    if (!copy_texts(&value.list, (char *const *)list, size)) {
        if (value.list == NULL) value.size = 0;
        free_metadata(&value);
        return SP_ERR_NO_MEMORY;
    }
    return put_value(profile, key, value);
}

sp_status sp_profile_copy_metadata(sp_profile *profile, const sp_profile *from)
{
    sp_status status = SP_OK;
    for (size_t i = 0; i < from->metadata_count && status == SP_OK; i++) {
        const sp_metadata *entry = &from->metadata[i];
        switch (entry->kind) {
        case SP_VALUE_INT: status = sp_profile_set_int(profile, entry->key, entry->integer); break;
        case SP_VALUE_FLOAT: status = sp_profile_set_float(profile, entry->key, entry->real); break;
        case SP_VALUE_BOOL: status = sp_profile_set_bool(profile, entry->key, entry->integer != 0); break;
        case SP_VALUE_STRING: status = sp_profile_set_string(profile, entry->key, entry->text); break;
        case SP_VALUE_STRINGS:
            status = sp_profile_set_strings(profile, entry->key, (const char *const *)entry->list, entry->size);
            break;
        }
    }
    return status;
}

const sp_process_info *sp_profile_process(const sp_profile *profile, uint32_t rank)
{
    for (size_t i = 0; i < profile->process_count; i++) {
        if (profile->processes[i].rank == rank) return &profile->processes[i];
    }
    return NULL;
}

char *sp_profile_rank_label(const sp_profile *profile, uint32_t rank)
{
    const sp_process_info *process = sp_profile_process(profile, rank);
    const char *name = process && process->name ? process->name : "";
    char *label;
    int made;
    if (!*name) made = asprintf(&label, "rank %u", rank);
    else if (process->pid <= 0) made = asprintf(&label, "%s (rank %u)", name, rank);
    else made = asprintf(&label, "%s (rank %u, pid %lld)", name, rank, (long long)process->pid);
    return made < 0 ? NULL : label;
}
