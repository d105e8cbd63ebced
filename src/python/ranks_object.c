#include "python/ranks_object.h"

#include <stdlib.h>

#include "analysis/merge.h"
#include "analysis/stack.h"
#include "formats/ranks.h"
#include "platform/platform.h"
#include "python/delegate.h"
#include "python/hdf5_object.h"
#include "python/profile_object.h"
#include "python/recorder.h"

/* The Python object that moves bytes, and what it raised first. */
typedef struct python_link {
    PyObject *object;
    PyObject *raised;
    sp_hdf5_turn *turn; /* while it lasts the interpreter may have to be taken back for a message; NULL: it is held */
} python_link;

static void keep_exception(python_link *link)
{
    PyObject *raised = sp_exception_take();
    if (link->raised == NULL) link->raised = raised;
    else Py_XDECREF(raised);
}

static sp_status call_link(python_link *link, const char *method, int rank, void *data, size_t size, int flags,
                           double seconds)
{
    sp_status status = SP_ERR_IO;
    if (link->turn && link->turn->thread) PyEval_RestoreThread(link->turn->thread);
    PyObject *view = PyMemoryView_FromMemory(data, (Py_ssize_t)size, flags);
    PyObject *done = view ? PyObject_CallMethod(link->object, method, "iOd", rank, view, seconds) : NULL;
    const int arrived = done ? PyObject_IsTrue(done) : -1;
    if (arrived < 0) keep_exception(link);
    else status = arrived ? SP_OK : SP_ERR_BUSY;
    Py_XDECREF(done);
    Py_XDECREF(view);
    if (link->turn && link->turn->thread) link->turn->thread = PyEval_SaveThread();
    return status;
}

static sp_status link_send(sp_comm *comm, int to, const void *data, size_t size, double seconds)
{
    return call_link(comm->context, "send", to, (void *)data, size, PyBUF_READ, seconds);
}

static sp_status link_receive(sp_comm *comm, int from, void *data, size_t size, double seconds)
{
    return call_link(comm->context, "receive", from, data, size, PyBUF_WRITE, seconds);
}

static int number_attribute(PyObject *object, const char *name, double *value)
{
    PyObject *found = PyObject_GetAttrString(object, name);
    *value = found ? PyFloat_AsDouble(found) : -1;
    Py_XDECREF(found);
    return PyErr_Occurred() ? -1 : 0;
}

static int open_link(PyObject *object, python_link *link, sp_comm *comm)
{
    double rank, size, patience;
    if (number_attribute(object, "rank", &rank) < 0 || number_attribute(object, "size", &size) < 0 ||
        number_attribute(object, "patience", &patience) < 0) {
        return -1;
    }
    if (!(size >= 1 && size < INT32_MAX && rank >= 0 && rank < size)) {
        PyErr_SetString(PyExc_ValueError, "a link's rank must be one of its size");
        return -1;
    }
    *link = (python_link){.object = object};
    *comm = (sp_comm){.rank = (int)rank, .size = (int)size, .patience = patience, .send = link_send, .receive = link_receive,
                      .context = link};
    return 0;
}

/* Raise what went wrong, with what it means for this rank. What the link raised itself (an interrupt) comes first. */
static PyObject *raise_report(const sp_comm *comm, const sp_report *report, const sp_error *error, bool written,
                              const char *path)
{
    PyObject *kind, *value, *traceback;
    const python_link *link = comm->context;
    if (link->raised) PyErr_SetObject((PyObject *)Py_TYPE(link->raised), link->raised);
    else sp_python_raise((sp_status)report->status, error, path);
    PyErr_Fetch(&kind, &value, &traceback);
    PyErr_NormalizeException(&kind, &value, &traceback);
    if (value && (PyObject_SetAttrString(value, "written", written ? Py_True : Py_False) < 0 ||
                  PyObject_SetAttrString(value, "missing", report->missing ? Py_True : Py_False) < 0 ||
                  PyObject_SetAttrString(value, "cut_off", comm->cut_off ? Py_True : Py_False) < 0)) {
        PyErr_Clear();
    }
    PyErr_Restore(kind, value, traceback);
    return NULL;
}

