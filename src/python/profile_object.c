/* profile_object.c - Profile: what a collected run or a file looks like from Python. Values are made when asked for. */
#include "python/profile_object.h"

#include <string.h>

#include "analysis/path_summary.h"
#include "python/profile_input.h"

typedef struct profile_object {
    PyObject_HEAD
    sp_profile *profile;
} profile_object;

/* The exporter behind the memoryviews of columns. */
typedef struct column_object {
    PyObject_HEAD
    sp_profile *profile;
    const int64_t *data;
    Py_ssize_t count;
    Py_ssize_t stride;
} column_object;

static const char *const column_names[SP_COLUMN_COUNT] = {
    [SP_COLUMN_START] = "start_ns",       [SP_COLUMN_END] = "end_ns",         [SP_COLUMN_CALL_ID] = "call_ids",
    [SP_COLUMN_PARENT_ID] = "parent_ids", [SP_COLUMN_THREAD] = "thread_ids", [SP_COLUMN_TASK] = "task_ids",
    [SP_COLUMN_AWAIT] = "await_ns",       [SP_COLUMN_GPU] = "gpu_ns",
};

int sp_column_find(const char *name)
{
    for (int c = 0; c < SP_COLUMN_COUNT; c++) {
        if (strcmp(column_names[c], name) == 0) return c;
    }
    return -1;
}

/* -- columns -- */

static int column_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    static const int64_t nothing[1];
    column_object *column = (column_object *)self;
    if (flags & PyBUF_WRITABLE) {
        PyErr_SetString(PyExc_BufferError, "a profile's columns are read-only");
        view->obj = NULL;
        return -1;
    }
    view->obj = Py_NewRef(self);
    view->buf = (void *)(column->data ? column->data : nothing);
    view->len = column->count * (Py_ssize_t)sizeof(int64_t);
    view->readonly = 1;
    view->itemsize = sizeof(int64_t);
    view->format = flags & PyBUF_FORMAT ? "q" : NULL;
    view->ndim = 1;
    view->shape = flags & PyBUF_ND ? &column->count : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? &column->stride : NULL;
    view->suboffsets = NULL;
    view->internal = NULL;
    return 0;
}

static void column_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    sp_profile_release(((column_object *)self)->profile);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot column_slots[] = {
    {Py_bf_getbuffer, column_getbuffer},
    {Py_tp_dealloc, column_dealloc},
    {0, NULL},
};

