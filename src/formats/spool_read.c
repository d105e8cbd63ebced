/*
 * spool_read.c - a spool as a run again, and that run as a profile.
 *
 * The file is mapped privately: slots are marked and open calls closed in the reader's own copy of their pages. Nothing in
 * it is believed: every size, id and index is checked against what is there, and what cannot be understood is left out and
 * counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/collect.h"
#include "analysis/summed.h"
#include "core/grow.h"
#include "core/restore.h"
#include "core/sort.h"
#include "core/task.h"
#include "core/thread_rows.h"
#include "core/values.h"
#include "formats/file_bytes.h"
#include "formats/mend_texts.h"
#include "formats/spool.h"
#include "formats/spool_layout.h"
#include "formats/utf8.h"
#include "platform/page_guard.h"
#include "platform/platform.h"

/* A chunk that was found, in the file's own order. */
typedef struct found {
    sp_chunk_header *header;
    uint64_t bytes, sequence; /* as they were then */
} found;

/* A call that had not ended. */
typedef struct open_call {
    uint32_t region;
    sp_ticks start;
} open_call;

/* What a collection chose: the calls before the first marks, but for those at the second ones. */
typedef struct choice {
    uint32_t number; /* 0: none */
    const sp_mark *logs, *open; /* in the journal */
    size_t log_count, open_count;
} choice;

/* A file that was about to get its name. */
typedef struct file_note {
    uint32_t number; /* of the collection in it; 0: none */
    uint64_t device, inode;
    int64_t changed_ns;
    const char *path;
} file_note;

typedef struct reader {
    const char *path;
    int file_descriptor;
    char *memory;
    sp_page_guard *guard;
    _Atomic(uint64_t) lost; /* pages that were gone when they were looked at: of zeros from then on */
    uint64_t size;
    bool locked; /* by its writer */
    const sp_spool_header *header;
    found *chunks;
    size_t chunk_count, chunk_size;
    sp_run *run;
    choice collected, confirmed; /* the last collection, and the last one that is in a file */
    file_note file;
    const sp_mark **reached; /* by row: how far `confirmed` read its log; NULL: not at all */
    size_t reached_count;
    char *metadata; /* JSON text, in the journal; NULL: none */
    sp_ticks latest, last_opened; /* of all, and of the calls that are open */
    open_call *open;
    size_t open_count, open_size;
    sp_salvage salvage;
    sp_spool_values *values; /* NULL: not wanted */
} reader;

/* ---- the file ---- */

static sp_status open_file(reader *r, sp_error *error)
{
    /* Who starts a run looks at what bears the name of a spool: a FIFO that somebody put there must not be waited for. */
    const int file = open(r->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file < 0) {
        return sp_fail_errno(error, errno == ENOENT ? SP_ERR_NOT_FOUND : SP_ERR_IO, "cannot open the spool %s", r->path);
    }
    struct stat status;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    r->locked = fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size < (off_t)SP_SPOOL_PAGE) {
        close(file);
        return sp_fail(error, SP_ERR_FOREIGN, "%s is not a spool", r->path);
    }
    r->size = (uint64_t)status.st_size;
    r->file_descriptor = file;
    return SP_OK;
}

static sp_status map_file(reader *r, sp_error *error)
{
    const sp_status status = open_file(r, error);
    if (status != SP_OK) return status;
    r->memory = mmap(NULL, r->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, r->file_descriptor, 0);
    if (r->memory == MAP_FAILED) {
        r->memory = NULL;
        return sp_fail_errno(error, SP_ERR_IO, "cannot map the spool %s", r->path);
    }
    r->guard = sp_page_guard_new(r->memory, (r->size + SP_SPOOL_PAGE - 1) / SP_SPOOL_PAGE * SP_SPOOL_PAGE, &r->lost, NULL, NULL);
    return SP_OK;
}

sp_status sp_spool_check_pages(const _Atomic(uint64_t) *lost, const char *path, sp_error *error)
{
    if (atomic_load(lost) == 0) return SP_OK;
    return sp_fail(error, SP_ERR_CORRUPT, "the spool %s was cut off, or its disk failed, while it was read", path);
}

static void unmap_file(reader *r)
{
    sp_page_guard_free(r->guard);
    if (r->memory) munmap(r->memory, r->size);
    if (r->file_descriptor >= 0) close(r->file_descriptor);
}

#define LATEST (UINT64_C(1) << 61) /* of ticks and ns: sums of two fit 64 bits */

sp_status sp_spool_check_header(const sp_spool_header *h, const char *path, sp_error *error)
{
    if (memcmp(h->magic, SP_SPOOL_MAGIC, sizeof h->magic) != 0) {
        return sp_fail(error, SP_ERR_FOREIGN, "%s is not a spool", path);
    }
    if (h->endian != SP_SPOOL_ENDIAN) {
        return sp_fail(error, SP_ERR_UNSUPPORTED, "%s is the spool of a machine with another byte order", path);
    }
    if (h->version != SP_SPOOL_VERSION) {
        return sp_fail(error, SP_ERR_SCHEMA, "%s has spool version %u; this is version %d", path, h->version,
                       SP_SPOOL_VERSION);
    }
    const uint32_t slot = h->tracks & 2 ? sizeof(sp_async_slot) : sizeof(sp_slot);
    if (h->crc != libdeflate_crc32(0, h, offsetof(sp_spool_header, crc)) || h->slot_bytes != slot ||
        h->task_bytes != sizeof(sp_task) || h->clock == SP_CLOCK_UNSET || h->clock > SP_CLOCK_INJECTED ||
        h->first_ticks > LATEST || h->started > LATEST || h->first_ns < 0 || h->first_ns > (int64_t)LATEST ||
        h->start_ns < 0 || h->start_ns > (int64_t)LATEST || !memchr(h->output, 0, sizeof h->output)) {
        return sp_fail(error, SP_ERR_CORRUPT, "the header of the spool %s is damaged", path);
    }
    return SP_OK;
}

