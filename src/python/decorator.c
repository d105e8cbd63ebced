/* decorator.c - see decorator.h. The calls come first; then wrapping by kind; then what makes it pass for the function. */
#include "python/decorator.h"

#include <structmember.h>

#include "python/coroutine.h"
#include "python/stack.h"

/* What a call of the wrapped object returns, hence what is recorded. */
typedef enum call_kind {
    CALL_PLAIN,    /* the call itself */
    CALL_BODY,     /* a Python function that returns a coroutine or a generator: the life of its body */
    CALL_UNCERTAIN /* marked as one of these, or written in C: told by what each call returns */
} call_kind;

typedef struct profiled {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    sp_region_object *region; /* never NULL, like function and name */
    PyObject *function;
    PyObject *name;
    PyObject *annotate;  /* or NULL */
    PyObject *dict;      /* __dict__ */
    PyObject *overrides; /* of the attributes in `copied` that were set, or NULL */
    PyObject *weakrefs;
    uint8_t kind;  /* call_kind */
    uint8_t trace; /* sp_trace_mode: whether functions that it calls are traced */
} profiled;

static PyTypeObject *function_type;   /* ProfiledFunction */
static PyTypeObject *descriptor_type; /* ProfiledDescriptor */
static PyTypeObject *callable_type;   /* ProfiledCallable */

/* ---- calls --------------------------------------------------------------------------------------------------------------- */

static SP_NOINLINE PyObject *forward_carefully(const profiled *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (!sp_stack_has_room()) return NULL;
    PyThreadState *levels = sp_levels_give();
    PyObject *result = sp_forward(self->function, args, nargsf, kwnames);
    sp_levels_take(levels);
    return result;
}

/* Off, a call costs two tests and an indirect jump. */
static inline PyObject *forward(const profiled *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (SP_UNLIKELY(sp_stack_is_low())) return forward_carefully(self, args, nargsf, kwnames);
    PyThreadState *levels = sp_levels_give();
    PyObject *result = sp_forward(self->function, args, nargsf, kwnames);
    sp_levels_take(levels);
    return result;
}

static inline bool is_recording(const profiled *self)
{
    return atomic_load_explicit(&self->region->gate->token, memory_order_relaxed) != 0;
}

/* For itself, so that a call that is not recorded saves no registers. */
static __attribute__((noinline)) PyObject *call_recorded(const profiled *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    sp_open open;
    sp_region_enter(self->region, &open);
    PyObject *result = forward(self, args, nargsf, kwnames);
    sp_region_exit(&open);
    return result;
}

static PyObject *call_plain(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const profiled *self = (profiled *)op;
    return is_recording(self) ? call_recorded(self, args, nargsf, kwnames) : forward(self, args, nargsf, kwnames);
}

static PyObject *call_plain_annotated(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const profiled *self = (profiled *)op;
    if (!is_recording(self)) return forward(self, args, nargsf, kwnames);
    sp_call call = {.region = self->region};
    call.note = sp_call_note(self->annotate, self->name, args, nargsf, kwnames);
    if (call.note == NULL) return NULL;
    sp_call_enter(&call);
    PyObject *result = forward(self, args, nargsf, kwnames);
    sp_call_exit(&call, result == NULL);
    Py_XDECREF(call.note);
    return result;
}

/* A call made while nothing records returns the user's own object. */
static PyObject *call_body(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const profiled *self = (profiled *)op;
    if (!is_recording(self)) return forward(self, args, nargsf, kwnames);
    PyObject *note = NULL;
    if (self->annotate) {
        note = sp_call_note(self->annotate, self->name, args, nargsf, kwnames);
        if (note == NULL) return NULL;
    }
    PyObject *body = forward(self, args, nargsf, kwnames);
    if (body == NULL) {
        Py_XDECREF(note);
        return NULL;
    }
    return sp_body_wrap(body, self->region, NULL, note, (sp_trace_mode)self->trace);
}

