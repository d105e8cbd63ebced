#include "core/probe.h"

#include <stdlib.h>
#include <string.h>

#include "core/grow.h"
#include "core/run.h"

bool sp_log_probe_new(sp_log *log)
{
    struct sp_log_probe *probed = calloc(1, sizeof *probed);
    if (probed == NULL) return false;
    pthread_mutex_init(&probed->lock, NULL);
    log->probe = probed;
    return true;
}

void sp_log_probe_free(sp_log *log)
{
    struct sp_log_probe *probed = log->probe;
    if (probed == NULL) return;
    sp_probe *probe = log->run->probe;
    if (probe->operations->log_gone) probe->operations->log_gone(probe, log);
    pthread_mutex_destroy(&probed->lock);
    free(probed->calls);
    free(probed);
    log->probe = NULL;
}

void sp_run_probe_end(sp_run *run)
{
    if (run->probe == NULL || run->probe->operations->thread_gone == NULL) return;
    pthread_mutex_lock(&run->lock);
    for (sp_log *log = run->logs; log; log = log->next_of_run) {
        if (log->probe) run->probe->operations->thread_gone(run->probe, log);
    }
    pthread_mutex_unlock(&run->lock);
}

static bool push(struct sp_log_probe *probed, const sp_slot *slot, const sp_call_mark *mark)
{
    pthread_mutex_lock(&probed->lock);
    const bool kept = sp_grow(&probed->calls, &probed->size, probed->count, sizeof *probed->calls, 8);
    if (kept) probed->calls[probed->count++] = (sp_marked_call){slot, *mark};
    else probed->lost = true;
    pthread_mutex_unlock(&probed->lock);
    return kept;
}

/* Take the call's mark out, wherever it is: calls need not end in the order in which they began. */
static bool take(struct sp_log_probe *probed, const sp_slot *slot, sp_call_mark *mark)
{
    bool found = false;
    pthread_mutex_lock(&probed->lock);
    for (size_t i = probed->count; i-- > 0;) {
        if (probed->calls[i].slot != slot) continue;
        *mark = probed->calls[i].mark;
        memmove(&probed->calls[i], &probed->calls[i + 1], (probed->count - i - 1) * sizeof *probed->calls);
        probed->count--;
        found = true;
        break;
    }
    pthread_mutex_unlock(&probed->lock);
    return found;
}

static uint32_t region_of(const sp_slot *slot)
{
    return atomic_load_explicit(&slot->region, memory_order_relaxed) & SP_REGION_ID;
}

void sp_log_probe_entered(sp_log *log, sp_slot *slot)
{
    struct sp_log_probe *probed = log->probe;
    sp_probe *probe = log->run->probe;
    if (probed->busy || log->run->inherited) return;
    sp_call_mark mark;
    probed->busy = true;
    if (probe->operations->entered(probe, log, region_of(slot), &mark)) push(probed, slot, &mark);
    probed->busy = false;
    atomic_store_explicit(&slot->start, sp_clock_read(), memory_order_release);
}

sp_ticks sp_log_probe_left(sp_log *log, const sp_slot *slot, sp_ticks now)
{
    struct sp_log_probe *probed = log->probe;
    sp_probe *probe = log->run->probe;
    sp_call_mark mark;
    if (log->run->inherited || !take(probed, slot, &mark)) return now; /* a forked child: the lock may be anybody's */
    const sp_ticks start = atomic_load_explicit(&slot->start, memory_order_relaxed);
    const bool own = sp_this_thread && atomic_load_explicit(&log->thread, memory_order_relaxed) == sp_this_thread;
    if (own) probed->busy = true;
    const bool waited = probe->operations->left(probe, log, region_of(slot), start, &mark);
    if (own) probed->busy = false;
    return waited ? sp_clock_read() : now;
}

void sp_log_probe_forget(sp_log *log, const sp_slot *slot)
{
    if (log->probe) sp_log_probe_left(log, slot, 0);
}
