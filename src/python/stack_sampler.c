/*
 * stack_sampler.c - a thread that wakes up at a low rate, takes the interpreter, and notes for every Python thread its stack, its
 * innermost open region, and the wall clock and CPU time since it looked last. It holds the interpreter, so nobody moves meanwhile;
 * no signal is sent, and threads that wait are not woken.
 *
 *   entries   (thread, region, stack, line) -> samples, ns, CPU ns       stacks   (stack of the caller, code), as a tree
 *
 * The intervals are drawn at random around 1 / hz, so that a program that works in a rhythm is not met in the same place each time. What a
 * sample stands for is the time since the one before, not 1 / hz: a thread that kept the interpreter for long counts for that long.
 */
#include "python/stack_sampler.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/grow.h"
#include "core/index.h"
#include "core/innermost.h"
#include "platform/platform.h"
#include "python/recorder.h"

#ifndef Py_GIL_DISABLED

#if PY_VERSION_HEX < 0x030b0000
#include <frameobject.h>
#endif

enum { DEEPEST = 128, MOST_THREADS = 4096, MOST_THREADS_EVER = 1 << 16 };
#define MOST_ENTRIES ((size_t)1 << 20)
#define LONGEST_WAIT_NS 1e18 /* of a rate that is hardly one: a time that the system takes */
#define NO_STACK (-1)

typedef struct stack_node {
    int32_t caller; /* NO_STACK: none */
    PyObject *code;
} stack_node;

typedef struct entry {
    int32_t thread, region, stack, line;
    uint64_t samples, samples_confirmed, samples_shown;
    int64_t wall_ns, wall_confirmed, wall_shown;
    int64_t cpu_ns, cpu_confirmed, cpu_shown;
} entry;

typedef struct watched {
    unsigned long ident;
    int64_t native_id; /* -1: not known */
    int32_t row;       /* -1: none */
    PyObject *name;    /* str */
    bool named;        /* by threading, and not by its number */
    int64_t cpu_ns;    /* at the last look; -1: not known */
    uint64_t seen;     /* the number of that look */
    uint32_t entry;    /* where it was then: index + 1, 0: not known */
} watched;

typedef struct sampler {
    PyObject_HEAD
    sp_run_object *run;
    double hz;
    pthread_t thread;
    pthread_mutex_t lock; /* of `ends` and what it is waited for with */
    pthread_cond_t wake;
    bool started;
    _Atomic(bool) ends;
    pid_t pid;
    uint64_t random;
    /* what follows belongs to whoever has the interpreter */
    uint64_t looks;
    uint64_t lost; /* samples for which there was no memory */
    int64_t looked_at; /* when, ns */
    stack_node *stacks;
    size_t stack_count, stack_size;
    sp_index stack_index;
    entry *entries;
    size_t entry_count, entry_size;
    sp_index entry_index;
    watched *threads; /* that were ever seen */
    size_t thread_count, thread_size;
    int32_t *present; /* indices of those that were seen at the last look, and behind them those of this one */
    size_t present_count, present_size;
    sp_thread_now *now; /* MOST_THREADS of them, for one look */
    struct sampler *next; /* of those that run */
} sampler;

static PyTypeObject *sampler_type;
static sampler *running; /* under the interpreter */

/* ---- tables ---- */

static uint64_t mix(uint64_t value)
{
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdu;
    value ^= value >> 33;
    value *= 0xc4ceb9fe1a85ec53u;
    return value ^ value >> 33;
}

static uint64_t stack_hash(int32_t caller, const PyObject *code)
{
    return mix((uint64_t)(uintptr_t)code ^ mix((uint64_t)(uint32_t)caller));
}

static uint64_t hash_of_stack(const void *stacks, uint32_t number)
{
    const stack_node *stack = (const stack_node *)stacks + number;
    return stack_hash(stack->caller, stack->code);
}

static bool is_stack(const void *stacks, uint32_t number, const void *wanted)
{
    const stack_node *stack = (const stack_node *)stacks + number, *other = wanted;
    return stack->caller == other->caller && stack->code == other->code;
}

