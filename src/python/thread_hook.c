/*
 * thread_hook.c - how a run learns of threads: their first moment, their names, their end.
 *
 * threading runs `if _profile_hook: sys.setprofile(_profile_hook)` as the first thing on every new thread. The hook
 * installed there registers the thread when it is asked for its truth, and is false unless the application has a hook of
 * its own behind it. So no thread ever runs under a profile function of ours (which since 3.12 would re-instrument code
 * all over the process), and the application's function is set exactly as if we were not there.
 *
 * The end is seen by an object in the thread state's dict: the interpreter destroys it on the dying thread, before join()
 * returns.
 */
#include <string.h>

#include "python/delegate.h"
#include "python/function_tracer.h"
#include "python/greenlets.h"
#include "python/recorder.h"

static PyTypeObject *hook_type, *end_type;
static PyObject *end_key; /* of the thread state's dict */
static PyObject *threading_key, *active_key, *name_key, *daemon_key, *native_id_key; /* made once: a look-up of new texts takes longer */

/* ---- the end of a thread ---- */

typedef struct sp_thread_end {
    PyObject_HEAD
    PyObject *thread; /* threading.Thread, or None for threads that threading does not know */
    pthread_t owner;  /* the interpreter may also destroy it elsewhere: at its own end, and for the threads that a fork left behind */
} sp_thread_end;

/* The name a Thread has now, without running code: a new str, or NULL without an exception. */
static PyObject *name_of(PyObject *thread)
{
    if (thread == Py_None) return NULL;
    PyObject *name = PyObject_GetAttr(thread, name_key);
    if (name == NULL || !PyUnicode_Check(name)) {
        PyErr_Clear();
        Py_CLEAR(name);
    }
    return name;
}

static bool is_daemon(PyObject *thread)
{
    PyObject *daemon = thread == Py_None ? NULL : PyObject_GetAttr(thread, daemon_key);
    const bool truth = daemon == Py_True;
    if (daemon == NULL) PyErr_Clear();
    Py_XDECREF(daemon);
    return truth;
}

/* A name with NUL or a lone surrogate is legal for a Thread, but cannot be stored: those characters are replaced. NULL: no memory. */
static PyObject *storable_bytes(PyObject *name)
{
    PyObject *bytes = PyUnicode_AsEncodedString(name, "utf-8", "replace");
    if (bytes == NULL) PyErr_Clear();
    char *text = bytes ? PyBytes_AS_STRING(bytes) : NULL;
    for (Py_ssize_t i = 0; text && i < PyBytes_GET_SIZE(bytes); i++) {
        if (text[i] == '\0') text[i] = '?';
    }
    return bytes;
}

/* A name as it is stored, in UTF-8; NULL without an exception: there is none. *kept is let go of behind its last use. */
static const char *storable_name(PyObject *name, PyObject **kept)
{
    Py_ssize_t size = 0;
    *kept = NULL;
    const char *text = name ? PyUnicode_AsUTF8AndSize(name, &size) : NULL;
    if (name == NULL || (text && strlen(text) == (size_t)size)) return text;
    PyErr_Clear();
    *kept = storable_bytes(name);
    return *kept ? PyBytes_AS_STRING(*kept) : NULL;
}

static void describe(sp_run *run, sp_thread_row *row, PyObject *thread, int64_t ident)
{
    PyObject *name = name_of(thread), *kept;
    sp_run_describe_thread(run, row, storable_name(name, &kept), ident, is_daemon(thread));
    Py_XDECREF(kept);
    Py_XDECREF(name);
}

static void describe_end(PyObject *thread)
{
    if (thread == Py_None || sp_python_finalizing()) return;
    const int64_t ident = (int64_t)PyThread_get_thread_ident();
    for (sp_log *log = sp_this_thread ? sp_this_thread->logs : NULL; log; log = log->next_of_thread) {
        if (log->run->tracks_threads) describe(log->run, log->row, thread, ident);
    }
}

