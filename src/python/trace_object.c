/* trace_object.c - native traces (formats/native_trace.h) from Python. What is damaged is one TraceFormatError. */
#include "python/trace_object.h"

#include <assert.h>
#include <string.h>

#include "formats/native_trace.h"
#include "python/hdf5_object.h"
#include "python/profile_object.h"

static PyObject *raise_trace(sp_status status, const sp_error *error, const char *path)
{
    if (status != SP_ERR_CORRUPT && status != SP_ERR_FOREIGN && status != SP_ERR_SCHEMA && status != SP_ERR_INVALID) {
        return sp_python_raise(status, error, path);
    }
    PyObject *text = PyUnicode_DecodeUTF8(error->message, (Py_ssize_t)strlen(error->message), "backslashreplace");
    if (text) PyErr_SetObject(sp_python_state->trace_error, text);
    Py_XDECREF(text);
    return NULL;
}

static PyObject *read_trace(PyObject *module, PyObject *argument)
{
    PyObject *path, *result = NULL;
    if (!PyUnicode_FSConverter(argument, &path)) return NULL;
    sp_profile *profile;
    uint32_t rank;
    sp_error error = {0};
    sp_status status;
    Py_BEGIN_ALLOW_THREADS
    status = sp_spt_read(PyBytes_AS_STRING(path), &profile, &rank, &error);
    Py_END_ALLOW_THREADS
    if (status != SP_OK) raise_trace(status, &error, PyBytes_AS_STRING(path));
    else result = Py_BuildValue("(IN)", (unsigned)rank, sp_profile_object_new(profile));
    Py_DECREF(path);
    return result;
}

/* Paths as C has them: `*kept`, a list of bytes objects, keeps them alive. */
static int parse_paths(PyObject *value, PyObject **kept, const char ***paths, size_t *count)
{
    *kept = NULL;
    *paths = NULL;
    *count = 0;
    PyObject *given = PySequence_Tuple(value);
    if (given == NULL) return -1;
    const Py_ssize_t size = PyTuple_GET_SIZE(given);
    *kept = PyList_New(0);
    *paths = PyMem_Calloc((size_t)size + 1, sizeof **paths);
    if (*paths == NULL) PyErr_NoMemory();
    for (Py_ssize_t i = 0; *kept && *paths && i < size; i++) {
        PyObject *path;
        if (!PyUnicode_FSConverter(PyTuple_GET_ITEM(given, i), &path)) break;
        (*paths)[(*count)++] = PyBytes_AS_STRING(path);
        const int added = PyList_Append(*kept, path);
        Py_DECREF(path);
        if (added < 0) break;
    }
    Py_DECREF(given);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *path_list(const sp_paths *paths)
{
    PyObject *list = PyList_New((Py_ssize_t)paths->count);
    for (size_t i = 0; list && i < paths->count; i++) {
        PyObject *path = PyUnicode_DecodeFSDefault(paths->paths[i]);
        if (path == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, (Py_ssize_t)i, path);
    }
    return list;
}

static PyObject *find_traces(PyObject *module, PyObject *inputs)
{
    PyObject *kept, *result = NULL;
    const char **paths;
    size_t count;
    sp_paths found;
    sp_error error = {0};
    if (parse_paths(inputs, &kept, &paths, &count) == 0) {
        sp_status status;
        Py_BEGIN_ALLOW_THREADS
        status = sp_traces_find(paths, count, &found, &error);
        Py_END_ALLOW_THREADS
        if (status == SP_OK) result = path_list(&found);
        else raise_trace(status, &error, NULL);
        if (status == SP_OK) sp_paths_free(&found);
    }
    PyMem_Free(paths);
    Py_XDECREF(kept);
    return result;
}

static PyObject *load_traces(PyObject *module, PyObject *args)
{
    PyObject *inputs, *kept = NULL, *result = NULL;
    const char *label = NULL, **paths = NULL;
    size_t count;
    sp_hdf5_turn turn;
    if (!PyArg_ParseTuple(args, "O|z:load_traces", &inputs, &label)) return NULL;
    if (parse_paths(inputs, &kept, &paths, &count) == 0 && sp_hdf5_turn_begin(&turn) == 0) {
        sp_profile *profile;
        sp_error error = {0};
        const sp_status status = sp_traces_load(paths, count, label, &profile, &error);
        sp_hdf5_turn_end(&turn);
        result = status == SP_OK ? sp_profile_object_new(profile) : raise_trace(status, &error, NULL);
    }
    PyMem_Free(paths);
    Py_XDECREF(kept);
    return result;
}

static PyObject *text_list(char *const *texts, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *text = PyUnicode_DecodeUTF8(texts[i], (Py_ssize_t)strlen(texts[i]), "replace");
        if (text == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, (Py_ssize_t)i, text);
    }
    return list;
}

static PyObject *module_list(const sp_samples *samples)
{
    PyObject *paths = text_list(samples->modules, samples->module_count);
    PyObject *list = paths ? PyList_New((Py_ssize_t)samples->module_count) : NULL;
    for (size_t i = 0; list && i < samples->module_count; i++) {
        PyObject *pair = Py_BuildValue("(OK)", PyList_GET_ITEM(paths, (Py_ssize_t)i), (unsigned long long)samples->bases[i]);
        if (pair == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, (Py_ssize_t)i, pair);
    }
    Py_XDECREF(paths);
    return list;
}

static PyObject *samples_tuple(const sp_samples *samples)
{
    static_assert(sizeof(sp_sample) == 16, "numpy reads the samples as (i4, i4, u8)");
    return Py_BuildValue("(iiLNNy#)", (int)samples->rank, (int)samples->hz, (long long)samples->ticks,
                         text_list(samples->regions, samples->region_count), module_list(samples),
                         (const char *)samples->samples, (Py_ssize_t)(samples->sample_count * sizeof *samples->samples));
}

static PyObject *read_samples(PyObject *module, PyObject *argument)
{
    PyObject *path, *result = NULL;
    if (!PyUnicode_FSConverter(argument, &path)) return NULL;
    sp_samples samples;
    sp_error error = {0};
    const sp_status status = sp_sps_read(PyBytes_AS_STRING(path), &samples, &error);
    if (status == SP_OK) result = samples_tuple(&samples);
    else raise_trace(status, &error, PyBytes_AS_STRING(path));
    sp_samples_free(&samples);
    Py_DECREF(path);
    return result;
}

static PyMethodDef functions[] = {
    {"read_trace", read_trace, METH_O, "read_trace(path, /)\n--\n\n(rank, profile) of a .spt file."},
    {"find_traces", find_traces, METH_O, "find_traces(inputs, /)\n--\n\nPaths of native output."},
    {"load_traces", load_traces, METH_VARARGS, "load_traces(paths, label=None, /)\n--\n\nNative output as one profile."},
    {"read_samples", read_samples, METH_O,
     "read_samples(path, /)\n--\n\n(rank, hz, ticks, regions, [(module, base)], samples) of a .sps file."},
    {NULL, NULL, 0, NULL},
};

int sp_python_add_traces(PyObject *module)
{
    PyObject *error = PyErr_NewExceptionWithDoc("scope_profiler.native_trace.TraceFormatError",
                                                "A native trace that is damaged, or no trace.", PyExc_ValueError, NULL);
    if (error == NULL) return -1;
    sp_python_state->trace_error = error;
    if (PyModule_AddObjectRef(module, "TraceFormatError", error) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}