/* The stack of `code` called by `caller`; NO_STACK without memory. */
static int32_t stack_of(sampler *s, int32_t caller, PyObject *code)
{
    const stack_node wanted = {caller, code};
    if (!sp_index_reserve(&s->stack_index, s->stack_count, s->stacks, hash_of_stack)) return NO_STACK;
    uint32_t *slot = sp_index_find(&s->stack_index, stack_hash(caller, code), s->stacks, is_stack, &wanted);
    if (*slot) return (int32_t)*slot - 1;
    if (s->stack_count >= MOST_ENTRIES || !sp_grow(&s->stacks, &s->stack_size, s->stack_count, sizeof *s->stacks, 64)) {
        return NO_STACK;
    }
    s->stacks[s->stack_count] = (stack_node){caller, Py_NewRef(code)};
    *slot = (uint32_t)s->stack_count + 1;
    return (int32_t)s->stack_count++;
}

static uint64_t entry_hash(const entry *key)
{
    return mix(((uint64_t)(uint32_t)key->thread << 32 | (uint32_t)key->region) ^
               mix((uint64_t)(uint32_t)key->stack << 32 | (uint32_t)key->line));
}

static uint64_t hash_of_entry(const void *entries, uint32_t number)
{
    return entry_hash((const entry *)entries + number);
}

static bool is_entry(const void *entries, uint32_t number, const void *wanted)
{
    const entry *one = (const entry *)entries + number, *other = wanted;
    return one->thread == other->thread && one->region == other->region && one->stack == other->stack && one->line == other->line;
}

static entry *entry_of(sampler *s, const entry *key)
{
    if (!sp_index_reserve(&s->entry_index, s->entry_count, s->entries, hash_of_entry)) return NULL;
    uint32_t *slot = sp_index_find(&s->entry_index, entry_hash(key), s->entries, is_entry, key);
    if (*slot) return &s->entries[*slot - 1];
    if (s->entry_count >= MOST_ENTRIES || !sp_grow(&s->entries, &s->entry_size, s->entry_count, sizeof *s->entries, 64)) {
        return NULL;
    }
    s->entries[s->entry_count] = *key;
    *slot = (uint32_t)s->entry_count + 1;
    return &s->entries[s->entry_count++];
}

/* ---- threads ---- */

/* An attribute of the thread's object in threading, if it has one; NULL without an exception. No code of Python runs for it. */
static PyObject *threading_knows(unsigned long ident, const char *attribute)
{
    PyObject *modules = PySys_GetObject("modules"); /* borrowed */
    PyObject *threading = modules ? PyMapping_GetItemString(modules, "threading") : NULL;
    PyObject *active = threading ? PyObject_GetAttrString(threading, "_active") : NULL;
    PyObject *key = active ? PyLong_FromUnsignedLong(ident) : NULL;
    PyObject *thread = key ? PyObject_GetItem(active, key) : NULL;
    PyObject *value = thread ? PyObject_GetAttrString(thread, attribute) : NULL;
    Py_XDECREF(thread);
    Py_XDECREF(key);
    Py_XDECREF(active);
    Py_XDECREF(threading);
    PyErr_Clear();
    return value;
}

/* A thread that begins is not known to threading yet: it is asked again. */
static void describe(watched *thread)
{
    PyObject *name = threading_knows(thread->ident, "_name");
    thread->named = name && PyUnicode_Check(name);
    if (!thread->named) {
        Py_XDECREF(name);
        name = PyUnicode_FromFormat("thread %lu", thread->ident);
        PyErr_Clear();
    }
    Py_XSETREF(thread->name, name);
    if (thread->native_id >= 0) return;
    PyObject *id = threading_knows(thread->ident, "_native_id");
    if (id && PyLong_Check(id)) thread->native_id = PyLong_AsLongLong(id);
    PyErr_Clear();
    Py_XDECREF(id);
}

