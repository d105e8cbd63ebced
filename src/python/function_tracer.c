#include "python/function_tracer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/probe.h"
#include "core/totals.h"
#include "python/delegate.h"

#include <frameobject.h>

#define HAS_MONITORING (PY_VERSION_HEX >= 0x030c0000)

#if PY_VERSION_HEX >= 0x030c0000
#define REQUEST_EXTRA PyUnstable_Eval_RequestCodeExtraIndex
#define GET_EXTRA PyUnstable_Code_GetExtra
#define SET_EXTRA PyUnstable_Code_SetExtra
#else
#define REQUEST_EXTRA _PyEval_RequestCodeExtraIndex
#define GET_EXTRA _PyCode_GetExtra
#define SET_EXTRA _PyCode_SetExtra
#endif

struct sp_function_tracer {
    _Atomic(sp_function_tracer *) next; /* stays when it has stopped: a thread may come from it to those behind it */
    sp_function_tracer *next_resting;
    sp_recorder_object *recorder; /* borrowed: it stops its tracer before it goes */
    const sp_switch *gate;        /* of it */
    uint64_t token;               /* of its run */
    uint64_t number;              /* of the tracer: what notes on code objects are made for */
    PyObject *chooser;            /* or NULL; without the GIL under the lock of the notes */
#ifdef Py_GIL_DISABLED
    PyObject *weak_recorder;      /* a hook may be about to use it when it goes */
#endif
    _Atomic(bool) everywhere;
    bool follows_tasks;
    bool probes;  /* only what its notes say */
    _Atomic(bool) stopped; /* it is at work no more, and in the list of those that rest */
    uint64_t last_thread; /* the newest thread when it began: later ones are traced from their first call */
};

/* Those that are at work, for the hooks. Changed with the GIL; without one, under a lock, and never freed while a hook may read it. */
static _Atomic(sp_function_tracer *) tracers;

/* Without the GIL the notes of code objects have this lock. */
#ifdef Py_GIL_DISABLED
static pthread_mutex_t notes_lock = PTHREAD_MUTEX_INITIALIZER;
#define LOCK_NOTES() sp_python_lock(&notes_lock)
#define UNLOCK_NOTES() pthread_mutex_unlock(&notes_lock)
#else
#define LOCK_NOTES() ((void)0)
#define UNLOCK_NOTES() ((void)0)
#endif

void sp_function_tracer_forked(void)
{
#ifdef Py_GIL_DISABLED
    notes_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
#endif
}

/* Threads inside of started(): what it calls may let another thread stop a tracer, which must stay until all are out. */
#ifndef Py_GIL_DISABLED
static size_t inside;
#define COME_IN() (inside++)
#define GO_OUT() (inside--)
#else
#define COME_IN() ((void)0)
#define GO_OUT() ((void)0)
#endif

/* ---- code objects ---- */

/* What a run thinks of a code object; a list hangs on the code object and dies with it. */
typedef struct code_note {
    struct code_note *next;
    uint64_t tracer; /* its number; 0: `owner` has it decorated */
    const void *owner;
    uint32_t region; /* SP_REGION_OFF: not traced */
} code_note;

static Py_ssize_t extra_index;

static void notes_free(void *extra)
{
    for (code_note *note = extra, *next; note; note = next) {
        next = note->next;
        free(note);
    }
}

/*
 * Where the interpreter keeps what extensions note on code objects: one load less than a call that checks everything again. Not without
 * the GIL; and only if it is found to be there (find_extra).
 */
#ifndef Py_GIL_DISABLED
typedef struct code_extra {
    Py_ssize_t size;
    void *extras[];
} code_extra;
static bool extra_is_known;
#endif

static inline code_note *notes_of(PyObject *code)
{
#ifndef Py_GIL_DISABLED
    if (SP_LIKELY(extra_is_known)) {
        const code_extra *known = ((PyCodeObject *)code)->co_extra;
        return known && extra_index < known->size ? known->extras[extra_index] : NULL;
    }
#endif
    void *extra = NULL;
    if (GET_EXTRA(code, extra_index, &extra) < 0) PyErr_Clear();
    return extra;
}

static bool is_at_work(uint64_t number)
{
    const sp_function_tracer *tracer = tracers;
    while (tracer && tracer->number != number) tracer = tracer->next;
    return tracer != NULL;
}

/* Note it in the place of one of a tracer that is gone, if there is one. Failures are not told: the code is asked about again then. */
static void note_put(PyObject *code, uint64_t tracer, const void *owner, uint32_t region)
{
    LOCK_NOTES();
    code_note *first = notes_of(code), *note = first;
    while (note && (note->tracer == 0 || is_at_work(note->tracer))) note = note->next;
    if (note == NULL) {
        note = calloc(1, sizeof *note);
        /* The first note stays: another in its place would have it freed. */
        if (note && first) {
            note->next = first->next;
            first->next = note;
        } else if (note && SET_EXTRA(code, extra_index, note) < 0) {
            PyErr_Clear();
            free(note);
            note = NULL;
        }
    }
    if (note) {
        note->owner = owner;
        note->region = region;
        note->tracer = tracer;
    }
    UNLOCK_NOTES();
}

