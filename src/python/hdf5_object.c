/*
 * hdf5_object.c - read_h5 and write_h5.
 *
 * libhdf5 is used without the GIL, under a lock of our own, where it is our own copy or thread-safe. Else h5py, or another
 * package, may be inside it at the same time: then the GIL is kept, and h5py's lock is taken where h5py is loaded, because
 * h5py lets go of the GIL inside the library.
 */
#include "python/hdf5_object.h"

#include <stdlib.h>
#include <string.h>

#include "formats/file_replace.h"
#include "formats/finish.h"
#include "formats/hdf5.h"
#include "python/profile_object.h"
#include "python/recorder.h"

/* h5py's lock, if h5py is loaded and we share libhdf5 with it. A new reference, or NULL without an exception. */
static PyObject *find_h5py_lock(void)
{
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *objects = modules ? PyDict_GetItemString(modules, "h5py._objects") : NULL;
    PyObject *lock = objects ? PyObject_GetAttrString(objects, "phil") : NULL;
    if (lock == NULL) PyErr_Clear();
    return lock;
}

int sp_hdf5_turn_begin(sp_hdf5_turn *turn)
{
    *turn = (sp_hdf5_turn){0};
    if (sp_hdf5_concurrent()) {
        turn->thread = PyEval_SaveThread();
        return 0;
    }
    turn->h5py_lock = find_h5py_lock();
    if (turn->h5py_lock) {
        PyObject *taken = PyObject_CallMethod(turn->h5py_lock, "acquire", NULL);
        if (taken == NULL) {
            Py_CLEAR(turn->h5py_lock);
            return -1;
        }
        Py_DECREF(taken);
    }
#ifdef Py_GIL_DISABLED
    turn->thread = PyEval_SaveThread();
#endif
    return 0;
}

void sp_hdf5_turn_end(sp_hdf5_turn *turn)
{
    if (turn->thread) PyEval_RestoreThread(turn->thread);
    if (turn->h5py_lock == NULL) return;
    PyObject *released = PyObject_CallMethod(turn->h5py_lock, "release", NULL);
    if (released == NULL) PyErr_WriteUnraisable(turn->h5py_lock);
    Py_XDECREF(released);
    Py_CLEAR(turn->h5py_lock);
}

/* -- arguments -- */

static int parse_compression(const char *name, sp_compression *compression)
{
    static const struct {
        const char *name;
        sp_compression compression;
    } known[] = {
        {"auto", SP_COMPRESSION_AUTO}, {"none", SP_COMPRESSION_NONE}, {"gzip", SP_COMPRESSION_GZIP},
        {"lzf", SP_COMPRESSION_LZF},   {"zstd", SP_COMPRESSION_ZSTD},
    };
    *compression = SP_COMPRESSION_AUTO;
    if (name == NULL) return 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, name) != 0) continue;
        *compression = known[i].compression;
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "unknown compression '%s': not auto, none, gzip, lzf or zstd", name);
    return -1;
}

int sp_hdf5_parse_options(const char *compression, PyObject *level, PyObject *chunk_size, sp_hdf5_options *options)
{
    *options = (sp_hdf5_options){.level = -1};
    if (parse_compression(compression, &options->compression) < 0) return -1;
    if (level != Py_None) {
        const long value = PyLong_AsLong(level);
        if (value == -1 && PyErr_Occurred()) return -1;
        options->level = value < 0 || value > 100 ? 100 : (int)value;
    }
    if (chunk_size != Py_None) {
        options->chunk_size = PyLong_AsUnsignedLongLong(chunk_size);
        if (PyErr_Occurred()) return -1;
        if (options->chunk_size == 0) {
            PyErr_SetString(PyExc_ValueError, "chunk_size must be positive");
            return -1;
        }
    }
    return 0;
}

/* -- functions -- */

/* A run's last collection is in this file. */
static void note_file(void *context, int fd, const char *target)
{
    sp_run *run = context;
    pthread_mutex_lock(&run->lock);
    const uint32_t collection = run->collection;
    pthread_mutex_unlock(&run->lock);
    sp_run_note_file(run, collection, fd, target);
}

int sp_hdf5_tell_run(PyObject *run, sp_hdf5_options *options)
{
    options->ready_context = sp_run_object_get(run);
    options->ready = note_file;
    return options->ready_context ? 0 : -1;
}

