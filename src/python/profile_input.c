/* profile_input.c - a Profile from Python values, in the forms that a Profile gives them; everything is checked. */
#include "python/profile_input.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/path_summary.h"
#include "python/profile_object.h"

/* -- texts -- */

/* A malloc'ed copy of a str. A name that no file can hold (NUL, a lone surrogate) is a ValueError here. */
static char *copy_str(PyObject *value, const char *what)
{
    if (!PyUnicode_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s must be a str, not %.200s", what, Py_TYPE(value)->tp_name);
        return NULL;
    }
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(value, &size);
    if (text == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return NULL;
        PyErr_Format(PyExc_ValueError, "%s %R cannot be stored: it has a lone surrogate", what, value);
        return NULL;
    }
    if (strlen(text) != (size_t)size) {
        PyErr_Format(PyExc_ValueError, "%s %R cannot be stored: it has a NUL character", what, value);
        return NULL;
    }
    char *copy = sp_text_copy(text);
    if (copy == NULL) PyErr_NoMemory();
    return copy;
}

/* The same, NULL for None. */
static int copy_optional(PyObject *value, const char *what, char **out)
{
    *out = NULL;
    if (value == Py_None) return 0;
    *out = copy_str(value, what);
    return *out ? 0 : -1;
}

/* A malloc'ed array of copies; `*count` is what there is to free, also after an error. */
static int copy_strs(PyObject *sequence, const char *what, char ***out, size_t *count)
{
    *out = NULL;
    *count = 0;
    PyObject *fast = PySequence_Fast(sequence, "expected a sequence of str");
    if (fast == NULL) return -1;
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(fast);
    int result = -1;
    *out = size ? calloc((size_t)size, sizeof **out) : NULL;
    if (size && *out == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (; (Py_ssize_t)*count < size; ++*count) {
        char *text = copy_str(PySequence_Fast_GET_ITEM(fast, (Py_ssize_t)*count), what);
        if (text == NULL) goto done;
        (*out)[*count] = text;
    }
    result = 0;
done:
    Py_DECREF(fast);
    return result;
}

static void free_strs(char **texts, size_t count)
{
    for (size_t i = 0; i < count; i++) free(texts[i]);
    free(texts);
}

static PyObject *required(PyObject *mapping, const char *key)
{
    PyObject *value = PyMapping_GetItemString(mapping, key);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_KeyError)) {
        PyErr_Format(PyExc_ValueError, "the table has no column \"%s\"", key);
    }
    return value;
}

/* -- columns -- */

/*
 * A buffer of native int64 values, or bytes that hold them, copied into a column of `*count` values. Where `*count` is
 * UINT64_MAX the buffer decides it.
 */
static int64_t *copy_column(PyObject *value, const char *name, uint64_t *count)
{
    Py_buffer view;
    if (PyObject_GetBuffer(value, &view, PyBUF_CONTIG_RO | PyBUF_FORMAT) < 0) return NULL;
    int64_t *column = NULL;
    const char *format = view.format ? view.format : "B";
    if (*format == '@' || *format == '=') format++;
    const bool wide = view.itemsize == 8 && (strcmp(format, "q") == 0 || strcmp(format, "l") == 0);
    if (!(wide || (PyBytes_Check(value) && view.len % 8 == 0)) || view.ndim != 1) {
        PyErr_Format(PyExc_TypeError, "column \"%s\" must be a one-dimensional buffer of int64", name);
        goto done;
    }
    const uint64_t size = (uint64_t)view.len / 8;
    if (*count == UINT64_MAX) *count = size;
    if (size != *count) {
        PyErr_Format(PyExc_ValueError, "column \"%s\" has %llu values, not %llu", name, (unsigned long long)size,
                     (unsigned long long)*count);
        goto done;
    }
    column = sp_column_alloc(size);
    if (column == NULL) PyErr_NoMemory();
    else memcpy(column, view.buf, (size_t)view.len);
done:
    PyBuffer_Release(&view);
    return column;
}