static inline bool note_find(PyObject *code, uint64_t tracer, uint32_t *region)
{
    LOCK_NOTES();
    const code_note *note = notes_of(code);
    while (note && note->tracer != tracer) note = note->next;
    if (note) *region = note->region;
    UNLOCK_NOTES();
    return note != NULL;
}

static bool is_decorated(PyObject *code, const void *owner)
{
    LOCK_NOTES();
    const code_note *note = notes_of(code);
    while (note && !(note->tracer == 0 && note->owner == owner)) note = note->next;
    UNLOCK_NOTES();
    return note != NULL;
}

void sp_function_tracer_skip(PyObject *code, const sp_recorder_object *recorder)
{
    if (!is_decorated(code, recorder)) note_put(code, 0, recorder, SP_REGION_OFF);
}

/* ---- naming ---- */

static PyObject *module_of(PyFrameObject *frame)
{
    PyObject *globals = PyObject_GetAttrString((PyObject *)frame, "f_globals");
    PyObject *name = globals && PyDict_Check(globals) ? PyDict_GetItemString(globals, "__name__") : NULL;
    name = name && PyUnicode_Check(name) ? Py_NewRef(name) : PyUnicode_FromString("?");
    Py_XDECREF(globals);
    return name;
}

static PyObject *qualified_name(PyFrameObject *frame, PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030b0000
    (void)frame;
    return Py_NewRef(code->co_qualname);
#else
    /* Code objects do not know it yet: _source looks for the function that has this one. */
    PyObject *module = PyImport_ImportModule("scope_profiler._source");
    PyObject *name = module ? PyObject_CallMethod(module, "qualified_name", "OO", (PyObject *)code, (PyObject *)frame) : NULL;
    Py_XDECREF(module);
    if (name && PyUnicode_Check(name)) return name;
    PyErr_Clear();
    Py_XDECREF(name);
    return Py_NewRef(code->co_name);
#endif
}

static bool is_of_this_package(PyObject *module)
{
    const char *text = PyUnicode_AsUTF8(module);
    if (text == NULL) return false;
    const size_t size = strlen("scope_profiler");
    return strncmp(text, "scope_profiler", size) == 0 && (text[size] == '\0' || text[size] == '.');
}

/* The region's name, a new reference; NULL: not traced, or with an exception. */
static PyObject *choose_name(const sp_function_tracer *tracer, PyFrameObject *frame, PyCodeObject *code)
{
    PyObject *module = module_of(frame), *qualified = module ? qualified_name(frame, code) : NULL, *name = NULL;
    if (qualified && !is_of_this_package(module)) name = PyUnicode_FromFormat("%U.%U", module, qualified);
    LOCK_NOTES();
    PyObject *chooser = Py_XNewRef(tracer->chooser); /* it may be taken from the tracer while it runs */
    UNLOCK_NOTES();
    if (name && chooser) Py_SETREF(name, PyObject_CallFunction(chooser, "OO", name, code->co_filename));
    Py_XDECREF(chooser);
    if (name && !PyUnicode_Check(name)) Py_CLEAR(name);
    Py_XDECREF(qualified);
    Py_XDECREF(module);
    return name;
}

/* A new reference; NULL without an exception: it has gone. */
static PyObject *recorder_of(const sp_function_tracer *tracer)
{
#ifdef Py_GIL_DISABLED
    PyObject *recorder = NULL;
    if (PyWeakref_GetRef(tracer->weak_recorder, &recorder) < 0) PyErr_Clear();
    return recorder;
#else
    return Py_NewRef((PyObject *)tracer->recorder);
#endif
}

/* The first call of a code object in a run: which region it has. */
static SP_NOINLINE uint32_t decide(const sp_function_tracer *tracer, PyFrameObject *frame, PyObject *code)
{
    const int saved = errno;
    const sp_pending pending = sp_pending_take();
    const uint64_t token = tracer->token;
    uint32_t id = SP_REGION_OFF;
    if (tracer->probes) return id;
    PyCodeObject *object = (PyCodeObject *)code;
    PyObject *recorder = frame && !is_decorated(code, tracer->recorder) ? recorder_of(tracer) : NULL;
    if (recorder) {
        PyObject *name = choose_name(tracer, frame, object);
        PyObject *region = name ? sp_recorder_region(recorder, name, NULL, object->co_filename, object->co_firstlineno, NULL) : NULL;
        if (region) {
            id = sp_region_bind((sp_region_object *)region, token);
            sp_run_object *run = sp_recorder_current((sp_recorder_object *)recorder);
            if (run && id != SP_REGION_OFF && run->run->token == token) sp_run_mark_function(run->run, id);
            Py_XDECREF((PyObject *)run);
        }
        if (PyErr_Occurred()) PyErr_WriteUnraisable(code);
        Py_XDECREF(region);
        Py_XDECREF(name);
        Py_DECREF(recorder);
    }
    note_put(code, tracer->number, NULL, id);
    sp_pending_restore(pending);
    errno = saved;
    return id;
}

/* ---- frames of a thread ---- */

typedef struct open_frame {
    const void *frame; /* NULL: free */
    sp_open open;
} open_frame;

/*
 * Open calls by frame. Frames return in the reverse order of their starts, so a stack finds them at its top; those of greenlets that
 * were left, and of coroutines that wait, are set aside.
 */
