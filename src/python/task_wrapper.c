/* task_wrapper.c - see task_wrapper.h. */
#include "python/task_wrapper.h"

#include <string.h>
#include <structmember.h>

#include "core/registry.h"
#include "core/task.h"
#include "python/delegate.h"
#include "python/recorder.h"

static PyObject *qualname_name, *get_name_name, *get_coro_name, *done_name, *coro_keyword, *name_keyword;

/* Runs that follow tasks now: a tuple of Run, replaced as a whole. */
static PyObject *followed;

/* asyncio's own, set once it has been imported. */
static PyObject *running_loop;  /* _get_running_loop */
static PyObject *current_tasks; /* dict: loop -> task; NULL where there is none */
static PyObject *current_task;  /* current_task(loop), then */
static PyObject *registered;    /* set of weak references to the tasks that are not over; NULL where there is none */

/* Guards `followed`, `adopted` and the list of live delegates where no GIL does. Held for a few instructions. */
#ifdef Py_GIL_DISABLED
static pthread_mutex_t state_lock = PTHREAD_MUTEX_INITIALIZER;
#define LOCK() pthread_mutex_lock(&state_lock)
#define UNLOCK() pthread_mutex_unlock(&state_lock)
#else
#define LOCK() ((void)0)
#define UNLOCK() ((void)0)
#endif

static bool follows(const sp_run *run)
{
    return atomic_load_explicit(&((sp_run *)run)->follows, memory_order_acquire);
}

/* ---- names ----------------------------------------------------------------------------------------------------------------- */

/* A str as UTF-8 without NUL, in a bytes object; NULL without an exception. What cannot be stored is replaced. */
static PyObject *storable(PyObject *text)
{
    PyObject *bytes = PyUnicode_Check(text) ? PyUnicode_AsEncodedString(text, "utf-8", "replace") : NULL;
    if (bytes == NULL) {
        PyErr_Clear();
        return NULL;
    }
    char *at = PyBytes_AS_STRING(bytes);
    for (Py_ssize_t i = 0; i < PyBytes_GET_SIZE(bytes); i++) {
        if (at[i] == '\0') at[i] = '?';
    }
    return bytes;
}

/* The text of a str and its length; NULL, with an exception or without, when it has none in UTF-8. */
static const char *text_of(PyObject *name, Py_ssize_t *size)
{
    if (!PyUnicode_Check(name)) return NULL;
    if (!PyUnicode_IS_COMPACT_ASCII(name)) return PyUnicode_AsUTF8AndSize(name, size);
    *size = PyUnicode_GET_LENGTH(name);
    return PyUnicode_DATA(name);
}

/* The number of a default name; SP_NO_NUMBER: it is another. */
static uint64_t number_of(PyObject *name)
{
    Py_ssize_t size;
    uint64_t number = SP_NO_NUMBER;
    if (PyLong_CheckExact(name)) return PyLong_AsUnsignedLongLongMask(name);
    const char *text = text_of(name, &size);
    if (text == NULL) PyErr_Clear();
    else if (!sp_task_name_is_numbered(text, &number) || strlen(text) != (size_t)size) number = SP_NO_NUMBER;
    return number;
}

/* A name, or the number of a default name. */
static void store_name(sp_run *run, sp_task *row, PyObject *name)
{
    if (PyLong_CheckExact(name)) {
        sp_run_task_number(run, row, PyLong_AsUnsignedLongLongMask(name));
        return;
    }
    Py_ssize_t size;
    const char *text = text_of(name, &size);
    if (text && strlen(text) == (size_t)size) {
        sp_run_task_name(run, row, text);
    } else {
        PyErr_Clear();
        PyObject *bytes = storable(name);
        if (bytes) sp_run_task_name(run, row, PyBytes_AS_STRING(bytes));
        Py_XDECREF(bytes);
    }
}

/* asyncio's own Task and the functions behind its methods, where those are in C: tasks ask for them, and a look-up costs more. */
static PyTypeObject *plain_task;
static PyCFunction plain_get_name, plain_get_coro;
static size_t plain_name_offset; /* of the name in such a task; 0: not known */

/* NULL without an exception: it is not in C, or takes arguments. */
static PyCFunction function_behind(PyObject *type, PyObject *name)
{
    PyCFunction function = NULL;
    PyObject *method = PyObject_GetAttr(type, name);
    if (method == NULL) PyErr_Clear();
    if (method && Py_IS_TYPE(method, &PyMethodDescr_Type)) {
        const PyMethodDef *definition = ((PyMethodDescrObject *)method)->d_method;
        if (definition->ml_flags == METH_NOARGS) function = definition->ml_meth;
    }
    Py_XDECREF(method);
    return function;
}

#ifndef Py_GIL_DISABLED
/* Where `task` keeps this name; 0: nowhere, or in several places. */
static size_t find_name(PyObject *task, PyObject *name)
{
    size_t found = 0, places = 0;
    PyObject *result = PyObject_CallMethod(task, "set_name", "O", name);
    if (result == NULL) PyErr_Clear();
    for (size_t at = sizeof(PyObject); result && at + sizeof name <= (size_t)Py_TYPE(task)->tp_basicsize; at += sizeof name) {
        if (memcmp((char *)task + at, &name, sizeof name) != 0) continue;
        found = at;
        places++;
    }
    Py_XDECREF(result);
    return places == 1 ? found : 0;
}
#endif

/*
 * From 3.12 on a default name is a number until it is asked for, when it becomes a string, which takes half of the instructions of
 * a task's life. So it is read where it is kept: a task that never runs is named twice to see where that is. Where threads run at
 * once, another might replace the name meanwhile: it is asked for, there.
 */