/* The system's id of a thread; -1: not known. */
static int64_t native_id_of(const PyThreadState *state)
{
#if PY_VERSION_HEX >= 0x030b0000
    return state->native_thread_id ? (int64_t)state->native_thread_id : -1;
#else
    return -1;
#endif
}

/* What is known of a thread that was there at the last look; a thread that has begun since may have its ident. -1: nothing. */
static int32_t known_thread(sampler *s, size_t before, unsigned long ident, int64_t native_id, const sp_thread_now *now)
{
    for (size_t i = 0; i < before; i++) {
        watched *known = &s->threads[s->present[i]];
        if (known->ident != ident) continue;
        if (native_id >= 0 && known->native_id >= 0 && known->native_id != native_id) return -1;
        if (now) known->row = now->row;
        if (!known->named) describe(known);
        return known->name ? s->present[i] : -1;
    }
    return -1;
}

/* The index of a thread, made when it is new; -1 without memory. `before`: how many there were at the last look. */
static int32_t watch(sampler *s, size_t before, const PyThreadState *state, const sp_thread_now *now)
{
    const unsigned long ident = state->thread_id;
    const int64_t native_id = now ? now->native_id : native_id_of(state);
    if (!sp_grow(&s->present, &s->present_size, s->present_count, sizeof *s->present, 64)) return -1;
    int32_t thread = known_thread(s, before, ident, native_id, now);
    if (thread < 0) {
        if (s->thread_count == MOST_THREADS_EVER ||
            !sp_grow(&s->threads, &s->thread_size, s->thread_count, sizeof *s->threads, 64)) {
            return -1;
        }
        watched *fresh = &s->threads[s->thread_count];
        *fresh = (watched){.ident = ident, .native_id = native_id, .row = now ? now->row : -1, .cpu_ns = -1};
        describe(fresh);
        if (fresh->name == NULL) return -1;
        thread = (int32_t)s->thread_count++;
    }
    s->present[s->present_count++] = thread;
    return thread;
}

static const sp_thread_now *find_now(const sp_thread_now *threads, size_t count, unsigned long ident)
{
    for (size_t i = 0; i < count; i++) {
        if (threads[i].handle == (uint64_t)ident) return &threads[i];
    }
    return NULL;
}

/* ---- one look ---- */