static sp_status check_header(reader *r, sp_error *error)
{
    r->header = (const sp_spool_header *)r->memory;
    return sp_spool_check_header(r->header, r->path, error);
}

/* Not from a mapping: another user's file may be cut off at any moment, and to look at it there would be fatal then. */
static sp_status copy_header(const reader *r, sp_spool_header *header, sp_error *error)
{
    if (sp_file_read(r->file_descriptor, header, sizeof *header, 0) < 0) {
        return sp_fail_errno(error, SP_ERR_IO, "cannot read the spool %s", r->path);
    }
    return sp_spool_check_header(header, r->path, error);
}

bool sp_spool_writer_lives(const sp_spool_header *h, bool locked)
{
    char boot[40];
    if (locked) return true;
    sp_boot_id(boot);
    if (memcmp(boot, h->boot_id, sizeof boot) != 0) return false;
    return h->process_start != 0 && sp_process_start(h->pid) == h->process_start;
}

static bool writer_lives(const reader *r)
{
    return sp_spool_writer_lives(r->header, r->locked);
}

sp_status sp_spool_inspect(const char *path, sp_spool_info *info, sp_error *error)
{
    reader r = {.path = path, .file_descriptor = -1};
    sp_spool_header header;
    sp_status status = open_file(&r, error);
    if (status == SP_OK) status = copy_header(&r, &header, error);
    if (status == SP_OK) {
        r.header = &header;
        *info = (sp_spool_info){.pid = r.header->pid, .alive = writer_lives(&r), .start_ns = r.header->start_ns,
                                .tracks_threads = r.header->tracks & 1, .tracks_tasks = r.header->tracks & 2};
        memcpy(info->output, r.header->output, sizeof info->output);
    }
    unmap_file(&r);
    return status;
}

/* ---- chunks ---- */

bool sp_spool_chunk_is_whole(const char *memory, uint64_t size, uint64_t offset)
{
    const sp_chunk_header *h = (const sp_chunk_header *)(memory + offset);
    return h->magic == SP_CHUNK_MAGIC && h->crc == libdeflate_crc32(0, h, offsetof(sp_chunk_header, crc)) &&
        h->bytes >= SP_SPOOL_PAGE && h->bytes % SP_SPOOL_PAGE == 0 && h->bytes <= size - offset;
}

static bool page_is_empty(const char *page)
{
    const uint64_t *words = (const uint64_t *)page;
    for (size_t i = 0; i < SP_SPOOL_PAGE / sizeof *words; i++) {
        if (words[i]) return false;
    }
    return true;
}

static bool add_chunk(reader *r, uint64_t offset, uint64_t bytes)
{
    if (!sp_grow(&r->chunks, &r->chunk_size, r->chunk_count, sizeof *r->chunks, 64)) return false;
    sp_chunk_header *header = (sp_chunk_header *)(r->memory + offset);
    r->chunks[r->chunk_count++] = (found){header, bytes, header->sequence};
    return true;
}

static int by_sequence(const void *a, const void *b)
{
    const uint64_t left = ((const found *)a)->sequence, right = ((const found *)b)->sequence;
    return (left > right) - (left < right);
}

/* Chunks that went leave holes, which need not be read: the page of the next data, or `end`. */
static uint64_t behind_hole(const reader *r, uint64_t offset, uint64_t end)
{
    const off_t data = lseek(r->file_descriptor, (off_t)offset, SEEK_DATA);
    if (data < 0) return errno == ENXIO ? end : offset;
    return (uint64_t)data / SP_SPOOL_PAGE * SP_SPOOL_PAGE;
}

/* Chunks begin on pages. A page that begins none and is not empty is damage; the search goes on behind it. */
static sp_status find_chunks(reader *r, sp_error *error)
{
    const uint64_t whole = r->size / SP_SPOOL_PAGE * SP_SPOOL_PAGE;
    for (uint64_t offset = SP_SPOOL_PAGE; offset < whole;) {
        if (!sp_spool_chunk_is_whole(r->memory, r->size, offset)) {
            const bool empty = page_is_empty(r->memory + offset);
            if (!empty) r->salvage.damaged_bytes += SP_SPOOL_PAGE;
            offset = empty ? behind_hole(r, offset + SP_SPOOL_PAGE, whole) : offset + SP_SPOOL_PAGE;
            continue;
        }
        const sp_chunk_header *header = (const sp_chunk_header *)(r->memory + offset);
        const uint64_t bytes = header->bytes;
        /* It may just have been dropped, and be another one by now. */
        if (bytes < SP_SPOOL_PAGE || bytes % SP_SPOOL_PAGE || bytes > r->size - offset) continue;
        const bool live = atomic_load_explicit(&header->dropped, memory_order_acquire) != SP_CHUNK_GONE;
        if (live && !add_chunk(r, offset, bytes)) return sp_fail(error, SP_ERR_NO_MEMORY, "no memory to read %s", r->path);
        offset += bytes;
    }
    sp_sort(r->chunks, r->chunk_count, sizeof *r->chunks, by_sequence);
    return SP_OK;
}

