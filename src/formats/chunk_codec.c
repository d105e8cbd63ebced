#include "formats/chunk_codec.h"

#include <libdeflate.h>
#include <lzf.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "formats/quick_deflate.h"

#define LZF_STACK ((size_t)2 << 20)

/* What a chunk of one number over and over was encoded to: columns of threads, tasks and awaiting, and parents of roots, are full of them. */
#define UNIFORM_KEPT 4
#define UNIFORM_BYTES 1024

typedef struct uniform {
    sp_pipeline pipeline;
    uint64_t number;
    size_t size, encoded_size; /* 0: nothing is kept here */
    uint32_t skipped;
    uint8_t encoded[UNIFORM_BYTES];
} uniform;

struct sp_coder {
    struct libdeflate_compressor *deflate;
    int deflate_level;
    sp_quick_deflate *quick;
    struct libdeflate_decompressor *inflate;
    ZSTD_CCtx *zstd;
    ZSTD_DCtx *unzstd;
    uint8_t *scratch;
    size_t scratch_size;
    uniform uniforms[UNIFORM_KEPT]; /* taken in turn */
    unsigned uniform_turn;
};

sp_coder *sp_coder_new(void)
{
    return calloc(1, sizeof(sp_coder));
}

void sp_coder_free(sp_coder *coder)
{
    if (coder == NULL) return;
    libdeflate_free_compressor(coder->deflate);
    sp_quick_deflate_free(coder->quick);
    libdeflate_free_decompressor(coder->inflate);
    ZSTD_freeCCtx(coder->zstd);
    ZSTD_freeDCtx(coder->unzstd);
    free(coder->scratch);
    free(coder);
}

static bool is_codec(int filter)
{
    return filter == SP_FILTER_DEFLATE || filter == SP_FILTER_LZF || filter == SP_FILTER_ZSTD;
}

bool sp_pipeline_known(const sp_pipeline *pipeline)
{
    int last = 0;
    for (int i = 0; i < pipeline->count; i++) {
        const int filter = pipeline->filters[i];
        const int place = filter == SP_FILTER_SHUFFLE ? 1 : is_codec(filter) ? 2 : filter == SP_FILTER_FLETCHER32 ? 3 : 0;
        if (place <= last) return false;
        last = place;
    }
    return true;
}

/* Deflate: 258 bytes from 2 bits. LZF: 264 bytes from 3. Zstandard: a 128 KiB block of one byte takes 4. */
uint64_t sp_pipeline_expansion(const sp_pipeline *pipeline)
{
    uint64_t expansion = 1;
    for (int i = 0; i < pipeline->count; i++) {
        const int filter = pipeline->filters[i];
        if (filter == SP_FILTER_DEFLATE) expansion *= 1033;
        if (filter == SP_FILTER_LZF) expansion *= 89;
        if (filter == SP_FILTER_ZSTD) expansion *= 32769;
    }
    return expansion;
}

size_t sp_encoded_bound(size_t size)
{
    const size_t deflate = libdeflate_zlib_compress_bound(NULL, size), zstd = ZSTD_compressBound(size);
    return (deflate > zstd ? deflate : zstd) + 64;
}

static uint8_t *scratch_of(sp_coder *coder, size_t size)
{
    if (coder->scratch_size < size) {
        free(coder->scratch);
        coder->scratch = malloc(size);
        coder->scratch_size = coder->scratch ? size : 0;
    }
    return coder->scratch;
}

/* -- shuffle: byte k of every element together; bytes beyond the last whole element stay at the end -- */

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HAS_VECTORS
#endif
#endif

#ifdef HAS_VECTORS
typedef uint8_t vector __attribute__((vector_size(16)));

/* Bytes of both in turn: those of the first halves, or of the second ones. */
#define MIX_FIRST(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define MIX_SECOND(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

/* Of two vectors that are `apart`, one after the other. */
static inline void mix(vector v[8], size_t apart)
{
    for (size_t i = 0; i < 8; i++) {
        if (i & apart) continue;
        const vector first = MIX_FIRST(v[i], v[i + apart]);
        v[i + apart] = MIX_SECOND(v[i], v[i + apart]);
        v[i] = first;
    }
}

