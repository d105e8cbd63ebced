/* tree.c - the call tree of every lane: calls of one path put together, with their inclusive, exclusive and awaiting time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/resolve.h"
#include "analysis/tracks.h"
#include "analysis/wrap.h"
#include "core/grow.h"
#include "core/index.h"
#include "core/sort.h"
#include "report/report.h"
#include "report/table.h"

#define LANE_LIMIT 64
#define OVERLAPS_SHOWN 5 /* lanes whose calls overlap that are named */
#define ALIKE 5 /* so many tasks of one coroutine on one thread are shown as one lane */
#define NONE UINT32_MAX

typedef struct node {
    uint32_t name;
    uint32_t parent;                  /* node; NONE: on the first level */
    uint32_t first_child, last_child; /* in order of their first calls */
    uint32_t next;                    /* sibling */
    int64_t lane;
    int64_t calls, inclusive, exclusive, awaiting;
} node;

typedef struct lane {
    int64_t key;
    uint32_t first_root, last_root;
    int64_t inclusive;
    bool shown;
} lane;

/* Which lane shows the calls of a task; and for how many tasks it stands. */
typedef struct stand_in {
    int64_t lane;
    size_t tasks;
} stand_in;

/* A lane of which calls overlap, and what to say of it. */
typedef struct overlap {
    int64_t lane;
    sp_overlap_text told;
} overlap;

typedef struct paths {
    node *nodes;
    uint32_t count;
    size_t room;
    sp_index index; /* of nodes by parent (or lane) and name */
    lane *lanes;
    size_t lane_count, lane_room;
    bool awaiting; /* tasks were followed */
    stand_in *folded; /* by place in the profile's tasks; NULL: each task is shown by itself */
    overlap *overlaps;
    size_t overlap_count;
} paths;

static void free_paths(paths *p)
{
    free(p->nodes);
    free(p->index.slots);
    free(p->lanes);
    free(p->folded);
    free(p->overlaps);
}

/* -- paths out of calls -- */

static uint64_t hash_of(uint32_t parent, int64_t lane_key, uint32_t name)
{
    const uint64_t above = parent == NONE ? (uint64_t)lane_key * 2 + 1 : (uint64_t)parent * 2;
    const uint64_t mixed = (above ^ (uint64_t)name << 32) * UINT64_C(0x9e3779b97f4a7c15);
    return mixed ^ mixed >> 29;
}

static uint64_t hash_of_node(const void *nodes, uint32_t number)
{
    const node *n = (const node *)nodes + number;
    return hash_of(n->parent, n->lane, n->name);
}

static bool is_node(const void *nodes, uint32_t number, const void *wanted)
{
    const node *n = (const node *)nodes + number, *other = wanted;
    return n->parent == other->parent && n->name == other->name && (n->parent != NONE || n->lane == other->lane);
}

static bool make_room(paths *p)
{
    if (!sp_grow(&p->nodes, &p->room, p->count, sizeof *p->nodes, 64)) return false;
    return sp_index_reserve(&p->index, p->count, p->nodes, hash_of_node);
}

static lane *lane_of(paths *p, int64_t key)
{
    for (size_t i = p->lane_count; i > 0; i--) {
        if (p->lanes[i - 1].key == key) return &p->lanes[i - 1];
    }
    if (!sp_grow(&p->lanes, &p->lane_room, p->lane_count, sizeof *p->lanes, 16)) return NULL;
    p->lanes[p->lane_count] = (lane){.key = key, .first_root = NONE, .last_root = NONE};
    return &p->lanes[p->lane_count++];
}

static void append(paths *p, uint32_t *first, uint32_t *last, uint32_t new)
{
    if (*first == NONE) *first = new;
    else p->nodes[*last].next = new;
    *last = new;
}

