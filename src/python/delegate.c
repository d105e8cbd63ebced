/* delegate.c - see delegate.h. The types differ in what they let be seen; the step is the same for all. */
#include "python/delegate.h"

#include <structmember.h>

#include "python/stack.h"

/* Attributes of inner objects, by kind, that say whether the body is over. */
static PyObject *frame_names[SP_DELEGATE_KINDS];
static PyTypeObject *delegate_types[SP_DELEGATE_KINDS];
static PyTypeObject *awaiter_type;
static PyObject *send_name, *throw_name, *close_name, *await_name;

#ifdef Py_GIL_DISABLED
#define STATE_ORDER memory_order_acq_rel
#endif

/* ---- a step ---------------------------------------------------------------------------------------------------------- */

bool sp_frame_is_gone(PyObject *inner, PyObject *frame_attribute)
{
    const sp_pending pending = sp_pending_take();
    PyObject *frame = PyObject_GetAttr(inner, frame_attribute);
    const bool gone = frame == NULL || frame == Py_None;
    if (frame == NULL) PyErr_Clear();
    Py_XDECREF(frame);
    sp_pending_restore(pending);
    return gone;
}

/* Take the pending exception, its value an object with its traceback. */
static sp_pending take_normalized(void)
{
    sp_pending pending = sp_pending_take();
#if PY_VERSION_HEX < 0x030c0000
    if (pending.type == NULL) return pending;
    PyErr_NormalizeException(&pending.type, &pending.value, &pending.traceback);
    if (pending.traceback) PyException_SetTraceback(pending.value, pending.traceback);
#endif
    return pending;
}

PyObject *sp_pending_exception(void)
{
    const sp_pending pending = take_normalized();
    PyObject *exception = Py_XNewRef(pending.value);
    sp_pending_restore(pending);
    return exception;
}

PyObject *sp_exception_take(void)
{
    const sp_pending pending = take_normalized();
    Py_XDECREF(pending.type);
    Py_XDECREF(pending.traceback);
    return pending.value;
}

/*
 * Begin a step. False: the inner object is running or over, so that it will refuse (or answer at once) by itself, and
 * the hooks are not told. `starts`: the operation lets a body that has not started run its first statement.
 */
static inline bool step_begin(sp_delegate *self, bool starts)
{
    uint8_t state = atomic_load_explicit(&self->state, memory_order_relaxed);
    uint8_t next;
#ifdef Py_GIL_DISABLED
    do {
#endif
        if (state & (SP_STEP_RUNNING | SP_STEP_ENDED)) return false;
        next = state | SP_STEP_RUNNING | (starts ? SP_STEP_STARTED : 0);
#ifdef Py_GIL_DISABLED
    } while (!atomic_compare_exchange_weak_explicit(&self->state, &state, next, STATE_ORDER, memory_order_relaxed));
#else
    atomic_store_explicit(&self->state, next, memory_order_relaxed);
#endif
    self->hooks->enter(self, starts && !(state & SP_STEP_STARTED));
    return true;
}

/* Inlined by force, as what is below: the compiler takes a step for rare, since few places make one, and would call them. */
static inline __attribute__((always_inline)) void step_end(sp_delegate *self, sp_outcome outcome)
{
    uint8_t state = atomic_load_explicit(&self->state, memory_order_relaxed) & ~SP_STEP_RUNNING;
    if (SP_UNLIKELY(outcome != SP_SUSPENDED)) {
        if (outcome == SP_RAISED && self->kind == SP_DELEGATE_STEP) {
            /* "already running": the awaitable can be tried again */
        } else if (outcome == SP_RAISED && frame_names[self->kind] &&
                   !sp_frame_is_gone(self->inner, frame_names[self->kind])) {
            outcome = SP_SUSPENDED;
        } else {
            state |= SP_STEP_ENDED;
        }
    }
    self->hooks->leave(self, outcome);
    atomic_store_explicit(&self->state, state, memory_order_release);
}

