#include "formats/hdf5_chunks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/column_memory.h"
#include "formats/hdf5_library.h"
#include "platform/platform.h"

#define WORKERS_MAX 4
#define JOBS_MAX (WORKERS_MAX + 4)
#define FEW_PIECES 4 /* not worth a thread */

typedef enum job_state { JOB_FREE, JOB_WAITING, JOB_TAKEN, JOB_MADE } job_state;

/* A piece on its way to the file: the caller's while free or made, a worker's while taken. */
typedef struct job {
    job_state state;
    const sp_chunk_source *source;
    uint64_t first, order; /* the earliest waiting job is taken first */
    void *raw;             /* given with the piece, or NULL */
    const sp_chunk_look *look;
    void *data;            /* the encoded chunk */
    size_t size;
    uint32_t skipped;
    sp_status status;
} job;

/* A buffer that waits to be used again begins with the next one. */
typedef struct spare {
    struct spare *next;
} spare;

/* Buffers are cut from large pieces of memory: in many small ones of their own, each page costs a fault at every finalize(). */
typedef struct slab {
    struct slab *next;
    int64_t *memory;
    size_t used;
} slab;

#define SLAB_BYTES ((size_t)4 << 20)

struct sp_chunk_writer {
    sp_pipeline filters;
    size_t largest;
    pthread_t threads[WORKERS_MAX];
    unsigned worker_count;
    sp_coder *coder; /* the caller's own, when there is no worker */
    void *raw;

    pthread_mutex_t lock; /* all below */
    pthread_cond_t queued, made;
    bool stopped;
    uint64_t put, written; /* jobs so far */
    unsigned job_count;
    job jobs[JOBS_MAX];
    spare *spares;
    slab *slabs;
    size_t slab_bytes;
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
    const sp_chunk_source *source = out->source;
    const uint64_t count = piece_count(source, out->first);
    const size_t bytes = (size_t)source->chunk * source->element, used = (size_t)count * source->element;
    void *raw = out->raw ? out->raw : own;
    sp_pipeline pipeline = writer->filters;
    pipeline.element = source->element;
    if (coder == NULL || raw == NULL) {
        out->status = SP_ERR_NO_MEMORY;
        return;
    }
    if (out->raw == NULL) source->fill(source->context, out->first, count, raw);
    if (out->look) out->look->run(out->look->context, raw, count);
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
    const sp_chunk_source *source = made->source;
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

/* -- workers -- */

/* The waiting job that was put first; NULL when the writer has stopped. */
static job *take_job(sp_chunk_writer *writer)
{
    job *next = NULL;
    pthread_mutex_lock(&writer->lock);
    while (!writer->stopped && next == NULL) {
        for (unsigned i = 0; i < writer->job_count; i++) {
            job *candidate = &writer->jobs[i];
            if (candidate->state == JOB_WAITING && (next == NULL || candidate->order < next->order)) next = candidate;
        }
        if (next == NULL) pthread_cond_wait(&writer->queued, &writer->lock);
    }
    if (next) next->state = JOB_TAKEN;
    pthread_mutex_unlock(&writer->lock);
    return next;
}

static void recycle(sp_chunk_writer *writer, void *buffer)
{
    if (buffer == NULL) return;
    spare *one = buffer;
    one->next = writer->spares;
    writer->spares = one;
}

static void *work(void *argument)
{
    sp_chunk_writer *writer = argument;
    sp_coder *coder = sp_coder_new();
    void *own = malloc(writer->largest);
    job *mine;
    while ((mine = take_job(writer))) {
        make_chunk(writer, coder, own, mine);
        pthread_mutex_lock(&writer->lock);
        recycle(writer, mine->raw);
        mine->state = JOB_MADE;
        pthread_cond_signal(&writer->made);
        pthread_mutex_unlock(&writer->lock);
    }
    sp_coder_free(coder);
    free(own);
    return NULL;
}

static unsigned workers_wanted(uint64_t pieces)
{
    const unsigned processors = sp_platform_processors();
    if (processors < 2 || pieces < FEW_PIECES) return 0;
    return processors < WORKERS_MAX ? processors : WORKERS_MAX;
}

static void start_workers(sp_chunk_writer *writer, unsigned wanted)
{
    while (writer->worker_count < wanted &&
           sp_platform_start_thread(&writer->threads[writer->worker_count], work, writer)) {
        writer->worker_count++;
    }
}

/* -- the caller -- */

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
        sp_column_free(one->memory, writer->slab_bytes / sizeof(int64_t));
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
    writer->slab_bytes = pieces < SLAB_BYTES / writer->largest ? writer->largest * (size_t)(pieces + 1) : SLAB_BYTES;
    if (writer->slab_bytes < writer->largest) writer->slab_bytes = writer->largest;
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->queued, NULL);
    pthread_cond_init(&writer->made, NULL);
    const unsigned wanted = workers_wanted(pieces);
    const unsigned jobs = wanted ? wanted + 4 : 1;
    for (; writer->job_count < jobs; writer->job_count++) {
        job *one = &writer->jobs[writer->job_count];
        one->data = malloc(sp_encoded_bound(writer->largest));
        if (one->data == NULL) break;
    }
    if (writer->job_count == jobs) start_workers(writer, wanted);
    if (writer->job_count == jobs && writer->worker_count == 0) {
        writer->coder = sp_coder_new();
        writer->raw = malloc(writer->largest);
    }
    const bool alone = writer->worker_count == 0;
    if (writer->job_count == jobs && (!alone || (writer->coder && writer->raw))) return writer;
    writer_free(writer);
    return NULL;
}

