#include "python/call_tree_object.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/merge.h"
#include "analysis/resolve.h"
#include "python/profile_object.h"

/* -- values ----------------------------------------------------------------------------------------------------------- */

/* The exporter behind the memoryviews of computed columns. Theirs alone, hence writable. */
typedef struct values_object {
    PyObject_HEAD
    int64_t *column;
    Py_ssize_t count, stride;
} values_object;

static int values_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    values_object *values = (values_object *)self;
    view->obj = Py_NewRef(self);
    view->buf = values->column;
    view->len = values->count * (Py_ssize_t)sizeof(int64_t);
    view->readonly = 0;
    view->itemsize = sizeof(int64_t);
    view->format = flags & PyBUF_FORMAT ? "q" : NULL;
    view->ndim = 1;
    view->shape = flags & PyBUF_ND ? &values->count : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? &values->stride : NULL;
    view->suboffsets = NULL;
    view->internal = NULL;
    return 0;
}

static void values_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    values_object *values = (values_object *)self;
    sp_column_recycle(values->column, (uint64_t)values->count);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot values_slots[] = {
    {Py_bf_getbuffer, values_getbuffer},
    {Py_tp_dealloc, values_dealloc},
    {0, NULL},
};

static PyType_Spec values_spec = {
    .name = "scope_profiler._core._Values",
    .basicsize = sizeof(values_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = values_slots,
};

PyObject *sp_values_new(int64_t *column, uint64_t count)
{
    PyTypeObject *type = sp_python_state->values_type;
    values_object *values = (values_object *)type->tp_alloc(type, 0);
    if (values == NULL) {
        sp_column_recycle(column, count);
        return NULL;
    }
    values->column = column;
    values->count = (Py_ssize_t)count;
    values->stride = sizeof(int64_t);
    PyObject *view = PyMemoryView_FromObject((PyObject *)values);
    Py_DECREF(values);
    return view;
}

/* -- input ------------------------------------------------------------------------------------------------------------ */

enum { START, END, THREAD, TASK, ID, COLUMNS };

/* The regions as Python gave them. `calls` points into the buffers. */
typedef struct input {
    PyObject *names; /* tuple */
    sp_calls *calls;
    Py_buffer *buffers; /* COLUMNS a region */
    Py_ssize_t count;
} input;

static void input_clear(input *in)
{
    for (Py_ssize_t i = 0; in->buffers && i < in->count * COLUMNS; i++) {
        if (in->buffers[i].obj) PyBuffer_Release(&in->buffers[i]);
    }
    PyMem_Free(in->buffers);
    PyMem_Free(in->calls);
    Py_CLEAR(in->names);
    *in = (input){0};
}

static int is_int64(const Py_buffer *view)
{
    return view->itemsize == 8 && view->ndim == 1 && view->format &&
           (strcmp(view->format, "q") == 0 || strcmp(view->format, "l") == 0);
}

static int read_region(input *in, Py_ssize_t index, PyObject *region)
{
    static const char *const columns[COLUMNS] = {"start", "end", "thread", "task", "id"};
    const Py_ssize_t given = PyTuple_Check(region) ? PyTuple_GET_SIZE(region) : 0;
    if (given != COLUMNS && given != ID) {
        PyErr_SetString(PyExc_TypeError, "a region is a tuple (start, end, thread or None, task or None[, id or None])");
        return -1;
    }
    const int64_t *data[COLUMNS] = {0};
    for (int c = 0; c < given; c++) {
        PyObject *column = PyTuple_GET_ITEM(region, c);
        if (c >= THREAD && column == Py_None) continue;
        Py_buffer *view = &in->buffers[index * COLUMNS + c];
        if (PyObject_GetBuffer(column, view, PyBUF_ND | PyBUF_FORMAT) < 0) return -1;
        if (!is_int64(view)) {
            PyErr_Format(PyExc_TypeError, "the %s column of region %zd is not one-dimensional int64", columns[c], index);
            return -1;
        }
        if (view->shape[0] != in->buffers[index * COLUMNS].shape[0]) {
            PyErr_Format(PyExc_ValueError, "region %R has %zd start values, but %zd %s values",
                         PyTuple_GET_ITEM(in->names, index), in->buffers[index * COLUMNS].shape[0],
                         view->shape[0], columns[c]);
            return -1;
        }
        data[c] = view->buf;
    }
    in->calls[index] = (sp_calls){.start_ns = data[START],
                                  .end_ns = data[END],
                                  .thread = data[THREAD],
                                  .task = data[TASK],
                                  .id = data[ID],
                                  .count = (uint64_t)in->buffers[index * COLUMNS].shape[0]};
    return 0;
}

static int input_read(input *in, PyObject *regions, PyObject *names)
{
    *in = (input){0};
    PyObject *list = PySequence_Tuple(regions);
    if (list == NULL) return -1;
    int result = -1;
    in->names = PySequence_Tuple(names);
    if (in->names == NULL) goto done;
    in->count = PyTuple_GET_SIZE(list);
    if (PyTuple_GET_SIZE(in->names) != in->count) {
        PyErr_SetString(PyExc_ValueError, "as many names as regions are needed");
        goto done;
    }
    in->calls = PyMem_Calloc((size_t)in->count + 1, sizeof *in->calls);
    in->buffers = PyMem_Calloc((size_t)(in->count + 1) * COLUMNS, sizeof *in->buffers);
    if (!in->calls || !in->buffers) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < in->count; i++) {
        if (read_region(in, i, PyTuple_GET_ITEM(list, i)) < 0) goto done;
    }
    result = 0;
done:
    Py_DECREF(list);
    if (result < 0) input_clear(in);
    return result;
}

