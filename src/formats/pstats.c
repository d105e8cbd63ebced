/*
 * pstats.c - what pstats and its viewers read: Python's marshal of a dict, from an entry (file, line, name) to its primitive
 * calls, calls, own and cumulative seconds, and its callers with their part of these four.
 *
 * An entry is a call path, named by its regions joined with " > ", or a region. A root that stands for the rank calls whatever
 * no other entry encloses. Recursive calls count as calls, but only the outermost as primitive ones and in the cumulative
 * time. A key is written once and referred to afterwards, as marshal does it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/call_paths.h"
#include "analysis/wrap.h"
#include "core/hash.h"
#include "core/sort.h"
#include "formats/export.h"
#include "formats/utf8.h"

#define JOINT " > "
#define ROOT SP_NO_CALL /* as a caller */
#define NOT_WRITTEN UINT32_MAX

typedef struct numbers {
    uint64_t primitive, calls;
    int64_t own, total; /* ns */
} numbers;

typedef struct entry {
    uint32_t row;
    uint32_t above;  /* the entry whose name comes before this one's; ROOT: none */
    uint32_t copy;   /* 2 and up: how many entries would have the same name */
    uint32_t reference; /* of its key, once that is written */
    uint64_t hash;   /* of the name */
    numbers sum;
    uint32_t first_caller, caller_count; /* among the callers */
} entry;

typedef struct caller {
    uint32_t entry, by;
    numbers part;
} caller;

typedef struct writer {
    const sp_profile *profile;
    sp_output *out;
    char *root;      /* its name */
    char **names;    /* of the regions, as UTF-8 */
    sp_call_paths paths;
    uint32_t *entry_of; /* by node */
    entry *entries;
    uint32_t entry_count;
    caller *callers;
    size_t caller_count;
    uint32_t references; /* keys written so far */
    uint32_t root_reference;
    uint32_t *chain; /* entries from the outermost in, while a name is written */
} writer;

/* -- sums ------------------------------------------------------------------------------------------------------------- */

static void add(numbers *to, const numbers *what)
{
    to->primitive += what->primitive;
    to->calls += what->calls;
    to->own = sp_plus(to->own, what->own);
    to->total = sp_plus(to->total, what->total);
}

static void add_caller(writer *w, uint32_t callee, uint32_t by, numbers part)
{
    w->callers[w->caller_count++] = (caller){callee, by, part};
    add(&w->entries[callee].sum, &part);
}

static bool is_inside_itself(const writer *w, uint32_t node)
{
    const sp_call_path *nodes = w->paths.nodes;
    for (uint32_t above = nodes[node].parent; above != SP_NO_CALL; above = nodes[above].parent) {
        if (nodes[above].row == nodes[node].row) return true;
    }
    return false;
}

static void sum_node(writer *w, uint32_t node, bool flat)
{
    const sp_call_path *path = &w->paths.nodes[node];
    const uint32_t own = w->entry_of[node], by = path->parent == SP_NO_CALL ? ROOT : w->entry_of[path->parent];
    /* Of calls that contain each other, only the outermost take time. */
    const bool inner = flat && is_inside_itself(w, node);
    add_caller(w, own, by, (numbers){inner ? 0 : path->outermost, path->outermost, path->exclusive_ns, inner ? 0 : path->total_ns});
    if (path->calls > path->outermost) add_caller(w, own, own, (numbers){.calls = path->calls - path->outermost});
}

static int by_entry(const void *left, const void *right)
{
    const caller *a = left, *b = right;
    if (a->entry != b->entry) return a->entry < b->entry ? -1 : 1;
    return (a->by > b->by) - (a->by < b->by);
}

/* One caller for each pair, entry by entry. */
static void group_callers(writer *w)
{
    size_t kept = 0;
    sp_sort(w->callers, w->caller_count, sizeof *w->callers, by_entry);
    for (size_t i = 0; i < w->caller_count; i++) {
        if (kept > 0 && by_entry(&w->callers[kept - 1], &w->callers[i]) == 0) add(&w->callers[kept - 1].part, &w->callers[i].part);
        else w->callers[kept++] = w->callers[i];
    }
    w->caller_count = kept;
    for (size_t i = 0; i < kept; i++) {
        entry *of = &w->entries[w->callers[i].entry];
        if (of->caller_count++ == 0) of->first_caller = (uint32_t)i;
    }
}

/* -- names ------------------------------------------------------------------------------------------------------------ */

static const char *name_of(const writer *w, const entry *e)
{
    return w->names[w->profile->rows[e->row].name];
}

static uint64_t join_hash(uint64_t hash, const char *text)
{
    return (hash ^ sp_hash(text)) * UINT64_C(0x9e3779b97f4a7c15);
}

/*
 * A name's hash is made of those of its characters, so that "a > b" hashes alike as a region and as a path.
 */
static uint64_t extend_hash(uint64_t hash, const char *text)
{
    for (; *text; text++) hash = sp_hash_step(hash, *text);
    return hash;
}

