#include "formats/plane_deflate.h"

#include <libdeflate.h>
#include <stdbool.h>
#include <string.h>

#define LITERALS 286 /* literals, the end of a block, lengths */
#define END 256
#define DISTANCES 30
#define LENGTH_CODES 19
#define CODE_MAX 15
#define MATCH_MAX 258
#define MATCH_MIN 4 /* shorter ones cost as much as their literals */
#define DISTANCE_MAX 4096

/* -- tables of RFC 1951, section 3.2.5 -- */

static const uint16_t length_base[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                         31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
static const uint8_t length_extra[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};

static unsigned length_symbol(unsigned length)
{
    if (length == MATCH_MAX) return 28;
    if (length < 11) return length - 3;
    const unsigned extra = 29 - (unsigned)__builtin_clz(length - 3); /* bits after the leading three */
    return 4 * extra + ((length - 3) >> extra);
}

static unsigned distance_symbol(unsigned distance)
{
    if (distance < 5) return distance - 1;
    const unsigned extra = 30 - (unsigned)__builtin_clz(distance - 1);
    return 2 * extra + ((distance - 1) >> extra);
}

static unsigned distance_extra(unsigned symbol)
{
    return symbol < 4 ? 0 : symbol / 2 - 1;
}

static unsigned distance_base(unsigned symbol)
{
    return symbol < 4 ? symbol + 1 : ((2 + (symbol & 1)) << distance_extra(symbol)) + 1;
}

/* -- bits -- */

typedef struct bit_writer {
    uint8_t *at;
    uint64_t bits;
    unsigned count;
} bit_writer;

/* At most 57 - 7 bits may wait. The memory has 8 bytes to spare. */
static inline void put_bits(bit_writer *w, uint64_t bits, unsigned count)
{
    w->bits |= bits << w->count;
    w->count += count;
}

static inline void flush_bits(bit_writer *w)
{
    memcpy(w->at, &w->bits, 8);
    w->at += w->count >> 3;
    w->bits >>= w->count & ~7u;
    w->count &= 7;
}

static void put_now(bit_writer *w, uint64_t bits, unsigned count)
{
    put_bits(w, bits, count);
    flush_bits(w);
}

/* Zero bits up to the next byte; nothing waits afterwards. */
static void align_bits(bit_writer *w)
{
    if (w->count) w->at++;
    w->bits = 0;
    w->count = 0;
}

/* -- prefix codes -- */

typedef struct prefix_code {
    uint8_t sizes[LITERALS];
    uint16_t codes[LITERALS]; /* with their first bit lowest, as they are written */
} prefix_code;

typedef struct node {
    uint32_t frequency;
    uint16_t symbol, parent;
} node;

static void sort_nodes(node *nodes, unsigned count)
{
    for (unsigned gap = count / 2; gap; gap = gap == 2 ? 1 : gap * 5 / 11) { /* at most 286: Shell's sort is quick enough */
        for (unsigned i = gap; i < count; i++) {
            const node moved = nodes[i];
            unsigned j = i;
            for (; j >= gap && nodes[j - gap].frequency > moved.frequency; j -= gap) nodes[j] = nodes[j - gap];
            nodes[j] = moved;
        }
    }
}

/* Huffman's code lengths for two leaves or more, sorted by frequency; the longest is returned. */
static unsigned huffman_sizes(node *nodes, unsigned leaves, uint8_t *sizes)
{
    unsigned leaf = 0, inner = leaves, made = leaves;
    uint8_t depth[2 * LITERALS];
    for (; made < 2 * leaves - 1; made++) {
        nodes[made].frequency = 0;
        for (int child = 0; child < 2; child++) {
            const bool take_leaf = leaf < leaves && (inner == made || nodes[leaf].frequency <= nodes[inner].frequency);
            node *taken = &nodes[take_leaf ? leaf++ : inner++];
            taken->parent = (uint16_t)made;
            nodes[made].frequency += taken->frequency;
        }
    }
    unsigned longest = 0;
    depth[made - 1] = 0;
    for (unsigned i = made - 1; i-- > 0;) {
        depth[i] = depth[nodes[i].parent] + 1;
        if (i < leaves) sizes[nodes[i].symbol] = depth[i];
        if (i < leaves && depth[i] > longest) longest = depth[i];
    }
    return longest;
}

/* Sizes of at most `limit` bits. Where the best code is longer, frequencies are evened out until it is not. */
static void code_sizes(const uint32_t *frequencies, unsigned symbols, unsigned limit, uint8_t *sizes)
{
    node nodes[2 * LITERALS];
    for (unsigned shift = 0;; shift++) {
        unsigned leaves = 0;
        for (unsigned s = 0; s < symbols; s++) {
            sizes[s] = 0;
            if (frequencies[s] == 0) continue;
            nodes[leaves++] = (node){.frequency = (frequencies[s] >> shift) + (shift != 0), .symbol = (uint16_t)s};
        }
        for (unsigned s = 0; leaves < 2; s++) { /* a code of one symbol is not complete: not all decoders take it */
            if (frequencies[s] == 0) nodes[leaves++] = (node){.frequency = 1, .symbol = (uint16_t)s};
        }
        sort_nodes(nodes, leaves);
        if (huffman_sizes(nodes, leaves, sizes) <= limit) return;
    }
}

static uint16_t reversed(unsigned code, unsigned size)
{
    unsigned result = 0;
    for (unsigned i = 0; i < size; i++) result |= (code >> i & 1) << (size - 1 - i);
    return (uint16_t)result;
}

/* The canonical code of the sizes. */
static void assign_codes(prefix_code *code, unsigned symbols)
{
    unsigned counts[CODE_MAX + 2] = {0}, next[CODE_MAX + 2] = {0};
    for (unsigned s = 0; s < symbols; s++) counts[code->sizes[s]]++;
    counts[0] = 0;
    for (unsigned size = 1; size <= CODE_MAX; size++) next[size] = (next[size - 1] + counts[size - 1]) << 1;
    for (unsigned s = 0; s < symbols; s++) {
        if (code->sizes[s]) code->codes[s] = reversed(next[code->sizes[s]]++, code->sizes[s]);
    }
}

static void make_code(prefix_code *code, const uint32_t *frequencies, unsigned symbols, unsigned limit)
{
    code_sizes(frequencies, symbols, limit, code->sizes);
    assign_codes(code, symbols);
}

/* -- a block -- */

/* A token is a literal, or a match of `length` at one of the plane's two distances. */
#define MATCH_FLAG 0x8000u
#define TOKEN_MATCH(length, which) (MATCH_FLAG | (unsigned)(which) << 12 | (length))
typedef uint16_t token;

typedef struct block {
    uint32_t literals[LITERALS], distances[DISTANCES];
    prefix_code literal_code, distance_code;
    unsigned match_distances[2];
    bool final;
} block;

/* The code lengths of both codes, run-length coded: section 3.2.7. */
typedef struct length_list {
    uint8_t symbols[LITERALS + DISTANCES], extras[LITERALS + DISTANCES];
    unsigned count, literals, distances;
    uint32_t frequencies[LENGTH_CODES];
} length_list;

static void add_length(length_list *list, unsigned symbol, unsigned extra)
{
    list->symbols[list->count] = (uint8_t)symbol;
    list->extras[list->count++] = (uint8_t)extra;
    list->frequencies[symbol]++;
}

static void add_run(length_list *list, unsigned size, unsigned run)
{
    if (size == 0) {
        for (; run >= 11; run -= run < 138 ? run : 138) add_length(list, 18, (run < 138 ? run : 138) - 11);
        if (run >= 3) add_length(list, 17, run - 3);
        for (; run && run < 3; run--) add_length(list, 0, 0);
        return;
    }
    add_length(list, size, 0);
    for (run--; run >= 3; run -= run < 6 ? run : 6) add_length(list, 16, (run < 6 ? run : 6) - 3);
    for (; run; run--) add_length(list, size, 0);
}

static unsigned used(const uint8_t *sizes, unsigned symbols, unsigned least)
{
    while (symbols > least && sizes[symbols - 1] == 0) symbols--;
    return symbols;
}

static void list_lengths(const block *b, length_list *list)
{
    uint8_t sizes[LITERALS + DISTANCES];
    memset(list, 0, sizeof *list);
    list->literals = used(b->literal_code.sizes, LITERALS, 257);
    list->distances = used(b->distance_code.sizes, DISTANCES, 1);
    memcpy(sizes, b->literal_code.sizes, list->literals);
    memcpy(sizes + list->literals, b->distance_code.sizes, list->distances);
    const unsigned all = list->literals + list->distances;
    for (unsigned i = 0; i < all;) {
        unsigned run = 1;
        while (i + run < all && sizes[i + run] == sizes[i]) run++;
        add_run(list, sizes[i], run);
        i += run;
    }
}

static void put_header(bit_writer *w, const block *b)
{
    static const uint8_t order[LENGTH_CODES] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    static const uint8_t extra_bits[LENGTH_CODES] = {[16] = 2, [17] = 3, [18] = 7};
    length_list list;
    prefix_code code;
    list_lengths(b, &list);
    make_code(&code, list.frequencies, LENGTH_CODES, 7);
    unsigned codes = LENGTH_CODES;
    while (codes > 4 && code.sizes[order[codes - 1]] == 0) codes--;
    put_now(w, b->final | 2 << 1, 3);
    put_now(w, (list.literals - 257) | (list.distances - 1) << 5 | (codes - 4) << 10, 14);
    for (unsigned i = 0; i < codes; i++) put_now(w, code.sizes[order[i]], 3);
    for (unsigned i = 0; i < list.count; i++) {
        const unsigned symbol = list.symbols[i];
        put_bits(w, code.codes[symbol], code.sizes[symbol]);
        put_now(w, list.extras[i], extra_bits[symbol]);
    }
}

static void make_codes(block *b)
{
    b->literals[END] = 1;
    make_code(&b->literal_code, b->literals, LITERALS, CODE_MAX);
    make_code(&b->distance_code, b->distances, DISTANCES, CODE_MAX);
}

static void put_end(bit_writer *w, const block *b)
{
    put_now(w, b->literal_code.codes[END], b->literal_code.sizes[END]);
}

/* Bits of the block's literals under its code. */
static uint64_t literal_bits(const block *b)
{
    uint64_t bits = 0;
    for (unsigned s = 0; s <= END; s++) bits += (uint64_t)b->literals[s] * b->literal_code.sizes[s];
    return bits;
}

static void put_stored(bit_writer *w, const uint8_t *data, size_t size, bool final)
{
    while (size) {
        const size_t part = size < 65535 ? size : 65535;
        put_now(w, final && part == size, 3);
        align_bits(w);
        const uint16_t counts[2] = {(uint16_t)part, (uint16_t)~part};
        memcpy(w->at, counts, 4);
        memcpy(w->at + 4, data, part);
        w->at += 4 + part;
        data += part;
        size -= part;
    }
}

static void put_literals(bit_writer *w, const block *b, const uint8_t *data, size_t size)
{
    uint32_t table[256]; /* code and size together: one load a literal */
    for (unsigned s = 0; s < 256; s++) table[s] = (uint32_t)b->literal_code.codes[s] | (uint32_t)b->literal_code.sizes[s] << 16;
    bit_writer v = *w; /* kept in registers */
    size_t i = 0;
    for (; i + 3 <= size; i += 3) { /* 7 + 3 * 15 bits fit */
        for (int k = 0; k < 3; k++) {
            const uint32_t entry = table[data[i + (size_t)k]];
            put_bits(&v, entry & 0xffff, entry >> 16);
        }
        flush_bits(&v);
    }
    for (; i < size; i++) put_now(&v, table[data[i]] & 0xffff, table[data[i]] >> 16);
    *w = v;
}

static void put_tokens(bit_writer *w, const block *b, const token *tokens, size_t count)
{
    uint32_t distance_bits[2] = {0};
    unsigned distance_sizes[2] = {0};
    for (int k = 0; k < 2; k++) {
        if (b->match_distances[k] == 0) continue;
        const unsigned symbol = distance_symbol(b->match_distances[k]), size = b->distance_code.sizes[symbol];
        distance_bits[k] = b->distance_code.codes[symbol] | (b->match_distances[k] - distance_base(symbol)) << size;
        distance_sizes[k] = size + distance_extra(symbol);
    }
    const prefix_code *literals = &b->literal_code;
    for (size_t i = 0; i < count; i++) {
        const unsigned t = tokens[i];
        if (!(t & MATCH_FLAG)) {
            put_now(w, literals->codes[t], literals->sizes[t]);
            continue;
        }
        const unsigned length = t & 0xfff, symbol = length_symbol(length), which = t >> 12 & 1;
        put_bits(w, literals->codes[257 + symbol], literals->sizes[257 + symbol]);
        put_bits(w, length - length_base[symbol], length_extra[symbol]);
        put_now(w, distance_bits[which], distance_sizes[which]);
    }
}

/* -- what is in a plane -- */

static void count_bytes(uint32_t *counts, const uint8_t *data, size_t size)
{
    uint32_t parts[4][256]; /* the same byte twice in a row would wait for the first sum */
    size_t i = 0;
    memset(parts, 0, sizeof parts);
    for (; i + 4 <= size; i += 4) {
        for (size_t k = 0; k < 4; k++) parts[k][data[i + k]]++;
    }
    for (; i < size; i++) parts[0][data[i]]++;
    for (int s = 0; s < 256; s++) counts[s] += parts[0][s] + parts[1][s] + parts[2][s] + parts[3][s];
}

static uint32_t load4(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t load8(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* How many bytes, up to `most`, are equal to those `distance` before. */
static unsigned match_length(const uint8_t *at, unsigned distance, unsigned most)
{
    const uint8_t *earlier = at - distance;
    unsigned length = 0;
    for (; length + 8 <= most; length += 8) {
        const uint64_t difference = load8(at + length) ^ load8(earlier + length);
        if (difference) return length + (unsigned)__builtin_ctzll(difference) / 8;
    }
    while (length < most && at[length] == earlier[length]) length++;
    return length;
}

/* The distance at which the middle of the plane repeats, 0 if it does not. */
static unsigned find_period(const uint8_t *data, size_t size)
{
    if (size < 64) return 0;
    const size_t middle = size / 2, most = middle < DISTANCE_MAX ? middle : DISTANCE_MAX;
    const uint64_t first = load8(data + middle), second = load8(data + middle + 8);
    for (unsigned distance = 2; distance <= most; distance++) {
        if (load8(data + middle - distance) == first && load8(data + middle + 8 - distance) == second) return distance;
    }
    return 0;
}

/* Matches at the block's distances, longest first; gives up where there is little to find, and returns 0. */
static size_t make_tokens(block *b, const uint8_t *data, size_t size, size_t before, token *tokens)
{
    const size_t trial = size / 16;
    size_t count = 0, literals = 0, i = 0;
    while (i < size) {
        const unsigned most = size - i < MATCH_MAX ? (unsigned)(size - i) : MATCH_MAX;
        unsigned best = 0, which = 0;
        for (unsigned k = 0; k < 2 && most >= MATCH_MIN; k++) {
            const unsigned distance = b->match_distances[k];
            if (distance == 0 || distance > before + i || load4(data + i) != load4(data + i - distance)) continue;
            const unsigned length = match_length(data + i, distance, most);
            if (length > best) {
                best = length;
                which = k;
            }
        }
        if (best >= MATCH_MIN) {
            tokens[count++] = (token)TOKEN_MATCH(best, which);
            b->literals[257 + length_symbol(best)]++;
            b->distances[distance_symbol(b->match_distances[which])]++;
            i += best;
        } else {
            tokens[count++] = data[i];
            b->literals[data[i++]]++;
            if (++literals == trial && literals * 10 > i * 9) return 0;
        }
    }
    return count;
}

static void clear_counts(block *b)
{
    memset(b->literals, 0, sizeof b->literals);
    memset(b->distances, 0, sizeof b->distances);
}

static void put_noise(bit_writer *w, block *b, const uint8_t *data, size_t size)
{
    clear_counts(b);
    count_bytes(b->literals, data, size);
    make_codes(b);
    if (literal_bits(b) / 8 + 100 >= size) {
        put_stored(w, data, size, b->final);
        return;
    }
    put_header(w, b);
    put_literals(w, b, data, size);
    put_end(w, b);
}

static void put_plane(bit_writer *w, block *b, const uint8_t *data, size_t size, size_t before, token *tokens)
{
    clear_counts(b);
    b->match_distances[0] = 1;
    b->match_distances[1] = find_period(data, size);
    const size_t count = make_tokens(b, data, size, before, tokens);
    if (count == 0) {
        put_noise(w, b, data, size);
        return;
    }
    make_codes(b);
    put_header(w, b);
    put_tokens(w, b, tokens, count);
    put_end(w, b);
}

/* The same byte over and over. */
static void put_run(bit_writer *w, block *b, uint8_t value, size_t size)
{
    clear_counts(b);
    const size_t whole = (size - 1) / MATCH_MAX, rest = (size - 1) % MATCH_MAX;
    const bool rest_match = rest >= 3;
    b->match_distances[0] = 1;
    b->match_distances[1] = 0;
    b->literals[value] = 1 + (rest_match ? 0 : (uint32_t)rest);
    b->literals[257 + 28] = (uint32_t)whole;
    if (rest_match) b->literals[257 + length_symbol((unsigned)rest)]++;
    b->distances[0] = (uint32_t)whole + rest_match;
    make_codes(b);
    put_header(w, b);
    token tokens[32] = {value};
    put_tokens(w, b, tokens, 1);
    for (size_t i = 0; i < 32; i++) tokens[i] = TOKEN_MATCH(MATCH_MAX, 0);
    for (size_t left = whole; left; left -= left < 32 ? left : 32) put_tokens(w, b, tokens, left < 32 ? left : 32);
    for (size_t i = 0; i < 3; i++) tokens[i] = rest_match ? (token)TOKEN_MATCH(rest, 0) : value;
    put_tokens(w, b, tokens, rest_match ? 1 : rest);
    put_end(w, b);
}

/* -- the stream -- */

static bool is_run(const uint8_t *data, size_t size)
{
    return memcmp(data, data + 1, size - 1) == 0;
}

size_t sp_plane_deflate_memory(size_t plane)
{
    return plane * sizeof(token);
}

/* A stored block has 5 bytes of its own for each 65535; a code may be worse than that by its header. */
size_t sp_plane_deflate_bound(size_t plane, size_t planes)
{
    return planes * (plane + plane / 8 + 5 * (plane / 65535 + 1) + 400) + 64;
}

size_t sp_plane_deflate(const uint8_t *data, size_t plane, size_t planes, uint8_t *out, void *memory)
{
    bit_writer w = {.at = out};
    block b;
    *w.at++ = 0x78;
    *w.at++ = 0x01;
    for (size_t i = 0; i < planes;) {
        const uint8_t *at = data + i * plane;
        size_t same = 0;
        while (i + same < planes && at[same * plane] == at[0] && is_run(at + same * plane, plane)) same++;
        b.final = i + (same ? same : 1) == planes;
        if (same) put_run(&w, &b, at[0], same * plane);
        else put_plane(&w, &b, at, plane, i * plane, memory);
        i += same ? same : 1;
    }
    align_bits(&w);
    const uint32_t checksum = libdeflate_adler32(1, data, plane * planes);
    for (int i = 0; i < 4; i++) *w.at++ = (uint8_t)(checksum >> (24 - 8 * i));
    return (size_t)(w.at - out);
}
