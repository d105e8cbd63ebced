/*
 * file_seal.h - the checksum at the end of a file: 24 bytes after what HDF5 uses, which HDF5 readers do not look at.
 *
 *   size - 24   "SPSEAL\x01\n"
 *   size - 16   u64  bytes that are covered: size - 24
 *   size - 8    u32  CRC-32 (zlib's) of them
 *   size - 4    u32  CRC-32 of the 20 bytes before
 *
 * All little-endian. A program that changes the file through HDF5 cuts the seal off when it closes it: a file without one
 * is not wrong, it is only not known to be whole.
 */
#ifndef SP_FORMATS_FILE_SEAL_H
#define SP_FORMATS_FILE_SEAL_H

#include <stdint.h>

#include "core/error.h"

#define SP_SEAL_SIZE 24

typedef enum sp_seal { SP_SEAL_NONE, SP_SEAL_WHOLE, SP_SEAL_BROKEN } sp_seal;

/* Append a seal to the file. SP_ERR_IO with errno set. */
sp_status sp_seal_append(int fd);

/* The checksum of bytes [from, to) of the file, and that of two parts that follow each other, `size` bytes in the second:
 * several processes can share the work. Then the seal, with the checksum of the file as it is. */
sp_status sp_seal_sum(int fd, uint64_t from, uint64_t to, uint32_t *checksum);
uint32_t sp_seal_sum_join(uint32_t first, uint32_t second, uint64_t size);
sp_status sp_seal_append_sum(int fd, uint32_t checksum);

/* Whether the file of `size` bytes has a seal and is what was sealed. SP_ERR_IO with errno set if it cannot be read. */
sp_status sp_seal_check(int fd, uint64_t size, sp_seal *seal);

#endif
