/*
 * isolated.h - do something that a damaged file can crash in a child process, and take only its output.
 *
 * libhdf5 1.10 crashes or hangs on about one in fifty profiles with a flipped bit or two, by reading and writing outside of its
 * memory: there is no catching that in the process it happens in. The child has no signal handlers for crashes, no core
 * dumps, a silent stderr, and limits on its processor time and memory. It is made by fork, so it costs page tables, not an
 * interpreter, and it runs only C.
 */
#ifndef SP_FORMATS_ISOLATED_H
#define SP_FORMATS_ISOLATED_H

#include <stdbool.h>
#include <stdint.h>

typedef enum sp_isolated {
    SP_ISOLATED_DONE,       /* the body returned */
    SP_ISOLATED_CRASHED,    /* a signal ended the child */
    SP_ISOLATED_TOO_LONG,   /* its processor time was over */
    SP_ISOLATED_IMPOSSIBLE  /* there could be no child */
} sp_isolated;

/*
 * Run body(context, output) in a child. `output` is a file of its own in memory that the body writes to and the caller then
 * owns (-1 unless done). `seconds` of processor time, `bytes` of memory beyond what the process has.
 */
sp_isolated sp_run_isolated(void (*body)(void *context, int output), void *context, unsigned seconds, uint64_t bytes,
                            int *output);

#endif
