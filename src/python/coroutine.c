/* coroutine.c - see coroutine.h. */
#include "python/coroutine.h"

#include "python/recorder.h"

#include <structmember.h>

/* ---- the call ---------------------------------------------------------------------------------------------------------- */

PyObject *sp_call_note(PyObject *annotate, PyObject *name, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    /* The place before args is our caller's, who will use it again. */
    PyObject *finish = PyObject_Vectorcall(annotate, args, (size_t)PyVectorcall_NARGS(nargsf), kwnames);
    PyObject *note = finish ? PyTuple_Pack(2, finish, name) : NULL;
    Py_XDECREF(finish);
    return note;
}

sp_trace_mode sp_call_trace(const sp_region_object *region, sp_trace_mode trace)
{
    if (trace == SP_TRACE_ON && atomic_load_explicit(&region->gate->token, memory_order_relaxed) != 0) {
        const sp_pending pending = sp_pending_take();
        if (sp_recorder_trace_inside(region->recorder) < 0) PyErr_WriteUnraisable(region->name);
        sp_pending_restore(pending);
    }
    return sp_trace_mode_set(trace);
}

/* Whether the pending exception is how a body of any kind returns. */
static bool is_return(void)
{
    return PyErr_ExceptionMatches(PyExc_StopIteration) || PyErr_ExceptionMatches(PyExc_StopAsyncIteration);
}

static void report(PyObject *note, int64_t lane, sp_ticks start, sp_ticks end, bool raised)
{
    PyObject *exception = raised && !is_return() ? sp_pending_exception() : NULL;
    const sp_pending pending = sp_pending_take();
    PyObject *finish = PyTuple_GET_ITEM(note, 0);
    PyObject *answer = PyObject_CallFunction(finish, "OLKKO", PyTuple_GET_ITEM(note, 1), (long long)lane,
                                             (unsigned long long)start, (unsigned long long)end,
                                             exception ? exception : Py_None);
    if (answer == NULL) PyErr_WriteUnraisable(finish);
    Py_XDECREF(answer);
    Py_XDECREF(exception);
    sp_pending_restore(pending);
}

void sp_call_exit(sp_call *call, bool raised)
{
    if (call->open.slot == NULL) return;
    if (SP_LIKELY(call->note == NULL)) {
        sp_region_exit(&call->open);
        return;
    }
    /* All that is reported is read before the exit gives the slot away. */
    const sp_slot *slot = call->open.slot;
    const sp_ticks start = atomic_load_explicit(&slot->start, memory_order_relaxed);
    const int64_t lane = slot->task != SP_NO_TASK ? slot->task : -2 - (int64_t)call->open.log->row->index;
    PyObject *note = call->note;
    call->note = NULL;
    sp_region_exit(&call->open);
    report(note, lane, start, sp_clock_read(), raised);
    Py_DECREF(note);
}

static int call_traverse(const sp_call *call, visitproc visit, void *arg)
{
    Py_VISIT((PyObject *)call->region);
    Py_VISIT(call->note);
    return 0;
}

static void call_drop(sp_call *call)
{
    sp_call_exit(call, false);
    Py_CLEAR(call->region);
    Py_CLEAR(call->note);
}

/* ---- coroutines and generators --------------------------------------------------------------------------------------------- */

typedef struct body {
    sp_delegate base;
    sp_call call;
    sp_trace_mode before; /* of the thread, during a step */
} body;

_Static_assert(sizeof(body) <= SP_DELEGATE_SIZE, "a body fits a delegate");

/* Once a body, or where functions are traced; inside of the functions below it would cost every step the registers that it needs. */
static __attribute__((noinline)) void enter_rarely(body *self, bool first)
{
    sp_call *call = &self->call;
    if (first) sp_call_enter(call);
    if (call->trace != SP_TRACE_DEFAULT) self->before = sp_call_trace(call->region, call->trace);
}

static void body_enter(sp_delegate *self, bool first)
{
    if (SP_UNLIKELY(first || ((body *)self)->call.trace != SP_TRACE_DEFAULT)) enter_rarely((body *)self, first);
}

static __attribute__((noinline)) void leave_rarely(body *self, sp_outcome outcome)
{
    if (self->call.trace != SP_TRACE_DEFAULT) sp_trace_mode_set(self->before);
    if (outcome != SP_SUSPENDED) sp_call_exit(&self->call, outcome == SP_RAISED);
}

