/*
 * records.c - ThreadRecord and TaskRecord of scope_profiler.concurrency: views of a run's tables, or stand-alone rows that
 * are driven by hand.
 *
 * A view keeps its run and answers from the core's row at the moment it is asked. A stand-alone record has a row of its
 * own in which a tick is a nanosecond of perf_counter_ns().
 */
#include "python/records.h"

#include <stdlib.h>
#include <string.h>
#include <structmember.h>

#include "core/task.h"
#include "platform/platform.h"
#include "python/task_wrapper.h"

static PyTypeObject *thread_record_type, *task_record_type;

/* ---- tasks ---- */

typedef struct sp_task_record {
    PyObject_HEAD
    sp_run_object *run; /* NULL: stand-alone */
    sp_task *task;      /* the run's, or &own */
    sp_task own;
    PyObject *kind, *name, *coro_name; /* of a stand-alone record */
} sp_task_record;

static int64_t moment(const sp_task_record *record, sp_ticks ticks, int64_t none)
{
    if (ticks == 0) return none;
    return record->run ? sp_run_to_ns(record->run->run, ticks) : (int64_t)ticks;
}

static int64_t span(const sp_task_record *record, uint64_t ticks)
{
    if (record->run == NULL) return (int64_t)ticks;
    sp_run *run = record->run->run;
    pthread_mutex_lock(&run->lock);
    if (run->timeline.count < 2) sp_timeline_anchor(&run->timeline, 0);
    const int64_t ns = sp_timeline_duration(&run->timeline, ticks);
    pthread_mutex_unlock(&run->lock);
    return ns;
}

static sp_ticks now_of(const sp_task_record *record)
{
    return record->run ? sp_clock_read() : (sp_ticks)sp_clock_ns();
}

static PyObject *task_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    static char *known[] = {"index", "kind", "name", "coro_name", "thread_index", NULL};
    int index, thread_index;
    PyObject *kind, *name, *coro_name;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "iOOOi:TaskRecord", known, &index, &kind, &name, &coro_name,
                                     &thread_index)) {
        return NULL;
    }
    sp_task_record *record = (sp_task_record *)type->tp_alloc(type, 0);
    if (record == NULL) return NULL;
    record->task = &record->own;
    record->own.index = index;
    record->own.thread_index = thread_index;
    record->own.created = (sp_ticks)sp_clock_ns();
    record->kind = Py_NewRef(kind);
    record->name = Py_NewRef(name);
    record->coro_name = Py_NewRef(coro_name);
    return (PyObject *)record;
}

PyObject *sp_task_record_view(sp_run_object *run, sp_task *task)
{
    sp_task_record *record = (sp_task_record *)task_record_type->tp_alloc(task_record_type, 0);
    if (record == NULL) return NULL;
    record->run = (sp_run_object *)Py_NewRef((PyObject *)run);
    record->task = task;
    return (PyObject *)record;
}

