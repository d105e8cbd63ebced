#include "formats/hdf5_chunks.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hdf5_library.h"

#define WORKERS_MAX 4
#define SLOTS_MAX (WORKERS_MAX + 2)

/* An encoded chunk on its way to the file. Its worker owns it until `ready`, then the caller until `task` moves on. */
typedef struct slot {
    uint64_t task;
    bool ready;
    void *data;
    size_t size;
    uint32_t skipped;
    sp_status status;
} slot;

typedef struct chunk_writer {
    const sp_chunk_source *sources;
    size_t source_count;
    const sp_pipeline *filters;
    size_t largest; /* bytes of the largest chunk */
    uint64_t task_count;

    pthread_mutex_t lock;
    pthread_cond_t made, taken;
    uint64_t next_task, written; /* tasks below `written` are done with */
    bool stopped;
    unsigned slot_count;
    slot slots[SLOTS_MAX];
} chunk_writer;

static uint64_t chunks_of(const sp_chunk_source *source)
{
    return source->count / source->chunk + (source->count % source->chunk != 0);
}

/* The source of a task, and the first element of its chunk. */
static const sp_chunk_source *find_task(const chunk_writer *writer, uint64_t task, uint64_t *first)
{
    const sp_chunk_source *source = writer->sources;
    for (; task >= chunks_of(source); source++) task -= chunks_of(source);
    *first = task * source->chunk;
    return source;
}

/* Make a chunk: its elements, zeros up to the chunk's size, and the filters over it. */
static void make_chunk(const chunk_writer *writer, uint64_t task, sp_coder *coder, void *raw, slot *out)
{
    uint64_t first;
    const sp_chunk_source *source = find_task(writer, task, &first);
    const uint64_t left = source->count - first, count = left < source->chunk ? left : source->chunk;
    const size_t bytes = (size_t)source->chunk * source->element, used = (size_t)count * source->element;
    sp_pipeline pipeline = *writer->filters;
    pipeline.element = source->element;
    source->fill(source->context, first, count, raw);
    memset((char *)raw + used, 0, bytes - used);
    out->status = sp_chunk_encode(coder, &pipeline, raw, bytes, out->data, &out->size, &out->skipped);
}

/* Write an encoded chunk where it belongs. */
static sp_status write_chunk(const chunk_writer *writer, const slot *made, sp_error *error)
{
    uint64_t first;
    char reason[300];
    const sp_chunk_source *source = find_task(writer, made->task, &first);
    if (made->status != SP_OK) return sp_fail(error, made->status, "cannot compress %s", source->name);
    const hsize_t offset = first;
    if (H5Dwrite_chunk(source->dataset, H5P_DEFAULT, made->skipped, &offset, made->size, made->data) >= 0) return SP_OK;
    return sp_fail(error, SP_ERR_IO, "cannot write %s: %s", source->name, sp_hdf5_reason(reason, sizeof reason));
}

/* -- workers -- */

/* The next task whose slot is free, or task_count when there is none left. */
static uint64_t take_task(chunk_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    const uint64_t task = writer->next_task++;
    while (!writer->stopped && task < writer->task_count && task >= writer->written + writer->slot_count) {
        pthread_cond_wait(&writer->taken, &writer->lock);
    }
    const bool none = writer->stopped || task >= writer->task_count;
    pthread_mutex_unlock(&writer->lock);
    return none ? writer->task_count : task;
}

static void *work(void *argument)
{
    chunk_writer *writer = argument;
    sp_coder *coder = sp_coder_new();
    void *raw = malloc(writer->largest);
    for (;;) {
        const uint64_t task = take_task(writer);
        if (task == writer->task_count) break;
        slot *mine = &writer->slots[task % writer->slot_count];
        if (coder && raw) make_chunk(writer, task, coder, raw, mine);
        else mine->status = SP_ERR_NO_MEMORY;
        pthread_mutex_lock(&writer->lock);
        mine->task = task;
        mine->ready = true;
        pthread_cond_signal(&writer->made);
        pthread_mutex_unlock(&writer->lock);
    }
    sp_coder_free(coder);
    free(raw);
    return NULL;
}