/* The outcome of an operation that tells a return by StopIteration, or by NULL without an exception. */
static inline sp_outcome outcome_of(PyObject *result)
{
    if (result) return SP_SUSPENDED;
    PyObject *error = PyErr_Occurred();
    if (error == NULL || PyErr_GivenExceptionMatches(error, PyExc_StopIteration)) return SP_RETURNED;
    return SP_RAISED;
}

static PySendResult delegate_am_send(PyObject *op, PyObject *value, PyObject **result)
{
    sp_delegate *self = (sp_delegate *)op;
    const bool ours = step_begin(self, value == Py_None);
    *result = NULL;
    PySendResult sent = PYGEN_ERROR;
    if (SP_LIKELY(sp_stack_has_room())) {
        PyThreadState *levels = sp_levels_give();
        sent = PyIter_Send(self->inner, value, result);
        sp_levels_take(levels);
    }
    if (ours) step_end(self, sent == PYGEN_NEXT ? SP_SUSPENDED : sent == PYGEN_RETURN ? SP_RETURNED : SP_RAISED);
    return sent;
}

/* Raise StopIteration(value) as a generator's return does: a tuple or an exception is the value, not its arguments. */
static void raise_stop(PyObject *value)
{
    if (value == Py_None) {
        PyErr_SetNone(PyExc_StopIteration);
    } else if (!PyTuple_Check(value) && !PyExceptionInstance_Check(value)) {
        PyErr_SetObject(PyExc_StopIteration, value);
    } else {
        PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, value);
        if (stop) PyErr_SetObject(PyExc_StopIteration, stop);
        Py_XDECREF(stop);
    }
}

/* The next of an object that has no tp_iternext. */
static SP_NOINLINE PyObject *send_none(PyObject *inner)
{
    PyObject *result = NULL;
    const PySendResult sent = PyIter_Send(inner, Py_None, &result);
    if (sent != PYGEN_RETURN) return result;
    if (result != Py_None) raise_stop(result); /* NULL alone is a return of None */
    Py_DECREF(result);
    return NULL;
}

static inline __attribute__((always_inline)) PyObject *inner_next(PyObject *inner)
{
    return SP_LIKELY(PyIter_Check(inner)) ? Py_TYPE(inner)->tp_iternext(inner) : send_none(inner);
}

static PyObject *delegate_iternext(PyObject *op)
{
    sp_delegate *self = (sp_delegate *)op;
    const bool ours = step_begin(self, true);
    PyObject *result = NULL;
    if (SP_LIKELY(sp_stack_has_room())) {
        PyThreadState *levels = sp_levels_give();
        result = inner_next(self->inner);
        sp_levels_take(levels);
    }
    if (ours) step_end(self, outcome_of(result));
    return result;
}

static PyObject *call_inner(sp_delegate *self, PyObject *name, PyObject *const *args, Py_ssize_t count)
{
    PyObject *all[4]; /* throw() takes three */
    if (count > 3) return PyErr_Format(PyExc_TypeError, "%U expected at most 3 arguments, got %zd", name, count);
    all[0] = self->inner;
    for (Py_ssize_t i = 0; i < count; i++) all[i + 1] = args[i];
    if (SP_UNLIKELY(!sp_stack_has_room())) return NULL;
    PyThreadState *levels = sp_levels_give();
    PyObject *result = PyObject_VectorcallMethod(name, all, (size_t)count + 1, NULL);
    sp_levels_take(levels);
    return result;
}

static PyObject *delegate_send(PyObject *op, PyObject *value)
{
    sp_delegate *self = (sp_delegate *)op;
    const bool ours = step_begin(self, value == Py_None);
    PyObject *result = call_inner(self, send_name, &value, 1);
    if (ours) step_end(self, outcome_of(result));
    return result;
}