typedef struct frame_table {
    size_t count, size;       /* the stack: slots[0 .. count) */
    size_t aside, aside_size; /* those set aside: open addressing in slots[size .. size + aside_size), a power of two */
    uint64_t generation;      /* of the tracers, when what is here was last looked through */
    sp_trace_mode mode;
    open_frame slots[];
} frame_table;

#define FIRST_FRAMES 64

/* Grows when a tracer goes: calls that it has open end no more. */
static _Atomic(uint64_t) generation;

static frame_table *table_new(size_t size, size_t aside_size)
{
    frame_table *table = calloc(1, sizeof *table + (size + aside_size) * sizeof(open_frame));
    if (table == NULL) return NULL;
    table->size = size;
    table->aside_size = aside_size;
    return table;
}

static inline frame_table *table_of(sp_thread *thread)
{
    if (SP_UNLIKELY(thread->frames == NULL)) thread->frames = table_new(FIRST_FRAMES, FIRST_FRAMES);
    return thread->frames;
}

static size_t place(const frame_table *table, const void *frame)
{
    return (size_t)(((uintptr_t)frame >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (table->aside_size - 1);
}

static void aside_add(frame_table *table, const open_frame *entry)
{
    open_frame *aside = table->slots + table->size;
    size_t at = place(table, entry->frame);
    while (aside[at].frame) at = (at + 1) & (table->aside_size - 1);
    aside[at] = *entry;
    table->aside++;
}

static SP_NOINLINE frame_table *table_grow(sp_thread *thread, size_t size, size_t aside_size)
{
    frame_table *old = thread->frames, *table = table_new(size, aside_size);
    if (table == NULL) return NULL;
    table->count = old->count;
    table->generation = old->generation;
    table->mode = old->mode;
    memcpy(table->slots, old->slots, old->count * sizeof *old->slots);
    for (size_t i = 0; i < old->aside_size; i++) {
        if (old->slots[old->size + i].frame) aside_add(table, &old->slots[old->size + i]);
    }
    thread->frames = table;
    free(old);
    return table;
}

/* NULL: no memory. */
static frame_table *aside_put(sp_thread *thread, const open_frame *entry)
{
    frame_table *table = thread->frames;
    const open_frame moved = *entry;
    if (table->aside * 2 >= table->aside_size) table = table_grow(thread, table->size, table->aside_size * 2);
    if (table) aside_add(table, &moved);
    return table;
}

/* Take a frame's entry out; those behind it move up, so that no search stops short of them. */
static bool aside_take(frame_table *table, const void *frame, open_frame *entry)
{
    if (table->aside == 0) return false;
    open_frame *aside = table->slots + table->size;
    const size_t mask = table->aside_size - 1;
    size_t hole = place(table, frame);
    while (aside[hole].frame && aside[hole].frame != frame) hole = (hole + 1) & mask;
    if (aside[hole].frame == NULL) return false;
    *entry = aside[hole];
    table->aside--;
    for (size_t next = (hole + 1) & mask; aside[next].frame; next = (next + 1) & mask) {
        if (((next - place(table, aside[next].frame)) & mask) < ((next - hole) & mask)) continue;
        aside[hole] = aside[next];
        hole = next;
    }
    aside[hole].frame = NULL;
    return true;
}

/* A call that never ended, as far as could be seen. */
static void abandon(const open_frame *entry)
{
    atomic_store_explicit(&entry->open.slot->end, SP_SLOT_ABANDONED, memory_order_release);
}

static bool is_traced(uint64_t token)
{
    const sp_function_tracer *tracer = tracers;
    while (tracer && tracer->token != token) tracer = tracer->next;
    return tracer != NULL;
}

/* A tracer has gone: its calls' frames may be others by now. */
static SP_NOINLINE void look_through(frame_table *table)
{
    size_t kept = 0;
    for (size_t i = 0; i < table->count; i++) {
        if (is_traced(table->slots[i].open.log->token)) table->slots[kept++] = table->slots[i];
        else abandon(&table->slots[i]);
    }
    table->count = kept;
    for (size_t i = 0; i < table->aside_size; i++) {
        open_frame entry = table->slots[table->size + i];
        if (entry.frame == NULL || is_traced(entry.open.log->token)) continue;
        aside_take(table, entry.frame, &entry);
        abandon(&entry);
        i--; /* another may have come into its place */
    }
    table->generation = generation;
}

sp_trace_mode sp_trace_mode_set(sp_trace_mode mode)
{
    sp_thread *thread = sp_thread_current();
    frame_table *table = thread ? table_of(thread) : NULL;
    if (table == NULL) return SP_TRACE_DEFAULT;
    const sp_trace_mode before = table->mode;
    table->mode = mode;
    return before;
}

/* ---- enter and exit ---- */

static uint64_t own_thread_number(void)
{
#if PY_VERSION_HEX >= 0x030d0000
    return PyThreadState_GetUnchecked()->id;
#else
    return _PyThreadState_UncheckedGet()->id;
#endif
}

/* Whether a region of the run is open on the calling thread, whose log this is. */
static SP_NOINLINE bool is_inside(sp_log *log)
{
    if (log->tally) return log->tally->stack->top != NULL || log->tally->waiting_count > 0;
    const char *next = atomic_load_explicit(&log->next, memory_order_relaxed);
    if (next == log->quiet_at) return false;
    const int saved = errno;
    pthread_mutex_lock(&log->run->lock);
    sp_log_scan(log);
    const bool open = log->scan_open_count > 0;
    pthread_mutex_unlock(&log->run->lock);
    errno = saved;
    log->quiet_at = open ? NULL : next;
    return open;
}

/* Whether a function of the log's run is open, or waits, on the calling thread: others' may be as well. */
static bool has_open(const frame_table *table, const sp_log *log)
{
    for (size_t i = table->count; i-- > 0;) {
        if (table->slots[i].open.log == log) return true;
    }
    const open_frame *aside = table->slots + table->size;
    for (size_t i = 0; table->aside > 0 && i < table->aside_size; i++) {
        if (aside[i].frame && aside[i].open.log == log) return true;
    }
    return false;
}

static SP_NOINLINE bool is_wanted_first(const sp_function_tracer *tracer, frame_table *table, sp_log *log)
{
    if (table->mode != SP_TRACE_DEFAULT) return table->mode == SP_TRACE_ON;
    if (!tracer->everywhere) return false;
    return own_thread_number() > tracer->last_thread || has_open(table, log) || is_inside(log);
}

static inline sp_slot *open_call(sp_log *log, uint32_t region)
{
    const bool unclear = log->lane == NULL && log->stride != sizeof(sp_slot);
    return SP_UNLIKELY(unclear) ? sp_region_enter_on_lane(log, region) : sp_log_enter(log, region);
}

static inline void enter(const sp_function_tracer *tracer, const void *frame, uint32_t region)
{
    if (SP_UNLIKELY(atomic_load_explicit(&tracer->gate->token, memory_order_acquire) != tracer->token)) return; /* paused */
    sp_log *log = sp_log_current(tracer->token);
    if (SP_UNLIKELY(log == NULL || sp_log_in_probe(log))) return;
    sp_thread *thread = sp_this_thread;
    frame_table *table = table_of(thread);
    if (SP_UNLIKELY(table == NULL)) return;
    if (SP_UNLIKELY(table->generation != generation)) look_through(table);
    const bool in_own = table->count > 0 && table->slots[table->count - 1].open.log == log;
    const bool nested = table->mode == SP_TRACE_ON || (table->mode == SP_TRACE_DEFAULT && in_own && tracer->everywhere);
    if (SP_UNLIKELY(!nested) && !is_wanted_first(tracer, table, log)) return;
    if (SP_UNLIKELY(table->count == table->size)) table = table_grow(thread, table->size * 2, table->aside_size);
    if (SP_UNLIKELY(table == NULL)) return;
    if (SP_UNLIKELY(table->aside > 0)) { /* what was set aside under this frame's address was another's */
        open_frame stale;
        if (aside_take(table, frame, &stale)) abandon(&stale);
    }
    sp_slot *slot = open_call(log, region);
    if (SP_UNLIKELY(slot == NULL)) return;
    table->slots[table->count++] = (open_frame){frame, {log, slot}};
}

/* A frame that is not on top: of those above it, each is a greenlet's or a waiting coroutine's. */
static SP_NOINLINE bool take_below(sp_thread *thread, const void *frame, open_frame *entry)
{
    frame_table *table = thread->frames;
    if (aside_take(table, frame, entry)) return true;
    size_t at = table->count;
    while (at > 0 && table->slots[at - 1].frame != frame) at--;
    if (at == 0) return false;
    *entry = table->slots[at - 1];
    for (size_t i = at; i < table->count; i++) {
        frame_table *grown = aside_put(thread, &table->slots[i]);
        if (grown) table = grown;
        else abandon(&table->slots[i]);
    }
    table->count = at - 1;
    return true;
}

/* False: nothing is known of the frame. */
static inline bool leave(const void *frame)
{
    sp_thread *thread = sp_this_thread;
    frame_table *table = thread ? thread->frames : NULL;
    if (SP_UNLIKELY(table == NULL)) return false;
    open_frame entry;
    bool found = false;
    for (;;) {
        if (SP_LIKELY(table->count > 0 && table->slots[table->count - 1].frame == frame)) entry.open = table->slots[--table->count].open;
        else if ((table->count == 0 && table->aside == 0) || found || !take_below(thread, frame, &entry)) return found;
        sp_region_exit(&entry.open);
        table = thread->frames;
        found = true;
    }
}

/* A coroutine's frame waits, or goes on. */
static void set_aside(const void *frame)
{
    sp_thread *thread = sp_this_thread;
    open_frame entry;
    if (thread == NULL || thread->frames == NULL || !take_below(thread, frame, &entry)) return;
    if (aside_put(thread, &entry) == NULL) abandon(&entry);
}

static bool take_up(const void *frame)
{
    sp_thread *thread = sp_this_thread;
    frame_table *table = thread ? thread->frames : NULL;
    open_frame entry;
    if (table == NULL || !aside_take(table, frame, &entry)) return false;
    if (table->count == table->size) table = table_grow(thread, table->size * 2, table->aside_size);
    if (table) table->slots[table->count++] = entry;
    else abandon(&entry);
    return true;
}

/* Whether a call lasts over suspensions: that of a coroutine, or of an asynchronous generator up to its next value, in a run that follows tasks. */
static inline bool spans_suspensions(const PyCodeObject *code)
{
    if (SP_LIKELY(!(code->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR)))) return false;
    const sp_function_tracer *first = tracers;
    return first && first->follows_tasks;
}

/* Whether what a frame hands out is the next value of an asynchronous generator, and no awaitable that it waits for. */
static bool is_next_value(const PyCodeObject *code, PyObject *value)
{
    return (code->co_flags & CO_ASYNC_GENERATOR) && strcmp(Py_TYPE(value)->tp_name, "async_generator_wrapped_value") == 0;
}

/* A frame begins to run. False: no run will ever want to hear of its code. */
static inline bool started(PyObject *code, const void *frame, PyFrameObject *(*object)(void *), void *with)
{
    bool wanted = false;
    COME_IN();
    const sp_function_tracer *const first = tracers;
    for (const sp_function_tracer *tracer = first; tracer; tracer = tracer->next) {
        uint32_t region;
        if (SP_UNLIKELY(!note_find(code, tracer->number, &region))) {
            if (tracer->stopped) continue;
            region = decide(tracer, object(with), code);
        }
        if (SP_UNLIKELY(tracer->stopped)) continue; /* meanwhile: its recorder may be gone */
        if (region == SP_REGION_OFF) continue;
        wanted = true;
        enter(tracer, frame, region);
    }
    GO_OUT();
    return wanted || tracers != first; /* a run that has begun meanwhile was not asked */
}

/* ---- sys.monitoring ---- */

#if HAS_MONITORING

/* Whether a run may want to hear of the code, as far as it has been asked about. */
static bool is_worth_it(PyObject *code)
{
    for (const sp_function_tracer *tracer = tracers; tracer; tracer = tracer->next) {
        uint32_t region;
        if (!note_find(code, tracer->number, &region) || region != SP_REGION_OFF) return true;
    }
    return false;
}

static PyObject *monitoring, *disable;
static int tool = -1;

static const void *frame_now(void)
{
#if PY_VERSION_HEX >= 0x030d0000
    return PyThreadState_GetUnchecked()->current_frame;
#else
    return _PyThreadState_UncheckedGet()->cframe->current_frame;
#endif
}

static PyFrameObject *frame_object(void *unused)
{
    (void)unused;
    return PyEval_GetFrame();
}

/* What a callback answers: DISABLE takes the event out of this code for good. */
static inline PyObject *answer(bool wanted)
{
    return Py_NewRef(wanted ? Py_None : disable);
}

static PyObject *on_start(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    return answer(started(arguments[0], frame_now(), frame_object, NULL));
}

static PyObject *on_resume(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    const void *frame = frame_now();
    const PyCodeObject *code = (PyCodeObject *)arguments[0];
    if (spans_suspensions(code)) {
        const bool known = take_up(frame);
        if (known || !(code->co_flags & CO_ASYNC_GENERATOR)) return answer(known || is_worth_it(arguments[0]));
    }
    return answer(started(arguments[0], frame, frame_object, NULL));
}

static PyObject *on_throw(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    const void *frame = frame_now();
    const PyCodeObject *code = (PyCodeObject *)arguments[0];
    const bool known = spans_suspensions(code) && (take_up(frame) || !(code->co_flags & CO_ASYNC_GENERATOR));
    if (!known) started(arguments[0], frame, frame_object, NULL);
    Py_RETURN_NONE;
}

static PyObject *on_return(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    return answer(leave(frame_now()) || is_worth_it(arguments[0]));
}

static PyObject *on_yield(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    const void *frame = frame_now();
    const PyCodeObject *code = (PyCodeObject *)arguments[0];
    if (!spans_suspensions(code) || is_next_value(code, arguments[2])) return answer(leave(frame) || is_worth_it(arguments[0]));
    set_aside(frame);
    return answer(is_worth_it(arguments[0]));
}

static PyObject *on_unwind(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    leave(frame_now());
    Py_RETURN_NONE;
}

#define CALLBACK(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL

static struct callback {
    const char *event;
    PyMethodDef method;
} callbacks[] = {
    {"PY_START", {"function_started", CALLBACK(on_start), NULL}},
    {"PY_RESUME", {"function_resumed", CALLBACK(on_resume), NULL}},
    {"PY_THROW", {"function_thrown_into", CALLBACK(on_throw), NULL}},
    {"PY_RETURN", {"function_returned", CALLBACK(on_return), NULL}},
    {"PY_YIELD", {"function_yielded", CALLBACK(on_yield), NULL}},
    {"PY_UNWIND", {"function_unwound", CALLBACK(on_unwind), NULL}},
};

static int call_monitoring(const char *name, const char *format, ...)
{
    va_list given;
    va_start(given, format);
    PyObject *arguments = Py_VaBuildValue(format, given);
    va_end(given);
    PyObject *function = arguments ? PyObject_GetAttrString(monitoring, name) : NULL;
    PyObject *done = function ? PyObject_CallObject(function, arguments) : NULL;
    Py_XDECREF(done);
    Py_XDECREF(function);
    Py_XDECREF(arguments);
    return done ? 0 : -1;
}

static int find_monitoring(void)
{
    if (monitoring) return 0;
    PyObject *found = PySys_GetObject("monitoring");
    if (found == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this interpreter has no sys.monitoring");
        return -1;
    }
    disable = PyObject_GetAttrString(found, "DISABLE");
    if (disable == NULL) return -1;
    monitoring = Py_NewRef(found);
    return 0;
}

/* A number for this package: those of debuggers, coverage tools and other profilers are left to them as long as there are others. */
static int take_tool(void)
{
    static const int order[] = {4, 3, 2, 1, 5, 0};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (call_monitoring("use_tool_id", "(is)", order[i], "scope_profiler") == 0) return order[i];
        if (!PyErr_ExceptionMatches(PyExc_ValueError)) return -1;
        PyErr_Clear();
    }
    PyErr_SetString(PyExc_RuntimeError, "recursive_profile needs a tool id of sys.monitoring, and other tools have all of them");
    return -1;
}