static int take_columns(sp_profile *profile, PyObject *columns)
{
    uint64_t count = UINT64_MAX;
    PyObject *items = PyMapping_Items(columns);
    if (items == NULL) return -1;
    int result = -1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items); i++) {
        PyObject *name = PyTuple_GET_ITEM(PyList_GET_ITEM(items, i), 0);
        PyObject *value = PyTuple_GET_ITEM(PyList_GET_ITEM(items, i), 1);
        const char *text = PyUnicode_AsUTF8(name);
        if (text == NULL) goto done;
        const int column = sp_column_find(text);
        if (column < 0) {
            PyErr_Format(PyExc_ValueError, "a profile has no column %R", name);
            goto done;
        }
        if (value == Py_None) continue;
        int64_t *data = copy_column(value, text, &count);
        if (data == NULL) goto done;
        profile->columns[column] = data;
        profile->call_count = count;
    }
    if (profile->call_count && (!profile->columns[SP_COLUMN_START] || !profile->columns[SP_COLUMN_END])) {
        PyErr_SetString(PyExc_ValueError, "calls need the columns start_ns and end_ns");
        goto done;
    }
    result = 0;
done:
    Py_DECREF(items);
    return result;
}

/* -- rows -- */

/* ("a", "b") -> '["a", "b"]' */
static char *tags_text(PyObject *tags)
{
    PyObject *list = PySequence_List(tags), *json = NULL, *text = NULL;
    char *copy = NULL;
    if (list == NULL) return NULL;
    if (PyList_GET_SIZE(list) == 0) {
        copy = sp_text_copy("[]");
        if (copy == NULL) PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        char *tag = copy_str(PyList_GET_ITEM(list, i), "a tag");
        if (tag == NULL) goto done;
        free(tag);
    }
    json = PyImport_ImportModule("json");
    text = json ? PyObject_CallMethod(json, "dumps", "O", list) : NULL;
    copy = text ? copy_str(text, "a tag") : NULL;
done:
    Py_DECREF(list);
    Py_XDECREF(json);
    Py_XDECREF(text);
    return copy;
}

static int take_statistics(sp_row *row, PyObject *value)
{
    if (value == Py_None) return 0;
    sp_row_statistics *s = &row->statistics;
    long long total, minimum, maximum, first, last, start_minimum, end_maximum, gpu_total;
    unsigned long long gpu_count;
    if (!PyArg_ParseTuple(value, "LLLLLLLKLdd;statistics", &total, &minimum, &maximum, &first, &last, &start_minimum,
                          &end_maximum, &gpu_count, &gpu_total, &s->mean, &s->m2)) {
        return -1;
    }
    s->total = total;
    s->minimum = minimum;
    s->maximum = maximum;
    s->first = first;
    s->last = last;
    s->start_minimum = start_minimum;
    s->end_maximum = end_maximum;
    s->gpu_count = gpu_count;
    s->gpu_total = gpu_total;
    row->has_statistics = true;
    return 0;
}

static int take_aggregate(sp_row *row, PyObject *value)
{
    if (value == Py_None) return 0;
    unsigned long long count;
    long long total, minimum, maximum, exclusive;
    if (!PyArg_ParseTuple(value, "KLLLL;aggregate", &count, &total, &minimum, &maximum, &exclusive)) return -1;
    row->has_aggregate = true;
    row->aggregate_count = count;
    row->aggregate_total = total;
    row->aggregate_minimum = minimum;
    row->aggregate_maximum = maximum;
    row->aggregate_exclusive = exclusive;
    return 0;
}

static int take_percentiles(sp_row *row, PyObject *value)
{
    if (value == Py_None) return 0;
    double *p = row->percentiles;
    if (!PyArg_ParseTuple(value, "ddd;percentiles", &p[0], &p[1], &p[2])) return -1;
    row->has_percentiles = true;
    return 0;
}

static int check_row(const sp_profile *profile, const sp_row *row, Py_ssize_t index)
{
    if (row->name >= profile->name_count) {
        PyErr_Format(PyExc_ValueError, "row %zd names region %u of %zu", index, row->name, profile->name_count);
        return -1;
    }
    if (profile->summary_only || row->count == 0) return 0;
    if (row->first > profile->call_count || row->count > profile->call_count - row->first) {
        PyErr_Format(PyExc_ValueError, "row %zd (%s) covers calls beyond the columns", index,
                     profile->names[row->name]);
        return -1;
    }
    return 0;
}

