#include "analysis/profile.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "analysis/path_summary.h"

const double sp_percentile_ranks[SP_PERCENTILE_COUNT] = {50.0, 95.0, 99.0};

char *sp_text_copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

/* -- columns -- */

#define HUGE_PAGE ((size_t)2 << 20)
#define MAP_FROM (2 * HUGE_PAGE)

static size_t column_bytes(uint64_t count)
{
    const size_t bytes = (size_t)count * sizeof(int64_t);
    return bytes < MAP_FROM ? bytes : (bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
}

/* An aligned mapping, so that all of it can be huge pages: a fresh 4 kB page costs several times more per byte. */
static void *map_pages(size_t bytes)
{
    char *raw = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return NULL;
    const size_t skip = (HUGE_PAGE - (uintptr_t)raw % HUGE_PAGE) % HUGE_PAGE;
    if (skip) munmap(raw, skip);
    munmap(raw + skip + bytes, HUGE_PAGE - skip);
#ifdef MADV_HUGEPAGE
    madvise(raw + skip, bytes, MADV_HUGEPAGE);
#endif
    return raw + skip;
}

int64_t *sp_column_alloc(uint64_t count)
{
    if (count > (SIZE_MAX >> 4) - HUGE_PAGE) return NULL;
    const size_t bytes = column_bytes(count);
    return bytes < MAP_FROM ? malloc(bytes ? bytes : 1) : map_pages(bytes);
}

int64_t *sp_column_map(int fd, uint64_t offset, uint64_t count)
{
    const size_t bytes = column_bytes(count);
    if (bytes < MAP_FROM) return NULL;
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, (off_t)offset);
    return pages == MAP_FAILED ? NULL : pages;
}

void sp_column_free(int64_t *column, uint64_t count)
{
    if (column == NULL) return;
    const size_t bytes = column_bytes(count);
    if (bytes < MAP_FROM) free(column);
    else munmap(column, bytes);
}

int64_t sp_column_default(sp_column column)
{
    return column == SP_COLUMN_AWAIT ? 0 : SP_UNKNOWN;
}

/* -- life of a profile -- */

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
}

