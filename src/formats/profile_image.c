#include "formats/profile_image.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "analysis/path_summary.h"
#include "formats/file_bytes.h"
#include "formats/json_text.h"
#include "formats/utf8.h"

#define MAGIC UINT64_C(0x3147414d49505053) /* "SPPIMAG1" */
#define PAGE ((uint64_t)4096)

typedef struct header {
    uint64_t magic;
    int32_t outcome, system;
    char message[1000];
    uint64_t contents_size; /* right after the header */
    uint64_t call_count;
    uint64_t columns[SP_COLUMN_COUNT]; /* offsets; 0: no such column */
} header;

/* -- the contents: one description of them, which is written or read -- */

typedef struct image {
    bool reading, fine;
    char *data;
    size_t size, at; /* writing: room and used */
} image;

static bool make_room(image *i, size_t bytes)
{
    if (i->reading) return i->fine && bytes <= i->size - i->at;
    if (!i->fine) return false;
    if (bytes <= i->size - i->at) return true;
    const size_t size = (i->at + bytes) * 2;
    char *grown = realloc(i->data, size);
    if (grown == NULL) return false;
    i->data = grown;
    i->size = size;
    return true;
}

static void move_bytes(image *i, void *value, size_t bytes)
{
    i->fine = make_room(i, bytes);
    if (!i->fine || bytes == 0) return;
    if (i->reading) memcpy(value, i->data + i->at, bytes);
    else memcpy(i->data + i->at, value, bytes);
    i->at += bytes;
}

#define MOVE(image, value) move_bytes(image, &(value), sizeof(value))

/* A bool that the other process may have made anything of: a byte that is neither 0 nor 1 must not be read as one. */
static void move_flag(image *i, bool *flag)
{
    uint8_t byte = i->reading ? 0 : *flag;
    MOVE(i, byte);
    *flag = byte != 0;
}

/* The same for one that came with the structure it is in. */
static void settle_flag(const image *i, bool *flag)
{
    uint8_t byte;
    if (!i->reading) return;
    memcpy(&byte, flag, 1);
    *flag = byte != 0;
}

static void move_text(image *i, char **text)
{
    uint64_t size = i->reading || *text == NULL ? UINT64_MAX : strlen(*text);
    MOVE(i, size);
    if (!i->fine || size == UINT64_MAX) return;
    if (i->reading) {
        *text = size <= i->size - i->at ? malloc(size + 1) : NULL;
        i->fine = *text != NULL;
        if (i->fine) (*text)[size] = '\0';
    }
    if (i->fine) move_bytes(i, *text, size);
    if (i->fine && i->reading) i->fine = strlen(*text) == size && sp_utf8_valid(*text, size);
}

/* A text that must be there. */
static void move_required(image *i, char **text)
{
    move_text(i, text);
    if (*text == NULL) i->fine = false;
}

/* The length of an array, which is allocated when reading. Every element takes a byte or more, so the length is bounded. */
static void *move_array(image *i, void *array, size_t *count, size_t element)
{
    uint64_t length = *count;
    MOVE(i, length);
    if (!i->reading) return array;
    *count = 0;
    if (!i->fine || length == 0) return NULL;
    void *made = length <= i->size - i->at ? calloc(length, element) : NULL;
    i->fine = made != NULL;
    if (made) *count = length;
    return made;
}

static void move_texts(image *i, char ***texts, size_t *count)
{
    *texts = move_array(i, *texts, count, sizeof **texts);
    for (size_t k = 0; k < *count; k++) move_required(i, &(*texts)[k]);
}

/* An array of structures without pointers. */
static void *move_plain(image *i, void *array, size_t *count, size_t element)
{
    void *moved = move_array(i, array, count, element);
    if (moved) move_bytes(i, moved, *count * element);
    return moved;
}

/* A structure with texts: as it is, then the texts, whose pointers mean nothing in the other process. */
static void move_rows(image *i, sp_profile *p)
{
    p->rows = move_array(i, p->rows, &p->row_count, sizeof *p->rows);
    for (size_t k = 0; k < p->row_count; k++) {
        sp_row *row = &p->rows[k], texts = *row;
        MOVE(i, *row);
        if (i->reading) texts.source_file = texts.source_text = texts.tags = texts.event_metadata = NULL;
        row->source_file = row->source_text = row->tags = row->event_metadata = NULL;
        move_text(i, &texts.source_file);
        move_text(i, &texts.source_text);
        move_text(i, &texts.tags);
        move_text(i, &texts.event_metadata);
        settle_flag(i, &row->has_statistics);
        settle_flag(i, &row->has_percentiles);
        settle_flag(i, &row->has_aggregate);
        row->source_file = texts.source_file;
        row->source_text = texts.source_text;
        row->tags = texts.tags;
        row->event_metadata = texts.event_metadata;
    }
}