static PyObject *call_uncertain(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const profiled *self = (profiled *)op;
    if (!is_recording(self)) return forward(self, args, nargsf, kwnames);
    sp_call call = {.region = self->region};
    if (self->annotate) {
        call.note = sp_call_note(self->annotate, self->name, args, nargsf, kwnames);
        if (call.note == NULL) return NULL;
    }
    sp_call_enter(&call);
    const sp_trace_mode before = self->trace ? sp_call_trace(self->region, (sp_trace_mode)self->trace) : SP_TRACE_DEFAULT;
    PyObject *result = forward(self, args, nargsf, kwnames);
    if (self->trace) sp_trace_mode_set(before);
    if (result && call.open.slot) {
        /* Taken over by the body that was returned, if it is one. */
        PyObject *wrapped = sp_body_wrap(Py_NewRef(result), self->region, &call.open, Py_XNewRef(call.note), (sp_trace_mode)self->trace);
        Py_SETREF(result, wrapped);
    }
    if (call.open.slot) sp_call_exit(&call, result == NULL);
    Py_XDECREF(call.note);
    return result;
}

/* What the call says about tracing is in force as long as it lasts. */
static PyObject *call_plain_traced(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const profiled *self = (profiled *)op;
    if (!is_recording(self)) return forward(self, args, nargsf, kwnames);
    const sp_trace_mode before = sp_call_trace(self->region, (sp_trace_mode)self->trace);
    PyObject *result = self->annotate ? call_plain_annotated(op, args, nargsf, kwnames) : call_plain(op, args, nargsf, kwnames);
    sp_trace_mode_set(before);
    return result;
}

static vectorcallfunc call_of_kind(const profiled *self)
{
    switch ((call_kind)self->kind) {
    case CALL_BODY: return call_body;
    case CALL_UNCERTAIN: return call_uncertain;
    default: return self->trace ? call_plain_traced : self->annotate ? call_plain_annotated : call_plain;
    }
}

/* ---- what is wrapped --------------------------------------------------------------------------------------------------------- */

static PyObject *partial_type, *cached_property_type, *partialmethod_type, *singledispatchmethod_type;

static inline bool is_profiled(PyObject *object)
{
    return Py_IS_TYPE(object, function_type) || Py_IS_TYPE(object, callable_type) || Py_IS_TYPE(object, descriptor_type);
}

/* Exactly or by subclass; __class__ is not asked, since a profiled partial answers for a partial. */
static bool is_a(PyObject *object, PyObject *type)
{
    return PyObject_TypeCheck(object, (PyTypeObject *)type);
}

/* An attribute or NULL without an exception, however the look-up failed. */
static PyObject *quiet_attribute(PyObject *object, const char *name)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    if (value == NULL) PyErr_Clear();
    return value;
}

#define BODY_FLAGS (CO_COROUTINE | CO_GENERATOR | CO_ASYNC_GENERATOR)

static bool code_makes_body(PyObject *callable)
{
    PyObject *code = quiet_attribute(callable, "__code__");
    const bool is = code && PyCode_Check(code) && ((PyCodeObject *)code)->co_flags & BODY_FLAGS;
    Py_XDECREF(code);
    return is;
}

/* inspect.markcoroutinefunction and its forerunner in asyncio. */
static const char *const coroutine_marks[] = {"_is_coroutine_mark", "_is_coroutine_marker", "_is_coroutine"};

static bool is_marked(PyObject *callable)
{
    for (size_t i = 0; i < sizeof coroutine_marks / sizeof *coroutine_marks; i++) {
        PyObject *mark = quiet_attribute(callable, coroutine_marks[i]);
        Py_XDECREF(mark);
        if (mark) return true;
    }
    return false;
}