static void body_leave(sp_delegate *self, sp_outcome outcome)
{
    const bool rare = outcome != SP_SUSPENDED || ((body *)self)->call.trace != SP_TRACE_DEFAULT;
    if (SP_UNLIKELY(rare)) leave_rarely((body *)self, outcome);
}

static void body_drop(sp_delegate *self)
{
    call_drop(&((body *)self)->call);
}

static int body_traverse(sp_delegate *self, visitproc visit, void *arg)
{
    return call_traverse(&((body *)self)->call, visit, arg);
}

static const sp_delegate_hooks body_hooks = {body_enter, body_leave, body_drop, body_traverse};

/* ---- asynchronous generators ------------------------------------------------------------------------------------------------- */

/*
 * The hooks of sys.set_asyncgen_hooks are called with this object in place of the inner generator, so that an event loop
 * closes it through here (aclose of shutdown_asyncgens, or of its finalizer) and the end of the body is seen.
 */
typedef struct async_generator {
    PyObject_HEAD
    PyObject *inner;
    PyObject *weakrefs;
    PyObject *finalizer; /* the hook, as it was at the first iteration */
    sp_call call;
    bool hooked;         /* the hooks were read */
    bool inner_hooked;   /* and the inner generator read none */
    bool closed;         /* aclose() began */
    _Atomic(bool) started, ended;
} async_generator;

/* One awaitable of it: what __anext__, asend, athrow and aclose return. */
typedef struct step {
    sp_delegate base;
    async_generator *generator; /* owned */
    bool starts;                /* asend(None): starts a body that has not started */
    bool yields;                /* a StopIteration of it carries a yielded value: the body goes on */
    bool closes;
    sp_trace_mode before; /* of the thread, during a step */
} step;

_Static_assert(sizeof(step) <= SP_DELEGATE_SIZE, "a step fits a delegate");

static PyTypeObject *async_generator_type;
static PyObject *asend_name, *athrow_name, *aclose_name, *ag_frame_name;

static void step_enter(sp_delegate *op, bool first)
{
    step *self = (step *)op;
    async_generator *generator = self->generator;
    const sp_call *call = &generator->call;
    if (call->trace != SP_TRACE_DEFAULT) self->before = sp_call_trace(call->region, call->trace);
    if (self->closes) generator->closed = true;
    if (!first || !self->starts || atomic_load_explicit(&generator->ended, memory_order_relaxed)) return;
    if (!atomic_exchange_explicit(&generator->started, true, memory_order_relaxed)) sp_call_enter(&generator->call);
}

static void step_leave(sp_delegate *op, sp_outcome outcome)
{
    step *self = (step *)op;
    async_generator *generator = self->generator;
    if (generator->call.trace != SP_TRACE_DEFAULT) sp_trace_mode_set(self->before);
    if (outcome == SP_SUSPENDED) return;
    const bool started = atomic_load_explicit(&generator->started, memory_order_relaxed);
    /* A StopIteration thrown into a body that has not started comes back as it is, and is no yielded value. */
    if (outcome == SP_RETURNED && self->yields && started) return;
    self->starts = false; /* an awaitable that raised refuses every further step */
    if (!sp_frame_is_gone(generator->inner, ag_frame_name)) return;
    if (atomic_exchange_explicit(&generator->ended, true, memory_order_relaxed)) return;
    sp_call_exit(&generator->call, outcome == SP_RAISED);
}

static void step_drop(sp_delegate *op)
{
    Py_CLEAR(((step *)op)->generator);
}

static int step_traverse(sp_delegate *op, visitproc visit, void *arg)
{
    Py_VISIT((PyObject *)((step *)op)->generator);
    return 0;
}

static const sp_delegate_hooks step_hooks = {step_enter, step_leave, step_drop, step_traverse};

static int call_hooks(async_generator *self)
{
    if (self->hooked) return 0;
    self->hooked = true;
    PyThreadState *thread = PyThreadState_Get();
    self->finalizer = Py_XNewRef(thread->async_gen_finalizer);
    PyObject *first = Py_XNewRef(thread->async_gen_firstiter);
    if (first == NULL) return 0;
    PyObject *answer = PyObject_CallOneArg(first, (PyObject *)self);
    Py_DECREF(first);
    Py_XDECREF(answer);
    return answer ? 0 : -1;
}