static int take_row(const sp_profile *profile, sp_row *row, PyObject *value, Py_ssize_t index)
{
    PyObject *source_file, *source_text, *tags, *event_metadata, *statistics, *aggregate, *percentiles = Py_None;
    unsigned long long first, count;
    long long source_line, exclusive_total;
    long name, rank;
    if (!PyArg_ParseTuple(value, "llKKOLOOOLOO|O;a row", &name, &rank, &first, &count, &source_file, &source_line,
                          &source_text, &tags, &event_metadata, &exclusive_total, &statistics, &aggregate,
                          &percentiles)) {
        return -1;
    }
    if (name < 0 || rank < 0 || name > (long)UINT32_MAX || rank > (long)UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "row %zd has region %ld and rank %ld", index, name, rank);
        return -1;
    }
    row->name = (uint32_t)name;
    row->rank = (uint32_t)rank;
    row->first = first;
    row->count = count;
    row->source_line = source_line;
    row->exclusive_total = exclusive_total;
    if (check_row(profile, row, index) < 0 || copy_optional(source_file, "a source file", &row->source_file) < 0 ||
        copy_optional(source_text, "a source text", &row->source_text) < 0 ||
        copy_optional(event_metadata, "event metadata", &row->event_metadata) < 0 ||
        take_statistics(row, statistics) < 0 || take_aggregate(row, aggregate) < 0 ||
        take_percentiles(row, percentiles) < 0) {
        return -1;
    }
    row->tags = tags_text(tags);
    return row->tags ? 0 : -1;
}

static int take_rows(sp_profile *profile, PyObject *rows)
{
    PyObject *fast = PySequence_Fast(rows, "rows must be a sequence of tuples");
    if (fast == NULL) return -1;
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
    int result = -1;
    profile->rows = calloc(count ? (size_t)count : 1, sizeof *profile->rows);
    if (profile->rows == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    profile->row_count = (size_t)count;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *row = PySequence_Tuple(PySequence_Fast_GET_ITEM(fast, i));
        if (row == NULL) goto done;
        const int taken = take_row(profile, &profile->rows[i], row, i);
        Py_DECREF(row);
        if (taken < 0) goto done;
    }
    result = 0;
done:
    Py_DECREF(fast);
    return result;
}

/* -- sums by path, as a pickled profile has them -- */

/* A copy of `size` bytes that hold whole elements; NULL with an exception. */
static void *copy_elements(const char *bytes, Py_ssize_t size, size_t element, size_t *count)
{
    if (size % (Py_ssize_t)element) {
        PyErr_SetString(PyExc_ValueError, "the sums by path are of another version");
        return NULL;
    }
    void *copy = malloc(size ? (size_t)size : 1);
    if (copy == NULL) return PyErr_NoMemory();
    if (size) memcpy(copy, bytes, (size_t)size);
    *count = (size_t)size / element;
    return copy;
}

static int take_paths(sp_profile *profile, PyObject *value)
{
    if (value == Py_None) return 0;
    int nested, clamped;
    const char *nodes, *rows, *threads;
    Py_ssize_t node_bytes, row_bytes, thread_bytes;
    if (!PyArg_ParseTuple(value, "iiy#y#y#;_paths", &nested, &clamped, &nodes, &node_bytes, &rows, &row_bytes, &threads,
                          &thread_bytes)) {
        return -1;
    }
    sp_path_summary *paths = profile->stored_paths = calloc(1, sizeof *paths);
    if (paths == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    paths->nested = nested != 0;
    paths->clamped = clamped != 0;
    paths->nodes = copy_elements(nodes, node_bytes, sizeof *paths->nodes, &paths->node_count);
    paths->rows = paths->nodes ? copy_elements(rows, row_bytes, sizeof *paths->rows, &paths->row_count) : NULL;
    paths->threads = paths->rows ? copy_elements(threads, thread_bytes, sizeof *paths->threads, &paths->thread_count) : NULL;
    return paths->threads ? 0 : -1; /* the summary checks what it uses of them */
}

/* -- lane tables -- */

typedef struct table_reader {
    PyObject *mapping;
    uint64_t count;
} table_reader;

/* Column `key` of the table, to be freed with sp_column_free; the first one decides how many rows there are. */
static int64_t *table_column(table_reader *table, const char *key)
{
    PyObject *value = required(table->mapping, key);
    if (value == NULL) return NULL;
    int64_t *column = copy_column(value, key, &table->count);
    Py_DECREF(value);
    return column;
}

/* A column that older tables do not have: NULL without an exception. */
static int take_optional_column(table_reader *table, const char *key, int64_t **column)
{
    PyObject *value = PyMapping_GetItemString(table->mapping, key);
    *column = NULL;
    if (value == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_KeyError)) return -1;
        PyErr_Clear();
        return 0;
    }
    *column = copy_column(value, key, &table->count);
    Py_DECREF(value);
    return *column ? 0 : -1;
}