static call_kind kind_of(PyObject *callable)
{
    if (is_profiled(callable)) return (call_kind)((profiled *)callable)->kind;
    if (PyFunction_Check(callable)) {
        if (code_makes_body(callable)) return CALL_BODY;
        return is_marked(callable) ? CALL_UNCERTAIN : CALL_PLAIN;
    }
    if (PyMethod_Check(callable)) return kind_of(PyMethod_GET_FUNCTION(callable));
    if (PyType_Check(callable) || PyCFunction_Check(callable)) return CALL_PLAIN;
    if (is_a(callable, partial_type)) {
        PyObject *inner = quiet_attribute(callable, "func");
        const call_kind kind = inner ? kind_of(inner) : CALL_PLAIN;
        Py_XDECREF(inner);
        return kind;
    }
    if (code_makes_body(callable) || is_marked(callable)) return CALL_UNCERTAIN;
    PyObject *call = quiet_attribute((PyObject *)Py_TYPE(callable), "__call__");
    const call_kind kind = call && (PyFunction_Check(call) || is_profiled(call)) ? kind_of(call) : CALL_PLAIN;
    Py_XDECREF(call);
    return kind;
}

/* The name of a region that was given none: __name__, of the function below partial objects, else the type's. */
static PyObject *default_name(PyObject *callable)
{
    PyObject *name = quiet_attribute(callable, "__name__");
    if (name && PyUnicode_Check(name)) return name;
    Py_XDECREF(name);
    if (is_a(callable, partial_type)) {
        PyObject *inner = PyObject_GetAttrString(callable, "func");
        if (inner == NULL) return NULL;
        name = default_name(inner);
        Py_DECREF(inner);
        return name;
    }
    return PyObject_GetAttrString((PyObject *)Py_TYPE(callable), "__name__");
}

/* The code object behind all wrapping, or NULL without an exception. */
static PyObject *code_behind(PyObject *callable)
{
    PyObject *at = Py_NewRef(callable);
    for (int depth = 0; depth < 100; depth++) {
        PyObject *next = quiet_attribute(at, "__wrapped__");
        if (next == NULL && is_a(at, partial_type)) next = quiet_attribute(at, "func");
        if (next == NULL) break;
        Py_SETREF(at, next);
    }
    PyObject *code = quiet_attribute(at, "__code__");
    Py_DECREF(at);
    if (code && !PyCode_Check(code)) Py_CLEAR(code);
    return code;
}

/* ---- wrapping ----------------------------------------------------------------------------------------------------------------- */

static bool binds_as_method(PyObject *callable)
{
    return PyType_HasFeature(Py_TYPE(callable), Py_TPFLAGS_METHOD_DESCRIPTOR);
}

/* functools.wraps: a copy of __dict__, with __wrapped__ in it. State of a callable object is not copied, it is read there. */
static PyObject *initial_dict(PyObject *callable)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL) return NULL;
    if (binds_as_method(callable)) {
        PyObject *attributes = quiet_attribute(callable, "__dict__");
        const int failed = attributes && PyDict_Check(attributes) ? PyDict_Update(dict, attributes) : 0;
        Py_XDECREF(attributes);
        if (failed < 0) goto failed;
    }
    if (PyDict_SetItemString(dict, "__wrapped__", callable) < 0) goto failed;
    return dict;
failed:
    Py_DECREF(dict);
    return NULL;
}

/* A profiled callable around `callable`, for a region that exists. */
static PyObject *profiled_new(PyObject *callable, sp_region_object *region, PyObject *name, PyObject *annotate, uint8_t trace)
{
    PyObject *dict = initial_dict(callable);
    if (dict == NULL) return NULL;
    PyTypeObject *type = binds_as_method(callable) ? function_type
        : Py_TYPE(callable)->tp_descr_get ? descriptor_type : callable_type;
    profiled *self = (profiled *)type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_DECREF(dict);
        return NULL;
    }
    self->kind = (uint8_t)kind_of(callable);
    self->trace = trace;
    self->function = Py_NewRef(callable);
    self->region = (sp_region_object *)Py_NewRef((PyObject *)region);
    self->name = Py_NewRef(name);
    self->annotate = Py_XNewRef(annotate);
    self->dict = dict;
    self->vectorcall = call_of_kind(self);
    return (PyObject *)self;
}

