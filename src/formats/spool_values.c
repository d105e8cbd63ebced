/*
 * spool_values.c - which call carries which values: of the scopes on its lane that contain it whole, the inner ones before the outer
 * ones, and of the outcome that is its own. Objects are put together from the texts of their members, which stay as they are.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/wrap.h"
#include "core/comm.h"
#include "core/grow.h"
#include "core/index.h"
#include "core/sort.h"
#include "formats/json_text.h"
#include "formats/spool.h"
#include "formats/utf8.h"

#define NO_NODE UINT32_MAX /* no scope contains the call */

typedef struct member {
    sp_json_piece key, value;
} member;

/* An object that is put together: a key that comes again has the later value in the earlier place. */
typedef struct object {
    member *members;
    size_t count, size;
    sp_index index; /* by key */
    bool failed;    /* out of memory */
} object;

typedef struct scope {
    int64_t lane, start, end;
    size_t order; /* of equal scopes the first is the outer one */
    const char *text;
} scope;

typedef struct outcome {
    const char *region, *text;
    int64_t lane, start;
    size_t order; /* the last of equal ones counts */
} outcome;

typedef struct lane_call {
    int64_t lane, start;
    uint64_t at; /* in the columns */
} lane_call;

/* A chain of scopes around calls, from the outermost to this one. */
typedef struct node {
    uint32_t parent;
    size_t scope;
    char *text; /* of the object that they make together; NULL: not made yet */
} node;

typedef struct teller {
    sp_profile *profile;
    const sp_spool_values *values;
    scope *scopes;
    outcome *outcomes;
    size_t scope_count, outcome_count;
    node *nodes;
    size_t node_count, node_size;
    sp_index children; /* of nodes by parent and scope */
    uint32_t *found;   /* of each call */
    size_t *active;    /* scopes that are open where the walk is */
    size_t active_count;
} teller;

/* ---- objects ---- */

static uint64_t hash_of_member(const void *o, uint32_t number)
{
    const sp_json_piece *key = &((const object *)o)->members[number].key;
    return sp_hash_bytes(key->at, key->size);
}

static bool is_member(const void *o, uint32_t number, const void *wanted)
{
    const sp_json_piece *key = &((const object *)o)->members[number].key, *other = wanted;
    return other->size == key->size && memcmp(other->at, key->at, key->size) == 0;
}

/* Room for one more. */
static bool object_grow(object *o)
{
    if (!sp_grow(&o->members, &o->size, o->count, sizeof *o->members, 8)) return false;
    return sp_index_reserve(&o->index, o->count, o, hash_of_member);
}

static bool add_member(void *context, sp_json_piece key, sp_json_piece value)
{
    object *o = context;
    if (!object_grow(o)) {
        o->failed = true;
        return false;
    }
    uint32_t *slot = sp_index_find(&o->index, sp_hash_bytes(key.at, key.size), o, is_member, &key);
    if (*slot) {
        o->members[*slot - 1].value = value;
        return true;
    }
    o->members[o->count++] = (member){key, value};
    *slot = (uint32_t)o->count;
    return true;
}

static void object_free(object *o)
{
    free(o->members);
    free(o->index.slots);
    *o = (object){0};
}

/* The object as text, behind what is there. */
static bool write_object(const object *o, sp_bytes *out)
{
    bool enough = sp_bytes_add(out, "{", 1);
    for (size_t i = 0; enough && i < o->count; i++) {
        const member *m = &o->members[i];
        enough = (i == 0 || sp_bytes_add(out, ", ", 2)) && sp_bytes_add(out, m->key.at, m->key.size) && sp_bytes_add(out, ": ", 2) &&
            sp_bytes_add(out, m->value.at, m->value.size);
    }
    return enough && sp_bytes_add(out, "}", 1);
}

/* ---- what the spool noted ---- */

static bool is_usable(const sp_spool_value *value)
{
    return sp_utf8_valid(value->text, strlen(value->text)) && sp_json_members(value->text, NULL, NULL);
}

static int by_number(const void *left, const void *right)
{
    const sp_spool_value *const *a = left, *const *b = right;
    if ((*a)->scope != (*b)->scope) return (*a)->scope < (*b)->scope ? -1 : 1;
    return *a < *b ? -1 : *a > *b;
}