/* The inner generator's awaitable, made while the thread shows it no hooks. */
static PyObject *inner_awaitable(async_generator *self, PyObject *name, PyObject *const *all, Py_ssize_t count)
{
    PyThreadState *thread = PyThreadState_Get();
    PyObject *first = thread->async_gen_firstiter;
    PyObject *finalizer = thread->async_gen_finalizer;
    const bool hide = !self->inner_hooked;
    if (hide) {
        thread->async_gen_firstiter = thread->async_gen_finalizer = NULL;
        self->inner_hooked = true;
    }
    PyObject *awaitable = name
        ? PyObject_VectorcallMethod(name, all, (size_t)count, NULL)
        : Py_TYPE(self->inner)->tp_as_async->am_anext(self->inner);
    if (hide) {
        thread->async_gen_firstiter = first;
        thread->async_gen_finalizer = finalizer;
    }
    return awaitable;
}

static step *step_new(async_generator *self, PyObject *name, PyObject *const *all, Py_ssize_t count)
{
    if (call_hooks(self) < 0) return NULL;
    PyObject *awaitable = inner_awaitable(self, name, all, count);
    if (awaitable == NULL) return NULL;
    step *new = (step *)sp_delegate_new(SP_DELEGATE_STEP, awaitable, &step_hooks);
    Py_DECREF(awaitable);
    if (new == NULL) return NULL;
    new->generator = (async_generator *)Py_NewRef((PyObject *)self);
    new->yields = true;
    return new;
}

static PyObject *async_generator_anext(PyObject *op)
{
    step *new = step_new((async_generator *)op, NULL, NULL, 0);
    if (new) new->starts = true;
    return (PyObject *)new;
}

static PyObject *async_generator_asend(PyObject *op, PyObject *value)
{
    async_generator *self = (async_generator *)op;
    PyObject *const all[] = {self->inner, value};
    step *new = step_new(self, asend_name, all, 2);
    if (new) new->starts = value == Py_None;
    return (PyObject *)new;
}

static PyObject *async_generator_athrow(PyObject *op, PyObject *const *args, Py_ssize_t count)
{
    async_generator *self = (async_generator *)op;
    if (count > 3) return PyErr_Format(PyExc_TypeError, "athrow expected at most 3 arguments, got %zd", count);
    PyObject *all[4] = {self->inner};
    for (Py_ssize_t i = 0; i < count; i++) all[i + 1] = args[i];
    return (PyObject *)step_new(self, athrow_name, all, count + 1);
}

static PyObject *async_generator_aclose(PyObject *op, PyObject *Py_UNUSED(unused))
{
    async_generator *self = (async_generator *)op;
    step *new = step_new(self, aclose_name, &self->inner, 1);
    if (new) {
        new->yields = false;
        new->closes = true;
    }
    return (PyObject *)new;
}

/* As for any asynchronous generator that dies suspended: its event loop gets it, to close it. */
static void async_generator_finalize(PyObject *op)
{
    async_generator *self = (async_generator *)op;
    if (self->finalizer == NULL || self->closed || sp_frame_is_gone(self->inner, ag_frame_name)) return;
    const sp_pending pending = sp_pending_take();
    PyObject *answer = PyObject_CallOneArg(self->finalizer, op);
    if (answer == NULL) PyErr_WriteUnraisable(op);
    Py_XDECREF(answer);
    sp_pending_restore(pending);
}

static int async_generator_traverse(PyObject *op, visitproc visit, void *arg)
{
    async_generator *self = (async_generator *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->inner);
    Py_VISIT(self->finalizer);
    return call_traverse(&self->call, visit, arg);
}

static void async_generator_dealloc(PyObject *op)
{
    async_generator *self = (async_generator *)op;
    PyTypeObject *type = Py_TYPE(op);
    if (self->weakrefs) PyObject_ClearWeakRefs(op);
    if (PyObject_CallFinalizerFromDealloc(op) < 0) return; /* the loop holds it now */
    PyObject_GC_UnTrack(op);
    Py_CLEAR(self->finalizer);
    Py_CLEAR(self->inner); /* without a loop the body ends here */
    call_drop(&self->call);
    PyObject_GC_Del(op);
    Py_DECREF(type);
}

static PyObject *async_generator_repr(PyObject *op)
{
    return PyObject_Repr(((async_generator *)op)->inner);
}

static PyObject *async_generator_get(PyObject *op, void *name)
{
    return PyObject_GetAttrString(((async_generator *)op)->inner, name);
}

static int async_generator_set(PyObject *op, PyObject *value, void *name)
{
    return PyObject_SetAttrString(((async_generator *)op)->inner, name, value);
}