static PyObject *share_ranks(PyObject *module, PyObject *args)
{
    PyObject *object;
    Py_buffer own;
    python_link link;
    sp_comm comm;
    sp_report report = {0};
    sp_bytes bytes = {0};
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "Oy*:share_ranks", &object, &own)) return NULL;
    if (open_link(object, &link, &comm) < 0) goto done;
    if (!sp_bytes_add(&bytes, own.buf, (size_t)own.len)) sp_report_note(&report, &comm, SP_ERR_NO_MEMORY, NULL);
    sp_comm_gather(&comm, &report, &bytes, NULL, NULL);
    sp_comm_broadcast(&comm, &report, &bytes);
    if (sp_report_may_go_on(&report) && link.raised == NULL) {
        result = Py_BuildValue("y#z", bytes.data ? bytes.data : "", (Py_ssize_t)bytes.size,
                               report.missing ? report.message : NULL);
    } else {
        sp_error error;
        sp_report_fail(&report, &error);
        raise_report(&comm, &report, &error, false, NULL);
    }
done:
    Py_XDECREF(link.raised);
    sp_bytes_free(&bytes);
    PyBuffer_Release(&own);
    return result;
}

static PyObject *sync_ranks(PyObject *module, PyObject *args)
{
    PyObject *object, *with;
    python_link link;
    sp_comm comm;
    sp_sync_point point;
    sp_error error;
    if (!PyArg_ParseTuple(args, "OO:sync_ranks", &object, &with)) return NULL;
    sp_run *run = sp_run_object_get(object);
    if (run == NULL || open_link(with, &link, &comm) < 0) return NULL;
    const sp_status status = sp_ranks_sync(&comm, sp_platform_clock_domain(), &point, &error);
    if (link.raised) PyErr_SetObject((PyObject *)Py_TYPE(link.raised), link.raised);
    else if (status != SP_OK) sp_python_raise(status, &error, NULL);
    Py_XDECREF(link.raised);
    if (PyErr_Occurred()) return NULL;
    if (comm.rank != 0 && point.error_ns >= 0) {
        run->started_at = point;
        run->against_rank_0 = true;
    }
    Py_RETURN_NONE;
}

static PyObject *collect_ranks(PyObject *module, PyObject *args)
{
    PyObject *object, *with;
    python_link link;
    sp_comm comm;
    sp_profile *all = NULL;
    sp_report report;
    sp_error error;
    if (!PyArg_ParseTuple(args, "OO:collect_ranks", &object, &with)) return NULL;
    sp_profile *profile = sp_profile_object_get(object);
    if (profile == NULL || open_link(with, &link, &comm) < 0) return NULL;
    const sp_status status = sp_ranks_collect(&comm, profile, &all, &report, &error);
    if (status == SP_OK && link.raised == NULL) return all ? sp_profile_object_new(all) : Py_NewRef(Py_None);
    raise_report(&comm, &report, &error, false, NULL);
    Py_XDECREF(link.raised);
    if (all) {
        PyObject *kind, *value, *traceback, *partial = NULL;
        PyErr_Fetch(&kind, &value, &traceback);
        partial = sp_profile_object_new(all);
        if (partial == NULL || PyObject_SetAttrString(value, "profile", partial) < 0) PyErr_Clear();
        Py_XDECREF(partial);
        PyErr_Restore(kind, value, traceback);
    }
    return NULL;
}

static PyObject *write_ranks(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"profile", "path", "link", "compression", "level", "chunk_size", "run", NULL};
    PyObject *object, *path = NULL, *with, *level = Py_None, *chunk_size = Py_None, *run = Py_None, *result = NULL;
    const char *compression = NULL;
    sp_hdf5_options options;
    sp_hdf5_turn turn;
    python_link link = {0};
    sp_comm comm;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO&O|$zOOO:write_ranks", keywords, &object, PyUnicode_FSConverter,
                                     &path, &with, &compression, &level, &chunk_size, &run)) {
        return NULL;
    }
    sp_profile *profile = sp_profile_object_get(object);
    if (profile == NULL || sp_hdf5_parse_options(compression, level, chunk_size, &options) < 0 ||
        (run != Py_None && sp_hdf5_tell_run(run, &options) < 0) || open_link(with, &link, &comm) < 0 ||
        sp_hdf5_turn_begin(&turn) < 0) {
        goto done;
    }
    link.turn = &turn;
    sp_report report;
    sp_error error = {0};
    bool written = false;
    const sp_status status =
        sp_ranks_write(&comm, profile, PyBytes_AS_STRING(path), &options, &written, &report, &error);
    sp_hdf5_turn_end(&turn);
    if (status == SP_OK && link.raised == NULL) result = Py_NewRef(Py_None);
    else raise_report(&comm, &report, &error, written, PyBytes_AS_STRING(path));