static void end_dealloc(PyObject *self)
{
    sp_thread_end *end = (sp_thread_end *)self;
    if (pthread_equal(end->owner, pthread_self())) {
        const sp_pending pending = sp_pending_take();
        describe_end(end->thread);
        sp_thread_finish();
        sp_region_forget_pending();
        sp_pending_restore(pending);
    }
    PyTypeObject *own = Py_TYPE(self);
    Py_XDECREF(end->thread);
    PyObject_Free(self);
    Py_DECREF(own);
}

/* The calling thread among threading's _active, which is let go of; NULL without an exception: it is not there. A new reference. */
static PyObject *own_among(PyObject *active)
{
    PyObject *ident = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
    PyObject *thread = active && ident && PyDict_Check(active) ? sp_dict_get(active, ident) : NULL;
    Py_XDECREF(ident);
    Py_XDECREF(active);
    if (thread == NULL) PyErr_Clear();
    return thread;
}

/* threading's object for the calling thread, or None; a new reference, never NULL. Nothing is created. */
static PyObject *current_thread_object(void)
{
    PyObject *threading = sp_dict_get(PyImport_GetModuleDict(), threading_key);
    PyObject *thread = own_among(threading ? PyObject_GetAttr(threading, active_key) : NULL);
    Py_XDECREF(threading);
    return thread ? thread : Py_NewRef(Py_None);
}

/* See the end of the calling thread. */
static void watch_end(PyObject *thread)
{
    PyObject *dict = PyThreadState_GetDict();
    if (dict == NULL) return;
    PyObject *present = PyDict_GetItemWithError(dict, end_key);
    if (present) {
        /* threading may have learned of the thread since. */
        sp_thread_end *end = (sp_thread_end *)present;
        if (end->thread == Py_None) Py_SETREF(end->thread, Py_NewRef(thread));
        return;
    }
    sp_thread_end *end = PyErr_Occurred() ? NULL : PyObject_New(sp_thread_end, end_type);
    if (end == NULL) {
        PyErr_Clear();
        return;
    }
    end->thread = Py_NewRef(thread);
    end->owner = pthread_self();
    if (PyDict_SetItem(dict, end_key, (PyObject *)end) < 0) PyErr_Clear();
    Py_DECREF(end);
}

void sp_thread_watch_end(void)
{
    PyObject *thread = current_thread_object();
    watch_end(thread);
    Py_DECREF(thread);
}

/* Everything else that a run has to do on a thread that is new to it. */
static void watch_thread(sp_run *run, PyObject *thread)
{
    watch_end(thread);
    if (run->tracks_tasks && atomic_load(&run->follows)) sp_greenlets_watch_thread(run);
    sp_function_tracer_thread(run);
}

/* Called by the core on a thread that has just got a row. It may be a native thread, without the interpreter. */
static void thread_registered(sp_run *run, sp_thread_row *row)
{
    if (!Py_IsInitialized() || sp_python_finalizing() || !PyGILState_Check()) return;
    const sp_pending pending = sp_pending_take();
    PyObject *thread = current_thread_object();
    if (run->tracks_threads) describe(run, row, thread, (int64_t)PyThread_get_thread_ident());
    watch_thread(run, thread);
    Py_DECREF(thread);
    sp_pending_restore(pending);
}

void sp_thread_names_refresh(sp_run *run)
{
    if (!run->tracks_threads) return;
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *active = threading ? PyObject_GetAttrString(threading, "_active") : NULL;
    PyObject *copied = active && PyDict_Check(active) ? PyDict_Copy(active) : NULL;
    PyErr_Clear();
    for (size_t i = 0; copied; i++) {
        pthread_mutex_lock(&run->lock);
        sp_thread_row *row = i < run->row_count ? run->rows[i] : NULL;
        const bool alive = row && !row->released;
        const int64_t number = row ? row->ident : 0;
        pthread_mutex_unlock(&run->lock);
        if (row == NULL) break;
        if (!alive) continue;
        PyObject *ident = PyLong_FromUnsignedLong((unsigned long)number);
        PyObject *thread = ident ? PyDict_GetItemWithError(copied, ident) : NULL;
        if (thread) describe(run, row, thread, number);
        Py_XDECREF(ident);
        PyErr_Clear();
    }
    Py_XDECREF(copied);
    Py_XDECREF(active);
    Py_XDECREF(threading);
}