/* Farther from an anchor than this no call can be: it is damage, and would be past what a number of ns can hold. */
#define FARTHEST (UINT64_C(1) << 52)

static bool is_plausible(const reader *r, sp_ticks ticks)
{
    const sp_timeline *timeline = &r->run->timeline;
    const sp_ticks first = timeline->anchors[0].ticks, last = timeline->anchors[timeline->count - 1].ticks;
    return ticks >= (first > FARTHEST ? first - FARTHEST : 0) && ticks <= last + FARTHEST;
}

/* ---- the journal ---- */

static void saw(reader *r, sp_ticks ticks)
{
    if (ticks > r->latest) r->latest = ticks;
}

/* The next text of a note: a flag, then the bytes with their NUL. False when the note ends before the text does. */
static bool take_text(const char **at, const char *end, const char **text)
{
    if (*at >= end) return false;
    const bool present = *(*at)++ == 1;
    *text = NULL;
    if (!present) return true;
    const char *nul = memchr(*at, 0, (size_t)(end - *at));
    if (nul == NULL) return false;
    *text = *at;
    *at = nul + 1;
    return true;
}

static bool read_region(reader *r, uint32_t index, const char *at, const char *end)
{
    int64_t line;
    const char *texts[4];
    if ((size_t)(end - at) < sizeof line) return true;
    memcpy(&line, at, sizeof line);
    at += sizeof line;
    for (int i = 0; i < 4; i++) {
        if (!take_text(&at, end, &texts[i])) return true;
    }
    uint32_t id;
    if (texts[0] == NULL || index != r->run->region_count) return true;
    return sp_run_region(r->run, texts[0], texts[1], line, texts[2], texts[3], &id, NULL) == SP_OK;
}

static bool read_thread(reader *r, uint32_t index, const char *at, const char *end)
{
    int64_t numbers[4];
    /* A row is told of when it is made: indices come in order, and none is far ahead. */
    if ((size_t)(end - at) <= sizeof numbers || end[-1] != '\0' || index > r->run->row_count) return true;
    memcpy(numbers, at, sizeof numbers);
    sp_thread_row *row = sp_run_restore_row(r->run, index);
    if (row == NULL || !sp_thread_row_rename(row, at + sizeof numbers)) return false;
    row->ident = numbers[0];
    row->native_id = numbers[1];
    row->start = is_plausible(r, (sp_ticks)numbers[2]) ? (sp_ticks)numbers[2] : r->run->started;
    row->daemon = numbers[3] != 0;
    saw(r, row->start);
    return true;
}

static void read_thread_end(reader *r, uint32_t index, const char *at, const char *end)
{
    int64_t numbers[2];
    if ((size_t)(end - at) < sizeof numbers || index >= r->run->row_count) return;
    memcpy(numbers, at, sizeof numbers);
    if (!is_plausible(r, (sp_ticks)numbers[0])) return;
    r->run->rows[index]->end = (sp_ticks)numbers[0];
    r->run->rows[index]->cpu_ns = numbers[1];
    saw(r, (sp_ticks)numbers[0]);
}

static bool read_anchor(reader *r, const char *at, const char *end)
{
    sp_anchor anchor;
    if ((size_t)(end - at) < sizeof anchor) return true;
    memcpy(&anchor, at, sizeof anchor);
    if (!is_plausible(r, anchor.ticks) || anchor.ns < 0 || anchor.ns > (int64_t)LATEST) return true;
    saw(r, anchor.ticks);
    return sp_run_restore_anchor(r->run, anchor);
}

static void read_choice(reader *r, uint32_t number, const char *at, const char *end)
{
    uint32_t counts[2];
    if ((size_t)(end - at) < sizeof counts) return;
    memcpy(counts, at, sizeof counts);
    at += sizeof counts;
    if ((size_t)(end - at) / sizeof(sp_mark) < (size_t)counts[0] + counts[1]) return;
    const sp_mark *marks = (const sp_mark *)at; /* notes and their headers are multiples of 8 */
    r->collected = (choice){number, marks, marks + counts[0], counts[0], counts[1]};
}

static void read_file_note(reader *r, uint32_t number, const char *at, const char *end)
{
    uint64_t numbers[3];
    if ((size_t)(end - at) <= sizeof numbers || end[-1] != '\0') return;
    memcpy(numbers, at, sizeof numbers);
    r->file = (file_note){number, numbers[0], numbers[1], (int64_t)numbers[2], at + sizeof numbers};
}

static void read_dropped(reader *r, const char *at, const char *end)
{
    uint64_t numbers[2];
    if ((size_t)(end - at) < sizeof numbers) return;
    memcpy(numbers, at, sizeof numbers);
    if (numbers[0] > FARTHEST || !is_plausible(r, numbers[1])) return;
    r->salvage.dropped_calls = numbers[0];
    r->salvage.dropped_until = numbers[1];
}

