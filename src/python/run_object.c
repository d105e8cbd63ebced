/* run_object.c - Run: one run of a recorder, as the manager collects it. */
#include "python/state.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/collect.h"
#include "analysis/merge.h"
#include "analysis/resolve.h"
#include "core/note.h"
#include "core/probe.h"
#include "core/values.h"
#include "formats/finish.h"
#include "formats/spool.h"
#include "python/call_probe.h"
#include "python/profile_object.h"
#include "python/overhead.h"
#include "python/recorder.h"
#include "python/records.h"
#include "python/task_wrapper.h"

#include <structmember.h>

static PyTypeObject *run_type;

/* ---- the end of spools ---- */

/*
 * Runs with a spool that is not finished. A run that lives until the interpreter has ended is never deallocated; its spool
 * is finished then, after everything that could still finalize it.
 */
static pthread_mutex_t spooled_lock = PTHREAD_MUTEX_INITIALIZER;
static sp_run_object *spooled;
static _Atomic(bool) exit_registered;

static void finish_all(void)
{
    sp_fork_hold();
    pthread_mutex_lock(&spooled_lock);
    for (sp_run_object *object = spooled; object; object = object->next_spooled) {
        if (!object->run->inherited) sp_spool_finish(object->spool, sp_run_has_unreported(object->run));
    }
    pthread_mutex_unlock(&spooled_lock);
    sp_fork_release();
}

static void spooled_add(sp_run_object *object)
{
    /* Before the lock is taken: without the GIL this may have to wait, and let the interpreter be stopped. */
    if (!atomic_exchange(&exit_registered, true) && Py_AtExit(finish_all) != 0) atomic_store(&exit_registered, false);
    sp_fork_hold();
    pthread_mutex_lock(&spooled_lock);
    object->next_spooled = spooled;
    spooled = object;
    pthread_mutex_unlock(&spooled_lock);
    sp_fork_release();
}

static void spooled_remove(const sp_run_object *object)
{
    sp_fork_hold();
    pthread_mutex_lock(&spooled_lock);
    for (sp_run_object **link = &spooled; *link; link = &(*link)->next_spooled) {
        if (*link != object) continue;
        *link = object->next_spooled;
        break;
    }
    pthread_mutex_unlock(&spooled_lock);
    sp_fork_release();
}

/* ---- a run object ---- */

sp_run_object *sp_run_object_new(sp_run *run, sp_store *spool, PyObject *spool_path)
{
    if (spool) sp_spool_begin(spool, run->started, run->start_ns);
    sp_run_object *object = PyObject_New(sp_run_object, run_type);
    if (object == NULL) {
        if (spool) sp_spool_finish(spool, false);
        if (spool) spool->operations->release(spool);
        sp_run_drop(run);
        return NULL;
    }
    object->spool = spool;
    object->spool_path = Py_NewRef(spool_path);
    object->run = run;
    memset(object->parts, 0, sizeof object->parts);
    object->part_count = 0;
    object->next_call_id = 0;
    object->confirmed = 0;
    object->keep_lanes = 0;
    object->rank = 0;
    pthread_mutex_init(&object->lock, NULL);
    if (spool) spooled_add(object);
    return object;
}

sp_run *sp_run_object_get(PyObject *object)
{
    if (Py_IS_TYPE(object, run_type)) return ((sp_run_object *)object)->run;
    PyErr_Format(PyExc_TypeError, "a Run is needed, not %.100s", Py_TYPE(object)->tp_name);
    return NULL;
}

static void part_free(sp_part *part)
{
    if (part->profile) sp_column_free(part->lanes, part->profile->call_count);
    sp_profile_release(part->profile);
    *part = (sp_part){0};
}

