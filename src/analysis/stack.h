/*
 * stack.h - processes side by side on one timeline: runs of worker processes, ranks and hosts, each recorded on its own.
 *
 *   file A   rank 0            ranks 0..    kept where no two sets have the same one,
 *   file B   rank 0   ─────>   of the       else counted on from set to set
 *   file C   ranks 0, 1        result
 *
 * Processes of one clock domain are in order as they are. Others are brought to the clock of the first set's first process by
 * what the process table says: two moments at which both clocks, or each of them and the calendar's, were read. Between and
 * beyond these moments clocks are taken to run evenly (an offset and a drift).
 */
#ifndef SP_ANALYSIS_STACK_H
#define SP_ANALYSIS_STACK_H

#include "analysis/profile.h"

/*
 * Stack profiles. `names[i]` (may be NULL) names the processes of set i that have none. With `align`, times are moved onto one
 * clock; then every process carries in `error_ns` how far it may be off against the first at most by what was measured
 * (0 in the same clock domain), and SP_UNKNOWN where nothing is known and its times are as they were. One reference.
 *
 * SP_ERR_INVALID (no sets, or more ranks than there are numbers), SP_ERR_UNSUPPORTED (sets with and without their calls; moved
 * times need the calls), SP_ERR_NO_MEMORY.
 */
sp_status sp_profile_stack(const sp_profile *const *sets, const char *const *names, size_t count, bool align,
                           sp_profile **out, sp_error *error);

#endif
