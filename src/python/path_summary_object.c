/* path_summary_object.c - sums by call path and percentiles, for results and the printed table. */
#include "python/path_summary_object.h"

#include <stdlib.h>

#include "analysis/path_summary.h"
#include "analysis/percentile.h"
#include "python/profile_object.h"

/* -- options -- */

typedef struct options {
    sp_path_options values;
    bool *visible;
    uint32_t *ranks;
    double *percentiles;
} options;

static void free_options(options *o)
{
    PyMem_Free(o->visible);
    PyMem_Free(o->ranks);
    PyMem_Free(o->percentiles);
}

static int take_names(options *o, PyObject *names, size_t expected)
{
    if (names == Py_None) return 0;
    PyObject *fast = PySequence_Fast(names, "names must be a sequence of bools");
    if (fast == NULL) return -1;
    int result = -1;
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
    if ((size_t)count != expected) {
        PyErr_Format(PyExc_ValueError, "names must hold %zu bools, one per name of the profile", expected);
        goto done;
    }
    o->visible = PyMem_New(bool, expected + 1);
    if (o->visible == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        const int truth = PyObject_IsTrue(PySequence_Fast_GET_ITEM(fast, i));
        if (truth < 0) goto done;
        o->visible[i] = truth != 0;
    }
    o->values.visible = o->visible;
    result = 0;
done:
    Py_DECREF(fast);
    return result;
}

/* Ranks that no profile can have are left out; when none is left, one that no profile has selects nothing. */
static int take_ranks(options *o, PyObject *ranks)
{
    if (ranks == Py_None) return 0;
    PyObject *fast = PySequence_Fast(ranks, "ranks must be a sequence of integers");
    if (fast == NULL) return -1;
    int result = -1;
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
    o->ranks = PyMem_New(uint32_t, (size_t)count + 1);
    if (o->ranks == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    size_t taken = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        int overflow = 0;
        const long long rank = PyLong_AsLongLongAndOverflow(PySequence_Fast_GET_ITEM(fast, i), &overflow);
        if (rank == -1 && PyErr_Occurred()) goto done;
        if (!overflow && rank >= 0 && rank < UINT32_MAX) o->ranks[taken++] = (uint32_t)rank;
    }
    if (taken == 0) o->ranks[taken++] = UINT32_MAX;
    o->values.ranks = o->ranks;
    o->values.rank_count = taken;
    result = 0;
done:
    Py_DECREF(fast);
    return result;
}

/* Doubles between 0 and 100 in a PyMem array, *count of them; NULL with an exception. */
static double *take_percentiles(PyObject *sequence, size_t *count)
{
    PyObject *fast = PySequence_Fast(sequence, "percentiles must be a sequence of numbers");
    if (fast == NULL) return NULL;
    *count = (size_t)PySequence_Fast_GET_SIZE(fast);
    double *values = PyMem_New(double, *count + 1);
    if (values == NULL) PyErr_NoMemory();
    for (size_t i = 0; values && i < *count; i++) {
        values[i] = PyFloat_AsDouble(PySequence_Fast_GET_ITEM(fast, (Py_ssize_t)i));
        if (values[i] >= 0 && values[i] <= 100) continue;
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a percentile is a number from 0 to 100");
        PyMem_Free(values);
        values = NULL;
    }
    Py_DECREF(fast);
    return values;
}

/* -- results -- */

/* Append `item`, made by the caller and maybe NULL, to a list under construction. */
static int append(PyObject *list, PyObject *item)
{
    if (item == NULL) return -1;
    const int result = PyList_Append(list, item);
    Py_DECREF(item);
    return result;
}

