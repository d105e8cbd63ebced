/*
 * export.h - what all exports of a profile have in common: which part of it is exported, and to which file.
 *
 * Exports stream: besides the profile they keep 4 bytes a call of one rank (tracks.h; more for a moment) and a buffer.
 */
#ifndef SP_FORMATS_EXPORT_H
#define SP_FORMATS_EXPORT_H

#include "analysis/tracks.h"
#include "formats/output.h"

#define SP_EXPORTER "scope-profiler@" SP_VERSION

typedef struct sp_export {
    const sp_profile *profile;
    const char *name;      /* of the run, for people */
    const uint32_t *ranks; /* in this order */
    size_t rank_count;
    const bool *visible; /* by name; NULL: every region */
    bool flat;           /* pstats: an entry a region, not one a call path */
    bool by_lane;        /* folded stacks: apart for each thread and task */
} sp_export;

/* One function a format. Each writes `path`, whole or not at all. */
typedef sp_status sp_exporter(const sp_export *what, const char *path, sp_error *error);

sp_exporter sp_export_speedscope;
sp_exporter sp_export_chrome_trace;
sp_exporter sp_export_perfetto;
sp_exporter sp_export_pstats; /* one rank only */
sp_exporter sp_export_folded;
sp_exporter sp_export_csv;

#endif