/*
 * Notes of one scope have one number: it was open, and then it was over, and the last one counts. A scope that was over when it was
 * first noted has none.
 */
static bool drop_superseded(const sp_spool_values *values, bool *superseded)
{
    const sp_spool_value **numbered = malloc((values->count + 1) * sizeof *numbered);
    size_t count = 0;
    if (numbered == NULL) return false;
    for (size_t i = 0; i < values->count; i++) {
        if (!values->list[i].outcome && values->list[i].scope && is_usable(&values->list[i])) numbered[count++] = &values->list[i];
    }
    sp_sort(numbered, count, sizeof *numbered, by_number);
    for (size_t i = 0; i + 1 < count; i++) {
        const bool same = numbered[i]->scope == numbered[i + 1]->scope;
        if (same && numbered[i]->end_ns == SP_UNKNOWN) superseded[numbered[i] - values->list] = true;
    }
    free(numbered);
    return true;
}

static int by_lane_and_start(const void *left, const void *right)
{
    const scope *a = left, *b = right;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    if (a->end != b->end) return a->end > b->end ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static int by_place(const outcome *a, const outcome *b)
{
    const int regions = strcmp(a->region, b->region);
    if (regions) return regions;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    return a->start < b->start ? -1 : a->start > b->start;
}

static int by_place_and_order(const void *left, const void *right)
{
    const outcome *a = left, *b = right;
    const int places = by_place(a, b);
    return places ? places : a->order < b->order ? -1 : a->order > b->order;
}

/* Scopes that end last are the outer ones of equal times: first those that never did. Times reach 1 ns further, for rounding. */
static bool take_notes(teller *t)
{
    const sp_spool_values *values = t->values;
    bool *superseded = calloc(values->count + 1, sizeof *superseded);
    t->scopes = malloc((values->count + 1) * sizeof *t->scopes);
    t->outcomes = malloc((values->count + 1) * sizeof *t->outcomes);
    t->active = malloc((values->count + 1) * sizeof *t->active);
    const bool made = superseded && t->scopes && t->outcomes && t->active && drop_superseded(values, superseded);
    for (size_t i = 0; made && i < values->count; i++) {
        const sp_spool_value *value = &values->list[i];
        if (superseded[i] || !is_usable(value)) continue;
        if (value->outcome) {
            t->outcomes[t->outcome_count++] =
                (outcome){.region = value->region, .text = value->text, .lane = value->lane, .start = value->start_ns, .order = i};
            continue;
        }
        const bool open = value->end_ns == SP_UNKNOWN;
        t->scopes[t->scope_count++] = (scope){.lane = value->lane, .start = sp_minus(value->start_ns, 1),
                                              .end = open ? INT64_MAX : sp_plus(value->end_ns, 1),
                                              .order = open ? values->count + i : values->count - i, .text = value->text};
    }
    if (made) sp_sort(t->scopes, t->scope_count, sizeof *t->scopes, by_lane_and_start);
    if (made) sp_sort(t->outcomes, t->outcome_count, sizeof *t->outcomes, by_place_and_order);
    free(superseded);
    return made;
}

/* ---- chains of scopes ---- */

static uint64_t chain_hash(uint32_t parent, size_t last)
{
    const uint64_t hash = (parent * UINT64_C(0x9e3779b97f4a7c15) ^ last) * UINT64_C(0xd6e8feb86659fd93);
    return hash ^ hash >> 32;
}

static uint64_t hash_of_node(const void *nodes, uint32_t number)
{
    const node *n = (const node *)nodes + number;
    return chain_hash(n->parent, n->scope);
}

static bool is_node(const void *nodes, uint32_t number, const void *wanted)
{
    const node *n = (const node *)nodes + number, *other = wanted;
    return n->parent == other->parent && n->scope == other->scope;
}

/* Room for one more. */
static bool nodes_grow(teller *t)
{
    if (!sp_grow(&t->nodes, &t->node_size, t->node_count, sizeof *t->nodes, 64)) return false;
    return sp_index_reserve(&t->children, t->node_count, t->nodes, hash_of_node);
}

/* The chain with one more scope; NO_NODE without memory. */
static uint32_t child_of(teller *t, uint32_t parent, size_t last)
{
    const node wanted = {.parent = parent, .scope = last};
    if (!nodes_grow(t)) return NO_NODE;
    uint32_t *slot = sp_index_find(&t->children, chain_hash(parent, last), t->nodes, is_node, &wanted);
    if (*slot == 0) {
        t->nodes[t->node_count++] = wanted;
        *slot = (uint32_t)t->node_count;
    }
    return *slot - 1;
}

/* Members of the scopes of the chain, the outermost first. */
static bool add_chain(const teller *t, uint32_t at, object *o)
{
    size_t depth = 0;
    for (uint32_t i = at; i != NO_NODE; i = t->nodes[i].parent) depth++;
    const char **texts = malloc((depth + 1) * sizeof *texts);
    if (texts == NULL) return false;
    for (size_t i = depth; at != NO_NODE; at = t->nodes[at].parent) texts[--i] = t->scopes[t->nodes[at].scope].text;
    for (size_t i = 0; i < depth && !o->failed; i++) sp_json_members(texts[i], add_member, o);
    free(texts);
    return !o->failed;
}

/* ---- which chain contains which call ---- */

static int calls_by_lane(const void *left, const void *right)
{
    const lane_call *a = left, *b = right;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static void forget_ended(teller *t, int64_t start)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->active_count; i++) {
        if (t->scopes[t->active[i]].end > start) t->active[kept++] = t->active[i];
    }
    t->active_count = kept;
}