static char **table_texts(table_reader *table, const char *key)
{
    PyObject *value = required(table->mapping, key);
    if (value == NULL) return NULL;
    char **texts = NULL;
    size_t count = 0;
    const int taken = copy_strs(value, key, &texts, &count);
    Py_DECREF(value);
    if (taken == 0 && count == table->count) return texts ? texts : calloc(1, sizeof *texts);
    if (taken == 0) {
        PyErr_Format(PyExc_ValueError, "column \"%s\" has %zu values, not %llu", key, count,
                     (unsigned long long)table->count);
    }
    free_strs(texts, count);
    return NULL;
}

#define TABLE_COLUMNS 8

static int table_columns(table_reader *table, const char *const *names, int64_t **columns)
{
    for (int i = 0; i < TABLE_COLUMNS; i++) {
        columns[i] = table_column(table, names[i]);
        if (columns[i] == NULL) return -1;
    }
    return 0;
}

static void free_table_columns(const table_reader *table, int64_t **columns)
{
    for (int i = 0; i < TABLE_COLUMNS; i++) sp_column_free(columns[i], table->count);
}

static int take_threads(sp_profile *profile, PyObject *mapping)
{
    static const char *const names[TABLE_COLUMNS] = {"ranks",  "index",    "ident",  "native_id",
                                                     "daemon", "start_ns", "end_ns", "cpu_ns"};
    if (mapping == Py_None) return 0;
    table_reader table = {mapping, UINT64_MAX};
    int64_t *c[TABLE_COLUMNS] = {0};
    int64_t *before = NULL;
    char **texts = NULL;
    int result = -1;
    if (table_columns(&table, names, c) < 0 || take_optional_column(&table, "cpu_before_ns", &before) < 0) goto done;
    if ((texts = table_texts(&table, "name")) == NULL) goto done;
    profile->threads = calloc(table.count ? table.count : 1, sizeof *profile->threads);
    if (profile->threads == NULL) {
        PyErr_NoMemory();
        free_strs(texts, table.count);
        goto done;
    }
    for (uint64_t i = 0; i < table.count; i++) {
        profile->threads[i] = (sp_thread_info){
            .rank = (uint32_t)c[0][i], .index = c[1][i], .ident = c[2][i], .native_id = c[3][i],
            .daemon = c[4][i] != 0, .start_ns = c[5][i], .end_ns = c[6][i], .cpu_ns = c[7][i],
            .cpu_before_ns = before && before[i] > 0 ? before[i] : 0, .name = texts[i],
        };
    }
    free(texts);
    profile->thread_count = table.count;
    profile->has_threads = true;
    result = 0;
done:
    sp_column_free(before, table.count);
    free_table_columns(&table, c);
    return result;
}