/* The stack that ends in a frame: its innermost DEEPEST functions. */
static int32_t read_stack(sampler *s, PyFrameObject *leaf)
{
    PyObject *codes[DEEPEST];
    int depth = 0;
    PyFrameObject *frame = (PyFrameObject *)Py_NewRef((PyObject *)leaf);
    while (frame && depth < DEEPEST) {
        codes[depth++] = (PyObject *)PyFrame_GetCode(frame);
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    int32_t stack = NO_STACK;
    bool whole = true;
    for (int i = depth; i-- > 0;) {
        if (whole) {
            stack = stack_of(s, stack, codes[i]);
            whole = stack != NO_STACK;
        }
        Py_DECREF(codes[i]);
    }
    return stack;
}

/* NULL without memory. */
static entry *where(sampler *s, int32_t thread, int32_t region, PyFrameObject *frame)
{
    const entry key = {.thread = thread, .region = region, .stack = read_stack(s, frame), .line = PyFrame_GetLineNumber(frame)};
    return key.stack == NO_STACK ? NULL : entry_of(s, &key);
}

/* A thread that has used no CPU time since the last look is where it was: most of those that wait need not be read again. */
static void note(sampler *s, int32_t thread, int32_t region, PyFrameObject *frame, int64_t wall_ns)
{
    watched *of = &s->threads[thread];
    const int64_t cpu = of->native_id >= 0 ? sp_platform_thread_cpu_ns(of->native_id) : -1;
    const bool was_known = of->seen != 0;
    int64_t used = cpu < 0 ? 0 : was_known && of->cpu_ns >= 0 ? cpu - of->cpu_ns : cpu < wall_ns ? cpu : wall_ns;
    if (used < 0) used = 0;
    const bool has_run = !was_known || cpu < 0 || cpu != of->cpu_ns;
    of->cpu_ns = cpu;
    of->seen = s->looks;
    if (frame == NULL) return; /* the look that only sets the clocks */
    entry *into = of->entry && !has_run ? &s->entries[of->entry - 1] : where(s, thread, region, frame);
    of->entry = into ? (uint32_t)(into - s->entries) + 1 : 0;
    if (into == NULL) {
        s->lost++;
        return;
    }
    into->samples++;
    into->wall_ns += wall_ns;
    into->cpu_ns += used;
}

static void look_at_thread(sampler *s, PyThreadState *state, size_t before, size_t now_count, int64_t wall_ns, bool begins)
{
    PyFrameObject *frame = PyThreadState_GetFrame(state);
    if (frame == NULL) return; /* it begins, ends, or runs nothing of Python, as this one */
    const sp_thread_now *known = find_now(s->now, now_count, state->thread_id);
    const int32_t thread = watch(s, before, state, known);
    if (thread < 0) s->lost++;
    else note(s, thread, known ? known->region : SP_NO_REGION, begins ? NULL : frame, wall_ns);
    Py_DECREF(frame);
}

/*
 * With the interpreter, whose threads neither begin nor end meanwhile. sys._current_frames() would do the same, but for the threads
 * of every interpreter: since 3.12 those of others run on. `begins`: only set the clocks.
 */
static void look_at_all(sampler *s, bool begins)
{
    s->looks++;
    const size_t all = sp_run_threads_now(s->run->run, s->now, MOST_THREADS), count = all < MOST_THREADS ? all : MOST_THREADS;
    const int64_t at = sp_platform_monotonic_ns(), wall_ns = at - s->looked_at;
    s->looked_at = at;
    const size_t before = s->present_count;
    for (PyThreadState *state = PyInterpreterState_ThreadHead(PyInterpreterState_Main()); state; state = PyThreadState_Next(state)) {
        look_at_thread(s, state, before, count, wall_ns, begins);
    }
    s->present_count -= before;
    if (s->present_count) memmove(s->present, s->present + before, s->present_count * sizeof *s->present);
}

/* The collector of garbage may call any code of the program: not on this thread. */
static void look(sampler *s, bool begins)
{
    const int collects = PyGC_Disable();
    look_at_all(s, begins);
    PyErr_Clear();
    if (collects) PyGC_Enable();
}

/* ---- the thread ---- */

/* 0.5 to 1.5 intervals. */
static struct timespec next_time(sampler *s)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    const double part = 0.5 + (double)(s->random >> 11) / (double)((uint64_t)1 << 53);
    const double wait = part * 1e9 / s->hz;
    const int64_t ns = sp_platform_monotonic_ns() + (int64_t)(wait < LONGEST_WAIT_NS ? wait : LONGEST_WAIT_NS);
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

/* False when it ends. */
static bool wait_for_next(sampler *s)
{
    const struct timespec until = next_time(s);
    pthread_mutex_lock(&s->lock);
    int status = 0;
    while (!s->ends && status != ETIMEDOUT) status = pthread_cond_timedwait(&s->wake, &s->lock, &until);
    const bool goes_on = !s->ends;
    pthread_mutex_unlock(&s->lock);
    return goes_on;
}

static void *sample(void *with)
{
    sampler *s = with;
    pthread_setname_np(pthread_self(), "sp-sampler");
    const PyGILState_STATE state = PyGILState_Ensure();
    look(s, true);
    PyThreadState *mine = PyEval_SaveThread();
    while (wait_for_next(s)) {
        PyEval_RestoreThread(mine);
        /* It may have ended while this waited for the interpreter. */
        if (!s->ends) look(s, false);
        mine = PyEval_SaveThread();
    }
    PyEval_RestoreThread(mine);
    PyGILState_Release(state);
    return NULL;
}

static void stop(sampler *s)
{
    for (sampler **link = &running; *link; link = &(*link)->next) {
        if (*link != s) continue;
        *link = s->next;
        break;
    }
    if (!s->started || s->pid != getpid()) return; /* a forked child has no such thread */
    s->started = false;
    pthread_mutex_lock(&s->lock);
    s->ends = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    Py_BEGIN_ALLOW_THREADS
    pthread_join(s->thread, NULL);
    Py_END_ALLOW_THREADS
}

void sp_samplers_stop(void)
{
    while (running) stop(running);
}

/* Signals are for the threads of the program. */
static int start_thread(sampler *s)
{
    sigset_t every, before;
    pthread_attr_t attributes;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int failed = pthread_attr_init(&attributes);
    if (!failed) {
        pthread_attr_setstacksize(&attributes, (size_t)512 << 10);
        failed = pthread_create(&s->thread, &attributes, sample, s);
        pthread_attr_destroy(&attributes);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

static PyObject *sampler_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    static char *keywords[] = {"run", "hz", NULL};
    PyObject *run;
    double hz;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "Od", keywords, &run, &hz) || sp_run_object_get(run) == NULL) return NULL;
    if (!(hz > 0)) return PyErr_Format(PyExc_ValueError, "hz must be positive");
    sampler *s = (sampler *)type->tp_alloc(type, 0);
    if (s == NULL) return NULL;
    s->run = (sp_run_object *)Py_NewRef(run);
    s->hz = hz;
    s->pid = getpid();
    s->now = malloc(MOST_THREADS * sizeof *s->now);
    s->looked_at = sp_platform_monotonic_ns();
    s->random = (uint64_t)s->looked_at | 1;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&s->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&s->lock, NULL);
    const int failed = s->now ? start_thread(s) : ENOMEM;
    if (failed) {
        errno = failed;
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(s);
        return NULL;
    }
    s->started = true;
    s->next = running;
    running = s;
    return (PyObject *)s;
}

