/*
 * The image of a profile, which comes from a child process that a damaged file may have led astray. An input is either the
 * image, or (first byte odd) changes to the image of a good profile.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/profile_image.h"
#include "fuzz.h"

static void change(const fuzz_file *file, fuzz_input *input)
{
    struct stat status;
    FUZZ_CHECK(fstat(file->fd, &status) == 0);
    while (input->at < input->end) {
        const uint64_t place = fuzz_take(input, 2) % (uint64_t)status.st_size;
        const uint64_t value = fuzz_take_edge(input);
        const size_t size = (size_t)1 << (fuzz_take(input, 1) % 4);
        FUZZ_CHECK(pwrite(file->fd, &value, size, (off_t)place) == (ssize_t)size);
    }
}

static fuzz_file good_image(void)
{
    sp_profile *profile = fuzz_small_profile();
    fuzz_file file = fuzz_file_make("", 0);
    FUZZ_CHECK(sp_image_write(file.fd, SP_OK, NULL, profile) == SP_OK);
    sp_profile_release(profile);
    return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {data, data + size};
    const unsigned mode = (unsigned)fuzz_take(&input, 1);
    fuzz_file file = mode & 1 ? good_image() : fuzz_file_make(input.at, (size_t)(input.end - input.at));
    if (mode & 1) change(&file, &input);
    sp_profile *profile = NULL;
    sp_error error = {0};
    const sp_status status = sp_image_read(file.fd, &profile, &error);
    FUZZ_CHECK((status == SP_OK) == (profile != NULL));
    if (mode & 1 && size == 1) FUZZ_CHECK(status == SP_OK);
    if (profile) fuzz_use_profile(profile, false); /* its times are whatever they are: no file takes those */
    sp_profile_release(profile);
    fuzz_file_close(&file);
    return 0;
}
