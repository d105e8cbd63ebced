/*
 * overhead.c - calls are recorded once more, into memory that is thrown away, by the code that records, and timed. The result is never more
 * than what a call of the run has cost: of several rounds the fastest counts, in memory that is warm, and what every way to a
 * call has in common: a decorated function adds 1 to 5 ns to it, a `with` statement 20 to 30, most of them the interpreter's. Nothing of it is in
 * any run: the thread's log is exchanged for one of our own meanwhile, and no other code runs on the thread in between.
 */
#include "python/overhead.h"

#include <stdlib.h>
#include <string.h>

#include "python/recorder.h"

enum { CALLS = 128, ROUNDS = 12 };

/* No run has this token: they count from 1, and would come here after four billions. */
#define SCRATCH_TOKEN UINT32_MAX

typedef struct scratch {
    sp_log log;
    sp_task lane; /* of a log that follows tasks: without one it would be asked for the task that runs */
    sp_region_object *region;
    _Alignas(64) char slots[CALLS * sizeof(sp_async_slot)];
} scratch;

/* Memory and a region that record into nothing; false with an exception set. */
static bool prepare(scratch *s, const sp_run *run, sp_recorder_object *recorder)
{
    memset(s, 0, sizeof *s);
    s->log.token = SCRATCH_TOKEN;
    /* A run that keeps sums costs what one that keeps calls does, and a little more (totals.h). */
    s->log.stride = run->sums ? sizeof(sp_slot) : run->stride;
    s->log.limit = s->slots + sizeof s->slots;
    s->log.lane = s->log.stride == sizeof(sp_slot) ? NULL : &s->lane;
    s->log.lane_index = s->log.lane ? 0 : SP_NO_TASK;
    s->log.anchor_due = UINT64_MAX;
    PyObject *name = PyUnicode_FromString("overhead");
    s->region = name ? (sp_region_object *)sp_recorder_region((PyObject *)recorder, name, NULL, NULL, -1, NULL) : NULL;
    Py_XDECREF(name);
    if (s->region == NULL) return false;
    atomic_store(&s->region->binding, (uint64_t)SCRATCH_TOKEN << 32);
    atomic_store(&recorder->gate.token, SCRATCH_TOKEN);
    return true;
}

/* ns of one call by the fastest round; reading the clock around them is not counted. */
static double fastest(scratch *s)
{
    int64_t best = INT64_MAX, reading = INT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        atomic_store_explicit(&s->log.next, s->slots, memory_order_relaxed);
        const int64_t before = sp_clock_ns();
        const int64_t start = sp_clock_ns();
        for (int i = 0; i < CALLS; i++) {
            sp_open open;
            sp_region_enter(s->region, &open);
            sp_region_exit(&open);
        }
        const int64_t end = sp_clock_ns();
        if (start - before < reading) reading = start - before;
        if (end - start < best) best = end - start;
    }
    return best > reading ? (double)(best - reading) / CALLS : 0;
}

/* 0, or -1 with an exception. */
static int measure(const sp_run *run, double *ns)
{
    sp_thread *thread = sp_thread_current();
    scratch *s = thread ? aligned_alloc(64, (sizeof *s + 63) / 64 * 64) : NULL;
    if (s == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    PyObject *recorder = PyObject_CallNoArgs((PyObject *)sp_recorder_type);
    const bool ready = recorder && prepare(s, run, (sp_recorder_object *)recorder);
    if (ready) {
        sp_log *const kept = thread->hot;
        thread->hot = &s->log;
        *ns = fastest(s);
        thread->hot = kept;
        atomic_store(&((sp_recorder_object *)recorder)->gate.token, 0);
        Py_DECREF((PyObject *)s->region);
    }
    Py_XDECREF(recorder);
    free(s);
    return ready ? 0 : -1;
}

PyObject *sp_run_overhead(PyObject *self, PyObject *none)
{
    sp_run *run = ((sp_run_object *)self)->run;
    size_t count = 0;
    uint64_t *entries = sp_run_all_entries(run, &count), calls = 0;
    if (entries == NULL) return PyErr_NoMemory();
    for (size_t i = 0; i < count; i++) calls += entries[i];
    free(entries);
    double ns = 0;
    if (measure(run, &ns) < 0) return NULL;
    return Py_BuildValue("Kd", (unsigned long long)calls, ns);
}
