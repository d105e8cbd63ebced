/*
 * greenlets.c - greenlets as lanes of their thread.
 *
 * greenlet.settrace is per thread, so every tracked thread gets a trace object of its own, which calls the application's
 * trace function after itself. A switch suspends the task of the greenlet that is left, resumes that of the one that is
 * entered, and makes the lane current that the latter had when it was left last: for a greenlet inside an asyncio task's
 * step that can be the task's. A thread's main greenlet has no row: its lane is the thread's own, or whatever held it.
 *
 * Greenlets are found by address in a small table of the thread; a weak reference takes the entry out before the address
 * can be used again.
 */
#include "python/greenlets.h"

#include <stdlib.h>
#include <string.h>
#include <structmember.h>
#if PY_VERSION_HEX < 0x030b0000
#include <frameobject.h>
#endif

#include "core/registry.h"
#include "core/task.h"

/* Slots of the table in greenlet's capsule; the same since greenlet 2. */
enum { API_GET_CURRENT = 4, API_MAIN = 8, API_ACTIVE = 10 };

static void **api;
bool sp_greenlets_loaded;
static PyObject *set_trace, *get_trace;
static PyTypeObject *trace_type, *entry_type;

static bool is_main(PyObject *greenlet)
{
    return ((int (*)(PyObject *))api[API_MAIN])(greenlet);
}

static bool is_active(PyObject *greenlet)
{
    return ((int (*)(PyObject *))api[API_ACTIVE])(greenlet);
}

/* ---- one greenlet ---- */

typedef struct sp_greenlet_trace sp_greenlet_trace;

typedef struct sp_greenlet_entry {
    PyObject_HEAD
    PyObject *key; /* its address; never dereferenced */
    PyObject *reference; /* weak; calls this entry when the greenlet goes */
    sp_greenlet_trace *trace; /* NULL once the trace has let go of it */
    sp_run *run;   /* referenced: the task is in it */
    sp_task *task;
    sp_task *lane; /* what held the thread when the greenlet was left last */
    bool named;    /* the target's name is known */
} sp_greenlet_entry;

struct sp_greenlet_trace {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    sp_run *run; /* referenced */
    sp_thread *thread;
    PyObject *previous; /* the application's trace function, or None */
    sp_task *main_lane;
    sp_greenlet_entry **table; /* open addressing by key */
    size_t used, size;         /* used counts removed entries too */
};

#define REMOVED ((sp_greenlet_entry *)1)

