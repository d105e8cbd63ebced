/* host.c - what this copy of the library does for those that have joined it: the table of its functions. */
#include <string.h>

#include "native/profiler.h"

static int num_regions(sp_profiler *profiler)
{
    return (int)atomic_load_explicit(&profiler->region_count, memory_order_acquire);
}

static const char *region_name(sp_profiler *profiler, int handle)
{
    if ((uint32_t)handle >= (uint32_t)num_regions(profiler)) return NULL;
    return sp_native_region_at(profiler, (uint32_t)handle)->name;
}

static int region_place(sp_profiler *profiler, int handle, const char **file)
{
    if (region_name(profiler, handle) == NULL) return -1;
    sp_native_lock(profiler);
    const sp_native_region *region = sp_native_region_at(profiler, (uint32_t)handle);
    const int line = region->line;
    *file = region->file;
    sp_native_unlock(profiler);
    return line;
}

static const char *output_path(sp_profiler *profiler)
{
    if (profiler->shared) profiler = profiler->shared;
    return profiler->joined ? NULL : profiler->path;
}

static int output_format(sp_profiler *profiler)
{
    return (int)(profiler->shared ? profiler->shared : profiler)->format;
}

static int last_error(sp_profiler *profiler)
{
    return atomic_load_explicit(&profiler->last_error, memory_order_relaxed);
}

static const char *error_message(sp_profiler *profiler)
{
    const int status = last_error(profiler);
    if (status == SP_OK) return "";
    return status == profiler->message_status && *profiler->message ? profiler->message : sp_error_string(status);
}

static int set_thread_name(sp_profiler *profiler, const char *name)
{
    const uint64_t token = __atomic_load_n(&profiler->head.live, __ATOMIC_ACQUIRE);
    sp_log *log = token ? sp_log_current(token) : NULL;
    if (log == NULL) return SP_ERR_INACTIVE;
    if (name == NULL) return SP_ERR_INVALID;
    sp_run_describe_thread(log->run, log->row, name, log->row->ident, log->row->daemon);
    return SP_OK;
}

static int open_calls(sp_profiler *profiler)
{
    return sp_native_count_open(profiler);
}

const sp_host_calls sp_native_calls = {
    .version = SP_HOST_VERSION,
    .size = sizeof(sp_host_calls),
    .begin = sp_native_begin,
    .end = sp_native_end,
    .scope_begin = sp_native_scope_begin,
    .scope_end = sp_native_scope_end,
    .scope_close = sp_native_scope_close,
    .end_last = sp_native_end_last,
    .region = sp_native_region_of,
    .init = sp_native_init,
    .finalize = sp_native_finalize,
    .flush = sp_native_flush,
    .reset = sp_native_reset,
    .num_calls = sp_native_num_calls,
    .region_stats = sp_native_region_stats,
    .num_regions = num_regions,
    .region_name = region_name,
    .region_place = region_place,
    .output_path = output_path,
    .set_output_format = sp_native_set_output_format,
    .output_format = output_format,
    .last_error = last_error,
    .error_message = error_message,
    .lane_create = sp_native_lane_create,
    .lane_switch = sp_native_lane_switch,
    .lane_end = sp_native_lane_end,
    .set_thread_name = set_thread_name,
    .set_metadata = sp_native_set_metadata,
    .start_sampling = sp_native_start_sampling,
    .stop_sampling = sp_native_stop_sampling,
    .join = sp_native_join,
    .end_status = sp_native_end_status,
    .open_calls = open_calls,
    .finalize_ranks = sp_native_finalize_ranks,
};