static size_t find_name_offset(PyTypeObject *type)
{
#ifdef Py_GIL_DISABLED
    return 0;
#else
    PyObject *task = type->tp_new(type, NULL, NULL);
    PyObject *first = PyUnicode_FromString("the first name"), *second = PyUnicode_FromString("the second name");
    const size_t offset = task && first && second ? find_name(task, first) : 0;
    const bool sure = offset && find_name(task, second) == offset;
    Py_XDECREF(first);
    Py_XDECREF(second);
    Py_XDECREF(task);
    PyErr_Clear();
    return sure ? offset : 0;
#endif
}

static void find_plain_task(PyObject *type)
{
    plain_task = NULL;
    if (!PyType_Check(type)) return;
    const unsigned long flags = PyType_GetFlags((PyTypeObject *)type);
    if (!(flags & Py_TPFLAGS_IMMUTABLETYPE) && flags & Py_TPFLAGS_HEAPTYPE) return; /* its methods may be replaced */
    plain_get_name = function_behind(type, get_name_name);
    plain_get_coro = function_behind(type, get_coro_name);
    if (!plain_get_name || !plain_get_coro) return;
    plain_name_offset = find_name_offset((PyTypeObject *)type);
    plain_task = (PyTypeObject *)type; /* asyncio keeps it */
}

/* The name in a task of asyncio's own, borrowed; NULL: not known. */
static inline PyObject *plain_name(PyObject *task)
{
    PyObject *name = NULL;
    if (plain_name_offset) memcpy(&name, (char *)task + plain_name_offset, sizeof name);
    return name;
}

/* The task's name, or the number of a default name, a new reference; NULL without an exception. */
static PyObject *name_of(PyObject *task)
{
    if (!Py_IS_TYPE(task, plain_task)) {
        PyObject *name = PyObject_CallMethodNoArgs(task, get_name_name);
        if (name == NULL) PyErr_Clear();
        return name;
    }
    PyObject *name = plain_name(task);
    if (name && (PyLong_CheckExact(name) || PyUnicode_CheckExact(name))) return Py_NewRef(name);
    name = plain_get_name(task, NULL);
    if (name == NULL) PyErr_Clear();
    return name;
}

/* The task's name as it is now goes into its row. No exception is pending, before or after. */
static void read_name(sp_run *run, sp_task *row, PyObject *task)
{
    PyObject *name = name_of(task);
    if (name) store_name(run, row, name);
    Py_XDECREF(name);
}

/* What a weak reference refers to, a new reference; NULL: gone. */
static PyObject *referent(PyObject *reference)
{
#if PY_VERSION_HEX >= 0x030d0000
    PyObject *object = NULL;
    PyWeakref_GetRef(reference, &object);
    return object;
#else
    PyObject *object = PyWeakref_GetObject(reference);
    return object && object != Py_None ? Py_NewRef(object) : NULL;
#endif
}

/*
 * An eager task can be over before its maker has named it: asyncio.create_task does so after the loop's create_task. Those
 * wait here, by weak references, for the next event of their thread.
 */
typedef struct unnamed_task {
    PyObject *task; /* weak reference */
    sp_run *run;    /* referenced */
    sp_task *row;
    uintptr_t thread;
} unnamed_task;

static unnamed_task *unnamed;
static size_t unnamed_size;
static _Atomic(size_t) unnamed_count;

static void add_unnamed(sp_run *run, sp_task *row, PyObject *task)
{
    const unnamed_task new = {PyWeakref_NewRef(task, NULL), run, row, (uintptr_t)sp_this_thread};
    if (new.task == NULL) {
        PyErr_Clear();
        return;
    }
    LOCK();
    const size_t count = atomic_load_explicit(&unnamed_count, memory_order_relaxed);
    if (count == unnamed_size) {
        unnamed_task *larger = PyMem_RawRealloc(unnamed, (count + 16) * sizeof *unnamed);
        if (larger) {
            unnamed = larger;
            unnamed_size = count + 16;
        }
    }
    const bool fits = count < unnamed_size;
    if (fits) {
        atomic_fetch_add_explicit(&run->references, 1, memory_order_relaxed);
        unnamed[count] = new;
        atomic_store_explicit(&unnamed_count, count + 1, memory_order_relaxed);
    }
    UNLOCK();
    if (!fits) Py_DECREF(new.task);
}

/* One that the calling thread (or any) made, taken off the list; false: there is none. */
static bool take_unnamed(bool any, unnamed_task *taken)
{
    bool found = false;
    LOCK();
    size_t count = atomic_load_explicit(&unnamed_count, memory_order_relaxed);
    for (size_t i = count; !found && i-- > 0;) {
        if (!any && unnamed[i].thread != (uintptr_t)sp_this_thread) continue;
        found = true;
        *taken = unnamed[i];
        unnamed[i] = unnamed[--count];
        atomic_store_explicit(&unnamed_count, count, memory_order_relaxed);
    }
    UNLOCK();
    return found;
}

static SP_NOINLINE void name_unnamed(bool any)
{
    unnamed_task taken;
    while (take_unnamed(any, &taken)) {
        const sp_pending pending = sp_pending_take();
        PyObject *task = referent(taken.task);
        if (task) read_name(taken.run, taken.row, task);
        Py_XDECREF(task);
        Py_DECREF(taken.task);
        sp_run_release(taken.run);
        sp_pending_restore(pending);
    }
}

static inline void see_unnamed(void)
{
    if (SP_UNLIKELY(atomic_load_explicit(&unnamed_count, memory_order_relaxed))) name_unnamed(false);
}