/* -- output ----------------------------------------------------------------------------------------------------------- */

/* The tree as a tuple of views; the columns pass over to them. */
static PyObject *tree_as_tuple(sp_call_tree *tree)
{
    int64_t **const columns[] = {&tree->region, &tree->call,   &tree->start_ns,     &tree->end_ns,
                                 &tree->depth,  &tree->parent, &tree->exclusive_ns, &tree->lane};
    const Py_ssize_t count = sizeof columns / sizeof *columns;
    PyObject *result = PyTuple_New(count);
    for (Py_ssize_t c = 0; result && c < count; c++) {
        PyObject *view;
        if (*columns[c] == NULL && (c == count - 1 || tree->count > 0)) {
            view = Py_NewRef(Py_None);
        } else {
            int64_t *column = *columns[c] ? *columns[c] : sp_column_alloc(0);
            *columns[c] = NULL;
            view = column ? sp_values_new(column, tree->count) : PyErr_NoMemory();
        }
        if (view == NULL) Py_CLEAR(result);
        else PyTuple_SET_ITEM(result, c, view);
    }
    sp_call_tree_free(tree);
    return result;
}

/* A name for a message: what cannot be encoded is shown escaped. */
static PyObject *name_bytes(PyObject *names, size_t index)
{
    PyObject *name = PyObject_Str(PyTuple_GET_ITEM(names, (Py_ssize_t)index));
    PyObject *bytes = name ? PyUnicode_AsEncodedString(name, "utf-8", "backslashreplace") : NULL;
    Py_XDECREF(name);
    return bytes;
}

static PyObject *raise_nesting(const input *in, const sp_overlap *overlap)
{
    PyObject *outer = name_bytes(in->names, overlap->outer_region), *inner = name_bytes(in->names, overlap->inner_region);
    if (outer && inner) {
        sp_error error;
        const sp_status status =
            sp_nesting_fail(&error, overlap, in->calls, PyBytes_AS_STRING(outer), PyBytes_AS_STRING(inner));
        sp_python_raise(status, &error, NULL);
    }
    Py_XDECREF(outer);
    Py_XDECREF(inner);
    return NULL;
}

