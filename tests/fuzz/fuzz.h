/*
 * fuzz.h - what the fuzz targets share. A target is one function, LLVMFuzzerTestOneInput, which takes any bytes and aborts
 * when something is wrong. libFuzzer calls it (./run fuzz), or replay.c does with the inputs that are kept in corpus/.
 */
#ifndef SP_TESTS_FUZZ_H
#define SP_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "analysis/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

/* Say what is wrong and abort. */
#define FUZZ_CHECK(what) ((what) ? (void)0 : fuzz_fail(#what, __FILE__, __LINE__))
void fuzz_fail(const char *what, const char *file, int line) __attribute__((noreturn));

/* A file in memory with these bytes; its path for other functions to open (/proc/self/fd/N). */
typedef struct fuzz_file {
    int fd;
    char path[32];
} fuzz_file;

fuzz_file fuzz_file_make(const void *data, size_t size);
void fuzz_file_close(fuzz_file *file);

/* An input that is taken piece by piece; zeros when it is used up. */
typedef struct fuzz_input {
    const uint8_t *at, *end;
} fuzz_input;

uint64_t fuzz_take(fuzz_input *input, size_t bytes);
/* A number that is likely to be at the edge of something. */
uint64_t fuzz_take_edge(fuzz_input *input);
size_t fuzz_take_bytes(fuzz_input *input, void *out, size_t most);

/* A profile with a thread and a task, five calls, tags, metadata and a group that is carried through. */
sp_profile *fuzz_small_profile(void);

/*
 * Do with a profile that a reader accepted whatever the front ends do: look at every text and call, sum it up, lay it out in
 * tracks, write it and read it back. `deep` includes the files.
 */
void fuzz_use_profile(const sp_profile *profile, bool deep);

/* A reader's outcome: a profile on SP_OK, else one sentence of one line that is not empty. */
void fuzz_check_outcome(sp_status status, const sp_error *error, const sp_profile *profile);

#endif
