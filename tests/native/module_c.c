/* An extension module that hides its symbols, and joins Python's run by the capsule. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <scope_profiler.h>

static PyObject *around(PyObject *self, PyObject *function)
{
    PyObject *answer;
    const int region = sp_region("ext.around");
    (void)self;
    sp_begin(region);
    answer = PyObject_CallNoArgs(function);
    sp_end(region);
    return answer;
}

static PyMethodDef methods[] = {{"around", around, METH_O, "Call a function inside a region."}, {NULL, NULL, 0, NULL}};

static int execute(PyObject *module)
{
    const sp_host *host = PyCapsule_Import("scope_profiler._core._C_API", 0);
    (void)module;
    if (host == NULL) return -1;
    if (sp_attach(host) == SP_OK) return 0;
    PyErr_SetString(PyExc_ImportError, "cannot join the profiler");
    return -1;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)execute}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "module_c", .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit_module_c(void);
PyMODINIT_FUNC PyInit_module_c(void)
{
    return PyModuleDef_Init(&definition);
}
