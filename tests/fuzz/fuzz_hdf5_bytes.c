/*
 * Whole HDF5 files whose bytes are damaged, read as a user's file is: in a child process, since libhdf5 crashes on some. What is
 * tested is that this process gets a profile that is whole, or one sentence. An input is a file, or (first byte odd) changes
 * to a good one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/hdf5.h"
#include "fuzz.h"

static uint8_t *good_file(size_t *size)
{
    static uint8_t *bytes;
    static size_t length;
    if (bytes == NULL) {
        char path[64] = "/dev/shm/scope-profiler-fuzz-XXXXXX";
        sp_profile *profile = fuzz_small_profile();
        const int fd = mkstemp(path);
        FUZZ_CHECK(fd >= 0 && sp_hdf5_write(profile, path, NULL, NULL) == SP_OK);
        close(fd);
        FILE *file = fopen(path, "rb");
        bytes = malloc(1 << 20);
        length = fread(bytes, 1, 1 << 20, file);
        FUZZ_CHECK(length > 1000 && length < 1 << 20);
        fclose(file);
        unlink(path);
        sp_profile_release(profile);
    }
    uint8_t *copy = malloc(length);
    memcpy(copy, bytes, length);
    *size = length;
    return copy;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {data, data + size};
    size_t bytes = 0;
    uint8_t *content;
    if (fuzz_take(&input, 1) & 1) {
        content = good_file(&bytes);
        while (input.at < input.end) {
            const size_t place = (size_t)fuzz_take(&input, 2) % bytes;
            content[place] = (uint8_t)fuzz_take(&input, 1);
        }
        bytes -= size % 3 == 0 ? 24 : 0; /* without its seal, so that it is opened at all */
    } else {
        content = malloc((size_t)(input.end - input.at) + 1);
        bytes = fuzz_take_bytes(&input, content, (size_t)(input.end - input.at));
    }
    fuzz_file file = fuzz_file_make(content, bytes);
    sp_profile *profile = NULL;
    sp_error error = {0};
    const sp_status status = sp_hdf5_read(file.path, NULL, &profile, &error);
    fuzz_check_outcome(status, &error, profile);
    if (profile) fuzz_use_profile(profile, false);
    sp_profile_release(profile);
    fuzz_file_close(&file);
    free(content);
    return 0;
}
