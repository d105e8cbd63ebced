/*
 * html_report.h - runs as one HTML file that shows them in a browser: the viewer (viewer/, built into the library as
 * viewer_page.c) with the data in the middle. The file fetches nothing.
 *
 *   <script type="application/json" id="sp-report">      the report: names, statistics, threads, tasks, paths, metadata
 *   <script type="application/json" data-run data-rank>  a rank: its tracks, and how many calls each depth of a track has
 *   <script type="text/plain" data-run data-rank data-column>
 *                                                        a column over the calls of a rank
 *
 * The calls of a rank lie as the timeline draws them: track by track (tracks.h), in a track depth by depth, in a depth by
 * start. So a drawn row is one piece of every column, ordered by start and end, and the viewer needs no sort.
 *
 *   column      value of a call                                     columns that a run does not have are left out
 *   gap         ns from the end of the call before it in its row; of the first one, from the origin of the run
 *   duration    ns
 *   name        index into the names of the run
 *   parent      how many places further than that of the call before it its parent is, in the row above
 *   await       ns
 *   gpu         ns + 1; 0: not measured
 *
 * A column is written in blocks, one a line: how many values, bytes a value, and in base64 the zlib stream of these bytes,
 * the lowest byte of every value first, then the next. The column "metadata" has lines of a call's place and its JSON.
 * Everywhere "<" is written as an escape, so that no name can end a script element.
 */
#ifndef SP_FORMATS_HTML_REPORT_H
#define SP_FORMATS_HTML_REPORT_H

#include "formats/export.h"

typedef struct sp_html_report {
    const sp_export *runs;
    size_t run_count;
    const char *options; /* a JSON object for the viewer (viewer/src/report.ts); NULL: none */
    bool without_calls;  /* tables only */
} sp_html_report;

/* SP_ERR_UNSUPPORTED: this build has no viewer. Memory as for other exports, and 8 bytes a call of one rank. */
sp_status sp_export_html(const sp_html_report *report, const char *path, sp_error *error);

/* The viewer: a page with SP_VIEWER_MARK where the data goes. The size is 0 in a build without it. */
#define SP_VIEWER_MARK "<!--scope-profiler:data-->"
extern const unsigned char sp_viewer_page[];
extern const size_t sp_viewer_page_size;

#endif