typedef struct wrapping {
    PyObject *recorder, *name, *tags, *annotate;
    uint8_t trace;
} wrapping;

static PyObject *wrap(const wrapping *how, PyObject *target);

static PyObject *wrap_callable(const wrapping *how, PyObject *callable)
{
    PyObject *result = NULL, *region = NULL;
    PyObject *name = how->name ? Py_NewRef(how->name) : default_name(callable);
    if (name == NULL) return NULL;
    PyObject *code = code_behind(callable);
    region = sp_recorder_region(how->recorder, name, how->tags, code ? ((PyCodeObject *)code)->co_filename : NULL,
                                code ? ((PyCodeObject *)code)->co_firstlineno : -1, NULL);
    if (region == NULL) goto done;
    if (code) sp_function_tracer_skip(code, (sp_recorder_object *)how->recorder);
    result = profiled_new(callable, (sp_region_object *)region, name, how->annotate, how->trace);
done:
    Py_XDECREF(region);
    Py_XDECREF(code);
    Py_DECREF(name);
    return result;
}

/* type(target)(wrap(target.<attribute>)): staticmethod, classmethod, cached_property. */
static PyObject *wrap_inside(const wrapping *how, PyObject *target, const char *attribute)
{
    PyObject *inner = PyObject_GetAttrString(target, attribute);
    if (inner == NULL) return NULL;
    PyObject *wrapped = wrap(how, inner);
    Py_DECREF(inner);
    if (wrapped == NULL) return NULL;
    PyObject *result = PyObject_CallOneArg((PyObject *)Py_TYPE(target), wrapped);
    Py_DECREF(wrapped);
    return result;
}

/* A property like it whose getter is profiled. */
static PyObject *wrap_property(const wrapping *how, PyObject *target)
{
    PyObject *get = PyObject_GetAttrString(target, "fget");
    if (get == NULL) return NULL;
    PyObject *result = NULL;
    PyObject *wrapped = get == Py_None ? NULL : wrap(how, get);
    if (get == Py_None) PyErr_SetString(PyExc_TypeError, "this property has no getter to profile");
    if (wrapped) result = PyObject_CallMethod(target, "getter", "O", wrapped);
    Py_XDECREF(wrapped);
    Py_DECREF(get);
    return result;
}

static PyObject *wrap_cached_property(const wrapping *how, PyObject *target)
{
    PyObject *result = wrap_inside(how, target, "func");
    PyObject *name = result ? quiet_attribute(target, "attrname") : NULL;
    if (name && PyObject_SetAttrString(result, "attrname", name) < 0) Py_CLEAR(result);
    Py_XDECREF(name);
    return result;
}

static PyObject *wrap_partialmethod(const wrapping *how, PyObject *target)
{
    PyObject *result = NULL, *wrapped = NULL, *all = NULL, *first = NULL;
    PyObject *inner = PyObject_GetAttrString(target, "func");
    PyObject *args = PyObject_GetAttrString(target, "args");
    PyObject *keywords = PyObject_GetAttrString(target, "keywords");
    if (inner && args && keywords) wrapped = wrap(how, inner);
    if (wrapped) first = PyTuple_Pack(1, wrapped);
    if (first) all = PySequence_Concat(first, args);
    if (all) result = PyObject_Call((PyObject *)Py_TYPE(target), all, keywords);
    Py_XDECREF(all);
    Py_XDECREF(first);
    Py_XDECREF(wrapped);
    Py_XDECREF(keywords);
    Py_XDECREF(args);
    Py_XDECREF(inner);
    return result;
}

/* The method of a class's own that makes or fills an instance; NULL, maybe with an exception: it has none. */
static PyObject *own_constructor(PyObject *target, const char **name)
{
    static const char *const names[] = {"__init__", "__new__"};
    PyObject *method = NULL, *dict = PyObject_GetAttrString(target, "__dict__");
    for (size_t i = 0; dict && method == NULL && i < sizeof names / sizeof *names; i++) {
        *name = names[i];
        method = PyMapping_GetItemString(dict, names[i]);
        if (method == NULL && !PyErr_ExceptionMatches(PyExc_KeyError)) break;
        if (method == NULL) PyErr_Clear();
    }
    Py_XDECREF(dict);
    return method;
}

