#include "core/innermost.h"

#include "core/registry.h"

/* The region of the newest open call of a lane (the thread's own: SP_NO_TASK), among those that the scan remembers. */
static int32_t innermost_of(const sp_log *log, int32_t lane)
{
    for (size_t i = log->scan_open_count; i-- > 0;) {
        const sp_slot *slot = log->scan_open[i];
        if (slot->task != lane || !sp_slot_is_open(slot)) continue;
        return (int32_t)(atomic_load_explicit(&slot->region, memory_order_relaxed) & SP_REGION_ID);
    }
    return SP_NO_REGION;
}

static int32_t innermost(sp_log *log)
{
    sp_log_scan(log);
    const int32_t lane = __atomic_load_n(&log->lane_index, __ATOMIC_RELAXED);
    const int32_t region = innermost_of(log, lane);
    return region == SP_NO_REGION && lane != SP_NO_TASK ? innermost_of(log, SP_NO_TASK) : region;
}

size_t sp_run_threads_now(sp_run *run, sp_thread_now *out, size_t size)
{
    size_t count = 0;
    sp_registry_lock(); /* threads do not end */
    pthread_mutex_lock(&run->lock);
    for (sp_log *log = run->logs; log; log = log->next_of_run) {
        const sp_thread *thread = atomic_load_explicit(&log->thread, memory_order_acquire);
        if (thread == NULL || log->orphaned) continue;
        if (count < size) {
            out[count] = (sp_thread_now){.handle = (uint64_t)(uintptr_t)thread->handle, .native_id = thread->native_id,
                                         .row = log->row->index, .region = innermost(log)};
        }
        count++;
    }
    pthread_mutex_unlock(&run->lock);
    sp_registry_unlock();
    return count;
}
