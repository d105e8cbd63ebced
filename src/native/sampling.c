#include "native/profiler.h"
int sp_native_start_sampling(sp_profiler *profiler, int hz)
{
    return sp_native_fail(profiler, SP_ERR_UNSUPPORTED, NULL);
}

int sp_native_stop_sampling(sp_profiler *profiler)
{
    return SP_OK;
}
