/* finish.h - the end of a recording, or a checkpoint of it: its calls into a file, in the order that loses none. */
#ifndef SP_FORMATS_FINISH_H
#define SP_FORMATS_FINISH_H

#include "formats/hdf5.h"

typedef struct sp_finish_options {
    const char *path;
    const sp_hdf5_options *hdf5;   /* NULL: the defaults */
    uint32_t rank;
    int64_t first_call_id;         /* 0, and behind a checkpoint the number of calls reported so far */
    const sp_profile *description; /* whose metadata and auxiliary groups the file gets; NULL: none */
    bool last;  /* the run is over: calls that are open are there too, end now, and carry {"open":true} */
    bool keeps; /* the run keeps all calls whatever happens: its next file has them again, or it is dropped */
    /* What writes the file of this collection instead of sp_hdf5_write_collection, and calls hdf5->ready as that does; or NULL. */
    sp_status (*write)(void *context, sp_collection *collection, const sp_hdf5_options *hdf5, sp_error *error);
    void *context;
} sp_finish_options;

/*
 * Write every call that is closed and not in a file yet, and only then take it off the run. Memory is bounded, however many calls
 * there are. `out` (may be NULL) gets the profile, without its calls. After a failure the run has them all: call it again.
 */
sp_status sp_run_finish(sp_run *run, const sp_finish_options *options, sp_profile **out, sp_error *error);

/* The file with the calls that were collected last is complete and will be renamed to `target`: tell the run's store. */
void sp_run_note_file(sp_run *run, uint32_t collection, int fd, const char *target);

#endif
