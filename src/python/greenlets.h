/* greenlets.h - greenlets as lanes. */
#ifndef SP_PYTHON_GREENLETS_H
#define SP_PYTHON_GREENLETS_H

#include "core/run.h"
#include "python/state.h"

/* Import greenlet if it is installed. 0; -1 only with an exception that the user has to see. */
int sp_greenlets_load(void);

/* The same if the program has imported it already. */
int sp_greenlets_load_present(void);

/* greenlet has been loaded. */
extern bool sp_greenlets_loaded;

/* The greenlet that the calling thread runs, as a key that is never followed; NULL: its main one, or greenlet is not loaded. */
const void *sp_greenlets_running(void);

/* Follow the greenlets of the calling thread for the run, until run->follows is false. Never raises. */
void sp_greenlets_watch_thread(sp_run *run);

/* After run->follows became false: take the run's trace function out of the calling thread. Others go at their next switch. */
void sp_greenlets_unwatch_thread(sp_run *run);

int sp_python_add_greenlets(PyObject *module);

#endif
