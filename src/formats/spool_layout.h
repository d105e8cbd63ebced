/* spool_layout.h - the bytes of a spool, shared by its writer and its reader. docs/spool-format.md says the same in words. */
#ifndef SP_FORMATS_SPOOL_LAYOUT_H
#define SP_FORMATS_SPOOL_LAYOUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

#define SP_SPOOL_MAGIC "SPSPOOL\n"
#define SP_SPOOL_PAGE 4096u
#define SP_SPOOL_ENDIAN 0x01020304u
#define SP_CHUNK_GONE 1u    /* the contents are of no use any more */
#define SP_CHUNK_THINNED 2u /* slots without a start lie between others */
#define SP_CHUNK_MAGIC 0x4b435053u /* "SPCK" */

typedef struct sp_spool_header {
    char magic[8];
    uint32_t version;
    uint32_t endian;
    uint32_t slot_bytes;  /* 24, or 32 with await times */
    uint32_t task_bytes;  /* sizeof(sp_task) of the writer */
    uint32_t clock;       /* sp_clock_source */
    uint32_t tracks;      /* bit 0: threads, bit 1: tasks; bit 2: there are sums instead of calls */
    int64_t pid;
    uint64_t process_start; /* of /proc/PID/stat: with the boot id, what tells the process from a later one of its number */
    char boot_id[40];
    uint64_t first_ticks; /* an anchor from before the run: with the run's first, the counter's rate */
    int64_t first_ns;
    uint64_t started; /* ticks */
    int64_t start_ns;
    char output[2048];
    uint32_t crc; /* of everything before it */
} sp_spool_header;

typedef struct sp_chunk_header {
    uint32_t magic;
    uint32_t kind; /* sp_chunk_kind */
    uint64_t bytes; /* with this header; a multiple of the page */
    uint32_t owner;
    uint32_t stride;
    uint64_t sequence; /* in order of allocation: the blocks of one thread follow it */
    uint32_t crc;      /* of everything before it */
    _Atomic(uint32_t) dropped; /* SP_CHUNK_GONE, SP_CHUNK_THINNED */
    uint8_t reserved[24];
} sp_chunk_header;

/* A note in a journal chunk. `bytes` is stored last: 0 is the end of the journal. */
typedef struct sp_note_header {
    _Atomic(uint32_t) bytes; /* with this header, padded to 8 */
    uint32_t size;           /* of the payload */
    uint16_t kind;           /* sp_note_kind */
    uint16_t reserved;
    uint32_t index;
    uint32_t crc; /* of size, kind, reserved, index and the payload */
    uint32_t padding;
} sp_note_header;

_Static_assert(sizeof(sp_chunk_header) == 64, "a chunk header takes 64 bytes");
_Static_assert(sizeof(sp_note_header) == 24, "a note header takes 24 bytes");
_Static_assert(sizeof(sp_spool_header) <= SP_SPOOL_PAGE, "the header takes a page");

/* -- reading, of a file that may be anything -- */

/* Whether it is a spool's header that this program can read. `path` is for the message. */
sp_status sp_spool_check_header(const sp_spool_header *header, const char *path, sp_error *error);

/* SP_ERR_CORRUPT if pages of the file's mapping were gone when they were looked at (page_guard.h): nothing made of them is to be believed. */
sp_status sp_spool_check_pages(const _Atomic(uint64_t) *lost, const char *path, sp_error *error);

/* Whether a whole chunk begins at `offset` of the file's first `size` bytes. */
bool sp_spool_chunk_is_whole(const char *memory, uint64_t size, uint64_t offset);

/* The next whole note of a chunk of `bytes`, at *offset (first: behind the chunk's header); NULL at the end. *lost becomes the bytes
 * behind a note that is damaged: without its size those that follow cannot be found. */
const sp_note_header *sp_spool_next_note(const sp_chunk_header *chunk, uint64_t bytes, uint64_t *offset, uint64_t *lost);

/* Whether the process that writes the spool lives; `locked`: it holds its lock. */
bool sp_spool_writer_lives(const sp_spool_header *header, bool locked);

/* When the process with this id began (0: there is none), and which boot of the machine this is. */
uint64_t sp_process_start(int64_t pid);
void sp_boot_id(char text[40]);

#endif
