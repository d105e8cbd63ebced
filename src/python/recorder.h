/* recorder.h - what one manager records with: its switch, its regions and its current run. */
#ifndef SP_PYTHON_RECORDER_H
#define SP_PYTHON_RECORDER_H

#include "formats/finish.h"
#include "analysis/profile.h"
#include "python/region.h"

typedef struct sp_part {
    sp_profile *profile;
    int64_t *lanes; /* lane keys of its calls, when keep_lanes was set */
} sp_part;

typedef struct sp_run_object {
    PyObject_HEAD
    sp_run *run;
    pthread_mutex_t lock;  /* the five below; taken without the interpreter only */
    sp_part parts[2];      /* collected and not confirmed: one, or two that could not be joined yet */
    int part_count;
    int64_t next_call_id;  /* after what is confirmed */
    uint64_t confirmed;    /* calls, those of sums too */
    char keep_lanes;
    unsigned rank; /* of the process in a distributed run */
    sp_store *spool;       /* or NULL; a reference */
    PyObject *spool_path;  /* str, or None */
    struct sp_run_object *next_spooled;
} sp_run_object;

struct sp_recorder_object {
    PyObject_HEAD
    sp_switch gate;
    PyObject *regions;     /* dict: name -> Region, of the current run, in order of creation; always this dict */
    PyObject *run;         /* sp_run_object, or NULL */
    PyObject *enabled;     /* callable(name, tags) -> bool, or NULL */
    PyObject *source_path; /* callable(file name) -> str, or NULL */
    PyObject *on_functions; /* called with a region's name and what region() was given as its functions, or NULL */
    PyObject *hook;        /* the thread hook that is installed, or NULL */
    bool listed; /* among those with hooks in place */
    PyObject *task_hooks;  /* what scope_profiler._lanes has installed, or NULL */
    _Atomic(bool) capture_source;
    _Atomic(bool) paused;
    _Atomic(bool) open; /* records, or is paused */
    PyObject *weakrefs;
    sp_recorder_object *next_hooked;
};

/* Takes the run over, and the reference to the store, if there is one. */
sp_run_object *sp_run_object_new(sp_run *run, sp_store *spool, PyObject *spool_path);

/* The run of a Run, borrowed; NULL with a TypeError for anything else. */
sp_run *sp_run_object_get(PyObject *object);

/*
 * sp_run_finish of a Run's run, without the interpreter; options->first_call_id and rank are filled in. SP_ERR_UNSUPPORTED: calls that were
 * collected before are not confirmed yet. Before it, names are brought up to date (sp_run_object_refresh), with the interpreter.
 */
sp_status sp_run_object_finish(PyObject *object, sp_finish_options *options, sp_profile **out, sp_error *error);
void sp_run_object_refresh(PyObject *object);

/* The text of the `with` block or the function at a line of a file; NULL without an exception when it cannot be had. */
PyObject *sp_source_text(PyObject *file, int line);

/* The recorder's run; a new reference, or NULL without an exception. */
static inline sp_run_object *sp_recorder_current(sp_recorder_object *recorder)
{
    return (sp_run_object *)sp_field_get((PyObject *)recorder, &recorder->run);
}

/* Trace functions where sp_trace_mode says so (function_tracer.h), from now on. -1 with an exception. Idempotent. */
int sp_recorder_trace_inside(sp_recorder_object *recorder);

/* Let go of what the calling thread left pending when it ends. */
void sp_thread_watch_end(void);

/* Hook the start of threads for `run`: the hook object (new reference), or NULL with an exception. */
PyObject *sp_thread_hook_install(sp_run_object *run);
void sp_thread_hook_remove(PyObject *hook);

/* Names of threads that live, as they are now. With the interpreter held. */
void sp_thread_names_refresh(sp_run *run);

int sp_python_add_thread_hook(PyObject *module);

#endif
