#include "formats/finish.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/merge.h"
#include "core/note.h"

void sp_run_note_file(sp_run *run, uint32_t collection, int fd, const char *target)
{
    struct stat file;
    char here[PATH_MAX], absolute[2 * PATH_MAX];
    if (run->store == NULL || fstat(fd, &file) != 0) return;
    if (*target != '/') { /* who reads the spool may be anywhere */
        if (getcwd(here, sizeof here) == NULL) return;
        if ((size_t)snprintf(absolute, sizeof absolute, "%s/%s", here, target) >= sizeof absolute) return;
        target = absolute;
    }
    const int64_t changed = (int64_t)file.st_mtim.tv_sec * 1000000000 + file.st_mtim.tv_nsec;
    sp_note_file(run, collection, (uint64_t)file.st_dev, (uint64_t)file.st_ino, changed, target);
}

typedef struct finishing {
    sp_run *run;
    sp_collection *collection;
} finishing;

static void file_is_ready(void *context, int fd, const char *target)
{
    finishing *f = context;
    sp_run_note_file(f->run, sp_collection_number(f->collection), fd, target);
}

/* How many calls went with the memory of a store is known when the others are chosen. */
static sp_status tell_vanished(sp_run *run, sp_profile *profile)
{
    if (sp_run_lost_pages(run) == 0) return SP_OK;
    pthread_mutex_lock(&run->lock);
    const uint64_t lost = sp_run_lost(run);
    pthread_mutex_unlock(&run->lock);
    return lost ? sp_profile_set_int(profile, "lost_calls", (int64_t)lost) : SP_OK;
}

sp_status sp_run_finish(sp_run *run, const sp_finish_options *options, sp_profile **out, sp_error *error)
{
    finishing f = {.run = run};
    sp_hdf5_options hdf5 = options->hdf5 ? *options->hdf5 : (sp_hdf5_options){.level = -1};
    if (!options->keeps || options->last) hdf5.ready = file_is_ready; /* what a later file has again is in none yet */
    hdf5.ready_context = &f;
    sp_status status = options->last ? sp_collection_begin_last(run, options->rank, options->first_call_id, &f.collection, error)
                                     : sp_collection_begin(run, options->rank, options->first_call_id, &f.collection, error);
    if (status != SP_OK) return status;
    sp_profile *profile = sp_profile_share(sp_collection_profile(f.collection));
    if (options->description) status = sp_profile_copy_metadata(profile, options->description);
    if (options->description && status == SP_OK && !sp_profile_add_aux(profile, options->description)) status = SP_ERR_NO_MEMORY;
    if (status == SP_OK) status = tell_vanished(run, profile);
    if (status != SP_OK) status = sp_fail(error, status, "no memory to write %s", options->path);
    if (status == SP_OK && options->last) status = sp_collection_mark_open(f.collection, error);
    if (status == SP_OK && options->write) status = options->write(options->context, f.collection, &hdf5, error);
    else if (status == SP_OK) status = sp_hdf5_write_collection(f.collection, options->path, &hdf5, error);
    if (status == SP_OK && !options->keeps) sp_collection_confirm(f.collection);
    else sp_collection_abandon(f.collection);
    if (status == SP_OK && out) *out = profile;
    else sp_profile_release(profile);
    return status;
}