static size_t place(const sp_greenlet_trace *trace, const PyObject *key)
{
    return ((uintptr_t)key >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 32 & (trace->size - 1);
}

static sp_greenlet_entry **find(const sp_greenlet_trace *trace, const PyObject *key)
{
    if (trace->size == 0) return NULL;
    for (size_t at = place(trace, key); trace->table[at]; at = (at + 1) & (trace->size - 1)) {
        if (trace->table[at] != REMOVED && trace->table[at]->key == key) return &trace->table[at];
    }
    return NULL;
}

static bool table_grow(sp_greenlet_trace *trace)
{
    size_t live = 0;
    for (size_t i = 0; i < trace->size; i++) live += trace->table[i] && trace->table[i] != REMOVED;
    size_t size = 16;
    while (size < live * 4) size *= 2;
    sp_greenlet_entry **old = trace->table, **table = calloc(size, sizeof *table);
    if (table == NULL) return false;
    const size_t old_size = trace->size;
    trace->table = table;
    trace->size = size;
    trace->used = live;
    for (size_t i = 0; i < old_size; i++) {
        if (old[i] == NULL || old[i] == REMOVED) continue;
        size_t at = place(trace, old[i]->key);
        while (table[at]) at = (at + 1) & (size - 1);
        table[at] = old[i];
    }
    free(old);
    return true;
}

static void entry_dealloc(PyObject *self)
{
    sp_greenlet_entry *entry = (sp_greenlet_entry *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(entry->reference);
    sp_run_release(entry->run);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* The greenlet has been freed: its lane ends here, if it did not before, and its address may be used again. */
static PyObject *entry_call(PyObject *self, PyObject *arguments, PyObject *names)
{
    sp_greenlet_entry *entry = (sp_greenlet_entry *)self;
    sp_task_finish(entry->task, sp_clock_read());
    Py_INCREF(self);
    if (entry->trace) {
        sp_greenlet_entry **slot = find(entry->trace, entry->key);
        if (slot && *slot == entry) {
            *slot = REMOVED;
            Py_DECREF(self);
        }
    }
    Py_CLEAR(entry->reference);
    Py_DECREF(self);
    Py_RETURN_NONE;
}

/* ---- names ---- */

/* A str of the object's attribute, or NULL without an exception. */
static PyObject *text_attribute(PyObject *object, const char *name)
{
    PyObject *text = object ? PyObject_GetAttrString(object, name) : NULL;
    if (text && !PyUnicode_Check(text)) Py_CLEAR(text);
    PyErr_Clear();
    return text;
}

static PyObject *callable_name(PyObject *callable)
{
    PyObject *name = text_attribute(callable, "__qualname__");
    if (name) return name;
    /* functools.partial and its like */
    PyObject *inner = callable ? PyObject_GetAttrString(callable, "func") : NULL;
    PyErr_Clear();
    name = text_attribute(inner, "__qualname__");
    Py_XDECREF(inner);
    if (name) return name;
    return callable ? PyUnicode_FromString(Py_TYPE(callable)->tp_name) : NULL;
}

static const char *utf8_of(PyObject *text)
{
    const char *bytes = text ? PyUnicode_AsUTF8(text) : NULL;
    if (bytes == NULL) PyErr_Clear();
    return bytes;
}

/*
 * The target as far as it can be seen from the greenlet: gevent keeps it in `_run`, a subclass may have a `run` method. A
 * plain greenlet gives its `run` up before its first switch is reported.
 */
static PyObject *target_name(PyObject *greenlet)
{
    PyObject *run = PyObject_GetAttrString(greenlet, "_run");
    PyErr_Clear();
    if (run == NULL || run == Py_None) {
        Py_XDECREF(run);
        run = PyObject_GetAttrString(greenlet, "run");
        PyErr_Clear();
    }
    PyObject *name = run && run != Py_None ? callable_name(run) : NULL;
    PyErr_Clear();
    Py_XDECREF(run);
    return name;
}

/* The function at the bottom of a suspended greenlet's stack: new str, or NULL without an exception. */
static PyObject *bottom_name(PyObject *greenlet)
{
    PyObject *frame = PyObject_GetAttrString(greenlet, "gr_frame");
    if (frame == NULL || !PyFrame_Check(frame)) {
        PyErr_Clear();
        Py_XDECREF(frame);
        return NULL;
    }
    for (;;) {
        PyObject *back = (PyObject *)PyFrame_GetBack((PyFrameObject *)frame);
        if (back == NULL) break;
        Py_SETREF(frame, back);
    }
    PyCodeObject *code = PyFrame_GetCode((PyFrameObject *)frame);
    PyObject *name = text_attribute((PyObject *)code, "co_qualname");
    if (name == NULL) name = text_attribute((PyObject *)code, "co_name");
    Py_DECREF(code);
    Py_DECREF(frame);
    return name;
}

static void name_target(sp_greenlet_entry *entry, PyObject *name)
{
    const char *text = utf8_of(name);
    if (text == NULL) return;
    sp_run_task_coro(entry->run, entry->task, text);
    entry->named = true;
}

/*
 * The first Python frame that runs in a new greenlet is its target's. It is caught by a frame evaluator that is in place
 * for that one frame. (A profile function would do too, but since 3.12 setting one re-instruments all code.)
 */
#if PY_VERSION_HEX >= 0x030c0000 && !defined(Py_GIL_DISABLED)
#define CATCHES_FIRST_FRAME 1
static _PyFrameEvalFunction evaluator_before;
static sp_greenlet_entry *waiting_for_frame; /* referenced */
static unsigned long waiting_thread;

static PyObject *evaluate_first(PyThreadState *thread, struct _PyInterpreterFrame *frame, int throwing)
{
    if (PyThread_get_thread_ident() != waiting_thread) return evaluator_before(thread, frame, throwing);
    sp_greenlet_entry *entry = waiting_for_frame;
    waiting_for_frame = NULL;
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), evaluator_before);
    if (entry) {
        PyObject *code = PyUnstable_InterpreterFrame_GetCode(frame);
        PyObject *name = code ? text_attribute(code, "co_qualname") : NULL;
        name_target(entry, name);
        Py_XDECREF(name);
        Py_XDECREF(code);
        Py_DECREF(entry);
    }
    return evaluator_before(thread, frame, throwing);
}

static void catch_first_frame(sp_greenlet_entry *entry)
{
    if (waiting_for_frame) return;
    evaluator_before = _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
    waiting_for_frame = (sp_greenlet_entry *)Py_NewRef((PyObject *)entry);
    waiting_thread = PyThread_get_thread_ident();
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), evaluate_first);
}
#elif PY_VERSION_HEX < 0x030c0000
#define CATCHES_FIRST_FRAME 1
static int profile_first(PyObject *entry, PyFrameObject *frame, int what, PyObject *arg)
{
    if (what != PyTrace_CALL) return 0;
    PyCodeObject *code = PyFrame_GetCode(frame);
    PyObject *name = text_attribute((PyObject *)code, "co_qualname");
    if (name == NULL) name = text_attribute((PyObject *)code, "co_name");
    name_target((sp_greenlet_entry *)entry, name);
    Py_XDECREF(name);
    Py_DECREF(code);
    PyEval_SetProfile(NULL, NULL);
    return 0;
}

