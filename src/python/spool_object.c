#include "python/spool_object.h"

#include <stdlib.h>
#include <string.h>

#include "formats/spool.h"
#include "formats/spool_watch.h"
#include "python/profile_object.h"
#include "report/watch.h"

static PyObject *text_of(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *value_tuple(const sp_spool_value *value)
{
    PyObject *end = value->end_ns == SP_UNKNOWN ? Py_NewRef(Py_None) : PyLong_FromLongLong(value->end_ns);
    PyObject *region = value->outcome ? text_of(value->region) : Py_NewRef(Py_None);
    PyObject *text = text_of(value->text);
    if (end && region && text) {
        return Py_BuildValue("(NKLLNN)", region, (unsigned long long)value->scope, (long long)value->lane,
                             (long long)value->start_ns, end, text);
    }
    Py_XDECREF(end);
    Py_XDECREF(region);
    Py_XDECREF(text);
    return NULL;
}

/* (list of values, lanes of the calls as bytes) */
static PyObject *values_tuple(const sp_spool_values *values)
{
    PyObject *list = PyList_New((Py_ssize_t)values->count);
    for (size_t i = 0; list && i < values->count; i++) {
        PyObject *one = value_tuple(&values->list[i]);
        if (one == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, (Py_ssize_t)i, one);
    }
    PyObject *lanes = PyBytes_FromStringAndSize((const char *)values->lanes, (Py_ssize_t)(values->calls * sizeof *values->lanes));
    if (list && lanes) return Py_BuildValue("(NN)", list, lanes);
    Py_XDECREF(list);
    Py_XDECREF(lanes);
    return NULL;
}

static PyObject *read_spool(PyObject *module, PyObject *args)
{
    PyObject *path = NULL;
    unsigned rank = 0;
    if (!PyArg_ParseTuple(args, "O&|I:read_spool", PyUnicode_FSConverter, &path, &rank)) return NULL;
    sp_profile *profile = NULL;
    sp_salvage salvage = {0};
    sp_spool_values values;
    sp_error error;
    sp_status status;
    Py_BEGIN_ALLOW_THREADS
    status = sp_spool_read(PyBytes_AS_STRING(path), rank, &profile, &salvage, &values, &error);
    Py_END_ALLOW_THREADS
    if (status != SP_OK) {
        sp_python_raise(status, &error, PyBytes_AS_STRING(path));
        Py_DECREF(path);
        return NULL;
    }
    Py_DECREF(path);
    PyObject *object = sp_profile_object_new(profile), *given = values_tuple(&values);
    sp_spool_values_free(&values);
    if (object == NULL || given == NULL) {
        Py_XDECREF(object);
        Py_XDECREF(given);
        return NULL;
    }
    return Py_BuildValue("N{sKsKsOsOsN}", object, "open_calls", (unsigned long long)salvage.open_calls, "damaged_bytes",
                         (unsigned long long)salvage.damaged_bytes, "limited", salvage.limited ? Py_True : Py_False,
                         "incomplete", salvage.incomplete ? Py_True : Py_False, "values", given);
}

static PyObject *inspect_spool(PyObject *module, PyObject *argument)
{
    PyObject *path = NULL;
    if (!PyUnicode_FSConverter(argument, &path)) return NULL;
    sp_spool_info info;
    sp_error error;
    const sp_status status = sp_spool_inspect(PyBytes_AS_STRING(path), &info, &error);
    if (status != SP_OK) sp_python_raise(status, &error, PyBytes_AS_STRING(path));
    Py_DECREF(path);
    if (status != SP_OK) return NULL;
    PyObject *output = PyUnicode_DecodeFSDefault(info.output);
    if (output == NULL) return NULL;
    return Py_BuildValue("{sLsOsOsOsLsN}", "pid", (long long)info.pid, "alive", info.alive ? Py_True : Py_False,
                         "track_threads", info.tracks_threads ? Py_True : Py_False, "track_async",
                         info.tracks_tasks ? Py_True : Py_False, "start_ns", (long long)info.start_ns, "output", output);
}

static PyObject *spool_is_local(PyObject *module, PyObject *argument)
{
    PyObject *path = NULL;
    if (!PyUnicode_FSConverter(argument, &path)) return NULL;
    const bool local = sp_spool_is_local(PyBytes_AS_STRING(path));
    Py_DECREF(path);
    return PyBool_FromLong(local);
}

/* ---- a running process ---- */

#define WATCH "scope_profiler.watch"

typedef struct watcher {
    sp_watch *watch;
    const sp_watched *seen; /* NULL before the first look */
    char *path;
} watcher;

static void watcher_free(PyObject *capsule)
{
    watcher *w = PyCapsule_GetPointer(capsule, WATCH);
    sp_watch_close(w->watch);
    free(w->path);
    free(w);
}

static PyObject *watch_spool(PyObject *module, PyObject *argument)
{
    PyObject *path = NULL, *capsule = NULL;
    if (!PyUnicode_FSConverter(argument, &path)) return NULL;
    watcher *w = calloc(1, sizeof *w);
    sp_error error;
    sp_status status = SP_ERR_NO_MEMORY;
    if (w && (w->path = strdup(PyBytes_AS_STRING(path)))) status = sp_watch_open(w->path, &w->watch, &error);
    else sp_fail(&error, status, "no memory to read %s", PyBytes_AS_STRING(path));
    if (status == SP_OK) capsule = PyCapsule_New(w, WATCH, watcher_free);
    else sp_python_raise(status, &error, PyBytes_AS_STRING(path));
    Py_DECREF(path);
    if (capsule) return capsule;
    if (w) {
        sp_watch_close(w->watch);
        free(w->path);
    }
    free(w);
    return NULL;
}

static PyObject *watch_look(PyObject *module, PyObject *capsule)
{
    watcher *w = PyCapsule_GetPointer(capsule, WATCH);
    sp_error error;
    sp_status status;
    if (w == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = sp_watch_look(w->watch, &w->seen, &error);
    Py_END_ALLOW_THREADS
    if (status != SP_OK) return sp_python_raise(status, &error, w->path);
    return PyLong_FromUnsignedLongLong(w->seen->looked_at);
}

static watcher *looked_of(PyObject *capsule)
{
    watcher *w = PyCapsule_GetPointer(capsule, WATCH);
    if (w && w->seen == NULL) PyErr_SetString(PyExc_RuntimeError, "nobody has looked yet");
    return w && w->seen ? w : NULL;
}

static PyObject *watch_text(PyObject *module, PyObject *arguments)
{
    PyObject *capsule;
    int sort, keys, paused;
    Py_ssize_t rows;
    if (!PyArg_ParseTuple(arguments, "OCnpp:watch_text", &capsule, &sort, &rows, &keys, &paused)) return NULL;
    const watcher *w = looked_of(capsule);
    if (w == NULL) return NULL;
    const sp_watch_view view = {.sort = (char)sort, .rows = rows < 0 ? 0 : (size_t)rows, .keys = keys, .paused = paused};
    sp_text text = {0};
    sp_report_watch(w->seen, w->path, &view, &text);
    PyObject *result = text.failed ? PyErr_NoMemory() : text_of(text.data ? text.data : "");
    sp_text_free(&text);
    return result;
}

/* Adds `item`, which it takes, to the list; -1 with an exception. */
static int append(PyObject *list, PyObject *item)
{
    const int added = item ? PyList_Append(list, item) : -1;
    Py_XDECREF(item);
    return added;
}

static PyObject *ns_or_none(int64_t ns)
{
    return ns < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(ns);
}

static PyObject *share_or_none(double share)
{
    return share < 0 ? Py_NewRef(Py_None) : PyFloat_FromDouble(share);
}

static PyObject *watch_facts(PyObject *module, PyObject *capsule)
{
    const watcher *w = looked_of(capsule);
    if (w == NULL) return NULL;
    const sp_watched *seen = w->seen;
    PyObject *regions = PyList_New(0), *threads = PyList_New(0), *tasks = PyList_New(0), *children = PyList_New(0);
    bool failed = !regions || !threads || !tasks || !children;
    for (size_t i = 0; i < seen->region_count && !failed; i++) {
        const sp_watched_region *region = &seen->regions[i];
        if (region->calls == 0) continue;
        failed = append(regions, Py_BuildValue("{sNsKsKsLsd}", "name", text_of(region->name), "calls", (unsigned long long)region->calls,
                                               "open", (unsigned long long)region->open, "total_ns", (long long)region->total_ns,
                                               "calls_per_second", region->rate)) < 0;
    }
    for (size_t i = 0; i < seen->thread_count && !failed; i++) {
        const sp_watched_thread *thread = &seen->threads[i];
        failed = append(threads, Py_BuildValue("{sNsOsLsNsNsKsd}", "name", text_of(thread->name), "alive", thread->alive ? Py_True : Py_False,
                                               "native_id", (long long)thread->native_id, "cpu_ns", ns_or_none(thread->cpu_ns),
                                               "cpu", share_or_none(thread->cpu), "calls", (unsigned long long)thread->calls,
                                               "calls_per_second", thread->rate)) < 0;
    }
    for (size_t i = 0; i < seen->task_count && !failed; i++) {
        const sp_watched_task *task = &seen->tasks[i];
        failed = append(tasks, Py_BuildValue("{sNsNsKsLsLsd}", "name", text_of(task->name ? task->name : ""), "coroutine",
                                             text_of(task->coroutine), "steps", (unsigned long long)task->steps, "running_ns",
                                             (long long)task->running_ns, "suspended_ns", (long long)task->suspended_ns, "running",
                                             task->running)) < 0;
    }
    for (size_t i = 0; i < seen->child_count && !failed; i++) {
        failed = append(children, Py_BuildValue("{sLsN}", "pid", (long long)seen->children[i].pid, "spool",
                                                PyUnicode_DecodeFSDefault(seen->children[i].spool))) < 0;
    }
    PyObject *output = failed ? NULL : PyUnicode_DecodeFSDefault(seen->output);
    if (output == NULL) {
        Py_XDECREF(children);
        Py_XDECREF(regions);
        Py_XDECREF(threads);
        Py_XDECREF(tasks);
        return NULL;
    }
    return Py_BuildValue("{sLsOsNsLsKsNsNsNsN}", "pid", (long long)seen->pid, "alive", seen->alive ? Py_True : Py_False, "output", output,
                         "running_ns", (long long)seen->running_ns, "all_tasks", (unsigned long long)seen->all_tasks, "regions", regions,
                         "threads", threads, "tasks", tasks, "children", children);
}

static PyObject *spool_of_process(PyObject *module, PyObject *argument)
{
    (void)module;
    const long long pid = PyLong_AsLongLong(argument);
    char *path = NULL;
    sp_error error = {0};
    sp_status status;
    if (pid == -1 && PyErr_Occurred()) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = sp_spool_of_process(pid, &path, &error);
    Py_END_ALLOW_THREADS
    if (status != SP_OK) return sp_python_raise(SP_ERR_INVALID, &error, NULL);
    PyObject *text = PyUnicode_DecodeFSDefault(path);
    free(path);
    return text;
}

static PyMethodDef functions[] = {
    {"spool_of_process", spool_of_process, METH_O,
     "The newest spool that a process has mapped. ValueError that says in words for people why there is none."},
    {"watch_spool", watch_spool, METH_O, "What looks at the spool of a running process: for watch_look()."},
    {"watch_look", watch_look, METH_O, "Read what is new in the spool; how many slots and notes that were."},
    {"watch_text", watch_text, METH_VARARGS, "watch_text(watch, sort, rows, keys, paused): the last look as lines of text."},
    {"watch_facts", watch_facts, METH_O, "The last look: {'pid', 'alive', 'output', 'running_ns', 'all_tasks', 'regions', 'threads', 'tasks', 'children'}."},
    {"read_spool", read_spool, METH_VARARGS,
     "read_spool(path, rank=0) -> (Profile, {'open_calls', 'damaged_bytes', 'limited', 'incomplete', 'values'})\n\n"
     "'values': a list of (region or None, scope, lane, start ns, end ns or None, JSON text), and the lanes of the calls, int64 as bytes.\n"
     "What a spool holds that no file has. FileNotFoundError, OSError, CorruptProfileError, HDF5SchemaError (version)."},
    {"inspect_spool", inspect_spool, METH_O,
     "inspect_spool(path) -> {'pid', 'alive', 'track_threads', 'track_async', 'start_ns', 'output'}"},
    {"spool_is_local", spool_is_local, METH_O, "Whether a directory's file system is local."},
    {NULL, NULL, 0, NULL},
};

int sp_python_add_spool(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
