#include "formats/hdf5_library.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

#include "formats/file_bytes.h"
#include "formats/hdf5.h"
#include "formats/hdf5_filters.h"

/* -- one at a time, in the order of asking: a thread that writes in a loop would starve the others at a plain mutex -- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t next, serving; /* tickets */
} turns = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};

static _Thread_local bool holding; /* a fork by the holder itself must not wait for the holder */

static void take_turn(void)
{
    pthread_mutex_lock(&turns.lock);
    const uint64_t ticket = turns.next++;
    while (ticket != turns.serving) pthread_cond_wait(&turns.moved, &turns.lock);
    pthread_mutex_unlock(&turns.lock);
}

static void end_turn(void)
{
    pthread_mutex_lock(&turns.lock);
    turns.serving++;
    pthread_cond_broadcast(&turns.moved);
    pthread_mutex_unlock(&turns.lock);
}

static void before_fork(void)
{
    if (!holding) take_turn();
}

static void after_fork(void)
{
    if (!holding) end_turn();
}

/* The threads that were waiting are not here. */
static void after_fork_in_child(void)
{
    pthread_mutex_init(&turns.lock, NULL);
    pthread_cond_init(&turns.moved, NULL);
    turns.serving = 0;
    turns.next = holding ? 1 : 0;
}

/* When the library is loaded: at the first use another thread may be forking already, past the point where it would ask us. */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

bool sp_hdf5_concurrent(void)
{
#ifdef SP_PRIVATE_HDF5
    return true;
#else
    hbool_t safe = false;
    return H5is_library_threadsafe(&safe) >= 0 && safe;
#endif
}

/* -- the driver -- */

typedef struct driver_file {
    H5FD_t public;
    sp_hdf5_io *io;
    haddr_t eoa, eof;
    bool writable;
} driver_file;

/* What the file access property list carries. */
typedef struct driver_info {
    sp_hdf5_io *io;
} driver_info;

static void note_problem(sp_hdf5_io *io)
{
    if (io->problem == 0) io->problem = errno ? errno : EIO;
}

static H5FD_t *driver_open(const char *name, unsigned flags, hid_t fapl, haddr_t maximum)
{
    const driver_info *info = H5Pget_driver_info(fapl);
    struct stat status;
    driver_file *file = info ? calloc(1, sizeof *file) : NULL;
    if (file == NULL) return NULL;
    file->io = info->io;
    file->writable = (flags & H5F_ACC_RDWR) != 0;
    if (fstat(info->io->fd, &status) < 0) {
        note_problem(info->io);
        free(file);
        return NULL;
    }
    file->eof = (haddr_t)status.st_size;
    return &file->public;
}

static herr_t driver_close(H5FD_t *public)
{
    free(public);
    return 0;
}

/* Never the same: opening a file twice gives two files. */
static int driver_compare(const H5FD_t *a, const H5FD_t *b)
{
    return (a > b) - (a < b);
}

static herr_t driver_query(const H5FD_t *public, unsigned long *flags)
{
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
        H5FD_FEAT_AGGREGATE_SMALLDATA;
    return 0;
}

static haddr_t driver_get_eoa(const H5FD_t *public, H5FD_mem_t type)
{
    return ((const driver_file *)public)->eoa;
}

static herr_t driver_set_eoa(H5FD_t *public, H5FD_mem_t type, haddr_t address)
{
    ((driver_file *)public)->eoa = address;
    return 0;
}

static haddr_t driver_get_eof(const H5FD_t *public, H5FD_mem_t type)
{
    return ((const driver_file *)public)->eof;
}

/* Bytes beyond the end of the file are zero, as for HDF5's own drivers. */
static herr_t driver_read(H5FD_t *public, H5FD_mem_t type, hid_t dxpl, haddr_t address, size_t size, void *buffer)
{
    const driver_file *file = (const driver_file *)public;
    char *at = buffer;
    while (size) {
        const ssize_t got = pread(file->io->fd, at, size, (off_t)address);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) note_problem(file->io);
        if (got < 0 && !file->writable) return -1;
        if (got <= 0) {
            memset(at, 0, size);
            break;
        }
        at += got;
        address += (haddr_t)got;
        size -= (size_t)got;
    }
    return 0;
}

static herr_t driver_write(H5FD_t *public, H5FD_mem_t type, hid_t dxpl, haddr_t address, size_t size,
                           const void *buffer)
{
    driver_file *file = (driver_file *)public;
    if (file->io->elsewhere && buffer == file->io->elsewhere) { /* at the file's end it makes the file no longer: driver_truncate does */
        file->io->place = address;
        file->io->size = size;
        return 0;
    }
    if (address + size > file->eof) file->eof = address + size;
    if (file->io->problem == 0 && sp_file_write(file->io->fd, buffer, size, address) < 0) note_problem(file->io);
    return 0;
}