/* A new reference, or NULL with an exception. */
static PyObject *qualified_name(PyObject *coroutine)
{
#if PY_VERSION_HEX < 0x030e0000 && !defined(Py_GIL_DISABLED)
    if (PyCoro_CheckExact(coroutine)) return Py_NewRef(((PyCoroObject *)coroutine)->cr_qualname);
#endif
    return PyObject_GetAttr(coroutine, qualname_name);
}

/*
 * Names of coroutines that a run knows already: most tasks run one of a few functions, whose coroutines share the string. An
 * entry holds a reference, so the string's address stays its own.
 */
typedef struct known_name {
    PyObject *name;
    uint64_t token; /* of the run */
    uint32_t id;    /* in the run's strings */
} known_name;

#define KNOWN_NAMES 32
static known_name known_names[KNOWN_NAMES];

static inline known_name *known_name_at(PyObject *name)
{
    return &known_names[((uintptr_t)name >> 4) % KNOWN_NAMES];
}

/* UINT32_MAX: not known. */
static uint32_t find_known_name(const sp_run *run, PyObject *name)
{
    uint32_t id = UINT32_MAX;
    LOCK();
    const known_name *known = known_name_at(name);
    if (known->name == name && known->token == run->token) id = known->id;
    UNLOCK();
    return id;
}

static void add_known_name(const sp_run *run, PyObject *name, uint32_t id)
{
    LOCK();
    known_name *known = known_name_at(name);
    PyObject *old = known->name;
    *known = (known_name){Py_NewRef(name), run->token, id};
    UNLOCK();
    Py_XDECREF(old);
}

static void forget_known_names(void)
{
    for (size_t i = 0; i < KNOWN_NAMES; i++) {
        LOCK();
        PyObject *name = known_names[i].name;
        known_names[i] = (known_name){0};
        UNLOCK();
        Py_XDECREF(name);
    }
}

/* A new row for a coroutine-like object, under its qualified name or its type's. `number`: of the task's name, or SP_NO_NUMBER. */
static sp_task *row_new(sp_run *run, PyObject *coroutine, uint64_t number)
{
    PyObject *name = qualified_name(coroutine);
    if (name == NULL || !PyUnicode_Check(name)) {
        PyErr_Clear();
        Py_XSETREF(name, PyObject_GetAttr((PyObject *)Py_TYPE(coroutine), qualname_name));
    }
    const uint32_t known = name ? find_known_name(run, name) : UINT32_MAX;
    if (SP_LIKELY(known != UINT32_MAX)) {
        Py_DECREF(name);
        return sp_run_task_add_again(run, SP_TASK_TASK, known, number);
    }
    PyObject *bytes = NULL;
    const char *text = name ? PyUnicode_AsUTF8(name) : NULL;
    if (text == NULL) {
        PyErr_Clear();
        bytes = name ? storable(name) : NULL;
        text = bytes ? PyBytes_AS_STRING(bytes) : "";
    }
    sp_task *row = sp_run_task_add(run, SP_TASK_TASK, text);
    if (row && number != SP_NO_NUMBER) sp_run_task_number(run, row, number);
    if (row && name && PyUnicode_CheckExact(name) && row->coro_name != UINT32_MAX) add_known_name(run, name, row->coro_name);
    Py_XDECREF(bytes);
    Py_XDECREF(name);
    return row;
}

/* ---- the delegate of a task's coroutine ------------------------------------------------------------------------------------- */

/*
 * A delegate knows its task, without keeping it alive: asyncio's own tasks by their address alone, which is believed while
 * asyncio says that they run, or lists them as not over. A weak reference would take a fifth of all that following a task
 * costs; others have one, and are linked so that they can be found.
 */
typedef struct task_body {
    sp_delegate base;
    sp_run *run;      /* referenced */
    sp_task *row;     /* NULL until the first step, or until the loop has made the task */
    PyObject *task;   /* NULL: not made yet, or over; with BY_ADDRESS its address, else a weak reference */
    PyObject *name;   /* as it is stored; NULL: not yet */
    sp_task *before;  /* during a step: the lane to give back */
    struct task_body *next, *previous; /* those with a weak reference */
} task_body;

_Static_assert(sizeof(task_body) <= SP_DELEGATE_SIZE, "a task's coroutine fits a delegate");

/* flags */
#define IN_STEP 1    /* `before` is to be given back */
#define BY_ADDRESS 2 /* how the task is known */

static task_body *live;

static void link_live(task_body *self)
{
    LOCK();
    self->next = live;
    if (live) live->previous = self;
    live = self;
    UNLOCK();
}

static void unlink_live(task_body *self)
{
    if (self->base.flags & BY_ADDRESS) {
        self->task = NULL;
        return;
    }
    LOCK();
    PyObject *reference = self->task;
    self->task = NULL;
    if (reference) {
        if (self->next) self->next->previous = self->previous;
        if (self->previous) self->previous->next = self->next;
        else live = self->next;
        self->next = self->previous = NULL;
    }
    UNLOCK();
    Py_XDECREF(reference);
}

/* The delegate is that of this task from now on. */
static void link_task(task_body *self, PyObject *task)
{
    if (registered && current_tasks && Py_IS_TYPE(task, plain_task)) {
        self->base.flags |= BY_ADDRESS;
        self->task = task;
        return;
    }
    self->task = PyWeakref_NewRef(task, NULL);
    if (self->task) link_live(self);
    else PyErr_Clear();
}

static const sp_delegate_hooks task_hooks;

/* Most are coroutines of no run, which is seen without a call. */
static inline bool is_body(PyObject *object)
{
    return !PyCoro_CheckExact(object) && sp_is_delegate(object, &task_hooks);
}