/* The node of a path, made when it is the first of its kind. NONE: out of memory. */
static uint32_t path_of(paths *p, uint32_t parent, int64_t lane_key, uint32_t name)
{
    if (!make_room(p)) return NONE;
    const node wanted = {.name = name, .parent = parent, .first_child = NONE, .last_child = NONE, .next = NONE, .lane = lane_key};
    uint32_t *slot = sp_index_find(&p->index, hash_of(parent, lane_key, name), p->nodes, is_node, &wanted);
    if (*slot) return *slot - 1;
    const uint32_t new = p->count++;
    *slot = new + 1;
    p->nodes[new] = wanted;
    if (parent != NONE) {
        append(p, &p->nodes[parent].first_child, &p->nodes[parent].last_child, new);
        return new;
    }
    lane *of_root = lane_of(p, lane_key);
    if (of_root == NULL) return NONE;
    append(p, &of_root->first_root, &of_root->last_root, new);
    return new;
}

static size_t place_of(const sp_profile *profile, const sp_task_info *task)
{
    return (size_t)(task - profile->tasks);
}

/* Tasks that are alike follow each other, in order of their numbers. */
static int by_likeness(const void *left, const void *right)
{
    const sp_task_info *a = *(const sp_task_info *const *)left, *b = *(const sp_task_info *const *)right;
    if (a->thread_index != b->thread_index) return a->thread_index < b->thread_index ? -1 : 1;
    const int kinds = strcmp(a->kind, b->kind), coroutines = kinds ? kinds : strcmp(a->coro_name, b->coro_name);
    return coroutines ? coroutines : (a->index > b->index) - (a->index < b->index);
}

static bool are_alike(const sp_task_info *a, const sp_task_info *b)
{
    return a->thread_index == b->thread_index && strcmp(a->kind, b->kind) == 0 && strcmp(a->coro_name, b->coro_name) == 0;
}

/* Put tasks that are alike on one lane. False: out of memory. */
static bool fold(paths *p, const sp_profile *profile, const sp_call_tree *tree, sp_lane_names *names)
{
    if (tree->lane == NULL || profile->task_count == 0) return true;
    p->folded = calloc(profile->task_count, sizeof *p->folded);
    const sp_task_info **present = malloc(profile->task_count * sizeof *present);
    size_t count = 0;
    for (uint64_t i = 0; p->folded && present && i < tree->count; i++) {
        if (tree->lane[i] < 0 || (i > 0 && tree->lane[i] == tree->lane[i - 1])) continue;
        const sp_task_info *task = sp_lane_names_task(names, tree->lane[i]);
        if (task == NULL || task->kind == NULL || task->coro_name == NULL || !*task->coro_name) continue;
        stand_in *one = &p->folded[place_of(profile, task)];
        if (one->tasks) continue;
        *one = (stand_in){task->index, 1};
        present[count++] = task;
    }
    const bool ok = p->folded && present;
    if (ok) sp_sort(present, count, sizeof *present, by_likeness);
    for (size_t first = 0, end; ok && first < count; first = end) {
        for (end = first + 1; end < count && are_alike(present[first], present[end]);) end++;
        if (end - first < ALIKE) continue;
        for (size_t i = first; i < end; i++) p->folded[place_of(profile, present[i])] = (stand_in){present[first]->index, end - first};
    }
    free(present);
    return ok;
}

static const stand_in *stand_in_of(const paths *p, const sp_profile *profile, sp_lane_names *names, int64_t lane_key)
{
    const sp_task_info *task = p->folded && lane_key >= 0 ? sp_lane_names_task(names, lane_key) : NULL;
    const stand_in *found = task ? &p->folded[place_of(profile, task)] : NULL;
    return found && found->tasks > 1 ? found : NULL;
}

