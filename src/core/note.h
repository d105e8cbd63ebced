/* note.h - telling a run's store of what is not a call: names, threads, anchors. All do nothing for a run without a store. */
#ifndef SP_CORE_NOTE_H
#define SP_CORE_NOTE_H

#include "core/run.h"

/* With run->lock held, each of them: so notes are in the order of what they tell. */
void sp_note_regions(sp_run *run); /* that it has not been told of yet */
void sp_note_thread(sp_run *run, const sp_thread_row *row);
void sp_note_thread_end(sp_run *run, const sp_thread_row *row);
void sp_note_string(sp_run *run, uint32_t id);
void sp_note_task_name(sp_run *run, const sp_task *task);

/* Anchors that the store has not been told of yet. */
void sp_note_anchors(sp_run *run);

/* How many calls went so far, and until when. */
void sp_note_dropped(sp_run *run);

/* Where a slot of a block of the store is. */
sp_mark sp_note_place(const sp_run *run, const sp_block *block, const char *at, uint32_t row, uint32_t stride);

/* A collection: `logs` marks of how far each log was read, then `open` ones of calls before them that were still open. */
void sp_note_collect(sp_run *run, uint32_t number, const sp_mark *marks, size_t logs, size_t open);

/*
 * The file with collection `number` is complete, and about to be renamed to `path`. What it is known by: device, inode and
 * the time of its last change, which a rename keeps.
 */
void sp_note_file(sp_run *run, uint32_t number, uint64_t device, uint64_t inode, int64_t changed_ns, const char *path);

/* Plain: a number, and a text that may be empty. */
void sp_note(sp_run *run, sp_note_kind kind, uint32_t index, const char *text);

#endif
