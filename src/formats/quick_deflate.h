/*
 * quick_deflate.h - the fastest deflate there is for what is mostly repetition, as shuffled columns of numbers are.
 *
 * Most compressors enter every byte of a repetition into a table of what was seen. ISA-L does not: columns of calls take it a
 * sixth of libdeflate's time, and become as small. It is not made for every processor, so meson.build chooses the file behind this.
 */
#ifndef SP_FORMATS_QUICK_DEFLATE_H
#define SP_FORMATS_QUICK_DEFLATE_H

#include <stddef.h>

/* Working memory for one thread. */
typedef struct sp_quick_deflate sp_quick_deflate;

sp_quick_deflate *sp_quick_deflate_new(void); /* NULL: out of memory */
void sp_quick_deflate_free(sp_quick_deflate *state); /* NULL is allowed */

/* A zlib stream of less than 4 GiB. Its size, or 0 when it does not fit into `room`. */
size_t sp_quick_deflate_make(sp_quick_deflate *state, const void *in, size_t size, void *out, size_t room);

#endif