static void catch_first_frame(sp_greenlet_entry *entry)
{
    PyThreadState *thread = PyThreadState_Get();
    /* A profiler of the application is not disturbed: the name then comes from the stack at the first switch away. */
    if (thread->c_profilefunc == NULL) PyEval_SetProfile(profile_first, (PyObject *)entry);
}
#else
#define CATCHES_FIRST_FRAME 0
static void catch_first_frame(sp_greenlet_entry *entry)
{
    (void)entry;
}
#endif

/* ---- entries ---- */

static void name_lane(sp_greenlet_entry *entry, PyObject *greenlet)
{
    PyObject *name = text_attribute(greenlet, "name");
    const char *text = utf8_of(name);
    char plain[40];
    if (text == NULL) {
        snprintf(plain, sizeof plain, "greenlet-%zx", (size_t)(uintptr_t)greenlet);
        text = plain;
    }
    sp_run_task_name(entry->run, entry->task, text);
    Py_XDECREF(name);
}

/* A new entry in the trace's table; borrowed, NULL without an exception when there is no memory. */
static sp_greenlet_entry *entry_new(sp_greenlet_trace *trace, PyObject *greenlet)
{
    if (trace->used * 2 >= trace->size && !table_grow(trace)) return NULL;
    PyObject *target = target_name(greenlet);
    sp_task *task = sp_run_task_add(trace->run, SP_TASK_GREENLET, utf8_of(target));
    sp_greenlet_entry *entry = task ? PyObject_New(sp_greenlet_entry, entry_type) : NULL;
    if (entry == NULL) {
        PyErr_Clear();
        Py_XDECREF(target);
        return NULL;
    }
    atomic_fetch_add_explicit(&trace->run->references, 1, memory_order_relaxed);
    entry->run = trace->run;
    entry->key = greenlet;
    entry->trace = trace;
    entry->task = entry->lane = task;
    entry->named = target != NULL;
    Py_XDECREF(target);
    entry->reference = PyWeakref_NewRef(greenlet, (PyObject *)entry);
    name_lane(entry, greenlet);
    if (entry->reference == NULL) {
        PyErr_Clear();
        Py_DECREF(entry);
        return NULL;
    }
    size_t at = place(trace, greenlet);
    while (trace->table[at] && trace->table[at] != REMOVED) at = (at + 1) & (trace->size - 1);
    if (trace->table[at] == NULL) trace->used++;
    trace->table[at] = entry;
    return entry;
}

/* ---- switches ---- */

static void leave(sp_greenlet_trace *trace, sp_log *log, PyObject *greenlet, sp_ticks now)
{
    sp_greenlet_entry **slot = find(trace, greenlet);
    if (slot == NULL) {
        trace->main_lane = log->lane;
        return;
    }
    sp_greenlet_entry *entry = *slot;
    entry->lane = log->lane;
    sp_task_suspend(entry->task, now);
    if (!is_active(greenlet)) {
        sp_task_finish(entry->task, now);
        name_lane(entry, greenlet);
    } else if (!entry->named) {
        PyObject *name = bottom_name(greenlet);
        name_target(entry, name);
        Py_XDECREF(name);
    }
}