static void task_dealloc(PyObject *self)
{
    sp_task_record *record = (sp_task_record *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF((PyObject *)record->run);
    Py_XDECREF(record->kind);
    Py_XDECREF(record->name);
    Py_XDECREF(record->coro_name);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Charge the gap since the last step as suspension; the clock, ns. */
static PyObject *task_enter_step(PyObject *self, PyObject *none)
{
    sp_task_record *record = (sp_task_record *)self;
    const sp_ticks now = now_of(record);
    sp_task_resume(record->task, now);
    return PyLong_FromLongLong(moment(record, now, 0));
}

static PyObject *task_leave_step(PyObject *self, PyObject *none)
{
    sp_task_record *record = (sp_task_record *)self;
    sp_task_suspend(record->task, now_of(record));
    Py_RETURN_NONE;
}

static PyObject *task_finish(PyObject *self, PyObject *none)
{
    sp_task_record *record = (sp_task_record *)self;
    sp_task_finish(record->task, now_of(record));
    Py_RETURN_NONE;
}

static PyObject *task_kind(PyObject *self, void *closure)
{
    sp_task_record *record = (sp_task_record *)self;
    if (record->run == NULL) return Py_NewRef(record->kind);
    return PyUnicode_FromString(record->task->kind == SP_TASK_GREENLET ? "greenlet" : "task");
}

static PyObject *task_name(PyObject *self, void *closure)
{
    sp_task_record *record = (sp_task_record *)self;
    if (record->run == NULL) return sp_field_get(self, &record->name);
    char buffer[32];
    pthread_mutex_lock(&record->run->run->lock);
    char *name = strdup(sp_task_name(record->task, buffer));
    pthread_mutex_unlock(&record->run->run->lock);
    if (name == NULL) return PyErr_NoMemory();
    PyObject *text = PyUnicode_FromString(name);
    free(name);
    return text;
}

static int task_set_name(PyObject *self, PyObject *value, void *closure)
{
    sp_task_record *record = (sp_task_record *)self;
    if (value == NULL || !PyUnicode_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "the name of a task must be a str");
        return -1;
    }
    if (record->run == NULL) {
        sp_field_set(self, &record->name, Py_NewRef(value));
        return 0;
    }
    const char *text = PyUnicode_AsUTF8(value);
    if (text) sp_run_task_name(record->run->run, record->task, text);
    return text ? 0 : -1;
}

static PyObject *task_coro_name(PyObject *self, void *closure)
{
    sp_task_record *record = (sp_task_record *)self;
    if (record->run == NULL) return Py_NewRef(record->coro_name);
    sp_run *run = record->run->run;
    pthread_mutex_lock(&run->lock);
    const uint32_t id = record->task->coro_name;
    const char *name = id < run->string_count ? run->strings[id] : "";
    pthread_mutex_unlock(&run->lock);
    return PyUnicode_FromString(name); /* interned: it lives as long as the run */
}

typedef enum task_field {
    TASK_INDEX, TASK_THREAD, TASK_CREATED, TASK_DONE_NS, TASK_STEPS, TASK_RUNNING, TASK_SUSPENDED, TASK_STEP_STARTED,
    TASK_LAST_STEP_END, TASK_DONE,
} task_field;

static PyObject *task_get(PyObject *self, void *closure)
{
    const sp_task_record *record = (sp_task_record *)self;
    const sp_task *task = record->task;
    switch ((task_field)(intptr_t)closure) {
    case TASK_INDEX: return PyLong_FromLong(task->index);
    case TASK_THREAD: return PyLong_FromLong(task->thread_index);
    case TASK_CREATED: return PyLong_FromLongLong(moment(record, task->created, 0));
    case TASK_DONE_NS: return PyLong_FromLongLong(moment(record, task->done, SP_UNKNOWN));
    case TASK_STEPS: return PyLong_FromUnsignedLongLong(atomic_load(&task->steps));
    case TASK_RUNNING: return PyLong_FromLongLong(span(record, atomic_load(&task->running)));
    case TASK_SUSPENDED: return PyLong_FromLongLong(span(record, atomic_load(&task->suspended)));
    case TASK_STEP_STARTED: return PyLong_FromLongLong(moment(record, atomic_load(&task->step_started), 0));
    case TASK_LAST_STEP_END: return PyLong_FromLongLong(moment(record, atomic_load(&task->last_step_end), 0));
    case TASK_DONE: break;
    }
    return PyBool_FromLong(task->done != 0);
}

static PyObject *task_repr(PyObject *self)
{
    PyObject *kind = task_kind(self, NULL), *name = task_name(self, NULL);
    const sp_task *task = ((sp_task_record *)self)->task;
    PyObject *text = kind && name
        ? PyUnicode_FromFormat("<TaskRecord %d: %S %R, %llu steps%s>", task->index, kind, name,
                               (unsigned long long)atomic_load(&task->steps), task->done ? ", done" : "") : NULL;
    Py_XDECREF(kind);
    Py_XDECREF(name);
    return text;
}

/* Two records of the same row are equal. */
static PyObject *task_compare(PyObject *self, PyObject *other, int operation)
{
    if ((operation != Py_EQ && operation != Py_NE) || !Py_IS_TYPE(other, task_record_type)) Py_RETURN_NOTIMPLEMENTED;
    const bool same = ((sp_task_record *)self)->task == ((sp_task_record *)other)->task;
    return PyBool_FromLong(same == (operation == Py_EQ));
}

static Py_hash_t task_hash(PyObject *self)
{
    return (Py_hash_t)((uintptr_t)((sp_task_record *)self)->task >> 4);
}

#define TASK_FIELD(name, field, doc) {name, task_get, NULL, doc, (void *)(intptr_t)field}

static PyGetSetDef task_getset[] = {
    TASK_FIELD("index", TASK_INDEX, "Dense number within the run."),
    {"kind", task_kind, NULL, "\"task\" or \"greenlet\".", NULL},
    {"name", task_name, task_set_name, "The task's or greenlet's name.", NULL},
    {"coro_name", task_coro_name, NULL, "Qualified name of what it runs.", NULL},
    TASK_FIELD("thread_index", TASK_THREAD, "Index of the thread it ran on last."),
    TASK_FIELD("created_ns", TASK_CREATED, "When it was created, ns of perf_counter_ns()."),
    TASK_FIELD("done_ns", TASK_DONE_NS, "When it ended, or -1."),
    TASK_FIELD("steps", TASK_STEPS, "Times it was resumed."),
    TASK_FIELD("running_ns", TASK_RUNNING, "ns it held its thread, over all steps that ended."),
    TASK_FIELD("suspended_ns", TASK_SUSPENDED, "ns between steps."),
    TASK_FIELD("step_started_ns", TASK_STEP_STARTED, "When the step under way began, or 0."),
    TASK_FIELD("last_step_end_ns", TASK_LAST_STEP_END, "When the last step ended, or 0."),
    TASK_FIELD("done", TASK_DONE, "Whether it has ended."),
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef task_methods[] = {
    {"enter_step", task_enter_step, METH_NOARGS,
     "enter_step($self)\n--\n\n"
     "Begin a step: the gap since the last one is suspension. Returns the clock, ns."},
    {"leave_step", task_leave_step, METH_NOARGS, "leave_step($self)\n--\n\nEnd the step: it is running time."},
    {"finish", task_finish, METH_NOARGS, "finish($self)\n--\n\nRecord the end of the lane; the first call counts."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot task_slots[] = {
    {Py_tp_new, task_new},
    {Py_tp_dealloc, task_dealloc},
    {Py_tp_repr, task_repr},
    {Py_tp_richcompare, task_compare},
    {Py_tp_hash, task_hash},
    {Py_tp_getset, task_getset},
    {Py_tp_methods, task_methods},
    {Py_tp_doc, "TaskRecord(index, kind, name, coro_name, thread_index)\n--\n\n"
                "One asyncio task or greenlet, and how its wall time split."},
    {0, NULL},
};

static PyType_Spec task_spec = {
    .name = "scope_profiler.concurrency.TaskRecord",
    .basicsize = sizeof(sp_task_record),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = task_slots,
};

/* ---- threads ---- */

typedef struct sp_thread_record {
    PyObject_HEAD
    sp_run_object *run; /* NULL: stand-alone */
    sp_thread_row *row; /* the run's, or &own */
    sp_thread_row own;
    PyObject *name; /* of a stand-alone record */
    PyObject *task; /* what was assigned, or NULL */
} sp_thread_record;

static int64_t int_attribute(PyObject *object, const char *name)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    const long long number = value && PyLong_Check(value) ? (long long)PyLong_AsUnsignedLongLongMask(value) : 0;
    PyErr_Clear();
    Py_XDECREF(value);
    return number;
}

static PyObject *thread_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    static char *known[] = {"index", "thread", NULL};
    int index;
    PyObject *thread;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "iO:ThreadRecord", known, &index, &thread)) return NULL;
    PyObject *name = PyObject_GetAttrString(thread, "name");
    PyObject *daemon = name ? PyObject_GetAttrString(thread, "daemon") : NULL;
    PyObject *text = daemon ? PyObject_Str(name) : NULL;
    const int truth = text ? PyObject_IsTrue(daemon) : -1;
    Py_XDECREF(name);
    Py_XDECREF(daemon);
    sp_thread_record *record = truth < 0 ? NULL : (sp_thread_record *)type->tp_alloc(type, 0);
    if (record == NULL) {
        Py_XDECREF(text);
        return NULL;
    }
    record->row = &record->own;
    record->own.index = index;
    record->own.daemon = truth;
    record->own.ident = int_attribute(thread, "ident");
    record->own.native_id = int_attribute(thread, "native_id");
    record->own.start = (sp_ticks)sp_clock_ns();
    record->own.cpu_ns = sp_platform_own_cpu_ns();
    record->name = text;
    return (PyObject *)record;
}

