#include "python/export_object.h"

#include <string.h>

#include "analysis/call_paths.h"
#include "analysis/lane_events.h"
#include "formats/export.h"
#include "formats/html_report.h"
#include "python/profile_object.h"

static const struct {
    const char *name;
    sp_exporter *write;
} formats[] = {
    {"speedscope", sp_export_speedscope},
    {"chrome_trace", sp_export_chrome_trace},
    {"perfetto", sp_export_perfetto},
    {"pstats", sp_export_pstats},
    {"folded", sp_export_folded},
    {"csv", sp_export_csv},
};

static sp_exporter *find_format(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, name) == 0) return formats[i].write;
    }
    PyErr_Format(PyExc_ValueError, "unknown export format '%s'", name);
    return NULL;
}

/* One bool a name of the profile. None: all. */
static int take_visible(PyObject *values, size_t expected, bool **visible)
{
    *visible = NULL;
    if (values == Py_None) return 0;
    PyObject *tuple = PySequence_Tuple(values);
    if (tuple == NULL) return -1;
    int result = -1;
    if ((size_t)PyTuple_GET_SIZE(tuple) != expected) {
        PyErr_Format(PyExc_ValueError, "names must hold %zu bools, one per name of the profile", expected);
        goto done;
    }
    bool *taken = PyMem_New(bool, expected + 1);
    if (taken == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    *visible = taken;
    for (size_t i = 0; i < expected; i++) {
        const int truth = PyObject_IsTrue(PyTuple_GET_ITEM(tuple, (Py_ssize_t)i));
        if (truth < 0) goto done;
        taken[i] = truth != 0;
    }
    result = 0;
done:
    Py_DECREF(tuple);
    return result;
}

static int take_ranks(PyObject *values, uint32_t **ranks, size_t *count)
{
    *ranks = NULL;
    PyObject *tuple = PySequence_Tuple(values);
    if (tuple == NULL) return -1;
    int result = -1;
    *count = (size_t)PyTuple_GET_SIZE(tuple);
    *ranks = PyMem_New(uint32_t, *count + 1);
    if (*ranks == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (size_t i = 0; i < *count; i++) {
        const unsigned long long rank = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(tuple, (Py_ssize_t)i));
        if (PyErr_Occurred()) goto done;
        if (rank > UINT32_MAX) {
            PyErr_Format(PyExc_ValueError, "no profile has a rank %llu", rank);
            goto done;
        }
        (*ranks)[i] = (uint32_t)rank;
    }
    result = 0;
done:
    Py_DECREF(tuple);
    return result;
}

static PyObject *export_profile(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"profile", "path", "format", "name", "ranks", "names", "flat", "by_lane", NULL};
    PyObject *object, *path = NULL, *ranks, *visible = Py_None, *result = NULL;
    const char *format, *name;
    sp_export what = {0};
    bool *shown = NULL;
    uint32_t *numbers = NULL;
    int flat = 0, by_lane = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO&ssO|Opp:export_profile", names, &object, PyUnicode_FSConverter,
                                     &path, &format, &name, &ranks, &visible, &flat, &by_lane)) {
        return NULL;
    }
    sp_exporter *const write = find_format(format);
    what.profile = sp_profile_object_get(object);
    if (write == NULL || what.profile == NULL) goto done;
    if (take_visible(visible, what.profile->name_count, &shown) < 0) goto done;
    if (take_ranks(ranks, &numbers, &what.rank_count) < 0) goto done;
    what.name = name;
    what.ranks = numbers;
    what.visible = shown;
    what.flat = flat;
    what.by_lane = by_lane;
    sp_error error = {0};
    sp_status status;
    Py_BEGIN_ALLOW_THREADS
    status = write(&what, PyBytes_AS_STRING(path), &error);
    Py_END_ALLOW_THREADS
    result = status == SP_OK ? Py_NewRef(Py_None) : sp_python_raise(status, &error, PyBytes_AS_STRING(path));
done:
    PyMem_Free(shown);
    PyMem_Free(numbers);
    Py_XDECREF(path);
    return result;
}