static void move_threads(image *i, sp_profile *p)
{
    move_flag(i, &p->has_threads);
    p->threads = move_array(i, p->threads, &p->thread_count, sizeof *p->threads);
    for (size_t k = 0; k < p->thread_count; k++) {
        char *name = p->threads[k].name;
        MOVE(i, p->threads[k]);
        if (i->reading) name = NULL;
        p->threads[k].name = NULL;
        settle_flag(i, &p->threads[k].daemon);
        move_required(i, &name);
        p->threads[k].name = name;
    }
}

static void move_tasks(image *i, sp_profile *p)
{
    p->tasks = move_array(i, p->tasks, &p->task_count, sizeof *p->tasks);
    for (size_t k = 0; k < p->task_count; k++) {
        sp_task_info *task = &p->tasks[k], texts = *task;
        MOVE(i, *task);
        if (i->reading) texts.kind = texts.name = texts.coro_name = NULL;
        task->kind = task->name = task->coro_name = NULL;
        move_required(i, &texts.kind);
        move_required(i, &texts.name);
        move_required(i, &texts.coro_name);
        task->kind = texts.kind;
        task->name = texts.name;
        task->coro_name = texts.coro_name;
    }
}

/* An enumeration: 0 to `last`. */
static void move_kind(image *i, void *kind, size_t size, uint32_t last)
{
    uint32_t value = 0;
    if (!i->reading) memcpy(&value, kind, size);
    MOVE(i, value);
    if (value > last) i->fine = false;
    else memcpy(kind, &value, size);
}

static void move_processes(image *i, sp_profile *p)
{
    p->processes = move_array(i, p->processes, &p->process_count, sizeof *p->processes);
    for (size_t k = 0; k < p->process_count; k++) {
        sp_process_info *process = &p->processes[k], texts = *process;
        MOVE(i, *process);
        if (i->reading) texts.name = texts.reference = NULL;
        process->name = process->reference = NULL;
        move_required(i, &texts.name);
        move_required(i, &texts.reference);
        process->name = texts.name;
        process->reference = texts.reference;
    }
}

static void move_metadata(image *i, sp_profile *p)
{
    p->metadata = move_array(i, p->metadata, &p->metadata_count, sizeof *p->metadata);
    for (size_t k = 0; k < p->metadata_count; k++) {
        sp_metadata *entry = &p->metadata[k];
        move_required(i, &entry->key);
        move_kind(i, &entry->kind, sizeof entry->kind, SP_VALUE_STRINGS);
        MOVE(i, entry->integer);
        MOVE(i, entry->real);
        move_text(i, &entry->text);
        move_texts(i, &entry->list, &entry->size);
        if (entry->kind == SP_VALUE_STRING && entry->text == NULL) i->fine = false;
    }
}

/* Whether the shape is one, of not more elements than bytes that are left. */
static bool shape_is_fine(const image *i, const sp_array *array)
{
    if (array->dimensions < 0 || array->dimensions > 4) return false;
    uint64_t size = 1;
    for (int k = 0; k < array->dimensions; k++) {
        if (__builtin_mul_overflow(size, array->shape[k], &size)) return false;
    }
    return !i->reading || size <= i->size;
}

static void move_data(image *i, sp_array *array)
{
    move_kind(i, &array->kind, sizeof array->kind, SP_ARRAY_STRING);
    MOVE(i, array->dimensions);
    MOVE(i, array->shape);
    if (!shape_is_fine(i, array)) i->fine = false;
    if (!i->fine) array->dimensions = 0;
    size_t count = i->fine ? sp_array_size(array) : 0;
    if (array->kind == SP_ARRAY_STRING) {
        char **texts = array->data;
        move_texts(i, &texts, &count);
        array->data = texts;
    } else {
        array->data = move_plain(i, array->data, &count, 8);
    }
    if (i->fine && count != sp_array_size(array)) i->fine = false;
    if (!i->fine && i->reading) { /* what is there is freed by its shape */
        array->dimensions = 1;
        array->shape[0] = count;
    }
}