static bool read_note(reader *r, const sp_note_header *note)
{
    const char *at = (const char *)(note + 1), *end = at + note->size;
    switch ((sp_note_kind)note->kind) {
    case SP_NOTE_REGION: return read_region(r, note->index, at, end);
    case SP_NOTE_THREAD: return read_thread(r, note->index, at, end);
    case SP_NOTE_THREAD_END: read_thread_end(r, note->index, at, end); break;
    case SP_NOTE_STRING:
        if (at < end && end[-1] == '\0') return sp_run_restore_string(r->run, note->index, at);
        break;
    case SP_NOTE_ANCHOR: return read_anchor(r, at, end);
    case SP_NOTE_METADATA:
        if (at < end && end[-1] == '\0') r->metadata = (char *)at;
        break;
    case SP_NOTE_COLLECT: read_choice(r, note->index, at, end); break;
    case SP_NOTE_CONFIRM:
        if (r->collected.number == note->index) r->confirmed = r->collected;
        break;
    case SP_NOTE_FILE: read_file_note(r, note->index, at, end); break;
    case SP_NOTE_LIMIT: r->salvage.limited = true; break;
    case SP_NOTE_DROPPED: read_dropped(r, at, end); break;
    case SP_NOTE_FULL: r->salvage.incomplete = true; break;
    case SP_NOTE_TASK_NAME: /* read when the tasks are there */
    case SP_NOTE_SCOPE: case SP_NOTE_OUTCOME: /* not in the journal */
        break;
    }
    return true;
}

const sp_note_header *sp_spool_next_note(const sp_chunk_header *chunk, uint64_t bytes_there, uint64_t *offset, uint64_t *lost)
{
    if (bytes_there - *offset < sizeof(sp_note_header)) return NULL;
    const sp_note_header *note = (const sp_note_header *)((const char *)chunk + *offset);
    const uint32_t bytes = atomic_load_explicit(&note->bytes, memory_order_acquire);
    if (bytes == 0) return NULL;
    const uint32_t size = *(const volatile uint32_t *)&note->size; /* once: who writes it may be at work, or be up to something */
    bool whole = bytes % 8 == 0 && bytes >= sizeof *note && bytes <= bytes_there - *offset && size <= bytes - sizeof *note;
    if (whole) {
        const uint32_t head = libdeflate_crc32(0, &note->size, offsetof(sp_note_header, crc) - offsetof(sp_note_header, size));
        whole = note->crc == libdeflate_crc32(head, note + 1, size);
    }
    if (!whole) {
        *lost = bytes_there - *offset;
        return NULL;
    }
    *offset += bytes;
    return note;
}

typedef bool (*note_reader)(reader *r, const sp_note_header *note);

static sp_status read_notes(reader *r, sp_chunk_kind kind, note_reader read, sp_error *error)
{
    for (size_t i = 0; i < r->chunk_count; i++) {
        if (r->chunks[i].header->kind != kind) continue;
        uint64_t offset = sizeof(sp_chunk_header), lost = 0;
        const sp_note_header *note;
        while ((note = sp_spool_next_note(r->chunks[i].header, r->chunks[i].bytes, &offset, &lost))) {
            if (!read(r, note)) return sp_fail(error, SP_ERR_NO_MEMORY, "no memory to read %s", r->path);
        }
        r->salvage.damaged_bytes += lost;
    }
    return SP_OK;
}

/* ---- tasks ---- */

static bool read_task_name(reader *r, const sp_note_header *note)
{
    const char *text = (const char *)(note + 1);
    if (note->kind != SP_NOTE_TASK_NAME || note->size == 0 || text[note->size - 1] != '\0') return true;
    if (note->index >= r->run->task_count) return true;
    sp_run_task_name(r->run, sp_run_task(r->run, (int32_t)note->index), text);
    return true;
}

/* A time that cannot be is taken for none. */
static sp_ticks time_or_none(reader *r, sp_ticks ticks)
{
    if (!is_plausible(r, ticks)) return 0;
    saw(r, ticks);
    return ticks;
}

static void check_task(reader *r, sp_task *task)
{
    const sp_ticks created = time_or_none(r, task->created);
    task->created = created ? created : r->run->started;
    task->done = time_or_none(r, task->done);
    task->last_step_end = time_or_none(r, task->last_step_end);
    if (task->running > FARTHEST) task->running = 0;
    if (task->suspended > FARTHEST) task->suspended = 0;
    if (task->steps > FARTHEST) task->steps = 0;
    const int32_t thread = task->thread_index;
    if (thread < SP_NO_TASK || thread >= (int64_t)r->run->row_count) task->thread_index = SP_NO_TASK;
    if (task->creator_thread < 0 || task->creator_thread >= (int64_t)r->run->row_count ||
        task->creator_task < SP_NO_TASK || task->creator_task >= task->index) {
        sp_task_forget_creator(task);
    }
}

static sp_status read_tasks(reader *r, sp_error *error)
{
    for (size_t i = 0; i < r->chunk_count; i++) {
        const found *chunk = &r->chunks[i];
        if (chunk->header->kind != SP_CHUNK_TASKS) continue;
        if (chunk->bytes - sizeof(sp_chunk_header) < SP_TASKS_PER_PAGE * sizeof(sp_task)) continue;
        sp_task *tasks = (sp_task *)(chunk->header + 1);
        size_t count = 0;
        while (count < SP_TASKS_PER_PAGE && tasks[count].created) check_task(r, &tasks[count++]);
        if (!sp_run_restore_tasks(r->run, chunk->header->owner, tasks, count)) {
            return sp_fail(error, SP_ERR_NO_MEMORY, "no memory to read %s", r->path);
        }
    }
    return read_notes(r, SP_CHUNK_JOURNAL, read_task_name, error);
}