static int register_callbacks(void)
{
    long events = 0;
    PyObject *names = PyObject_GetAttrString(monitoring, "events");
    for (size_t i = 0; names && i < sizeof callbacks / sizeof *callbacks; i++) {
        PyObject *event = PyObject_GetAttrString(names, callbacks[i].event);
        PyObject *function = event ? PyCFunction_New(&callbacks[i].method, NULL) : NULL;
        const int failed = function ? call_monitoring("register_callback", "(iOO)", tool, event, function) : -1;
        if (event) events |= PyLong_AsLong(event);
        Py_XDECREF(function);
        Py_XDECREF(event);
        if (failed) Py_CLEAR(names);
    }
    if (names == NULL) return -1;
    Py_DECREF(names);
    return call_monitoring("set_events", "(il)", tool, events);
}

static void unhook(void)
{
    if (tool < 0) return;
    if (call_monitoring("set_events", "(ii)", tool, 0) < 0) PyErr_Clear();
    for (size_t i = 0; i < sizeof callbacks / sizeof *callbacks; i++) {
        PyObject *names = PyObject_GetAttrString(monitoring, "events");
        PyObject *event = names ? PyObject_GetAttrString(names, callbacks[i].event) : NULL;
        if (event == NULL || call_monitoring("register_callback", "(iOO)", tool, event, Py_None) < 0) PyErr_Clear();
        Py_XDECREF(event);
        Py_XDECREF(names);
    }
    if (call_monitoring("free_tool_id", "(i)", tool) < 0) PyErr_Clear();
    tool = -1;
}

