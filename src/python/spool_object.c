#include "python/spool_object.h"

#include "formats/spool.h"
#include "python/profile_object.h"

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

static PyMethodDef functions[] = {
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