done:
    Py_XDECREF(link.raised);
    Py_DECREF(path);
    return result;
}

/* A run's end in a file of all ranks, under way. */
typedef struct finishing {
    PyObject *meet;        /* callable(calls) -> (path, description) | None */
    PyThreadState *thread; /* while the interpreter is released */
    python_link *link;
    sp_comm *comm;
    PyObject *name;      /* what `meet` returned as the path, and its bytes; NULL: it was not called, or there is nothing to write */
    PyObject *path;
    sp_profile *profile; /* what was chosen, once the ranks have met */
    PyObject *raised;    /* by Python, this is the end */
    sp_status status;    /* of the writing */
    sp_report report;
    sp_error error;
    bool written;
} finishing;

/* With the interpreter: how many calls there are is told to the others, and with what is known then the file gets its name and description. */
static int meet_others(finishing *f)
{
    int outcome = -1;
    PyObject *answer = PyObject_CallFunction(f->meet, "K", (unsigned long long)f->profile->call_count);
    PyObject *description = NULL;
    if (answer == Py_None) outcome = 0;
    else if (answer && PyArg_ParseTuple(answer, "OO:meet", &f->name, &description)) {
        const sp_profile *told = sp_profile_object_get(description);
        Py_INCREF(f->name);
        if (told && (sp_profile_copy_metadata(f->profile, told) != SP_OK || !sp_profile_add_aux(f->profile, told))) PyErr_NoMemory();
        else if (told && PyUnicode_FSConverter(f->name, &f->path)) outcome = 1;
    }
    Py_XDECREF(answer);
    return outcome;
}

/* For sp_run_finish: SP_OK where this rank's calls are in the file, although others may be missing there. */
static sp_status write_with_others(void *context, sp_collection *collection, const sp_hdf5_options *hdf5, sp_error *error)
{
    finishing *f = context;
    sp_hdf5_turn turn;
    f->profile = sp_profile_share(sp_collection_profile(collection));
    PyEval_RestoreThread(f->thread);
    const int met = meet_others(f);
    if (met > 0 && sp_hdf5_turn_begin(&turn) == 0) {
        f->link->turn = &turn;
        f->status = sp_ranks_write_collection(f->comm, collection, PyBytes_AS_STRING(f->path), hdf5, &f->written, &f->report, &f->error);
        sp_hdf5_turn_end(&turn);
    }
    f->raised = sp_exception_take();
    f->thread = PyEval_SaveThread();
    return f->written ? SP_OK : sp_fail(error, SP_ERR_IO, "not written");
}

/* What became of it. The path is added to `files` before any exception of a signal handler can come. */
static PyObject *report_finish(finishing *f, sp_status status, const sp_error *error, PyObject *files)
{
    if (f->raised) {
        PyErr_SetObject((PyObject *)Py_TYPE(f->raised), f->raised);
        return NULL;
    }
    if (f->path == NULL && f->profile == NULL) { /* the ranks did not meet */
        return status == SP_ERR_UNSUPPORTED ? Py_NewRef(Py_None) : sp_python_raise(status, error, NULL);
    }
    if (f->path && (f->status != SP_OK || f->link->raised)) {
        return raise_report(f->comm, &f->report, &f->error, f->written, PyBytes_AS_STRING(f->path));
    }
    if (f->path && PyList_Append(files, f->name) < 0) return NULL;
    return sp_profile_object_new(sp_profile_share(f->profile));
}

