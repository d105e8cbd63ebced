#include "python/export_object.h"

#include <string.h>

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

static PyMethodDef methods[] = {
    {"export_profile", (PyCFunction)(void (*)(void))export_profile, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("Write a profile in another format.")},
    {NULL, NULL, 0, NULL},
};

int sp_python_add_exports(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
