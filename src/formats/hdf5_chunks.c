#include "formats/hdf5_chunks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/column_memory.h"
#include "formats/hdf5_library.h"
#include "platform/platform.h"

#define WORKERS_MAX 4
#define JOBS_AHEAD 7 /* that wait or are made, besides those that workers have */
#define FEW_PIECES 4 /* not worth a thread */

/* A piece on its way to the file: a worker's, or the caller's, from when it is taken until it is made. */
typedef struct job {
    sp_chunk_piece piece;
    uint64_t first;
    bool made;
    void *data; /* the encoded chunk */
    size_t size;
    uint32_t skipped;
    sp_status status;
} job;

/* A buffer that waits to be used again begins with the next one. */
typedef struct spare {
    struct spare *next;
} spare;

/*
 * Buffers are cut from large pieces of memory: in many small ones of their own, each page costs a fault at every finalize(). The first piece
 * is of small pages, for the kernel has some at hand: a huge one that nobody had before takes 5 ms on a virtual machine whose host has it not at
 * hand either, 512 small ones 0.7. Only files of many regions need a second piece.
 */
typedef struct slab {
    struct slab *next;
    int64_t *memory;
    size_t bytes, used;
    bool huge;
} slab;

#define FIRST_SLAB_BYTES ((size_t)8 << 20)
#define SLAB_BYTES ((size_t)4 << 20)

struct sp_chunk_writer {
    sp_pipeline filters;
    size_t largest;
    pthread_t threads[WORKERS_MAX];
    unsigned worker_count;
    sp_coder *coder; /* the caller's own */
    void *raw;

    pthread_mutex_t lock; /* all below */
    pthread_cond_t queued, made;
    bool stopped, waiting; /* the caller waits for a job to be made */
    uint64_t put, taken, written; /* jobs so far: written <= taken <= put; job n is jobs[n % job_count] */
    unsigned job_count;
    job jobs[WORKERS_MAX + JOBS_AHEAD];
    spare *spares;
    slab *slabs;
    size_t first_slab; /* bytes */
};

/* -- pieces -- */

static uint64_t piece_count(const sp_chunk_source *source, uint64_t first)
{
    const uint64_t left = source->count - first;
    return left < source->chunk ? left : source->chunk;
}

/* Make a chunk: its elements, zeros up to the chunk's size, and the filters over it. */
static void make_chunk(const sp_chunk_writer *writer, sp_coder *coder, void *own, job *out)
{
    const sp_chunk_source *source = out->piece.source;
    const sp_chunk_look *look = out->piece.look;
    const uint64_t count = piece_count(source, out->first);
    const size_t bytes = (size_t)source->chunk * source->element, used = (size_t)count * source->element;
    void *raw = out->piece.buffer ? out->piece.buffer : own;
    sp_pipeline pipeline = writer->filters;
    pipeline.element = source->element;
    if (coder == NULL || raw == NULL) {
        out->status = SP_ERR_NO_MEMORY;
        return;
    }
    if (out->piece.buffer == NULL) source->fill(source->context, out->first, count, raw);
    if (look) look->run(look->context, raw, count);
    memset((char *)raw + used, 0, bytes - used);
    out->status = sp_chunk_encode(coder, &pipeline, raw, bytes, out->data, &out->size, &out->skipped);
}

static sp_status fail_write(const sp_chunk_source *source, sp_error *error)
{
    char reason[300];
    return sp_fail(error, SP_ERR_IO, "cannot write %s: %s", source->name, sp_hdf5_reason(reason, sizeof reason));
}

/* Write an encoded chunk where it belongs. */
static sp_status write_chunk(const job *made, sp_error *error)
{
    const sp_chunk_source *source = made->piece.source;
    if (made->status != SP_OK) return sp_fail(error, made->status, "cannot compress %s", source->name);
    if (source->take) return source->take(source->taker, made->first, made->data, made->size, made->skipped, error);
    const hsize_t offset = made->first;
    if (H5Dwrite_chunk(source->dataset, H5P_DEFAULT, made->skipped, &offset, made->size, made->data) >= 0) return SP_OK;
    return fail_write(source, error);
}

/* A piece of a dataset that is not chunked, as it is. */
static sp_status write_plain(const sp_chunk_source *source, uint64_t first, const void *elements, sp_error *error)
{
    const hsize_t start = first, count = piece_count(source, first), extent = source->count;
    const hid_t space = H5Screate_simple(1, &extent, NULL), memory = H5Screate_simple(1, &count, NULL);
    const bool written = space >= 0 && memory >= 0 &&
        H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL) >= 0 &&
        H5Dwrite(source->dataset, source->type, memory, space, H5P_DEFAULT, elements) >= 0;
    if (space >= 0) H5Sclose(space);
    if (memory >= 0) H5Sclose(memory);
    return written ? SP_OK : fail_write(source, error);
}