static uint64_t key_hash(const writer *w, const entry *e)
{
    const sp_row *row = &w->profile->rows[e->row];
    const uint64_t place = row->source_file ? join_hash((uint64_t)row->source_line, row->source_file) : 0;
    return (e->hash ^ place) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Tell the entry's hash, and count up its copies until no entry has it. Equal hashes of different names do no harm. */
static void name_entry(writer *w, entry *e, uint64_t *taken, size_t mask)
{
    char suffix[16];
    const uint64_t above = e->above == ROOT ? SP_HASH_BEGIN : extend_hash(w->entries[e->above].hash, JOINT);
    const uint64_t plain = extend_hash(above, name_of(w, e));
    for (e->copy = 1;; e->copy++) {
        snprintf(suffix, sizeof suffix, " [%u]", e->copy);
        e->hash = e->copy > 1 ? extend_hash(plain, suffix) : plain;
        const uint64_t key = key_hash(w, e) | 1;
        size_t at = (size_t)(key >> 20) & mask;
        while (taken[at] && taken[at] != key) at = (at + 1) & mask;
        if (taken[at]) continue;
        taken[at] = key;
        return;
    }
}

static bool name_entries(writer *w)
{
    size_t size = 64;
    while (size < 2 * ((size_t)w->entry_count + 1)) size *= 2;
    uint64_t *taken = calloc(size, sizeof *taken);
    if (taken == NULL) return false;
    for (uint32_t i = 0; i < w->entry_count; i++) name_entry(w, &w->entries[i], taken, size - 1);
    free(taken);
    return true;
}

/* -- entries ---------------------------------------------------------------------------------------------------------- */

static void entry_of_path(writer *w, uint32_t node)
{
    const sp_call_path *path = &w->paths.nodes[node];
    w->entry_of[node] = w->entry_count;
    w->entries[w->entry_count++] = (entry){.row = path->row, .above = path->parent == SP_NO_CALL ? ROOT : w->entry_of[path->parent]};
}

static bool make_names(writer *w)
{
    w->names = calloc(w->profile->name_count + 1, sizeof *w->names);
    for (size_t i = 0; w->names && i < w->profile->name_count; i++) {
        w->names[i] = sp_utf8_repaired(w->profile->names[i]);
        if (w->names[i] == NULL) return false;
    }
    return w->names != NULL;
}

static bool make_entries(writer *w, bool flat)
{
    const size_t nodes = w->paths.count, rows = w->profile->row_count;
    w->entry_of = malloc((nodes + 1) * sizeof *w->entry_of);
    w->entries = calloc(nodes + 1, sizeof *w->entries);
    w->callers = calloc(2 * nodes + 1, sizeof *w->callers);
    w->chain = malloc((nodes + 1) * sizeof *w->chain);
    uint32_t *of_row = flat ? malloc((rows + 1) * sizeof *of_row) : NULL;
    const bool ok = w->entry_of && w->entries && w->callers && w->chain && (of_row || !flat);
    if (ok && flat) memset(of_row, 0xff, rows * sizeof *of_row);
    for (uint32_t node = 0; ok && node < nodes; node++) {
        const uint32_t row = w->paths.nodes[node].row;
        if (!flat) {
            entry_of_path(w, node);
        } else if (of_row[row] == SP_NO_CALL) {
            w->entry_of[node] = of_row[row] = w->entry_count;
            w->entries[w->entry_count++] = (entry){.row = row, .above = ROOT};
        } else {
            w->entry_of[node] = of_row[row];
        }
    }
    for (uint32_t i = 0; ok && i < w->entry_count; i++) w->entries[i].reference = NOT_WRITTEN;
    for (uint32_t node = 0; ok && node < nodes; node++) sum_node(w, node, flat);
    free(of_row);
    return ok && name_entries(w);
}

/* -- marshal ---------------------------------------------------------------------------------------------------------- */

#define FLAG_REFERENCE ((char)0x80) /* the value can be referred to: it gets the next number */

static void put_bytes(writer *w, uint64_t value, int count)
{
    for (int i = 0; i < count; i++) sp_output_char(w->out, (char)(value >> 8 * i));
}

static void put_int(writer *w, uint64_t value)
{
    if (value <= INT32_MAX) {
        sp_output_char(w->out, 'i');
        put_bytes(w, value, 4);
        return;
    }
    int digits = 0;
    for (uint64_t rest = value; rest; rest >>= 15) digits++;
    sp_output_char(w->out, 'l');
    put_bytes(w, (uint64_t)digits, 4);
    for (; digits > 0; digits--, value >>= 15) put_bytes(w, value & 0x7fff, 2);
}

static void put_seconds(writer *w, int64_t ns)
{
    const double seconds = (double)ns / 1e9;
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof bits);
    sp_output_char(w->out, 'g');
    put_bytes(w, bits, 8);
}

static void put_text_size(writer *w, size_t size)
{
    sp_output_char(w->out, 'u');
    put_bytes(w, size, 4);
}

static void put_text(writer *w, const char *text)
{
    char *valid = sp_utf8_repaired(text);
    if (valid == NULL) {
        sp_output_fail(w->out, SP_ERR_NO_MEMORY, "out of memory");
        return;
    }
    put_text_size(w, strlen(valid));
    sp_output_text(w->out, valid);
    free(valid);
}