static PyObject *delegate_throw(PyObject *op, PyObject *const *args, Py_ssize_t count)
{
    sp_delegate *self = (sp_delegate *)op;
    const bool ours = step_begin(self, false);
    PyObject *result = call_inner(self, throw_name, args, count);
    if (ours) step_end(self, outcome_of(result));
    return result;
}

static PyObject *delegate_close(PyObject *op, PyObject *Py_UNUSED(unused))
{
    sp_delegate *self = (sp_delegate *)op;
    const bool ours = step_begin(self, false);
    PyObject *result = call_inner(self, close_name, NULL, 0);
    if (ours) step_end(self, result ? SP_CLOSED : SP_RAISED);
    return result;
}

/* ---- life ------------------------------------------------------------------------------------------------------------ */

/*
 * Dead delegates wait to be used again, which takes a third of the instructions of new memory from the collector's allocator.
 * Without the GIL its own lists, one a thread, do that.
 */
#ifndef Py_GIL_DISABLED
#define SPARE_DELEGATES 64
static sp_delegate *spare[SPARE_DELEGATES];
static int spare_count;
#endif

static sp_delegate *allocate(PyTypeObject *type)
{
#ifndef Py_GIL_DISABLED
    if (SP_LIKELY(spare_count > 0)) return (sp_delegate *)PyObject_Init((PyObject *)spare[--spare_count], type);
#endif
    return (sp_delegate *)PyObject_GC_New(sp_delegate, type);
}

static void release(sp_delegate *self)
{
#ifndef Py_GIL_DISABLED
    if (SP_LIKELY(spare_count < SPARE_DELEGATES)) {
        spare[spare_count++] = self;
        return;
    }
#endif
    PyObject_GC_Del(self);
}

sp_delegate *sp_delegate_new(sp_delegate_kind kind, PyObject *inner, const sp_delegate_hooks *hooks)
{
    sp_delegate *self = allocate(delegate_types[kind]);
    if (self == NULL) return NULL;
    memset((char *)self + sizeof(PyObject), 0, SP_DELEGATE_SIZE - sizeof(PyObject));
    self->inner = Py_NewRef(inner);
    self->hooks = hooks;
    self->kind = (uint8_t)kind;
    PyObject_GC_Track(self);
    return self;
}

int sp_delegate_kind_of(PyObject *object)
{
    if (PyCoro_CheckExact(object) || Py_IS_TYPE(object, delegate_types[SP_DELEGATE_COROUTINE])) return SP_DELEGATE_COROUTINE;
    if (PyGen_CheckExact(object) || Py_IS_TYPE(object, delegate_types[SP_DELEGATE_GENERATOR])) return SP_DELEGATE_GENERATOR;
    PyObject *const type = (PyObject *)Py_TYPE(object);
    PyObject *const needed[] = {send_name, throw_name, close_name};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        PyObject *method = PyObject_GetAttr(type, needed[i]);
        if (method == NULL) {
            PyErr_Clear();
            return -1;
        }
        Py_DECREF(method);
    }
    return SP_DELEGATE_FOREIGN;
}

bool sp_is_delegate(PyObject *object, const sp_delegate_hooks *hooks)
{
    for (size_t kind = 0; kind < SP_DELEGATE_KINDS; kind++) {
        if (Py_IS_TYPE(object, delegate_types[kind])) return ((sp_delegate *)object)->hooks == hooks;
    }
    return false;
}

static int delegate_traverse(PyObject *op, visitproc visit, void *arg)
{
    sp_delegate *self = (sp_delegate *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->inner);
    return self->hooks->traverse ? self->hooks->traverse(self, visit, arg) : 0;
}