/* The chain around a call that ends then; false: no memory. */
static bool chain_around(teller *t, int64_t end, uint32_t *chain)
{
    *chain = NO_NODE;
    for (size_t i = 0; i < t->active_count; i++) {
        if (t->scopes[t->active[i]].end < end) continue;
        *chain = child_of(t, *chain, t->active[i]);
        if (*chain == NO_NODE) return false;
    }
    return true;
}

/* Calls and scopes in order of lane and start. */
static bool find_chains(teller *t, const lane_call *calls)
{
    const int64_t *ends = t->profile->columns[SP_COLUMN_END];
    size_t coming = 0;
    for (uint64_t i = 0; i < t->profile->call_count; i++) {
        const lane_call *call = &calls[i];
        if (i == 0 || call->lane != calls[i - 1].lane) t->active_count = 0;
        while (coming < t->scope_count && t->scopes[coming].lane < call->lane) coming++;
        while (coming < t->scope_count && t->scopes[coming].lane == call->lane && t->scopes[coming].start <= call->start) {
            t->active[t->active_count++] = coming++;
        }
        forget_ended(t, call->start);
        if (!chain_around(t, ends[call->at], &t->found[call->at])) return false;
    }
    return true;
}

static bool find_scopes(teller *t)
{
    const uint64_t count = t->profile->call_count;
    lane_call *calls = malloc((count + 1) * sizeof *calls);
    t->found = malloc((count + 1) * sizeof *t->found);
    bool enough = calls && t->found;
    for (uint64_t i = 0; enough && i < count; i++) {
        calls[i] = (lane_call){t->values->lanes[i], t->profile->columns[SP_COLUMN_START][i], i};
    }
    if (enough) sp_sort(calls, count, sizeof *calls, calls_by_lane);
    enough = enough && find_chains(t, calls);
    free(calls);
    return enough;
}

/* ---- texts of rows ---- */

/* The last outcome of the place, or NULL. */
static const outcome *outcome_at(const teller *t, const char *region, int64_t lane, int64_t start)
{
    const outcome wanted = {.region = region, .lane = lane, .start = start};
    size_t low = 0, high = t->outcome_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (by_place(&t->outcomes[middle], &wanted) <= 0) low = middle + 1;
        else high = middle;
    }
    return low && by_place(&t->outcomes[low - 1], &wanted) == 0 ? &t->outcomes[low - 1] : NULL;
}

