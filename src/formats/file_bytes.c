#include "formats/file_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int sp_file_read(int fd, void *buffer, size_t size, uint64_t offset)
{
    char *at = buffer;
    while (size) {
        const ssize_t got = pread(fd, at, size, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = EIO;
        if (got <= 0) return -1;
        at += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return 0;
}

int sp_file_write(int fd, const void *data, size_t size, uint64_t offset)
{
    const char *at = data;
    while (size) {
        const ssize_t put = pwrite(fd, at, size, (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        if (put == 0) errno = ENOSPC;
        if (put <= 0) return -1;
        at += put;
        offset += (uint64_t)put;
        size -= (size_t)put;
    }
    return 0;
}

int sp_file_not_standard(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    const int other = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int problem = errno;
    close(fd);
    errno = problem;
    return other;
}