static PyObject *node_list(const sp_path_summary *summary)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < summary->node_count; i++) {
        const sp_path_node *node = &summary->nodes[i];
        if (append(list, Py_BuildValue("(Ii)", node->name, node->parent)) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *row_list(const sp_path_summary *summary)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < summary->row_count; i++) {
        const sp_path_row *row = &summary->rows[i];
        const sp_row_statistics *s = &row->statistics;
        PyObject *item = Py_BuildValue(
            "(IIKNLLL(LLLLLLLKLdd)L)", row->node, row->rank, (unsigned long long)row->count,
            PyBool_FromLong(row->recursive), (long long)row->inclusive, (long long)row->exclusive,
            (long long)row->covered, (long long)s->total, (long long)s->minimum, (long long)s->maximum,
            (long long)s->first, (long long)s->last, (long long)s->start_minimum, (long long)s->end_maximum,
            (unsigned long long)s->gpu_count, (long long)s->gpu_total, s->mean, s->m2, (long long)row->awaiting);
        if (append(list, item) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *thread_list(const sp_path_summary *summary)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < summary->thread_count; i++) {
        const sp_thread_usage *usage = &summary->threads[i];
        PyObject *item = Py_BuildValue("(ILKL)", usage->rank, (long long)usage->thread,
                                       (unsigned long long)usage->count, (long long)usage->covered);
        if (append(list, item) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *float_list(const double *values, size_t count)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < count; i++) {
        if (append(list, PyFloat_FromDouble(values[i])) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *percentile_lists(const sp_path_summary *summary)
{
    if (summary->percentiles == NULL) Py_RETURN_NONE;
    PyObject *list = PyList_New(0);
    const size_t wanted = summary->percentile_count;
    for (size_t i = 0; list && i < summary->node_count; i++) {
        if (append(list, float_list(summary->percentiles + i * wanted, wanted)) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *path_summary(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"profile", "names", "ranks", "percentiles", NULL};
    PyObject *object, *visible = Py_None, *ranks = Py_None, *percentiles = NULL, *result = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$OOO:path_summary", names, &object, &visible, &ranks,
                                     &percentiles)) {
        return NULL;
    }
    sp_profile *profile = sp_profile_object_get(object);
    if (profile == NULL) return NULL;
    options o = {.visible = NULL};
    if (take_names(&o, visible, profile->name_count) < 0 || take_ranks(&o, ranks) < 0) goto done;
    if (percentiles) {
        o.percentiles = take_percentiles(percentiles, &o.values.percentile_count);
        if (o.percentiles == NULL) goto done;
        o.values.percentiles = o.percentiles;
    }

    sp_path_summary *summary;
    sp_error error;
    sp_status status;
    Py_BEGIN_ALLOW_THREADS
    status = sp_path_summary_make(profile, &o.values, &summary, &error);
    Py_END_ALLOW_THREADS
    if (status != SP_OK) {
        sp_python_raise(status, &error, NULL);
        goto done;
    }
    result = Py_BuildValue("(NNNNNN)", PyBool_FromLong(summary->nested), PyBool_FromLong(summary->clamped),
                           node_list(summary), row_list(summary), thread_list(summary), percentile_lists(summary));
    sp_path_summary_free(summary);
done:
    free_options(&o);
    return result;
}

/* -- percentiles of calls that lie in several columns -- */

/* An int64 buffer of any exporter; 0, or -1 with an exception. */
static int take_column(PyObject *object, Py_buffer *view)
{
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) return -1;
    const char *format = view->format ? view->format : "B";
    if (*format == '<' || *format == '=' || *format == '@') format++;
    if (view->itemsize == sizeof(int64_t) && (*format == 'q' || *format == 'l') && format[1] == '\0') return 0;
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_TypeError, "times must be buffers of int64");
    return -1;
}

/* Append the durations of one (start, end) pair. */
static int add_chunk(PyObject *chunk, int64_t **durations, size_t *count)
{
    PyObject *starts, *ends;
    if (!PyArg_ParseTuple(chunk, "OO;a chunk is a pair of buffers", &starts, &ends)) return -1;
    Py_buffer start, end;
    if (take_column(starts, &start) < 0) return -1;
    if (take_column(ends, &end) < 0) {
        PyBuffer_Release(&start);
        return -1;
    }
    int result = -1;
    const size_t more = (size_t)start.len / sizeof(int64_t);
    if (start.len != end.len) {
        PyErr_SetString(PyExc_ValueError, "there are not as many ends as starts");
        goto done;
    }
    int64_t *grown = realloc(*durations, (*count + more + 1) * sizeof *grown);
    if (grown == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    *durations = grown;
    const int64_t *s = start.buf, *e = end.buf;
    for (size_t i = 0; i < more; i++) grown[(*count)++] = (int64_t)((uint64_t)e[i] - (uint64_t)s[i]);
    result = 0;
done:
    PyBuffer_Release(&start);
    PyBuffer_Release(&end);
    return result;
}

static PyObject *percentiles(PyObject *module, PyObject *args)
{
    PyObject *chunks, *ranks, *result = NULL;
    if (!PyArg_ParseTuple(args, "OO:percentiles", &chunks, &ranks)) return NULL;
    size_t rank_count = 0, count = 0;
    int64_t *durations = NULL;
    double *wanted = take_percentiles(ranks, &rank_count);
    if (wanted == NULL) return NULL;
    double *values = PyMem_New(double, rank_count + 1);
    PyObject *fast = values ? PySequence_Fast(chunks, "chunks must be a sequence") : PyErr_NoMemory();
    if (fast == NULL) goto done;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); i++) {
        if (add_chunk(PySequence_Fast_GET_ITEM(fast, i), &durations, &count) < 0) goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    sp_percentiles(durations, count, wanted, rank_count, values);
    Py_END_ALLOW_THREADS
    result = float_list(values, rank_count);
done:
    Py_XDECREF(fast);
    free(durations);
    PyMem_Free(values);
    PyMem_Free(wanted);
    return result;
}

static PyMethodDef functions[] = {
    {"path_summary", (PyCFunction)(void (*)(void))path_summary, METH_VARARGS | METH_KEYWORDS,
     "Calls summed up by call path."},
    {"percentiles", percentiles, METH_VARARGS, "Percentiles of durations, in ns."},
    {NULL, NULL, 0, NULL},
};

int sp_python_add_path_summary(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
