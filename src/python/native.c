#include "python/native.h"

#include <stdlib.h>
#include <string.h>

#include "native/profiler.h"
#include "native/rendezvous.h"

#define CAPSULE "scope_profiler._core._C_API"

static int refuse(const sp_host *host)
{
    return host == &sp_host_v1 ? SP_OK : SP_ERR_BUSY;
}

/* In the place of the library's own, which is not part of the extension. */
const sp_host sp_host_v1 = {.version = SP_HOST_VERSION, .size = sizeof(sp_host), .rank = 2, .calls = &sp_native_calls, .attach = refuse};

static const sp_recorder_object *_Atomic leader;

static bool leads(const sp_recorder_object *recorder)
{
    return atomic_load_explicit(&leader, memory_order_relaxed) == recorder;
}

void sp_native_follow(const sp_recorder_object *recorder, sp_run *run)
{
    if (leads(recorder)) sp_native_outer_begin(run);
}

void sp_native_follow_pause(const sp_recorder_object *recorder, const sp_run *run, bool paused)
{
    if (leads(recorder)) sp_native_outer_pause(run, paused);
}

void sp_native_unfollow(const sp_recorder_object *recorder, const sp_run *run)
{
    if (leads(recorder)) sp_native_outer_end(run);
}

PyObject *sp_recorder_host_native(PyObject *recorder, PyObject *none)
{
    atomic_store(&leader, (const sp_recorder_object *)recorder);
    Py_RETURN_NONE;
}

/* {key: value} that native code has set since the leading recorder's run began; {} for other recorders. */
PyObject *sp_recorder_native_metadata(PyObject *recorder, PyObject *none)
{
    PyObject *found = PyDict_New();
    if (found == NULL || !leads((const sp_recorder_object *)recorder)) return found;
    size_t at = 0;
    for (char *key, *value; found && sp_native_copy_metadata(&sp_native_default, at, &key, &value); at++) {
        PyObject *text = PyUnicode_DecodeUTF8(value, (Py_ssize_t)strlen(value), "replace");
        PyObject *name = PyUnicode_DecodeUTF8(key, (Py_ssize_t)strlen(key), "replace");
        if (text == NULL || name == NULL || PyDict_SetItem(found, name, text) < 0) Py_CLEAR(found);
        Py_XDECREF(name);
        Py_XDECREF(text);
        free(key);
        free(value);
    }
    return found;
}

int sp_python_add_native(PyObject *module)
{
    PyObject *capsule = PyCapsule_New((void *)(uintptr_t)&sp_host_v1, CAPSULE, NULL);
    if (capsule == NULL) return -1;
    const int failed = PyModule_AddObjectRef(module, "_C_API", capsule);
    Py_DECREF(capsule);
    if (failed) return -1;
    sp_native_announce(&sp_host_v1);
    return 0;
}
