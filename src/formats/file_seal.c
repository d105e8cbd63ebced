#include "formats/file_seal.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "formats/file_bytes.h"

static const uint8_t magic[8] = "SPSEAL\x01\n";

static void put(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static void make_seal(uint8_t seal[SP_SEAL_SIZE], uint64_t covered, uint32_t checksum)
{
    memcpy(seal, magic, sizeof magic);
    put(seal + 8, covered, 8);
    put(seal + 16, checksum, 4);
    put(seal + 20, libdeflate_crc32(0, seal, 20), 4);
}

static int checksum_part(int fd, uint64_t from, uint64_t to, uint32_t *checksum)
{
    const size_t room = 256 << 10; /* stays in the second-level cache */
    uint8_t *buffer = malloc(room);
    if (buffer == NULL) return -1;
    *checksum = 0;
    int result = 0;
    for (uint64_t offset = from; offset < to && result == 0;) {
        const size_t part = to - offset < room ? (size_t)(to - offset) : room;
        result = sp_file_read(fd, buffer, part, offset);
        if (result == 0) *checksum = libdeflate_crc32(*checksum, buffer, part);
        offset += part;
    }
    const int problem = errno;
    free(buffer);
    errno = problem;
    return result;
}

sp_status sp_seal_sum(int fd, uint64_t from, uint64_t to, uint32_t *checksum)
{
    return checksum_part(fd, from, to, checksum) == 0 ? SP_OK : SP_ERR_IO;
}

uint32_t sp_seal_sum_join(uint32_t first, uint32_t second, uint64_t size)
{
    return (uint32_t)crc32_combine(first, second, (z_off_t)size);
}

sp_status sp_seal_append_sum(int fd, uint32_t checksum)
{
    struct stat status;
    uint8_t seal[SP_SEAL_SIZE];
    if (fstat(fd, &status) < 0) return SP_ERR_IO;
    make_seal(seal, (uint64_t)status.st_size, checksum);
    return sp_file_write(fd, seal, sizeof seal, (uint64_t)status.st_size) == 0 ? SP_OK : SP_ERR_IO;
}

sp_status sp_seal_append(int fd)
{
    struct stat status;
    uint32_t checksum;
    if (fstat(fd, &status) < 0 || checksum_part(fd, 0, (uint64_t)status.st_size, &checksum) < 0) return SP_ERR_IO;
    return sp_seal_append_sum(fd, checksum);
}

sp_status sp_seal_check(int fd, uint64_t size, sp_seal *seal)
{
    uint8_t found[SP_SEAL_SIZE], wanted[SP_SEAL_SIZE];
    uint32_t checksum;
    *seal = SP_SEAL_NONE;
    if (size < SP_SEAL_SIZE) return SP_OK;
    const uint64_t covered = size - SP_SEAL_SIZE;
    if (sp_file_read(fd, found, sizeof found, covered) < 0) return SP_ERR_IO;
    if (memcmp(found, magic, sizeof magic) != 0) return SP_OK;
    *seal = SP_SEAL_BROKEN;
    make_seal(wanted, covered, (uint32_t)get(found + 16, 4));
    if (memcmp(found, wanted, sizeof found) != 0) return SP_OK;
    if (checksum_part(fd, 0, covered, &checksum) < 0) return SP_ERR_IO;
    if (checksum == get(found + 16, 4)) *seal = SP_SEAL_WHOLE;
    return SP_OK;
}