void sp_profile_release(sp_profile *profile)
{
    if (profile == NULL) return;
    if (atomic_fetch_sub_explicit(&profile->references, 1, memory_order_acq_rel) != 1) return;
    if (profile->columns_owner) {
        sp_profile_release(profile->columns_owner);
    } else {
        for (int c = 0; c < SP_COLUMN_COUNT; c++) sp_column_free(profile->columns[c], profile->call_count);
    }
    free_texts(profile->names, profile->name_count);
    free_rows(profile);
    free_lanes(profile);
    sp_path_summary_free(profile->stored_paths);
    sp_profile_clear_metadata(profile);
    for (size_t i = 0; i < profile->aux_count; i++) sp_group_free(&profile->aux[i].root);
    free(profile->aux);
    free(profile);
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

static bool copy_lanes(sp_profile *to, const sp_profile *from)
{
    if (!make_room(&to->threads, from->thread_count, sizeof *to->threads) ||
        !make_room(&to->tasks, from->task_count, sizeof *to->tasks)) {
        return false;
    }
    to->has_threads = from->has_threads;
    for (; to->thread_count < from->thread_count; to->thread_count++) {
        const sp_thread_info *thread = &from->threads[to->thread_count];
        to->threads[to->thread_count] = *thread;
        if (!copy_text(&to->threads[to->thread_count].name, thread->name)) return false;
    }
    for (; to->task_count < from->task_count; to->task_count++) {
        const sp_task_info *task = &from->tasks[to->task_count];
        sp_task_info *copy = &to->tasks[to->task_count];
        *copy = *task;
        copy->kind = copy->name = copy->coro_name = NULL;
        if (!copy_text(&copy->kind, task->kind) || !copy_text(&copy->name, task->name) ||
            !copy_text(&copy->coro_name, task->coro_name)) {
            to->task_count++; /* so that what was copied of it is freed */
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

static bool copy_array(sp_array *to, const sp_array *from)
{
    to->kind = from->kind;
    to->dimensions = from->dimensions;
    memcpy(to->shape, from->shape, sizeof to->shape);
    const uint64_t size = sp_array_size(from);
    if (!copy_text(&to->name, from->name)) return false;
    if (from->kind == SP_ARRAY_STRING) {
        char **texts = NULL;
        const bool copied = copy_texts(&texts, from->data, size);
        to->data = texts;
        return copied;
    }
    if (!make_room(&to->data, size, sizeof(int64_t))) return false;
    if (size) memcpy(to->data, from->data, size * sizeof(int64_t));
    return true;
}

static bool copy_arrays(sp_array **to, size_t *to_count, const sp_array *from, size_t count)
{
    if (!make_room(to, count, sizeof **to)) return false;
    *to_count = count;
    for (size_t i = 0; i < count; i++) {
        if (!copy_array(&(*to)[i], &from[i])) return false;
    }
    return true;
}

static bool copy_group(sp_group *to, const sp_group *from)
{
    if (!copy_text(&to->name, from->name) ||
        !copy_arrays(&to->attributes, &to->attribute_count, from->attributes, from->attribute_count) ||
        !copy_arrays(&to->datasets, &to->dataset_count, from->datasets, from->dataset_count) ||
        !make_room(&to->groups, from->group_count, sizeof *to->groups)) {
        return false;
    }
    to->group_count = from->group_count;
    for (size_t i = 0; i < from->group_count; i++) {
        if (!copy_group(&to->groups[i], &from->groups[i])) return false;
    }
    return true;
}

static bool copy_aux(sp_profile *to, const sp_profile *from)
{
    if (!make_room(&to->aux, from->aux_count, sizeof *to->aux)) return false;
    to->aux_count = from->aux_count;
    for (size_t i = 0; i < from->aux_count; i++) {
        to->aux[i].rank = from->aux[i].rank;
        if (!copy_group(&to->aux[i].root, &from->aux[i].root)) return false;
    }
    return true;
}

/* A copy of `size` bytes, NULL for none; false: out of memory. */
static bool copy_memory(void *pointer_to_copy, const void *from, size_t size)
{
    if (!make_room(pointer_to_copy, size, 1)) return false;
    void *copy;
    memcpy(&copy, pointer_to_copy, sizeof copy);
    if (size) memcpy(copy, from, size);
    return true;
}

static bool copy_paths(sp_profile *to, const sp_profile *from)
{
    const sp_path_summary *paths = from->stored_paths;
    if (paths == NULL) return true;
    sp_path_summary *copy = to->stored_paths = malloc(sizeof *copy);
    if (copy == NULL) return false;
    *copy = *paths;
    copy->nodes = NULL;
    copy->rows = NULL;
    copy->threads = NULL;
    copy->percentiles = NULL;
    return copy_memory(&copy->nodes, paths->nodes, paths->node_count * sizeof *paths->nodes) &&
        copy_memory(&copy->rows, paths->rows, paths->row_count * sizeof *paths->rows) &&
        copy_memory(&copy->threads, paths->threads, paths->thread_count * sizeof *paths->threads) &&
        copy_memory(&copy->percentiles, paths->percentiles,
                    paths->percentiles ? paths->node_count * paths->percentile_count * sizeof(double) : 0);
}

sp_profile *sp_profile_copy(sp_profile *profile)
{
    sp_profile *copy = sp_profile_new();
    if (copy == NULL) return NULL;
    copy->aggregate = profile->aggregate;
    copy->summary_only = profile->summary_only;
    copy->nested = profile->nested;
    copy->schema = profile->schema;
    copy->call_count = profile->call_count;
    memcpy(copy->columns, profile->columns, sizeof copy->columns);
    copy->columns_owner = sp_profile_share(profile->columns_owner ? profile->columns_owner : profile);
    if (!copy_texts(&copy->names, profile->names, profile->name_count)) goto failed;
    copy->name_count = profile->name_count;
    if (copy_rows(copy, profile) && copy_lanes(copy, profile) && copy_metadata(copy, profile) &&
        copy_aux(copy, profile) && copy_paths(copy, profile)) {
        return copy;
    }
failed:
    copy->name_count = copy->names ? profile->name_count : 0;
    sp_profile_release(copy);
    return NULL;
}

/* -- metadata -- */

const sp_metadata *sp_profile_find_metadata(const sp_profile *profile, const char *key)
{
    for (size_t i = 0; i < profile->metadata_count; i++) {
        if (strcmp(profile->metadata[i].key, key) == 0) return &profile->metadata[i];
    }
    return NULL;
}

void sp_profile_clear_metadata(sp_profile *profile)
{
    for (size_t i = 0; i < profile->metadata_count; i++) free_metadata(&profile->metadata[i]);
    free(profile->metadata);
    profile->metadata = NULL;
    profile->metadata_count = 0;
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
