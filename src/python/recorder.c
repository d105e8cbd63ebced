#include "python/recorder.h"

#include "formats/spool.h"
#include "core/probe.h"
#include "python/function_tracer.h"
#include "python/greenlets.h"
#include "python/call_probe.h"
#include "python/native.h"
#include "python/task_wrapper.h"
#include "python/undisturbed.h"

#if PY_VERSION_HEX < 0x030b0000
#include <frameobject.h>
#endif
#include <structmember.h>

#include <frameobject.h>
#include <string.h>

PyTypeObject *sp_recorder_type;

/* ---- names ---- */

/* A str that UTF-8 and a C string can hold, or NULL with TypeError or ValueError. New reference. */
static PyObject *stored_name(PyObject *name, const char *what)
{
    PyObject *text;
    if (PyUnicode_CheckExact(name)) {
        text = Py_NewRef(name);
    } else if (PyUnicode_Check(name)) {
        text = PyUnicode_FromObject(name);
    } else if (PyBytes_Check(name)) {
        text = PyUnicode_FromEncodedObject(name, "utf-8", "strict");
    } else {
        PyErr_Format(PyExc_TypeError, "a %s must be a str, not %.100s", what, Py_TYPE(name)->tp_name);
        return NULL;
    }
    if (text == NULL) return NULL;
    Py_ssize_t size;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
    if (bytes == NULL) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "a %s must be encodable as UTF-8: %.200R has a lone surrogate", what, text);
    } else if (memchr(bytes, 0, (size_t)size)) {
        PyErr_Format(PyExc_ValueError, "a %s cannot contain a NUL character: %.200R", what, text);
        bytes = NULL;
    }
    if (bytes == NULL) Py_CLEAR(text);
    return text;
}

/* A tuple of str from an iterable of str or one str; NULL with an exception. */
static PyObject *stored_tags(PyObject *tags)
{
    if (PyUnicode_Check(tags)) {
        PyObject *one = stored_name(tags, "tag");
        PyObject *tuple = one ? PyTuple_Pack(1, one) : NULL;
        Py_XDECREF(one);
        return tuple;
    }
    PyObject *given = PySequence_Tuple(tags);
    if (given == NULL) return NULL;
    const Py_ssize_t size = PyTuple_GET_SIZE(given);
    PyObject *tuple = PyTuple_New(size);
    for (Py_ssize_t i = 0; tuple && i < size; i++) {
        PyObject *tag = stored_name(PyTuple_GET_ITEM(given, i), "tag");
        if (tag == NULL) Py_CLEAR(tuple);
        else PyTuple_SET_ITEM(tuple, i, tag);
    }
    Py_DECREF(given);
    return tuple;
}

/* ---- regions ---- */

/* Import what is called later, where nothing may fail (undisturbed.h), now that an exception can still be told. */
static int import_ahead(const char *module)
{
    PyObject *imported = PyImport_ImportModule(module);
    Py_XDECREF(imported);
    return imported ? 0 : -1;
}

/* Tags of a new region. Its first call writes them. */
static PyObject *new_tags(PyObject *tags)
{
    return import_ahead("json") < 0 ? NULL : stored_tags(tags);
}

static int check_tags(sp_region_object *region, PyObject *tags)
{
    PyObject *wanted = stored_tags(tags);
    if (wanted == NULL) return -1;
    const int same = PyObject_RichCompareBool(region->tags, wanted, Py_EQ);
    if (same == 0) {
        PyErr_Format(PyExc_ValueError, "region %R has the tags %R; it cannot be used with %R as well", region->name,
                     region->tags, wanted);
    }
    Py_DECREF(wanted);
    return same == 1 ? 0 : -1;
}