/* ---- calls ---- */

static bool remember_open(reader *r, uint32_t region, sp_ticks start)
{
    if (!sp_grow(&r->open, &r->open_size, r->open_count, sizeof *r->open, 16)) return false;
    r->open[r->open_count++] = (open_call){region, start};
    return true;
}

/* ---- what is in a file already ---- */

/* The process may have ended between the file's renaming and the note that it is in place. */
static bool file_is_in_place(const file_note *file)
{
    struct stat there;
    return stat(file->path, &there) == 0 && there.st_dev == file->device && there.st_ino == file->inode &&
        (int64_t)there.st_mtim.tv_sec * 1000000000 + there.st_mtim.tv_nsec == file->changed_ns;
}

static sp_status find_reported(reader *r, sp_error *error)
{
    const bool written = r->file.number && r->file.number == r->collected.number;
    if (written && r->confirmed.number != r->collected.number && file_is_in_place(&r->file)) r->confirmed = r->collected;
    const choice *confirmed = &r->confirmed;
    r->reached_count = r->run->row_count;
    r->reached = calloc(r->reached_count + 1, sizeof *r->reached);
    if (r->reached == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "no memory to read %s", r->path);
    for (size_t i = 0; i < confirmed->log_count; i++) {
        const sp_mark *mark = &confirmed->logs[i];
        if (mark->owner < r->reached_count) r->reached[mark->owner] = mark;
    }
    return SP_OK;
}

static bool is_in_file(const reader *r, const sp_mark *place)
{
    const sp_mark *reached = place->owner < r->reached_count ? r->reached[place->owner] : NULL;
    if (reached == NULL || sp_mark_compare(place, reached) >= 0) return false;
    const choice *confirmed = &r->confirmed;
    return confirmed->open_count == 0 ||
        sp_find(place, confirmed->open, confirmed->open_count, sizeof *place, sp_mark_compare) == NULL;
}

/* Store only what changes: the pages of a large spool stay the file's. */
static void set_region(sp_slot *slot, uint32_t region)
{
    if (atomic_load_explicit(&slot->region, memory_order_relaxed) == region) return;
    atomic_store_explicit(&slot->region, region, memory_order_relaxed);
}

/* What of a slot can be used. */
static void check_slot(reader *r, sp_slot *slot, const sp_mark *place)
{
    const uint32_t region = atomic_load_explicit(&slot->region, memory_order_relaxed);
    const uint32_t id = region & SP_REGION_ID;
    const sp_ticks start = atomic_load_explicit(&slot->start, memory_order_relaxed);
    const sp_ticks end = atomic_load_explicit(&slot->end, memory_order_relaxed);
    const bool reported = region == SP_REGION_DONE || is_in_file(r, place);
    const bool ended = end != SP_SLOT_OPEN && end != SP_SLOT_ABANDONED;
    const bool damaged = id >= r->run->region_count || !is_plausible(r, start) ||
        (ended && (end < start || !is_plausible(r, end))) ||
        slot->task < SP_NO_TASK || slot->task >= (int64_t)r->run->task_count + (slot->task == SP_NO_TASK);
    if (damaged && !reported) r->salvage.damaged_bytes += r->header->slot_bytes;
    if (reported || damaged || end == SP_SLOT_ABANDONED) {
        set_region(slot, SP_REGION_DONE);
        if (!ended) atomic_store_explicit(&slot->end, start, memory_order_relaxed);
        return;
    }
    set_region(slot, id);
    if (r->run->stride == sizeof(sp_async_slot) && ((sp_async_slot *)slot)->await > FARTHEST) ((sp_async_slot *)slot)->await = 0;
    saw(r, start);
    if (end == SP_SLOT_OPEN && start > r->last_opened) r->last_opened = start;
    if (end != SP_SLOT_OPEN) saw(r, end);
}

/*
 * A living writer takes chunks up again, and thins others: what is counted must be what is read after that. So their pages become
 * the reader's own, the header's last, which then tells whether the chunk is still the same.
 */
static bool hold_still(const found *chunk)
{
    const sp_chunk_header *h = chunk->header;
    for (uint64_t page = chunk->bytes; page > 0;) {
        page -= SP_SPOOL_PAGE;
        atomic_fetch_add_explicit((volatile _Atomic(char) *)chunk->header + page, 0, memory_order_relaxed);
    }
    return h->crc == libdeflate_crc32(0, h, offsetof(sp_chunk_header, crc)) && h->sequence == chunk->sequence &&
        atomic_load_explicit(&h->dropped, memory_order_relaxed) != SP_CHUNK_GONE;
}

