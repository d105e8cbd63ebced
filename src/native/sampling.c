/*
 * sampling.c - one timer of the process counts its processor time, and its signal comes to a thread that runs. The handler
 * notes where that thread is and which region it has open: no lock, no allocation, in memory that is there beforehand.
 */
#include "native/sampling.h"

#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include "formats/native_trace.h"
#include "platform/platform.h"

#define MAX_SAMPLES ((size_t)1 << 20)
#define MAX_HZ 1000000

typedef struct raw_sample {
    const sp_native_region *region; /* regions stay where they are for as long as their profiler */
    uint64_t address;
} raw_sample;

static pthread_mutex_t sampling_lock = PTHREAD_MUTEX_INITIALIZER; /* of all but the counts; inside a profiler's lock */
static const sp_profiler *_Atomic sampled; /* whose samples these are */
static bool running;
static int rate;
static struct sigaction handler_before;
static raw_sample *_Atomic samples;
static _Atomic(size_t) taken; /* may pass MAX_SAMPLES: ticks of the timer */

static uint64_t address_of(const void *context)
{
    const ucontext_t *state = context;
#if defined(__x86_64__)
    return (uint64_t)state->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return state->uc_mcontext.pc;
#else
    (void)state;
    return 0;
#endif
}

/* The innermost open region of the interrupted thread. Its stack may be on its way to a larger place: then none. */
static const sp_native_region *open_region(void)
{
    const sp_thread *thread = sp_this_thread;
    if (thread == NULL) return NULL;
    const volatile sp_call_stack *stack = &thread->named;
    const uintptr_t top = (uintptr_t)stack->top, base = (uintptr_t)stack->base, limit = (uintptr_t)stack->limit;
    if (top <= base || top > limit) return NULL;
    const sp_named_call *call = (const sp_named_call *)top - 1;
    const sp_profiler *profiler = atomic_load_explicit(&sampled, memory_order_relaxed);
    if (profiler == NULL || call->owner != profiler) return NULL;
    /* Of an earlier run, in which it never ended. */
    if (call->log->token != __atomic_load_n(&profiler->head.live, __ATOMIC_RELAXED)) return NULL;
    return sp_native_region_at(call->owner, (uint32_t)call->handle);
}

static void on_tick(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    raw_sample *into = atomic_load_explicit(&samples, memory_order_acquire);
    const size_t at = atomic_fetch_add_explicit(&taken, 1, memory_order_relaxed);
    if (into == NULL || at >= MAX_SAMPLES) return;
    into[at].region = open_region();
    into[at].address = address_of(context);
}

static void set_timer(int hz)
{
    struct itimerval timer = {{0, 0}, {0, 0}};
    if (hz) timer.it_interval.tv_usec = hz == 1 ? 0 : 1000000 / hz;
    if (hz == 1) timer.it_interval.tv_sec = 1;
    timer.it_value = timer.it_interval;
    (void)setitimer(ITIMER_PROF, &timer, NULL);
}

/* With the lock held. */
static void stop(void)
{
    if (!running) return;
    set_timer(0);
    /* A signal may be on its way: ignored, it does no harm. */
    if (handler_before.sa_handler == SIG_DFL && !(handler_before.sa_flags & SA_SIGINFO)) handler_before.sa_handler = SIG_IGN;
    (void)sigaction(SIGPROF, &handler_before, NULL);
    running = false;
}

static int start(const sp_profiler *profiler, int hz)
{
    if (running && sampled != profiler) return SP_ERR_BUSY;
    if (atomic_load(&samples) == NULL) {
        raw_sample *memory = sp_platform_map(MAX_SAMPLES * sizeof *memory);
        if (memory == NULL) return SP_ERR_NO_MEMORY;
        atomic_store_explicit(&samples, memory, memory_order_release);
    }
    if (sampled != profiler) atomic_store(&taken, 0);
    sampled = profiler;
    rate = hz;
    if (!running) {
        struct sigaction action = {.sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART};
        sigemptyset(&action.sa_mask);
        if (sigaction(SIGPROF, &action, &handler_before) != 0) return SP_ERR_UNSUPPORTED;
        running = true;
    }
    set_timer(hz);
    return SP_OK;
}

int sp_native_start_sampling(sp_profiler *profiler, int hz)
{
    if (profiler->shared) profiler = profiler->shared;
    sp_native_lock(profiler);
    int status = SP_OK;
    if (profiler->run == NULL || profiler->inherited) status = SP_ERR_INACTIVE;
    else if (profiler->joined || hz < 1 || hz > MAX_HZ) status = SP_ERR_UNSUPPORTED;
    if (status == SP_OK) {
        pthread_mutex_lock(&sampling_lock);
        status = start(profiler, hz);
        pthread_mutex_unlock(&sampling_lock);
    }
    sp_native_fail(profiler, (sp_status)status, NULL);
    sp_native_unlock(profiler);
    return status;
}