static void run_dealloc(PyObject *self)
{
    sp_run_object *object = (sp_run_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (object->spool) {
        spooled_remove(object);
        if (!object->run->inherited) sp_spool_finish(object->spool, sp_run_has_unreported(object->run));
        object->spool->operations->release(object->spool);
    }
    Py_XDECREF(object->spool_path);
    part_free(&object->parts[0]);
    part_free(&object->parts[1]);
    sp_python_probe_end(object->run);
    pthread_mutex_destroy(&object->lock);
    sp_run_drop(object->run);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- collect ---- */

/*
 * A fork waits meanwhile, so that a child has the parts whole and their lock free. The interpreter must not be waited for in
 * between: the one who forks may hold it.
 */
static void parts_lock(sp_run_object *object)
{
    sp_fork_hold();
    pthread_mutex_lock(&object->lock);
}

static void parts_unlock(sp_run_object *object)
{
    pthread_mutex_unlock(&object->lock);
    sp_fork_release();
}

static const sp_row *row_of_name(const sp_profile *profile, const char *name, size_t *from)
{
    /* Rows of both profiles are in order of creation, so that the search goes on where it stopped. */
    for (size_t i = *from; i < profile->row_count; i++) {
        if (strcmp(profile->names[profile->rows[i].name], name) == 0) {
            *from = i + 1;
            return &profile->rows[i];
        }
    }
    return NULL;
}

/* The lane keys of the rows of `merged`, row by row those of the first part, then those of the second. */
static int64_t *merge_lanes(const sp_profile *merged, const sp_profile *const parts[2], int64_t *const lanes[2])
{
    int64_t *out = sp_column_alloc(merged->call_count);
    size_t from[2] = {0, 0};
    for (size_t i = 0; out && i < merged->row_count; i++) {
        uint64_t at = merged->rows[i].first;
        for (int part = 0; part < 2; part++) {
            const sp_row *row = row_of_name(parts[part], merged->names[merged->rows[i].name], &from[part]);
            if (row == NULL) {
                from[part] = 0;
                row = row_of_name(parts[part], merged->names[merged->rows[i].name], &from[part]);
            }
            if (row == NULL) continue;
            for (uint64_t k = 0; k < row->count; k++, at++) out[at] = lanes[part] ? lanes[part][row->first + k] : -1;
        }
    }
    return out;
}

/* What was collected before and not confirmed, and what is new, as one part. */
static sp_status join(sp_run_object *object, sp_error *error)
{
    const sp_profile *parts[2] = {object->parts[0].profile, object->parts[1].profile};
    int64_t *const lanes[2] = {object->parts[0].lanes, object->parts[1].lanes};
    sp_part joined = {0};
    sp_status status = sp_profile_merge(parts, 2, &joined.profile, error);
    if (status != SP_OK) return status;
    status = sp_profile_resolve(joined.profile, object->next_call_id, error);
    if (status == SP_OK && (lanes[0] || lanes[1])) {
        joined.lanes = merge_lanes(joined.profile, parts, lanes);
        if (joined.lanes == NULL) status = sp_fail(error, SP_ERR_NO_MEMORY, "no memory for the lanes of the calls");
    }
    if (status != SP_OK) {
        part_free(&joined);
        return status;
    }
    part_free(&object->parts[0]);
    part_free(&object->parts[1]);
    object->parts[0] = joined;
    object->part_count = 1;
    return SP_OK;
}

/* With the lock held. */
static void count_confirmed(sp_run_object *object, const sp_profile *profile)
{
    object->next_call_id += (int64_t)profile->call_count;
    object->confirmed += sp_profile_calls(profile);
}

/*
 * Collected calls are off the run for good, so they stay in `parts` whatever fails after: a part that could not be joined
 * is joined by the next collection.
 */
static sp_status collect(sp_run_object *object, sp_error *error)
{
    sp_status status = object->part_count == 2 ? join(object, error) : SP_OK;
    if (status != SP_OK) return status;
    sp_part *fresh = &object->parts[object->part_count];
    status = sp_run_collect(object->run, object->rank, object->next_call_id, &fresh->profile,
                            object->keep_lanes ? &fresh->lanes : NULL, error);
    if (status != SP_OK) return status;
    object->part_count++;
    return object->part_count == 2 ? join(object, error) : SP_OK;
}

/*
 * Up to this many calls (about 20 ms) the interpreter is held while they are collected: threads that record without a pause
 * would otherwise make calls faster than a checkpoint can report them, and each checkpoint would take longer than the last.
 */
#define HELD_CALLS ((uint64_t)1 << 19)

void sp_run_object_refresh(PyObject *object)
{
    sp_run *run = ((sp_run_object *)object)->run;
    sp_thread_names_refresh(run);
    sp_task_names_refresh(run);
}

sp_status sp_run_object_finish(PyObject *self, sp_finish_options *options, sp_profile **out, sp_error *error)
{
    sp_run_object *object = (sp_run_object *)self;
    parts_lock(object);
    const bool collected = object->part_count > 0;
    options->first_call_id = object->next_call_id;
    options->rank = object->rank;
    parts_unlock(object);
    if (collected) return SP_ERR_UNSUPPORTED;
    sp_profile *profile;
    const sp_status status = sp_run_finish(object->run, options, &profile, error);
    if (status != SP_OK) return status;
    parts_lock(object);
    count_confirmed(object, profile);
    parts_unlock(object);
    if (out) *out = profile;
    else sp_profile_release(profile);
    return SP_OK;
}

static PyObject *run_collect(PyObject *self, PyObject *none)
{
    sp_run_object *object = (sp_run_object *)self;
    sp_profile *profile = NULL;
    sp_error error;
    sp_status status;
    sp_run_object_refresh(self);
    PyThreadState *released = sp_run_uncollected(object->run) > HELD_CALLS ? PyEval_SaveThread() : NULL;
    parts_lock(object);
    status = collect(object, &error);
    if (status == SP_OK) profile = sp_profile_share(object->parts[0].profile);
    parts_unlock(object);
    if (released) PyEval_RestoreThread(released);
    return status == SP_OK ? sp_profile_object_new(profile) : sp_python_raise(status, &error, NULL);
}

/* A profile with the lane tables of now and no calls. */
static PyObject *run_tables(PyObject *self, PyObject *none)
{
    sp_run *run = ((sp_run_object *)self)->run;
    sp_run_object_refresh(self);
    sp_profile *profile = sp_profile_new();
    if (profile == NULL) return PyErr_NoMemory();
    sp_error error;
    const sp_status status = sp_run_tables(run, ((sp_run_object *)self)->rank, profile, &error);
    if (status == SP_OK) return sp_profile_object_new(profile);
    sp_profile_release(profile);
    return sp_python_raise(status, &error, NULL);
}

static PyObject *run_collect_lanes(PyObject *self, PyObject *none)
{
    sp_run_object *object = (sp_run_object *)self;
    size_t size = 0;
    bool kept = false;
    void *copy = NULL;
    Py_BEGIN_ALLOW_THREADS
    parts_lock(object);
    const sp_part *part = &object->parts[0];
    if (object->part_count && part->lanes) {
        kept = true;
        size = (size_t)part->profile->call_count * sizeof(int64_t);
        copy = malloc(size ? size : 1);
        if (copy) memcpy(copy, part->lanes, size);
    }
    parts_unlock(object);
    Py_END_ALLOW_THREADS
    if (!kept) Py_RETURN_NONE;
    if (copy == NULL) return PyErr_NoMemory();
    PyObject *lanes = PyBytes_FromStringAndSize(copy, (Py_ssize_t)size);
    free(copy);
    return lanes;
}

/* The file's name is added here, so that no exception of a signal handler comes between that and what it is about. */
static PyObject *run_confirm(PyObject *self, PyObject *arguments)
{
    sp_run_object *object = (sp_run_object *)self;
    PyObject *files = NULL, *path = NULL;
    if (!PyArg_ParseTuple(arguments, "|O!O:confirm", &PyList_Type, &files, &path)) return NULL;
    if (path && PyList_Append(files, path) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    parts_lock(object);
    if (object->part_count) {
        if (object->part_count == 1) sp_run_confirm(object->run);
        count_confirmed(object, object->parts[0].profile);
        part_free(&object->parts[0]);
        /* A part that a failed collection left beside it was not reported. */
        object->parts[0] = object->parts[1];
        object->parts[1] = (sp_part){0};
        object->part_count--;
    }
    parts_unlock(object);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* ---- what is open, how much was counted ---- */

/* ---- the spool ---- */

static PyObject *run_finish_spool(PyObject *self, PyObject *keep)
{
    sp_run_object *object = (sp_run_object *)self;
    const int truth = PyObject_IsTrue(keep);
    if (truth < 0) return NULL;
    if (object->spool) sp_spool_finish(object->spool, truth);
    Py_RETURN_NONE;
}

static PyObject *run_note_metadata(PyObject *self, PyObject *text)
{
    sp_run *run = ((sp_run_object *)self)->run;
    const char *bytes = PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : NULL;
    if (bytes == NULL) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "metadata must be JSON text");
        return NULL;
    }
    pthread_mutex_lock(&run->lock);
    sp_note(run, SP_NOTE_METADATA, 0, bytes);
    pthread_mutex_unlock(&run->lock);
    Py_RETURN_NONE;
}

static PyObject *run_note_scope(PyObject *self, PyObject *arguments)
{
    sp_run *run = ((sp_run_object *)self)->run;
    unsigned long long scope, start, end;
    long long lane;
    const char *text;
    if (!PyArg_ParseTuple(arguments, "KLKKs:note_scope", &scope, &lane, &start, &end, &text)) return NULL;
    if (end == 0) return PyLong_FromUnsignedLongLong(sp_values_open(run, lane, start, text));
    sp_values_close(run, scope, lane, start, end, text);
    return PyLong_FromLong(0);
}

static PyObject *run_note_outcome(PyObject *self, PyObject *arguments)
{
    long long lane;
    unsigned long long start;
    PyObject *name;
    const char *text;
    if (!PyArg_ParseTuple(arguments, "LKUs:note_outcome", &lane, &start, &name, &text)) return NULL;
    const char *region = PyUnicode_AsUTF8(name);
    if (region) sp_values_outcome(((sp_run_object *)self)->run, lane, start, region, text);
    else PyErr_Clear(); /* lone surrogates: it is in memory, and in the file in the end */
    Py_RETURN_NONE;
}

static PyObject *run_mark_values(PyObject *self, PyObject *none)
{
    return PyLong_FromUnsignedLong(sp_values_mark(((sp_run_object *)self)->run));
}

static PyObject *run_drop_values(PyObject *self, PyObject *mark)
{
    const unsigned long until = PyLong_AsUnsignedLong(mark);
    if (until == (unsigned long)-1 && PyErr_Occurred()) return NULL;
    sp_values_drop(((sp_run_object *)self)->run, (uint32_t)until);
    Py_RETURN_NONE;
}

static PyObject *run_spool_path(PyObject *self, void *closure)
{
    return Py_NewRef(((sp_run_object *)self)->spool_path);
}

static PyObject *run_unreported(PyObject *self, void *closure)
{
    return PyBool_FromLong(sp_run_has_unreported(((sp_run_object *)self)->run));
}

static PyObject *run_confirmed(PyObject *self, void *closure)
{
    (void)closure;
    sp_run_object *object = (sp_run_object *)self;
    uint64_t calls;
    Py_BEGIN_ALLOW_THREADS
    parts_lock(object);
    calls = object->confirmed;
    parts_unlock(object);
    Py_END_ALLOW_THREADS
    return PyLong_FromUnsignedLongLong(calls);
}

static PyObject *run_uncollected(PyObject *self, void *closure)
{
    return PyLong_FromUnsignedLongLong(sp_run_uncollected(((sp_run_object *)self)->run));
}

static PyObject *run_open_calls(PyObject *self, PyObject *none)
{
    sp_run *run = ((sp_run_object *)self)->run;
    uint32_t *ids;
    size_t count;
    sp_error error;
    const sp_status status = sp_run_open_calls(run, &ids, &count, &error);
    if (status != SP_OK) return sp_python_raise(status, &error, NULL);
    PyObject *names = PyList_New(0);
    for (size_t i = 0; names && i < count; i++) {
        pthread_mutex_lock(&run->lock);
        const char *name = run->regions[ids[i]]->name;
        const bool function = run->regions[ids[i]]->function;
        pthread_mutex_unlock(&run->lock);
        if (function) continue;
        PyObject *text = PyUnicode_FromString(name);
        if (text == NULL || PyList_Append(names, text) < 0) Py_CLEAR(names);
        Py_XDECREF(text);
    }
    free(ids);
    return names;
}

static PyObject *run_call_counts(PyObject *self, PyObject *none)
{
    sp_run *run = ((sp_run_object *)self)->run;
    size_t count;
    uint64_t *entries = sp_run_all_entries(run, &count);
    if (entries == NULL) return PyErr_NoMemory();
    PyObject *counts = PyDict_New();
    for (size_t i = 0; counts && i < count; i++) {
        /* Regions are never taken out, nor their names changed. */
        pthread_mutex_lock(&run->lock);
        const char *name = run->regions[i]->name;
        pthread_mutex_unlock(&run->lock);
        PyObject *value = PyLong_FromUnsignedLongLong(entries[i]);
        if (value == NULL || PyDict_SetItemString(counts, name, value) < 0) Py_CLEAR(counts);
        Py_XDECREF(value);
    }
    free(entries);
    return counts;
}

/* ---- lanes and time ---- */

static PyObject *run_lane(PyObject *self, PyObject *none)
{
    sp_run *run = ((sp_run_object *)self)->run;
    sp_log *log = sp_run_log(run);
    if (log == NULL) return PyLong_FromLong(-1);
    const sp_task *task = log->lane == NULL && run->tracks_tasks ? sp_task_adopt(log) : log->lane;
    return PyLong_FromLongLong(task ? task->index : -2 - (long long)log->row->index);
}

static PyObject *run_ticks(PyObject *self, PyObject *none)
{
    return PyLong_FromUnsignedLongLong(sp_clock_read());
}

static PyObject *run_to_ns(PyObject *self, PyObject *ticks)
{
    const unsigned long long value = PyLong_AsUnsignedLongLong(ticks);
    if (value == (unsigned long long)-1 && PyErr_Occurred()) return NULL;
    return PyLong_FromLongLong(sp_run_to_ns(((sp_run_object *)self)->run, value));
}

static PyObject *run_start_ns(PyObject *self, void *closure)
{
    return PyLong_FromLongLong(((sp_run_object *)self)->run->start_ns);
}

static PyObject *run_track_threads(PyObject *self, void *closure)
{
    return PyBool_FromLong(((sp_run_object *)self)->run->tracks_threads);
}

static PyObject *run_track_async(PyObject *self, void *closure)
{
    return PyBool_FromLong(((sp_run_object *)self)->run->tracks_tasks);
}

static PyObject *run_unmatched(PyObject *self, void *closure)
{
    return PyLong_FromUnsignedLongLong(atomic_load(&((sp_run_object *)self)->run->unmatched));
}

static PyObject *run_inherited(PyObject *self, void *closure)
{
    return PyBool_FromLong(((sp_run_object *)self)->run->inherited);
}

static PyObject *run_lost(PyObject *self, void *closure)
{
    sp_run *run = ((sp_run_object *)self)->run;
    pthread_mutex_lock(&run->lock);
    const uint64_t lost = sp_run_lost(run);
    pthread_mutex_unlock(&run->lock);
    return PyLong_FromUnsignedLongLong(lost);
}

static PyObject *run_vanished(PyObject *self, void *closure)
{
    (void)closure;
    const sp_run *run = ((sp_run_object *)self)->run;
    if (sp_run_lost_pages(run) == 0) Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(atomic_load(&run->vanished));
}

static PyObject *run_limited(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(atomic_load(&((sp_run_object *)self)->run->limited));
}

static PyObject *run_dropped(PyObject *self, void *closure)
{
    (void)closure;
    sp_run *run = ((sp_run_object *)self)->run;
    pthread_mutex_lock(&run->lock);
    const uint64_t calls = run->dropped_calls;
    const sp_ticks until = run->dropped_until;
    pthread_mutex_unlock(&run->lock);
    return Py_BuildValue("KL", (unsigned long long)calls, (long long)(calls ? sp_run_to_ns(run, until) : 0));
}

static PyObject *run_failures(PyObject *self, void *closure)
{
    (void)closure;
    return sp_python_probe_failures(((sp_run_object *)self)->run);
}

static PyObject *run_counters(PyObject *self, PyObject *none)
{
    (void)none;
    return sp_python_counters(((sp_run_object *)self)->run);
}

static PyObject *run_end_counters(PyObject *self, PyObject *none)
{
    (void)none;
    sp_run_probe_end(((sp_run_object *)self)->run);
    Py_RETURN_NONE;
}

static PyObject *run_unsaved(PyObject *self, void *closure)
{
    (void)closure;
    uint64_t unsaved;
    sp_run *run = ((sp_run_object *)self)->run;
    Py_BEGIN_ALLOW_THREADS
    unsaved = sp_run_unsaved(run);
    Py_END_ALLOW_THREADS
    return PyLong_FromUnsignedLongLong(unsaved);
}

/* ---- the type ---- */

static PyGetSetDef run_getset[] = {
    {"start_ns", run_start_ns, NULL, "Start of the run, ns of time.perf_counter_ns().", NULL},
    {"track_threads", run_track_threads, NULL, "Whether calls carry their thread.", NULL},
    {"track_async", run_track_async, NULL, "Whether calls carry their task.", NULL},
    {"unmatched", run_unmatched, NULL, "Exits that belonged to no open call.", NULL},
    {"spool_path", run_spool_path, NULL, "The file in which the run survives its process, or None.", NULL},
    {"uncollected", run_uncollected, NULL, "Entries that no collection has taken, open ones included.", NULL},
    {"confirmed", run_confirmed, NULL, "Calls that are in a file.", NULL},
    {"unreported", run_unreported, NULL, "Whether calls would be lost if the run went now.", NULL},
    {"lost", run_lost, NULL, "Calls for which there was no memory, and those that vanished.", NULL},
    {"vanished", run_vanished, NULL,
     "Calls that were in the spool when it was cut off or its disk failed, as far as a collection met with them; None: it is whole.", NULL},
    {"limited", run_limited, NULL, "Whether recording stopped because the spool had reached its limit.", NULL},
    {"dropped", run_dropped, NULL, "Calls that went to keep newer ones, and until when (ns; 0: none).", NULL},
    {"unsaved", run_unsaved, NULL, "Calls that have ended, are in no file, and not in the spool for want of room.", NULL},
    {"failures", run_failures, NULL, "How often a function of the run's instrument failed, and the first exception or None.", NULL},
    {"inherited", run_inherited, NULL, "Whether this process is a forked child of the one that opened the run.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef run_members[] = {
    {"keep_lanes", T_BOOL, offsetof(sp_run_object, keep_lanes), 0,
     "Whether collect() keeps the lane of every call for collect_lanes()."},
    {"rank", T_UINT, offsetof(sp_run_object, rank), 0, "The rank that collected calls are of."},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef run_methods[] = {
    {"collect", run_collect, METH_NOARGS,
     "Every closed call that is not confirmed yet, as a Profile with the call tree resolved; callable while others record.\n\n"
     "MemoryError: nothing is lost, the calls are in the next collection."},
    {"collect_lanes", run_collect_lanes, METH_NOARGS,
     "The lane key (see lane()) of each call of the profile that collect() returned last, int64 in column order, as bytes;\n"
     "None unless keep_lanes was set."},
    {"confirm", run_confirm, METH_VARARGS,
     "confirm(files=[], path=None): what collect() returned last is written, never report it again. The path is added to the files."},
    {"finish_spool", run_finish_spool, METH_O, "Remove the spool, or leave it (keep=True). Nothing more is written to it."},
    {"note_scope", run_note_scope, METH_VARARGS,
     "note_scope(scope, lane, start, end, text): tell the spool of a metadata scope. With end 0 it begins; the result ends it."},
    {"note_outcome", run_note_outcome, METH_VARARGS, "note_outcome(lane, start, region, text): tell the spool of one call's metadata."},
    {"mark_values", run_mark_values, METH_NOARGS, "What the spool knows of scopes and outcomes until now, for drop_values()."},
    {"drop_values", run_drop_values, METH_O, "The calls that they belong to are in a file."},
    {"note_metadata", run_note_metadata, METH_O, "Put the run's metadata (JSON text) into the spool."},
    {"counters", run_counters, METH_NOARGS,
     "({region: (calls, [(value, ns enabled, ns running) of each event])}, calls that were not counted) since the run began;\n"
     "None unless it counts events."},
    {"end_counters", run_end_counters, METH_NOARGS, "Close what counts events; what was counted stays."},
    {"open_calls", run_open_calls, METH_NOARGS, "The region name of every call that is open now."},
    {"call_counts", run_call_counts, METH_NOARGS, "{region name: entries so far}, open ones included, in order of creation."},
    {"tables", run_tables, METH_NOARGS, "The tables of threads and tasks as they are now: a Profile without calls."},
    {"thread_records", sp_run_thread_records, METH_NOARGS, "A ThreadRecord for every registered thread, in order."},
    {"task_records", sp_run_task_records, METH_NOARGS, "A TaskRecord for every task and greenlet, in order of creation."},
    {"current_thread", sp_run_current_thread_record, METH_NOARGS,
     "The calling thread's ThreadRecord; registers it. RuntimeError once the run is gone."},
    {"overhead", sp_run_overhead, METH_NOARGS,
     "(calls, ns of one): how many there are so far, and what recording one takes at least, measured now."},
    {"lane", run_lane, METH_NOARGS, "Key of the lane the caller is on: its task's index, else -2 - its thread's row index."},
    {"ticks", run_ticks, METH_NOARGS, "Now, on the clock that calls are stamped with."},
    {"to_ns", run_to_ns, METH_O, "Ticks as ns of time.perf_counter_ns()."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot run_slots[] = {
    {Py_tp_dealloc, run_dealloc},
    {Py_tp_getset, run_getset},
    {Py_tp_members, run_members},
    {Py_tp_methods, run_methods},
    {Py_tp_doc, "One run of a recorder."},
    {0, NULL},
};

static PyType_Spec run_spec = {
    .name = "scope_profiler._core.Run",
    .basicsize = sizeof(sp_run_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = run_slots,
};

static PyObject *now_ns(PyObject *module, PyObject *none)
{
    return PyLong_FromLongLong(sp_clock_ns());
}

static PyMethodDef functions[] = {
    {"now_ns", now_ns, METH_NOARGS, "Nanoseconds of the clock behind time.perf_counter_ns()."},
    {NULL, NULL, 0, NULL},
};

int sp_python_add_run(PyObject *module)
{
    run_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &run_spec, NULL);
    if (run_type == NULL || PyModule_AddFunctions(module, functions) < 0) return -1;
    return PyModule_AddObjectRef(module, "Run", (PyObject *)run_type);
}
