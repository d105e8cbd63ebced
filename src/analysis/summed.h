/* summed.h - the totals of a run that keeps sums (totals.h) as a profile: rows with an aggregate and statistics, and no calls. */
#ifndef SP_ANALYSIS_SUMMED_H
#define SP_ANALYSIS_SUMMED_H

#include "analysis/profile.h"
#include "core/totals.h"

/* sp_run_collect of such a run. */
sp_status sp_run_collect_totals(sp_run *run, uint32_t rank, sp_profile **out, sp_error *error);

/* The profile of sums by region id; regions without a call have no row. The timeline must reach behind all of them. */
sp_status sp_summed_profile(sp_run *run, uint32_t rank, const sp_summed *sums, size_t count, sp_profile **out, sp_error *error);

#endif
