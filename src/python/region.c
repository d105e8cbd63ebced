#include "python/region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/probe.h"
#include "core/task.h"
#include "core/totals.h"
#include "python/function_tracer.h"
#include "python/greenlets.h"
#include "python/lane.h"
#include "python/recorder.h"
#include "python/task_wrapper.h"
#include "python/undisturbed.h"

#include <structmember.h>

PyTypeObject *sp_region_type;

/* ---- handles: one for each `with` statement ---- */

enum {
    EXIT_TAKEN = 1, /* both look-ups are done: this handle is called for the exit too */
    ENTERED = 2,    /* and not exited; recorded or not */
    EXIT_ONLY = 4,  /* made for an __exit__ that no __enter__ went with */
};

typedef struct sp_handle {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    sp_region_object *region;
    sp_open open;
    unsigned flags;
} sp_handle;

static PyTypeObject *handle_type;

/* Released handles wait for the next statement. Without the GIL the allocator's own per-thread lists do that. */
#ifndef Py_GIL_DISABLED
#define FREE_HANDLES 64
static sp_handle *free_handles[FREE_HANDLES];
static int free_handle_count;
#endif

static PyObject *handle_call(PyObject *self, PyObject *const *arguments, size_t flagged, PyObject *names);

static SP_NOINLINE sp_handle *handle_allocate(void)
{
    sp_handle *handle = PyObject_New(sp_handle, handle_type);
    if (handle) handle->vectorcall = handle_call;
    return handle;
}

/* One that waits, which has kept its type. From 3.13 on tools may follow references, before only debug builds count them. */
static inline sp_handle *handle_take(void)
{
#ifndef Py_GIL_DISABLED
    if (SP_LIKELY(free_handle_count > 0)) {
        sp_handle *handle = free_handles[--free_handle_count];
#if PY_VERSION_HEX >= 0x030d0000 || defined(Py_REF_DEBUG)
        _Py_NewReference((PyObject *)handle);
#else
        Py_SET_REFCNT((PyObject *)handle, 1);
#endif
        return handle;
    }
#endif
    return handle_allocate();
}

static inline sp_handle *handle_new(sp_region_object *region, unsigned flags)
{
    sp_handle *handle = handle_take();
    if (SP_UNLIKELY(handle == NULL)) return NULL;
    Py_INCREF(region);
    handle->region = region;
    handle->open.slot = NULL;
    handle->flags = flags;
    return handle;
}

/*
 * The thread's pending handle: made by the first look-up of a statement, taken by the second, which takes the reference
 * over. A look-up outside a statement may leave one behind; the next statement replaces it.
 */
static inline sp_handle *pending_take(void)
{
    sp_thread *thread = sp_this_thread;
    if (SP_UNLIKELY(thread == NULL)) return NULL;
    sp_handle *handle = thread->front_end;
    thread->front_end = NULL;
    return handle;
}

/* The thread's record, made by a look-up outside of any run: at the thread's end what it left pending must go. */
static SP_NOINLINE sp_thread *thread_new(void)
{
    sp_thread *thread = sp_thread_current();
    if (thread) sp_thread_watch_end();
    return thread;
}

static inline void pending_set(sp_handle *handle)
{
    sp_thread *thread = SP_LIKELY(sp_this_thread != NULL) ? sp_this_thread : thread_new();
    if (SP_UNLIKELY(thread == NULL)) return;
    PyObject *left = thread->front_end;
    thread->front_end = Py_NewRef((PyObject *)handle);
    Py_XDECREF(left);
}

void sp_region_forget_pending(void)
{
    Py_XDECREF((PyObject *)pending_take());
}

static void pending_drop(const sp_handle *handle)
{
    if (sp_this_thread && sp_this_thread->front_end == handle) sp_region_forget_pending();
}