static sp_status read_events(reader *r, sp_error *error)
{
    const bool moving = writer_lives(r);
    for (size_t i = 0; i < r->chunk_count; i++) {
        const found *chunk = &r->chunks[i];
        if (chunk->header->kind != SP_CHUNK_EVENTS || (moving && !hold_still(chunk))) continue;
        const uint32_t row = chunk->header->owner, stride = r->header->slot_bytes;
        if (chunk->header->stride != stride || row > r->run->row_count) {
            r->salvage.damaged_bytes += chunk->bytes;
            continue;
        }
        sp_mark place = {.owner = row, .sequence = chunk->header->sequence};
        char *begin = (char *)(chunk->header + 1), *limit = (char *)chunk->header + chunk->bytes, *end = begin;
        const bool thinned = atomic_load_explicit(&chunk->header->dropped, memory_order_relaxed) == SP_CHUNK_THINNED;
        for (char *slot = begin; limit - slot >= (ptrdiff_t)stride; slot += stride, place.index++) {
            const bool there = atomic_load_explicit(&((sp_slot *)slot)->start, memory_order_acquire) != 0;
            if (!there && !thinned) break;
            if (!there) continue;
            check_slot(r, (sp_slot *)slot, &place);
            end = slot + stride;
        }
        if (end > begin && !sp_run_restore_block(r->run, row, begin, end)) {
            return sp_fail(error, SP_ERR_NO_MEMORY, "no memory to read %s", r->path);
        }
    }
    return SP_OK;
}

/* Calls that are open end at the last moment that the spool knows. */
static sp_status close_open_calls(reader *r, sp_error *error)
{
    for (sp_log *log = r->run->logs; log; log = log->next_of_run) {
        for (sp_block *block = log->head; block; block = atomic_load_explicit(&block->next, memory_order_relaxed)) {
            for (char *at = block->begin; at < block->end; at += log->stride) {
                sp_slot *slot = (sp_slot *)at;
                if (!sp_slot_is_open(slot)) continue;
                const uint32_t region = atomic_load_explicit(&slot->region, memory_order_relaxed);
                const sp_ticks start = atomic_load_explicit(&slot->start, memory_order_relaxed);
                if (!remember_open(r, region, start)) return sp_fail(error, SP_ERR_NO_MEMORY, "no memory to read %s", r->path);
                if (log->stride == sizeof(sp_async_slot)) {
                    sp_async_slot *call = (sp_async_slot *)slot;
                    call->await = sp_run_awaited(r->run, call, r->latest);
                }
                atomic_store_explicit(&slot->end, r->latest, memory_order_relaxed);
            }
        }
    }
    r->salvage.open_calls = r->open_count;
    return SP_OK;
}

/* ---- the timeline ---- */

static bool begin_timeline(reader *r)
{
    r->run->timeline.restored = true;
    r->run->timeline.source = (sp_clock_source)r->header->clock;
    return sp_run_restore_anchor(r->run, (sp_anchor){r->header->first_ticks, r->header->first_ns});
}

#define LONG_NS INT64_C(1000000000)

/*
 * Behind the last anchor the clock is known by its rate alone, and the nearest anchors may be microseconds apart: their
 * rate would carry tens of ns of error a thousand times as far. So the rate of a second or more, or of all there is.
 */
static sp_status end_timeline(reader *r, sp_error *error)
{
    const sp_timeline *timeline = &r->run->timeline;
    const sp_anchor *last = &timeline->anchors[timeline->count - 1], *from = last;
    while (from > timeline->anchors && last->ns - from->ns < LONG_NS) from--;
    if (from == last || r->latest <= last->ticks) return SP_OK;
    const double rate = (double)(last->ns - from->ns) / (double)(last->ticks - from->ticks);
    const sp_anchor end = {r->latest, last->ns + (int64_t)((double)(r->latest - last->ticks) * rate)};
    return sp_run_restore_anchor(r->run, end) ? SP_OK : sp_fail(error, SP_ERR_NO_MEMORY, "no memory to read %s", r->path);
}

/* ---- sums ---- */

static bool sums_are_sound(const reader *r, const sp_summed *sum)
{
    return sum->count < LATEST && sum->total < LATEST && sum->minimum <= sum->maximum && sum->maximum <= sum->total &&
        sum->own <= sum->total && sum->first <= sum->maximum && sum->last <= sum->maximum &&
        is_plausible(r, sum->first_start) && is_plausible(r, sum->last_start) && is_plausible(r, sum->last_end);
}

/* A page of sums, unless the collection that took it is in a file. */
static void read_page(reader *r, const sp_total_page *page, sp_summed *sums)
{
    const uint32_t collection = atomic_load_explicit(&page->collection, memory_order_relaxed);
    const uint64_t first = (uint64_t)atomic_load_explicit(&page->index, memory_order_relaxed) * SP_TOTALS_PER_PAGE;
    if (collection && collection <= r->confirmed.number) return;
    for (size_t i = 0; i < SP_TOTALS_PER_PAGE; i++) {
        sp_summed one = {0};
        sp_summed_add(&one, &page->totals[i]);
        if (one.count == 0) continue;
        if (first + i >= r->run->region_count || !sums_are_sound(r, &one)) {
            r->salvage.damaged_bytes += sizeof page->totals[i];
            continue;
        }
        saw(r, one.last_end);
        sp_summed_add(&sums[first + i], &page->totals[i]);
    }
}

static sp_status read_sums(reader *r, uint32_t rank, sp_profile **out, sp_error *error)
{
    const bool moving = writer_lives(r);
    sp_summed *sums = calloc(r->run->region_count + 1, sizeof *sums);
    if (sums == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "no memory to read %s", r->path);
    for (size_t i = 0; i < r->chunk_count; i++) {
        const found *chunk = &r->chunks[i];
        if (chunk->header->kind != SP_CHUNK_TOTALS || (moving && !hold_still(chunk))) continue;
        if (chunk->header->stride != sizeof(sp_total) || chunk->bytes < sizeof *chunk->header + sizeof(sp_total_page)) {
            r->salvage.damaged_bytes += chunk->bytes;
            continue;
        }
        read_page(r, (const sp_total_page *)(chunk->header + 1), sums);
    }
    sp_status status = end_timeline(r, error);
    if (status == SP_OK) status = sp_summed_profile(r->run, rank, sums, r->run->region_count, out, error);
    free(sums);
    return status;
}

