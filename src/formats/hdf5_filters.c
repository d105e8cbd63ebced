#include "formats/hdf5_filters.h"

#include <hdf5.h>
#include <stdlib.h>
#include <string.h>
#include <lzf.h>
#include <zstd.h>

#include "formats/chunk_codec.h"

/* A decoder grows its output up to here: no chunk of a profile is larger, a damaged one may claim to be. */
#define CHUNK_MAX ((size_t)256 << 20)

/* Put `result` in the place of the caller's buffer. */
static size_t give(void *result, size_t size, size_t room, size_t *buffer_size, void **buffer)
{
    free(*buffer);
    *buffer = result;
    *buffer_size = room;
    return size;
}

static size_t lzf_filter(unsigned flags, size_t count, const unsigned values[], size_t bytes, size_t *buffer_size,
                         void **buffer)
{
    if (bytes < 2 || bytes > UINT32_MAX) return 0;
    if (!(flags & H5Z_FLAG_REVERSE)) {
        void *out = malloc(bytes);
        const unsigned size = out ? lzf_compress(*buffer, (unsigned)bytes, out, (unsigned)bytes - 1) : 0;
        if (size) return give(out, size, bytes, buffer_size, buffer);
        free(out);
        return 0; /* an optional filter: the chunk is stored as it is */
    }
    size_t room = count >= 3 && values[2] ? values[2] : *buffer_size;
    for (; room <= CHUNK_MAX; room *= 2) {
        void *out = malloc(room);
        const unsigned size = out ? lzf_decompress(*buffer, (unsigned)bytes, out, (unsigned)room) : 0;
        if (size) return give(out, size, room, buffer_size, buffer);
        free(out);
    }
    return 0;
}

static size_t zstd_filter(unsigned flags, size_t count, const unsigned values[], size_t bytes, size_t *buffer_size,
                          void **buffer)
{
    if (!(flags & H5Z_FLAG_REVERSE)) {
        const size_t room = ZSTD_compressBound(bytes);
        void *out = malloc(room);
        const size_t size = out ? ZSTD_compress(out, room, *buffer, bytes, count ? (int)values[0] : 3) : 0;
        if (size && !ZSTD_isError(size)) return give(out, size, room, buffer_size, buffer);
        free(out);
        return 0;
    }
    const unsigned long long room = ZSTD_getFrameContentSize(*buffer, bytes);
    if (room == ZSTD_CONTENTSIZE_ERROR || room == ZSTD_CONTENTSIZE_UNKNOWN || room == 0 || room > CHUNK_MAX) return 0;
    void *out = malloc((size_t)room);
    const size_t size = out ? ZSTD_decompress(out, (size_t)room, *buffer, bytes) : 0;
    if (size && !ZSTD_isError(size)) return give(out, size, (size_t)room, buffer_size, buffer);
    free(out);
    return 0;
}

static bool register_filter(int id, const char *name, H5Z_func_t function)
{
    const H5Z_class2_t filter = {
        .version = H5Z_CLASS_T_VERS, .id = id, .encoder_present = 1, .decoder_present = 1, .name = name,
        .filter = function,
    };
    return H5Zfilter_avail(id) > 0 || H5Zregister(&filter) >= 0;
}

bool sp_hdf5_register_filters(void)
{
    return register_filter(SP_FILTER_LZF, "lzf", lzf_filter) && register_filter(SP_FILTER_ZSTD, "zstd", zstd_filter);
}
