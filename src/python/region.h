/*
 * region.h - regions of a recorder, and the two inline functions through which every call from Python is recorded.
 *
 * A `with` statement looks up __enter__ and __exit__ before it calls the first of them. Both are descriptors here, which
 * hand the statement one handle for the two: calling it without arguments enters, with arguments exits. So each entry has
 * an object of its own that closes exactly its call, whatever generators, tasks or threads do in between, and no bound
 * method is made. Tried before: popping the newest call of the region (swaps or loses calls as soon as anything
 * interleaves), plain methods (two bound methods a statement, 30 ns).
 */
#ifndef SP_PYTHON_REGION_H
#define SP_PYTHON_REGION_H

#include "core/run.h"
#include "python/state.h"

typedef struct sp_recorder_object sp_recorder_object;

#define SP_REGION_OFF 0xffffffffu /* the id of a region that the run's filter excludes */

typedef struct sp_region_object {
    PyObject_HEAD
    sp_switch *gate;             /* of its recorder */
    _Atomic(uint64_t) binding;   /* token of a run << 32 | the region's id in it; set together */
    sp_recorder_object *recorder;
    PyObject *name;              /* str */
    PyObject *tags;              /* tuple of str */
    PyObject *source_file;       /* str or None */
    PyObject *source_text;       /* str or None */
    int source_line;             /* -1: none */
    _Atomic(int) unrecorded;     /* entries without a handle that recorded nothing: as many exits are not amiss */
    PyObject *weakrefs;
} sp_region_object;

/* An open call, on the C stack or in a handle. */
typedef struct sp_open {
    sp_log *log;
    sp_slot *slot; /* NULL: not recorded */
} sp_open;

/* The id for the run with this token, SP_REGION_OFF when the region is filtered out or cannot be added. Never raises. */
SP_NOINLINE uint32_t sp_region_bind(sp_region_object *region, uint64_t token);

/*
 * The entry where more than the log decides on the lane: of an asyncio task that nothing made a lane before, if the thread runs one;
 * and in runs that keep sums, of whatever the thread runs.
 */
__attribute__((noinline)) sp_slot *sp_region_enter_on_lane(sp_log *log, uint32_t id);

/* Open a call of the region on the current lane. One test when nothing records. Never raises. */
static inline void sp_region_enter(sp_region_object *region, sp_open *open)
{
    open->slot = NULL;
    const uint64_t token = atomic_load_explicit(&region->gate->token, memory_order_acquire);
    if (SP_LIKELY(token == 0)) return;
    const uint64_t binding = atomic_load_explicit(&region->binding, memory_order_acquire);
    const uint32_t id = SP_LIKELY(binding >> 32 == token) ? (uint32_t)binding : sp_region_bind(region, token);
    if (SP_UNLIKELY(id == SP_REGION_OFF)) return;
    sp_log *log = sp_log_current(token);
    if (SP_UNLIKELY(log == NULL)) return;
    open->log = log;
    const bool unclear = log->lane == NULL && log->stride != sizeof(sp_slot);
    open->slot = SP_UNLIKELY(unclear) ? sp_region_enter_on_lane(log, id) : sp_log_enter(log, id);
}

/* Close exactly that call, from any thread. */
static inline void sp_region_exit(sp_open *open)
{
    if (open->slot == NULL) return;
    sp_log_exit(open->log, open->slot);
    open->slot = NULL;
}

/*
 * The region `name` of a recorder, made when new: a new reference, or NULL with TypeError or ValueError (a name or tag that
 * cannot be stored, or tags that contradict those it has). `tags` NULL or None: not checked. `file` (str) may be NULL: none.
 */
PyObject *sp_recorder_region(PyObject *recorder, PyObject *name, PyObject *tags, PyObject *file, int line, PyObject *text);

/* Let go of what a look-up outside a `with` statement may have left on the calling thread. */
void sp_region_forget_pending(void);

extern PyTypeObject *sp_region_type;
extern PyTypeObject *sp_recorder_type;

int sp_python_add_region(PyObject *module);
int sp_python_add_recorder(PyObject *module);
int sp_python_add_run(PyObject *module);

#endif