static bool add_calls(paths *p, const sp_profile *profile, const sp_rank_calls *calls, const sp_call_tree *tree, sp_lane_names *names)
{
    const int64_t *await = profile->columns[SP_COLUMN_AWAIT];
    uint32_t *path = malloc((tree->count + 1) * sizeof *path);
    bool ok = path != NULL;
    for (uint64_t i = 0; ok && i < tree->count; i++) {
        const sp_row *row = &profile->rows[calls->rows[tree->region[i]]];
        const uint32_t parent = tree->parent[i] < 0 ? NONE : path[tree->parent[i]];
        int64_t key = tree->lane ? tree->lane[i] : SP_LANE_UNKNOWN;
        const stand_in *other = parent == NONE ? stand_in_of(p, profile, names, key) : NULL;
        if (other) key = other->lane;
        path[i] = path_of(p, parent, key, row->name);
        ok = path[i] != NONE;
        if (!ok) break;
        node *n = &p->nodes[path[i]];
        n->calls++;
        n->inclusive = sp_plus(n->inclusive, sp_minus(tree->end_ns[i], tree->start_ns[i]));
        n->exclusive = sp_plus(n->exclusive, tree->exclusive_ns[i]);
        if (await) n->awaiting = sp_plus(n->awaiting, await[row->first + (uint64_t)tree->call[i]]);
    }
    p->awaiting = await != NULL;
    free(path);
    return ok;
}

/* Only the chosen regions, in the order of `names`. */
static void narrow(sp_rank_calls *calls, const sp_profile *profile, const uint32_t *names, size_t name_count)
{
    size_t kept = 0;
    for (size_t n = 0; n < name_count; n++) {
        for (size_t i = kept; i < calls->count; i++) {
            if (profile->rows[calls->rows[i]].name != names[n]) continue;
            const sp_calls region = calls->calls[i];
            const size_t row = calls->rows[i];
            calls->calls[i] = calls->calls[kept];
            calls->rows[i] = calls->rows[kept];
            calls->calls[kept] = region;
            calls->rows[kept++] = row;
            break;
        }
    }
    calls->count = kept;
    calls->call_count = 0;
    for (size_t i = 0; i < kept; i++) calls->call_count += calls->calls[i].count;
}

static bool has_lanes(const sp_rank_calls *calls)
{
    for (size_t i = 0; i < calls->count; i++) {
        if (calls->calls[i].thread) return true;
    }
    return false;
}

/* The tree of a rank of which calls overlap on some lanes; these are remembered. */
static sp_status clamped(paths *p, const sp_profile *profile, const sp_rank_calls *calls, sp_call_tree *tree, sp_error *error)
{
    sp_lane_overlap *found = NULL;
    sp_status status = sp_rank_calls_tree(calls, profile, SP_NEST_CLAMP, tree, error);
    if (status == SP_OK) status = sp_call_tree_overlaps(tree, &found, &p->overlap_count, error);
    p->overlaps = status == SP_OK ? calloc(p->overlap_count + 1, sizeof *p->overlaps) : NULL;
    if (status == SP_OK && p->overlaps == NULL) status = sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the lanes");
    for (size_t i = 0; status == SP_OK && i < p->overlap_count; i++) {
        const sp_overlap *two = &found[i].overlap;
        const char *outer = profile->names[profile->rows[calls->rows[two->outer_region]].name];
        const char *inner = profile->names[profile->rows[calls->rows[two->inner_region]].name];
        p->overlaps[i] = (overlap){found[i].lane, sp_overlap_tell(two, calls->calls, outer, inner)};
    }
    free(found);
    return status;
}

static sp_status make_paths(paths *p, const sp_profile *profile, uint32_t rank, const uint32_t *names, size_t name_count, bool folds,
                            sp_lane_names *lane_names, sp_error *error)
{
    sp_rank_calls calls;
    sp_status status = sp_rank_calls_make(&calls, profile, rank, error);
    if (status != SP_OK) return status;
    narrow(&calls, profile, names, name_count);
    sp_call_tree tree = {0};
    status = sp_rank_calls_tree(&calls, profile, SP_NEST_STRICT, &tree, error);
    if (status == SP_ERR_NESTING && has_lanes(&calls)) status = clamped(p, profile, &calls, &tree, error);
    const bool fine = status == SP_OK && (!folds || fold(p, profile, &tree, lane_names)) && add_calls(p, profile, &calls, &tree, lane_names);
    if (status == SP_OK && !fine) {
        status = sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the tree of rank %u", (unsigned)rank);
    }
    sp_call_tree_free(&tree);
    sp_rank_calls_free(&calls);
    return status;
}