int sp_native_stop_sampling(sp_profiler *profiler)
{
    if (profiler->shared) profiler = profiler->shared;
    pthread_mutex_lock(&sampling_lock);
    if (sampled == profiler) stop();
    pthread_mutex_unlock(&sampling_lock);
    return SP_OK;
}

/* ---- the file ---- */

typedef struct module_search {
    sp_samples *out;
    const raw_sample *raw;
    bool enough;
    bool first;
} module_search;

static char *program_path(void)
{
    char path[4096];
    const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    path[size > 0 ? size : 0] = '\0';
    return strdup(path);
}

/* Samples with an address in this module get its number; it is listed if there are any. */
static int match_module(struct dl_phdr_info *info, size_t size, void *with)
{
    module_search *search = with;
    sp_samples *out = search->out;
    const bool program = search->first;
    (void)size;
    search->first = false;
    bool used = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD) continue;
        const uint64_t from = info->dlpi_addr + part->p_vaddr, to = from + part->p_memsz;
        for (size_t k = 0; k < out->sample_count; k++) {
            if (search->raw[k].address < from || search->raw[k].address >= to) continue;
            out->samples[k].module = (int32_t)out->module_count;
            used = true;
        }
    }
    if (!used) return 0;
    char **modules = realloc(out->modules, (out->module_count + 1) * sizeof *modules);
    if (modules) out->modules = modules;
    uint64_t *bases = realloc(out->bases, (out->module_count + 1) * sizeof *bases);
    if (bases) out->bases = bases;
    char *path = program ? program_path() : strdup(info->dlpi_name);
    search->enough = modules && bases && path;
    if (!search->enough) {
        free(path);
        return 1;
    }
    modules[out->module_count] = path;
    bases[out->module_count++] = info->dlpi_addr;
    return 0;
}

static bool name_regions(const sp_profiler *profiler, sp_samples *out, const raw_sample *raw)
{
    const uint32_t count = atomic_load(&profiler->region_count);
    out->regions = calloc((size_t)count + 1, sizeof *out->regions);
    if (out->regions == NULL) return false;
    for (uint32_t i = 0; i < count; i++) {
        out->regions[i] = strdup(sp_native_region_at(profiler, i)->name);
        if (out->regions[i] == NULL) return false;
        out->region_count++;
    }
    for (size_t k = 0; k < out->sample_count; k++) {
        out->samples[k].region = raw[k].region ? sp_native_find_region(profiler, raw[k].region->name) : -1;
        out->samples[k].module = -1;
        out->samples[k].address = raw[k].address;
    }
    return true;
}

/* With the lock held. */
static sp_status write_samples(const sp_profiler *profiler, sp_error *error)
{
    const size_t ticks = atomic_load(&taken), count = ticks < MAX_SAMPLES ? ticks : MAX_SAMPLES;
    const raw_sample *raw = atomic_load(&samples);
    sp_samples out = {.rank = profiler->rank, .hz = rate, .ticks = (int64_t)ticks, .sample_count = count};
    module_search search = {.out = &out, .raw = raw, .enough = true, .first = true};
    sp_status status = SP_ERR_NO_MEMORY;
    char *path = malloc(strlen(profiler->output) + sizeof ".sps");
    out.samples = calloc(count ? count : 1, sizeof *out.samples);
    if (path && out.samples && name_regions(profiler, &out, raw)) {
        dl_iterate_phdr(match_module, &search);
        sprintf(path, "%s.sps", profiler->output);
        if (search.enough) status = sp_sps_write(&out, path, error);
    }
    if (status == SP_ERR_NO_MEMORY) sp_fail(error, status, "no memory to write the samples");
    free(path);
    sp_samples_free(&out);
    return status;
}

static void forget(void)
{
    sampled = NULL;
    atomic_store(&taken, 0);
}

sp_status sp_native_write_samples(sp_profiler *profiler, sp_error *error)
{
    sp_status status = SP_OK;
    pthread_mutex_lock(&sampling_lock);
    if (sampled == profiler) {
        stop();
        status = write_samples(profiler, error);
        if (status == SP_OK) forget();
    }
    pthread_mutex_unlock(&sampling_lock);
    return status;
}

void sp_native_drop_samples(const sp_profiler *profiler)
{
    pthread_mutex_lock(&sampling_lock);
    if (sampled == profiler) {
        stop();
        forget();
    }
    pthread_mutex_unlock(&sampling_lock);
}