static PyType_Spec column_spec = {
    .name = "scope_profiler._core._Column",
    .basicsize = sizeof(column_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = column_slots,
};

PyObject *sp_column_view_new(sp_profile *profile, const int64_t *data, uint64_t count)
{
    PyTypeObject *type = sp_python_state->column_type;
    column_object *column = (column_object *)type->tp_alloc(type, 0);
    if (column == NULL) return NULL;
    column->profile = sp_profile_share(profile);
    column->data = data;
    column->count = (Py_ssize_t)count;
    column->stride = sizeof(int64_t);
    PyObject *view = PyMemoryView_FromObject((PyObject *)column);
    Py_DECREF(column);
    return view;
}

/* -- values -- */

static PyObject *text_or_none(const char *text)
{
    if (text == NULL) Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *text_of(const char *text)
{
    return PyUnicode_DecodeUTF8(text ? text : "", text ? (Py_ssize_t)strlen(text) : 0, "replace");
}

/* Put `value`, which may be NULL after an error, under `key`, and drop it. */
static int put(PyObject *dict, const char *key, PyObject *value)
{
    if (value == NULL) return -1;
    const int result = PyDict_SetItemString(dict, key, value);
    Py_DECREF(value);
    return result;
}

static PyObject *text_list(char *const *texts, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *text = text_of(texts[i]);
        if (text == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, (Py_ssize_t)i, text);
    }
    return list;
}

/* JSON list of strings -> tuple of str. */
static PyObject *tags_of(const sp_row *row)
{
    if (row->tags == NULL || strcmp(row->tags, "[]") == 0) return PyTuple_New(0);
    PyObject *json = PyImport_ImportModule("json");
    if (json == NULL) return NULL;
    PyObject *text = text_of(row->tags);
    PyObject *list = text ? PyObject_CallMethod(json, "loads", "O", text) : NULL;
    Py_XDECREF(text);
    Py_DECREF(json);
    PyObject *tags = list ? PySequence_Tuple(list) : NULL;
    Py_XDECREF(list);
    return tags;
}

static PyObject *statistics_of(const sp_row *row)
{
    if (!row->has_statistics) Py_RETURN_NONE;
    const sp_row_statistics *s = &row->statistics;
    return Py_BuildValue("(LLLLLLLKLdd)", (long long)s->total, (long long)s->minimum, (long long)s->maximum,
                         (long long)s->first, (long long)s->last, (long long)s->start_minimum,
                         (long long)s->end_maximum, (unsigned long long)s->gpu_count, (long long)s->gpu_total,
                         s->mean, s->m2);
}

static PyObject *aggregate_of(const sp_row *row)
{
    if (!row->has_aggregate) Py_RETURN_NONE;
    return Py_BuildValue("(KLLLL)", (unsigned long long)row->aggregate_count, (long long)row->aggregate_total,
                         (long long)row->aggregate_minimum, (long long)row->aggregate_maximum,
                         (long long)row->aggregate_exclusive);
}

static PyObject *percentiles_of(const sp_row *row)
{
    if (!row->has_percentiles) Py_RETURN_NONE;
    return Py_BuildValue("(ddd)", row->percentiles[0], row->percentiles[1], row->percentiles[2]);
}

static PyObject *row_tuple(const sp_row *row)
{
    return Py_BuildValue("(IIKKNLNNNLNNN)", row->name, row->rank, (unsigned long long)row->first,
                         (unsigned long long)row->count, text_or_none(row->source_file), (long long)row->source_line,
                         text_or_none(row->source_text), tags_of(row), text_or_none(row->event_metadata),
                         (long long)row->exclusive_total, statistics_of(row), aggregate_of(row), percentiles_of(row));
}

static sp_profile *profile_of(PyObject *self)
{
    return ((profile_object *)self)->profile;
}

static PyObject *get_rows(PyObject *self, void *closure)
{
    const sp_profile *profile = profile_of(self);
    PyObject *list = PyList_New((Py_ssize_t)profile->row_count);
    for (size_t i = 0; list && i < profile->row_count; i++) {
        PyObject *row = row_tuple(&profile->rows[i]);
        if (row == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, (Py_ssize_t)i, row);
    }
    return list;
}

static PyObject *get_row_count(PyObject *self, void *closure)
{
    return PyLong_FromSize_t(profile_of(self)->row_count);
}

static PyObject *profile_row(PyObject *self, PyObject *argument)
{
    const sp_profile *profile = profile_of(self);
    const Py_ssize_t index = PyNumber_AsSsize_t(argument, PyExc_IndexError);
    if (index == -1 && PyErr_Occurred()) return NULL;
    if (index < 0 || (size_t)index >= profile->row_count) {
        return PyErr_Format(PyExc_IndexError, "there is no row %zd", index);
    }
    return row_tuple(&profile->rows[index]);
}

static PyObject *get_names(PyObject *self, void *closure)
{
    return text_list(profile_of(self)->names, profile_of(self)->name_count);
}

/* array.array of the values in `bytes`, which is taken over and may be NULL: a buffer that also pickles. */
static PyObject *array_of(PyObject *bytes, const char *type)
{
    PyObject *module = bytes ? PyImport_ImportModule("array") : NULL;
    PyObject *array = module ? PyObject_CallMethod(module, "array", "sO", type, bytes) : NULL;
    Py_XDECREF(module);
    Py_XDECREF(bytes);
    return array;
}

/* The values of one field of an array of structures. */
typedef int64_t (*field_reader)(const void *element);

static PyObject *field_view(const void *elements, size_t count, size_t size, field_reader read)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(int64_t)));
    if (bytes == NULL) return NULL;
    int64_t *values = (int64_t *)(void *)PyBytes_AS_STRING(bytes);
    for (size_t i = 0; i < count; i++) {
        const int64_t value = read((const char *)elements + i * size);
        memcpy(&values[i], &value, sizeof value);
    }
    return array_of(bytes, "q");
}

#define FIELD(type, field)                                                                                             \
    static int64_t type##_##field(const void *element) { return (int64_t)((const sp_##type##_info *)element)->field; }

