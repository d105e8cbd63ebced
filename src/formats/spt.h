/* spt.h - traces: the calls of one rank by region, without lanes. docs/trace-format.md is the specification. */
#ifndef SP_FORMATS_SPT_H
#define SP_FORMATS_SPT_H

#include "analysis/profile.h"

/* Write the calls of one rank of a profile as version 2, put in place when it is whole. Regions without calls are left out. */
sp_status sp_spt_write(const sp_profile *profile, uint32_t rank, const char *path, sp_error *error);

#endif
