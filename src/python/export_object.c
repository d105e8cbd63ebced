#include "python/export_object.h"

#include <string.h>

#include "analysis/call_paths.h"
#include "formats/export.h"
#include "python/profile_object.h"

static const struct {
    const char *name;
    sp_exporter *write;
} formats[] = {
    {"speedscope", sp_export_speedscope},
    {"chrome_trace", sp_export_chrome_trace},
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
    static char *names[] = {"profile", "path", "format", "name", "ranks", "names", NULL};
    PyObject *object, *path = NULL, *ranks, *visible = Py_None, *result = NULL;
    const char *format, *name;
    sp_export what = {0};
    bool *shown = NULL;
    uint32_t *numbers = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO&ssO|O:export_profile", names, &object, PyUnicode_FSConverter,
                                     &path, &format, &name, &ranks, &visible)) {
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

static PyObject *write_file(PyObject *module, PyObject *arguments)
{
    PyObject *path;
    Py_buffer data;
    if (!PyArg_ParseTuple(arguments, "O&y*:write_file", PyUnicode_FSConverter, &path, &data)) return NULL;
    sp_output out;
    sp_error error = {0};
    sp_status status;
    Py_BEGIN_ALLOW_THREADS
    status = sp_output_begin(&out, PyBytes_AS_STRING(path), &error);
    if (status == SP_OK) {
        sp_output_bytes(&out, data.buf, (size_t)data.len);
        status = sp_output_commit(&out, &error);
    }
    Py_END_ALLOW_THREADS
    PyObject *result = status == SP_OK ? Py_NewRef(Py_None) : sp_python_raise(status, &error, PyBytes_AS_STRING(path));
    PyBuffer_Release(&data);
    Py_DECREF(path);
    return result;
}

static PyMethodDef methods[] = {
    {"call_paths", call_paths, METH_VARARGS, PyDoc_STR("Calls of a rank by call path.")},
    {"write_file", write_file, METH_VARARGS, PyDoc_STR("Write a file, whole or not at all.")},
    {"export_profile", (PyCFunction)(void (*)(void))export_profile, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("Write a profile in another format.")},
    {NULL, NULL, 0, NULL},
};

int sp_python_add_exports(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
