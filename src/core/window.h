/* window.h - a run that keeps its newest calls: what goes when its store has reached its limit. */
#ifndef SP_CORE_WINDOW_H
#define SP_CORE_WINDOW_H

#include "core/run.h"

typedef enum sp_room {
    SP_ROOM_MADE, /* some was given back, maybe not enough */
    SP_ROOM_BUSY, /* a collection is under way, or its calls are not in a file yet: nothing may go now; the store is told */
    SP_ROOM_NONE, /* there is nothing that could go */
} sp_room;

/*
 * Drop the calls of the oldest full block that helps to make a block of `bytes`, but for those that are open or reach into
 * what is kept. With run->lock held, until the block has been taken: another thread would take its place.
 */
sp_room sp_run_drop_oldest(sp_run *run, size_t bytes);

#endif