/* Hear of events. A run that joins others wants to hear of code that they did not want. */
static int hook(void)
{
    if (find_monitoring() < 0) return -1;
    if (tool >= 0) return call_monitoring("restart_events", "()");
    tool = take_tool();
    if (tool < 0) return -1;
    if (register_callbacks() == 0 && call_monitoring("restart_events", "()") == 0) return 0;
    const sp_pending pending = sp_pending_take();
    unhook();
    sp_pending_restore(pending);
    return -1;
}

void sp_function_tracer_thread(const sp_run *run)
{
    (void)run; /* events come from all threads */
}

int sp_function_tracer_hear(int wanted)
{
    return wanted; /* code that no run traces tells nothing */
}

#else

/* ---- the profile hook of a thread ---- */

static PyTypeObject *hook_type;

/* What a thread has as its profile function's object; it holds the one that was there before. */
typedef struct thread_hook {
    PyObject_HEAD
    Py_tracefunc previous;
    PyObject *previous_object;
} thread_hook;

static PyFrameObject *frame_object(void *frame)
{
    return frame;
}

static bool is_suspending(PyFrameObject *frame)
{
#if PY_VERSION_HEX >= 0x030b0000
    PyObject *generator = PyFrame_GetGenerator(frame);
    const bool is = generator && ((PyGenObject *)generator)->gi_frame_state < 0; /* created or suspended */
    Py_XDECREF(generator);
    return is;
#else
    return frame->f_state == FRAME_SUSPENDED;
#endif
}