static void handle_dealloc(PyObject *self)
{
    sp_handle *handle = (sp_handle *)self;
    if (SP_UNLIKELY(handle->open.slot != NULL)) {
        /* Nobody is left who could exit this call. */
        sp_log_probe_forget(handle->open.log, handle->open.slot);
        atomic_store_explicit(&handle->open.slot->end, SP_SLOT_ABANDONED, memory_order_release);
    }
    Py_DECREF(handle->region);
#ifndef Py_GIL_DISABLED
    if (SP_LIKELY(free_handle_count < FREE_HANDLES)) {
        free_handles[free_handle_count++] = handle;
        return;
    }
#endif
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* The region's id in a run of its recorder, whether that records now or not; false when it has none. */
static bool id_in_run(sp_region_object *region, sp_run *run, uint32_t *id)
{
    const uint64_t binding = atomic_load_explicit(&region->binding, memory_order_acquire);
    *id = (uint32_t)binding;
    if (binding >> 32 == run->token && *id != SP_REGION_OFF) return true;
    /* Not entered yet through this object, or filtered out since it was. */
    const char *name = PyUnicode_AsUTF8(region->name);
    return name && sp_run_find_region(run, name, id);
}

/* Enter without a handle that could exit. */
static void enter_loose(sp_region_object *region)
{
    sp_open open;
    sp_region_enter(region, &open);
    if (open.slot) sp_run_add_loose(open.log, open.slot);
    else atomic_fetch_add_explicit(&region->unrecorded, 1, memory_order_relaxed);
}

static bool took_unrecorded(sp_region_object *region)
{
    int left = atomic_load_explicit(&region->unrecorded, memory_order_relaxed);
    while (left > 0) {
        if (atomic_compare_exchange_weak(&region->unrecorded, &left, left - 1)) return true;
    }
    return false;
}

/* Exit without a handle: the newest such call of the region, on this lane if there is one. */
static void exit_loose(sp_region_object *region)
{
    sp_run_object *run = sp_recorder_current(region->recorder);
    uint32_t id;
    const bool closed = run && id_in_run(region, run->run, &id) && sp_run_close_loose(run->run, id);
    if (!closed && !took_unrecorded(region) && run) {
        const uint64_t token = atomic_load_explicit(&region->gate->token, memory_order_relaxed);
        if (token == run->run->token) atomic_fetch_add_explicit(&run->run->unmatched, 1, memory_order_relaxed);
    }
    Py_XDECREF((PyObject *)run);
}

static void leave_to_loose(sp_handle *handle)
{
    if (handle->open.slot) sp_run_add_loose(handle->open.log, handle->open.slot);
    else atomic_fetch_add_explicit(&handle->region->unrecorded, 1, memory_order_relaxed);
}

/*
 * What follows is the way of nearly every call. Whatever else may come is done by functions that it ends with, so that it keeps nothing
 * over a call and saves no registers: a tenth of its instructions.
 */

static SP_NOINLINE PyObject *enter_otherwise(sp_handle *handle)
{
    sp_region_enter(handle->region, &handle->open);
    return Py_NewRef((PyObject *)handle->region);
}

/* Where the lane is to be found first, and in runs that keep sums: not rare there. */
static __attribute__((noinline)) PyObject *enter_on_lane(sp_handle *handle, sp_log *log, uint32_t id)
{
    handle->open.log = log;
    handle->open.slot = sp_region_enter_on_lane(log, id);
    return Py_NewRef((PyObject *)handle->region);
}

static SP_NOINLINE PyObject *enter_with_anchor(sp_handle *handle, sp_ticks now)
{
    sp_log_anchor(handle->open.log, now);
    return Py_NewRef((PyObject *)handle->region);
}

static inline PyObject *handle_enter(sp_handle *handle)
{
    sp_region_object *region = handle->region;
    handle->flags |= ENTERED;
    const uint64_t token = atomic_load_explicit(&region->gate->token, memory_order_acquire);
    if (SP_LIKELY(token != 0)) {
        const uint64_t binding = atomic_load_explicit(&region->binding, memory_order_acquire);
        const uint32_t id = (uint32_t)binding;
        const sp_thread *thread = sp_this_thread;
        sp_log *log = SP_LIKELY(thread != NULL) ? thread->hot : NULL;
        if (SP_UNLIKELY(binding >> 32 != token || id == SP_REGION_OFF || log == NULL || log->token != token)) {
            return enter_otherwise(handle);
        }
        char *at = atomic_load_explicit(&log->next, memory_order_relaxed);
        const bool unclear = log->lane == NULL && log->stride != sizeof(sp_slot);
        if (SP_UNLIKELY(unclear)) return enter_on_lane(handle, log, id);
        if (SP_UNLIKELY(at == log->limit || !sp_clock_is_counter())) return enter_otherwise(handle);
        sp_ticks now;
        handle->open.log = log;
        handle->open.slot = sp_log_put(log, at, id, true, &now);
        if (SP_UNLIKELY(now >= log->anchor_due)) return enter_with_anchor(handle, now);
    }
    return Py_NewRef((PyObject *)region);
}

static SP_NOINLINE PyObject *exit_otherwise(sp_log *log, sp_slot *slot)
{
    sp_log_exit(log, slot);
    Py_RETURN_NONE;
}

static SP_NOINLINE PyObject *exit_with_anchor(sp_log *log, sp_slot *slot, sp_ticks now)
{
    sp_log_anchor(log, now);
    sp_log_close(log, slot, now);
    Py_RETURN_NONE;
}

static __attribute__((noinline)) PyObject *exit_sums(sp_log *log, sp_slot *slot, sp_ticks now)
{
    sp_frame_exit(log, slot, now);
    Py_RETURN_NONE;
}

static inline PyObject *handle_exit(sp_handle *handle)
{
    sp_slot *slot = handle->open.slot;
    sp_log *log = handle->open.log;
    handle->flags &= ~(unsigned)ENTERED;
    handle->open.slot = NULL;
    if (SP_UNLIKELY(slot == NULL)) Py_RETURN_NONE;
    const sp_thread *thread = sp_this_thread;
    if (SP_UNLIKELY(thread == NULL || thread->hot != log || !sp_clock_is_counter())) return exit_otherwise(log, slot);
    const sp_ticks now = sp_clock_counter();
    if (SP_UNLIKELY(slot->task != log->lane_index)) return log->tally ? exit_sums(log, slot, now) : exit_otherwise(log, slot);
    if (SP_UNLIKELY(now >= log->anchor_due)) return exit_with_anchor(log, slot, now);
    sp_log_close(log, slot, now);
    Py_RETURN_NONE;
}

/* An explicit __enter__(), or one more before its exit: then that exit closes the new call, and whichever comes next the one before. */
static SP_NOINLINE PyObject *enter_rarely(sp_handle *handle)
{
    if (handle->flags & EXIT_TAKEN) {
        leave_to_loose(handle);
        return enter_otherwise(handle);
    }
    enter_loose(handle->region); /* whichever __exit__ comes will look for the call */
    pending_drop(handle);
    return Py_NewRef((PyObject *)handle->region);
}

static SP_NOINLINE PyObject *exit_rarely(sp_handle *handle)
{
    exit_loose(handle->region);
    pending_drop(handle);
    Py_RETURN_NONE;
}

static PyObject *handle_call(PyObject *self, PyObject *const *arguments, size_t flagged, PyObject *names)
{
    sp_handle *handle = (sp_handle *)self;
    const unsigned flags = handle->flags;
    if (PyVectorcall_NARGS(flagged) == 0 && !(flags & EXIT_ONLY)) {
        const bool plain = (flags & (EXIT_TAKEN | ENTERED)) == EXIT_TAKEN;
        return SP_LIKELY(plain) ? handle_enter(handle) : enter_rarely(handle);
    }
    return SP_LIKELY(flags & ENTERED) ? handle_exit(handle) : exit_rarely(handle);
}

static PyMemberDef handle_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(sp_handle, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot handle_slots[] = {
    {Py_tp_dealloc, handle_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, handle_members},
    {Py_tp_doc, "Enters and exits one call of a region."},
    {0, NULL},
};

static PyType_Spec handle_spec = {
    .name = "scope_profiler._core._Handle",
    .basicsize = sizeof(sp_handle),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION |
        Py_TPFLAGS_IMMUTABLETYPE,
    .slots = handle_slots,
};

/* ---- the descriptors __enter__ and __exit__ ---- */

typedef struct sp_method {
    PyObject_HEAD
    bool exits;
} sp_method;

/*
 * The interpreter looks __enter__ up first up to 3.13, __exit__ first from 3.14 on. The first look-up of a statement makes
 * the handle, the second takes it; nothing can run in between on this thread, since neither look-up allocates an object
 * that the cyclic collector tracks.
 */
#if PY_VERSION_HEX >= 0x030e0000
#define EXIT_COMES_FIRST 1
#else
#define EXIT_COMES_FIRST 0
#endif

/*
 * Whether the first look-up's result is still there. Where __exit__ comes first, one that was let go of must not be entered:
 * nobody could exit it.
 */
static inline bool is_held(const sp_handle *handle)
{
    return !EXIT_COMES_FIRST || Py_REFCNT((PyObject *)handle) > 1;
}

static PyObject *method_get(PyObject *self, PyObject *object, PyObject *type)
{
    const bool exits = ((sp_method *)self)->exits;
    if (object == NULL) return Py_NewRef(self);
    sp_region_object *region = (sp_region_object *)object;
    if (exits == EXIT_COMES_FIRST) {
        sp_handle *handle = handle_new(region, exits ? EXIT_TAKEN : 0);
        if (handle) pending_set(handle);
        return (PyObject *)handle;
    }
    sp_handle *pending = pending_take();
    if (SP_LIKELY(pending != NULL && pending->region == region && is_held(pending))) {
        pending->flags |= EXIT_TAKEN;
        return (PyObject *)pending;
    }
    Py_XDECREF((PyObject *)pending);
    return (PyObject *)handle_new(region, exits ? EXIT_ONLY : 0);
}

/* type(region).__enter__(region), type(region).__exit__(region, *exc): as contextlib.ExitStack calls them. */
static PyObject *method_call(PyObject *self, PyObject *arguments, PyObject *names)
{
    const bool exits = ((sp_method *)self)->exits;
    PyObject *region = PyTuple_GET_SIZE(arguments) ? PyTuple_GET_ITEM(arguments, 0) : NULL;
    if (region == NULL || !PyObject_TypeCheck(region, sp_region_type)) {
        PyErr_Format(PyExc_TypeError, "%s of a region needs the region as its first argument",
                     exits ? "__exit__" : "__enter__");
        return NULL;
    }
    if (exits) {
        exit_loose((sp_region_object *)region);
        Py_RETURN_NONE;
    }
    enter_loose((sp_region_object *)region);
    return Py_NewRef(region);
}

static PyObject *method_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<method '%s' of 'Region' objects>", ((sp_method *)self)->exits ? "__exit__" : "__enter__");
}

static void method_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot method_slots[] = {
    {Py_tp_dealloc, method_dealloc},
    {Py_tp_descr_get, method_get},
    {Py_tp_call, method_call},
    {Py_tp_repr, method_repr},
    {0, NULL},
};

static PyType_Spec method_spec = {
    .name = "scope_profiler._core._RegionMethod",
    .basicsize = sizeof(sp_method),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = method_slots,
};

static int add_method(PyTypeObject *type, const char *name, bool exits)
{
    sp_method *method = PyObject_New(sp_method, type);
    if (method == NULL) return -1;
    method->exits = exits;
    const int failed = PyObject_SetAttrString((PyObject *)sp_region_type, name, (PyObject *)method);
    Py_DECREF(method);
    return failed;
}

/* ---- Region ---- */

static PyObject *tags_json(PyObject *tags)
{
    /* Strings of a JSON list: quotes, backslashes and control characters escaped, the rest as it is. */
    return sp_call_named_undisturbed("json", "dumps", &tags, 1);
}

/* The file name as the run wants it stored; a new reference, NULL without an exception on any failure. */
static PyObject *stored_path(sp_region_object *region)
{
    if (region->source_file == Py_None) return NULL;
    PyObject *convert = sp_field_get((PyObject *)region->recorder, &region->recorder->source_path);
    if (convert == NULL) return Py_NewRef(region->source_file);
    PyObject *path = sp_call_undisturbed(convert, &region->source_file, 1);
    Py_DECREF(convert);
    if (path && PyUnicode_Check(path)) return path;
    Py_XDECREF(path);
    return Py_NewRef(region->source_file);
}

static const char *utf8_or_null(PyObject *text)
{
    if (text == NULL || text == Py_None) return NULL;
    const char *bytes = PyUnicode_AsUTF8(text);
    if (bytes == NULL) PyErr_Clear();
    return bytes;
}

static bool is_enabled(sp_region_object *region)
{
    PyObject *enabled = sp_field_get((PyObject *)region->recorder, &region->recorder->enabled);
    if (enabled == NULL) return true;
    PyObject *answer = sp_call_undisturbed(enabled, (PyObject *[]){region->name, region->tags}, 2);
    Py_DECREF(enabled);
    Py_XDECREF(answer);
    return answer == Py_True;
}

/* The source text, when the run keeps it: of a region older than the run it is looked up now. New reference, or NULL. */
static PyObject *stored_text(sp_region_object *region)
{
    if (!region->recorder->capture_source) return NULL;
    if (region->source_text == Py_None && region->source_file != Py_None) {
        PyObject *text = sp_source_text(region->source_file, region->source_line);
        if (text) sp_field_set((PyObject *)region, &region->source_text, text);
    }
    return sp_field_get((PyObject *)region, &region->source_text);
}

static uint32_t add_to_run(sp_region_object *region, sp_run *run)
{
    PyObject *path = stored_path(region);
    PyObject *text = stored_text(region);
    PyObject *tags = PyTuple_GET_SIZE(region->tags) ? tags_json(region->tags) : NULL;
    uint32_t id = SP_REGION_OFF;
    const char *name = utf8_or_null(region->name);
    if (name && sp_run_region(run, name, utf8_or_null(path), region->source_line, utf8_or_null(text),
                              utf8_or_null(tags), &id, NULL) != SP_OK) {
        id = SP_REGION_OFF;
    }
    Py_XDECREF(path);
    Py_XDECREF(text);
    Py_XDECREF(tags);
    PyErr_Clear();
    return id;
}

uint32_t sp_region_bind(sp_region_object *region, uint64_t token)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    const int saved = errno;
    const sp_trace_mode mode = sp_trace_mode_set(SP_TRACE_OFF); /* nothing of this is the program's */
    sp_recorder_object *recorder = region->recorder;
    sp_run_object *run = sp_recorder_current(recorder);
    uint32_t id = SP_REGION_OFF;
    if (run && run->run->token == token) {
        /* An object from before setup() is one of the new run's regions from now on. */
        Py_XDECREF(sp_dict_set_default(recorder->regions, region->name, (PyObject *)region));
        if (is_enabled(region)) id = add_to_run(region, run->run);
        atomic_store_explicit(&region->binding, token << 32 | id, memory_order_release);
    }
    Py_XDECREF((PyObject *)run);
    sp_trace_mode_set(mode);
    errno = saved;
    PyErr_Restore(type, value, traceback);
    return id;
}

