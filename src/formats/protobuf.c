#include "formats/protobuf.h"

#include <stdlib.h>
#include <string.h>

#include "formats/utf8.h"

enum { KIND_VARINT = 0, KIND_FIXED64 = 1, KIND_BYTES = 2 };

void sp_message_free(sp_message *message)
{
    free(message->data);
    *message = (sp_message){0};
}

/* Where `size` more bytes can be written; NULL: out of memory. */
static unsigned char *make_room(sp_message *message, size_t size)
{
    if (message->failed) return NULL;
    if (message->room - message->used >= size) return message->data + message->used;
    const size_t room = 2 * (message->used + size) + 256;
    unsigned char *larger = realloc(message->data, room);
    if (larger == NULL) {
        message->failed = true;
        return NULL;
    }
    message->data = larger;
    message->room = room;
    return larger + message->used;
}

unsigned char *sp_varint_put(unsigned char *to, uint64_t value)
{
    while (value >= 0x80) {
        *to++ = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    *to++ = (unsigned char)value;
    return to;
}

void sp_message_varint(sp_message *message, uint32_t field, uint64_t value)
{
    unsigned char *to = make_room(message, 20);
    if (to == NULL) return;
    to = sp_varint_put(to, (uint64_t)field << 3 | KIND_VARINT);
    message->used = (size_t)(sp_varint_put(to, value) - message->data);
}

void sp_message_fixed64(sp_message *message, uint32_t field, uint64_t value)
{
    unsigned char *to = make_room(message, 20);
    if (to == NULL) return;
    to = sp_varint_put(to, (uint64_t)field << 3 | KIND_FIXED64);
    for (int i = 0; i < 8; i++) *to++ = (unsigned char)(value >> 8 * i);
    message->used = (size_t)(to - message->data);
}

void sp_message_bytes(sp_message *message, uint32_t field, const void *data, size_t size)
{
    unsigned char *to = make_room(message, 20 + size);
    if (to == NULL) return;
    to = sp_varint_put(to, (uint64_t)field << 3 | KIND_BYTES);
    to = sp_varint_put(to, size);
    if (size) memcpy(to, data, size);
    message->used = (size_t)(to + size - message->data);
}

void sp_message_text(sp_message *message, uint32_t field, const char *text)
{
    const size_t size = strlen(text);
    if (sp_utf8_valid(text, size)) {
        sp_message_bytes(message, field, text, size);
        return;
    }
    char *repaired = sp_utf8_repaired(text);
    if (repaired) sp_message_bytes(message, field, repaired, strlen(repaired));
    else message->failed = true;
    free(repaired);
}

size_t sp_message_begin(sp_message *message, uint32_t field)
{
    unsigned char *to = make_room(message, 20);
    if (to == NULL) return 0;
    to = sp_varint_put(to, (uint64_t)field << 3 | KIND_BYTES);
    message->used = (size_t)(to + 1 - message->data);
    return message->used;
}

void sp_message_end(sp_message *message, size_t begin)
{
    if (message->failed) return;
    const size_t size = message->used - begin;
    if (size < 0x80) {
        message->data[begin - 1] = (unsigned char)size;
        return;
    }
    unsigned char length[10];
    const size_t more = (size_t)(sp_varint_put(length, size) - length) - 1;
    if (make_room(message, more) == NULL) return;
    memmove(message->data + begin + more, message->data + begin, size);
    memcpy(message->data + begin - 1, length, more + 1);
    message->used += more;
}