static void move_arrays(image *i, sp_array **arrays, size_t *count)
{
    *arrays = move_array(i, *arrays, count, sizeof **arrays);
    for (size_t k = 0; k < *count && i->fine; k++) {
        move_required(i, &(*arrays)[k].name);
        move_data(i, &(*arrays)[k]);
    }
}

#define DEPTH_MAX 64 /* files are refused long before */

static void move_group(image *i, sp_group *group, int depth)
{
    move_text(i, &group->name);
    if (depth > DEPTH_MAX || (depth > 0 && group->name == NULL)) i->fine = false;
    move_arrays(i, &group->attributes, &group->attribute_count);
    move_arrays(i, &group->datasets, &group->dataset_count);
    group->groups = move_array(i, group->groups, &group->group_count, sizeof *group->groups);
    for (size_t k = 0; k < group->group_count && i->fine; k++) move_group(i, &group->groups[k], depth + 1);
}

static void move_aux(image *i, sp_profile *p)
{
    p->aux = move_array(i, p->aux, &p->aux_count, sizeof *p->aux);
    for (size_t k = 0; k < p->aux_count && i->fine; k++) {
        MOVE(i, p->aux[k].rank);
        move_group(i, &p->aux[k].root, 0);
    }
}

static void move_paths(image *i, sp_profile *p)
{
    bool there = p->stored_paths != NULL;
    move_flag(i, &there);
    if (!i->fine || !there) return;
    if (i->reading) p->stored_paths = calloc(1, sizeof *p->stored_paths);
    sp_path_summary *paths = p->stored_paths;
    if (paths == NULL) {
        i->fine = false;
        return;
    }
    move_flag(i, &paths->nested);
    move_flag(i, &paths->clamped);
    paths->nodes = move_plain(i, paths->nodes, &paths->node_count, sizeof *paths->nodes);
    paths->rows = move_plain(i, paths->rows, &paths->row_count, sizeof *paths->rows);
    for (size_t k = 0; k < paths->row_count; k++) settle_flag(i, &paths->rows[k].recursive);
    paths->threads = move_plain(i, paths->threads, &paths->thread_count, sizeof *paths->threads);
}

static void move_profile(image *i, sp_profile *p)
{
    move_flag(i, &p->aggregate);
    move_flag(i, &p->summary_only);
    move_flag(i, &p->nested);
    MOVE(i, p->schema);
    move_texts(i, &p->names, &p->name_count);
    move_rows(i, p);
    move_threads(i, p);
    move_tasks(i, p);
    move_processes(i, p);
    move_metadata(i, p);
    move_aux(i, p);
    move_paths(i, p);
}

/* -- the file -- */

static uint64_t next_page(uint64_t offset)
{
    return (offset + PAGE - 1) / PAGE * PAGE;
}

sp_status sp_image_write(int fd, sp_status outcome, const sp_error *error, const sp_profile *profile)
{
    header head = {.magic = MAGIC, .outcome = outcome};
    image contents = {.fine = true};
    int written = 0;
    if (error) {
        head.system = error->system;
        memcpy(head.message, error->message, sizeof head.message);
    }
    if (profile) {
        move_profile(&contents, (sp_profile *)profile);
        head.contents_size = contents.at;
        head.call_count = profile->call_count;
        uint64_t offset = next_page(sizeof head + contents.at);
        for (int c = 0; c < SP_COLUMN_COUNT && written == 0; c++) {
            if (profile->columns[c] == NULL) continue;
            const uint64_t bytes = profile->call_count * sizeof(int64_t);
            head.columns[c] = offset;
            written = sp_file_write(fd, profile->columns[c], bytes, offset);
            offset = next_page(offset + bytes);
        }
        if (written == 0) written = sp_file_write(fd, contents.data, contents.at, sizeof head);
    }
    const bool fine = contents.fine && written == 0;
    if (!fine) head = (header){.magic = MAGIC, .outcome = SP_ERR_NO_MEMORY};
    free(contents.data);
    return sp_file_write(fd, &head, sizeof head, 0) == 0 && fine ? SP_OK : SP_ERR_IO;
}