/* ---- the start of a thread ---- */

typedef struct sp_hook {
    PyObject_HEAD
    sp_run_object *run;
    PyObject *names;    /* threading's dict */
    PyObject *previous; /* what threading had before: a function of the application, another hook, or None */
    _Atomic(bool) removed;
} sp_hook;

static bool is_hook(PyObject *object)
{
    return Py_IS_TYPE(object, hook_type);
}

/* The hook or function behind a hook; a new reference, since others may take hooks out of the chain meanwhile. */
static PyObject *behind(PyObject *hook)
{
    return sp_field_get(hook, &((sp_hook *)hook)->previous);
}

/* The application's function behind a chain of hooks; a new reference. */
static PyObject *application_hook(PyObject *hook)
{
    PyObject *object = Py_NewRef(hook);
    while (is_hook(object)) Py_SETREF(object, behind(object));
    return object;
}

/* The system's number of a thread, as threading knows it; -1: it does not. */
static int64_t native_id_of(PyObject *thread)
{
    PyObject *number = PyObject_GetAttr(thread, native_id_key);
    const int64_t id = number && PyLong_CheckExact(number) ? (int64_t)PyLong_AsLongLong(number) : -1;
    if (id < 0) PyErr_Clear();
    Py_XDECREF(number);
    return id;
}

/*
 * The calling thread is just starting. Whoever started it is waking up meanwhile and waits for the interpreter then, which costs more
 * than all of this: so it is short.
 */
static void meet(const sp_hook *hook)
{
    sp_run *run = hook->run->run;
    PyObject *thread = own_among(sp_dict_get(hook->names, active_key));
    PyObject *name = thread ? name_of(thread) : NULL, *kept;
    const char *text = storable_name(name, &kept);
    if (text == NULL) {
        sp_run_log(run); /* a thread of its own kind: it is described like any other */
    } else {
        const sp_thread_start start = {.name = text, .native_id = native_id_of(thread), .daemon = is_daemon(thread)};
        if (sp_run_thread_starts(run, &start)) watch_thread(run, thread);
    }
    Py_XDECREF(kept);
    Py_XDECREF(name);
    Py_XDECREF(thread);
}

/* Asked on a thread that is just starting. */
static int hook_bool(PyObject *self)
{
    PyObject *object = Py_NewRef(self);
    while (is_hook(object)) {
        const sp_hook *hook = (sp_hook *)object;
        if (!hook->removed && !hook->run->run->inherited) meet(hook);
        Py_SETREF(object, behind(object));
    }
    const int truth = PyObject_IsTrue(object);
    Py_DECREF(object);
    return truth;
}

/* The first event of a thread that started with an application's function behind us: put that function in our place. */
static PyObject *hook_call(PyObject *self, PyObject *arguments, PyObject *names)
{
    PyObject *function = application_hook(self);
    PyObject *sys = PyImport_ImportModule("sys");
    PyObject *set = sys ? PyObject_CallMethod(sys, "setprofile", "O", function) : NULL;
    PyObject *answer = set && function != Py_None ? PyObject_Call(function, arguments, names) : Py_XNewRef(set);
    Py_XDECREF(set);
    Py_XDECREF(sys);
    Py_DECREF(function);
    return answer;
}

static int hook_traverse(PyObject *self, visitproc visit, void *arg)
{
    sp_hook *hook = (sp_hook *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)hook->run);
    Py_VISIT(hook->names);
    Py_VISIT(hook->previous);
    return 0;
}

static int hook_clear(PyObject *self)
{
    /* `previous` must stay callable while threading or another hook may still ask: only the last reference ends it. */
    return 0;
}

