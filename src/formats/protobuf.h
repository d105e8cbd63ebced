/*
 * protobuf.h - messages in the encoding of protocol buffers, put together in memory, one at a time.
 *
 * A field is a varint tag (number << 3 | kind) and a value. Nested messages are written in place: their length is filled in
 * when they end, and room for one byte of it is left at first, which is enough for nearly all.
 */
#ifndef SP_FORMATS_PROTOBUF_H
#define SP_FORMATS_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sp_message {
    unsigned char *data;
    size_t used, room;
    bool failed; /* out of memory: what follows is dropped */
} sp_message;

void sp_message_free(sp_message *message);

void sp_message_varint(sp_message *message, uint32_t field, uint64_t value);
void sp_message_fixed64(sp_message *message, uint32_t field, uint64_t value);
void sp_message_bytes(sp_message *message, uint32_t field, const void *data, size_t size);

/* A string field; what is not UTF-8 becomes U+FFFD. */
void sp_message_text(sp_message *message, uint32_t field, const char *text);

/* Returns what sp_message_end needs. */
size_t sp_message_begin(sp_message *message, uint32_t field);
void sp_message_end(sp_message *message, size_t begin);

/* A varint at `to`, at most 10 bytes; returns behind it. */
unsigned char *sp_varint_put(unsigned char *to, uint64_t value);

#endif