static void on_call(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    if (!spans_suspensions(code) || !take_up(frame)) started((PyObject *)code, frame, frame_object, frame);
    Py_DECREF(code);
}

static SP_NOINLINE bool set_aside_coroutine(PyFrameObject *frame, PyObject *value)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    const bool waits = spans_suspensions(code) && !is_next_value(code, value) && is_suspending(frame);
    Py_DECREF(code);
    if (waits) set_aside(frame);
    return waits;
}

static int on_event(PyObject *self, PyFrameObject *frame, int what, PyObject *value)
{
    /* Another thread may take the hook away meanwhile: it is read before. */
    const Py_tracefunc previous = ((thread_hook *)self)->previous;
    PyObject *object = SP_UNLIKELY(previous != NULL) ? Py_XNewRef(((thread_hook *)self)->previous_object) : NULL;
    if (what == PyTrace_CALL) {
        on_call(frame);
    } else if (what == PyTrace_RETURN) {
        const sp_function_tracer *first = tracers;
        const bool may_wait = value && first && first->follows_tasks;
        if (!may_wait || !set_aside_coroutine(frame, value)) leave(frame);
    }
    if (SP_LIKELY(previous == NULL)) return 0;
    const int code = previous(object, frame, what, value);
    Py_XDECREF(object);
    return code;
}

static void hook_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((thread_hook *)self)->previous_object);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot hook_slots[] = {
    {Py_tp_dealloc, hook_dealloc},
    {Py_tp_doc, "Hears of the functions that a thread calls."},
    {0, NULL},
};

