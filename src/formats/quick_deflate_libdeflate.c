#include <libdeflate.h>

#include "formats/quick_deflate.h"

#define LEVEL 2 /* takes no longer than 1, and repetitive columns become smaller */

/* A compressor of the library, under a name of ours. */
sp_quick_deflate *sp_quick_deflate_new(void)
{
    return (sp_quick_deflate *)libdeflate_alloc_compressor(LEVEL);
}

void sp_quick_deflate_free(sp_quick_deflate *state)
{
    libdeflate_free_compressor((struct libdeflate_compressor *)state);
}

size_t sp_quick_deflate_make(sp_quick_deflate *state, const void *in, size_t size, void *out, size_t room)
{
    return libdeflate_zlib_compress((struct libdeflate_compressor *)state, in, size, out, room);
}
