#include "formats/json_text.h"

#include <string.h>

#define DEPTH_MAX 200

typedef struct scanner {
    const char *at;
    int depth;
} scanner;

static void skip_space(scanner *s)
{
    while (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r') s->at++;
}

static bool take(scanner *s, char character)
{
    skip_space(s);
    if (*s->at != character) return false;
    s->at++;
    return true;
}

static bool take_word(scanner *s, const char *word)
{
    const size_t size = strlen(word);
    if (strncmp(s->at, word, size) != 0) return false;
    s->at += size;
    return true;
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool scan_string(scanner *s)
{
    if (!take(s, '"')) return false;
    for (; *s->at != '"'; s->at++) {
        if ((unsigned char)*s->at < 0x20) return false; /* also the end of the text */
        if (*s->at != '\\') continue;
        s->at++;
        if (*s->at == 'u') {
            for (int i = 0; i < 4; i++) {
                if (!is_hex(*++s->at)) return false;
            }
        } else if (*s->at == '\0' || strchr("\"\\/bfnrt", *s->at) == NULL) {
            return false;
        }
    }
    s->at++;
    return true;
}

static bool scan_digits(scanner *s)
{
    const char *begin = s->at;
    while (*s->at >= '0' && *s->at <= '9') s->at++;
    return s->at > begin;
}

static bool scan_number(scanner *s)
{
    if (*s->at == '-') s->at++;
    if (take_word(s, "Infinity") || take_word(s, "NaN")) return true;
    if (!scan_digits(s)) return false;
    if (*s->at == '.') {
        s->at++;
        if (!scan_digits(s)) return false;
    }
    if (*s->at != 'e' && *s->at != 'E') return true;
    s->at++;
    if (*s->at == '+' || *s->at == '-') s->at++;
    return scan_digits(s);
}

static bool scan_value(scanner *s);

static bool scan_object(scanner *s)
{
    if (!take(s, '{')) return false;
    if (take(s, '}')) return true;
    do {
        skip_space(s);
        if (!scan_string(s) || !take(s, ':') || !scan_value(s)) return false;
    } while (take(s, ','));
    return take(s, '}');
}

static bool scan_list(scanner *s)
{
    if (!take(s, '[')) return false;
    if (take(s, ']')) return true;
    do {
        if (!scan_value(s)) return false;
    } while (take(s, ','));
    return take(s, ']');
}

static bool scan_value(scanner *s)
{
    skip_space(s);
    if (++s->depth > DEPTH_MAX) return false;
    bool fine;
    switch (*s->at) {
    case '"': fine = scan_string(s); break;
    case '{': fine = scan_object(s); break;
    case '[': fine = scan_list(s); break;
    case 't': fine = take_word(s, "true"); break;
    case 'f': fine = take_word(s, "false"); break;
    case 'n': fine = take_word(s, "null"); break;
    default: fine = scan_number(s);
    }
    s->depth--;
    return fine;
}

bool sp_json_list(const char *text, char first, uint64_t *count)
{
    scanner s = {.at = text};
    *count = 0;
    if (!take(&s, '[')) return false;
    if (!take(&s, ']')) {
        do {
            skip_space(&s);
            if (*s.at != first || !scan_value(&s)) return false;
            ++*count;
        } while (take(&s, ','));
        if (!take(&s, ']')) return false;
    }
    skip_space(&s);
    return *s.at == '\0';
}

/* The string or value that begins behind the space here. */
static bool take_piece(scanner *s, bool (*scan)(scanner *s), sp_json_piece *piece)
{
    skip_space(s);
    piece->at = s->at;
    if (!scan(s)) return false;
    piece->size = (size_t)(s->at - piece->at);
    return true;
}

static bool take_apart(const char *text, bool object, sp_json_sink sink, void *context)
{
    scanner s = {.at = text};
    const char close = object ? '}' : ']';
    if (!take(&s, object ? '{' : '[')) return false;
    if (!take(&s, close)) {
        do {
            sp_json_piece key = {0}, value;
            if (object && !(take_piece(&s, scan_string, &key) && take(&s, ':'))) return false;
            if (!take_piece(&s, scan_value, &value) || (sink && !sink(context, key, value))) return false;
        } while (take(&s, ','));
        if (!take(&s, close)) return false;
    }
    skip_space(&s);
    return *s.at == '\0';
}

bool sp_json_members(const char *text, sp_json_sink sink, void *context)
{
    return take_apart(text, true, sink, context);
}

bool sp_json_items(const char *text, sp_json_sink sink, void *context)
{
    return take_apart(text, false, sink, context);
}