FIELD(thread, rank)
FIELD(thread, index)
FIELD(thread, ident)
FIELD(thread, native_id)
FIELD(thread, daemon)
FIELD(thread, start_ns)
FIELD(thread, end_ns)
FIELD(thread, cpu_ns)
FIELD(thread, cpu_before_ns)
FIELD(process, rank)
FIELD(process, pid)
FIELD(process, clock_domain)
FIELD(process, start_ns)
FIELD(process, start_reference_ns)
FIELD(process, end_ns)
FIELD(process, end_reference_ns)
FIELD(process, error_ns)
FIELD(task, rank)
FIELD(task, index)
FIELD(task, thread_index)
FIELD(task, created_ns)
FIELD(task, done_ns)
FIELD(task, steps)
FIELD(task, running_ns)
FIELD(task, suspended_ns)
FIELD(task, creator_thread)
FIELD(task, creator_task)

static int64_t row_name(const void *element)
{
    return ((const sp_row *)element)->name;
}

static int64_t row_rank(const void *element)
{
    return ((const sp_row *)element)->rank;
}

static PyObject *profile_row_keys(PyObject *self, PyObject *ignored)
{
    const sp_profile *profile = profile_of(self);
    return Py_BuildValue("(NN)", field_view(profile->rows, profile->row_count, sizeof *profile->rows, row_name),
                         field_view(profile->rows, profile->row_count, sizeof *profile->rows, row_rank));
}

typedef struct field_name {
    const char *name;
    field_reader read;
} field_name;

static const field_name thread_fields[] = {
    {"ranks", thread_rank},         {"index", thread_index},       {"ident", thread_ident},
    {"native_id", thread_native_id}, {"daemon", thread_daemon},     {"start_ns", thread_start_ns},
    {"end_ns", thread_end_ns},      {"cpu_ns", thread_cpu_ns},     {"cpu_before_ns", thread_cpu_before_ns},
    {NULL, NULL},
};

static const field_name process_fields[] = {
    {"ranks", process_rank},       {"pid", process_pid},       {"clock_domain", process_clock_domain},
    {"start_ns", process_start_ns}, {"end_ns", process_end_ns}, {"start_reference_ns", process_start_reference_ns},
    {"end_reference_ns", process_end_reference_ns}, {"error_ns", process_error_ns}, {NULL, NULL},
};

static const field_name task_fields[] = {
    {"ranks", task_rank},           {"index", task_index},           {"thread_index", task_thread_index},
    {"created_ns", task_created_ns}, {"done_ns", task_done_ns},       {"steps", task_steps},
    {"running_ns", task_running_ns}, {"suspended_ns", task_suspended_ns}, {"creator_thread", task_creator_thread},
    {"creator_task", task_creator_task}, {NULL, NULL},
};

static int put_fields(PyObject *table, const field_name *fields, const void *elements, size_t count, size_t size)
{
    for (; fields->name; fields++) {
        if (put(table, fields->name, field_view(elements, count, size, fields->read)) < 0) return -1;
    }
    return 0;
}

/* A list of the texts at `offset` of each element. */
static PyObject *field_texts(const void *elements, size_t count, size_t size, size_t offset)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        char *text;
        memcpy(&text, (const char *)elements + i * size + offset, sizeof text);
        PyObject *value = text_of(text);
        if (value == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, (Py_ssize_t)i, value);
    }
    return list;
}

static PyObject *get_threads(PyObject *self, void *closure)
{
    const sp_profile *p = profile_of(self);
    if (!p->has_threads) Py_RETURN_NONE;
    PyObject *table = PyDict_New();
    if (table == NULL) return NULL;
    const size_t size = sizeof *p->threads;
    if (put_fields(table, thread_fields, p->threads, p->thread_count, size) < 0 ||
        put(table, "name", field_texts(p->threads, p->thread_count, size, offsetof(sp_thread_info, name))) < 0) {
        Py_CLEAR(table);
    }
    return table;
}

static PyObject *get_processes(PyObject *self, void *closure)
{
    const sp_profile *p = profile_of(self);
    if (p->process_count == 0) Py_RETURN_NONE;
    PyObject *table = PyDict_New();
    if (table == NULL) return NULL;
    const size_t size = sizeof *p->processes, count = p->process_count;
    if (put_fields(table, process_fields, p->processes, count, size) < 0 ||
        put(table, "name", field_texts(p->processes, count, size, offsetof(sp_process_info, name))) < 0 ||
        put(table, "reference", field_texts(p->processes, count, size, offsetof(sp_process_info, reference))) < 0) {
        Py_CLEAR(table);
    }
    return table;
}