/* (lane, sentence) */
static PyObject *overlap_pair(const input *in, const sp_lane_overlap *found)
{
    const sp_overlap *overlap = &found->overlap;
    PyObject *outer = name_bytes(in->names, overlap->outer_region), *inner = name_bytes(in->names, overlap->inner_region);
    PyObject *pair = NULL;
    if (outer && inner) {
        const sp_overlap_text told = sp_overlap_tell(overlap, in->calls, PyBytes_AS_STRING(outer), PyBytes_AS_STRING(inner));
        PyObject *text = PyUnicode_DecodeUTF8(told.text, (Py_ssize_t)strlen(told.text), "replace");
        if (text) pair = Py_BuildValue("(LN)", (long long)found->lane, text);
    }
    Py_XDECREF(outer);
    Py_XDECREF(inner);
    return pair;
}

static PyObject *call_overlaps(PyObject *module, PyObject *arguments)
{
    PyObject *regions, *names;
    if (!PyArg_ParseTuple(arguments, "OO:call_overlaps", &regions, &names)) return NULL;
    input in;
    if (input_read(&in, regions, names) < 0) return NULL;
    sp_call_tree tree;
    sp_lane_overlap *found = NULL;
    size_t count = 0;
    sp_error error = {0};
    sp_status status;
    Py_BEGIN_ALLOW_THREADS
    status = sp_call_tree_build(&tree, in.calls, (size_t)in.count, SP_NEST_CLAMP, NULL, &error);
    if (status == SP_OK) {
        status = sp_call_tree_overlaps(&tree, &found, &count, &error);
        sp_call_tree_free(&tree);
    }
    Py_END_ALLOW_THREADS
    PyObject *list = status == SP_OK ? PyList_New((Py_ssize_t)count) : sp_python_raise(status, &error, NULL);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *pair = overlap_pair(&in, &found[i]);
        if (pair == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, (Py_ssize_t)i, pair);
    }
    free(found);
    input_clear(&in);
    return list;
}

static PyObject *call_tree(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static char *names_of_arguments[] = {"regions", "names", "clamp", NULL};
    PyObject *regions, *names;
    int clamp = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO|p:call_tree", names_of_arguments, &regions, &names, &clamp)) {
        return NULL;
    }
    input in;
    if (input_read(&in, regions, names) < 0) return NULL;
    sp_call_tree tree;
    sp_overlap overlap;
    sp_error error = {0};
    sp_status status;
    Py_BEGIN_ALLOW_THREADS
    status = sp_call_tree_build(&tree, in.calls, (size_t)in.count, clamp ? SP_NEST_CLAMP : SP_NEST_STRICT, &overlap,
                                &error);
    Py_END_ALLOW_THREADS
    PyObject *result;
    if (status == SP_OK) result = tree_as_tuple(&tree);
    else if (status == SP_ERR_NESTING) result = raise_nesting(&in, &overlap);
    else result = sp_python_raise(status, &error, NULL);
    input_clear(&in);
    return result;
}

/* -- profiles --------------------------------------------------------------------------------------------------------- */

static sp_profile *profile_arguments(PyObject *arguments, PyObject *keywords, const char *format, uint32_t *rank, int *clamp)
{
    static char *names[] = {"profile", "rank", "clamp", NULL};
    PyObject *object;
    unsigned int value;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, format, names, &object, &value, clamp)) return NULL;
    *rank = value;
    return sp_profile_object_get(object);
}

static PyObject *profile_tree(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    uint32_t rank;
    int clamp = 0;
    sp_profile *profile = profile_arguments(arguments, keywords, "OI|p:profile_tree", &rank, &clamp);
    if (profile == NULL) return NULL;
    sp_rank_calls calls;
    sp_call_tree tree = {0};
    sp_error error = {0};
    sp_status status;
    Py_BEGIN_ALLOW_THREADS
    status = sp_rank_calls_make(&calls, profile, rank, &error);
    if (status == SP_OK) {
        status = sp_rank_calls_tree(&calls, profile, clamp ? SP_NEST_CLAMP : SP_NEST_STRICT, &tree, &error);
        for (uint64_t i = 0; i < tree.count; i++) tree.region[i] = (int64_t)calls.rows[tree.region[i]];
        sp_rank_calls_free(&calls);
    }
    Py_END_ALLOW_THREADS
    return status == SP_OK ? tree_as_tuple(&tree) : sp_python_raise(status, &error, NULL);
}