/*
 * 16 numbers of 8 bytes at a time, in one pass instead of one for each byte. A byte is at an address of 7 bits: 4 of the number's
 * index, 3 of its place in the number, of which the first 3 choose the vector. Each mix moves a bit of the vector's index to
 * the end of the address, and the bit that then leads the place in the vector into the vector's index.
 */
static size_t shuffle_numbers(const uint8_t *in, uint8_t *out, size_t count)
{
    static const size_t planes[8] = {0, 2, 4, 6, 1, 3, 5, 7}; /* by vector */
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        vector v[8];
        memcpy(v, in + i * 8, sizeof v);
        mix(v, 4);
        mix(v, 2);
        mix(v, 1);
        mix(v, 4);
        for (size_t k = 0; k < 8; k++) memcpy(out + planes[k] * count + i, &v[k], sizeof v[k]);
    }
    return i;
}
#else
static size_t shuffle_numbers(const uint8_t *in, uint8_t *out, size_t count)
{
    for (size_t b = 0; b < 8; b++) {
        for (size_t i = 0; i < count; i++) out[b * count + i] = in[i * 8 + b];
    }
    return count;
}
#endif

static void shuffle(const uint8_t *in, uint8_t *out, size_t size, size_t element)
{
    const size_t count = size / element, done = element == 8 ? shuffle_numbers(in, out, count) : 0;
    for (size_t b = 0; b < element; b++) {
        for (size_t i = done; i < count; i++) out[b * count + i] = in[i * element + b];
    }
    memcpy(out + count * element, in + count * element, size - count * element);
}

static void unshuffle(const uint8_t *in, uint8_t *out, size_t size, size_t element)
{
    const size_t count = size / element;
    if (element == 8) {
        for (size_t i = 0; i < count; i++) {
            uint64_t value = 0;
            for (size_t b = 0; b < 8; b++) value |= (uint64_t)in[b * count + i] << (8 * b);
            for (size_t b = 0; b < 8; b++) out[i * 8 + b] = (uint8_t)(value >> (8 * b));
        }
    } else {
        for (size_t b = 0; b < element; b++) {
            for (size_t i = 0; i < count; i++) out[i * element + b] = in[b * count + i];
        }
    }
    memcpy(out + count * element, in + count * element, size - count * element);
}

/* -- Fletcher32 as HDF5 computes it: over big-endian 16-bit words -- */

static uint32_t fletcher32(const uint8_t *data, size_t size)
{
    uint32_t a = 0, b = 0;
    size_t words = size / 2;
    while (words) {
        size_t run = words > 360 ? 360 : words; /* no overflow of 32 bits before the reduction */
        words -= run;
        for (; run; run--, data += 2) {
            a += (uint32_t)data[0] << 8 | data[1];
            b += a;
        }
        a = (a & 0xffff) + (a >> 16);
        b = (b & 0xffff) + (b >> 16);
    }
    if (size % 2) {
        a += (uint32_t)*data << 8;
        b += a;
        a = (a & 0xffff) + (a >> 16);
        b = (b & 0xffff) + (b >> 16);
    }
    a = (a & 0xffff) + (a >> 16);
    b = (b & 0xffff) + (b >> 16);
    return b << 16 | a;
}

/* -- codecs: the size of the result, 0 when it is not smaller (encoding) or not right (decoding) -- */

static size_t deflate_encode(sp_coder *coder, int level, const void *in, size_t size, void *out, size_t room)
{
    if (coder->deflate == NULL || coder->deflate_level != level) {
        libdeflate_free_compressor(coder->deflate);
        coder->deflate = libdeflate_alloc_compressor(level);
        coder->deflate_level = level;
        if (coder->deflate == NULL) return 0;
    }
    return libdeflate_zlib_compress(coder->deflate, in, size, out, room);
}

static size_t quick_encode(sp_coder *coder, const void *in, size_t size, void *out, size_t room)
{
    if (coder->quick == NULL) coder->quick = sp_quick_deflate_new();
    return coder->quick ? sp_quick_deflate_make(coder->quick, in, size, out, room) : 0;
}

