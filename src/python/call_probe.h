/*
 * call_probe.h - probes of runs that Python asks for: two functions that are called at every call of the run, or counters of
 * the kernel.
 */
#ifndef SP_PYTHON_CALL_PROBE_H
#define SP_PYTHON_CALL_PROBE_H

#include "core/probe.h"
#include "python/state.h"

/*
 * The probe that `functions` (None, or a pair of callables) and `events` (None, or names of events) ask for: NULL without an
 * exception if neither does. PerfEventError where the kernel does not count.
 */
sp_probe *sp_python_probe(PyObject *functions, PyObject *events);

/* Nothing is called any more, and the callables are let go. */
void sp_python_probe_end(sp_run *run);

/* (calls whose functions failed, the first exception or None) */
PyObject *sp_python_probe_failures(sp_run *run);

/* ({region: (calls, [(value, enabled, running) of each event])}, calls that were not counted), or None. */
PyObject *sp_python_counters(sp_run *run);

int sp_python_add_call_probe(PyObject *module);

#endif