static int64_t *take_column(int fd, uint64_t offset, uint64_t count)
{
    int64_t *column = sp_column_map(fd, offset, count);
    if (column) return column;
    column = sp_column_alloc(count);
    if (column && sp_file_read(fd, column, count * sizeof(int64_t), offset) < 0) {
        sp_column_free(column, count);
        return NULL;
    }
    return column;
}

static bool take_columns(int fd, const header *head, uint64_t file_size, sp_profile *profile)
{
    for (int c = 0; c < SP_COLUMN_COUNT; c++) {
        const uint64_t offset = head->columns[c];
        if (offset == 0) continue;
        const bool inside = offset <= file_size && head->call_count <= (file_size - offset) / sizeof(int64_t);
        if (offset % PAGE || !(inside || head->call_count == 0)) return false;
        profile->columns[c] = take_column(fd, offset, head->call_count);
        if (profile->columns[c] == NULL) return false;
    }
    return true;
}

/* Rows must follow each other in the columns, and refer to names that are there; their JSON is what readers check. */
static bool row_is_fine(const sp_profile *profile, const sp_row *row, uint64_t first)
{
    uint64_t count;
    if (row->name >= profile->name_count) return false;
    if (row->tags && !sp_json_list(row->tags, '"', &count)) return false;
    if (row->event_metadata && (!sp_json_list(row->event_metadata, '{', &count) || count != row->count)) return false;
    if (profile->summary_only || row->count == 0) return true;
    return row->first >= first && row->first <= profile->call_count && row->count <= profile->call_count - row->first;
}

static bool paths_are_fine(const sp_profile *profile, const sp_path_summary *paths)
{
    for (size_t i = 0; i < paths->node_count; i++) {
        const sp_path_node *node = &paths->nodes[i];
        if (node->name >= profile->name_count || node->parent < SP_PATH_ROOT || node->parent >= (int64_t)i) return false;
    }
    for (size_t i = 0; i < paths->row_count; i++) {
        if (paths->rows[i].node >= paths->node_count) return false;
    }
    return true;
}

/* Whatever the other process made of the file: nothing that this one does with the profile may leave its memory. */
static bool consistent(const sp_profile *profile)
{
    uint64_t first = 0;
    for (size_t i = 0; i < profile->row_count; i++) {
        const sp_row *row = &profile->rows[i];
        if (!row_is_fine(profile, row, first)) return false;
        if (!profile->summary_only && row->count) first = row->first + row->count;
    }
    const bool summary = profile->summary_only || profile->call_count == 0;
    if (!summary && (!profile->columns[SP_COLUMN_START] || !profile->columns[SP_COLUMN_END])) return false;
    return profile->stored_paths == NULL || paths_are_fine(profile, profile->stored_paths);
}

static sp_profile *take_profile(int fd, const header *head, uint64_t file_size)
{
    sp_profile *profile = sp_profile_new();
    image contents = {.reading = true, .fine = true, .size = head->contents_size};
    if (profile == NULL || head->contents_size > file_size - sizeof *head) goto failed;
    contents.data = malloc(head->contents_size ? head->contents_size : 1);
    if (contents.data == NULL || sp_file_read(fd, contents.data, head->contents_size, sizeof *head) < 0) goto failed;
    profile->call_count = head->call_count;
    if (!take_columns(fd, head, file_size, profile)) goto failed;
    move_profile(&contents, profile);
    if (!contents.fine || !consistent(profile)) goto failed;
    free(contents.data);
    return profile;
failed:
    free(contents.data);
    sp_profile_release(profile);
    return NULL;
}

sp_status sp_image_read(int fd, sp_profile **profile, sp_error *error)
{
    header head;
    struct stat status;
    *profile = NULL;
    if (fstat(fd, &status) < 0 || status.st_size < (off_t)sizeof head || sp_file_read(fd, &head, sizeof head, 0) < 0 ||
        head.magic != MAGIC) {
        return SP_ERR_CORRUPT;
    }
    if (head.outcome != SP_OK) {
        head.message[sizeof head.message - 1] = '\0';
        if (!sp_utf8_valid(head.message, strlen(head.message))) return SP_ERR_CORRUPT;
        if (error) {
            error->system = head.system;
            memcpy(error->message, head.message, sizeof error->message);
        }
        return (sp_status)head.outcome;
    }
    *profile = take_profile(fd, &head, (uint64_t)status.st_size);
    return *profile ? SP_OK : SP_ERR_CORRUPT;
}