static PyObject *finish_ranks(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"run", "link", "meet", "files", "compression", "level", "chunk_size", NULL};
    PyObject *run, *with, *meet, *files, *level = Py_None, *chunk_size = Py_None;
    const char *compression = NULL;
    sp_hdf5_options hdf5;
    python_link link = {0};
    sp_comm comm;
    sp_error error = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO!|$zOO:finish_ranks", keywords, &run, &with, &meet, &PyList_Type, &files,
                                     &compression, &level, &chunk_size)) {
        return NULL;
    }
    finishing f = {.meet = meet, .link = &link, .comm = &comm};
    sp_finish_options options = {.path = "the file of all ranks", .hdf5 = &hdf5, .write = write_with_others, .context = &f};
    if (sp_run_object_get(run) == NULL || open_link(with, &link, &comm) < 0 ||
        sp_hdf5_parse_options(compression, level, chunk_size, &hdf5) < 0) {
        return NULL;
    }
    sp_run_object_refresh(run);
    f.thread = PyEval_SaveThread();
    const sp_status status = sp_run_object_finish(run, &options, NULL, &error);
    PyEval_RestoreThread(f.thread);
    PyObject *result = report_finish(&f, status, &error, files);
    sp_profile_release(f.profile);
    Py_XDECREF(link.raised);
    Py_XDECREF(f.raised);
    Py_XDECREF(f.name);
    Py_XDECREF(f.path);
    return result;
}

/* Profiles of processes side by side, with what they are called (None: nothing). */
static PyObject *stack_profiles(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"profiles", "names", "align", NULL};
    PyObject *profiles, *names, *result = NULL;
    int align = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$p:stack_profiles", keywords, &profiles, &names, &align)) return NULL;
    PyObject *sets = PySequence_Fast(profiles, "profiles must be a sequence");
    PyObject *texts = sets ? PySequence_Fast(names, "names must be a sequence") : NULL;
    const size_t count = texts ? (size_t)PySequence_Fast_GET_SIZE(sets) : 0;
    const sp_profile **parts = calloc(count + 1, sizeof *parts);
    const char **called = calloc(count + 1, sizeof *called);
    sp_profile *stacked = NULL;
    sp_error error;
    sp_status status;
    if (texts == NULL) goto done;
    if (parts == NULL || called == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    if ((size_t)PySequence_Fast_GET_SIZE(texts) != count) {
        PyErr_SetString(PyExc_ValueError, "there must be a name, or None, for each profile");
        goto done;
    }
    for (size_t i = 0; i < count; i++) {
        PyObject *name = PySequence_Fast_GET_ITEM(texts, (Py_ssize_t)i);
        parts[i] = sp_profile_object_get(PySequence_Fast_GET_ITEM(sets, (Py_ssize_t)i));
        if (parts[i] == NULL || (name != Py_None && (called[i] = PyUnicode_AsUTF8(name)) == NULL)) goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    status = sp_profile_stack(parts, called, count, align, &stacked, &error);
    Py_END_ALLOW_THREADS
    result = status == SP_OK ? sp_profile_object_new(stacked) : sp_python_raise(status, &error, NULL);
done:
    free(parts);
    free(called);
    Py_XDECREF(texts);
    Py_XDECREF(sets);
    return result;
}

static PyMethodDef functions[] = {
    {"stack_profiles", (PyCFunction)(void (*)(void))stack_profiles, METH_VARARGS | METH_KEYWORDS,
     "stack_profiles(profiles, names, *, align=False)\n--\n\n"
     "Processes side by side in one Profile; align moves their times onto the first one's clock. ValueError."},
    {"share_ranks", share_ranks, METH_VARARGS,
     "share_ranks(link, data) -> (bytes of all ranks in order, which rank is missing | None). Collective."},
    {"sync_ranks", sync_ranks, METH_VARARGS,
     "sync_ranks(run, link): compare the clocks of the ranks with rank 0's, as the start of the run. Collective."},
    {"collect_ranks", collect_ranks, METH_VARARGS,
     "collect_ranks(profile, link) -> Profile of all ranks on rank 0, None on the others. Collective."},
    {"write_ranks", (PyCFunction)(void (*)(void))write_ranks, METH_VARARGS | METH_KEYWORDS,
     "write_ranks(profile, path, link, *, compression='auto', level=None, chunk_size=None, run=None)\n--\n\n"
     "Write the profiles of all ranks to one file. Collective; a problem of any rank is raised on all of them."},
    {"finish_ranks", (PyCFunction)(void (*)(void))finish_ranks, METH_VARARGS | METH_KEYWORDS,
     "finish_ranks(run, link, meet, files, *, compression='auto', level=None, chunk_size=None)\n--\n\n"
     "The calls of the run into the file of all ranks, and confirm them. Collective, with ranks that call write_ranks too."},
    {NULL, NULL, 0, NULL},
};

int sp_python_add_ranks(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