/* The delegate of `run` around this object, which may be one of another run around that; NULL: none. */
static task_body *find_body(PyObject *object, const sp_run *run)
{
    while (is_body(object)) {
        task_body *body = (task_body *)object;
        if (body->run == run) return body;
        object = body->base.inner;
    }
    return NULL;
}

/* Whether this is asyncio's own task of the delegate. */
static bool is_task_of(PyObject *task, const task_body *self)
{
    if (!Py_IS_TYPE(task, plain_task)) return false;
    PyObject *coroutine = plain_get_coro(task, NULL);
    const bool found = coroutine == (PyObject *)self || (coroutine && find_body(coroutine, self->run) == self);
    Py_XDECREF(coroutine);
    return found;
}

/* Whether a loop runs the task that has this address, which is then a new reference; loops of other threads change the dict. */
static PyObject *task_that_runs(PyObject *address)
{
    PyObject *loop, *task, *found = NULL;
    Py_ssize_t at = 0;
    SP_LOCK_OBJECT(current_tasks);
    while (found == NULL && PyDict_Next(current_tasks, &at, &loop, &task)) {
        if (task == address) found = Py_NewRef(task);
    }
    SP_UNLOCK_OBJECT();
    return found;
}

/* The delegate's task during a step of it, a new reference; NULL: gone, or another task runs the step. */
static PyObject *task_in_step(task_body *self)
{
    if (self->base.flags & BY_ADDRESS) {
        PyObject *task = self->task && current_tasks ? task_that_runs(self->task) : NULL;
        if (task && !is_task_of(task, self)) Py_CLEAR(task);
        return task;
    }
    LOCK();
    PyObject *reference = Py_XNewRef(self->task);
    UNLOCK();
    PyObject *task = reference ? referent(reference) : NULL;
    Py_XDECREF(reference);
    return task;
}

/*
 * Whether the task that runs this step has the name that is stored, as far as that is seen at a glance: of one of asyncio's own, in the
 * first loop that runs. It is the case at nearly all beginnings and ends, and asks for nothing that could raise.
 */
static bool has_stored_name(const task_body *self)
{
#ifdef Py_GIL_DISABLED
    return false;
#else
    PyObject *task;
    Py_ssize_t at = 0;
    if (self->name == NULL || !(self->base.flags & BY_ADDRESS) || current_tasks == NULL) return false;
    if (!PyDict_Next(current_tasks, &at, NULL, &task) || task != self->task) return false;
    return is_task_of(task, self) && plain_name(task) == self->name;
#endif
}

/* Store the task's name unless it is stored already. A pending exception is left alone. */
static void name_in_step(task_body *self)
{
    if (SP_LIKELY(has_stored_name(self))) return;
    const sp_pending pending = sp_pending_take();
    PyObject *task = task_in_step(self);
    PyObject *name = task ? name_of(task) : NULL;
    if (name && name != self->name) {
        store_name(self->run, self->row, name);
        Py_XSETREF(self->name, Py_NewRef(name));
    }
    Py_XDECREF(name);
    Py_XDECREF(task);
    sp_pending_restore(pending);
}

static inline sp_task *row_of(task_body *self)
{
    if (SP_UNLIKELY(self->row == NULL)) self->row = row_new(self->run, self->base.inner, SP_NO_NUMBER);
    return self->row;
}

/* The row of a task that has just been made: most have a default name then, and keep it. */
static sp_task *row_of_task(task_body *self, PyObject *task)
{
    if (SP_UNLIKELY(self->row != NULL)) return self->row; /* an eager task */
    PyObject *name = Py_IS_TYPE(task, plain_task) ? name_of(task) : NULL;
    const uint64_t number = name ? number_of(name) : SP_NO_NUMBER;
    self->row = row_new(self->run, self->base.inner, number);
    if (self->row && number != SP_NO_NUMBER) self->name = name;
    else Py_XDECREF(name);
    return self->row;
}

static void task_enter(sp_delegate *op, bool first)
{
    task_body *self = (task_body *)op;
    if (SP_UNLIKELY(!follows(self->run))) return;
    /* Without a row yet, it is an eager task that starts, or a coroutine that is closed unstarted by who got no task. */
    if (SP_UNLIKELY(self->row == NULL && !first)) return;
    sp_log *log = sp_log_current(self->run->token);
    sp_task *row = row_of(self);
    if (SP_UNLIKELY(log == NULL || row == NULL)) return;
    /* Where the run must be understood from its spool alone, a task is named when it begins too; only its end was enough else. */
    if (first && self->run->store) name_in_step(self);
    op->flags |= IN_STEP;
    self->before = sp_log_enter_step(log, row).task;
}

static void finish(task_body *self, sp_ticks now)
{
    sp_task_finish(self->row, now);
    if (self->task == NULL) return; /* an eager task: its name comes last */
    name_in_step(self);
    unlink_live(self);
}

static void task_leave(sp_delegate *op, sp_outcome outcome)
{
    task_body *self = (task_body *)op;
    sp_ticks now = 0;
    see_unnamed();
    if (SP_LIKELY(op->flags & IN_STEP)) {
        op->flags &= (uint8_t)~IN_STEP;
        sp_log *log = sp_log_current(self->run->token);
        if (SP_LIKELY(log != NULL)) now = sp_log_leave_step(log, self->row, (sp_lane_before){self->before});
    }
    if (outcome != SP_SUSPENDED && self->row && follows(self->run)) finish(self, now ? now : sp_clock_read());
}

/* All delegates of a run share one reference to it: with the GIL they are counted without the cost of an atomic operation. */
static void hold_run(sp_run *run)
{
#ifndef Py_GIL_DISABLED
    if (run->held++ > 0) return;
#endif
    atomic_fetch_add_explicit(&run->references, 1, memory_order_relaxed);
}

