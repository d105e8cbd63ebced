/*
 * function_tracer.h - calls of Python functions as calls of regions: `module.qualname`, without a line in the program.
 *
 *   interpreter ── start/return events ──> hooks (sys.monitoring, or the profile hook before 3.12)
 *                                            │ code -> region: a note on the code object, made at its first call
 *                                            │ frame -> slot: a table of the thread
 *                                            └─> sp_log_enter / sp_log_exit, as for any region
 *
 * A function's frame is what its call is known by from start to end, so generators, greenlets and exceptions cannot confuse it: each
 * stretch in which a generator runs is a call; what is not resumed is not running. In runs that follow tasks, a coroutine is one call from
 * its first step to its end, and the time it was suspended is its await time; an asynchronous generator has one for each value, and for its end.
 *
 * Traced is what runs inside of a region: on a thread that has one open, on those that started after the run did, and inside functions
 * that are decorated with recursive=True. On 3.12 and later, code that a run never traces is not instrumented any more after its first call.
 */
#ifndef SP_PYTHON_FUNCTION_TRACER_H
#define SP_PYTHON_FUNCTION_TRACER_H

#include "python/recorder.h"

typedef struct sp_function_tracer sp_function_tracer;

/*
 * Trace functions of the recorder's open run: `everywhere` inside of regions, or only where sp_trace_mode says so. `chooser`, a callable
 * (region name, file name) -> str | None, gives the name of the region, None: not traced; NULL for all. -1 with an exception. If it is
 * traced already, `everywhere` is added.
 */
int sp_function_tracer_start(sp_recorder_object *recorder, PyObject *chooser, bool everywhere);

/*
 * For a measurement: of all functions, calls of `traced` alone are calls of the region with this number, in the run with this token; those of
 * `bare` are not. -1 with an exception. It ends with sp_function_tracer_stop. With the GIL only.
 */
int sp_function_tracer_probe(sp_recorder_object *recorder, uint64_t token, uint32_t region, bool follows_tasks, PyObject *traced, PyObject *bare);

/* Whether the calling thread tells of functions, where it is a matter of the thread (before 3.12). What it was before. */
int sp_function_tracer_hear(int wanted);

/* In a forked child: locks that other threads of the parent may have had are free. */
void sp_function_tracer_forked(void);

/* No more events for the recorder's run. Calls that are open stay so. */
void sp_function_tracer_stop(sp_recorder_object *recorder);

/* What decorated functions say about what they call: on the calling thread, until it is set back to what it was. */
typedef enum sp_trace_mode { SP_TRACE_DEFAULT, SP_TRACE_ON, SP_TRACE_OFF } sp_trace_mode;
sp_trace_mode sp_trace_mode_set(sp_trace_mode mode);

/* The function with this code is decorated for the recorder: its calls are recorded already. */
void sp_function_tracer_skip(PyObject *code, const sp_recorder_object *recorder);

/* A thread that has just got a row: before 3.12 each has a hook of its own. */
void sp_function_tracer_thread(const sp_run *run);

int sp_python_add_function_tracer(PyObject *module);

#endif
