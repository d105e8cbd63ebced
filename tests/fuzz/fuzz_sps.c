/* Traces of samples (.sps), from memory and from a file: both ways give the same outcome. */
#include <stdlib.h>
#include <string.h>

#include "formats/native_trace.h"
#include "formats/utf8.h"
#include "fuzz.h"

static void check_samples(const sp_samples *samples, size_t size)
{
    FUZZ_CHECK(samples->sample_count <= size / 8 && samples->region_count <= size / 4 && samples->module_count <= size / 8);
    for (size_t i = 0; i < samples->region_count; i++) FUZZ_CHECK(sp_utf8_valid(samples->regions[i], strlen(samples->regions[i])));
    for (size_t i = 0; i < samples->module_count; i++) FUZZ_CHECK(sp_utf8_valid(samples->modules[i], strlen(samples->modules[i])));
    for (size_t i = 0; i < samples->sample_count; i++) {
        const sp_sample *sample = &samples->samples[i];
        FUZZ_CHECK(sample->region >= -1 && sample->region < (int64_t)samples->region_count);
        FUZZ_CHECK(sample->module >= -1 && sample->module < (int64_t)samples->module_count);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sp_samples samples = {0}, other = {0};
    sp_error error = {0}, other_error = {0};
    fuzz_file file = fuzz_file_make(data, size);
    const sp_status status = sp_sps_read_memory(file.path, data, size, &samples, &error);
    const sp_status from_file = sp_sps_read(file.path, &other, &other_error);
    FUZZ_CHECK(status == from_file && strcmp(error.message, other_error.message) == 0);
    FUZZ_CHECK(status == SP_OK || error.message[0] != '\0');
    if (status == SP_OK) {
        check_samples(&samples, size);
        FUZZ_CHECK(samples.sample_count == other.sample_count);
        sp_samples_free(&samples);
        sp_samples_free(&other);
    }
    fuzz_file_close(&file);
    return 0;
}
