/*
 * hdf5_library.h - libhdf5, used safely: one user at a time, silent, with its file operations in our hands.
 *
 * Every call into libhdf5 lies between sp_hdf5_enter and sp_hdf5_leave, which hold the one lock and keep the library's error
 * printing off (and put back what the process had set). The lock is held across fork() by the forking thread, so a child
 * never inherits the library in the middle of something.
 *
 * Files are opened through a driver of ours over a file descriptor. When writing fails (a full disk) the driver notes errno
 * and goes on as if it had worked, because libhdf5 1.10 crashes when it cannot flush; the caller asks for the problem at the
 * end, before the file is put in its place. And the file that was checked is the file that is read.
 */
#ifndef SP_FORMATS_HDF5_LIBRARY_H
#define SP_FORMATS_HDF5_LIBRARY_H

#include <hdf5.h>
#include <stdbool.h>

#include "core/error.h"

typedef struct sp_hdf5_session {
    H5E_auto2_t printer;
    void *printer_data;
} sp_hdf5_session;

/* SP_ERR_IO when the library cannot be initialised; then there is nothing to leave. */
sp_status sp_hdf5_enter(sp_hdf5_session *session, sp_error *error);
void sp_hdf5_leave(sp_hdf5_session *session);

/* The descriptor behind an open HDF5 file; must outlive it. */
typedef struct sp_hdf5_io {
    int fd;
    int problem; /* errno of the first read or write that failed */
    /* Data that comes from here is not written, only given a place: somebody else writes it there. All else is; the library calls parts
     * of its metadata raw data too, and writes them when its cache is full. */
    const void *elsewhere;
    uint64_t place, size; /* of the raw data that was last placed so, and how much there was of it */
} sp_hdf5_io;

/* A new file in `io->fd`, which is empty, in the newest format that HDF5 1.10 can read. H5I_INVALID_HID on failure. */
hid_t sp_hdf5_create(sp_hdf5_io *io);
hid_t sp_hdf5_open(sp_hdf5_io *io);

/* The innermost entry of libhdf5's error stack, in one line: why the last call failed. */
const char *sp_hdf5_reason(char *buffer, size_t size);

#endif