static PyObject *trace_origin(PyObject *module, PyObject *arguments)
{
    PyObject *object, *ranks, *visible = Py_None, *result = NULL;
    bool *shown = NULL;
    uint32_t *numbers = NULL;
    size_t count;
    if (!PyArg_ParseTuple(arguments, "OO|O:trace_origin", &object, &ranks, &visible)) return NULL;
    const sp_profile *profile = sp_profile_object_get(object);
    if (profile && take_visible(visible, profile->name_count, &shown) == 0 && take_ranks(ranks, &numbers, &count) == 0) {
        result = PyLong_FromLongLong(sp_trace_origin(profile, numbers, count, shown));
    }
    PyMem_Free(shown);
    PyMem_Free(numbers);
    return result;
}

/* Takes (profile, name, ranks, names) apart. What it allocated is freed by forget_run. */
static int take_run(PyObject *item, sp_export *run)
{
    PyObject *object, *ranks, *visible;
    bool *shown;
    uint32_t *numbers;
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "a run is (profile, name, ranks, names)");
        return -1;
    }
    if (!PyArg_ParseTuple(item, "OsOO;a run is (profile, name, ranks, names)", &object, &run->name, &ranks, &visible)) return -1;
    run->profile = sp_profile_object_get(object);
    if (run->profile == NULL || take_visible(visible, run->profile->name_count, &shown) < 0) return -1;
    run->visible = shown;
    if (take_ranks(ranks, &numbers, &run->rank_count) < 0) return -1;
    run->ranks = numbers;
    return 0;
}

static void forget_runs(sp_export *runs, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; runs && i < count; i++) {
        PyMem_Free((void *)runs[i].visible);
        PyMem_Free((void *)runs[i].ranks);
    }
    PyMem_Free(runs);
}

static PyObject *export_html(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"runs", "path", "options", "calls", NULL};
    PyObject *sequence, *path = NULL, *tuple = NULL, *result = NULL;
    sp_html_report report = {0};
    sp_export *runs = NULL;
    int calls = 1;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO&|sp:export_html", names, &sequence, PyUnicode_FSConverter, &path,
                                     &report.options, &calls)) {
        return NULL;
    }
    tuple = PySequence_Tuple(sequence); /* keeps the names and the profiles alive */
    if (tuple == NULL) goto done;
    runs = PyMem_Calloc((size_t)PyTuple_GET_SIZE(tuple) + 1, sizeof *runs);
    if (runs == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        if (take_run(PyTuple_GET_ITEM(tuple, i), &runs[i]) < 0) goto done;
    }
    report.runs = runs;
    report.run_count = (size_t)PyTuple_GET_SIZE(tuple);
    report.without_calls = !calls;
    sp_error error = {0};
    sp_status status;
    Py_BEGIN_ALLOW_THREADS
    status = sp_export_html(&report, PyBytes_AS_STRING(path), &error);
    Py_END_ALLOW_THREADS
    result = status == SP_OK ? Py_NewRef(Py_None) : sp_python_raise(status, &error, PyBytes_AS_STRING(path));
done:
    forget_runs(runs, tuple ? PyTuple_GET_SIZE(tuple) : 0);
    Py_XDECREF(tuple);
    Py_XDECREF(path);
    return result;
}

static PyObject *paths_as_list(const sp_call_paths *paths)
{
    PyObject *list = PyList_New(paths->count);
    for (uint32_t i = 0; list && i < paths->count; i++) {
        const sp_call_path *node = &paths->nodes[i];
        const long long parent = node->parent == SP_NO_CALL ? -1 : (long long)node->parent;
        PyObject *item = Py_BuildValue("(ILKKLL)", node->row, parent, (unsigned long long)node->calls,
                                       (unsigned long long)node->outermost, (long long)node->total_ns,
                                       (long long)node->exclusive_ns);
        if (item == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, item);
    }
    return list;
}

static PyObject *call_paths(PyObject *module, PyObject *arguments)
{
    PyObject *object, *visible = Py_None;
    unsigned int rank;
    bool *shown = NULL;
    if (!PyArg_ParseTuple(arguments, "OI|O:call_paths", &object, &rank, &visible)) return NULL;
    const sp_profile *profile = sp_profile_object_get(object);
    if (profile == NULL || take_visible(visible, profile->name_count, &shown) < 0) return NULL;
    sp_call_paths paths;
    sp_error error = {0};
    sp_status status;
    Py_BEGIN_ALLOW_THREADS
    status = sp_call_paths_make(&paths, profile, rank, shown, &error);
    Py_END_ALLOW_THREADS
    PyMem_Free(shown);
    if (status != SP_OK) return sp_python_raise(status, &error, NULL);
    PyObject *list = paths_as_list(&paths);
    sp_call_paths_free(&paths);
    return list;
}