static PyObject *write_h5(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"profile", "path", "compression", "level", "chunk_size", "run", NULL};
    PyObject *object, *path = NULL, *level = Py_None, *chunk_size = Py_None, *run = Py_None, *result = NULL;
    const char *compression = NULL;
    sp_hdf5_options options = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO&|$zOOO:write_h5", keywords, &object, PyUnicode_FSConverter, &path,
                                     &compression, &level, &chunk_size, &run)) {
        return NULL;
    }
    sp_profile *profile = sp_profile_object_get(object);
    sp_hdf5_turn turn;
    if (profile == NULL || sp_hdf5_parse_options(compression, level, chunk_size, &options) < 0) goto done;
    if ((run != Py_None && sp_hdf5_tell_run(run, &options) < 0) || sp_hdf5_turn_begin(&turn) < 0) goto done;
    sp_error error = {0};
    const sp_status status = sp_hdf5_write(profile, PyBytes_AS_STRING(path), &options, &error);
    sp_hdf5_turn_end(&turn);
    if (status == SP_OK) result = Py_NewRef(Py_None);
    else sp_python_raise(status, &error, PyBytes_AS_STRING(path));
done:
    Py_DECREF(path);
    return result;
}

static PyObject *finish_h5(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"run", "path", "description", "files", "compression", "level", "chunk_size", NULL};
    PyObject *run, *name, *path = NULL, *description, *files, *level = Py_None, *chunk_size = Py_None, *result = NULL;
    const char *compression = NULL;
    sp_hdf5_options hdf5 = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO!|$zOO:finish_h5", keywords, &run, &name, &description, &PyList_Type, &files,
                                     &compression, &level, &chunk_size) ||
        !PyUnicode_FSConverter(name, &path)) {
        return NULL;
    }
    sp_finish_options options = {.path = PyBytes_AS_STRING(path), .hdf5 = &hdf5,
                                 .description = sp_profile_object_get(description)};
    sp_hdf5_turn turn;
    if (options.description == NULL || sp_run_object_get(run) == NULL) goto done;
    if (sp_hdf5_parse_options(compression, level, chunk_size, &hdf5) < 0) goto done;
    sp_run_object_refresh(run);
    if (sp_hdf5_turn_begin(&turn) < 0) goto done;
    sp_error error = {0};
    sp_profile *profile = NULL;
    const sp_status status = sp_run_object_finish(run, &options, &profile, &error);
    sp_hdf5_turn_end(&turn);
    if (status == SP_ERR_UNSUPPORTED) result = Py_NewRef(Py_None);
    else if (status != SP_OK) sp_python_raise(status, &error, PyBytes_AS_STRING(path));
    else if (PyList_Append(files, name) == 0) result = sp_profile_object_new(profile);
    else sp_profile_release(profile);
done:
    Py_DECREF(path);
    return result;
}

/* The texts of a sequence of str, or NULL for None: pointers into the strings, which `*kept` keeps alive. */
static int parse_regions(PyObject *value, PyObject **kept, const char ***names, size_t *count)
{
    *kept = NULL;
    *names = NULL;
    *count = 0;
    if (value == Py_None) return 0;
    *kept = PySequence_Tuple(value);
    if (*kept == NULL) return -1;
    const Py_ssize_t size = PyTuple_GET_SIZE(*kept);
    *names = malloc((size ? (size_t)size : 1) * sizeof **names);
    if (*names == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        (*names)[i] = PyUnicode_AsUTF8(PyTuple_GET_ITEM(*kept, i));
        if ((*names)[i] == NULL) return -1;
    }
    *count = (size_t)size;
    return 0;
}