static int take_processes(sp_profile *profile, PyObject *mapping)
{
    static const char *const names[TABLE_COLUMNS] = {"ranks", "pid", "clock_domain", "start_ns", "start_reference_ns",
                                                     "end_ns", "end_reference_ns", "error_ns"};
    if (mapping == Py_None) return 0;
    table_reader table = {mapping, UINT64_MAX};
    int64_t *c[TABLE_COLUMNS] = {0};
    char **texts = NULL, **references = NULL;
    int result = -1;
    if (table_columns(&table, names, c) < 0 || (texts = table_texts(&table, "name")) == NULL ||
        (references = table_texts(&table, "reference")) == NULL) {
        goto done;
    }
    profile->processes = calloc(table.count ? table.count : 1, sizeof *profile->processes);
    if (profile->processes == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (uint64_t i = 0; i < table.count; i++) {
        profile->processes[i] = (sp_process_info){
            .rank = (uint32_t)c[0][i], .pid = c[1][i], .clock_domain = c[2][i], .start_ns = c[3][i],
            .start_reference_ns = c[4][i], .end_ns = c[5][i], .end_reference_ns = c[6][i], .error_ns = c[7][i],
            .name = texts[i], .reference = references[i],
        };
    }
    profile->process_count = table.count;
    result = 0;
done:
    if (result == 0) { /* the texts themselves moved into the table */
        free(texts);
        free(references);
    } else {
        if (texts) free_strs(texts, table.count);
        if (references) free_strs(references, table.count);
    }
    free_table_columns(&table, c);
    return result;
}

static int take_tasks(sp_profile *profile, PyObject *mapping)
{
    static const char *const names[TABLE_COLUMNS] = {"ranks",   "index", "thread_index", "created_ns",
                                                     "done_ns", "steps", "running_ns",   "suspended_ns"};
    static const char *const text_names[3] = {"kind", "name", "coro_name"};
    if (mapping == Py_None) return 0;
    table_reader table = {mapping, UINT64_MAX};
    int64_t *c[TABLE_COLUMNS] = {0};
    int64_t *threads = NULL, *makers = NULL;
    char **texts[3] = {0};
    int result = -1;
    if (table_columns(&table, names, c) < 0) goto done;
    if (take_optional_column(&table, "creator_thread", &threads) < 0) goto done;
    if (take_optional_column(&table, "creator_task", &makers) < 0) goto done;
    for (int i = 0; i < 3; i++) {
        texts[i] = table_texts(&table, text_names[i]);
        if (texts[i] == NULL) goto done;
    }
    profile->tasks = calloc(table.count ? table.count : 1, sizeof *profile->tasks);
    if (profile->tasks == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (uint64_t i = 0; i < table.count; i++) {
        profile->tasks[i] = (sp_task_info){
            .rank = (uint32_t)c[0][i], .index = c[1][i], .kind = texts[0][i], .name = texts[1][i],
            .coro_name = texts[2][i], .thread_index = c[2][i], .created_ns = c[3][i], .done_ns = c[4][i],
            .steps = c[5][i], .running_ns = c[6][i], .suspended_ns = c[7][i],
            .creator_thread = threads ? threads[i] : SP_UNKNOWN,
            .creator_task = threads && makers ? makers[i] : SP_UNKNOWN,
        };
    }
    profile->task_count = table.count;
    result = 0;
done:
    for (int i = 0; i < 3; i++) {
        if (result == 0) free(texts[i]); /* the texts themselves moved into the table */
        else if (texts[i]) free_strs(texts[i], table.count);
    }
    sp_column_free(threads, table.count);
    sp_column_free(makers, table.count);
    free_table_columns(&table, c);
    return result;
}

/* -- metadata -- */

static int status_to_python(sp_status status)
{
    if (status == SP_OK) return 0;
    sp_python_raise(status, NULL, NULL);
    return -1;
}

static int take_text_list(sp_profile *profile, const char *key, PyObject *value)
{
    char **texts;
    size_t count;
    int result = copy_strs(value, "a metadata list's item", &texts, &count);
    if (result == 0) {
        result = status_to_python(sp_profile_set_strings(profile, key, (const char *const *)texts, count));
    }
    free_strs(texts, count);
    return result;
}

static int take_integer(sp_profile *profile, const char *key, PyObject *value)
{
    PyObject *integer = PyNumber_Index(value);
    if (integer == NULL) return -1;
    int overflow;
    const long long number = PyLong_AsLongLongAndOverflow(integer, &overflow);
    Py_DECREF(integer);
    if (overflow) {
        PyErr_Format(PyExc_ValueError, "metadata \"%s\" does not fit in 64 bits", key);
        return -1;
    }
    return status_to_python(sp_profile_set_int(profile, key, number));
}

static int take_value(sp_profile *profile, const char *key, PyObject *value)
{
    if (PyUnicode_Check(value)) {
        char *text = copy_str(value, "metadata");
        if (text == NULL) return -1;
        const sp_status status = sp_profile_set_string(profile, key, text);
        free(text);
        return status_to_python(status);
    }
    if (PyBool_Check(value)) return status_to_python(sp_profile_set_bool(profile, key, value == Py_True));
    if (PyIndex_Check(value)) return take_integer(profile, key, value);
    if (PyList_Check(value) || PyTuple_Check(value)) return take_text_list(profile, key, value);
    PyNumberMethods *number = Py_TYPE(value)->tp_as_number;
    if (number && number->nb_float) {
        const double real = PyFloat_AsDouble(value);
        if (real == -1.0 && PyErr_Occurred()) return -1;
        return status_to_python(sp_profile_set_float(profile, key, real));
    }
    PyErr_Format(PyExc_TypeError, "metadata \"%s\" must be int, float, bool, str or a list of str, not %.200s", key,
                 Py_TYPE(value)->tp_name);
    return -1;
}

static int take_metadata(sp_profile *profile, PyObject *mapping)
{
    if (mapping == Py_None) return 0;
    PyObject *items = PyMapping_Items(mapping);
    if (items == NULL) return -1;
    int result = 0;
    for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(items); i++) {
        PyObject *item = PyList_GET_ITEM(items, i);
        char *key = copy_str(PyTuple_GET_ITEM(item, 0), "a metadata key");
        result = key ? take_value(profile, key, PyTuple_GET_ITEM(item, 1)) : -1;
        free(key);
    }
    Py_DECREF(items);
    return result;
}

/* -- groups carried through -- */

static int array_kind(const char *format, Py_ssize_t itemsize, sp_array_kind *kind)
{
    if (*format == '@' || *format == '=') format++;
    if (itemsize != 8 || strlen(format) != 1) return -1;
    if (strchr("ql", *format)) *kind = SP_ARRAY_INT64;
    else if (strchr("QL", *format)) *kind = SP_ARRAY_UINT64;
    else if (*format == 'd') *kind = SP_ARRAY_FLOAT64;
    else return -1;
    return 0;
}

/* Values from a buffer or a list of str into an array whose shape is known. */
static int fill_array(sp_array *array, PyObject *values)
{
    const uint64_t size = sp_array_size(array);
    if (PyList_Check(values) || PyTuple_Check(values)) {
        char **texts;
        size_t count;
        array->kind = SP_ARRAY_STRING;
        const int taken = copy_strs(values, "a dataset's item", &texts, &count);
        if (taken == 0 && count == size) {
            array->data = texts;
            return 0;
        }
        if (taken == 0) PyErr_Format(PyExc_ValueError, "dataset \"%s\" does not fill its shape", array->name);
        free_strs(texts, count);
        return -1;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(values, &view, PyBUF_CONTIG_RO | PyBUF_FORMAT) < 0) return -1;
    int result = -1;
    if (array_kind(view.format ? view.format : "B", view.itemsize, &array->kind) < 0 ||
        (uint64_t)view.len != size * 8) {
        PyErr_Format(PyExc_ValueError, "dataset \"%s\" must be 64-bit numbers that fill its shape", array->name);
    } else if ((array->data = malloc(view.len ? (size_t)view.len : 1)) == NULL) {
        PyErr_NoMemory();
    } else {
        memcpy(array->data, view.buf, (size_t)view.len);
        result = 0;
    }
    PyBuffer_Release(&view);
    return result;
}

/* On failure the array has no elements to free. */
static int take_dataset(sp_array *array, PyObject *value)
{
    PyObject *shape, *values;
    if (!PyArg_ParseTuple(value, "O!O;a dataset is (shape, values)", &PyTuple_Type, &shape, &values)) return -1;
    if (PyTuple_GET_SIZE(shape) > 4) {
        PyErr_Format(PyExc_ValueError, "dataset \"%s\" has more than 4 dimensions", array->name);
        return -1;
    }
    const int dimensions = (int)PyTuple_GET_SIZE(shape);
    uint64_t size = 1;
    for (int i = 0; i < dimensions; i++) {
        const unsigned long long extent = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(shape, i));
        if (PyErr_Occurred()) return -1;
        if (extent && size > (UINT64_MAX >> 4) / extent) {
            PyErr_Format(PyExc_ValueError, "dataset \"%s\" is too large", array->name);
            return -1;
        }
        size *= extent;
        array->shape[i] = extent;
    }
    array->dimensions = dimensions;
    const int result = fill_array(array, values);
    if (result < 0) {
        array->data = NULL;
        array->kind = SP_ARRAY_INT64;
    }
    return result;
}