static PyObject *get_tasks(PyObject *self, void *closure)
{
    const sp_profile *p = profile_of(self);
    if (p->task_count == 0) Py_RETURN_NONE;
    PyObject *table = PyDict_New();
    if (table == NULL) return NULL;
    const size_t size = sizeof *p->tasks, count = p->task_count;
    if (put_fields(table, task_fields, p->tasks, count, size) < 0 ||
        put(table, "kind", field_texts(p->tasks, count, size, offsetof(sp_task_info, kind))) < 0 ||
        put(table, "name", field_texts(p->tasks, count, size, offsetof(sp_task_info, name))) < 0 ||
        put(table, "coro_name", field_texts(p->tasks, count, size, offsetof(sp_task_info, coro_name))) < 0) {
        Py_CLEAR(table);
    }
    return table;
}

static PyObject *metadata_value(const sp_metadata *entry)
{
    switch (entry->kind) {
    case SP_VALUE_INT: return PyLong_FromLongLong(entry->integer);
    case SP_VALUE_FLOAT: return PyFloat_FromDouble(entry->real);
    case SP_VALUE_BOOL: return PyBool_FromLong(entry->integer != 0);
    case SP_VALUE_STRING: return text_of(entry->text);
    case SP_VALUE_STRINGS: return text_list(entry->list, entry->size);
    }
    Py_RETURN_NONE;
}

/* dict[key text] = value, both made here. */
static int put_text_key(PyObject *dict, const char *key, PyObject *value)
{
    PyObject *name = value ? text_of(key) : NULL;
    const int result = name ? PyDict_SetItem(dict, name, value) : -1;
    Py_XDECREF(name);
    Py_XDECREF(value);
    return result;
}

static PyObject *get_metadata(PyObject *self, void *closure)
{
    const sp_profile *profile = profile_of(self);
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < profile->metadata_count; i++) {
        const sp_metadata *entry = &profile->metadata[i];
        if (put_text_key(dict, entry->key, metadata_value(entry)) < 0) Py_CLEAR(dict);
    }
    return dict;
}

/* -- groups carried through -- */

static PyObject *array_item(const sp_array *array, uint64_t i)
{
    switch (array->kind) {
    case SP_ARRAY_INT64: return PyLong_FromLongLong(((const int64_t *)array->data)[i]);
    case SP_ARRAY_UINT64: return PyLong_FromUnsignedLongLong(((const uint64_t *)array->data)[i]);
    case SP_ARRAY_FLOAT64: return PyFloat_FromDouble(((const double *)array->data)[i]);
    case SP_ARRAY_STRING: return text_of(((char *const *)array->data)[i]);
    }
    Py_RETURN_NONE;
}