static PyObject *region_new(sp_recorder_object *recorder, PyObject *name, PyObject *tags, PyObject *file, int line,
                            PyObject *text)
{
    sp_region_object *region = PyObject_GC_New(sp_region_object, sp_region_type);
    if (region == NULL) return NULL;
    region->gate = &recorder->gate;
    atomic_init(&region->binding, 0);
    region->recorder = (sp_recorder_object *)Py_NewRef((PyObject *)recorder);
    region->name = Py_NewRef(name);
    region->tags = tags && tags != Py_None ? new_tags(tags) : PyTuple_New(0);
    region->source_file = Py_NewRef(file ? file : Py_None);
    region->source_text = Py_NewRef(text ? text : Py_None);
    region->source_line = line;
    region->weakrefs = NULL;
    atomic_init(&region->unrecorded, 0);
    PyObject_GC_Track(region);
    if (region->tags == NULL) Py_CLEAR(region);
    return (PyObject *)region;
}

PyObject *sp_recorder_region(PyObject *self, PyObject *name, PyObject *tags, PyObject *file, int line, PyObject *text)
{
    sp_recorder_object *recorder = (sp_recorder_object *)self;
    PyObject *key = stored_name(name, "region name");
    if (key == NULL) return NULL;
    PyObject *region = sp_dict_get(recorder->regions, key);
    if (region && tags && tags != Py_None && check_tags((sp_region_object *)region, tags) < 0) Py_CLEAR(region);
    if (region == NULL && !PyErr_Occurred()) {
        PyObject *made = region_new(recorder, key, tags, file, line, text);
        /* Another thread may have been first: its object is the one. */
        if (made) region = sp_dict_set_default(recorder->regions, key, made);
        Py_XDECREF(made);
    }
    Py_DECREF(key);
    return region;
}

static const char source_module[] = "scope_profiler._source";

PyObject *sp_source_text(PyObject *file, int line)
{
    const sp_trace_mode mode = sp_trace_mode_set(SP_TRACE_OFF);
    PyObject *number = PyLong_FromLong(line), *text = NULL;
    if (number) text = sp_call_named_undisturbed(source_module, "block_text", (PyObject *[]){file, number}, 2);
    else PyErr_Clear();
    Py_XDECREF(number);
    sp_trace_mode_set(mode);
    return text;
}

/* Whether a frame runs code of this package, whose own lines are nobody's place of use. */
static bool is_own_frame(PyFrameObject *frame)
{
    PyObject *globals = PyObject_GetAttrString((PyObject *)frame, "f_globals");
    PyObject *name = globals ? PyMapping_GetItemString(globals, "__name__") : NULL;
    bool own = false;
    if (name && PyUnicode_Check(name)) {
        const char *text = PyUnicode_AsUTF8(name);
        own = text && strncmp(text, "scope_profiler.", strlen("scope_profiler.")) == 0;
    }
    Py_XDECREF(name);
    Py_XDECREF(globals);
    PyErr_Clear();
    return own;
}

/* The innermost frame that is the program's; a new reference, or NULL. */
static PyFrameObject *caller(void)
{
    PyFrameObject *frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    while (frame && is_own_frame(frame)) {
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    return frame;
}

static PyObject *region_at_caller(sp_recorder_object *recorder, PyObject *name, PyObject *tags)
{
    PyObject *file = NULL, *text = NULL;
    int line = -1;
    PyFrameObject *frame = caller();
    if (frame) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        file = Py_NewRef(code->co_filename);
        line = PyFrame_GetLineNumber(frame);
        Py_DECREF(code);
        Py_DECREF(frame);
        if (recorder->capture_source) text = sp_source_text(file, line);
    }
    PyObject *region = sp_recorder_region((PyObject *)recorder, name, tags, file, line, text);
    Py_XDECREF(file);
    Py_XDECREF(text);
    return region;
}

static int read_region_arguments(PyObject *const *arguments, Py_ssize_t count, PyObject *names, PyObject **out)
{
    static const char *const known[] = {"region_name", "functions", "tags"};
    if (count > 3) {
        PyErr_Format(PyExc_TypeError, "region() takes at most 3 arguments (%zd given)", count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) out[i] = arguments[i];
    const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        int at = 0;
        while (at < 3 && PyUnicode_CompareWithASCIIString(name, known[at]) != 0) at++;
        if (at == 3 || out[at]) {
            PyErr_Format(PyExc_TypeError, at == 3 ? "region() got an unexpected keyword argument '%U'"
                                                  : "region() got multiple values for argument '%U'", name);
            return -1;
        }
        out[at] = arguments[count + i];
    }
    if (out[0] == NULL) {
        PyErr_SetString(PyExc_TypeError, "region() missing 1 required positional argument: 'region_name'");
        return -1;
    }
    return 0;
}

