/* rank_view.h - what the writers of traces need to know of one rank: its calls in tracks, the lanes to draw, and what they are called. */
#ifndef SP_FORMATS_RANK_VIEW_H
#define SP_FORMATS_RANK_VIEW_H

#include "analysis/lane_events.h"
#include "analysis/tracks.h"
#include "formats/event_items.h"
#include "formats/export.h"

typedef struct sp_rank_view {
    sp_tracks tracks;
    sp_lane_names names;
    sp_event_items items;
    sp_rank_lanes lanes;
} sp_rank_view;

/* Of the regions that are exported. SP_ERR_NO_MEMORY: there is nothing to free. */
sp_status sp_rank_view_make(sp_rank_view *view, const sp_export *what, uint32_t rank, int64_t origin, sp_error *error);
void sp_rank_view_free(sp_rank_view *view);

#endif
