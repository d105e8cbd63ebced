#include "python/spool_object.h"

#include "formats/spool.h"
#include "python/profile_object.h"

static PyObject *read_spool(PyObject *module, PyObject *args)
{
    PyObject *path = NULL;
    unsigned rank = 0;
    if (!PyArg_ParseTuple(args, "O&|I:read_spool", PyUnicode_FSConverter, &path, &rank)) return NULL;
    sp_profile *profile = NULL;
    sp_salvage salvage = {0};
    sp_error error;
    sp_status status;
    Py_BEGIN_ALLOW_THREADS
    status = sp_spool_read(PyBytes_AS_STRING(path), rank, &profile, &salvage, &error);
    Py_END_ALLOW_THREADS
    if (status != SP_OK) {
        sp_python_raise(status, &error, PyBytes_AS_STRING(path));
        Py_DECREF(path);
        return NULL;
    }
    Py_DECREF(path);
    PyObject *object = sp_profile_object_new(profile);
    if (object == NULL) return NULL;
    return Py_BuildValue("N{sKsKsOsO}", object, "open_calls", (unsigned long long)salvage.open_calls, "damaged_bytes",
                         (unsigned long long)salvage.damaged_bytes, "limited", salvage.limited ? Py_True : Py_False,
                         "incomplete", salvage.incomplete ? Py_True : Py_False);
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
     "read_spool(path, rank=0) -> (Profile, {'open_calls', 'damaged_bytes', 'limited', 'incomplete'})\n\n"
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
