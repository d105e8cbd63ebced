/* The chunk decoder: any stored bytes through any filters; and what the encoder made comes back as it was. */
#include <stdlib.h>
#include <string.h>

#include "formats/chunk_codec.h"
#include "fuzz.h"

static const int filters[] = {SP_FILTER_DEFLATE, SP_FILTER_SHUFFLE, SP_FILTER_FLETCHER32, SP_FILTER_LZF, SP_FILTER_ZSTD, 999};

static sp_pipeline take_pipeline(fuzz_input *input)
{
    sp_pipeline pipeline = {.count = (int)(fuzz_take(input, 1) % (SP_FILTERS_MAX + 1)), .level = 1,
                            .element = 1 + (size_t)fuzz_take(input, 1) % 40};
    if (pipeline.element % 2 == 0) pipeline.level = SP_LEVEL_QUICK;
    for (int i = 0; i < pipeline.count; i++) {
        pipeline.filters[i] = filters[fuzz_take(input, 1) % (sizeof filters / sizeof *filters)];
    }
    return pipeline;
}

static void decode(fuzz_input *input, sp_coder *coder)
{
    const sp_pipeline pipeline = take_pipeline(input);
    const uint32_t skipped = (uint32_t)fuzz_take(input, 1);
    const size_t out_size = (size_t)fuzz_take(input, 2), size = (size_t)(input->end - input->at);
    uint8_t *stored = malloc(size ? size : 1), *out = malloc(out_size ? out_size : 1);
    fuzz_take_bytes(input, stored, size);
    (void)sp_chunk_decode(coder, &pipeline, stored, size, skipped, out, out_size);
    free(stored);
    free(out);
}

static void there_and_back(fuzz_input *input, sp_coder *coder)
{
    const sp_pipeline pipeline = take_pipeline(input);
    const size_t size = (size_t)(input->end - input->at);
    if (size == 0) return;
    uint8_t *raw = malloc(size), *stored = malloc(sp_encoded_bound(size)), *back = malloc(size);
    memcpy(raw, input->at, size);
    size_t stored_size;
    uint32_t skipped;
    if (sp_chunk_encode(coder, &pipeline, raw, size, stored, &stored_size, &skipped) == SP_OK) {
        const sp_status status = sp_chunk_decode(coder, &pipeline, stored, stored_size, skipped, back, size);
        /* Shuffled twice with a codec between is more than the decoder takes; with one codec it must come back. */
        FUZZ_CHECK(status == SP_OK && memcmp(back, input->at, size) == 0);
    }
    free(raw);
    free(stored);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static sp_coder *coder;
    fuzz_input input = {data, data + size};
    if (coder == NULL) coder = sp_coder_new();
    if (fuzz_take(&input, 1) & 1) there_and_back(&input, coder);
    else decode(&input, coder);
    return 0;
}