static herr_t driver_truncate(H5FD_t *public, hid_t dxpl, hbool_t closing)
{
    driver_file *file = (driver_file *)public;
    if (!file->writable || file->eoa == file->eof || file->io->problem) return 0;
    if (ftruncate(file->io->fd, (off_t)file->eoa) < 0) note_problem(file->io);
    file->eof = file->eoa;
    return 0;
}

static const H5FD_class_t driver_class = {
#if H5_VERSION_GE(1, 13, 0)
    .version = H5FD_CLASS_VERSION,
    .value = 511,
#endif
    .name = "scope_profiler",
    .maxaddr = ((haddr_t)1 << 62) - 1,
    .fc_degree = H5F_CLOSE_STRONG,
    .fapl_size = sizeof(driver_info),
    .open = driver_open,
    .close = driver_close,
    .cmp = driver_compare,
    .query = driver_query,
    .get_eoa = driver_get_eoa,
    .set_eoa = driver_set_eoa,
    .get_eof = driver_get_eof,
    .read = driver_read,
    .write = driver_write,
    .truncate = driver_truncate,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

/* -- sessions -- */

void sp_hdf5_use_alone(void)
{
    H5dont_atexit();
}

static hid_t driver_id = H5I_INVALID_HID;

/* Registered anew when another user of a shared library has closed it (H5close). */
static bool register_ours(void)
{
    if (H5open() < 0) return false;
    if (driver_id < 0 || H5Iget_type(driver_id) != H5I_VFL) driver_id = H5FDregister(&driver_class);
    return driver_id >= 0 && sp_hdf5_register_filters();
}

sp_status sp_hdf5_enter(sp_hdf5_session *session, sp_error *error)
{
    take_turn();
    holding = true;
    H5Eget_auto2(H5E_DEFAULT, &session->printer, &session->printer_data);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (register_ours()) return SP_OK;
    sp_hdf5_leave(session);
    return sp_fail(error, SP_ERR_IO, "the HDF5 library cannot be initialised");
}

void sp_hdf5_leave(sp_hdf5_session *session)
{
    H5Eclear2(H5E_DEFAULT);
    H5Eset_auto2(H5E_DEFAULT, session->printer, session->printer_data);
    holding = false;
    end_turn();
}

static hid_t access_list(sp_hdf5_io *io)
{
    const driver_info info = {io};
    const hid_t list = H5Pcreate(H5P_FILE_ACCESS);
    if (list < 0) return list;
    /* The newest format of 1.10: its metadata carries checksums, and its groups and indexes are a third of the size. */
    if (H5Pset_driver(list, driver_id, &info) < 0 ||
        H5Pset_libver_bounds(list, H5F_LIBVER_V110, H5F_LIBVER_V110) < 0 ||
        H5Pset_fclose_degree(list, H5F_CLOSE_STRONG) < 0) {
        H5Pclose(list);
        return H5I_INVALID_HID;
    }
    return list;
}

hid_t sp_hdf5_create(sp_hdf5_io *io)
{
    const hid_t list = access_list(io);
    if (list < 0) return list;
    const hid_t file = H5Fcreate("profile", H5F_ACC_TRUNC, H5P_DEFAULT, list);
    H5Pclose(list);
    return file;
}

hid_t sp_hdf5_open(sp_hdf5_io *io)
{
    const hid_t list = access_list(io);
    if (list < 0) return list;
    const hid_t file = H5Fopen("profile", H5F_ACC_RDONLY, list);
    const hid_t reasons = file < 0 ? H5Eget_current_stack() : -1; /* any other call forgets them */
    H5Pclose(list);
    if (reasons >= 0) H5Eset_current_stack(reasons);
    return file;
}

/* -- errors -- */

typedef struct reason_text {
    char *buffer;
    size_t size;
} reason_text;

static herr_t keep_first(unsigned depth, const H5E_error2_t *entry, void *data)
{
    const reason_text *text = data;
    if (depth == 0 && entry->desc) snprintf(text->buffer, text->size, "%s", entry->desc);
    return 0;
}

const char *sp_hdf5_reason(char *buffer, size_t size)
{
    reason_text text = {buffer, size};
    snprintf(buffer, size, "unknown HDF5 error");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
    unsigned long long there, wanted;
    if (sscanf(buffer, "truncated file: eof = %llu, sblock->base_addr = %*u, stored_eof = %llu", &there, &wanted) == 2)
        snprintf(buffer, size, "it is cut off after %llu of %llu bytes", there, wanted);
    return buffer;
}