/* ---- marks ---- */

/* Put {"open": true} at the calls that were open; rows with none are left as they are. */
static sp_status mark_row(reader *r, sp_profile *profile, sp_row *row, sp_error *error)
{
    static const char plain[] = "{}", marked[] = "{\"open\":true}";
    const char *name = profile->names[row->name];
    bool *open = calloc(row->count ? row->count : 1, sizeof *open);
    if (open == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "no memory to read %s", r->path);
    uint64_t marks = 0;
    sp_timeline_cursor cursor = {.timeline = &r->run->timeline};
    const int64_t end_ns = sp_timeline_to_ns(&cursor, r->latest);
    for (size_t i = 0; i < r->open_count; i++) {
        if (strcmp(r->run->regions[r->open[i].region]->name, name) != 0) continue;
        const int64_t start_ns = sp_timeline_to_ns(&cursor, r->open[i].start);
        for (uint64_t k = row->first; k < row->first + row->count; k++) {
            if (profile->columns[SP_COLUMN_START][k] != start_ns || profile->columns[SP_COLUMN_END][k] != end_ns ||
                open[k - row->first]) continue;
            open[k - row->first] = true;
            marks++;
            break;
        }
    }
    if (marks) {
        char *text = malloc(2 + row->count * (sizeof plain) + marks * (sizeof marked - sizeof plain) + 1);
        if (text == NULL) {
            free(open);
            return sp_fail(error, SP_ERR_NO_MEMORY, "no memory to read %s", r->path);
        }
        char *at = text;
        for (uint64_t k = 0; k < row->count; k++) {
            *at++ = k ? ',' : '[';
            const char *piece = open[k] ? marked : plain;
            const size_t size = open[k] ? sizeof marked - 1 : sizeof plain - 1;
            memcpy(at, piece, size);
            at += size;
        }
        *at++ = ']';
        *at = '\0';
        row->event_metadata = text;
    }
    free(open);
    return SP_OK;
}

static sp_status mark_open_calls(reader *r, sp_profile *profile, sp_error *error)
{
    for (size_t i = 0; i < profile->row_count && r->open_count; i++) {
        const sp_status status = mark_row(r, profile, &profile->rows[i], error);
        if (status != SP_OK) return status;
    }
    return SP_OK;
}

static sp_status set_metadata(reader *r, sp_profile *profile, sp_error *error)
{
    sp_status status = sp_profile_set_int(profile, "start_time_ns", r->header->start_ns);
    if (status == SP_OK) status = sp_profile_set_bool(profile, "recovered", true);
    if (status == SP_OK) status = sp_profile_set_int(profile, "recovered_open_calls", (int64_t)r->open_count);
    if (status == SP_OK && r->salvage.damaged_bytes) {
        status = sp_profile_set_int(profile, "recovered_damaged_bytes", (int64_t)r->salvage.damaged_bytes);
    }
    if (status == SP_OK && r->salvage.limited) status = sp_profile_set_bool(profile, "recording_limited", true);
    if (status == SP_OK && r->salvage.dropped_calls) {
        sp_timeline_cursor cursor = {.timeline = &r->run->timeline};
        const int64_t until = sp_timeline_to_ns(&cursor, r->salvage.dropped_until);
        status = sp_profile_set_bool(profile, "recording_limited", true);
        if (status == SP_OK) status = sp_profile_set_int(profile, "dropped_calls", (int64_t)r->salvage.dropped_calls);
        if (status == SP_OK) status = sp_profile_set_int(profile, "dropped_until_ns", until);
    }
    if (status == SP_OK && r->salvage.incomplete) status = sp_profile_set_bool(profile, "recovered_incomplete", true);
    sp_timeline_cursor cursor = {.timeline = &r->run->timeline};
    if (status == SP_OK) {
        status = sp_profile_set_int(profile, "finalize_time_ns",
                                    r->latest ? sp_timeline_to_ns(&cursor, r->latest) : r->header->start_ns);
    }
    if (status == SP_OK && r->metadata) status = sp_profile_set_string(profile, "spool_metadata", r->metadata);
    return status == SP_OK ? SP_OK : sp_fail(error, SP_ERR_NO_MEMORY, "no memory to read %s", r->path);
}

/* ---- values of single calls ---- */

static bool is_value(const sp_note_header *note)
{
    const char *text = (const char *)(note + 1);
    return (note->kind == SP_NOTE_SCOPE || note->kind == SP_NOTE_OUTCOME) && note->size > sizeof(sp_value) + 1 &&
        text[note->size - 1] == '\0';
}

static int64_t to_ns(reader *r, sp_ticks ticks)
{
    sp_timeline_cursor cursor = {.timeline = &r->run->timeline};
    return sp_timeline_to_ns(&cursor, ticks);
}

