#include "formats/summary_job.h"

#include <stdlib.h>

#include "platform/platform.h"

/* Calls from which a thread is worth its start. */
#define THREAD_FROM 50000

/* Of very many regions with a few calls each, the sums take more room than the calls: in the file and, while they are made,
 * in memory. */
#define FEW_ROWS 4096
#define CALLS_WORTH_A_SUM 8

bool sp_summary_is_worth_paths(const sp_profile *profile)
{
    return profile->row_count < FEW_ROWS || profile->call_count / CALLS_WORTH_A_SUM >= profile->row_count;
}

static void sum_rows(sp_summary_job *job)
{
    const sp_profile *profile = job->profile;
    const size_t count = profile->row_count;
    job->statistics = calloc(count ? count : 1, sizeof *job->statistics);
    job->percentiles = calloc(count ? count : 1, SP_PERCENTILE_COUNT * sizeof *job->percentiles);
    if (job->statistics == NULL || job->percentiles == NULL) {
        job->status = SP_ERR_NO_MEMORY;
        return;
    }
    for (size_t i = 0; i < count && job->status == SP_OK; i++) {
        const sp_row *row = &profile->rows[i];
        double own[SP_PERCENTILE_COUNT];
        const double *percentiles = row->percentiles;
        if (row->has_statistics) job->statistics[i] = row->statistics;
        else sp_row_statistics_compute(profile, row, &job->statistics[i]);
        if (!row->has_percentiles) {
            job->status = sp_row_percentiles_compute(profile, row, sp_percentile_ranks, SP_PERCENTILE_COUNT, own);
            percentiles = own;
        }
        for (size_t p = 0; p < SP_PERCENTILE_COUNT; p++) job->percentiles[p * count + i] = percentiles[p];
    }
}

static void *work(void *argument)
{
    sp_summary_job *job = argument;
    const sp_profile *profile = job->profile;
    sum_rows(job);
    const bool nestable = profile->summary_only ? profile->stored_paths != NULL
        : profile->columns[SP_COLUMN_CALL_ID] || profile->call_count <= SP_NEST_CALLS_MAX;
    if (job->status == SP_OK && nestable && sp_summary_is_worth_paths(profile) && !profile->aggregate) {
        /* a run with too many calls or paths is written without the sums */
        sp_path_summary_make(profile, NULL, &job->paths, NULL);
    }
    return NULL;
}

void sp_summary_job_begin(sp_summary_job *job, const sp_profile *profile)
{
    *job = (sp_summary_job){.profile = profile};
    if (profile->call_count >= THREAD_FROM) {
        job->threaded = sp_platform_start_thread(&job->thread, work, job);
    }
    if (!job->threaded) work(job);
}

sp_status sp_summary_job_wait(sp_summary_job *job)
{
    if (job->threaded) pthread_join(job->thread, NULL);
    job->threaded = false;
    return job->status;
}

void sp_summary_job_free(sp_summary_job *job)
{
    sp_summary_job_wait(job);
    free(job->statistics);
    free(job->percentiles);
    sp_path_summary_free(job->paths);
}

void sp_summary_job_tell_rows(const sp_summary_job *job, sp_profile *profile)
{
    for (size_t i = 0; i < profile->row_count; i++) {
        sp_row *row = &profile->rows[i];
        row->has_statistics = row->has_percentiles = true;
        row->statistics = job->statistics[i];
        for (size_t p = 0; p < SP_PERCENTILE_COUNT; p++) row->percentiles[p] = job->percentiles[p * profile->row_count + i];
    }
}

void sp_summary_job_keep(sp_summary_job *job, sp_profile *profile)
{
    sp_summary_job_tell_rows(job, profile);
    profile->stored_paths = job->paths;
    job->paths = NULL;
}
