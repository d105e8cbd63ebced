/*
 * overhead.c - calls are recorded once more, into memory that is thrown away, by the code that records, and timed. The result is never more
 * than what a call of the run has cost: of several rounds the fastest counts, in memory that is warm, and what every way to a
 * call has in common: a decorated function adds 1 to 5 ns to it, a `with` statement 20 to 30, most of them the interpreter's. Nothing of it is in
 * any run: the thread's log is exchanged for one of our own meanwhile, and no other code runs on the thread in between.
 *
 * A call of a function that is traced costs several times as much, since the interpreter tells of it first: such calls are counted apart, by
 * what tracing adds to the call of a function.
 */
#include "python/overhead.h"

#include <stdlib.h>
#include <string.h>

#include "python/function_tracer.h"
#include "python/recorder.h"

enum { CALLS = 128, ROUNDS = 12 }; /* as many calls as `program` makes */

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

/* -- functions that are traced: what a call takes more than one that is not -- */

#ifndef Py_GIL_DISABLED

/* The calls are the interpreter's own, from function to function: before 3.12 it takes another way with them while it is traced. */
static const char program[] = "def traced(): pass\n"
                              "def bare(): pass\n"
                              "def call_traced(numbers):\n"
                              "    for _ in numbers: traced()\n"
                              "def call_bare(numbers):\n"
                              "    for _ in numbers: bare()\n"
                              "numbers = range(128)\n";

/* ns that the function of this name takes for its calls; -1 with an exception. */
static int64_t time_calls(PyObject *names, const char *name)
{
    PyObject *function = PyDict_GetItemString(names, name), *numbers = PyDict_GetItemString(names, "numbers");
    const int64_t start = sp_clock_ns();
    PyObject *result = function && numbers ? PyObject_CallOneArg(function, numbers) : NULL;
    const int64_t end = sp_clock_ns();
    Py_XDECREF(result);
    return result ? end - start : -1;
}

/* 0, or -1 with an exception. *ns is left if tracing costs nothing that can be seen. */
static int time_functions(scratch *s, PyObject *names, double *ns)
{
    int64_t best = INT64_MAX, without = INT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        atomic_store_explicit(&s->log.next, s->slots, memory_order_relaxed);
        const int64_t with_it = time_calls(names, "call_traced");
        const int heard = sp_function_tracer_hear(0);
        const int64_t without_it = time_calls(names, "call_bare");
        sp_function_tracer_hear(heard);
        if (with_it < 0 || without_it < 0) return -1;
        if (with_it < best) best = with_it;
        if (without_it < without) without = without_it;
    }
    if (best > without && (double)(best - without) / CALLS > *ns) *ns = (double)(best - without) / CALLS;
    return 0;
}

/* The scratch log is the thread's. Where functions cannot be traced any more, *ns stays what it is for regions. */
static void measure_functions(scratch *s, const sp_run *run, sp_recorder_object *recorder, double *ns)
{
    PyObject *names = Py_BuildValue("{ss}", "__name__", "scope_profiler.overhead"); /* no other run traces what is in this package */
    PyObject *code = names ? Py_CompileString(program, "overhead", Py_file_input) : NULL;
    PyObject *done = code ? PyEval_EvalCode(code, names, names) : NULL;
    PyObject *traced = done ? PyDict_GetItemString(names, "traced") : NULL, *bare = done ? PyDict_GetItemString(names, "bare") : NULL;
    if (traced && bare && sp_function_tracer_probe(recorder, SCRATCH_TOKEN, 0, run->tracks_tasks, traced, bare) == 0) {
        const sp_trace_mode before = sp_trace_mode_set(SP_TRACE_ON);
        if (time_functions(s, names, ns) < 0) PyErr_Clear();
        sp_trace_mode_set(before);
        sp_function_tracer_stop(recorder);
    }
    PyErr_Clear();
    Py_XDECREF(done);
    Py_XDECREF(code);
    Py_XDECREF(names);
}

#else

static void measure_functions(scratch *s, const sp_run *run, sp_recorder_object *recorder, double *ns)
{
    /* Tracers are started and stopped for whole runs here. What the hook does is counted, the interpreter's part is not. */
}

#endif

/* Of a call of a region, and of a function that is traced if there are any. 0, or -1 with an exception. */
static int measure(const sp_run *run, bool functions, double *ns, double *function_ns)
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
        *ns = *function_ns = fastest(s);
        if (functions) measure_functions(s, run, (sp_recorder_object *)recorder, function_ns);
        thread->hot = kept;
        atomic_store(&((sp_recorder_object *)recorder)->gate.token, 0);
        Py_DECREF((PyObject *)s->region);
    }
    /* A recorder and its regions hold each other: without this they would wait for the garbage collector. */
    if (recorder) PyDict_Clear(((sp_recorder_object *)recorder)->regions);
    Py_XDECREF(recorder);
    free(s);
    return ready ? 0 : -1;
}

PyObject *sp_run_overhead(PyObject *self, PyObject *none)
{
    sp_run *run = ((sp_run_object *)self)->run;
    size_t count = 0;
    uint64_t *entries = sp_run_all_entries(run, &count), calls = 0, functions = 0;
    if (entries == NULL) return PyErr_NoMemory();
    pthread_mutex_lock(&run->lock);
    for (size_t i = 0; i < count; i++) {
        calls += entries[i];
        if (run->regions[i]->function) functions += entries[i];
    }
    pthread_mutex_unlock(&run->lock);
    free(entries);
    double ns = 0, function_ns = 0;
    if (measure(run, functions > 0, &ns, &function_ns) < 0) return NULL;
    if (functions) ns += (function_ns - ns) * ((double)functions / (double)calls);
    return Py_BuildValue("Kd", (unsigned long long)calls, ns);
}