static PyObject *sampler_stop(PyObject *self, PyObject *none)
{
    stop((sampler *)self);
    Py_RETURN_NONE;
}

/* ---- what it saw ---- */

static PyObject *code_name(PyObject *code)
{
#if PY_VERSION_HEX >= 0x030b0000
    return PyObject_GetAttrString(code, "co_qualname");
#else
    return PyObject_GetAttrString(code, "co_name");
#endif
}

static PyObject *thread_rows(const sampler *s)
{
    PyObject *list = PyList_New((Py_ssize_t)s->thread_count);
    for (size_t i = 0; list && i < s->thread_count; i++) {
        const watched *thread = &s->threads[i];
        PyObject *row = Py_BuildValue("OiL", thread->name, thread->row, (long long)thread->native_id);
        if (row == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, (Py_ssize_t)i, row);
    }
    return list;
}

static PyObject *stack_rows(const sampler *s)
{
    PyObject *list = PyList_New((Py_ssize_t)s->stack_count);
    for (size_t i = 0; list && i < s->stack_count; i++) {
        PyCodeObject *code = (PyCodeObject *)s->stacks[i].code;
        PyObject *name = code_name(s->stacks[i].code);
        PyObject *row = name ? Py_BuildValue("iOOi", s->stacks[i].caller, name, code->co_filename, code->co_firstlineno) : NULL;
        Py_XDECREF(name);
        if (row == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, (Py_ssize_t)i, row);
    }
    return list;
}

/* The name of a region, which stays as long as its run; NULL: none. */
static const char *region_name(const sampler *s, int32_t region)
{
    if (region < 0) return NULL;
    sp_run *run = s->run->run;
    pthread_mutex_lock(&run->lock);
    const char *name = (size_t)region < run->region_count ? run->regions[region]->name : NULL;
    pthread_mutex_unlock(&run->lock);
    return name;
}