static bool read_value(reader *r, const sp_note_header *note)
{
    sp_spool_values *values = r->values;
    sp_value value;
    if (!is_value(note)) return true;
    r->salvage.values++;
    if (values == NULL) return true;
    const char *text = (const char *)(note + 1) + sizeof value, *end = (const char *)(note + 1) + note->size;
    memcpy(&value, note + 1, sizeof value);
    if (!is_plausible(r, value.start) || (value.end && !is_plausible(r, value.end))) return true;
    if (!sp_grow(&values->list, &values->size, values->count, sizeof *values->list, 64)) return false;
    sp_spool_value *read = &values->list[values->count];
    *read = (sp_spool_value){.outcome = note->kind == SP_NOTE_OUTCOME, .scope = value.scope, .lane = value.lane,
                             .start_ns = to_ns(r, value.start), .end_ns = value.end ? to_ns(r, value.end) : SP_UNKNOWN};
    if (read->outcome) {
        const char *region = text;
        text += strlen(text) + 1;
        if (text == end) return true; /* it has no text */
        read->region = sp_utf8_valid(region, strlen(region)) ? strdup(region) : sp_utf8_repaired(region); /* as the profile's names */
    }
    read->text = strdup(text);
    values->count++;
    return read->text && (read->region || !read->outcome);
}

static sp_status read_values(reader *r, sp_error *error)
{
    const bool moving = writer_lives(r);
    for (size_t i = 0; i < r->chunk_count && moving; i++) {
        if (r->chunks[i].header->kind == SP_CHUNK_VALUES && !hold_still(&r->chunks[i])) r->chunks[i].header->kind = 0;
    }
    return read_notes(r, SP_CHUNK_VALUES, read_value, error);
}

void sp_spool_values_free(sp_spool_values *values)
{
    for (size_t i = 0; i < values->count; i++) {
        free(values->list[i].region);
        free(values->list[i].text);
    }
    free(values->list);
    sp_column_free(values->lanes, values->calls);
    *values = (sp_spool_values){0};
}

/* ---- all of it ---- */

static bool is_of_sums(const reader *r)
{
    return r->header->tracks & 4;
}

static sp_status rebuild(reader *r, sp_error *error)
{
    const sp_restore_options options = {.tracks_threads = r->header->tracks & 1, .tracks_tasks = r->header->tracks & 2,
                                        .started = r->header->started, .start_ns = r->header->start_ns};
    r->run = sp_run_restore(&options);
    if (r->run == NULL || !begin_timeline(r)) return sp_fail(error, SP_ERR_NO_MEMORY, "no memory to read %s", r->path);
    saw(r, r->header->started);
    sp_status status = find_chunks(r, error);
    if (status == SP_OK) status = read_notes(r, SP_CHUNK_JOURNAL, read_note, error);
    if (status == SP_OK) status = read_tasks(r, error);
    if (status == SP_OK) status = find_reported(r, error);
    if (status != SP_OK || is_of_sums(r)) return status;
    status = read_events(r, error);
    /* A call that was opened last must begin before its caller ends, or it would be taken for the next one. */
    if (status == SP_OK && r->last_opened == r->latest) r->latest++;
    r->run->ended = r->latest;
    if (status == SP_OK) status = end_timeline(r, error);
    if (status == SP_OK) status = close_open_calls(r, error);
    return status;
}

/* Which process it was. Within one boot it had the clock that this process has; of another nothing is known. */
static void set_process(const reader *r, sp_profile *profile)
{
    char boot[40];
    sp_boot_id(boot);
    for (size_t i = 0; i < profile->process_count; i++) {
        profile->processes[i].pid = r->header->pid;
        if (memcmp(boot, r->header->boot_id, sizeof boot) == 0) profile->processes[i].clock_domain = sp_platform_clock_domain();
    }
}

sp_status sp_spool_read(const char *path, uint32_t rank, sp_profile **out, sp_salvage *salvage, sp_spool_values *values,
                        sp_error *error)
{
    if (values) *values = (sp_spool_values){0};
    reader r = {.path = path, .file_descriptor = -1, .values = values};
    int64_t **lanes = NULL;
    sp_profile *profile = NULL;
    sp_status status = map_file(&r, error);
    if (status == SP_OK) status = check_header(&r, error);
    if (status == SP_OK) status = rebuild(&r, error);
    if (status == SP_OK) status = read_values(&r, error);
    if (values && values->count) lanes = &values->lanes;
    if (status == SP_OK) {
        status = is_of_sums(&r) ? read_sums(&r, rank, &profile, error) : sp_run_collect(r.run, rank, 0, &profile, lanes, error);
    }
    if (status == SP_OK && lanes) values->calls = profile->call_count;
    if (status == SP_OK) set_process(&r, profile);
    if (status == SP_OK) status = mark_open_calls(&r, profile, error);
    if (status == SP_OK) status = set_metadata(&r, profile, error);
    if (status == SP_OK && sp_mend_texts(profile) != SP_OK) {
        status = sp_fail(error, SP_ERR_NO_MEMORY, "no memory to read %s", path);
    }
    sp_error cut;
    if (sp_spool_check_pages(&r.lost, path, &cut) != SP_OK) { /* whatever came of it */
        status = SP_ERR_CORRUPT;
        if (error) *error = cut;
    }
    if (r.run) sp_run_drop(r.run);
    unmap_file(&r);
    free(r.chunks);
    free(r.open);
    free(r.reached);
    if (status != SP_OK) {
        if (values) sp_spool_values_free(values);
        sp_profile_release(profile);
        return status;
    }
    *out = profile;
    if (salvage) *salvage = r.salvage;
    return SP_OK;
}