static slab *slab_new(sp_chunk_writer *writer)
{
    slab *one = malloc(sizeof *one);
    if (one == NULL) return NULL;
    *one = (slab){.next = writer->slabs, .memory = sp_column_alloc(writer->slab_bytes / sizeof(int64_t))};
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
        if (from == NULL || from->used + writer->largest > writer->slab_bytes) from = slab_new(writer);
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

/* A job in `state`, or NULL. With the lock. */
static job *find_job(sp_chunk_writer *writer, job_state state)
{
    for (unsigned i = 0; i < writer->job_count; i++) {
        if (writer->jobs[i].state == state) return &writer->jobs[i];
    }
    return NULL;
}

/* Write the job whose turn it is, waiting for it; *done is set when none is under way. */
static sp_status write_next(sp_chunk_writer *writer, bool *done, sp_error *error)
{
    job *next = NULL;
    pthread_mutex_lock(&writer->lock);
    *done = writer->written == writer->put;
    for (unsigned i = 0; !*done && i < writer->job_count; i++) {
        job *candidate = &writer->jobs[i];
        if (candidate->state != JOB_FREE && candidate->order == writer->written) next = candidate;
    }
    while (next && next->state != JOB_MADE) pthread_cond_wait(&writer->made, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
    if (next == NULL) return SP_OK;
    const sp_status status = write_chunk(next, error);
    pthread_mutex_lock(&writer->lock);
    next->state = JOB_FREE;
    writer->written++;
    pthread_mutex_unlock(&writer->lock);
    return status;
}

static sp_status put_alone(sp_chunk_writer *writer, const sp_chunk_source *source, uint64_t first, void *buffer,
                           const sp_chunk_look *look, sp_error *error)
{
    job *one = &writer->jobs[0];
    one->source = source;
    one->first = first;
    one->raw = buffer;
    one->look = look;
    make_chunk(writer, writer->coder, writer->raw, one);
    one->raw = NULL;
    sp_chunk_writer_drop(writer, buffer);
    return write_chunk(one, error);
}

sp_status sp_chunk_writer_put(sp_chunk_writer *writer, const sp_chunk_source *source, uint64_t first, void *buffer,
                              const sp_chunk_look *look, sp_error *error)
{
    if (source->contiguous) {
        if (look) look->run(look->context, buffer, piece_count(source, first));
        const sp_status status = write_plain(source, first, buffer, error);
        sp_chunk_writer_drop(writer, buffer);
        return status;
    }
    if (writer->worker_count == 0) return put_alone(writer, source, first, buffer, look, error);
    sp_status status = SP_OK;
    bool done = false;
    pthread_mutex_lock(&writer->lock);
    job *next = find_job(writer, JOB_FREE);
    pthread_mutex_unlock(&writer->lock);
    while (next == NULL && status == SP_OK) {
        status = write_next(writer, &done, error);
        pthread_mutex_lock(&writer->lock);
        next = find_job(writer, JOB_FREE);
        pthread_mutex_unlock(&writer->lock);
    }
    if (status != SP_OK) {
        sp_chunk_writer_drop(writer, buffer);
        return status;
    }
    pthread_mutex_lock(&writer->lock);
    next->source = source;
    next->first = first;
    next->raw = buffer;
    next->look = look;
    next->order = writer->put++;
    next->state = JOB_WAITING;
    pthread_cond_signal(&writer->queued);
    pthread_mutex_unlock(&writer->lock);
    return SP_OK;
}

sp_status sp_chunk_writer_drain(sp_chunk_writer *writer, sp_error *error)
{
    sp_status status = SP_OK;
    bool done = writer->worker_count == 0;
    while (status == SP_OK && !done) status = write_next(writer, &done, error);
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
            status = sp_chunk_writer_put(writer, &sources[i], first, NULL, NULL, error);
        }
    }
    return sp_chunk_writer_finish(writer, status, error);
}