static int tell_functions(sp_recorder_object *recorder, PyObject *name, PyObject *functions)
{
    if (functions == NULL || functions == Py_None) return 0;
    PyObject *hook = sp_field_get((PyObject *)recorder, &recorder->on_functions);
    PyObject *result = hook ? PyObject_CallFunctionObjArgs(hook, name, functions, NULL) : Py_NewRef(Py_None);
    Py_XDECREF(hook);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

static PyObject *recorder_region(PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *names)
{
    sp_recorder_object *recorder = (sp_recorder_object *)self;
    if (SP_LIKELY(count == 1 && names == NULL && PyUnicode_CheckExact(arguments[0]))) {
        PyObject *region = sp_dict_get(recorder->regions, arguments[0]);
        if (SP_LIKELY(region != NULL)) return region;
        if (PyErr_Occurred()) return NULL;
    }
    PyObject *given[3] = {NULL, NULL, NULL};
    if (read_region_arguments(arguments, count, names, given) < 0) return NULL;
    PyObject *key = stored_name(given[0], "region name");
    if (key == NULL) return NULL;
    PyObject *region = sp_dict_get(recorder->regions, key);
    if (region == NULL) {
        if (!PyErr_Occurred()) region = region_at_caller(recorder, key, given[2]);
    } else if (given[2] && given[2] != Py_None && check_tags((sp_region_object *)region, given[2]) < 0) {
        Py_CLEAR(region);
    }
    if (region && tell_functions(recorder, key, given[1]) < 0) Py_CLEAR(region);
    Py_DECREF(key);
    return region;
}

/* ---- runs ---- */

/* Call a function of scope_profiler._lanes. */
static PyObject *call_lanes(const char *function, PyObject *argument)
{
    PyObject *lanes = PyImport_ImportModule("scope_profiler._lanes");
    PyObject *answer = lanes ? PyObject_CallMethod(lanes, function, "O", argument) : NULL;
    Py_XDECREF(lanes);
    return answer;
}

/*
 * Recorders with hooks in place, for a forked child to take them out. The lock is held for a few instructions, without
 * anything of the interpreter in between; a child makes a new one, since its owner may not have come along.
 */
static sp_recorder_object *hooked;
static pthread_mutex_t hooked_lock = PTHREAD_MUTEX_INITIALIZER;

static void list_hooked(sp_recorder_object *recorder)
{
    if (recorder->listed) return;
    recorder->listed = true;
    pthread_mutex_lock(&hooked_lock);
    recorder->next_hooked = hooked;
    hooked = recorder;
    pthread_mutex_unlock(&hooked_lock);
}

static void unlist_hooked(sp_recorder_object *recorder)
{
    recorder->listed = false;
    pthread_mutex_lock(&hooked_lock);
    for (sp_recorder_object **link = &hooked; *link; link = &(*link)->next_hooked) {
        if (*link != recorder) continue;
        *link = recorder->next_hooked;
        break;
    }
    pthread_mutex_unlock(&hooked_lock);
}

static void unhook(sp_recorder_object *recorder);

/* In a forked child: the hooks of every run come out. The core has made the runs follow nothing by then. */
static PyObject *stand_down(PyObject *module, PyObject *none)
{
    pthread_mutex_init(&hooked_lock, NULL);
    sp_python_changes_forked();
    sp_function_tracer_forked();
    bool tasks = false;
    for (const sp_recorder_object *recorder = hooked; recorder; recorder = recorder->next_hooked) {
        tasks |= recorder->task_hooks != NULL;
    }
    PyObject *freed = tasks ? call_lanes("after_fork", Py_None) : NULL;
    if (tasks && freed == NULL) PyErr_WriteUnraisable(NULL);
    Py_XDECREF(freed);
    while (hooked) unhook(hooked);
    Py_RETURN_NONE;
}

static PyMethodDef stand_down_method = {"stand_down", stand_down, METH_NOARGS, "Take the hooks of the parent out."};

static int watch_forks(void)
{
    static bool watched;
    if (watched) return 0;
    PyObject *os = PyImport_ImportModule("os");
    PyObject *reg = os ? PyObject_GetAttrString(os, "register_at_fork") : NULL;
    PyObject *callback = reg ? PyCFunction_New(&stand_down_method, NULL) : NULL;
    PyObject *names = callback ? Py_BuildValue("{s:O}", "after_in_child", callback) : NULL;
    PyObject *none = PyTuple_New(0);
    PyObject *done = names && none ? PyObject_Call(reg, none, names) : NULL;
    watched = done != NULL;
    Py_XDECREF(done);
    Py_XDECREF(none);
    Py_XDECREF(names);
    Py_XDECREF(callback);
    Py_XDECREF(reg);
    Py_XDECREF(os);
    return watched ? 0 : -1;
}

/* Follow threads, and tasks if the run does, from now on. Idempotent. */
static int hook_run(sp_recorder_object *recorder, sp_run_object *object)
{
    sp_run *run = object->run;
    if (recorder->hook || !run->tracks_threads) return 0;
    if (run->tracks_tasks && sp_greenlets_load() < 0) return -1;
    atomic_store(&run->follows, true);
    /* The calling thread is the run's first. If it was registered before, its greenlets are followed from here. */
    const bool known = run->row_count > 0;
    sp_run_log(run);
    if (known && run->tracks_tasks) sp_greenlets_watch_thread(run);
    PyObject *installed = sp_thread_hook_install(object);
    if (installed == NULL) return -1;
    sp_field_set((PyObject *)recorder, &recorder->hook, installed);
    list_hooked(recorder);
    if (watch_forks() < 0) return -1;
    if (!run->tracks_tasks) return 0;
    PyObject *task_hooks = call_lanes("install", (PyObject *)object);
    if (task_hooks == NULL) return -1;
    sp_field_set((PyObject *)recorder, &recorder->task_hooks, task_hooks);
    return 0;
}

/*
 * Trace the functions that the program calls. Where each thread has a profile hook of its own, those that start later are met as
 * tracked ones are.
 */
static int trace_functions(sp_recorder_object *recorder, sp_run_object *object, PyObject *chooser, bool everywhere)
{
    if (watch_forks() < 0) return -1;
    list_hooked(recorder);
    if (sp_function_tracer_start(recorder, chooser == Py_None ? NULL : chooser, everywhere) < 0) return -1;
#if PY_VERSION_HEX < 0x030c0000
    if (recorder->hook) return 0;
    PyObject *installed = sp_thread_hook_install(object);
    if (installed == NULL) return -1;
    sp_field_set((PyObject *)recorder, &recorder->hook, installed);
#endif
    return 0;
}

int sp_recorder_trace_inside(sp_recorder_object *recorder)
{
    sp_run_object *run = sp_recorder_current(recorder);
    const int failed = run && recorder->open ? trace_functions(recorder, run, Py_None, false) : 0;
    Py_XDECREF((PyObject *)run);
    return failed;
}

static void refresh_names(sp_run *run)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    sp_task_names_refresh(run);
    PyErr_Restore(type, value, traceback);
}

