/* Uses every name that the header had in release 0.7.5. It compiles in each standard, with and without profiling. */
#include <scope_profiler.h>

static int regions(sp_profiler *profiler)
{
    int a = SP_REGION_AT("a"), b = SP_PROFILER_REGION_AT(profiler, "b");
    int c = sp_region("c"), d = sp_region_at("d", __FILE__, __LINE__);
    int e = sp_profiler_region(profiler, "e"), f = sp_profiler_region_at(profiler, "f", 0, -1);
    sp_scope scope = sp_profiler_scope_begin(profiler, b);
    sp_region_stats stats;
    sp_begin(a);
    sp_end(a);
    sp_profiler_begin(profiler, b);
    sp_profiler_end(profiler, b);
    (void)sp_profiler_end_last(profiler);
    (void)sp_scope_end(&scope);
    (void)sp_profiler_get_region_stats(profiler, b, &stats);
    {
        SP_SCOPE("block");
    }
    return (int)sp_num_calls(a) + (c == SP_INVALID_REGION) + d + e + f;
}

int main(void)
{
    sp_profiler *profiler = sp_create("every", 0);
    sp_status status = SP_OK;
    sp_output_format format = sp_default_output_format();
    const char *texts[] = {sp_error_string(status), sp_output_path(), sp_profiler_output_path(profiler),
                           sp_profiler_region_name(profiler, 0)};
    int64_t now = sp_now_ns();
    (void)sp_init("every_default", 1);
    (void)regions(profiler);
    (void)sp_profiler_set_output_format(profiler, SP_OUTPUT_TRACE);
    (void)sp_set_output_format(format);
    format = sp_current_output_format();
    format = sp_profiler_output_format(profiler);
    (void)sp_profiler_num_regions(profiler);
    (void)sp_profiler_reset(profiler);
    (void)sp_profiler_flush(profiler);
    (void)sp_profiler_start_sampling(profiler, 100);
    (void)sp_profiler_stop_sampling(profiler);
    (void)sp_start_sampling(100);
    (void)sp_stop_sampling();
    (void)sp_hdf5_available();
    (void)sp_is_active();
    (void)sp_profiler_is_active(profiler);
    status = sp_profiler_last_error(sp_default_profiler());
    (void)sp_profiler_finalize(profiler);
    sp_destroy(profiler);
    return sp_finalize() != 0 || texts[0] == 0 || now == 0 || (int)status == SP_FORMAT_VERSION * 100 || (int)format > 1;
}
