/*
 * chunk_codec.h - the filters of HDF5 chunks, without HDF5: byte shuffle, deflate, LZF, Zstandard, Fletcher32.
 *
 * Chunks are made and read here and moved as they are (H5Dwrite_chunk, H5Dread_chunk): several threads can work on them,
 * ISA-L and libdeflate are several times faster than zlib, and a decoder that knows how large a chunk is cannot be made to allocate
 * more by a damaged one.
 */
#ifndef SP_FORMATS_CHUNK_CODEC_H
#define SP_FORMATS_CHUNK_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

#define SP_FILTER_DEFLATE 1
#define SP_FILTER_SHUFFLE 2
#define SP_FILTER_FLETCHER32 3
#define SP_FILTER_LZF 32000
#define SP_FILTER_ZSTD 32015

#define SP_FILTERS_MAX 8

#define SP_LEVEL_QUICK (-1) /* deflate by quick_deflate.h */

/* The filters of a dataset, in the order they are applied when writing. */
typedef struct sp_pipeline {
    int count;
    int filters[SP_FILTERS_MAX];
    int level;      /* of the codec, when writing */
    size_t element; /* bytes of an element, what shuffle works on */
} sp_pipeline;

/* The codecs' working memory for one thread. */
typedef struct sp_coder sp_coder;

sp_coder *sp_coder_new(void);
void sp_coder_free(sp_coder *coder); /* NULL is allowed */

/* Whether this file can do it: filters that it knows, in the one order that writers use: shuffle, a codec, a checksum. */
bool sp_pipeline_known(const sp_pipeline *pipeline);

/* Bytes of chunk data that one stored byte can stand for at most: a file that claims more is damaged. */
uint64_t sp_pipeline_expansion(const sp_pipeline *pipeline);

/* Room that encoding `size` bytes needs at most. */
size_t sp_encoded_bound(size_t size);

/*
 * Encode `size` bytes of `raw`, which is overwritten, into `out` of sp_encoded_bound(size) bytes. Bit i of `skipped` is set
 * when filter i was not applied (it would not have made the data smaller). SP_ERR_NO_MEMORY or SP_ERR_INVALID (the level).
 */
sp_status sp_chunk_encode(sp_coder *coder, const sp_pipeline *pipeline, void *raw, size_t size, void *out,
                          size_t *out_size, uint32_t *skipped);

/* Decode `size` stored bytes, which are overwritten, into exactly `out_size` bytes. SP_ERR_CORRUPT if they are not that. */
sp_status sp_chunk_decode(sp_coder *coder, const sp_pipeline *pipeline, void *stored, size_t size, uint32_t skipped,
                          void *out, size_t out_size);

#endif