/* The kind that holds every number of a non-empty list: float if one is, else int64. */
static int take_number_list(sp_array *array, PyObject *list)
{
    const Py_ssize_t count = PyList_GET_SIZE(list);
    array->dimensions = 1;
    array->shape[0] = (uint64_t)count;
    array->kind = SP_ARRAY_INT64;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!PyIndex_Check(PyList_GET_ITEM(list, i))) array->kind = SP_ARRAY_FLOAT64;
    }
    array->data = calloc(count ? (size_t)count : 1, 8);
    if (array->data == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyList_GET_ITEM(list, i);
        if (array->kind == SP_ARRAY_INT64) ((int64_t *)array->data)[i] = PyLong_AsLongLong(item);
        else ((double *)array->data)[i] = PyFloat_AsDouble(item);
        if (PyErr_Occurred()) return -1;
    }
    return 0;
}

static int take_attribute(sp_array *array, PyObject *value)
{
    if (PyList_Check(value)) {
        if (PyList_GET_SIZE(value) && !PyUnicode_Check(PyList_GET_ITEM(value, 0))) {
            return take_number_list(array, value);
        }
        char **texts;
        size_t count;
        if (copy_strs(value, "an attribute's item", &texts, &count) < 0) {
            free_strs(texts, count);
            return -1;
        }
        array->kind = SP_ARRAY_STRING;
        array->dimensions = 1;
        array->shape[0] = count;
        array->data = texts;
        return 0;
    }
    PyObject *one = PyList_New(1);
    if (one == NULL) return -1;
    PyList_SET_ITEM(one, 0, Py_NewRef(value));
    const int result = take_attribute(array, one);
    array->dimensions = 0;
    Py_DECREF(one);
    return result;
}