PyObject *sp_thread_record_view(sp_run_object *run, sp_thread_row *row)
{
    sp_thread_record *record = (sp_thread_record *)thread_record_type->tp_alloc(thread_record_type, 0);
    if (record == NULL) return NULL;
    record->run = (sp_run_object *)Py_NewRef((PyObject *)run);
    record->row = row;
    return (PyObject *)record;
}

static void thread_dealloc(PyObject *self)
{
    sp_thread_record *record = (sp_thread_record *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF((PyObject *)record->run);
    Py_XDECREF(record->name);
    Py_XDECREF(record->task);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *thread_sample_cpu(PyObject *self, PyObject *none)
{
    sp_thread_row *row = ((sp_thread_record *)self)->row;
    if (!row->released) row->cpu_ns = sp_platform_own_cpu_ns();
    Py_RETURN_NONE;
}

static PyObject *thread_name(PyObject *self, void *closure)
{
    sp_thread_record *record = (sp_thread_record *)self;
    if (record->run == NULL) return sp_field_get(self, &record->name);
    sp_thread_names_refresh(record->run->run);
    pthread_mutex_lock(&record->run->run->lock);
    char *name = strdup(record->row->name);
    pthread_mutex_unlock(&record->run->run->lock);
    if (name == NULL) return PyErr_NoMemory();
    PyObject *text = PyUnicode_FromString(name);
    free(name);
    return text;
}

static int thread_set_name(PyObject *self, PyObject *value, void *closure)
{
    sp_thread_record *record = (sp_thread_record *)self;
    if (value == NULL || !PyUnicode_Check(value) || record->run) {
        PyErr_SetString(PyExc_AttributeError, "the name of a tracked thread is the Thread's; a record's must be a str");
        return -1;
    }
    sp_field_set(self, &record->name, Py_NewRef(value));
    return 0;
}

/* The task the thread is running now, or what was assigned. */
static PyObject *thread_task(PyObject *self, void *closure)
{
    sp_thread_record *record = (sp_thread_record *)self;
    PyObject *assigned = sp_field_get(self, &record->task);
    if (assigned) return assigned;
    if (record->run == NULL) Py_RETURN_NONE;
    sp_run *run = record->run->run;
    sp_task *task = NULL;
    pthread_mutex_lock(&run->lock);
    for (sp_log *log = run->logs; log; log = log->next_of_run) {
        if (log->row == record->row) task = log->lane;
    }
    pthread_mutex_unlock(&run->lock);
    if (task == NULL) Py_RETURN_NONE;
    return sp_task_record_view(record->run, task);
}

static int thread_set_task(PyObject *self, PyObject *value, void *closure)
{
    sp_field_set(self, &((sp_thread_record *)self)->task, value == Py_None ? NULL : Py_XNewRef(value));
    return 0;
}

typedef enum thread_field { THREAD_INDEX, THREAD_IDENT, THREAD_NATIVE, THREAD_DAEMON, THREAD_START, THREAD_END, THREAD_CPU,
                            THREAD_ALIVE } thread_field;

static PyObject *thread_get(PyObject *self, void *closure)
{
    const sp_thread_record *record = (sp_thread_record *)self;
    sp_thread_row *row = record->row;
    sp_run *run = record->run ? record->run->run : NULL;
    switch ((thread_field)(intptr_t)closure) {
    case THREAD_INDEX: return PyLong_FromLong(row->index);
    case THREAD_IDENT: return PyLong_FromUnsignedLongLong((unsigned long long)row->ident);
    case THREAD_NATIVE: return PyLong_FromLongLong(row->native_id);
    case THREAD_DAEMON: return PyBool_FromLong(row->daemon);
    case THREAD_START: return PyLong_FromLongLong(run ? sp_run_to_ns(run, row->start) : (int64_t)row->start);
    case THREAD_END:
        if (row->end == 0) return PyLong_FromLong(SP_UNKNOWN);
        return PyLong_FromLongLong(run ? sp_run_to_ns(run, row->end) : (int64_t)row->end);
    case THREAD_CPU:
        if (run) {
            pthread_mutex_lock(&run->lock);
            sp_thread_row_cpu_ns(row);
            pthread_mutex_unlock(&run->lock);
        }
        return PyLong_FromLongLong(row->cpu_ns);
    case THREAD_ALIVE: break;
    }
    return PyBool_FromLong(row->end == 0);
}

static PyObject *thread_repr(PyObject *self)
{
    PyObject *name = thread_name(self, NULL);
    const sp_thread_row *row = ((sp_thread_record *)self)->row;
    PyObject *text = name ? PyUnicode_FromFormat("<ThreadRecord %d: %R%s>", row->index, name, row->end ? "" : ", alive") : NULL;
    Py_XDECREF(name);
    return text;
}

/* Two records of the same row are equal. */
static PyObject *thread_compare(PyObject *self, PyObject *other, int operation)
{
    if ((operation != Py_EQ && operation != Py_NE) || !Py_IS_TYPE(other, thread_record_type)) Py_RETURN_NOTIMPLEMENTED;
    const bool same = ((sp_thread_record *)self)->row == ((sp_thread_record *)other)->row;
    return PyBool_FromLong(same == (operation == Py_EQ));
}

static Py_hash_t thread_hash(PyObject *self)
{
    return (Py_hash_t)((uintptr_t)((sp_thread_record *)self)->row >> 4);
}

#define THREAD_FIELD(name, field, doc) {name, thread_get, NULL, doc, (void *)(intptr_t)field}

static PyGetSetDef thread_getset[] = {
    THREAD_FIELD("index", THREAD_INDEX, "Dense number within the run; what the thread_ids column stores."),
    THREAD_FIELD("ident", THREAD_IDENT, "The interpreter's id of the thread."),
    THREAD_FIELD("native_id", THREAD_NATIVE, "The system's id of the thread."),
    {"name", thread_name, thread_set_name, "The thread's name.", NULL},
    THREAD_FIELD("daemon", THREAD_DAEMON, "Whether it is a daemon thread."),
    THREAD_FIELD("start_ns", THREAD_START, "When it was registered, ns of perf_counter_ns()."),
    THREAD_FIELD("end_ns", THREAD_END, "When it ended, or -1."),
    THREAD_FIELD("cpu_ns", THREAD_CPU, "CPU ns it has burned in its life."),
    {"task", thread_task, thread_set_task, "The TaskRecord of the task that holds the thread, or None.", NULL},
    THREAD_FIELD("alive", THREAD_ALIVE, "Whether it has not ended."),
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef thread_methods[] = {
    {"sample_cpu", thread_sample_cpu, METH_NOARGS, "sample_cpu($self)\n--\n\nRefresh cpu_ns. Only valid on the thread itself."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot thread_slots[] = {
    {Py_tp_new, thread_new},
    {Py_tp_dealloc, thread_dealloc},
    {Py_tp_repr, thread_repr},
    {Py_tp_richcompare, thread_compare},
    {Py_tp_hash, thread_hash},
    {Py_tp_getset, thread_getset},
    {Py_tp_methods, thread_methods},
    {Py_tp_doc, "ThreadRecord(index, thread)\n--\n\nOne thread of the profiled process, as the lane tables describe it."},
    {0, NULL},
};

static PyType_Spec thread_spec = {
    .name = "scope_profiler.concurrency.ThreadRecord",
    .basicsize = sizeof(sp_thread_record),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = thread_slots,
};

/* ---- a run's records ---- */

PyObject *sp_run_thread_records(PyObject *self, PyObject *none)
{
    sp_run_object *object = (sp_run_object *)self;
    sp_run *run = object->run;
    PyObject *list = PyList_New(0);
    for (size_t i = run->hidden_rows; list; i++) {
        pthread_mutex_lock(&run->lock);
        sp_thread_row *row = i < run->row_count ? run->rows[i] : NULL;
        pthread_mutex_unlock(&run->lock);
        if (row == NULL) break;
        PyObject *record = sp_thread_record_view(object, row);
        if (record == NULL || PyList_Append(list, record) < 0) Py_CLEAR(list);
        Py_XDECREF(record);
    }
    return list;
}

PyObject *sp_run_task_records(PyObject *self, PyObject *none)
{
    sp_run_object *object = (sp_run_object *)self;
    PyObject *list = PyList_New(0);
    sp_task_names_refresh(object->run);
    for (int32_t i = (int32_t)object->run->hidden_tasks; list; i++) {
        sp_task *task = sp_run_task(object->run, i);
        if (task == NULL) break;
        PyObject *record = sp_task_record_view(object, task);
        if (record == NULL || PyList_Append(list, record) < 0) Py_CLEAR(list);
        Py_XDECREF(record);
    }
    return list;
}

PyObject *sp_run_current_thread_record(PyObject *self, PyObject *none)
{
    sp_run_object *object = (sp_run_object *)self;
    sp_log *log = sp_run_log(object->run);
    if (log == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the run does not follow threads any more");
        return NULL;
    }
    return sp_thread_record_view(object, log->row);
}

int sp_python_add_records(PyObject *module)
{
    thread_record_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &thread_spec, NULL);
    task_record_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &task_spec, NULL);
    if (!thread_record_type || !task_record_type) return -1;
    if (PyModule_AddObjectRef(module, "ThreadRecord", (PyObject *)thread_record_type) < 0) return -1;
    return PyModule_AddObjectRef(module, "TaskRecord", (PyObject *)task_record_type);
}