static void let_go_of_run(sp_run *run)
{
#ifndef Py_GIL_DISABLED
    if (--run->held > 0) return;
#endif
    sp_run_release(run);
}

static void task_drop(sp_delegate *op)
{
    task_body *self = (task_body *)op;
    unlink_live(self);
    Py_CLEAR(self->name);
    let_go_of_run(self->run);
}

static const sp_delegate_hooks task_hooks = {task_enter, task_leave, task_drop, NULL};

/* `coroutine` (stolen) with a delegate of the run around it, where it can have one. NULL with an exception set. */
static PyObject *wrap(PyObject *coroutine, sp_run *run)
{
    const int kind = sp_delegate_kind_of(coroutine);
    if (kind < 0 || !follows(run) || find_body(coroutine, run)) return coroutine;
    task_body *self = (task_body *)sp_delegate_new((sp_delegate_kind)kind, coroutine, &task_hooks);
    if (self) {
        hold_run(run);
        self->run = run;
    }
    Py_DECREF(coroutine);
    return (PyObject *)self;
}

/*
 * The loop has made `task` of the delegates in `coroutine`, and may have run and ended it already. A default name costs a
 * string to ask for, so it is read once, at the end (or at collection); `name`, given by the maker or NULL, is known now.
 */
static void bind(PyObject *coroutine, PyObject *task, PyObject *name)
{
    see_unnamed();
    while (is_body(coroutine)) {
        task_body *self = (task_body *)coroutine;
        coroutine = self->base.inner;
        if (self->task || !follows(self->run) || row_of_task(self, task) == NULL) continue;
        if (sp_delegate_has_ended(&self->base)) {
            read_name(self->run, self->row, task);
            add_unnamed(self->run, self->row, task);
            continue;
        }
        if (name) store_name(self->run, self->row, name);
        link_task(self, task);
    }
}

/* ---- the hook where tasks are made ----------------------------------------------------------------------------------------------- */

typedef struct task_hook {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *original;
    Py_ssize_t position; /* of the coroutine among the positional arguments */
    PyObject *dict;
    PyObject *weakrefs;
} task_hook;

static PyTypeObject *hook_type;

static PyObject *followed_now(void)
{
    LOCK();
    PyObject *runs = Py_NewRef(followed);
    UNLOCK();
    return runs;
}

/* Where a keyword is among all arguments; -1: not given. */
static Py_ssize_t find_keyword(PyObject *keyword, Py_ssize_t count, PyObject *kwnames)
{
    const Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    for (Py_ssize_t i = 0; i < keywords; i++) {
        PyObject *given = PyTuple_GET_ITEM(kwnames, i);
        if (given == keyword || PyUnicode_Compare(given, keyword) == 0) return count + i;
    }
    return -1;
}

#define MOST_ARGUMENTS 16 /* create_task has a handful */

static PyObject *hook_call(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const task_hook *self = (task_hook *)op;
    const Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    const Py_ssize_t total = count + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
    const Py_ssize_t at = self->position < count ? self->position : find_keyword(coro_keyword, count, kwnames);
    PyObject *runs = followed_now();
    if (PyTuple_GET_SIZE(runs) == 0 || at < 0 || total > MOST_ARGUMENTS) {
        Py_DECREF(runs);
        return PyObject_Vectorcall(self->original, args, nargsf, kwnames);
    }
    PyObject *all[MOST_ARGUMENTS + 1], *result = NULL;
    memcpy(all + 1, args, (size_t)total * sizeof *all);
    PyObject *wrapped = Py_NewRef(args[at]);
    for (Py_ssize_t i = 0; wrapped && i < PyTuple_GET_SIZE(runs); i++) {
        wrapped = wrap(wrapped, ((sp_run_object *)PyTuple_GET_ITEM(runs, i))->run);
    }
    if (wrapped) {
        all[at + 1] = wrapped;
        result = sp_forward(self->original, all + 1, (size_t)count | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
        const Py_ssize_t name = find_keyword(name_keyword, count, kwnames);
        if (result) bind(wrapped, result, name < 0 ? NULL : args[name]);
        Py_DECREF(wrapped);
    }
    Py_DECREF(runs);
    return result;
}

static PyObject *hook_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    static char *known[] = {"original", "position", NULL};
    PyObject *original;
    Py_ssize_t position;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "On:TaskHook", known, &original, &position)) return NULL;
    task_hook *self = (task_hook *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->vectorcall = hook_call;
    self->original = Py_NewRef(original);
    self->position = position;
    return (PyObject *)self;
}

static PyObject *hook_get(PyObject *op, PyObject *object, PyObject *type)
{
    return object == NULL || object == Py_None ? Py_NewRef(op) : PyMethod_New(op, object);
}

/* It passes for what it stands before: name, signature, documentation, code. */
static PyObject *hook_getattro(PyObject *op, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL) return NULL;
    if (strcmp(text, "__doc__") != 0 && strcmp(text, "__module__") != 0) {
        PyObject *value = PyObject_GenericGetAttr(op, name);
        if (value || !PyErr_ExceptionMatches(PyExc_AttributeError)) return value;
        PyErr_Clear();
    }
    return PyObject_GetAttr(((task_hook *)op)->original, name);
}

static PyObject *hook_repr(PyObject *op)
{
    return PyObject_Repr(((task_hook *)op)->original);
}

static PyObject *hook_class(PyObject *op, void *unused)
{
    return PyObject_GetAttrString(((task_hook *)op)->original, "__class__");
}

