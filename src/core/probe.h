/*
 * probe.h - what a mode does at every call of a run, besides taking its times.
 *
 * The recording path has no test for it. A run with a probe never becomes its threads' hot one, so every exit comes to
 * sp_log_exit_elsewhere; and sp_log_find, to which every entry then comes, hands the log out with its anchor due, so that
 * the entry goes on to sp_log_anchor. These two call the functions below. A call's start is taken again when the probe is
 * done with its entry, and its end before the probe begins, so that the times are without the probe's own cost.
 */
#ifndef SP_CORE_PROBE_H
#define SP_CORE_PROBE_H

#include "core/types.h"

typedef struct sp_probe sp_probe;

/* What a probe keeps of a call from its entry to its exit. */
typedef struct sp_call_mark {
    uint64_t words[24];
} sp_call_mark;

/* Calls may come from any thread at once. None may fail, or disturb errno or a pending exception. */
typedef struct sp_probe_operations {
    /* A call begins on the calling thread. False: nothing is to be done at its exit. */
    bool (*entered)(sp_probe *probe, sp_log *log, uint32_t region, sp_call_mark *mark);
    /*
     * It has ended, on the calling thread or not; `start` is its slot's. True: the probe has waited for something that is part
     * of the call, so its end is now.
     */
    bool (*left)(sp_probe *probe, sp_log *log, uint32_t region, sp_ticks start, const sp_call_mark *mark);
    /* The thread of a log ends; calls that it began may still be ended by others. No interpreter; may be NULL. */
    void (*thread_gone)(sp_probe *probe, sp_log *log);
    /* The log is freed, and what the probe keeps for it (log->probe->state) with it. The same. */
    void (*log_gone)(sp_probe *probe, sp_log *log);
    /* The run is gone. No interpreter. */
    void (*release)(sp_probe *probe);
} sp_probe_operations;

struct sp_probe {
    const sp_probe_operations *operations;
};

typedef struct sp_marked_call {
    const sp_slot *slot;
    sp_call_mark mark;
} sp_marked_call;

/* What a log has in such a run. */
struct sp_log_probe {
    pthread_mutex_t lock;   /* of `calls`: another thread may end one */
    sp_marked_call *calls;  /* that are open, the innermost last */
    size_t count, size;
    sp_ticks anchor_due;    /* owner: what log->anchor_due would be */
    bool busy;              /* owner: in the probe, whose own calls are only timed */
    bool lost;              /* a mark found no memory */
    void *state;            /* the probe's, for the thread */
};

/* Whether the log's thread is in a function of the probe: what it does there is none of the program's. */
static inline bool sp_log_in_probe(const sp_log *log)
{
    return log->probe != NULL && log->probe->busy;
}

/* Give a new log of a run with a probe what it needs; false without memory. */
bool sp_log_probe_new(sp_log *log);

/* The log is freed. */
void sp_log_probe_free(sp_log *log);

/* The call of the newest slot begins. */
void sp_log_probe_entered(sp_log *log, sp_slot *slot);

/* The call of this slot has ended at `now`; the end to write down. */
sp_ticks sp_log_probe_left(sp_log *log, const sp_slot *slot, sp_ticks now);

/* Nothing is to be done any more at the calls of the run, which is over: what its threads hold for the probe is let go. */
void sp_run_probe_end(sp_run *run);

/* The call of this slot will never end: its object died. */
void sp_log_probe_forget(sp_log *log, const sp_slot *slot);

#endif
