/*
 * open_call.c - a call as an object. A web server knows the route of a request only after the request was routed, when its call is
 * long under way: begin_call() opens the call, end() says which region it was of. Nesting is as for any call, since the slot
 * is taken at the begin.
 */
#include "python/open_call.h"

#include "core/run.h"
#include "python/region.h"

static PyTypeObject *open_call_type;

typedef struct sp_open_call {
    PyObject_HEAD
    sp_open open;
    sp_ticks start;
    int64_t lane; /* as Run.lane() has it */
} sp_open_call;

/* Nobody will see the call. */
static void abandon(sp_open *open)
{
    atomic_store_explicit(&open->slot->end, SP_SLOT_ABANDONED, memory_order_release);
    open->slot = NULL;
}

static PyObject *begin_call(PyObject *module, PyObject *object)
{
    if (!Py_IS_TYPE(object, sp_region_type)) {
        return PyErr_Format(PyExc_TypeError, "begin_call() takes a Region, not %.100s", Py_TYPE(object)->tp_name);
    }
    sp_open open;
    sp_region_enter((sp_region_object *)object, &open);
    if (open.slot == NULL) Py_RETURN_NONE;
    sp_open_call *call = PyObject_New(sp_open_call, open_call_type);
    if (call == NULL) {
        abandon(&open);
        return NULL;
    }
    call->open = open;
    call->start = atomic_load_explicit(&open.slot->start, memory_order_relaxed);
    call->lane = open.slot->task != SP_NO_TASK ? open.slot->task : -2 - (int64_t)open.log->row->index;
    return (PyObject *)call;
}

/*
 * Make an open call one of the region. False: the run records none of that region. A run that is not the current one any more
 * gets no further regions; there the call stays what it was.
 */
static bool rename_call(const sp_open *open, sp_region_object *region)
{
    const uint64_t token = open->log->token;
    if (atomic_load_explicit(&region->binding, memory_order_acquire) >> 32 != token) sp_region_bind(region, token);
    const uint64_t binding = atomic_load_explicit(&region->binding, memory_order_acquire);
    if (binding >> 32 != token) return true;
    if ((uint32_t)binding == SP_REGION_OFF) return false;
    sp_log_rename(open->log, open->slot, (uint32_t)binding);
    return true;
}

static PyObject *open_call_end(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    sp_open_call *call = (sp_open_call *)self;
    if (count < 1 || count > 2 || (arguments[0] != Py_None && !Py_IS_TYPE(arguments[0], sp_region_type))) {
        PyErr_SetString(PyExc_TypeError, "end() takes a Region or None, and whether to leave a call alone that others are inside of");
        return NULL;
    }
    const int only_innermost = count == 2 ? PyObject_IsTrue(arguments[1]) : 0;
    if (only_innermost < 0) return NULL;
    if (call->open.slot == NULL) Py_RETURN_TRUE;
    if (only_innermost && sp_log_has_inner(call->open.log, call->open.slot)) Py_RETURN_FALSE;
    if (arguments[0] != Py_None && !rename_call(&call->open, (sp_region_object *)arguments[0])) abandon(&call->open);
    sp_region_exit(&call->open);
    Py_RETURN_TRUE;
}

static PyObject *open_call_start(PyObject *self, void *closure)
{
    return PyLong_FromUnsignedLongLong(((sp_open_call *)self)->start);
}

static PyObject *open_call_lane(PyObject *self, void *closure)
{
    return PyLong_FromLongLong(((sp_open_call *)self)->lane);
}

static void open_call_dealloc(PyObject *self)
{
    sp_open_call *call = (sp_open_call *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (call->open.slot) abandon(&call->open);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef open_call_methods[] = {
    {"end", (PyCFunction)(void (*)(void))open_call_end, METH_FASTCALL,
     "end(region, only_innermost=False): the call ends now, and is one of `region` (None: of the one it began with).\n\n"
     "With only_innermost a call that others on its lane are still inside of is left alone: False."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef open_call_getset[] = {
    {"start", open_call_start, NULL, "When it began, in ticks.", NULL},
    {"lane", open_call_lane, NULL, "Key of the lane it is on, as of Run.lane().", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot open_call_slots[] = {
    {Py_tp_dealloc, open_call_dealloc},
    {Py_tp_methods, open_call_methods},
    {Py_tp_getset, open_call_getset},
    {Py_tp_doc, "A call that goes on until end(). One that is dropped without it is never reported."},
    {0, NULL},
};

static PyType_Spec open_call_spec = {
    .name = "scope_profiler._core.OpenCall",
    .basicsize = sizeof(sp_open_call),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = open_call_slots,
};

static PyMethodDef functions[] = {
    {"begin_call", begin_call, METH_O,
     "begin_call(region): open a call on the lane that the caller is on; None when nothing is recorded."},
    {NULL, NULL, 0, NULL},
};

int sp_python_add_open_call(PyObject *module)
{
    open_call_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &open_call_spec, NULL);
    if (open_call_type == NULL || PyModule_AddObjectRef(module, "OpenCall", (PyObject *)open_call_type) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}