static PyMethodDef async_generator_methods[] = {
    {"asend", async_generator_asend, METH_O, NULL},
    {"athrow", (PyCFunction)(void (*)(void))async_generator_athrow, METH_FASTCALL, NULL},
    {"aclose", async_generator_aclose, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

#define READ_ONLY(name) {name, async_generator_get, NULL, NULL, name}
#define READ_WRITE(name) {name, async_generator_get, async_generator_set, NULL, name}

static PyGetSetDef async_generator_attributes[] = {
    READ_ONLY("__class__"), READ_WRITE("__name__"), READ_WRITE("__qualname__"),
    READ_ONLY("ag_frame"), READ_ONLY("ag_code"), READ_ONLY("ag_await"), READ_ONLY("ag_running"),
#if PY_VERSION_HEX >= 0x030c0000
    READ_ONLY("ag_suspended"),
#endif
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef async_generator_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(async_generator, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot async_generator_slots[] = {
    {Py_tp_dealloc, async_generator_dealloc},
    {Py_tp_traverse, async_generator_traverse},
    {Py_tp_finalize, async_generator_finalize},
    {Py_tp_repr, async_generator_repr},
    {Py_am_aiter, PyObject_SelfIter},
    {Py_am_anext, async_generator_anext},
    {Py_tp_methods, async_generator_methods},
    {Py_tp_getset, async_generator_attributes},
    {Py_tp_members, async_generator_members},
    {0, NULL},
};

static PyType_Spec async_generator_spec = {
    .name = "scope_profiler._core.async_generator",
    .basicsize = sizeof(async_generator),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = async_generator_slots,
};

/* ---- making them ----------------------------------------------------------------------------------------------------------------- */

static void call_begin(sp_call *call, sp_region_object *region, sp_open *open, PyObject *note)
{
    call->region = (sp_region_object *)Py_NewRef((PyObject *)region);
    call->note = note;
    call->open.slot = NULL;
    if (open == NULL) return;
    call->open = *open;
    open->slot = NULL;
}

static PyObject *async_generator_new(PyObject *inner, sp_region_object *region, sp_open *open, PyObject *note, sp_trace_mode trace)
{
    async_generator *self = PyObject_GC_New(async_generator, async_generator_type);
    if (self == NULL) return NULL;
    memset((char *)self + sizeof(PyObject), 0, sizeof *self - sizeof(PyObject));
    self->inner = Py_NewRef(inner);
    atomic_init(&self->started, open != NULL);
    call_begin(&self->call, region, open, note);
    self->call.trace = trace;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static PyObject *body_new(PyObject *inner, sp_region_object *region, sp_open *open, PyObject *note, sp_trace_mode trace)
{
    const int kind = sp_delegate_kind_of(inner);
    if (kind < 0) {
        Py_XDECREF(note);
        return Py_NewRef(inner);
    }
    body *self = (body *)sp_delegate_new((sp_delegate_kind)kind, inner, &body_hooks);
    if (self == NULL) return NULL;
    if (open) atomic_store_explicit(&self->base.state, SP_STEP_STARTED, memory_order_relaxed);
    call_begin(&self->call, region, open, note);
    self->call.trace = trace;
    return (PyObject *)self;
}

PyObject *sp_body_wrap(PyObject *inner, sp_region_object *region, sp_open *open, PyObject *note, sp_trace_mode trace)
{
    const bool is_async_generator = PyAsyncGen_CheckExact(inner) || Py_IS_TYPE(inner, async_generator_type);
    PyObject *wrapped = is_async_generator
        ? async_generator_new(inner, region, open, note, trace) : body_new(inner, region, open, note, trace);
    if (wrapped == NULL) Py_XDECREF(note);
    Py_DECREF(inner);
    return wrapped;
}

static int intern(PyObject **name, const char *text)
{
    *name = PyUnicode_InternFromString(text);
    return *name ? 0 : -1;
}

int sp_python_add_coroutine(PyObject *module)
{
    if (sp_python_add_delegate(module) < 0 || intern(&asend_name, "asend") < 0 || intern(&athrow_name, "athrow") < 0 ||
        intern(&aclose_name, "aclose") < 0 || intern(&ag_frame_name, "ag_frame") < 0) {
        return -1;
    }
    async_generator_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &async_generator_spec, NULL);
    return async_generator_type ? 0 : -1;
}