static void unhook_tasks(PyObject *task_hooks)
{
    if (sp_python_finalizing()) return; /* their modules are going, and what they were put into with them */
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *done = call_lanes("remove", task_hooks);
    if (done == NULL) PyErr_WriteUnraisable(task_hooks);
    Py_XDECREF(done);
    PyErr_Restore(type, value, traceback);
}

static void unhook_run(sp_recorder_object *recorder, sp_run_object *object)
{
    /* Names of tasks that go on are taken now: nobody will follow them to a later collection. */
    if (object && recorder->hook && !sp_python_finalizing()) refresh_names(object->run);
    if (object) atomic_store(&object->run->follows, false);
    sp_function_tracer_stop(recorder);
    unlist_hooked(recorder);
    PyObject *hook = sp_field_take((PyObject *)recorder, &recorder->hook);
    if (hook == NULL) return;
    PyObject *task_hooks = sp_field_take((PyObject *)recorder, &recorder->task_hooks);
    if (task_hooks) unhook_tasks(task_hooks);
    Py_XDECREF(task_hooks);
    if (object && object->run->tracks_tasks) sp_greenlets_unwatch_thread(object->run);
    sp_thread_hook_remove(hook);
    Py_DECREF(hook);
}

static void unhook(sp_recorder_object *recorder)
{
    sp_run_object *run = sp_recorder_current(recorder);
    unhook_run(recorder, run);
    Py_XDECREF((PyObject *)run);
}