static bool deflate_decode(sp_coder *coder, const void *in, size_t size, void *out, size_t out_size)
{
    if (coder->inflate == NULL) coder->inflate = libdeflate_alloc_decompressor();
    return coder->inflate &&
        libdeflate_zlib_decompress(coder->inflate, in, size, out, out_size, NULL) == LIBDEFLATE_SUCCESS;
}

static size_t zstd_encode(sp_coder *coder, int level, const void *in, size_t size, void *out, size_t room)
{
    if (coder->zstd == NULL) coder->zstd = ZSTD_createCCtx();
    if (coder->zstd == NULL) return 0;
    const size_t used = ZSTD_compressCCtx(coder->zstd, out, room, in, size, level);
    return ZSTD_isError(used) ? 0 : used;
}

static bool zstd_decode(sp_coder *coder, const void *in, size_t size, void *out, size_t out_size)
{
    if (coder->unzstd == NULL) coder->unzstd = ZSTD_createDCtx();
    return coder->unzstd && ZSTD_decompressDCtx(coder->unzstd, out, out_size, in, size) == out_size;
}

typedef struct lzf_work {
    const void *in;
    void *out;
    unsigned size, used;
} lzf_work;

static void *lzf_run(void *argument)
{
    lzf_work *work = argument;
    work->used = lzf_compress(work->in, work->size, work->out, work->size - 1);
    return NULL;
}

/*
 * liblzf has its table of 256 KiB on the stack. The stacks of an application's threads may be smaller: musl's are by default. Where no
 * thread can be made the chunk stays as it is.
 */
static size_t lzf_encode(const void *in, size_t size, void *out)
{
    lzf_work work = {.in = in, .out = out, .size = (unsigned)size};
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (size > UINT32_MAX || pthread_attr_init(&attributes) != 0) return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool made = pthread_attr_setstacksize(&attributes, LZF_STACK) == 0 &&
        pthread_create(&thread, &attributes, lzf_run, &work) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (made) pthread_join(thread, NULL);
    return work.used;
}

static size_t codec_encode(sp_coder *coder, const sp_pipeline *pipeline, int filter, const void *in, size_t size,
                           void *out)
{
    const int level = pipeline->level;
    const size_t room = sp_encoded_bound(size);
    if (filter == SP_FILTER_DEFLATE && level == SP_LEVEL_QUICK) return quick_encode(coder, in, size, out, room);
    if (filter == SP_FILTER_DEFLATE) return deflate_encode(coder, level, in, size, out, room);
    if (filter == SP_FILTER_ZSTD) return zstd_encode(coder, level, in, size, out, room);
    return lzf_encode(in, size, out);
}

static bool codec_decode(sp_coder *coder, int filter, const void *in, size_t size, void *out, size_t out_size)
{
    if (filter == SP_FILTER_DEFLATE) return deflate_decode(coder, in, size, out, out_size);
    if (filter == SP_FILTER_ZSTD) return zstd_decode(coder, in, size, out, out_size);
    if (size > UINT32_MAX || out_size > UINT32_MAX) return false;
    return lzf_decompress(in, (unsigned)size, out, (unsigned)out_size) == out_size;
}

static sp_status encode(sp_coder *coder, const sp_pipeline *pipeline, void *raw, size_t size, void *out, size_t *out_size,
                        uint32_t *skipped)
{
    const void *data = raw;
    *skipped = 0;
    if (!sp_pipeline_known(pipeline)) return SP_ERR_UNSUPPORTED;
    for (int i = 0; i < pipeline->count; i++) {
        const int filter = pipeline->filters[i];
        if (filter == SP_FILTER_SHUFFLE) {
            uint8_t *planes = scratch_of(coder, size);
            if (planes == NULL) return SP_ERR_NO_MEMORY;
            shuffle(data, planes, size, pipeline->element);
            data = planes;
            continue;
        }
        if (!is_codec(filter) || i + 1 != pipeline->count) return SP_ERR_UNSUPPORTED; /* we make no checksums */
        const size_t used = codec_encode(coder, pipeline, filter, data, size, out);
        if (used > 0 && used < size) {
            *out_size = used;
            return SP_OK;
        }
        *skipped |= 1u << i;
    }
    memcpy(out, data, size);
    *out_size = size;
    return SP_OK;
}