static SP_NOINLINE sp_slot *enter_adopted(sp_log *log, uint32_t id)
{
    sp_task *task = sp_task_adopt(log);
    if (task == NULL) return sp_log_enter(log, id);
    /* For this call only: the end of the task's step is not seen. */
    sp_log_set_lane(log, task);
    sp_slot *slot = sp_log_enter(log, id);
    sp_log_set_lane(log, NULL);
    return slot;
}


sp_slot *sp_region_enter_on_lane(sp_log *log, uint32_t id)
{
    if (SP_UNLIKELY(log->tally == NULL)) return enter_adopted(log, id);
    sp_lane_look(log);
    return sp_frame_push(log, id);
}

static int region_traverse(PyObject *self, visitproc visit, void *arg)
{
    sp_region_object *region = (sp_region_object *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)region->recorder);
    return 0;
}

static int region_clear(PyObject *self)
{
    /* The recorder stays: handles read the switch in it. Its own clear breaks the cycle. */
    return 0;
}

static void region_dealloc(PyObject *self)
{
    sp_region_object *region = (sp_region_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (region->weakrefs) PyObject_ClearWeakRefs(self);
    Py_XDECREF((PyObject *)region->recorder);
    Py_XDECREF(region->name);
    Py_XDECREF(region->tags);
    Py_XDECREF(region->source_file);
    Py_XDECREF(region->source_text);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *region_num_calls(PyObject *self, void *closure)
{
    sp_region_object *region = (sp_region_object *)self;
    sp_run_object *run = sp_recorder_current(region->recorder);
    uint32_t id;
    const uint64_t calls = run && id_in_run(region, run->run, &id) ? sp_run_entries(run->run, id) : 0;
    Py_XDECREF((PyObject *)run);
    return PyLong_FromUnsignedLongLong(calls);
}

static PyObject *region_lineno(PyObject *self, void *closure)
{
    const int line = ((sp_region_object *)self)->source_line;
    if (line < 0) Py_RETURN_NONE;
    return PyLong_FromLong(line);
}

typedef enum wanted_times { DURATIONS, STARTS, ENDS } wanted_times;

/* An int64 array of the values. */
static PyObject *array_of(const int64_t *values, size_t count)
{
    PyObject *numpy = PyImport_ImportModule("numpy");
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)values, (Py_ssize_t)(count * sizeof *values));
    PyObject *view = numpy && bytes ? PyObject_CallMethod(numpy, "frombuffer", "Os", bytes, "int64") : NULL;
    PyObject *array = view ? PyObject_CallMethod(view, "copy", NULL) : NULL;
    Py_XDECREF(view);
    Py_XDECREF(bytes);
    Py_XDECREF(numpy);
    return array;
}