/* -- lines -- */

/* A line of a lane's tree that is to be written, and what it is moved in by. */
typedef struct pending {
    uint32_t node;
    size_t level;
    sp_text branch, prefix;
} pending;

typedef struct stack {
    pending *items;
    size_t count, room;
} stack;

static bool push(stack *s, uint32_t which, size_t level, const char *prefix, const char *branch, const char *below)
{
    if (!sp_grow(&s->items, &s->room, s->count, sizeof *s->items, 64)) return false;
    pending *item = &s->items[s->count++];
    *item = (pending){.node = which, .level = level};
    sp_text_add(&item->branch, prefix);
    sp_text_add(&item->branch, branch);
    sp_text_add(&item->prefix, prefix);
    sp_text_add(&item->prefix, below);
    return !item->branch.failed && !item->prefix.failed;
}

static void add_node(sp_table *table, const paths *p, const sp_profile *profile, const pending *item)
{
    const node *n = &p->nodes[item->node];
    sp_text name = {0};
    sp_text_name(&name, profile->names[n->name]);
    table->failed |= name.failed;
    sp_table_format(table, "%s%s", item->branch.data, name.data ? name.data : "");
    sp_text_free(&name);
    sp_table_format(table, "%lld", (long long)n->calls);
    sp_table_format(table, "%.6f", (double)n->inclusive / 1e9);
    sp_table_format(table, "%.6f", (double)n->exclusive / 1e9);
    if (p->awaiting) sp_table_format(table, "%.6f", (double)n->awaiting / 1e9);
}

static bool push_children(stack *s, const paths *p, const pending *item)
{
    size_t count = 0;
    for (uint32_t child = p->nodes[item->node].first_child; child != NONE; child = p->nodes[child].next) count++;
    const size_t begin = s->count;
    for (uint32_t child = p->nodes[item->node].first_child; child != NONE; child = p->nodes[child].next) {
        const bool last = p->nodes[child].next == NONE;
        if (!push(s, child, item->level + 1, item->prefix.data, last ? "└─ " : "├─ ", last ? "   " : "│  ")) return false;
    }
    for (size_t i = 0; i < count / 2; i++) { /* the first comes off first */
        const pending swapped = s->items[begin + i];
        s->items[begin + i] = s->items[s->count - 1 - i];
        s->items[s->count - 1 - i] = swapped;
    }
    return true;
}

static void free_pending(pending *item)
{
    sp_text_free(&item->branch);
    sp_text_free(&item->prefix);
}

static bool add_root(sp_table *table, const paths *p, const sp_profile *profile, uint32_t root, size_t depth)
{
    stack s = {0};
    bool ok = push(&s, root, 1, "", "", "");
    while (ok && s.count > 0) {
        pending item = s.items[--s.count];
        add_node(table, p, profile, &item);
        if (p->nodes[item.node].first_child != NONE && depth > 0 && item.level >= depth) {
            sp_table_format(table, "%s└─ … deeper calls (--depth)", item.prefix.data);
            for (size_t i = 1; i < table->column_count; i++) sp_table_cell(table, "");
        } else {
            ok = push_children(&s, p, &item);
        }
        free_pending(&item);
    }
    while (s.count > 0) free_pending(&s.items[--s.count]);
    free(s.items);
    return ok;
}

/* "100 tasks of fetch on MainThread" */
static char *folded_label(const stand_in *many, sp_lane_names *names)
{
    const sp_task_info *task = sp_lane_names_task(names, many->lane);
    const char *dot = strrchr(task->coro_name, '.');
    const sp_track thread = {.lane = -2 - task->thread_index};
    char *on = task->thread_index >= 0 ? sp_lane_names_label(names, &thread) : NULL, *label = NULL;
    if ((on || task->thread_index < 0) &&
        asprintf(&label, "%zu %ss of %s%s%s (--top 0 shows each)", many->tasks, task->kind, dot ? dot + 1 : task->coro_name,
                 on ? " on " : "", on ? on : "") < 0) {
        label = NULL;
    }
    free(on);
    return label;
}

