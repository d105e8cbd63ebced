#include "formats/rank_view.h"

void sp_rank_view_free(sp_rank_view *view)
{
    sp_rank_lanes_free(&view->lanes);
    sp_event_items_free(&view->items);
    sp_lane_names_free(&view->names);
    sp_tracks_free(&view->tracks);
}

sp_status sp_rank_view_make(sp_rank_view *view, const sp_export *what, uint32_t rank, int64_t origin, sp_error *error)
{
    *view = (sp_rank_view){0};
    sp_status status = sp_tracks_make(&view->tracks, what->profile, rank, what->visible, error);
    if (status == SP_OK) status = sp_lane_names_make(&view->names, what->profile, rank, error);
    if (status == SP_OK) status = sp_event_items_make(&view->items, what->profile, rank, error);
    if (status == SP_OK) {
        status = sp_rank_lanes_make(&view->lanes, &view->tracks, &view->names, what->visible == NULL, origin, error);
    }
    if (status != SP_OK) sp_rank_view_free(view);
    return status;
}