static void stop(sp_recorder_object *recorder)
{
    sp_run_object *run = sp_recorder_current(recorder);
    recorder->open = recorder->paused = false;
    if (run) {
        sp_native_unfollow(recorder, run->run);
        sp_run_close(run->run);
    }
    unhook_run(recorder, run);
    Py_XDECREF((PyObject *)run);
}

static int open_spool(sp_run_options *options, PyObject *path, PyObject *output, Py_ssize_t limit, int newest, int ends)
{
    PyObject *path_bytes = NULL, *output_bytes = NULL;
    if (!PyUnicode_FSConverter(path, &path_bytes)) return -1;
    if (output != Py_None && !PyUnicode_FSConverter(output, &output_bytes)) {
        Py_DECREF(path_bytes);
        return -1;
    }
    const sp_spool_options spool = {.path = PyBytes_AS_STRING(path_bytes),
                                    .output = output_bytes ? PyBytes_AS_STRING(output_bytes) : NULL,
                                    .tracks_threads = options->tracks_threads, .tracks_tasks = options->tracks_tasks,
                                    .sums = options->sums,
                                    .limit = limit > 0 ? (uint64_t)limit : 0, .keeps_newest = newest,
                                    .ends_with_name = ends};
    sp_error error;
    const sp_status status = sp_spool_create(&spool, &options->store, &error);
    if (status != SP_OK) sp_python_raise(status, &error, PyBytes_AS_STRING(path_bytes));
    Py_DECREF(path_bytes);
    Py_XDECREF(output_bytes);
    return status == SP_OK ? 0 : -1;
}

static void end_spool(sp_store *store)
{
    sp_spool_finish(store, false);
    store->operations->release(store);
}