/*
 * Nothing that stands for a class is one: pickle, except clauses, match and class attributes want the class itself. So that is
 * the result, with its __init__ (or __new__) profiled. One that inherits both gets none of its own: dataclass, or a second base of
 * a subclass, would then no longer bring theirs.
 */
static PyObject *wrap_class(const wrapping *how, PyObject *target)
{
    PyTypeObject *type = (PyTypeObject *)target;
    const char *name = NULL;
    PyObject *result = NULL, *wrapped = NULL;
    PyObject *method = PyType_HasFeature(type, Py_TPFLAGS_IMMUTABLETYPE) ? NULL : own_constructor(target, &name);
    if (method == NULL && PyErr_Occurred()) return NULL;
    if (method == NULL) {
        PyErr_Format(PyExc_TypeError,
                     "the class %.200s has no __init__ or __new__ of its own that could be profiled; a decorator that makes one goes below",
                     type->tp_name);
        return NULL;
    }
    wrapping named = *how;
    named.name = how->name ? Py_NewRef(how->name) : default_name(target);
    if (named.name) wrapped = wrap(&named, method);
    if (wrapped && PyObject_SetAttrString(target, name, wrapped) == 0) result = Py_NewRef(target);
    Py_XDECREF(wrapped);
    Py_XDECREF(named.name);
    Py_DECREF(method);
    return result;
}

/* The result has the kind of the target: descriptors are rebuilt around a profiled function. */
static PyObject *wrap(const wrapping *how, PyObject *target)
{
    if (is_a(target, (PyObject *)&PyStaticMethod_Type) || is_a(target, (PyObject *)&PyClassMethod_Type)) {
        return wrap_inside(how, target, "__func__");
    }
    if (is_a(target, (PyObject *)&PyProperty_Type)) return wrap_property(how, target);
    if (is_a(target, cached_property_type)) return wrap_cached_property(how, target);
    if (is_a(target, partialmethod_type)) return wrap_partialmethod(how, target);
    if (is_a(target, singledispatchmethod_type)) {
        PyErr_SetString(PyExc_TypeError, "a singledispatchmethod cannot be profiled: profile the functions registered with it");
        return NULL;
    }
    if (PyType_Check(target)) return wrap_class(how, target);
    if (!PyCallable_Check(target)) {
        PyErr_Format(PyExc_TypeError, "only callables, properties and methods can be profiled, not %.200s", Py_TYPE(target)->tp_name);
        return NULL;
    }
    return wrap_callable(how, target);
}

static PyObject *core_wrap(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"recorder", "function", "name", "tags", "annotate", "recursive", NULL};
    wrapping how = {NULL, Py_None, Py_None, Py_None, SP_TRACE_DEFAULT};
    PyObject *function, *recursive = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|OOOO:wrap", names, sp_recorder_type, &how.recorder, &function,
                                     &how.name, &how.tags, &how.annotate, &recursive)) {
        return NULL;
    }
    if (how.name == Py_None) how.name = NULL;
    if (how.annotate == Py_None) how.annotate = NULL;
    const int traced = recursive == Py_None ? 0 : PyObject_IsTrue(recursive);
    if (traced < 0) return NULL;
    if (recursive != Py_None) how.trace = traced ? SP_TRACE_ON : SP_TRACE_OFF;
    return wrap(&how, function);
}

/* ---- standing for the function ----------------------------------------------------------------------------------------------------- */

/* What functools.wraps copies: these are the wrapped object's until they are set here. */
static const char *const copied_names[] = {
    "__module__", "__name__", "__qualname__", "__doc__", "__annotations__", "__annotate__", "__type_params__"};
/* What a function is called with, and tools read from it: these are the wrapped object's, both ways. */
static const char *const shared_names[] = {
    "__code__", "__defaults__", "__kwdefaults__", "__closure__", "__globals__", "__builtins__"};
