/* open_calls.h - the calls that are open when a run ends, which no collection has. */
#ifndef SP_NATIVE_OPEN_CALLS_H
#define SP_NATIVE_OPEN_CALLS_H

#include "analysis/profile.h"
#include "core/run.h"

/*
 * What a run has beyond its last collection, as a profile: calls that are open end now and carry {"open":true} as event
 * metadata, calls that ended since are as they are. *out is NULL where there are none. The slots are only read: those who
 * hold open calls may still end them.
 */
sp_status sp_native_open_calls(sp_run *run, uint32_t rank, sp_profile **out, sp_error *error);

#endif