/* -- jobs: with the lock, which is given up while a chunk is made or written -- */

static job *job_of(sp_chunk_writer *writer, uint64_t number)
{
    return &writer->jobs[number % writer->job_count];
}

static void recycle(sp_chunk_writer *writer, void *buffer)
{
    if (buffer == NULL) return;
    spare *one = buffer;
    one->next = writer->spares;
    writer->spares = one;
}

/* Make the chunk that was put first of those that wait. */
static void make_next(sp_chunk_writer *writer, sp_coder *coder, void *own)
{
    job *mine = job_of(writer, writer->taken++);
    pthread_mutex_unlock(&writer->lock);
    make_chunk(writer, coder, own, mine);
    pthread_mutex_lock(&writer->lock);
    recycle(writer, mine->piece.buffer);
    mine->made = true;
    if (writer->waiting) pthread_cond_signal(&writer->made);
}

static void *work(void *argument)
{
    sp_chunk_writer *writer = argument;
    sp_coder *coder = sp_coder_new();
    void *own = malloc(writer->largest);
    pthread_mutex_lock(&writer->lock);
    while (!writer->stopped) {
        if (writer->taken == writer->put) pthread_cond_wait(&writer->queued, &writer->lock);
        else make_next(writer, coder, own);
    }
    pthread_mutex_unlock(&writer->lock);
    sp_coder_free(coder);
    free(own);
    return NULL;
}

/* Of the caller: bring the oldest job, there is one, nearer to the file. */
static sp_status go_on(sp_chunk_writer *writer, sp_error *error)
{
    job *oldest = job_of(writer, writer->written);
    if (!oldest->made && writer->taken < writer->put) {
        make_next(writer, writer->coder, writer->raw);
        return SP_OK;
    }
    writer->waiting = true;
    while (!oldest->made) pthread_cond_wait(&writer->made, &writer->lock);
    writer->waiting = false;
    pthread_mutex_unlock(&writer->lock);
    const sp_status status = write_chunk(oldest, error);
    pthread_mutex_lock(&writer->lock);
    writer->written++;
    return status;
}

/* Until no more than `left` jobs are under way. */
static sp_status go_on_until(sp_chunk_writer *writer, uint64_t left, sp_error *error)
{
    sp_status status = SP_OK;
    while (status == SP_OK && writer->put - writer->written > left) status = go_on(writer, error);
    return status;
}

/* -- the writer -- */

static unsigned workers_wanted(uint64_t pieces)
{
    const unsigned processors = sp_platform_processors();
    if (processors < 2 || pieces < FEW_PIECES) return 0;
    return processors - 1 < WORKERS_MAX ? processors - 1 : WORKERS_MAX;
}

static void start_workers(sp_chunk_writer *writer, unsigned wanted)
{
    while (writer->worker_count < wanted &&
           sp_platform_start_thread(&writer->threads[writer->worker_count], work, writer)) {
        writer->worker_count++;
    }
}

static void writer_free(sp_chunk_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    writer->stopped = true;
    pthread_cond_broadcast(&writer->queued);
    pthread_mutex_unlock(&writer->lock);
    for (unsigned i = 0; i < writer->worker_count; i++) pthread_join(writer->threads[i], NULL);
    for (unsigned i = 0; i < writer->job_count; i++) {
        free(writer->jobs[i].data);
    }
    while (writer->slabs) {
        slab *one = writer->slabs;
        writer->slabs = one->next;
        if (one->huge) sp_column_free(one->memory, one->bytes / sizeof(int64_t));
        else free(one->memory);
        free(one);
    }
    pthread_mutex_destroy(&writer->lock);
    pthread_cond_destroy(&writer->queued);
    pthread_cond_destroy(&writer->made);
    sp_coder_free(writer->coder);
    free(writer->raw);
    free(writer);
}

sp_chunk_writer *sp_chunk_writer_new(const sp_pipeline *filters, size_t largest, uint64_t pieces)
{
    sp_chunk_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL) return NULL;
    writer->filters = *filters;
    writer->largest = ((largest > sizeof(spare) ? largest : sizeof(spare)) + 63) | 64;
    writer->largest &= ~(size_t)63; /* an odd number of cache lines: columns filled side by side share no set */
    writer->first_slab = pieces < FIRST_SLAB_BYTES / writer->largest ? writer->largest * (size_t)(pieces + 1) : FIRST_SLAB_BYTES;
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->queued, NULL);
    pthread_cond_init(&writer->made, NULL);
    const unsigned wanted = workers_wanted(pieces), jobs = wanted ? wanted + JOBS_AHEAD : 1;
    writer->coder = sp_coder_new();
    writer->raw = malloc(writer->largest);
    for (; writer->job_count < jobs; writer->job_count++) {
        job *one = &writer->jobs[writer->job_count];
        one->data = malloc(sp_encoded_bound(writer->largest));
        if (one->data == NULL) break;
    }
    if (writer->coder == NULL || writer->raw == NULL || writer->job_count < jobs) {
        writer_free(writer);
        return NULL;
    }
    start_workers(writer, wanted);
    return writer;
}