static PyType_Spec hook_spec = {
    .name = "scope_profiler._core._FunctionHook",
    .basicsize = sizeof(thread_hook),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = hook_slots,
};

/* Of any thread: what sys.setprofile does for its own. */
static void set_profile(PyThreadState *state, Py_tracefunc function, PyObject *object)
{
    PyObject *before = state->c_profileobj;
    Py_XINCREF(object);
    state->c_profilefunc = NULL;
    state->c_profileobj = object;
    state->c_profilefunc = function;
#if PY_VERSION_HEX >= 0x030b0000
    state->cframe->use_tracing = state->c_tracefunc || function ? 255 : 0;
#else
    state->cframe->use_tracing = state->c_tracefunc || function;
#endif
    Py_XDECREF(before);
}

static int hook_thread(PyThreadState *state)
{
    if (state->c_profilefunc == on_event) return 0;
    thread_hook *made = PyObject_New(thread_hook, hook_type);
    if (made == NULL) return -1;
    made->previous = state->c_profilefunc;
    made->previous_object = Py_XNewRef(state->c_profileobj);
    set_profile(state, on_event, (PyObject *)made);
    Py_DECREF(made);
    return 0;
}

static PyThreadState *first_thread(void)
{
    return PyInterpreterState_ThreadHead(PyInterpreterState_Get());
}

static int hook(void)
{
    for (PyThreadState *state = first_thread(); state; state = PyThreadState_Next(state)) {
        if (hook_thread(state) < 0) return -1;
    }
    return 0;
}

/* Where somebody else's function is in the place of ours, it stays. */
static void unhook(void)
{
    for (PyThreadState *state = first_thread(); state; state = PyThreadState_Next(state)) {
        if (state->c_profilefunc != on_event) continue;
        thread_hook *ours = (thread_hook *)Py_NewRef(state->c_profileobj);
        set_profile(state, ours->previous, ours->previous_object);
        Py_DECREF(ours);
    }
}

int sp_function_tracer_hear(int wanted)
{
    PyThreadState *state = _PyThreadState_UncheckedGet();
    const int before = state->cframe->use_tracing;
    state->cframe->use_tracing = wanted;
    return before;
}

void sp_function_tracer_thread(const sp_run *run)
{
    if (!is_traced(run->token)) return;
    if (hook_thread(_PyThreadState_UncheckedGet()) < 0) PyErr_Clear();
}

#endif

/* ---- tracers ---- */

static sp_function_tracer *tracer_of(const sp_recorder_object *recorder)
{
    sp_function_tracer *tracer = tracers;
    while (tracer && tracer->recorder != recorder) tracer = tracer->next;
    return tracer;
}

static uint64_t newest_thread(void)
{
    uint64_t newest = 0;
#ifdef Py_GIL_DISABLED
    /* Others may go while one looks at them: a new one tells. */
    PyThreadState *made = PyThreadState_New(PyInterpreterState_Get());
    if (made == NULL) return newest;
    newest = made->id;
    PyThreadState_Clear(made);
    PyThreadState_Delete(made);
#else
    PyThreadState *state = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    for (; state; state = PyThreadState_Next(state)) newest = state->id > newest ? state->id : newest;
#endif
    return newest;
}

/* Of those that have stopped: a hook on another thread may still look at one. Few, and small. */
static sp_function_tracer *resting;

/* Free them, unless a thread may look at one; without the GIL that is never known. */
static void free_resting(void)
{
#ifndef Py_GIL_DISABLED
    while (inside == 0 && resting) {
        sp_function_tracer *tracer = resting;
        resting = tracer->next_resting;
        free(tracer);
    }
#endif
}

static uint64_t last_number;

static void stop(sp_recorder_object *recorder)
{
    for (_Atomic(sp_function_tracer *) *link = &tracers; *link; link = &(*link)->next) {
        sp_function_tracer *tracer = *link;
        if (tracer->recorder != recorder) continue;
        *link = tracer->next;
        generation++;
        LOCK_NOTES();
        PyObject *chooser = tracer->chooser;
        tracer->chooser = NULL;
        UNLOCK_NOTES();
        tracer->stopped = true;
        tracer->next_resting = resting;
        resting = tracer;
        if (tracers == NULL && !sp_python_finalizing()) unhook();
        free_resting();
        Py_XDECREF(chooser);
        return;
    }
}

void sp_function_tracer_stop(sp_recorder_object *recorder)
{
    SP_BEGIN_CHANGE();
    stop(recorder);
    SP_END_CHANGE();
}

/* In front of the others, hence heard of by who is among them; -1 with an exception: it has stopped. */
static int begin(sp_function_tracer *tracer)
{
    tracer->number = ++last_number;
    tracer->gate = &tracer->recorder->gate;
    tracer->next = tracers;
    tracers = tracer;
    if (hook() == 0) return 0;
    const sp_pending pending = sp_pending_take();
    stop(tracer->recorder);
    sp_pending_restore(pending);
    return -1;
}