/* Of the closed calls that are not in a file yet. */
static PyObject *region_times(sp_region_object *region, wanted_times wanted)
{
    sp_run_object *run = sp_recorder_current(region->recorder);
    uint32_t id;
    int64_t *starts = NULL, *ends = NULL;
    size_t count = 0;
    sp_error error;
    sp_status status = SP_OK;
    if (run && id_in_run(region, run->run, &id)) {
        /* A collection under way is waited for. */
        Py_BEGIN_ALLOW_THREADS
        status = sp_run_peek(run->run, id, &starts, &ends, &count, &error);
        Py_END_ALLOW_THREADS
    }
    const int64_t origin = run ? run->run->start_ns : 0;
    Py_XDECREF((PyObject *)run);
    if (status != SP_OK) return sp_python_raise(status, &error, NULL);
    for (size_t i = 0; i < count; i++) {
        const int64_t start = starts[i] - origin, end = ends[i] - origin;
        starts[i] = wanted == DURATIONS ? end - start : wanted == STARTS ? start : end;
    }
    PyObject *array = array_of(starts, count);
    free(starts);
    free(ends);
    return array;
}

static PyObject *region_durations(PyObject *self, PyObject *none)
{
    return region_times((sp_region_object *)self, DURATIONS);
}

static PyObject *region_starts(PyObject *self, PyObject *none)
{
    return region_times((sp_region_object *)self, STARTS);
}