static PyObject *recorder_open(PyObject *self, PyObject *arguments, PyObject *names)
{
    static char *known[] = {"track_threads", "track_async", "enabled", "buffer_limit", "capture_source", "source_path",
                            "spool", "spool_output", "spool_limit", "spool_newest",
                            "spool_ends_with_name", "instrument", "perf_events", "aggregate", NULL};
    sp_recorder_object *recorder = (sp_recorder_object *)self;
    int threads = 0, tasks = 0, capture = 0, newest = 0, ends = 0, sums = 0;
    PyObject *enabled = Py_None, *source_path = Py_None, *spool = Py_None, *spool_output = Py_None;
    PyObject *instrument = Py_None, *perf_events = Py_None;
    Py_ssize_t buffer_limit = 0, spool_limit = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "|$ppOnpOOOnppOOp:open", known, &threads, &tasks, &enabled, &buffer_limit,
                                     &capture, &source_path, &spool, &spool_output, &spool_limit, &newest, &ends, &instrument,
                                     &perf_events, &sums)) {
        return NULL;
    }
    if (sums && (threads || tasks)) {
        PyErr_SetString(PyExc_ValueError, "aggregate cannot be combined with track_threads or track_async");
        return NULL;
    }
    if (sums && sp_greenlets_load_present() < 0) return NULL;
    if (capture && import_ahead(source_module) < 0) return NULL;
    sp_run_options options = {.tracks_threads = threads || tasks, .tracks_tasks = tasks, .sums = sums,
                                    .first_block = buffer_limit > 0 && buffer_limit < 128 ? (size_t)buffer_limit : 0};
    sp_run *run;
    sp_error error;
    /* What can fail for outside reasons comes first: then the run before goes on. */
    options.probe = sp_python_probe(instrument, perf_events);
    if (PyErr_Occurred()) return NULL;
    if (spool != Py_None && open_spool(&options, spool, spool_output, spool_limit, newest, ends) < 0) {
        if (options.probe) options.probe->operations->release(options.probe);
        return NULL;
    }
    stop(recorder);
    /* The gate opens when everything else is in place. */
    sp_switch closed = {0};
    const sp_status status = sp_run_open(&options, &closed, &run, &error);
    if (status != SP_OK) {
        if (options.store) end_spool(options.store);
        return sp_python_raise(status, &error, NULL);
    }
    sp_run_object *object = sp_run_object_new(run, options.store, spool);
    if (object == NULL) return NULL;
    PyDict_Clear(recorder->regions);
    sp_field_set(self, &recorder->enabled, enabled == Py_None ? NULL : Py_NewRef(enabled));
    sp_field_set(self, &recorder->source_path, source_path == Py_None ? NULL : Py_NewRef(source_path));
    recorder->capture_source = capture;
    sp_field_set(self, &recorder->run, Py_NewRef((PyObject *)object));
    sp_run_attach(run, &recorder->gate);
    recorder->open = true;
    if (hook_run(recorder, object) < 0) {
        stop(recorder);
        Py_CLEAR(object);
    }
    if (object) sp_native_follow(recorder, run);
    return (PyObject *)object;
}

