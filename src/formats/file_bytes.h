/* file_bytes.h - all bytes of a piece of a file, in whatever steps the system moves them. */
#ifndef SP_FORMATS_FILE_BYTES_H
#define SP_FORMATS_FILE_BYTES_H

#include <stddef.h>
#include <stdint.h>

/* Read or write exactly `size` bytes at `offset`. 0, or -1 with errno: EIO where the file ends before, ENOSPC where nothing more is
 * taken. */
int sp_file_read(int fd, void *buffer, size_t size, uint64_t offset);
int sp_file_write(int fd, const void *data, size_t size, uint64_t offset);

/*
 * What a call of open() gave, as a descriptor that is not one of the standard streams. A process that has closed these gets their numbers
 * for its next files, and whoever then prints, writes into them. -1 with errno.
 */
int sp_file_not_standard(int fd);

#endif