static PyObject *copied, *shared, *marks; /* frozensets */

static PyObject *profiled_getattro(PyObject *op, PyObject *name)
{
    profiled *self = (profiled *)op;
    const int is_copied = PySet_Contains(copied, name);
    if (is_copied < 0) return NULL;
    if (is_copied) {
        PyObject *value = self->overrides ? PyDict_GetItemWithError(self->overrides, name) : NULL;
        if (value) return Py_NewRef(value);
        return PyErr_Occurred() ? NULL : PyObject_GetAttr(self->function, name);
    }
    PyObject *value = PyObject_GenericGetAttr(op, name);
    if (value || !PyErr_ExceptionMatches(PyExc_AttributeError)) return value;
    PyErr_Clear();
    return PyObject_GetAttr(self->function, name);
}

static int override(profiled *self, PyObject *name, PyObject *value)
{
    if (value && !PyUnicode_Check(value) &&
        (PyUnicode_CompareWithASCIIString(name, "__name__") == 0 || PyUnicode_CompareWithASCIIString(name, "__qualname__") == 0)) {
        PyErr_Format(PyExc_TypeError, "%U must be set to a string object", name);
        return -1;
    }
    if (value == NULL) return PyObject_SetAttr(self->function, name, NULL);
    if (self->overrides == NULL && (self->overrides = PyDict_New()) == NULL) return -1;
    return PyDict_SetItem(self->overrides, name, value);
}

static int profiled_setattro(PyObject *op, PyObject *name, PyObject *value)
{
    profiled *self = (profiled *)op;
    const int is_copied = PySet_Contains(copied, name);
    if (is_copied) return is_copied < 0 ? -1 : override(self, name, value);
    const int is_shared = PySet_Contains(shared, name);
    if (is_shared < 0) return -1;
    if (is_shared) {
        if (PyObject_SetAttr(self->function, name, value) < 0) return -1;
        self->kind = (uint8_t)kind_of(self->function);
        self->vectorcall = call_of_kind(self);
        return 0;
    }
    if (PyObject_GenericSetAttr(op, name, value) < 0) return -1;
    if (self->vectorcall != call_body && PySet_Contains(marks, name) > 0) {
        self->kind = (uint8_t)(value ? CALL_UNCERTAIN : kind_of(self->function));
        self->vectorcall = call_of_kind(self);
    }
    return 0;
}

static PyObject *function_get(PyObject *op, PyObject *object, PyObject *type)
{
    if (object == NULL || object == Py_None) return Py_NewRef(op);
    return PyMethod_New(op, object);
}

/* As the wrapped object binds: to something of its own, which is profiled in turn. */
static PyObject *descriptor_get(PyObject *op, PyObject *object, PyObject *type)
{
    profiled *self = (profiled *)op;
    PyObject *bound = Py_TYPE(self->function)->tp_descr_get(self->function, object, type);
    if (bound == NULL || bound == self->function || !PyCallable_Check(bound)) {
        if (bound != self->function) return bound;
        Py_DECREF(bound);
        return Py_NewRef(op);
    }
    PyObject *result = profiled_new(bound, self->region, self->name, self->annotate, self->trace);
    Py_DECREF(bound);
    return result;
}

static PyObject *profiled_repr(PyObject *op)
{
    return PyUnicode_FromFormat("<profiled %R>", ((profiled *)op)->function);
}

/* By its qualified name, as a function is; a callable without one by what it wraps. */
static PyObject *profiled_reduce(PyObject *op, PyObject *Py_UNUSED(unused))
{
    PyObject *name = PyObject_GetAttrString(op, "__qualname__");
    if (name) return name;
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return NULL;
    PyErr_Clear();
    return PyObject_CallMethod(((profiled *)op)->function, "__reduce_ex__", "i", 2);
}

static PyObject *profiled_copy(PyObject *op, PyObject *unused)
{
    return Py_NewRef(op);
}

