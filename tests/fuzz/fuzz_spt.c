/* Traces of calls (.spt), from memory and from a file: both ways give the same outcome. */
#include <stdlib.h>
#include <string.h>

#include "formats/native_trace.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sp_profile *profile = NULL, *other = NULL;
    sp_error error = {0}, other_error = {0};
    uint32_t rank;
    fuzz_file file = fuzz_file_make(data, size);
    const sp_status status = sp_spt_read_memory(file.path, data, size, &profile, &error);
    const sp_status from_file = sp_spt_read(file.path, &other, &rank, &other_error);
    fuzz_check_outcome(status, &error, profile);
    fuzz_check_outcome(from_file, &other_error, other);
    FUZZ_CHECK(status == from_file && strcmp(error.message, other_error.message) == 0);
    if (profile) {
        FUZZ_CHECK(profile->call_count == other->call_count && profile->call_count <= size / 8);
        fuzz_use_profile(profile, size % 8 == 0);
    }
    sp_profile_release(profile);
    sp_profile_release(other);
    fuzz_file_close(&file);
    return 0;
}