static void hook_dealloc(PyObject *self)
{
    sp_hook *hook = (sp_hook *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF((PyObject *)hook->run);
    Py_XDECREF(hook->names);
    Py_XDECREF(hook->previous);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject *sp_thread_hook_install(sp_run_object *run)
{
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *names = threading ? PyModule_GetDict(threading) : NULL;
    sp_hook *hook = names ? PyObject_GC_New(sp_hook, hook_type) : NULL;
    if (hook == NULL) {
        Py_XDECREF(threading);
        return NULL;
    }
    hook->run = (sp_run_object *)Py_NewRef((PyObject *)run);
    hook->names = Py_NewRef(names);
    hook->removed = false;
    SP_BEGIN_CHANGE();
    hook->previous = PyObject_GetAttrString(threading, "_profile_hook");
    PyObject_GC_Track(hook);
    if (hook->previous == NULL || PyObject_SetAttrString(threading, "_profile_hook", (PyObject *)hook) < 0) {
        Py_CLEAR(hook);
    }
    SP_END_CHANGE();
    Py_DECREF(threading);
    return (PyObject *)hook;
}

/* The first from `hook` on that was not removed; a new reference. */
static PyObject *live_from(PyObject *hook)
{
    PyObject *object = Py_NewRef(hook);
    while (is_hook(object) && ((sp_hook *)object)->removed) Py_SETREF(object, behind(object));
    return object;
}

/*
 * Take out what was removed wherever it is: on top (threading gets back what was there before), or below other hooks of ours. Below
 * something foreign it stays and only passes on, because that something may put it back one day.
 */
static void take_out_removed(PyObject *threading)
{
    PyObject *top = threading ? PyObject_GetAttrString(threading, "_profile_hook") : NULL;
    PyObject *live = top ? live_from(top) : NULL;
    if (top && live != top) PyObject_SetAttrString(threading, "_profile_hook", live);
    while (live && is_hook(live)) {
        PyObject *next = behind(live), *kept = live_from(next);
        if (kept != next) sp_field_set(live, &((sp_hook *)live)->previous, Py_NewRef(kept));
        Py_DECREF(next);
        Py_SETREF(live, kept);
    }
    Py_XDECREF(live);
    Py_XDECREF(top);
}

void sp_thread_hook_remove(PyObject *object)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    ((sp_hook *)object)->removed = true;
    PyObject *threading = PyImport_ImportModule("threading");
    SP_BEGIN_CHANGE();
    take_out_removed(threading);
    SP_END_CHANGE();
    Py_XDECREF(threading);
    PyErr_Restore(type, value, traceback);
}

static PyType_Slot hook_slots[] = {
    {Py_tp_dealloc, hook_dealloc},
    {Py_tp_traverse, hook_traverse},
    {Py_tp_clear, hook_clear},
    {Py_tp_call, hook_call},
    {Py_nb_bool, hook_bool},
    {Py_tp_doc, "Registers each new thread with a run, then gives way to the application's profile function."},
    {0, NULL},
};

static PyType_Spec hook_spec = {
    .name = "scope_profiler._core._ThreadHook",
    .basicsize = sizeof(sp_hook),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = hook_slots,
};

static PyType_Slot end_slots[] = {
    {Py_tp_dealloc, end_dealloc},
    {Py_tp_doc, "Sees the end of its thread."},
    {0, NULL},
};

static PyType_Spec end_spec = {
    .name = "scope_profiler._core._ThreadEnd",
    .basicsize = sizeof(sp_thread_end),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = end_slots,
};

int sp_python_add_thread_hook(PyObject *module)
{
    static const sp_front_end front_end = {.thread_registered = thread_registered};
    hook_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &hook_spec, NULL);
    end_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &end_spec, NULL);
    end_key = PyUnicode_InternFromString("scope_profiler.thread_end");
    threading_key = PyUnicode_InternFromString("threading");
    active_key = PyUnicode_InternFromString("_active");
    name_key = PyUnicode_InternFromString("_name");
    daemon_key = PyUnicode_InternFromString("_daemonic");
    native_id_key = PyUnicode_InternFromString("_native_id");
    if (!hook_type || !end_type || !end_key || !threading_key || !active_key || !name_key || !daemon_key || !native_id_key) return -1;
    sp_front_end_set(&front_end);
    return 0;
}
