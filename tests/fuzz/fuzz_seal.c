/* The seal: no bytes at the end of a file harm its check; what is sealed is whole, and no longer when a bit of it flips. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/file_seal.h"
#include "fuzz.h"

static sp_seal check(const fuzz_file *file)
{
    struct stat status;
    sp_seal seal;
    FUZZ_CHECK(fstat(file->fd, &status) == 0);
    FUZZ_CHECK(sp_seal_check(file->fd, (uint64_t)status.st_size, &seal) == SP_OK);
    return seal;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_file file = fuzz_file_make(data, size);
    (void)check(&file);
    FUZZ_CHECK(sp_seal_append(file.fd) == SP_OK);
    FUZZ_CHECK(check(&file) == SP_SEAL_WHOLE);
    const uint64_t place = (size ? data[0] * 31u + data[size - 1] : 0) % (size + SP_SEAL_SIZE);
    uint8_t byte;
    FUZZ_CHECK(pread(file.fd, &byte, 1, (off_t)place) == 1);
    byte ^= (uint8_t)(1u << (size % 8));
    FUZZ_CHECK(pwrite(file.fd, &byte, 1, (off_t)place) == 1);
    FUZZ_CHECK(check(&file) != SP_SEAL_WHOLE);
    fuzz_file_close(&file);
    return 0;
}