static PyObject *recorder_install_hooks(PyObject *self, PyObject *none)
{
    sp_recorder_object *recorder = (sp_recorder_object *)self;
    sp_run_object *run = sp_recorder_current(recorder);
    const int failed = run && recorder->open ? hook_run(recorder, run) : 0;
    Py_XDECREF((PyObject *)run);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

static PyObject *recorder_trace_functions(PyObject *self, PyObject *chooser)
{
    sp_recorder_object *recorder = (sp_recorder_object *)self;
    sp_run_object *run = sp_recorder_current(recorder);
    const int failed = run && recorder->open ? trace_functions(recorder, run, chooser, true) : 0;
    Py_XDECREF((PyObject *)run);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

static PyObject *recorder_stop_tracing(PyObject *self, PyObject *none)
{
    sp_function_tracer_stop((sp_recorder_object *)self);
    Py_RETURN_NONE;
}

static PyObject *recorder_remove_hooks(PyObject *self, PyObject *none)
{
    unhook((sp_recorder_object *)self);
    Py_RETURN_NONE;
}

static PyObject *recorder_close(PyObject *self, PyObject *none)
{
    stop((sp_recorder_object *)self);
    Py_RETURN_NONE;
}

static PyObject *recorder_forget(PyObject *self, PyObject *none)
{
    sp_recorder_object *recorder = (sp_recorder_object *)self;
    stop(recorder);
    PyDict_Clear(recorder->regions);
    sp_field_set(self, &recorder->run, NULL);
    sp_field_set(self, &recorder->enabled, NULL);
    sp_field_set(self, &recorder->source_path, NULL);
    Py_RETURN_NONE;
}

static PyObject *set_paused(sp_recorder_object *recorder, bool paused)
{
    sp_run_object *run = sp_recorder_current(recorder);
    if (run && recorder->open) {
        recorder->paused = paused;
        sp_run_set_paused(run->run, paused);
        sp_native_follow_pause(recorder, run->run, paused);
    }
    Py_XDECREF((PyObject *)run);
    Py_RETURN_NONE;
}

static PyObject *recorder_pause(PyObject *self, PyObject *none)
{
    return set_paused((sp_recorder_object *)self, true);
}

static PyObject *recorder_resume(PyObject *self, PyObject *none)
{
    return set_paused((sp_recorder_object *)self, false);
}

static PyObject *recorder_refilter(PyObject *self, PyObject *enabled)
{
    sp_recorder_object *recorder = (sp_recorder_object *)self;
    sp_field_set(self, &recorder->enabled, enabled == Py_None ? NULL : Py_NewRef(enabled));
    PyObject *regions = PyDict_Values(recorder->regions);
    if (regions == NULL) return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(regions); i++) {
        atomic_store_explicit(&((sp_region_object *)PyList_GET_ITEM(regions, i))->binding, 0, memory_order_release);
    }
    Py_DECREF(regions);
    Py_RETURN_NONE;
}

static PyObject *recorder_add(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (count < 1 || count > 2) return PyErr_Format(PyExc_TypeError, "add() takes a name and tags (%zd given)", count);
    return sp_recorder_region(self, arguments[0], count == 2 ? arguments[1] : NULL, NULL, -1, NULL);
}

static PyObject *recorder_adopt(PyObject *self, PyObject *object)
{
    sp_recorder_object *recorder = (sp_recorder_object *)self;
    if (!PyObject_TypeCheck(object, sp_region_type) || ((sp_region_object *)object)->recorder != recorder) {
        PyErr_SetString(PyExc_TypeError, "adopt() needs a region of this recorder");
        return NULL;
    }
    return sp_dict_set_default(recorder->regions, ((sp_region_object *)object)->name, object);
}

static PyObject *recorder_regions(PyObject *self, PyObject *none)
{
    return PyDict_Values(((sp_recorder_object *)self)->regions);
}

static PyObject *recorder_run(PyObject *self, void *closure)
{
    PyObject *run = (PyObject *)sp_recorder_current((sp_recorder_object *)self);
    return run ? run : Py_NewRef(Py_None);
}

static PyObject *recorder_recording(PyObject *self, void *closure)
{
    sp_recorder_object *recorder = (sp_recorder_object *)self;
    return PyBool_FromLong(recorder->open && !recorder->paused);
}

static PyObject *recorder_paused(PyObject *self, void *closure)
{
    return PyBool_FromLong(((sp_recorder_object *)self)->paused);
}

/* ---- the type ---- */

static PyObject *recorder_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    if (PyTuple_GET_SIZE(arguments) || (names && PyDict_GET_SIZE(names))) {
        PyErr_SetString(PyExc_TypeError, "Recorder() takes no arguments");
        return NULL;
    }
    sp_recorder_object *recorder = (sp_recorder_object *)type->tp_alloc(type, 0);
    if (recorder == NULL) return NULL;
    recorder->regions = PyDict_New();
    if (recorder->regions == NULL) Py_CLEAR(recorder);
    return (PyObject *)recorder;
}