static PyObject *profile_exclusive(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    uint32_t rank;
    int clamp = 0;
    sp_profile *profile = profile_arguments(arguments, keywords, "OI|p:profile_exclusive", &rank, &clamp);
    if (profile == NULL) return NULL;
    sp_rank_calls calls;
    int64_t *exclusive = NULL;
    uint64_t count = 0;
    sp_error error = {0};
    sp_status status;
    Py_BEGIN_ALLOW_THREADS
    status = sp_rank_calls_make(&calls, profile, rank, &error);
    if (status == SP_OK) {
        count = calls.call_count;
        status = sp_rank_calls_exclusive(&calls, profile, clamp ? SP_NEST_CLAMP : SP_NEST_STRICT, &exclusive, &error);
        sp_rank_calls_free(&calls);
    }
    Py_END_ALLOW_THREADS
    return status == SP_OK ? sp_values_new(exclusive, count) : sp_python_raise(status, &error, NULL);
}

/* -- several profiles ------------------------------------------------------------------------------------------------- */

typedef sp_status (*join_function)(const sp_profile *const *, size_t, sp_profile **, sp_error *);

static PyObject *join(PyObject *profiles, join_function function)
{
    PyObject *list = PySequence_Tuple(profiles);
    if (list == NULL) return NULL;
    const Py_ssize_t count = PyTuple_GET_SIZE(list);
    PyObject *result = NULL;
    const sp_profile **parts = PyMem_Calloc((size_t)count + 1, sizeof *parts);
    if (parts == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        parts[i] = sp_profile_object_get(PyTuple_GET_ITEM(list, i));
        if (parts[i] == NULL) goto done;
    }
    sp_profile *joined = NULL;
    sp_error error = {0};
    sp_status status;
    Py_BEGIN_ALLOW_THREADS
    status = function(parts, (size_t)count, &joined, &error);
    Py_END_ALLOW_THREADS
    result = status == SP_OK ? sp_profile_object_new(joined) : sp_python_raise(status, &error, NULL);
done:
    PyMem_Free((void *)parts);
    Py_DECREF(list);
    return result;
}

static PyObject *union_profiles(PyObject *module, PyObject *profiles)
{
    return join(profiles, sp_profile_union);
}

static sp_status merge_and_resolve(const sp_profile *const *parts, size_t count, sp_profile **out, sp_error *error)
{
    sp_status status = sp_profile_merge(parts, count, out, error);
    if (status == SP_OK) status = sp_profile_resolve(*out, 0, error);
    if (status == SP_OK) return status;
    sp_profile_release(*out);
    *out = NULL;
    return status;
}

static PyObject *merge_profiles(PyObject *module, PyObject *profiles)
{
    return join(profiles, merge_and_resolve);
}

static PyMethodDef methods[] = {
    {"call_tree", (PyCFunction)(void (*)(void))call_tree, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("Order and nest the calls of regions.")},
    {"call_overlaps", call_overlaps, METH_VARARGS, PyDoc_STR("Lanes of which calls overlap without nesting.")},
    {"profile_tree", (PyCFunction)(void (*)(void))profile_tree, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("Order and nest the calls of a rank of a profile.")},
    {"profile_exclusive", (PyCFunction)(void (*)(void))profile_exclusive, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("Exclusive ns of each call of a rank, its rows back to back.")},
    {"union_profiles", union_profiles, METH_O, PyDoc_STR("Different runs side by side.")},
    {"merge_profiles", merge_profiles, METH_O, PyDoc_STR("Parts of one run, put together.")},
    {NULL, NULL, 0, NULL},
};

int sp_python_add_call_tree(PyObject *module)
{
    sp_python_state->values_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &values_spec, NULL);
    if (sp_python_state->values_type == NULL) return -1;
    return PyModule_AddFunctions(module, methods);
}