/* The outcome of a call, give or take the rounding of a tick; no two calls are that near. */
static const outcome *outcome_of(const teller *t, const char *region, uint64_t call)
{
    static const int64_t shifts[] = {0, 1, -1};
    const int64_t start = t->profile->columns[SP_COLUMN_START][call], lane = t->values->lanes[call];
    const outcome *found = NULL;
    for (size_t i = 0; found == NULL && i < sizeof shifts / sizeof *shifts; i++) {
        found = outcome_at(t, region, lane, sp_plus(start, shifts[i]));
    }
    return found;
}

static int region_against(const void *region, const void *one)
{
    return strcmp(region, ((const outcome *)one)->region);
}

static bool has_outcomes(const teller *t, const char *region)
{
    return sp_find(region, t->outcomes, t->outcome_count, sizeof *t->outcomes, region_against) != NULL;
}

/* The marks of a row's calls, {"open":true}, as its text has them. */
typedef struct marks {
    sp_json_piece *items;
    size_t count, size;
} marks;

static bool add_mark(void *context, sp_json_piece key, sp_json_piece value)
{
    marks *m = context;
    if (m->count == m->size) return false;
    m->items[m->count++] = value;
    return true;
}

/* The object of one call, behind what is there. */
static bool put_call(teller *t, uint32_t chain, const outcome *own, sp_json_piece mark, sp_bytes *out)
{
    const bool alone = own == NULL && mark.size <= 2; /* "{}" */
    if (alone && chain == NO_NODE) return sp_bytes_add(out, "{}", 2);
    if (alone && t->nodes[chain].text) return sp_bytes_add(out, t->nodes[chain].text, strlen(t->nodes[chain].text));
    object o = {0};
    const size_t begin = out->size;
    char *text = mark.size > 2 ? strndup(mark.at, mark.size) : NULL;
    bool enough = (mark.size <= 2 || text) && add_chain(t, chain, &o);
    if (enough && own) enough = sp_json_members(own->text, add_member, &o);
    if (enough && text) enough = sp_json_members(text, add_member, &o);
    enough = enough && write_object(&o, out);
    if (enough && alone) t->nodes[chain].text = strndup(out->data + begin, out->size - begin); /* the next call makes it anew without memory */
    object_free(&o);
    free(text);
    return enough;
}

static bool tell_row(teller *t, sp_row *row)
{
    const char *name = t->profile->names[row->name];
    const bool outcomes = has_outcomes(t, name);
    bool any = outcomes;
    for (uint64_t i = 0; i < row->count && !any; i++) any = t->found[row->first + i] != NO_NODE;
    if (!any) return true;
    marks old = {.size = row->event_metadata ? (size_t)row->count : 0};
    sp_bytes text = {0};
    old.items = malloc((old.size + 1) * sizeof *old.items);
    bool enough = old.items != NULL;
    if (enough && row->event_metadata && !(sp_json_items(row->event_metadata, add_mark, &old) && old.count == row->count)) old.count = 0;
    for (uint64_t i = 0; enough && i < row->count; i++) {
        const uint64_t call = row->first + i;
        const outcome *own = outcomes ? outcome_of(t, name, call) : NULL;
        enough = sp_bytes_add(&text, i ? "," : "[", 1) && put_call(t, t->found[call], own, old.count ? old.items[i] : (sp_json_piece){0}, &text);
    }
    enough = enough && sp_bytes_add(&text, "]", 2);
    free(old.items);
    if (!enough) {
        sp_bytes_free(&text);
        return false;
    }
    free(row->event_metadata);
    row->event_metadata = text.data;
    return true;
}

sp_status sp_spool_values_tell(const sp_spool_values *values, sp_profile *profile)
{
    teller t = {.profile = profile, .values = values};
    if (values->count == 0 || profile->call_count == 0 || values->calls != profile->call_count) return SP_OK;
    bool enough = take_notes(&t) && find_scopes(&t);
    for (size_t i = 0; enough && i < profile->row_count; i++) {
        if (profile->rows[i].count) enough = tell_row(&t, &profile->rows[i]);
    }
    for (size_t i = 0; i < t.node_count; i++) free(t.nodes[i].text);
    free(t.nodes);
    free(t.children.slots);
    free(t.scopes);
    free(t.outcomes);
    free(t.active);
    free(t.found);
    return enough ? SP_OK : SP_ERR_NO_MEMORY;
}