/* The rows that are new since the last confirmation, which becomes what a confirmation now is about. */
static PyObject *entry_rows(sampler *s)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < s->entry_count; i++) {
        entry *e = &s->entries[i];
        e->samples_shown = e->samples;
        e->wall_shown = e->wall_ns;
        e->cpu_shown = e->cpu_ns;
        if (e->samples == e->samples_confirmed) continue;
        PyObject *row = Py_BuildValue("iziiKLL", e->thread, region_name(s, e->region), e->stack, e->line,
                                      (unsigned long long)(e->samples - e->samples_confirmed), (long long)(e->wall_ns - e->wall_confirmed),
                                      (long long)(e->cpu_ns - e->cpu_confirmed));
        if (row == NULL || PyList_Append(list, row) < 0) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *sampler_collect(PyObject *self, PyObject *none)
{
    sampler *s = (sampler *)self;
    PyObject *entries = entry_rows(s);
    PyObject *threads = entries ? thread_rows(s) : NULL;
    PyObject *stacks = threads ? stack_rows(s) : NULL;
    PyObject *answer = stacks ? PyTuple_Pack(3, threads, stacks, entries) : NULL;
    Py_XDECREF(entries);
    Py_XDECREF(threads);
    Py_XDECREF(stacks);
    return answer;
}

static PyObject *sampler_confirm(PyObject *self, PyObject *none)
{
    sampler *s = (sampler *)self;
    for (size_t i = 0; i < s->entry_count; i++) {
        entry *e = &s->entries[i];
        e->samples_confirmed = e->samples_shown;
        e->wall_confirmed = e->wall_shown;
        e->cpu_confirmed = e->cpu_shown;
    }
    Py_RETURN_NONE;
}

static PyObject *sampler_lost(PyObject *self, void *closure)
{
    return PyLong_FromUnsignedLongLong(((sampler *)self)->lost);
}

static int sampler_traverse(PyObject *self, visitproc visit, void *arg)
{
    sampler *s = (sampler *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)s->run);
    return 0;
}

static void sampler_dealloc(PyObject *self)
{
    sampler *s = (sampler *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    stop(s);
    for (size_t i = 0; i < s->stack_count; i++) Py_DECREF(s->stacks[i].code);
    for (size_t i = 0; i < s->thread_count; i++) Py_XDECREF(s->threads[i].name);
    free(s->stacks);
    free(s->stack_index.slots);
    free(s->entries);
    free(s->entry_index.slots);
    free(s->threads);
    free(s->present);
    free(s->now);
    Py_XDECREF((PyObject *)s->run);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef sampler_methods[] = {
    {"stop", sampler_stop, METH_NOARGS, "Look no more. Idempotent; what was seen stays."},
    {"collect", sampler_collect, METH_NOARGS,
     "(threads, stacks, samples): [(name, row index | -1, native id | -1)], [(caller | -1, function, file, first line)], and\n"
     "[(thread, region | None, stack, line, samples, ns, CPU ns)] of what is not confirmed."},
    {"confirm", sampler_confirm, METH_NOARGS, "What was collected last is safe, and is not collected again."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef sampler_getset[] = {
    {"lost", sampler_lost, NULL, "Samples for which there was no memory.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot sampler_slots[] = {
    {Py_tp_new, sampler_new},
    {Py_tp_dealloc, sampler_dealloc},
    {Py_tp_traverse, sampler_traverse},
    {Py_tp_methods, sampler_methods},
    {Py_tp_getset, sampler_getset},
    {Py_tp_doc, "StackSampler(run, hz): looks at the stacks of all Python threads, until stop()."},
    {0, NULL},
};

static PyType_Spec sampler_spec = {
    .name = "scope_profiler._core.StackSampler",
    .basicsize = sizeof(sampler),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = sampler_slots,
};

int sp_python_add_stack_sampler(PyObject *module)
{
    sampler_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &sampler_spec, NULL);
    return sampler_type ? PyModule_AddObjectRef(module, "StackSampler", (PyObject *)sampler_type) : -1;
}

#else

/* Without the GIL the frames of a thread can be read only while it stands still, which no public function can be relied on to do. */
void sp_samplers_stop(void)
{
}

int sp_python_add_stack_sampler(PyObject *module)
{
    return PyModule_AddObjectRef(module, "StackSampler", Py_None);
}

#endif