static int take_arrays(PyObject *mapping, sp_array **arrays, size_t *count, int (*take)(sp_array *, PyObject *))
{
    PyObject *items = PyMapping_Items(mapping);
    if (items == NULL) return -1;
    int result = -1;
    const Py_ssize_t size = PyList_GET_SIZE(items);
    *arrays = calloc(size ? (size_t)size : 1, sizeof **arrays);
    if (*arrays == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = PyList_GET_ITEM(items, i);
        sp_array *array = &(*arrays)[i];
        array->name = copy_str(PyTuple_GET_ITEM(item, 0), "a name");
        *count = (size_t)i + 1;
        if (array->name == NULL || take(array, PyTuple_GET_ITEM(item, 1)) < 0) goto done;
    }
    result = 0;
done:
    Py_DECREF(items);
    return result;
}

static int take_group(sp_group *group, PyObject *mapping);

static int take_groups(sp_group *group, PyObject *mapping)
{
    PyObject *items = PyMapping_Items(mapping);
    if (items == NULL) return -1;
    int result = -1;
    const Py_ssize_t size = PyList_GET_SIZE(items);
    group->groups = calloc(size ? (size_t)size : 1, sizeof *group->groups);
    if (group->groups == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = PyList_GET_ITEM(items, i);
        group->group_count = (size_t)i + 1;
        group->groups[i].name = copy_str(PyTuple_GET_ITEM(item, 0), "a group's name");
        if (group->groups[i].name == NULL || take_group(&group->groups[i], PyTuple_GET_ITEM(item, 1)) < 0) goto done;
    }
    result = 0;
done:
    Py_DECREF(items);
    return result;
}

static int take_group(sp_group *group, PyObject *mapping)
{
    if (Py_EnterRecursiveCall(" in a profile's groups")) return -1;
    PyObject *attributes = required(mapping, "attributes");
    PyObject *datasets = attributes ? required(mapping, "datasets") : NULL;
    PyObject *groups = datasets ? required(mapping, "groups") : NULL;
    int result = -1;
    if (groups && take_arrays(attributes, &group->attributes, &group->attribute_count, take_attribute) == 0 &&
        take_arrays(datasets, &group->datasets, &group->dataset_count, take_dataset) == 0) {
        result = take_groups(group, groups);
    }
    Py_XDECREF(attributes);
    Py_XDECREF(datasets);
    Py_XDECREF(groups);
    Py_LeaveRecursiveCall();
    return result;
}

static int take_aux(sp_profile *profile, PyObject *mapping)
{
    if (mapping == Py_None) return 0;
    PyObject *items = PyMapping_Items(mapping);
    if (items == NULL) return -1;
    int result = -1;
    const Py_ssize_t size = PyList_GET_SIZE(items);
    profile->aux = calloc(size ? (size_t)size : 1, sizeof *profile->aux);
    if (profile->aux == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = PyList_GET_ITEM(items, i);
        const unsigned long rank = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(item, 0));
        if (PyErr_Occurred()) goto done;
        profile->aux[i].rank = (uint32_t)rank;
        profile->aux_count = (size_t)i + 1;
        if (take_group(&profile->aux[i].root, PyTuple_GET_ITEM(item, 1)) < 0) goto done;
    }
    result = 0;
done:
    Py_DECREF(items);
    return result;
}

/* -- functions -- */