/* NULL with an exception. */
static sp_function_tracer *tracer_new(sp_recorder_object *recorder)
{
    sp_function_tracer *tracer = calloc(1, sizeof *tracer);
    if (tracer == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    tracer->recorder = recorder;
#ifdef Py_GIL_DISABLED
    tracer->weak_recorder = PyWeakref_NewRef((PyObject *)recorder, NULL);
    if (tracer->weak_recorder == NULL) {
        free(tracer);
        return NULL;
    }
#endif
    return tracer;
}

static int start(sp_recorder_object *recorder, const sp_run *run, PyObject *chooser, bool everywhere)
{
    sp_function_tracer *tracer = tracer_of(recorder);
    if (tracer && tracer->token == run->token) {
        const bool more = everywhere && !tracer->everywhere;
        if (more) tracer->everywhere = true;
        return more ? hook() : 0;
    }
    tracer = tracer_new(recorder);
    if (tracer == NULL) return -1;
    tracer->token = run->token;
    tracer->chooser = Py_XNewRef(chooser);
    tracer->everywhere = everywhere;
    tracer->follows_tasks = run->tracks_tasks;
    tracer->last_thread = newest_thread();
    return begin(tracer);
}

int sp_function_tracer_start(sp_recorder_object *recorder, PyObject *chooser, bool everywhere)
{
    sp_run_object *run = sp_recorder_current(recorder);
    if (run == NULL) return 0;
    SP_BEGIN_CHANGE();
    const int failed = start(recorder, run->run, chooser, everywhere);
    SP_END_CHANGE();
    Py_DECREF((PyObject *)run);
    return failed;
}

int sp_function_tracer_probe(sp_recorder_object *recorder, uint64_t token, uint32_t region, bool follows_tasks, PyObject *traced, PyObject *bare)
{
    sp_function_tracer *tracer = tracer_new(recorder);
    if (tracer == NULL) return -1;
    tracer->token = token;
    tracer->follows_tasks = follows_tasks;
    tracer->probes = true;
    SP_BEGIN_CHANGE();
    const int failed = begin(tracer);
    SP_END_CHANGE();
    if (failed) return -1;
    note_put(PyFunction_GET_CODE(traced), tracer->number, NULL, region);
    note_put(PyFunction_GET_CODE(bare), tracer->number, NULL, SP_REGION_OFF);
    return 0;
}

/* Whether the direct way to the notes finds what the interpreter's own finds. */
static int find_extra(void)
{
#ifndef Py_GIL_DISABLED
    PyObject *code = (PyObject *)PyCode_NewEmpty("scope_profiler", "probe", 1);
    code_note *note = code ? calloc(1, sizeof *note) : NULL;
    if (note == NULL || SET_EXTRA(code, extra_index, note) < 0) {
        free(note);
        Py_XDECREF(code);
        return -1;
    }
    const code_extra *known = ((PyCodeObject *)code)->co_extra;
    extra_is_known = known && known->size > extra_index && known->size < 256 && known->extras[extra_index] == note;
    Py_DECREF(code);
#endif
    return 0;
}

/* ---- for Python code that must not leave a mode behind, whenever it is interrupted: nothing of it is in Python ---- */

typedef struct trace_mode_object {
    PyObject_HEAD
    sp_trace_mode wanted, before;
} trace_mode_object;

static PyObject *trace_mode_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"", NULL};
    int wanted;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i:TraceMode", names, &wanted)) return NULL;
    if (wanted < SP_TRACE_DEFAULT || wanted > SP_TRACE_OFF) {
        PyErr_SetString(PyExc_ValueError, "a trace mode is 0, 1 or 2");
        return NULL;
    }
    trace_mode_object *self = (trace_mode_object *)type->tp_alloc(type, 0);
    if (self) self->wanted = (sp_trace_mode)wanted;
    return (PyObject *)self;
}

static PyObject *trace_mode_enter(PyObject *op, PyObject *unused)
{
    trace_mode_object *self = (trace_mode_object *)op;
    self->before = sp_trace_mode_set(self->wanted);
    return Py_NewRef(op);
}

static PyObject *trace_mode_exit(PyObject *op, PyObject *const *args, Py_ssize_t count)
{
    sp_trace_mode_set(((trace_mode_object *)op)->before);
    Py_RETURN_NONE;
}

static void trace_mode_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMethodDef trace_mode_methods[] = {
    {"__enter__", trace_mode_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))trace_mode_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot trace_mode_slots[] = {
    {Py_tp_new, trace_mode_new},
    {Py_tp_dealloc, trace_mode_dealloc},
    {Py_tp_methods, trace_mode_methods},
    {Py_tp_doc, "TraceMode(mode): within, functions that the calling thread calls are traced as the run says (0), always (1) or never (2)."},
    {0, NULL},
};

static PyType_Spec trace_mode_spec = {
    .name = "scope_profiler._core.TraceMode",
    .basicsize = sizeof(trace_mode_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = trace_mode_slots,
};

int sp_python_add_function_tracer(PyObject *module)
{
    extra_index = REQUEST_EXTRA(notes_free);
    if (extra_index < 0) {
        PyErr_SetString(PyExc_RuntimeError, "code objects have no room left for what extensions note on them");
        return -1;
    }
    if (find_extra() < 0) return -1;
#if !HAS_MONITORING
    hook_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &hook_spec, NULL);
    if (hook_type == NULL) return -1;
#endif
    PyObject *mode_type = PyType_FromModuleAndSpec(module, &trace_mode_spec, NULL);
    const int status = mode_type ? PyModule_AddObjectRef(module, "TraceMode", mode_type) : -1;
    Py_XDECREF(mode_type);
    return status;
}