static void enter(sp_greenlet_trace *trace, sp_log *log, PyObject *greenlet, sp_ticks now)
{
    if (is_main(greenlet)) {
        sp_log_set_lane(log, trace->main_lane);
        return;
    }
    sp_greenlet_entry **slot = find(trace, greenlet);
    sp_greenlet_entry *entry = slot ? *slot : entry_new(trace, greenlet);
    if (entry == NULL) {
        sp_log_set_lane(log, NULL);
        return;
    }
    sp_task_resume(entry->task, now);
    entry->task->thread_index = log->row->index;
    sp_log_set_lane(log, entry->lane);
    if (slot == NULL && !entry->named && CATCHES_FIRST_FRAME) catch_first_frame(entry);
}

/* Whether greenlet's trace function of this thread is `trace`. */
static bool is_current(const sp_greenlet_trace *trace)
{
    PyObject *current = PyObject_CallNoArgs(get_trace);
    const bool same = current == (PyObject *)trace;
    if (current == NULL) PyErr_Clear();
    Py_XDECREF(current);
    return same;
}

/* Give the thread its application's trace function back, if ours is still the one that is set. */
static void give_back(sp_greenlet_trace *trace)
{
    if (!is_current(trace)) return;
    PyObject *ours = PyObject_CallOneArg(set_trace, trace->previous);
    if (ours == NULL) PyErr_Clear();
    Py_XDECREF(ours);
}

static PyObject *trace_call(PyObject *self, PyObject *const *arguments, size_t flagged, PyObject *names)
{
    sp_greenlet_trace *trace = (sp_greenlet_trace *)self;
    const Py_ssize_t count = PyVectorcall_NARGS(flagged);
    Py_INCREF(self);
    if (!atomic_load_explicit(&trace->run->follows, memory_order_acquire)) {
        give_back(trace);
    } else if (SP_LIKELY(count == 2 && PyTuple_CheckExact(arguments[1]) && PyTuple_GET_SIZE(arguments[1]) == 2)) {
        sp_log *log = sp_log_current(trace->run->token);
        if (SP_LIKELY(log != NULL)) {
            const sp_ticks now = sp_clock_read();
            leave(trace, log, PyTuple_GET_ITEM(arguments[1], 0), now);
            enter(trace, log, PyTuple_GET_ITEM(arguments[1], 1), now);
            if (SP_UNLIKELY(now >= log->anchor_due)) sp_log_anchor(log, now);
        }
    }
    PyObject *answer = SP_LIKELY(trace->previous == Py_None)
        ? Py_NewRef(Py_None) : PyObject_Vectorcall(trace->previous, arguments, flagged, names);
    Py_DECREF(self);
    return answer;
}

static int trace_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((sp_greenlet_trace *)self)->previous);
    return 0;
}

static void trace_dealloc(PyObject *self)
{
    sp_greenlet_trace *trace = (sp_greenlet_trace *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (size_t i = 0; i < trace->size; i++) {
        if (trace->table[i] == NULL || trace->table[i] == REMOVED) continue;
        trace->table[i]->trace = NULL;
        Py_DECREF(trace->table[i]);
    }
    free(trace->table);
    Py_XDECREF(trace->previous);
    sp_run_release(trace->run);
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- on and off ---- */

int sp_greenlets_load(void)
{
    if (api) return 0;
    PyObject *module = PyImport_ImportModule("greenlet");
    if (module == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_ImportError)) return -1;
        PyErr_Clear();
        return 0;
    }
    set_trace = PyObject_GetAttrString(module, "settrace");
    get_trace = PyObject_GetAttrString(module, "gettrace");
    PyObject *version = text_attribute(module, "__version__");
    const char *text = utf8_of(version);
    const bool recent = text && atoi(text) >= 2;
    Py_DECREF(module);
    Py_XDECREF(version);
    if (set_trace && get_trace && recent) api = PyCapsule_Import("greenlet._C_API", 0);
    sp_greenlets_loaded = api != NULL;
    if (api) return 0;
    PyErr_Clear();
    return PyErr_WarnEx(PyExc_RuntimeWarning, "greenlets are not followed: scope-profiler needs greenlet 2.0 or newer", 1);
}

