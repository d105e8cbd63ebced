/*
 * delegate.h - objects that stand for a coroutine, generator or asynchronous generator and see each of its steps.
 *
 * A delegate implements the protocol of what it stands for (am_send, send, throw, close, iteration) by handing every
 * operation to the inner object unchanged, between two hooks. Nothing of it is a Python frame: tracebacks, exception
 * contexts, warnings and the frames' f_back are those of the inner object alone. It answers for the inner object's type
 * (__class__), names, code, frame and repr, so inspect, asyncio and frameworks see what they would see without it.
 *
 *     caller ── send ──> delegate ── hooks->enter
 *                           │  ── send ──> inner (the user's)
 *                           └───── hooks->leave(outcome)
 *
 * Two kinds of users have hooks of their own: a decorated body opens a region at its first step and closes it at its end;
 * a task's coroutine makes its task the thread's lane around each step.
 */
#ifndef SP_PYTHON_DELEGATE_H
#define SP_PYTHON_DELEGATE_H

#include "python/state.h"

#include "core/hot.h"

#include <stdatomic.h>
#include <stdbool.h>

typedef struct sp_delegate sp_delegate;

/* What a step did to the inner object. */
typedef enum sp_outcome {
    SP_SUSPENDED, /* yielded, awaits, or refused the step; its body goes on */
    SP_RETURNED,  /* returned (StopIteration) */
    SP_CLOSED,    /* close() succeeded */
    SP_RAISED     /* ended by the exception that is pending now */
} sp_outcome;

/* Hooks run on the stepping thread. They leave a pending exception alone. */
typedef struct sp_delegate_hooks {
    /* Before a step. `first`: it is the one that starts the body. */
    void (*enter)(sp_delegate *self, bool first);
    void (*leave)(sp_delegate *self, sp_outcome outcome);
    /* The delegate died, and has given up the inner object. May be NULL. */
    void (*drop)(sp_delegate *self);
    int (*traverse)(sp_delegate *self, visitproc visit, void *arg); /* may be NULL */
} sp_delegate_hooks;

/* How the end of the inner body is told from an error that leaves it alive ("generator already executing"). */
typedef enum sp_delegate_kind {
    SP_DELEGATE_COROUTINE, /* cr_frame is None */
    SP_DELEGATE_GENERATOR, /* gi_frame is None */
    SP_DELEGATE_FOREIGN,   /* a coroutine-like object of any type: each exception ends it */
    SP_DELEGATE_STEP,      /* an awaitable of an asynchronous generator: an exception may mean "not now" */
    SP_DELEGATE_KINDS
} sp_delegate_kind;

/* The head of every delegate; its users append their own fields. Never cleared by the collector: a cycle through a
 * generator always runs through its frame, which clears it. */
struct sp_delegate {
    PyObject_HEAD
    PyObject *inner; /* never NULL */
    PyObject *weakrefs;
    const sp_delegate_hooks *hooks;
    _Atomic(uint8_t) state; /* SP_STEP_* */
    uint8_t kind;           /* sp_delegate_kind */
    uint8_t flags;          /* of the user's own */
};

#define SP_STEP_RUNNING 1 /* a step is under way: what reaches the delegate meanwhile goes straight to the inner object */
#define SP_STEP_STARTED 2
#define SP_STEP_ENDED 4

/*
 * The space for a user's fields behind sp_delegate. Types are shared by all users, so it has one size for all; each user
 * asserts that its structure fits.
 */
#define SP_DELEGATE_SIZE (sizeof(sp_delegate) + 7 * sizeof(void *))

/* A new delegate for `inner` (a new reference to it is taken); the user's fields are zero. NULL with an exception set. */
sp_delegate *sp_delegate_new(sp_delegate_kind kind, PyObject *inner, const sp_delegate_hooks *hooks);

/* The kind that fits an object by its type: exact coroutines and generators, delegates, else foreign; -1 when it lacks
 * send, throw or close. Never raises. */
int sp_delegate_kind_of(PyObject *object);

/* Whether an object is a delegate with these hooks. */
bool sp_is_delegate(PyObject *object, const sp_delegate_hooks *hooks);

static inline bool sp_delegate_has_ended(const sp_delegate *self)
{
    return atomic_load_explicit(&self->state, memory_order_relaxed) & SP_STEP_ENDED;
}

/* Whether `inner` is at its end, by its frame. A pending exception stays pending. */
bool sp_frame_is_gone(PyObject *inner, PyObject *frame_attribute);

/* A pending exception, put aside and back. */
typedef struct sp_pending {
    PyObject *type, *value, *traceback;
} sp_pending;

/* Most of the time there is none, and asking is cheaper than taking. */
static inline sp_pending sp_pending_take(void)
{
    sp_pending pending = {NULL, NULL, NULL};
    if (SP_LIKELY(PyErr_Occurred() == NULL)) return pending;
#if PY_VERSION_HEX >= 0x030c0000
    pending.value = PyErr_GetRaisedException();
#else
    PyErr_Fetch(&pending.type, &pending.value, &pending.traceback);
#endif
    return pending;
}

static inline void sp_pending_restore(sp_pending pending)
{
#if PY_VERSION_HEX >= 0x030c0000
    if (SP_UNLIKELY(pending.value != NULL)) PyErr_SetRaisedException(pending.value);
#else
    if (SP_UNLIKELY(pending.type != NULL)) PyErr_Restore(pending.type, pending.value, pending.traceback);
#endif
    else if (SP_UNLIKELY(PyErr_Occurred() != NULL)) PyErr_Clear();
}

/* The pending exception as an object (new reference), which stays pending; NULL when there is none. */
PyObject *sp_pending_exception(void);

/* The same, but it is pending no more. */
PyObject *sp_exception_take(void);

/* Give a type attributes that are looked up on the inner object under the same name: {"cr_frame", ...}. */
PyObject *sp_delegate_get(PyObject *self, void *name);
int sp_delegate_set(PyObject *self, PyObject *value, void *name);

int sp_python_add_delegate(PyObject *module);

#endif