static void delegate_dealloc(PyObject *op)
{
    sp_delegate *self = (sp_delegate *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    if (self->weakrefs) PyObject_ClearWeakRefs(op);
    /* A body that is suspended here runs its `finally` blocks now; its call ends after them. */
    Py_CLEAR(self->inner);
    if (self->hooks->drop) self->hooks->drop(self);
    release(self);
    Py_DECREF(type);
}

static PyObject *delegate_repr(PyObject *op)
{
    return PyObject_Repr(((sp_delegate *)op)->inner);
}

PyObject *sp_delegate_get(PyObject *op, void *name)
{
    return PyObject_GetAttrString(((sp_delegate *)op)->inner, name);
}

int sp_delegate_set(PyObject *op, PyObject *value, void *name)
{
    return PyObject_SetAttrString(((sp_delegate *)op)->inner, name, value);
}

/* ---- coroutines ------------------------------------------------------------------------------------------------------ */

/* What `await` makes of a coroutine: the delegate itself, which tools that walk cr_await then find, as they would find the
 * coroutine. It has no __next__ and no __iter__ to see. */
static PyObject *coroutine_await(PyObject *op)
{
    sp_delegate *self = (sp_delegate *)op;
    if (atomic_load_explicit(&self->state, memory_order_relaxed) == SP_STEP_STARTED) {
        PyObject *awaits = PyObject_GetAttr(self->inner, await_name);
        if (awaits == NULL) return NULL;
        Py_DECREF(awaits);
        if (awaits != Py_None) {
            PyErr_SetString(PyExc_RuntimeError, "coroutine is being awaited already");
            return NULL;
        }
    }
    return Py_NewRef(op);
}

/* Only `yield from` in a generator-based coroutine may iterate over a coroutine. */
static PyObject *coroutine_iter(PyObject *op)
{
    PyFrameObject *frame = PyEval_GetFrame();
    if (frame) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        const int flags = code->co_flags;
        Py_DECREF(code);
        if (flags & CO_ITERABLE_COROUTINE) return Py_NewRef(op);
    }
    PyErr_SetString(PyExc_TypeError, "'coroutine' object is not iterable");
    return NULL;
}

/* __await__() called by name: an iterator of its own, as for any coroutine. */
typedef struct awaiter {
    PyObject_HEAD
    PyObject *delegate;
} awaiter;

static PyObject *coroutine_awaiter(PyObject *op, PyObject *Py_UNUSED(unused))
{
    awaiter *self = PyObject_GC_New(awaiter, awaiter_type);
    if (self == NULL) return NULL;
    self->delegate = Py_NewRef(op);
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static int awaiter_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((awaiter *)op)->delegate);
    return 0;
}

static void awaiter_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    Py_CLEAR(((awaiter *)op)->delegate);
    PyObject_GC_Del(op);
    Py_DECREF(type);
}

static PyObject *awaiter_iternext(PyObject *op)
{
    return delegate_iternext(((awaiter *)op)->delegate);
}

static PySendResult awaiter_am_send(PyObject *op, PyObject *value, PyObject **result)
{
    return delegate_am_send(((awaiter *)op)->delegate, value, result);
}

static PyObject *awaiter_send(PyObject *op, PyObject *value)
{
    return delegate_send(((awaiter *)op)->delegate, value);
}

static PyObject *awaiter_throw(PyObject *op, PyObject *const *args, Py_ssize_t count)
{
    return delegate_throw(((awaiter *)op)->delegate, args, count);
}

static PyObject *awaiter_close(PyObject *op, PyObject *unused)
{
    return delegate_close(((awaiter *)op)->delegate, unused);
}