int sp_greenlets_load_present(void)
{
    PyObject *name = PyUnicode_FromString("greenlet");
    PyObject *module = name ? PyImport_GetModule(name) : NULL;
    Py_XDECREF(name);
    if (module == NULL) return PyErr_Occurred() ? -1 : 0;
    Py_DECREF(module);
    return sp_greenlets_load();
}

const void *sp_greenlets_running(void)
{
    if (api == NULL) return NULL;
    PyObject *current = ((PyObject * (*)(void)) api[API_GET_CURRENT])();
    if (current == NULL) {
        PyErr_Clear();
        return NULL;
    }
    const bool main = is_main(current);
    Py_DECREF(current);
    return main ? NULL : current;
}

/* A greenlet that runs while the session begins becomes a lane from this moment. */
static void adopt_current(sp_greenlet_trace *trace, sp_log *log)
{
    PyObject *current = ((PyObject * (*)(void)) api[API_GET_CURRENT])();
    if (current == NULL) {
        PyErr_Clear();
        return;
    }
    if (!is_main(current)) {
        trace->main_lane = NULL;
        sp_greenlet_entry *entry = entry_new(trace, current);
        if (entry) {
            const sp_ticks now = sp_clock_read();
            sp_task_forget_creator(entry->task);
            sp_task_resume(entry->task, now);
            entry->task->thread_index = log->row->index;
            sp_log_set_lane(log, entry->task);
        }
    }
    Py_DECREF(current);
}

void sp_greenlets_watch_thread(sp_run *run)
{
    if (api == NULL) return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    sp_log *log = sp_run_log(run);
    sp_greenlet_trace *trace = log ? PyObject_GC_New(sp_greenlet_trace, trace_type) : NULL;
    if (trace) {
        atomic_fetch_add_explicit(&run->references, 1, memory_order_relaxed);
        trace->vectorcall = trace_call;
        trace->run = run;
        trace->thread = sp_this_thread;
        trace->main_lane = log->lane;
        trace->table = NULL;
        trace->used = trace->size = 0;
        trace->previous = NULL;
        PyObject_GC_Track((PyObject *)trace);
        trace->previous = PyObject_CallOneArg(set_trace, (PyObject *)trace);
        if (trace->previous) adopt_current(trace, log);
        else trace->previous = Py_NewRef(Py_None);
        Py_DECREF(trace);
    }
    PyErr_Restore(type, value, traceback);
}

void sp_greenlets_unwatch_thread(sp_run *run)
{
    if (api == NULL) return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *current = PyObject_CallNoArgs(get_trace);
    if (current && Py_IS_TYPE(current, trace_type) && ((sp_greenlet_trace *)current)->run == run) {
        give_back((sp_greenlet_trace *)current);
    }
    Py_XDECREF(current);
    PyErr_Restore(type, value, traceback);
}

static PyMemberDef trace_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(sp_greenlet_trace, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot trace_slots[] = {
    {Py_tp_dealloc, trace_dealloc},
    {Py_tp_traverse, trace_traverse},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, trace_members},
    {Py_tp_doc, "Follows the greenlets of one thread."},
    {0, NULL},
};

static PyType_Spec trace_spec = {
    .name = "scope_profiler._core._GreenletTrace",
    .basicsize = sizeof(sp_greenlet_trace),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION |
        Py_TPFLAGS_IMMUTABLETYPE,
    .slots = trace_slots,
};

static PyType_Slot entry_slots[] = {
    {Py_tp_dealloc, entry_dealloc},
    {Py_tp_call, entry_call},
    {Py_tp_doc, "Sees the end of one greenlet."},
    {0, NULL},
};

static PyType_Spec entry_spec = {
    .name = "scope_profiler._core._GreenletEntry",
    .basicsize = sizeof(sp_greenlet_entry),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = entry_slots,
};

int sp_python_add_greenlets(PyObject *module)
{
    trace_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &trace_spec, NULL);
    entry_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &entry_spec, NULL);
    return trace_type && entry_type ? 0 : -1;
}
