/*
 * coroutine.h - recorded calls whose body runs in steps: coroutines, generators, asynchronous generators.
 *
 * The call opens when the body runs its first statement and closes when the body ends, by return, exception, throw, close
 * or destruction: on the lane where it opened, whoever runs the end. A body that never starts is no call.
 */
#ifndef SP_PYTHON_COROUTINE_H
#define SP_PYTHON_COROUTINE_H

#include "python/delegate.h"
#include "python/function_tracer.h"
#include "python/region.h"

/* One recorded call, from entry to the report of its end. Embedded in what lives as long as the call. */
typedef struct sp_call {
    sp_region_object *region; /* owned */
    PyObject *note;           /* owned; what sp_call_note made, or NULL */
    sp_open open;
    sp_trace_mode trace;      /* whether functions that it calls are traced */
} sp_call;

/*
 * What an annotated call remembers until its end: (what annotate(*args, **kwargs) returned, region name); `args` as for
 * vectorcall. NULL with the exception of annotate: the function must not be called then.
 */
PyObject *sp_call_note(PyObject *annotate, PyObject *name, PyObject *const *args, size_t nargsf, PyObject *kwnames);

static inline void sp_call_enter(sp_call *call)
{
    sp_region_enter(call->region, &call->open);
}

/* Close the call and, if it has a note, report it: finish(name, lane, start, end, exception or None). An exception of
 * finish goes to sys.unraisablehook. A pending exception stays pending. `raised`: it ended the call. */
void sp_call_exit(sp_call *call, bool raised);

/*
 * Stand for `body` (stolen), which a call just returned: a coroutine, generator or asynchronous generator, or something
 * coroutine-like. `open` (may be NULL) is a call that began already, taken over on success. `note` (may be NULL) is
 * stolen. `trace` is that of the call. NULL with an exception set; `body` itself when it is none of these.
 */
PyObject *sp_body_wrap(PyObject *body, sp_region_object *region, sp_open *open, PyObject *note, sp_trace_mode trace);

/* Set the calling thread's mode to what the call wants; what it was. Never raises. */
sp_trace_mode sp_call_trace(const sp_region_object *region, sp_trace_mode trace);

int sp_python_add_coroutine(PyObject *module);

#endif
