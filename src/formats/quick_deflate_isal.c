#include <isa-l/igzip_lib.h>
#include <stdlib.h>

#include "formats/quick_deflate.h"

struct sp_quick_deflate {
    struct isal_zstream stream;
    uint8_t memory[ISAL_DEF_LVL1_DEFAULT];
};

sp_quick_deflate *sp_quick_deflate_new(void)
{
    return calloc(1, sizeof(sp_quick_deflate));
}

void sp_quick_deflate_free(sp_quick_deflate *state)
{
    free(state);
}

/* Level 1: 0 has one fixed code for all, which low bytes of times do not fit. */
size_t sp_quick_deflate_make(sp_quick_deflate *state, const void *in, size_t size, void *out, size_t room)
{
    struct isal_zstream *stream = &state->stream;
    if (size > UINT32_MAX) return 0;
    isal_deflate_stateless_init(stream);
    stream->level = 1;
    stream->level_buf = state->memory;
    stream->level_buf_size = sizeof state->memory;
    stream->gzip_flag = IGZIP_ZLIB;
    stream->next_in = (uint8_t *)in; /* which it only reads */
    stream->avail_in = (uint32_t)size;
    stream->next_out = out;
    stream->avail_out = room > UINT32_MAX ? UINT32_MAX : (uint32_t)room;
    stream->end_of_stream = 1;
    stream->flush = NO_FLUSH;
    return isal_deflate_stateless(stream) == COMP_OK ? stream->total_out : 0;
}