/* Bytes as they are, or a column of int64 as numbers with commas between them. */
static int write_piece(sp_output *out, PyObject *piece)
{
    Py_buffer view;
    if (PyObject_GetBuffer(piece, &view, PyBUF_CONTIG_RO | PyBUF_FORMAT) < 0) return -1;
    const char *format = view.format ? view.format : "B";
    const bool numbers = view.itemsize == 8 && (strcmp(format, "q") == 0 || strcmp(format, "l") == 0);
    int result = -1;
    if (!numbers && view.itemsize != 1) {
        PyErr_SetString(PyExc_TypeError, "a piece of a file is bytes, or a buffer of int64");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    const int64_t *values = view.buf;
    if (!numbers) sp_output_bytes(out, view.buf, (size_t)view.len);
    for (Py_ssize_t i = 0; numbers && i < view.len / 8; i++) {
        if (i > 0) sp_output_char(out, ',');
        sp_output_integer(out, values[i]);
    }
    Py_END_ALLOW_THREADS
    result = 0;
done:
    PyBuffer_Release(&view);
    return result;
}

static int write_pieces(sp_output *out, PyObject *pieces)
{
    PyObject *iterator = PyObject_GetIter(pieces), *piece;
    if (iterator == NULL) return -1;
    int result = 0;
    while (result == 0 && out->status == SP_OK && (piece = PyIter_Next(iterator)) != NULL) {
        result = write_piece(out, piece);
        Py_DECREF(piece);
    }
    Py_DECREF(iterator);
    return PyErr_Occurred() ? -1 : result;
}

static PyObject *write_file(PyObject *module, PyObject *arguments)
{
    PyObject *path, *pieces, *result = NULL;
    if (!PyArg_ParseTuple(arguments, "O&O:write_file", PyUnicode_FSConverter, &path, &pieces)) return NULL;
    sp_output out;
    sp_error error = {0};
    sp_status status = sp_output_begin(&out, PyBytes_AS_STRING(path), &error);
    if (status == SP_OK && write_pieces(&out, pieces) < 0) {
        sp_output_abort(&out);
        goto done;
    }
    if (status == SP_OK) {
        Py_BEGIN_ALLOW_THREADS
        status = sp_output_commit(&out, &error);
        Py_END_ALLOW_THREADS
    }
    result = status == SP_OK ? Py_NewRef(Py_None) : sp_python_raise(status, &error, PyBytes_AS_STRING(path));
done:
    Py_DECREF(path);
    return result;
}

static PyObject *strict_json(PyObject *module, PyObject *text)
{
    /* A lone surrogate becomes its escape in JSON. */
    PyObject *utf8 = PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
    if (utf8 == NULL) return NULL;
    char *strict = sp_json_strict(PyBytes_AS_STRING(utf8), (size_t)PyBytes_GET_SIZE(utf8));
    PyObject *bytes = strict ? PyBytes_FromString(strict) : PyErr_NoMemory();
    free(strict);
    Py_DECREF(utf8);
    return bytes;
}

static PyMethodDef methods[] = {
    {"call_paths", call_paths, METH_VARARGS, PyDoc_STR("Calls of a rank by call path.")},
    {"trace_origin", trace_origin, METH_VARARGS, PyDoc_STR("What times of traces count from.")},
    {"write_file", write_file, METH_VARARGS, PyDoc_STR("Write a file, whole or not at all.")},
    {"strict_json", strict_json, METH_O, PyDoc_STR("A JSON text as UTF-8, with null for NaN and infinities.")},
    {"export_profile", (PyCFunction)(void (*)(void))export_profile, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("Write a profile in another format.")},
    {"export_html", (PyCFunction)(void (*)(void))export_html, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("Write a page that shows profiles in a browser.")},
    {NULL, NULL, 0, NULL},
};

int sp_python_add_exports(PyObject *module)
{
    if (PyModule_AddObjectRef(module, "HAS_VIEWER", sp_viewer_page_size > 0 ? Py_True : Py_False) < 0) return -1;
    return PyModule_AddFunctions(module, methods);
}