/* `label` may be NULL: out of memory. */
static void write_title(const sp_profile *profile, uint32_t rank, const char *label, sp_text *out)
{
    if (sp_profile_ranks(profile) > 1) {
        char *process = sp_profile_rank_label(profile, rank);
        if (process) sp_text_printable(out, process);
        else out->failed = true;
        sp_text_add(out, " - ");
        free(process);
    }
    if (label) sp_text_printable(out, label);
    else out->failed = true;
}

/* The lanes whose calls do not nest. Their tables are right as far as they go. */
static void write_overlaps(const paths *p, const sp_profile *profile, uint32_t rank, sp_lane_names *names, sp_text *out)
{
    for (size_t i = 0; i < p->overlap_count && i < OVERLAPS_SHOWN; i++) {
        const sp_track track = {.lane = p->overlaps[i].lane};
        char *label = sp_lane_names_label(names, &track);
        sp_text line = {0};
        write_title(profile, rank, label, &line);
        sp_text_format(&line, ": %s; while both are open, the one that began last has the time as its own", p->overlaps[i].told.text);
        sp_text_one_line(out, line.data ? line.data : "");
        out->failed |= line.failed;
        sp_text_add(out, "\n\n");
        sp_text_free(&line);
        free(label);
    }
    if (p->overlap_count <= OVERLAPS_SHOWN) return;
    const size_t rest = p->overlap_count - OVERLAPS_SHOWN;
    sp_text_format(out, "%zu more %s calls that overlap\n\n", rest, rest == 1 ? "lane has" : "lanes have");
}

static void write_lane(const paths *p, const sp_profile *profile, uint32_t rank, const lane *which, sp_lane_names *names,
                       size_t depth, size_t width, sp_text *out)
{
    sp_table table = {0};
    sp_table_column_add(&table, "call tree", false, true);
    sp_table_column_add(&table, "calls", true, false);
    sp_table_column_add(&table, "inclusive [s]", true, false);
    sp_table_column_add(&table, "exclusive [s]", true, false);
    if (p->awaiting) sp_table_column_add(&table, "awaiting [s]", true, false);
    for (uint32_t root = which->first_root; root != NONE; root = p->nodes[root].next) {
        if (!add_root(&table, p, profile, root, depth)) table.failed = true;
    }
    const sp_track track = {.lane = which->key};
    const stand_in *many = stand_in_of(p, profile, names, which->key);
    char *label = many                          ? folded_label(many, names)
                  : which->key == SP_LANE_UNKNOWN ? strdup("all calls")
                                                  : sp_lane_names_label(names, &track);
    write_title(profile, rank, label, out);
    sp_text_add(out, "\n");
    free(label);
    sp_table_end(&table, out, width);
    sp_text_add(out, "\n");
}

/* What has no lane first, then threads by index, then tasks by index. */
static int by_lane(const void *left, const void *right)
{
    const int64_t a = ((const lane *)left)->key, b = ((const lane *)right)->key;
    if ((a < 0) != (b < 0)) return a < 0 ? -1 : 1;
    if (a < 0) return (a < b) - (a > b);
    return (a > b) - (a < b);
}

static int by_time(const void *left, const void *right)
{
    const lane *a = *(const lane *const *)left, *b = *(const lane *const *)right;
    if (a->inclusive != b->inclusive) return a->inclusive > b->inclusive ? -1 : 1;
    return a < b ? -1 : 1;
}

/* The lanes of the most time; how many are left out. */
static size_t choose_lanes(paths *p, int64_t limit)
{
    const lane **longest = malloc((p->lane_count + 1) * sizeof *longest);
    for (size_t i = 0; i < p->lane_count; i++) {
        for (uint32_t root = p->lanes[i].first_root; root != NONE; root = p->nodes[root].next) {
            p->lanes[i].inclusive = sp_plus(p->lanes[i].inclusive, p->nodes[root].inclusive);
        }
        if (longest) longest[i] = &p->lanes[i];
    }
    const bool all = longest == NULL || limit <= 0 || p->lane_count <= (size_t)limit;
    if (!all) sp_sort(longest, p->lane_count, sizeof *longest, by_time);
    for (size_t i = 0; i < p->lane_count; i++) {
        if (all) p->lanes[i].shown = true;
        else if (i < (size_t)limit) p->lanes[longest[i] - p->lanes].shown = true;
    }
    free(longest);
    return all ? 0 : p->lane_count - (size_t)limit;
}

