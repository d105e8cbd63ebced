/* watch.h - what `top` prints of a running process. */
#ifndef SP_REPORT_WATCH_H
#define SP_REPORT_WATCH_H

#include "formats/spool_watch.h"
#include "report/text.h"

typedef struct sp_watch_view {
    char sort; /* one of sp_watch_sorts */
    size_t rows; /* of each table */
    bool keys; /* say which keys there are */
    bool paused;
} sp_watch_view;

/* Keys by which regions are sorted: total time, calls, calls a second, open calls, name. */
#define SP_WATCH_SORTS "tcron"

/* `path` names the run where its output has no name. */
void sp_report_watch(const sp_watched *seen, const char *path, const sp_watch_view *view, sp_text *out);

#endif
