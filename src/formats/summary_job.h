/*
 * summary_job.h - what a file says about its calls in sum, made on a thread of its own while the calls are compressed and
 * written: statistics and percentiles by row, totals by call path.
 */
#ifndef SP_FORMATS_SUMMARY_JOB_H
#define SP_FORMATS_SUMMARY_JOB_H

#include <pthread.h>

#include "analysis/path_summary.h"
#include "analysis/profile.h"

typedef struct sp_summary_job {
    const sp_profile *profile;
    sp_row_statistics *statistics; /* one a row */
    double *percentiles;           /* [percentile][row] */
    sp_path_summary *paths;        /* NULL: too large to sum up, or nothing to sum */
    sp_status status;              /* SP_ERR_NO_MEMORY is the only failure */
    pthread_t thread;
    bool threaded;
} sp_summary_job;

/* Without ids the calls have to be nested first, at 64 bytes a call: only for runs where that does not matter. */
#define SP_NEST_CALLS_MAX 1000000

/* Whether the sums by path are worth their place in a file. */
bool sp_summary_is_worth_paths(const sp_profile *profile);

/* Begin; a small run is done at once. The profile must stay as it is until sp_summary_job_wait. */
void sp_summary_job_begin(sp_summary_job *job, const sp_profile *profile);

/* Afterwards the results are there. May be called again. */
sp_status sp_summary_job_wait(sp_summary_job *job);
void sp_summary_job_free(sp_summary_job *job); /* waits */

/* Statistics and percentiles of the rows become the profile's; with the second also the sums by path, which the job gives up. */
void sp_summary_job_tell_rows(const sp_summary_job *job, sp_profile *profile);
void sp_summary_job_keep(sp_summary_job *job, sp_profile *profile);

#endif
