/*
 * hdf5.h - profiles as HDF5 files. docs/file-format.md is the specification; schema 3 is written, 1 to 3 are read.
 *
 * Both functions may be called from any thread, and from several: they take turns. Neither prints.
 */
#ifndef SP_FORMATS_HDF5_H
#define SP_FORMATS_HDF5_H

#include "analysis/collection.h"
#include "analysis/profile.h"

typedef enum sp_compression {
    SP_COMPRESSION_AUTO, /* ours: shuffle and fast deflate for what is not tiny */
    SP_COMPRESSION_NONE,
    SP_COMPRESSION_GZIP,
    SP_COMPRESSION_LZF,
    SP_COMPRESSION_ZSTD
} sp_compression;

typedef struct sp_hdf5_options {
    sp_compression compression;
    int level;           /* gzip 0-9, zstd 1-22; -1: the default */
    uint64_t chunk_size; /* elements of a chunk; 0: the default */
    /* Called when the file is complete and about to be renamed to `target`, of several ranks' on each that sees it; or NULL. */
    void (*ready)(void *context, int fd, const char *target);
    void *ready_context;
} sp_hdf5_options;

/*
 * Write `profile` to `path`: to a temporary file beside it, made durable and renamed (file_replace.h), so that `path` is
 * the old file or the whole new one. `options` may be NULL. SP_ERR_IO with the errno in error->system, SP_ERR_NO_MEMORY,
 * SP_ERR_INVALID (a profile without its calls, rows that overlap).
 */
sp_status sp_hdf5_write(const sp_profile *profile, const char *path, const sp_hdf5_options *options, sp_error *error);

/*
 * Write the calls of a collection, which stays to be ended, with the metadata of its profile. Memory is bounded, however many calls there are
 * (call_stream.h). The profile then has its statistics, percentiles and sums by path, and is summary_only. Fails as sp_hdf5_write.
 */
sp_status sp_hdf5_write_collection(sp_collection *collection, const char *path, const sp_hdf5_options *options,
                                   sp_error *error);

/* What to read: rows of these regions and ranks only (NULL: all), and whether their calls. */
typedef struct sp_hdf5_selection {
    bool summary; /* rows with their statistics, without calls: SP_ERR_UNSUPPORTED if the file has no statistics */
    bool head;    /* a summary whose calls are read later: SP_ERR_UNSUPPORTED unless the file has sums by path and a seal that
                   * vouches for the rest; a large file is believed until it is read whole */
    const char *const *regions;
    size_t region_count;
    const uint32_t *ranks;
    size_t rank_count;
} sp_hdf5_selection;

/*
 * Read a profile. `selection` may be NULL. SP_ERR_NOT_FOUND and SP_ERR_IO with the errno, SP_ERR_CORRUPT, SP_ERR_FOREIGN,
 * SP_ERR_SCHEMA, SP_ERR_NO_MEMORY. A file whose seal does not vouch for it is read in a child process (isolated.h),
 * because libhdf5 crashes on damaged files.
 */
sp_status sp_hdf5_read(const char *path, const sp_hdf5_selection *selection, sp_profile **profile, sp_error *error);

/* The same from an open descriptor, which stays open; `path` is what messages call it. */
sp_status sp_hdf5_read_open(int fd, const char *path, const sp_hdf5_selection *selection, sp_profile **profile,
                            sp_error *error);

/*
 * Whether other users of libhdf5 in the process may run meanwhile: the library is our own copy, or was built thread-safe (a
 * distribution's usually is). If not, the caller must keep them out: h5py holds a lock of its own.
 */
bool sp_hdf5_concurrent(void);

/*
 * Nobody else in this process uses libhdf5: it need not tidy up at exit. It cannot after a file that could not be read, and prints pages
 * about that. Before anything else of it.
 */
void sp_hdf5_use_alone(void);

#endif