static PyMethodDef awaiter_methods[] = {
    {"send", awaiter_send, METH_O, NULL},
    {"throw", (PyCFunction)(void (*)(void))awaiter_throw, METH_FASTCALL, NULL},
    {"close", awaiter_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot awaiter_slots[] = {
    {Py_tp_dealloc, awaiter_dealloc},
    {Py_tp_traverse, awaiter_traverse},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, awaiter_iternext},
    {Py_am_send, awaiter_am_send},
    {Py_tp_methods, awaiter_methods},
    {0, NULL},
};

/* ---- generators ------------------------------------------------------------------------------------------------------ */

/* Generators made by @types.coroutine can be awaited, others not. */
static PyObject *generator_await(PyObject *op)
{
    PyObject *code = PyObject_GetAttrString(((sp_delegate *)op)->inner, "gi_code");
    if (code == NULL) return NULL;
    const bool iterable = PyCode_Check(code) && ((PyCodeObject *)code)->co_flags & CO_ITERABLE_COROUTINE;
    Py_DECREF(code);
    if (iterable) return Py_NewRef(op);
    PyErr_SetString(PyExc_TypeError, "object generator can't be used in 'await' expression");
    return NULL;
}

/* ---- foreign coroutines ------------------------------------------------------------------------------------------------ */

static PyObject *foreign_getattro(PyObject *op, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr(op, name);
    if (value || !PyErr_ExceptionMatches(PyExc_AttributeError)) return value;
    PyErr_Clear();
    return PyObject_GetAttr(((sp_delegate *)op)->inner, name);
}

static int foreign_setattro(PyObject *op, PyObject *name, PyObject *value)
{
    return PyObject_SetAttr(((sp_delegate *)op)->inner, name, value);
}

static PyObject *foreign_iter(PyObject *op)
{
    PyObject *const inner = ((sp_delegate *)op)->inner;
    PyObject *iterator = PyObject_GetIter(inner);
    if (iterator != inner) return iterator;
    Py_DECREF(iterator);
    return Py_NewRef(op);
}

/* ---- types ------------------------------------------------------------------------------------------------------------- */

#define METHODS                                                                          \
    {"send", delegate_send, METH_O, NULL},                                               \
    {"throw", (PyCFunction)(void (*)(void))delegate_throw, METH_FASTCALL, NULL},         \
    {"close", delegate_close, METH_NOARGS, NULL}

static PyMethodDef coroutine_methods[] = {
    METHODS,
    {"__await__", coroutine_awaiter, METH_NOARGS | METH_COEXIST, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef common_methods[] = {
    METHODS,
    {NULL, NULL, 0, NULL},
};

#define READ_ONLY(name) {name, sp_delegate_get, NULL, NULL, name}
#define READ_WRITE(name) {name, sp_delegate_get, sp_delegate_set, NULL, name}

static PyGetSetDef coroutine_attributes[] = {
    READ_ONLY("__class__"), READ_WRITE("__name__"), READ_WRITE("__qualname__"),
    READ_ONLY("cr_frame"), READ_ONLY("cr_code"), READ_ONLY("cr_await"), READ_ONLY("cr_running"), READ_ONLY("cr_origin"),
#if PY_VERSION_HEX >= 0x030b0000
    READ_ONLY("cr_suspended"),
#endif
    {NULL, NULL, NULL, NULL, NULL},
};

static PyGetSetDef generator_attributes[] = {
    READ_ONLY("__class__"), READ_WRITE("__name__"), READ_WRITE("__qualname__"),
    READ_ONLY("gi_frame"), READ_ONLY("gi_code"), READ_ONLY("gi_yieldfrom"), READ_ONLY("gi_running"),
#if PY_VERSION_HEX >= 0x030b0000
    READ_ONLY("gi_suspended"),
#endif
    {NULL, NULL, NULL, NULL, NULL},
};

static PyGetSetDef common_attributes[] = {
    READ_ONLY("__class__"),
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef delegate_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(sp_delegate, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

#define COMMON_SLOTS                          \
    {Py_tp_dealloc, delegate_dealloc},        \
    {Py_tp_traverse, delegate_traverse},      \
    {Py_tp_repr, delegate_repr},              \
    {Py_tp_iternext, delegate_iternext},      \
    {Py_am_send, delegate_am_send},           \
    {Py_tp_members, delegate_members}

static PyType_Slot coroutine_slots[] = {
    COMMON_SLOTS,
    {Py_tp_iter, coroutine_iter},
    {Py_am_await, coroutine_await},
    {Py_tp_methods, coroutine_methods},
    {Py_tp_getset, coroutine_attributes},
    {0, NULL},
};

static PyType_Slot generator_slots[] = {
    COMMON_SLOTS,
    {Py_tp_iter, PyObject_SelfIter},
    {Py_am_await, generator_await},
    {Py_tp_methods, common_methods},
    {Py_tp_getset, generator_attributes},
    {0, NULL},
};

static PyType_Slot foreign_slots[] = {
    COMMON_SLOTS,
    {Py_tp_iter, foreign_iter},
    {Py_am_await, PyObject_SelfIter},
    {Py_tp_getattro, foreign_getattro},
    {Py_tp_setattro, foreign_setattro},
    {Py_tp_methods, coroutine_methods},
    {Py_tp_getset, common_attributes},
    {0, NULL},
};

static PyType_Slot step_slots[] = {
    COMMON_SLOTS,
    {Py_tp_iter, PyObject_SelfIter},
    {Py_am_await, PyObject_SelfIter},
    {Py_tp_methods, common_methods},
    {Py_tp_getset, common_attributes},
    {0, NULL},
};

#define TYPE_FLAGS \
    (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE)

static PyType_Spec specs[SP_DELEGATE_KINDS] = {
    [SP_DELEGATE_COROUTINE] = {"scope_profiler._core.coroutine", SP_DELEGATE_SIZE, 0, TYPE_FLAGS, coroutine_slots},
    [SP_DELEGATE_GENERATOR] = {"scope_profiler._core.generator", SP_DELEGATE_SIZE, 0, TYPE_FLAGS, generator_slots},
    [SP_DELEGATE_FOREIGN] = {"scope_profiler._core.coroutine_like", SP_DELEGATE_SIZE, 0, TYPE_FLAGS, foreign_slots},
    [SP_DELEGATE_STEP] = {"scope_profiler._core.async_generator_step", SP_DELEGATE_SIZE, 0, TYPE_FLAGS, step_slots},
};

static PyType_Spec awaiter_spec = {"scope_profiler._core.coroutine_wrapper", sizeof(awaiter), 0, TYPE_FLAGS, awaiter_slots};

/* Take a slot's method out of sight, where the stood-for type has none: hasattr() and the abstract base classes look. */
static int hide(PyTypeObject *type, const char *name)
{
#if PY_VERSION_HEX >= 0x030c0000
    PyObject *dict = PyType_GetDict(type);
#else
    PyObject *dict = Py_XNewRef(type->tp_dict);
#endif
    const int failed = dict == NULL || PyDict_DelItemString(dict, name) < 0;
    Py_XDECREF(dict);
    PyType_Modified(type);
    return failed ? -1 : 0;
}

static int intern(PyObject **name, const char *text)
{
    *name = PyUnicode_InternFromString(text);
    return *name ? 0 : -1;
}

int sp_python_add_delegate(PyObject *module)
{
    if (intern(&send_name, "send") < 0 || intern(&throw_name, "throw") < 0 || intern(&close_name, "close") < 0 ||
        intern(&await_name, "cr_await") < 0 || intern(&frame_names[SP_DELEGATE_COROUTINE], "cr_frame") < 0 ||
        intern(&frame_names[SP_DELEGATE_GENERATOR], "gi_frame") < 0) {
        return -1;
    }
    for (size_t kind = 0; kind < SP_DELEGATE_KINDS; kind++) {
        delegate_types[kind] = (PyTypeObject *)PyType_FromModuleAndSpec(module, &specs[kind], NULL);
        if (delegate_types[kind] == NULL) return -1;
    }
    awaiter_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &awaiter_spec, NULL);
    if (awaiter_type == NULL) return -1;
    PyTypeObject *const coroutine = delegate_types[SP_DELEGATE_COROUTINE];
    if (hide(coroutine, "__next__") < 0 || hide(coroutine, "__iter__") < 0) return -1;
    return hide(delegate_types[SP_DELEGATE_GENERATOR], "__await__");
}