static bool is_uniform(const sp_pipeline *pipeline, const char *raw, size_t size)
{
    const size_t element = sizeof(uint64_t);
    return pipeline->element == element && size > element && size % element == 0 && memcmp(raw, raw + element, size - element) == 0;
}

static bool is_alike(const sp_pipeline *a, const sp_pipeline *b)
{
    return a->count == b->count && a->level == b->level && memcmp(a->filters, b->filters, (size_t)a->count * sizeof *a->filters) == 0;
}

static const uniform *find_uniform(const sp_coder *coder, const sp_pipeline *pipeline, uint64_t number, size_t size)
{
    for (const uniform *u = coder->uniforms; u < coder->uniforms + UNIFORM_KEPT; u++) {
        if (u->encoded_size && u->number == number && u->size == size && is_alike(&u->pipeline, pipeline)) return u;
    }
    return NULL;
}

static void keep_uniform(sp_coder *coder, const sp_pipeline *pipeline, uint64_t number, size_t size, const void *encoded,
                         size_t encoded_size, uint32_t skipped)
{
    if (encoded_size > UNIFORM_BYTES) return;
    uniform *u = &coder->uniforms[coder->uniform_turn++ % UNIFORM_KEPT];
    *u = (uniform){.pipeline = *pipeline, .number = number, .size = size, .encoded_size = encoded_size, .skipped = skipped};
    memcpy(u->encoded, encoded, encoded_size);
}

sp_status sp_chunk_encode(sp_coder *coder, const sp_pipeline *pipeline, void *raw, size_t size, void *out, size_t *out_size,
                          uint32_t *skipped)
{
    uint64_t number;
    if (!is_uniform(pipeline, raw, size)) return encode(coder, pipeline, raw, size, out, out_size, skipped);
    memcpy(&number, raw, sizeof number);
    const uniform *kept = find_uniform(coder, pipeline, number, size);
    if (kept) {
        memcpy(out, kept->encoded, kept->encoded_size);
        *out_size = kept->encoded_size;
        *skipped = kept->skipped;
        return SP_OK;
    }
    const sp_status status = encode(coder, pipeline, raw, size, out, out_size, skipped);
    if (status == SP_OK) keep_uniform(coder, pipeline, number, size, out, *out_size, *skipped);
    return status;
}

/* Undo the checksum: it is right, and its 4 bytes are cut off. */
static bool take_checksum(const uint8_t *data, size_t *size)
{
    if (*size < 4) return false;
    *size -= 4;
    const uint8_t *at = data + *size;
    const uint32_t stored = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    const uint32_t real = fletcher32(data, *size);
    /* HDF5 before 1.6.3 stored it with the bytes of each half swapped, on little-endian machines */
    const uint32_t swapped = (real & 0x00ff00ff) << 8 | (real & 0xff00ff00) >> 8;
    return stored == real || stored == swapped;
}

sp_status sp_chunk_decode(sp_coder *coder, const sp_pipeline *pipeline, void *stored, size_t size, uint32_t skipped,
                          void *out, size_t out_size)
{
    uint8_t *data = stored;
    if (!sp_pipeline_known(pipeline)) return SP_ERR_UNSUPPORTED;
    for (int i = pipeline->count - 1; i >= 0; i--) {
        const int filter = pipeline->filters[i];
        if (skipped & 1u << i) continue;
        if (filter == SP_FILTER_FLETCHER32) {
            if (!take_checksum(data, &size)) return SP_ERR_CORRUPT;
        } else if (filter == SP_FILTER_SHUFFLE) {
            if (size != out_size) return SP_ERR_CORRUPT;
            unshuffle(data, out, out_size, pipeline->element);
            data = out;
        } else {
            uint8_t *plain = scratch_of(coder, out_size);
            if (plain == NULL) return SP_ERR_NO_MEMORY;
            if (!codec_decode(coder, filter, data, size, plain, out_size)) return SP_ERR_CORRUPT;
            data = plain;
            size = out_size;
        }
    }
    if (size != out_size) return SP_ERR_CORRUPT;
    if (data != out) memcpy(out, data, out_size);
    return SP_OK;
}