static void write_rank(paths *p, const sp_profile *profile, uint32_t rank, size_t depth, int64_t limit, size_t width,
                       sp_lane_names *names, sp_text *out)
{
    const size_t hidden = choose_lanes(p, limit < 0 ? LANE_LIMIT : limit);
    sp_sort(p->lanes, p->lane_count, sizeof *p->lanes, by_lane);
    for (size_t i = 0; i < p->lane_count; i++) {
        if (p->lanes[i].shown) write_lane(p, profile, rank, &p->lanes[i], names, depth, width, out);
    }
    if (hidden) sp_text_format(out, "%zu more %s with less time (--top 0 shows all)\n\n", hidden, hidden == 1 ? "lane" : "lanes");
    write_overlaps(p, profile, rank, names, out);
}

/* -- ranks -- */

static bool has_name(const uint32_t *names, size_t count, uint32_t name)
{
    for (size_t i = 0; i < count; i++) {
        if (names[i] == name) return true;
    }
    return false;
}

/* The next rank above `rank` on which a chosen region is; false: there is none. */
static bool next_rank(const sp_profile *profile, const bool *chosen, const sp_selection *selection, int64_t *rank)
{
    int64_t found = INT64_MAX;
    for (size_t i = 0; i < profile->row_count; i++) {
        const sp_row *row = &profile->rows[i];
        if ((int64_t)row->rank <= *rank || (int64_t)row->rank >= found) continue;
        if (chosen[row->name] && sp_selection_has_rank(selection, row->rank)) found = row->rank;
    }
    *rank = found;
    return found != INT64_MAX;
}

static void tell_no_tree(uint32_t rank, const char *why, sp_text *out)
{
    sp_text_format(out, "rank %u: no call tree: ", (unsigned)rank);
    sp_text_one_line(out, why);
    sp_text_add(out, "\n\n");
}

sp_status sp_report_tree(const sp_profile *profile, const uint32_t *names, size_t name_count, const sp_selection *selection,
                         size_t depth, int64_t limit, size_t width, sp_text *out, bool *complete, sp_error *error)
{
    bool *chosen = calloc(profile->name_count + 1, sizeof *chosen);
    if (chosen == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for the call tree");
    for (size_t i = 0; i < profile->name_count; i++) chosen[i] = has_name(names, name_count, (uint32_t)i);
    bool empty = true;
    sp_status status = SP_OK;
    *complete = true;
    for (int64_t rank = -1; status == SP_OK && next_rank(profile, chosen, selection, &rank);) {
        paths p = {0};
        sp_error reason = {0};
        sp_lane_names lane_names;
        status = sp_lane_names_make(&lane_names, profile, (uint32_t)rank, error);
        if (status != SP_OK) break;
        status = SP_ERR_NESTING;
        if (profile->aggregate) snprintf(reason.message, sizeof reason.message, "the profile has no single calls, only their sums");
        else status = make_paths(&p, profile, (uint32_t)rank, names, name_count, limit != 0, &lane_names, &reason);
        if (status == SP_ERR_NESTING) {
            tell_no_tree((uint32_t)rank, reason.message, out);
            *complete = empty = false;
            status = SP_OK;
        } else if (status == SP_OK) {
            empty = empty && p.count == 0;
            write_rank(&p, profile, (uint32_t)rank, depth, limit, width, &lane_names, out);
        } else if (error) {
            *error = reason;
        }
        free_paths(&p);
        sp_lane_names_free(&lane_names);
    }
    if (status == SP_OK && empty) sp_text_add(out, "  (no calls)\n\n");
    free(chosen);
    return status;
}