static slab *slab_new(sp_chunk_writer *writer)
{
    slab *one = malloc(sizeof *one);
    if (one == NULL) return NULL;
    *one = (slab){.next = writer->slabs, .huge = writer->slabs != NULL};
    one->bytes = one->huge ? SLAB_BYTES : writer->first_slab;
    if (one->bytes < writer->largest) one->bytes = writer->largest;
    one->memory = one->huge ? sp_column_alloc(one->bytes / sizeof(int64_t)) : malloc(one->bytes);
    if (one->memory == NULL) {
        free(one);
        return NULL;
    }
    return writer->slabs = one;
}

void *sp_chunk_writer_buffer(sp_chunk_writer *writer)
{
    void *buffer = NULL;
    pthread_mutex_lock(&writer->lock);
    if (writer->spares) {
        buffer = writer->spares;
        writer->spares = writer->spares->next;
    } else {
        slab *from = writer->slabs;
        if (from == NULL || from->used + writer->largest > from->bytes) from = slab_new(writer);
        if (from) {
            buffer = (char *)from->memory + from->used;
            from->used += writer->largest;
        }
    }
    pthread_mutex_unlock(&writer->lock);
    return buffer;
}

void sp_chunk_writer_drop(sp_chunk_writer *writer, void *buffer)
{
    pthread_mutex_lock(&writer->lock);
    recycle(writer, buffer);
    pthread_mutex_unlock(&writer->lock);
}

static sp_status put_plain(sp_chunk_writer *writer, const sp_chunk_piece *piece, uint64_t first, sp_error *error)
{
    if (piece->look) piece->look->run(piece->look->context, piece->buffer, piece_count(piece->source, first));
    const sp_status status = write_plain(piece->source, first, piece->buffer, error);
    sp_chunk_writer_drop(writer, piece->buffer);
    return status;
}

static sp_status put_job(sp_chunk_writer *writer, const sp_chunk_piece *piece, uint64_t first, bool wake, sp_error *error)
{
    pthread_mutex_lock(&writer->lock);
    sp_status status = go_on_until(writer, writer->job_count - 1, error);
    if (status == SP_OK) {
        job *next = job_of(writer, writer->put++);
        next->piece = *piece;
        next->first = first;
        next->made = false;
        if (writer->worker_count == 0) status = go_on_until(writer, 0, error);
        else if (wake) pthread_cond_signal(&writer->queued);
    } else {
        recycle(writer, piece->buffer);
    }
    pthread_mutex_unlock(&writer->lock);
    return status;
}

sp_status sp_chunk_writer_put(sp_chunk_writer *writer, const sp_chunk_piece *pieces, size_t count, uint64_t first, sp_error *error)
{
    sp_status status = SP_OK;
    for (size_t i = 0; i < count; i++) {
        if (status != SP_OK) sp_chunk_writer_drop(writer, pieces[i].buffer);
        else if (pieces[i].source->contiguous) status = put_plain(writer, &pieces[i], first, error);
        else status = put_job(writer, &pieces[i], first, i == 0, error);
    }
    return status;
}

sp_status sp_chunk_writer_drain(sp_chunk_writer *writer, sp_error *error)
{
    pthread_mutex_lock(&writer->lock);
    const sp_status status = go_on_until(writer, 0, error);
    pthread_mutex_unlock(&writer->lock);
    return status;
}

sp_status sp_chunk_writer_finish(sp_chunk_writer *writer, sp_status status, sp_error *error)
{
    if (status == SP_OK) status = sp_chunk_writer_drain(writer, error);
    writer_free(writer);
    return status;
}

sp_status sp_hdf5_write_chunks(const sp_chunk_source *sources, size_t count, const sp_pipeline *filters,
                               sp_error *error)
{
    size_t largest = 0;
    uint64_t pieces = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t bytes = (size_t)sources[i].chunk * sources[i].element;
        if (bytes > largest) largest = bytes;
        pieces += sources[i].count / sources[i].chunk + (sources[i].count % sources[i].chunk != 0);
    }
    if (pieces == 0) return SP_OK;
    sp_chunk_writer *writer = sp_chunk_writer_new(filters, largest, pieces);
    if (writer == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "no memory to compress %s", sources[0].name);
    sp_status status = SP_OK;
    for (size_t i = 0; i < count; i++) {
        for (uint64_t first = 0; status == SP_OK && first < sources[i].count; first += sources[i].chunk) {
            status = sp_chunk_writer_put(writer, &(sp_chunk_piece){.source = &sources[i]}, 1, first, error);
        }
    }
    return sp_chunk_writer_finish(writer, status, error);
}