static PyObject *region_ends(PyObject *self, PyObject *none)
{
    return region_times((sp_region_object *)self, ENDS);
}

static PyObject *region_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<Region %R>", ((sp_region_object *)self)->name);
}

static PyMemberDef region_members[] = {
    {"region_name", T_OBJECT_EX, offsetof(sp_region_object, name), READONLY, "The region's name."},
    {"tags", T_OBJECT_EX, offsetof(sp_region_object, tags), READONLY, "The region's tags, a tuple of str."},
    {"source_file", T_OBJECT_EX, offsetof(sp_region_object, source_file), READONLY,
     "File of the first use, or None."},
    {"source_text", T_OBJECT_EX, offsetof(sp_region_object, source_text), READONLY,
     "Source of the first use when it was captured, or None."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(sp_region_object, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef region_getset[] = {
    {"num_calls", region_num_calls, NULL, "Entries in the current run, open ones included.", NULL},
    {"source_lineno", region_lineno, NULL, "Line of the first use, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef region_methods[] = {
    {"get_durations_numpy", region_durations, METH_NOARGS,
     "Durations of the closed calls that no file holds yet: int64 array, ns, in order of entry by thread."},
    {"get_start_times_numpy", region_starts, METH_NOARGS,
     "Starts of those calls: int64 array, ns since the start of the run."},
    {"get_end_times_numpy", region_ends, METH_NOARGS,
     "Ends of those calls: int64 array, ns since the start of the run."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot region_slots[] = {
    {Py_tp_dealloc, region_dealloc},
    {Py_tp_traverse, region_traverse},
    {Py_tp_clear, region_clear},
    {Py_tp_repr, region_repr},
    {Py_tp_members, region_members},
    {Py_tp_getset, region_getset},
    {Py_tp_methods, region_methods},
    {Py_tp_doc, "A region: a context manager whose every entry records one call.\n\n"
                "Made by ProfileManager.region(); re-entrant, recursive, usable from any thread, task or greenlet."},
    {0, NULL},
};

static PyType_Spec region_spec = {
    .name = "scope_profiler._core.Region",
    .basicsize = sizeof(sp_region_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = region_slots,
};

int sp_python_add_region(PyObject *module)
{
    handle_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &handle_spec, NULL);
    PyTypeObject *method_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &method_spec, NULL);
    sp_region_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &region_spec, NULL);
    int failed = -1;
    if (handle_type && method_type && sp_region_type && add_method(method_type, "__enter__", false) == 0 &&
        add_method(method_type, "__exit__", true) == 0) {
        failed = PyModule_AddObjectRef(module, "Region", (PyObject *)sp_region_type);
    }
    Py_XDECREF(method_type);
    return failed;
}