/* Ranks of a sequence of int, or NULL for None; numbers that no rank has are left out. */
static int parse_ranks(PyObject *value, uint32_t **ranks, size_t *count)
{
    *ranks = NULL;
    *count = 0;
    if (value == Py_None) return 0;
    PyObject *fast = PySequence_Fast(value, "ranks must be a sequence of int");
    if (fast == NULL) return -1;
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(fast);
    *ranks = malloc((size ? (size_t)size : 1) * sizeof **ranks);
    if (*ranks == NULL) PyErr_NoMemory();
    for (Py_ssize_t i = 0; *ranks && !PyErr_Occurred() && i < size; i++) {
        PyObject *number = PyNumber_Index(PySequence_Fast_GET_ITEM(fast, i));
        int overflow = 0;
        const long long rank = number ? PyLong_AsLongLongAndOverflow(number, &overflow) : -1;
        Py_XDECREF(number);
        if (!overflow && rank >= 0 && rank <= UINT32_MAX) (*ranks)[(*count)++] = (uint32_t)rank;
    }
    Py_DECREF(fast);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *raise_for_reading(sp_status status, const sp_error *error, const char *path, bool summary)
{
    if (status != SP_ERR_UNSUPPORTED || !summary) return sp_python_raise(status, error, path);
    PyErr_SetString(sp_python_state->summary_error, error->message);
    return NULL;
}

static PyObject *read_h5(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"path", "summary", "regions", "ranks", "head", "fd", NULL};
    PyObject *path = NULL, *regions = Py_None, *ranks = Py_None, *kept = NULL, *result = NULL;
    int summary = 0, head = 0, fd = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|$pOOpi:read_h5", keywords, PyUnicode_FSConverter, &path, &summary,
                                     &regions, &ranks, &head, &fd)) {
        return NULL;
    }
    summary |= head;
    sp_hdf5_selection selection = {.summary = summary, .head = head};
    const char **names = NULL;
    uint32_t *rank_list = NULL;
    sp_hdf5_turn turn;
    if (parse_regions(regions, &kept, &names, &selection.region_count) < 0 ||
        parse_ranks(ranks, &rank_list, &selection.rank_count) < 0 || sp_hdf5_turn_begin(&turn) < 0) {
        goto done;
    }
    selection.regions = names;
    selection.ranks = rank_list;
    sp_error error = {0};
    sp_profile *profile = NULL;
    const sp_status status = fd >= 0
        ? sp_hdf5_read_open(fd, PyBytes_AS_STRING(path), &selection, &profile, &error)
        : sp_hdf5_read(PyBytes_AS_STRING(path), &selection, &profile, &error);
    sp_hdf5_turn_end(&turn);
    if (status == SP_OK) result = sp_profile_object_new(profile);
    else raise_for_reading(status, &error, PyBytes_AS_STRING(path), summary);
done:
    free(names);
    free(rank_list);
    Py_XDECREF(kept);
    Py_DECREF(path);
    return result;
}

static PyObject *check_output(PyObject *module, PyObject *argument)
{
    PyObject *path;
    if (!PyUnicode_FSConverter(argument, &path)) return NULL;
    sp_error error = {0};
    const sp_status status = sp_replace_check(PyBytes_AS_STRING(path), &error);
    if (status != SP_OK) sp_python_raise(status, &error, PyBytes_AS_STRING(path));
    Py_DECREF(path);
    return status == SP_OK ? Py_NewRef(Py_None) : NULL;
}

static PyObject *is_planted_link(PyObject *module, PyObject *argument)
{
    (void)module;
    PyObject *path = NULL;
    if (!PyUnicode_FSConverter(argument, &path)) return NULL;
    const bool planted = sp_replace_is_planted(PyBytes_AS_STRING(path));
    Py_DECREF(path);
    return PyBool_FromLong(planted);
}

static PyMethodDef functions[] = {
    {"read_h5", (PyCFunction)(void (*)(void))read_h5, METH_VARARGS | METH_KEYWORDS,
     "read_h5(path, *, summary=False, regions=None, ranks=None, head=False, fd=-1)\n--\n\n"
     "The profile in an HDF5 file, or its summary without the calls. head: a summary whose calls can be read later; else\n"
     "SummaryDataUnavailable. fd: an open descriptor of the file, which stays open."},
    {"write_h5", (PyCFunction)(void (*)(void))write_h5, METH_VARARGS | METH_KEYWORDS,
     "write_h5(profile, path, *, compression='auto', level=None, chunk_size=None, run=None)\n--\n\n"
     "Write schema 3 to a temporary file beside path, fsync, rename. run: whose collection it is, so that its spool knows."},
    {"finish_h5", (PyCFunction)(void (*)(void))finish_h5, METH_VARARGS | METH_KEYWORDS,
     "finish_h5(run, path, description, files, *, compression='auto', level=None, chunk_size=None)\n--\n\n"
     "collect, write_h5 and confirm in one, in bounded memory: the Profile without its calls. The path is added to the files.\n\n"
     "None, and nothing is done, if calls were collected that are not confirmed."},
    {"is_planted_link", is_planted_link, METH_O,
     "is_planted_link(path)\n--\n\nWhether there is a link that another user put into a directory that everybody may write to."},
    {"check_output", check_output, METH_O,
     "check_output(path)\n--\n\nOSError if a file could not be written to path now; makes nothing."},
    {NULL, NULL, 0, NULL},
};

int sp_python_add_hdf5(PyObject *module)
{
    PyObject *error = PyErr_NewExceptionWithDoc("scope_profiler.h5reader.SummaryDataUnavailable",
                                                "A file that holds no summary.", PyExc_ValueError, NULL);
    if (error == NULL) return -1;
    sp_python_state->summary_error = error;
    if (PyModule_AddObjectRef(module, "SummaryDataUnavailable", error) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}