static PyObject *make_profile(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"names", "rows", "columns", "threads", "tasks", "metadata", "aux", "aggregate", "nested",
                               "summary_only", "schema", "_paths", "processes", NULL};
    PyObject *names = NULL, *rows = NULL, *columns = NULL, *threads = Py_None, *tasks = Py_None, *metadata = Py_None, *aux = Py_None;
    PyObject *paths = Py_None, *processes = Py_None;
    int aggregate = 0, nested = 1, summary_only = 0;
    long long schema = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOOOOOpppLOO:make_profile", keywords, &names, &rows, &columns,
                                     &threads, &tasks, &metadata, &aux, &aggregate, &nested, &summary_only,
                                     &schema, &paths, &processes)) {
        return NULL;
    }
    if (names == NULL || rows == NULL || columns == NULL) {
        PyErr_SetString(PyExc_TypeError, "make_profile() needs names, rows and columns");
        return NULL;
    }
    sp_profile *profile = sp_profile_new();
    if (profile == NULL) return PyErr_NoMemory();
    profile->aggregate = aggregate;
    profile->nested = nested;
    profile->summary_only = summary_only;
    profile->schema = schema;
    if (copy_strs(names, "a region name", &profile->names, &profile->name_count) < 0 ||
        take_columns(profile, columns) < 0 || take_rows(profile, rows) < 0 || take_threads(profile, threads) < 0 ||
        take_tasks(profile, tasks) < 0 || take_processes(profile, processes) < 0 || take_metadata(profile, metadata) < 0 || take_aux(profile, aux) < 0 ||
        take_paths(profile, paths) < 0) {
        sp_profile_release(profile);
        return NULL;
    }
    return sp_profile_object_new(profile);
}

static PyObject *restore_profile(PyObject *module, PyObject *state)
{
    PyObject *nothing = PyTuple_New(0);
    PyObject *profile = nothing ? make_profile(module, nothing, state) : NULL;
    Py_XDECREF(nothing);
    return profile;
}

static int take_event_metadata(sp_profile *profile, PyObject *mapping)
{
    PyObject *items = PyMapping_Items(mapping);
    if (items == NULL) return -1;
    int result = -1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items); i++) {
        PyObject *item = PyList_GET_ITEM(items, i);
        const size_t row = PyLong_AsSize_t(PyTuple_GET_ITEM(item, 0));
        if (PyErr_Occurred()) goto done;
        if (row >= profile->row_count) {
            PyErr_Format(PyExc_ValueError, "there is no row %zu", row);
            goto done;
        }
        char *text = NULL;
        if (copy_optional(PyTuple_GET_ITEM(item, 1), "event metadata", &text) < 0) goto done;
        free(profile->rows[row].event_metadata);
        profile->rows[row].event_metadata = text;
    }
    result = 0;
done:
    Py_DECREF(items);
    return result;
}

static PyObject *replace_profile(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"profile", "metadata", "event_metadata", "aux", "gpu_ns", NULL};
    PyObject *object, *metadata = Py_None, *event_metadata = Py_None, *aux = Py_None, *gpu = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOOO:replace_profile", keywords, &object, &metadata,
                                     &event_metadata, &aux, &gpu)) {
        return NULL;
    }
    sp_profile *original = sp_profile_object_get(object);
    if (original == NULL) return NULL;
    sp_profile *profile = sp_profile_copy(original, event_metadata != Py_None || gpu != Py_None);
    if (profile == NULL) return PyErr_NoMemory();
    if (metadata != Py_None) {
        sp_profile_clear_metadata(profile);
        if (take_metadata(profile, metadata) < 0) goto failed;
    }
    if (event_metadata != Py_None && take_event_metadata(profile, event_metadata) < 0) goto failed;
    if (aux != Py_None) {
        sp_profile_drop_aux(profile);
        if (take_aux(profile, aux) < 0) goto failed;
    }
    if (gpu != Py_None) {
        uint64_t count = profile->call_count;
        int64_t *column = copy_column(gpu, "gpu_ns", &count);
        if (column == NULL) goto failed;
        sp_profile_take_gpu(profile, column);
    }
    return sp_profile_object_new(profile);
failed:
    sp_profile_release(profile);
    return NULL;
}

static PyMethodDef functions[] = {
    {"make_profile", (PyCFunction)(void (*)(void))make_profile, METH_VARARGS | METH_KEYWORDS,
     "make_profile(*, names, rows, columns, threads=None, tasks=None, metadata=None, aux=None, aggregate=False, "
     "nested=True, summary_only=False, schema=0)\n--\n\n"
     "A Profile from Python values in the forms that Profile gives them; columns are copied and checked."},
    {"replace_profile", (PyCFunction)(void (*)(void))replace_profile, METH_VARARGS | METH_KEYWORDS,
     "replace_profile(profile, *, metadata=None, event_metadata=None, aux=None, gpu_ns=None)\n--\n\n"
     "The same profile (columns shared, not copied) with other metadata, event metadata for rows by index, groups by rank, or\n"
     "GPU times of the calls."},
    {"_restore_profile", restore_profile, METH_O, "The Profile of a pickled state."},
    {NULL, NULL, 0, NULL},
};

int sp_python_add_profile_input(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