static int hook_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((task_hook *)op)->original);
    Py_VISIT(((task_hook *)op)->dict);
    return 0;
}

static int hook_clear(PyObject *op)
{
    Py_CLEAR(((task_hook *)op)->dict);
    return 0;
}

static void hook_dealloc(PyObject *op)
{
    task_hook *self = (task_hook *)op;
    PyTypeObject *type = Py_TYPE(op);
    PyObject_GC_UnTrack(op);
    if (self->weakrefs) PyObject_ClearWeakRefs(op);
    Py_CLEAR(self->dict);
    Py_CLEAR(self->original);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyMemberDef hook_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(task_hook, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(task_hook, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(task_hook, weakrefs), READONLY, NULL},
    {"__wrapped__", T_OBJECT, offsetof(task_hook, original), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef hook_getset[] = {
    {"__class__", hook_class, NULL, NULL, NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot hook_slots[] = {
    {Py_tp_doc, "TaskHook(original, position): calls original with a lane around the coroutine at that position."},
    {Py_tp_new, hook_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, hook_get},
    {Py_tp_getattro, hook_getattro},
    {Py_tp_repr, hook_repr},
    {Py_tp_traverse, hook_traverse},
    {Py_tp_clear, hook_clear},
    {Py_tp_dealloc, hook_dealloc},
    {Py_tp_members, hook_members},
    {Py_tp_getset, hook_getset},
    {0, NULL},
};

static PyType_Spec hook_spec = {
    .name = "scope_profiler._core.TaskHook",
    .basicsize = sizeof(task_hook),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
        Py_TPFLAGS_IMMUTABLETYPE,
    .slots = hook_slots,
};

/* ---- tasks without a delegate -------------------------------------------------------------------------------------------------- */

/* {run token: {weak reference to a task: its adoption}} */
static PyObject *adopted;

/* The row of one such task; as the weak reference's callback it ends the row, and leaves the dict. */
typedef struct adoption {
    PyObject_HEAD
    sp_run *run; /* referenced */
    sp_task *row;
} adoption;

static PyTypeObject *adoption_type;

/* The dict of a run's adoptions, made if asked for; a new reference. NULL without an exception when there is none. */
static PyObject *adoptions_of(const sp_run *run, bool make)
{
    PyObject *token = PyLong_FromUnsignedLongLong(run->token);
    PyObject *found = token ? sp_dict_get(adopted, token) : NULL;
    if (token && found == NULL && make && !PyErr_Occurred()) {
        PyObject *made = PyDict_New();
        found = made ? sp_dict_set_default(adopted, token, made) : NULL;
        Py_XDECREF(made);
    }
    Py_XDECREF(token);
    if (found == NULL) PyErr_Clear();
    return found;
}

static PyObject *adoption_call(PyObject *op, PyObject *arguments, PyObject *names)
{
    adoption *self = (adoption *)op;
    if (follows(self->run)) sp_task_finish(self->row, sp_clock_read());
    PyObject *known = adoptions_of(self->run, false);
    if (known && PyTuple_GET_SIZE(arguments) && PyDict_DelItem(known, PyTuple_GET_ITEM(arguments, 0)) < 0) PyErr_Clear();
    Py_XDECREF(known);
    Py_RETURN_NONE;
}

static void adoption_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    sp_run_release(((adoption *)op)->run);
    PyObject_Free(op);
    Py_DECREF(type);
}

static PyType_Slot adoption_slots[] = {
    {Py_tp_call, adoption_call},
    {Py_tp_dealloc, adoption_dealloc},
    {0, NULL},
};

static PyType_Spec adoption_spec = {
    .name = "scope_profiler._core._Adoption",
    .basicsize = sizeof(adoption),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = adoption_slots,
};

/* The task that runs on this thread, a new reference; NULL without an exception. */
static PyObject *task_running(void)
{
    PyObject *task = NULL, *loop = PyObject_CallNoArgs(running_loop);
    if (loop && loop != Py_None) {
        task = current_tasks ? sp_dict_get(current_tasks, loop) : PyObject_CallOneArg(current_task, loop);
    }
    Py_XDECREF(loop);
    if (task == NULL) PyErr_Clear();
    if (task == Py_None) Py_CLEAR(task);
    return task;
}

static sp_task *adoption_new(sp_run *run, PyObject *known, PyObject *task)
{
    PyObject *coroutine = PyObject_CallMethodNoArgs(task, get_coro_name);
    if (coroutine == NULL) {
        PyErr_Clear();
        return NULL;
    }
    sp_task *row = NULL;
    PyObject *reference = NULL;
    adoption *self = NULL;
    task_body *body = find_body(coroutine, run);
    if (body) {
        row = row_of(body); /* followed before, and now again, within one step */
        goto done;
    }
    self = PyObject_New(adoption, adoption_type);
    if (self == NULL) goto done;
    atomic_fetch_add_explicit(&run->references, 1, memory_order_relaxed);
    self->run = run;
    self->row = row_new(run, coroutine, SP_NO_NUMBER);
    if (self->row) sp_task_forget_creator(self->row);
    reference = self->row ? PyWeakref_NewRef(task, (PyObject *)self) : NULL;
    if (reference && PyDict_SetItem(known, reference, (PyObject *)self) == 0) {
        row = self->row;
        read_name(run, row, task);
    }
done:
    Py_XDECREF(reference);
    Py_XDECREF((PyObject *)self);
    Py_DECREF(coroutine);
    PyErr_Clear();
    return row;
}

static sp_task *adopt_task(sp_run *run, PyObject *task)
{
    PyObject *known = adoptions_of(run, true);
    if (known == NULL) return NULL;
    PyObject *reference = PyWeakref_NewRef(task, NULL);
    PyObject *found = reference ? sp_dict_get(known, reference) : NULL;
    Py_XDECREF(reference);
    PyErr_Clear();
    sp_task *row = found ? ((adoption *)found)->row : adoption_new(run, known, task);
    Py_XDECREF(found);
    Py_DECREF(known);
    return row;
}

sp_task *sp_task_adopt(sp_log *log)
{
    if (running_loop == NULL || !follows(log->run)) return NULL;
    if (current_tasks && PyDict_GET_SIZE(current_tasks) == 0) return NULL; /* no thread runs a task */
    const sp_pending pending = sp_pending_take();
    PyObject *task = task_running();
    sp_task *row = task ? adopt_task(log->run, task) : NULL;
    if (row) atomic_store_explicit(&row->thread_index, log->row->index, memory_order_relaxed);
    Py_XDECREF(task);
    sp_pending_restore(pending);
    return row;
}

/* ---- names at collection ---------------------------------------------------------------------------------------------------------- */

static void add_living(PyObject *list, sp_task *row, PyObject *task)
{
    PyObject *pair = task ? Py_BuildValue("NO", PyLong_FromVoidPtr(row), task) : NULL;
    if (pair == NULL || PyList_Append(list, pair) < 0) PyErr_Clear();
    Py_XDECREF(pair);
}

/* Those that are known by a weak reference. */
static void add_linked(PyObject *list, const sp_run *run)
{
    size_t count = 0, filled = 0;
    LOCK();
    for (const task_body *body = live; body; body = body->next) count += body->run == run;
    UNLOCK();
    PyObject **references = PyMem_Calloc(count + 1, 2 * sizeof *references);
    LOCK();
    for (const task_body *body = live; references && body && filled < count; body = body->next) {
        if (body->run != run) continue;
        references[2 * filled] = Py_NewRef(body->task);
        references[2 * filled++ + 1] = (PyObject *)body->row;
    }
    UNLOCK();
    for (size_t i = 0; i < filled; i++) {
        PyObject *task = referent(references[2 * i]);
        add_living(list, (sp_task *)references[2 * i + 1], task);
        Py_XDECREF(task);
        Py_DECREF(references[2 * i]);
    }
    PyMem_Free(references);
}

/* asyncio's own, which are known to it. */
static void add_registered(PyObject *list, const sp_run *run)
{
    PyObject *references = registered && plain_task ? PySequence_List(registered) : NULL;
    for (Py_ssize_t i = 0; references && i < PyList_GET_SIZE(references); i++) {
        PyObject *task = PyWeakref_Check(PyList_GET_ITEM(references, i)) ? referent(PyList_GET_ITEM(references, i)) : NULL;
        PyObject *coroutine = task && Py_IS_TYPE(task, plain_task) ? plain_get_coro(task, NULL) : NULL;
        task_body *body = coroutine ? find_body(coroutine, run) : NULL;
        if (body && body->row && body->task == task) add_living(list, body->row, task);
        Py_XDECREF(coroutine);
        Py_XDECREF(task);
    }
    Py_XDECREF(references);
}

/* A list of (address of the row, task) for the run's living tasks; NULL without an exception. */
static PyObject *living(const sp_run *run)
{
    PyObject *list = PyList_New(0);
    if (list) {
        add_linked(list, run);
        add_registered(list, run);
    }
    PyErr_Clear();
    return list;
}

static void refresh_adopted(sp_run *run)
{
    PyObject *known = adoptions_of(run, false);
    PyObject *items = known ? PyDict_Items(known) : NULL;
    Py_XDECREF(known);
    for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items); i++) {
        PyObject *pair = PyList_GET_ITEM(items, i);
        sp_task *row = ((adoption *)PyTuple_GET_ITEM(pair, 1))->row;
        PyObject *task = referent(PyTuple_GET_ITEM(pair, 0));
        if (task == NULL) continue;
        read_name(run, row, task);
        /* Nothing tells when such a task ended: the first look after that counts. */
        PyObject *done = PyObject_CallMethodNoArgs(task, done_name);
        if (done && PyObject_IsTrue(done) > 0) sp_task_finish(row, sp_clock_read());
        Py_XDECREF(done);
        Py_DECREF(task);
    }
    Py_XDECREF(items);
    PyErr_Clear();
}

static void refresh_names(sp_run *run)
{
    name_unnamed(true);
    PyObject *tasks = living(run);
    for (Py_ssize_t i = 0; tasks && i < PyList_GET_SIZE(tasks); i++) {
        PyObject *pair = PyList_GET_ITEM(tasks, i);
        read_name(run, PyLong_AsVoidPtr(PyTuple_GET_ITEM(pair, 0)), PyTuple_GET_ITEM(pair, 1));
    }
    Py_XDECREF(tasks);
    refresh_adopted(run);
}

void sp_task_names_refresh(sp_run *run)
{
    if (run->tracks_tasks && follows(run)) refresh_names(run);
}

/* ---- functions of the module ------------------------------------------------------------------------------------------------------ */

/* `followed` with or without a run; the new count of runs. */
static PyObject *replace_followed(PyObject *run, bool add)
{
    if (sp_run_object_get(run) == NULL) return NULL;
    PyObject *list = PySequence_List(followed);
    if (list == NULL) return NULL;
    for (Py_ssize_t i = PyList_GET_SIZE(list) - 1; i >= 0; i--) {
        if (PyList_GET_ITEM(list, i) == run && PySequence_DelItem(list, i) < 0) goto failed;
    }
    if (add && PyList_Append(list, run) < 0) goto failed;
    PyObject *tuple = PyList_AsTuple(list);
    Py_DECREF(list);
    if (tuple == NULL) return NULL;
    LOCK();
    PyObject *old = followed;
    followed = tuple;
    UNLOCK();
    Py_DECREF(old);
    return PyLong_FromSsize_t(PyTuple_GET_SIZE(tuple));
failed:
    Py_DECREF(list);
    return NULL;
}

static PyObject *core_follow_tasks(PyObject *module, PyObject *run)
{
    return replace_followed(run, true);
}

static PyObject *core_unfollow_tasks(PyObject *module, PyObject *run)
{
    PyObject *left = replace_followed(run, false);
    if (left == NULL) return NULL;
    refresh_names(sp_run_object_get(run));
    PyObject *token = PyLong_FromUnsignedLongLong(sp_run_object_get(run)->token);
    if (token == NULL || (PyDict_Contains(adopted, token) > 0 && PyDict_DelItem(adopted, token) < 0)) PyErr_Clear();
    Py_XDECREF(token);
    if (PyTuple_GET_SIZE(followed) == 0) forget_known_names();
    return left;
}

/* An attribute of asyncio that is of this exact type, a new reference; NULL without an exception: this version has none. */
static PyObject *attribute(PyObject *owner, const char *name, PyTypeObject *type)
{
    PyObject *found = PyObject_GetAttrString(owner, name);
    if (found == NULL) PyErr_Clear();
    if (found && !Py_IS_TYPE(found, type)) Py_CLEAR(found);
    return found;
}

/* What asyncio's WeakSet of tasks holds. Where threads run at once, an address alone says nothing: none then. */
static PyObject *registered_tasks(PyObject *tasks)
{
#ifdef Py_GIL_DISABLED
    return NULL;
#else
    static const char *const names[] = {"_scheduled_tasks", "_all_tasks"}; /* from 3.12 on, and before */
    PyObject *references = NULL;
    for (size_t i = 0; references == NULL && i < sizeof names / sizeof *names; i++) {
        PyObject *set = PyObject_GetAttrString(tasks, names[i]);
        if (set == NULL) PyErr_Clear();
        if (set) references = attribute(set, "data", &PySet_Type);
        Py_XDECREF(set);
    }
    return references;
#endif
}

static PyObject *core_use_asyncio(PyObject *module, PyObject *asyncio)
{
    PyObject *tasks = PyObject_GetAttrString(asyncio, "tasks");
    PyObject *current = tasks ? PyObject_GetAttrString(asyncio, "current_task") : NULL;
    PyObject *running = current ? PyObject_GetAttrString(asyncio, "_get_running_loop") : NULL;
    PyObject *type = running ? PyObject_GetAttrString(tasks, "Task") : NULL;
    if (type) {
        find_plain_task(type);
        Py_XSETREF(current_tasks, attribute(tasks, "_current_tasks", &PyDict_Type));
        Py_XSETREF(registered, registered_tasks(tasks));
        Py_XSETREF(current_task, Py_NewRef(current));
        Py_XSETREF(running_loop, Py_NewRef(running));
    }
    Py_XDECREF(type);
    Py_XDECREF(running);
    Py_XDECREF(current);
    Py_XDECREF(tasks);
    return type ? Py_NewRef(Py_None) : NULL;
}

const void *sp_task_running(void)
{
    if (running_loop == NULL) {
        PyObject *name = PyUnicode_FromString("asyncio");
        PyObject *asyncio = name ? PyImport_GetModule(name) : NULL;
        PyObject *used = asyncio ? core_use_asyncio(NULL, asyncio) : NULL;
        Py_XDECREF(name);
        Py_XDECREF(asyncio);
        Py_XDECREF(used);
        PyErr_Clear();
        if (used == NULL) return NULL;
    }
    if (current_tasks && PyDict_GET_SIZE(current_tasks) == 0) return NULL; /* no thread runs a task */
    PyObject *task = task_running();
    Py_XDECREF(task);
    return task;
}

static PyMethodDef module_functions[] = {
    {"follow_tasks", core_follow_tasks, METH_O, "follow_tasks(run): TaskHooks make lanes of the run. How many runs they serve now."},
    {"unfollow_tasks", core_unfollow_tasks, METH_O, "unfollow_tasks(run): they make none any more. How many runs are left."},
    {"use_asyncio", core_use_asyncio, METH_O, "use_asyncio(asyncio): where to ask for the task that runs."},
    {NULL, NULL, 0, NULL},
};

static int intern(PyObject **name, const char *text)
{
    *name = PyUnicode_InternFromString(text);
    return *name ? 0 : -1;
}

void sp_python_forget_asyncio(void)
{
    plain_task = NULL;
    forget_known_names();
    Py_CLEAR(running_loop);
    Py_CLEAR(current_tasks);
    Py_CLEAR(current_task);
    Py_CLEAR(registered);
}

int sp_python_add_task_wrapper(PyObject *module)
{
    followed = PyTuple_New(0);
    adopted = PyDict_New();
    if (followed == NULL || adopted == NULL || intern(&qualname_name, "__qualname__") < 0 ||
        intern(&get_name_name, "get_name") < 0 || intern(&get_coro_name, "get_coro") < 0 ||
        intern(&done_name, "done") < 0 || intern(&coro_keyword, "coro") < 0 ||
        intern(&name_keyword, "name") < 0) {
        return -1;
    }
    adoption_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &adoption_spec, NULL);
    hook_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &hook_spec, NULL);
    if (adoption_type == NULL || hook_type == NULL || PyModule_AddType(module, hook_type) < 0) return -1;
    return PyModule_AddFunctions(module, module_functions);
}