static PyObject *array_list(const sp_array *array)
{
    const uint64_t count = sp_array_size(array);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint64_t i = 0; list && i < count; i++) {
        PyObject *item = array_item(array, i);
        if (item == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

/* (shape, values): values are a list of str, or a flat array.array of type "q", "Q" or "d". */
static PyObject *array_value(const sp_array *array)
{
    static const char *const formats[] = {"q", "Q", "d"};
    PyObject *shape = PyTuple_New(array->dimensions);
    for (int i = 0; shape && i < array->dimensions; i++) {
        PyObject *extent = PyLong_FromUnsignedLongLong(array->shape[i]);
        if (extent == NULL) Py_CLEAR(shape);
        else PyTuple_SET_ITEM(shape, i, extent);
    }
    if (shape == NULL) return NULL;
    PyObject *values = NULL;
    if (array->kind == SP_ARRAY_STRING) {
        values = array_list(array);
    } else {
        PyObject *bytes = PyBytes_FromStringAndSize(array->data, (Py_ssize_t)(sp_array_size(array) * 8));
        values = array_of(bytes, formats[array->kind]);
    }
    if (values == NULL) {
        Py_DECREF(shape);
        return NULL;
    }
    return Py_BuildValue("(NN)", shape, values);
}

static PyObject *group_dict(const sp_group *group);

static PyObject *attributes_dict(const sp_group *group)
{
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < group->attribute_count; i++) {
        const sp_array *array = &group->attributes[i];
        PyObject *value = array->dimensions ? array_list(array) : array_item(array, 0);
        if (put_text_key(dict, array->name, value) < 0) Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *datasets_dict(const sp_group *group)
{
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < group->dataset_count; i++) {
        if (put_text_key(dict, group->datasets[i].name, array_value(&group->datasets[i])) < 0) Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *groups_dict(const sp_group *group)
{
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < group->group_count; i++) {
        if (put_text_key(dict, group->groups[i].name, group_dict(&group->groups[i])) < 0) Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *group_dict(const sp_group *group)
{
    if (Py_EnterRecursiveCall(" while reading a profile's groups")) return NULL;
    PyObject *dict = PyDict_New();
    if (dict && (put(dict, "attributes", attributes_dict(group)) < 0 ||
                 put(dict, "datasets", datasets_dict(group)) < 0 || put(dict, "groups", groups_dict(group)) < 0)) {
        Py_CLEAR(dict);
    }
    Py_LeaveRecursiveCall();
    return dict;
}

static PyObject *get_aux(PyObject *self, void *closure)
{
    const sp_profile *profile = profile_of(self);
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < profile->aux_count; i++) {
        PyObject *rank = PyLong_FromUnsignedLong(profile->aux[i].rank);
        PyObject *group = rank ? group_dict(&profile->aux[i].root) : NULL;
        if (group == NULL || PyDict_SetItem(dict, rank, group) < 0) Py_CLEAR(dict);
        Py_XDECREF(rank);
        Py_XDECREF(group);
    }
    return dict;
}

/* -- the type -- */

static PyObject *get_calls(PyObject *self, void *closure)
{
    return PyLong_FromUnsignedLongLong(sp_profile_calls(profile_of(self)));
}

static PyObject *get_call_count(PyObject *self, void *closure)
{
    return PyLong_FromUnsignedLongLong(profile_of(self)->call_count);
}

static PyObject *get_schema(PyObject *self, void *closure)
{
    return PyLong_FromLongLong(profile_of(self)->schema);
}

static PyObject *get_aggregate(PyObject *self, void *closure)
{
    return PyBool_FromLong(profile_of(self)->aggregate);
}

static PyObject *get_summary_only(PyObject *self, void *closure)
{
    return PyBool_FromLong(profile_of(self)->summary_only);
}

static PyObject *get_nested(PyObject *self, void *closure)
{
    return PyBool_FromLong(profile_of(self)->nested);
}

static PyObject *column_view(const sp_profile *profile, int column)
{
    const bool always = column == SP_COLUMN_START || column == SP_COLUMN_END;
    const bool there = profile->columns[column] || (always && profile->call_count == 0);
    if (!there || profile->summary_only) Py_RETURN_NONE;
    return sp_column_view_new((sp_profile *)profile, profile->columns[column], profile->call_count);
}

static PyObject *profile_column(PyObject *self, PyObject *argument)
{
    const char *name = PyUnicode_AsUTF8(argument);
    if (name == NULL) return NULL;
    const int column = sp_column_find(name);
    if (column < 0) return PyErr_Format(PyExc_ValueError, "a profile has no column %R", argument);
    return column_view(profile_of(self), column);
}

/* {name: bytes} of the columns there are. */
static PyObject *column_bytes(const sp_profile *profile)
{
    PyObject *dict = PyDict_New();
    for (int c = 0; dict && c < SP_COLUMN_COUNT; c++) {
        if (profile->columns[c] == NULL || profile->summary_only) continue;
        const Py_ssize_t size = (Py_ssize_t)(profile->call_count * sizeof(int64_t));
        if (put(dict, column_names[c], PyBytes_FromStringAndSize((const char *)profile->columns[c], size)) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

/* The stored sums by path as they lie in memory: pickles go between processes of one program. */
static PyObject *paths_state(const sp_profile *profile)
{
    const sp_path_summary *paths = profile->stored_paths;
    if (paths == NULL) Py_RETURN_NONE;
    return Py_BuildValue("(iiy#y#y#)", paths->nested, paths->clamped, (const char *)paths->nodes,
                         (Py_ssize_t)(paths->node_count * sizeof *paths->nodes), (const char *)paths->rows,
                         (Py_ssize_t)(paths->row_count * sizeof *paths->rows), (const char *)paths->threads,
                         (Py_ssize_t)(paths->thread_count * sizeof *paths->threads));
}

static PyObject *profile_reduce(PyObject *self, PyObject *ignored)
{
    const sp_profile *profile = profile_of(self);
    PyObject *state = PyDict_New();
    if (state == NULL) return NULL;
    if (put(state, "names", get_names(self, NULL)) < 0 || put(state, "rows", get_rows(self, NULL)) < 0 ||
        put(state, "columns", column_bytes(profile)) < 0 ||
        put(state, "threads", get_threads(self, NULL)) < 0 || put(state, "tasks", get_tasks(self, NULL)) < 0 ||
        put(state, "processes", get_processes(self, NULL)) < 0 ||
        put(state, "metadata", get_metadata(self, NULL)) < 0 || put(state, "_paths", paths_state(profile)) < 0 ||
        put(state, "aux", get_aux(self, NULL)) < 0 ||
        put(state, "aggregate", get_aggregate(self, NULL)) < 0 || put(state, "nested", get_nested(self, NULL)) < 0 ||
        put(state, "summary_only", get_summary_only(self, NULL)) < 0 ||
        put(state, "schema", get_schema(self, NULL)) < 0) {
        Py_DECREF(state);
        return NULL;
    }
    PyObject *core = PyImport_ImportModule("scope_profiler._core");
    PyObject *restore = core ? PyObject_GetAttrString(core, "_restore_profile") : NULL;
    Py_XDECREF(core);
    if (restore == NULL) {
        Py_DECREF(state);
        return NULL;
    }
    return Py_BuildValue("(N(N))", restore, state);
}

static PyObject *profile_repr(PyObject *self)
{
    const sp_profile *p = profile_of(self);
    return PyUnicode_FromFormat("<Profile: %zu regions, %zu rows, %llu calls>", p->name_count, p->row_count,
                                (unsigned long long)p->call_count);
}

static void profile_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    sp_profile_release(profile_of(self));
    type->tp_free(self);
    Py_DECREF(type);
}

static PyGetSetDef profile_getset[] = {
    {"calls", get_calls, NULL, "Number of calls it tells of, singly or by their sums.", NULL},
    {"call_count", get_call_count, NULL, "Number of calls in the columns.", NULL},
    {"aggregate", get_aggregate, NULL, "Whether rows carry totals instead of calls.", NULL},
    {"summary_only", get_summary_only, NULL, "Whether the file's calls were not read.", NULL},
    {"nested", get_nested, NULL, "False if calls of a lane overlap without nesting.", NULL},
    {"schema", get_schema, NULL, "Schema of the file it came from, 0 if recorded here.", NULL},
    {"names", get_names, NULL, "Region names by index.", NULL},
    {"row_count", get_row_count, NULL, "Number of rows.", NULL},
    {"rows", get_rows, NULL, "One tuple per rank and region.", NULL},
    {"processes", get_processes, NULL, "Columns of the process table, or None.", NULL},
    {"threads", get_threads, NULL, "Columns of the thread table, or None.", NULL},
    {"tasks", get_tasks, NULL, "Columns of the task table, or None.", NULL},
    {"metadata", get_metadata, NULL, "Metadata of the run.", NULL},
    {"aux", get_aux, NULL, "Groups by rank that are only carried through.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef profile_methods[] = {
    {"column", profile_column, METH_O, "column(name)\n--\n\nint64 column of call_count values as a memoryview, or None."},
    {"row", profile_row, METH_O, "row(index)\n--\n\nThe tuple of one row; IndexError if there is none."},
    {"row_keys", profile_row_keys, METH_NOARGS, "row_keys()\n--\n\nint64 name index and int64 rank of every row."},
    {"__reduce__", profile_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot profile_slots[] = {
    {Py_tp_doc, "A collected run. Immutable; arrays made from its columns share their memory."},
    {Py_tp_dealloc, profile_dealloc},
    {Py_tp_repr, profile_repr},
    {Py_tp_getset, profile_getset},
    {Py_tp_methods, profile_methods},
    {0, NULL},
};

static PyType_Spec profile_spec = {
    .name = "scope_profiler._core.Profile",
    .basicsize = sizeof(profile_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = profile_slots,
};

PyObject *sp_profile_object_new(sp_profile *profile)
{
    PyTypeObject *type = sp_python_state->profile_type;
    profile_object *object = (profile_object *)type->tp_alloc(type, 0);
    if (object == NULL) sp_profile_release(profile);
    else object->profile = profile;
    return (PyObject *)object;
}

sp_profile *sp_profile_object_get(PyObject *object)
{
    if (Py_TYPE(object) == sp_python_state->profile_type) return profile_of(object);
    PyErr_Format(PyExc_TypeError, "expected a Profile, got %.200s", Py_TYPE(object)->tp_name);
    return NULL;
}

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **kept)
{
    *kept = (PyTypeObject *)PyType_FromSpec(spec);
    return *kept ? PyModule_AddType(module, *kept) : -1;
}

int sp_python_add_profile(PyObject *module)
{
    if (add_type(module, &profile_spec, &sp_python_state->profile_type) < 0 ||
        add_type(module, &column_spec, &sp_python_state->column_type) < 0) {
        return -1;
    }
    return sp_python_add_profile_input(module);
}