static int recorder_traverse(PyObject *self, visitproc visit, void *arg)
{
    sp_recorder_object *recorder = (sp_recorder_object *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(recorder->regions);
    Py_VISIT(recorder->run);
    Py_VISIT(recorder->enabled);
    Py_VISIT(recorder->source_path);
    Py_VISIT(recorder->on_functions);
    Py_VISIT(recorder->hook);
    Py_VISIT(recorder->task_hooks);
    return 0;
}

static int recorder_clear(PyObject *self)
{
    sp_recorder_object *recorder = (sp_recorder_object *)self;
    stop(recorder);
    Py_CLEAR(recorder->regions);
    Py_CLEAR(recorder->run);
    Py_CLEAR(recorder->enabled);
    Py_CLEAR(recorder->source_path);
    Py_CLEAR(recorder->on_functions);
    return 0;
}

static void recorder_dealloc(PyObject *self)
{
    sp_recorder_object *recorder = (sp_recorder_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (recorder->weakrefs) PyObject_ClearWeakRefs(self);
    recorder_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyGetSetDef recorder_getset[] = {
    {"run", recorder_run, NULL, "The current Run, or None.", NULL},
    {"recording", recorder_recording, NULL, "Open and not paused.", NULL},
    {"paused", recorder_paused, NULL, "Between pause() and resume().", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef recorder_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(sp_recorder_object, weakrefs), READONLY, NULL},
    {"on_functions", T_OBJECT, offsetof(sp_recorder_object, on_functions), 0,
     "Called with a region's name and the functions that region() was given for it."},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef recorder_methods[] = {
    {"region", (PyCFunction)(void (*)(void))recorder_region, METH_FASTCALL | METH_KEYWORDS,
     "region(region_name, functions=None, tags=None)\n--\n\n"
     "The region of this name, a context manager; made on first use, with the caller's file and line.\n\n"
     "tags: iterable of str, or None not to check. TypeError for a name that is no str (nor bytes of UTF-8), ValueError for one\n"
     "that cannot be stored (NUL, lone surrogate) and for tags that differ from those the region has."},
    {"open", (PyCFunction)(void (*)(void))recorder_open, METH_VARARGS | METH_KEYWORDS,
     "open(*, track_threads=False, track_async=False, enabled=None, buffer_limit=1024, capture_source=False, "
     "source_path=None, spool=None, spool_output=None, spool_limit=0, spool_newest=False, spool_ends_with_name=False, "
     "instrument=None, perf_events=None, aggregate=False)\n--\n\n"
     "Start a run and return it. Every region of this recorder records into it, objects made earlier included."},
    {"close", recorder_close, METH_NOARGS, "Stop recording; the run can still be collected."},
    {"install_hooks", recorder_install_hooks, METH_NOARGS, "Follow threads and tasks of the open run (open() does). Idempotent."},
    {"trace_functions", recorder_trace_functions, METH_O,
     "trace_functions(chooser)\n--\n\n"
     "Calls of Python functions inside of regions of the open run are calls of regions too. chooser(name, file name) gives the name of\n"
     "the region of a function that is `name` (module.qualname) by default, or None: not traced. None for all functions."},
    {"stop_tracing", recorder_stop_tracing, METH_NOARGS, "Trace no functions any more; calls that are open stay so."},
    {"remove_hooks", recorder_remove_hooks, METH_NOARGS, "Follow no more threads and tasks; regions go on recording."},
    {"forget", recorder_forget, METH_NOARGS, "close(), and let the run and the regions go."},
    {"pause", recorder_pause, METH_NOARGS, "Record nothing until resume()."},
    {"resume", recorder_resume, METH_NOARGS, "Record again."},
    {"refilter", recorder_refilter, METH_O,
     "Decide again by the callable (name, tags) -> bool, or None for all, which regions record."},
    {"add", (PyCFunction)(void (*)(void))recorder_add, METH_FASTCALL,
     "add(name, tags=None): the region of this name; made when new, without a file and line."},
    {"adopt", recorder_adopt, METH_O,
     "List a region of an earlier run with those of the current one; returns the one that has the name now."},
    {"host_native", sp_recorder_host_native, METH_NOARGS,
     "What native code records in this process goes into the runs of this recorder from now on."},
    {"native_metadata", sp_recorder_native_metadata, METH_NOARGS,
     "{key: value} that native code has set in the current run of the recorder that hosts it; else {}."},
    {"regions", recorder_regions, METH_NOARGS, "The regions of the current run, in order of creation."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot recorder_slots[] = {
    {Py_tp_new, recorder_new},
    {Py_tp_dealloc, recorder_dealloc},
    {Py_tp_traverse, recorder_traverse},
    {Py_tp_clear, recorder_clear},
    {Py_tp_getset, recorder_getset},
    {Py_tp_members, recorder_members},
    {Py_tp_methods, recorder_methods},
    {Py_tp_doc, "What one manager records with: its switch, its regions and its current run."},
    {0, NULL},
};

static PyType_Spec recorder_spec = {
    .name = "scope_profiler._core.Recorder",
    .basicsize = sizeof(sp_recorder_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = recorder_slots,
};

int sp_python_add_recorder(PyObject *module)
{
    sp_recorder_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &recorder_spec, NULL);
    if (sp_recorder_type == NULL) return -1;
    return PyModule_AddObjectRef(module, "Recorder", (PyObject *)sp_recorder_type);
}
