/* records.h - rows of a run's thread and task tables as Python objects. */
#ifndef SP_PYTHON_RECORDS_H
#define SP_PYTHON_RECORDS_H

#include "python/recorder.h"

PyObject *sp_thread_record_view(sp_run_object *run, sp_thread_row *row);
PyObject *sp_task_record_view(sp_run_object *run, sp_task *task);

/* Methods of Run. */
PyObject *sp_run_thread_records(PyObject *run, PyObject *none);
PyObject *sp_run_task_records(PyObject *run, PyObject *none);
PyObject *sp_run_current_thread_record(PyObject *run, PyObject *none);

int sp_python_add_records(PyObject *module);

#endif