/* What type() makes of a plain function of this name in a class body; NULL: nothing. */
static PyObject *implicit_kind(PyObject *name)
{
    if (PyUnicode_CompareWithASCIIString(name, "__new__") == 0) return (PyObject *)&PyStaticMethod_Type;
    if (PyUnicode_CompareWithASCIIString(name, "__init_subclass__") == 0 ||
        PyUnicode_CompareWithASCIIString(name, "__class_getitem__") == 0) {
        return (PyObject *)&PyClassMethod_Type;
    }
    return NULL;
}

/* type() looks for functions alone, so what stands for one does it when the class is made. Other objects are told as they would be. */
static PyObject *profiled_set_name(PyObject *op, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyType_Check(args[0]) || !PyUnicode_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "__set_name__() takes a class and a name");
        return NULL;
    }
    PyObject *owner = args[0], *name = args[1], *function = op;
    while (is_profiled(function)) function = ((profiled *)function)->function;
    if (!PyFunction_Check(function)) {
        PyObject *method = quiet_attribute((PyObject *)Py_TYPE(function), "__set_name__");
        if (method == NULL) Py_RETURN_NONE;
        PyObject *result = PyObject_CallFunctionObjArgs(method, function, owner, name, NULL);
        Py_DECREF(method);
        return result;
    }
    PyObject *kind = implicit_kind(name);
    if (kind == NULL) Py_RETURN_NONE;
    PyObject *method = PyObject_CallOneArg(kind, op);
    const int failed = method ? PyType_Type.tp_setattro(owner, name, method) : -1;
    Py_XDECREF(method);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

static PyObject *profiled_dir(PyObject *op, PyObject *unused)
{
    PyObject *names = PyObject_Dir(((profiled *)op)->function);
    PyObject *own = names ? PyDict_Keys(((profiled *)op)->dict) : NULL;
    PyObject *all = own ? PySequence_InPlaceConcat(names, own) : NULL;
    PyObject *unique = all ? PySet_New(all) : NULL;
    Py_XDECREF(all);
    Py_XDECREF(own);
    Py_XDECREF(names);
    return unique;
}

/* isinstance() takes it for what it wraps. */
static PyObject *profiled_class(PyObject *op, void *unused)
{
    return PyObject_GetAttrString(((profiled *)op)->function, "__class__");
}