static void begin_tuple(writer *w, int count, char flag)
{
    sp_output_char(w->out, (char)(')' | flag));
    sp_output_char(w->out, (char)count);
}

static void put_reference(writer *w, uint32_t reference)
{
    sp_output_char(w->out, 'r');
    put_bytes(w, reference, 4);
}

static size_t suffix_of(const entry *e, char suffix[16])
{
    suffix[0] = '\0';
    return e->copy > 1 ? (size_t)snprintf(suffix, 16, " [%u]", e->copy) : 0;
}

static void put_name(writer *w, const entry *e)
{
    size_t depth = 0, size = 0;
    char suffix[16];
    for (uint32_t at = (uint32_t)(e - w->entries); at != ROOT; at = w->entries[at].above) {
        w->chain[depth++] = at;
        const entry *part = &w->entries[at];
        size += strlen(name_of(w, part)) + suffix_of(part, suffix);
    }
    put_text_size(w, size + (depth - 1) * strlen(JOINT));
    while (depth-- > 0) {
        const entry *part = &w->entries[w->chain[depth]];
        sp_output_text(w->out, name_of(w, part));
        sp_output_bytes(w->out, suffix, suffix_of(part, suffix));
        if (depth > 0) SP_OUTPUT_LITERAL(w->out, JOINT);
    }
}

static void put_root_key(writer *w)
{
    if (w->root_reference != NOT_WRITTEN) {
        put_reference(w, w->root_reference);
        return;
    }
    w->root_reference = w->references++;
    begin_tuple(w, 3, FLAG_REFERENCE);
    put_text(w, "~");
    put_int(w, 0);
    put_text(w, w->root);
}

static void put_key(writer *w, entry *e)
{
    if (e->reference != NOT_WRITTEN) {
        put_reference(w, e->reference);
        return;
    }
    const sp_row *row = &w->profile->rows[e->row];
    e->reference = w->references++;
    begin_tuple(w, 3, FLAG_REFERENCE);
    put_text(w, row->source_file ? row->source_file : "~");
    put_int(w, row->source_file && row->source_line > 0 ? (uint64_t)row->source_line : 0);
    put_name(w, e);
}

static void put_numbers(writer *w, const numbers *n)
{
    put_int(w, n->primitive);
    put_int(w, n->calls);
    put_seconds(w, n->own);
    put_seconds(w, n->total);
}

static void put_entry(writer *w, entry *e)
{
    put_key(w, e);
    begin_tuple(w, 5, 0);
    put_numbers(w, &e->sum);
    sp_output_char(w->out, '{');
    for (uint32_t i = 0; i < e->caller_count; i++) {
        const caller *by = &w->callers[e->first_caller + i];
        if (by->by == ROOT) put_root_key(w);
        else put_key(w, &w->entries[by->by]);
        begin_tuple(w, 4, 0);
        put_numbers(w, &by->part);
    }
    sp_output_char(w->out, '0');
}

static void put_root(writer *w)
{
    numbers whole = {.primitive = 1, .calls = 1};
    for (uint32_t i = 0; i < w->paths.count; i++) {
        if (w->paths.nodes[i].parent == SP_NO_CALL) whole.total = sp_plus(whole.total, w->paths.nodes[i].total_ns);
    }
    put_root_key(w);
    begin_tuple(w, 5, 0);
    put_numbers(w, &whole);
    SP_OUTPUT_LITERAL(w->out, "{0");
}

static void write_document(writer *w)
{
    group_callers(w);
    sp_output_char(w->out, '{');
    for (uint32_t i = 0; i < w->entry_count; i++) put_entry(w, &w->entries[i]);
    put_root(w);
    sp_output_char(w->out, '0');
}

static sp_status write_file(writer *w, const char *path, sp_error *error)
{
    sp_output out = {0};
    const sp_status status = sp_output_begin(&out, path, error);
    if (status != SP_OK) return status;
    w->out = &out;
    write_document(w);
    return sp_output_commit(&out, error);
}

static void free_writer(writer *w)
{
    for (size_t i = 0; w->names && i < w->profile->name_count; i++) free(w->names[i]);
    free(w->names);
    free(w->root);
    free(w->entry_of);
    free(w->entries);
    free(w->callers);
    free(w->chain);
    sp_call_paths_free(&w->paths);
}

sp_status sp_export_pstats(const sp_export *what, const char *path, sp_error *error)
{
    if (what->rank_count != 1) return sp_fail(error, SP_ERR_INVALID, "%s: a file of this format holds one rank", path);
    const uint32_t rank = what->ranks[0];
    writer w = {.profile = what->profile, .root_reference = NOT_WRITTEN};
    sp_status status = sp_call_paths_make(&w.paths, what->profile, rank, what->visible, error);
    if (status != SP_OK) return status;
    if (asprintf(&w.root, "<%s rank %u>", what->name, rank) < 0) w.root = NULL;
    if (w.root && make_names(&w) && make_entries(&w, what->flat)) status = write_file(&w, path, error);
    else status = sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the %u call paths of rank %u", w.paths.count, rank);
    free_writer(&w);
    return status;
}