/* Write what the workers make, in order. */
static sp_status drain(chunk_writer *writer, sp_error *error)
{
    sp_status status = SP_OK;
    for (uint64_t task = 0; task < writer->task_count && status == SP_OK; task++) {
        slot *next = &writer->slots[task % writer->slot_count];
        pthread_mutex_lock(&writer->lock);
        while (!next->ready) pthread_cond_wait(&writer->made, &writer->lock);
        pthread_mutex_unlock(&writer->lock);
        status = write_chunk(writer, next, error);
        pthread_mutex_lock(&writer->lock);
        next->ready = false;
        writer->written = task + 1;
        pthread_cond_broadcast(&writer->taken);
        pthread_mutex_unlock(&writer->lock);
    }
    return status;
}

static unsigned worker_count(const chunk_writer *writer)
{
    cpu_set_t set;
    const int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    if (cpus < 2 || writer->task_count < 4) return 0;
    return cpus < WORKERS_MAX ? (unsigned)cpus : WORKERS_MAX;
}

/* Threads that no signal handler of the application runs on. Returns how many could be started. */
static unsigned start_workers(chunk_writer *writer, pthread_t *threads, unsigned wanted)
{
    sigset_t all, before;
    unsigned started = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < wanted && pthread_create(&threads[started], NULL, work, writer) == 0) started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static sp_status write_alone(chunk_writer *writer, sp_error *error)
{
    sp_coder *coder = sp_coder_new();
    void *raw = malloc(writer->largest);
    sp_status status = coder && raw ? SP_OK : SP_ERR_NO_MEMORY;
    for (uint64_t task = 0; task < writer->task_count && status == SP_OK; task++) {
        writer->slots[0].task = task;
        make_chunk(writer, task, coder, raw, &writer->slots[0]);
        status = write_chunk(writer, &writer->slots[0], error);
    }
    sp_coder_free(coder);
    free(raw);
    return status;
}

static sp_status write_together(chunk_writer *writer, unsigned workers, sp_error *error)
{
    pthread_t threads[WORKERS_MAX];
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->made, NULL);
    pthread_cond_init(&writer->taken, NULL);
    workers = start_workers(writer, threads, workers);
    const sp_status status = workers ? drain(writer, error) : write_alone(writer, error);
    pthread_mutex_lock(&writer->lock);
    writer->stopped = true;
    pthread_cond_broadcast(&writer->taken);
    pthread_mutex_unlock(&writer->lock);
    for (unsigned i = 0; i < workers; i++) pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&writer->lock);
    pthread_cond_destroy(&writer->made);
    pthread_cond_destroy(&writer->taken);
    return status;
}

sp_status sp_hdf5_write_chunks(const sp_chunk_source *sources, size_t count, const sp_pipeline *filters,
                               sp_error *error)
{
    chunk_writer writer = {.sources = sources, .source_count = count, .filters = filters};
    for (size_t i = 0; i < count; i++) {
        const size_t bytes = (size_t)sources[i].chunk * sources[i].element;
        if (bytes > writer.largest) writer.largest = bytes;
        writer.task_count += chunks_of(&sources[i]);
    }
    if (writer.task_count == 0) return SP_OK;
    const unsigned workers = worker_count(&writer);
    writer.slot_count = workers ? workers + 2 : 1;
    sp_status status = SP_OK;
    for (unsigned i = 0; i < writer.slot_count; i++) {
        writer.slots[i].data = malloc(sp_encoded_bound(writer.largest));
        if (writer.slots[i].data == NULL) status = SP_ERR_NO_MEMORY;
    }
    if (status == SP_OK) {
        status = workers ? write_together(&writer, workers, error) : write_alone(&writer, error);
    }
    for (unsigned i = 0; i < writer.slot_count; i++) free(writer.slots[i].data);
    return status;
}