static int profiled_traverse(PyObject *op, visitproc visit, void *arg)
{
    profiled *self = (profiled *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT((PyObject *)self->region);
    Py_VISIT(self->function);
    Py_VISIT(self->annotate);
    Py_VISIT(self->dict);
    Py_VISIT(self->overrides);
    return 0;
}

/* The function and the region stay: a call may come while a cycle is taken apart. Others in the cycle break it. */
static int profiled_clear(PyObject *op)
{
    profiled *self = (profiled *)op;
    Py_CLEAR(self->dict);
    Py_CLEAR(self->overrides);
    return 0;
}

static void profiled_dealloc(PyObject *op)
{
    profiled *self = (profiled *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    if (self->weakrefs) PyObject_ClearWeakRefs(op);
    profiled_clear(op);
    Py_CLEAR(self->annotate);
    Py_CLEAR(self->function);
    Py_CLEAR(self->region);
    Py_CLEAR(self->name);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMethodDef profiled_methods[] = {
    {"__reduce__", profiled_reduce, METH_NOARGS, NULL},
    {"__copy__", profiled_copy, METH_NOARGS, NULL},
    {"__deepcopy__", profiled_copy, METH_O, NULL},
    {"__set_name__", (PyCFunction)(void (*)(void))profiled_set_name, METH_FASTCALL, NULL},
    {"__dir__", profiled_dir, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef profiled_attributes[] = {
    {"__class__", profiled_class, NULL, NULL, NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef profiled_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(profiled, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(profiled, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(profiled, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

#define COMMON_SLOTS                                                                    \
    {Py_tp_doc, "Records each call of the function, method or callable it wraps."},     \
    {Py_tp_call, PyVectorcall_Call},                                                    \
    {Py_tp_dealloc, profiled_dealloc},                                                  \
    {Py_tp_traverse, profiled_traverse},                                                \
    {Py_tp_clear, profiled_clear},                                                      \
    {Py_tp_repr, profiled_repr},                                                        \
    {Py_tp_getattro, profiled_getattro},                                                \
    {Py_tp_setattro, profiled_setattro},                                                \
    {Py_tp_methods, profiled_methods},                                                  \
    {Py_tp_getset, profiled_attributes},                                                \
    {Py_tp_members, profiled_members}

static PyType_Slot function_slots[] = {
    COMMON_SLOTS,
    {Py_tp_descr_get, function_get},
    {0, NULL},
};

static PyType_Slot descriptor_slots[] = {
    COMMON_SLOTS,
    {Py_tp_descr_get, descriptor_get},
    {0, NULL},
};

static PyType_Slot callable_slots[] = {
    COMMON_SLOTS,
    {0, NULL},
};

#define TYPE_FLAGS                                                                                                    \
    (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION |        \
     Py_TPFLAGS_IMMUTABLETYPE)

static PyType_Spec function_spec = {
    "scope_profiler._core.ProfiledFunction", sizeof(profiled), 0, TYPE_FLAGS | Py_TPFLAGS_METHOD_DESCRIPTOR, function_slots};
static PyType_Spec descriptor_spec = {
    "scope_profiler._core.ProfiledDescriptor", sizeof(profiled), 0, TYPE_FLAGS, descriptor_slots};
static PyType_Spec callable_spec = {
    "scope_profiler._core.ProfiledCallable", sizeof(profiled), 0, TYPE_FLAGS, callable_slots};

static PyMethodDef module_functions[] = {
    {"wrap", (PyCFunction)(void (*)(void))core_wrap, METH_VARARGS | METH_KEYWORDS,
     "wrap(recorder, function, name=None, tags=None, annotate=None, recursive=None)\n--\n\n"
     "``function`` as a profiled callable of its own kind. recursive: whether functions that it calls are traced, whatever the run says."},
    {NULL, NULL, 0, NULL},
};

static PyObject *frozen_names(const char *const *names, size_t count)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *name = PyUnicode_InternFromString(names[i]);
        if (name == NULL || PyList_Append(list, name) < 0) Py_CLEAR(list);
        Py_XDECREF(name);
    }
    PyObject *set = list ? PyFrozenSet_New(list) : NULL;
    Py_XDECREF(list);
    return set;
}

#define FROZEN_NAMES(names) frozen_names(names, sizeof names / sizeof *names)

static int find_functools(void)
{
    PyObject *functools = PyImport_ImportModule("functools");
    if (functools == NULL) return -1;
    partial_type = PyObject_GetAttrString(functools, "partial");
    cached_property_type = PyObject_GetAttrString(functools, "cached_property");
    partialmethod_type = PyObject_GetAttrString(functools, "partialmethod");
    singledispatchmethod_type = PyObject_GetAttrString(functools, "singledispatchmethod");
    Py_DECREF(functools);
    return partial_type && cached_property_type && partialmethod_type && singledispatchmethod_type ? 0 : -1;
}

int sp_python_add_decorator(PyObject *module)
{
    copied = FROZEN_NAMES(copied_names);
    shared = FROZEN_NAMES(shared_names);
    marks = FROZEN_NAMES(coroutine_marks);
    if (copied == NULL || shared == NULL || marks == NULL || find_functools() < 0) return -1;
    function_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &function_spec, NULL);
    descriptor_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &descriptor_spec, NULL);
    callable_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &callable_spec, NULL);
    if (function_type == NULL || descriptor_type == NULL || callable_type == NULL) return -1;
    if (PyModule_AddType(module, function_type) < 0 || PyModule_AddType(module, descriptor_type) < 0 ||
        PyModule_AddType(module, callable_type) < 0) {
        return -1;
    }
    return PyModule_AddFunctions(module, module_functions);
}
