/*
 * test_ranks.c - many ranks in one process: each is a thread, and messages go through mailboxes in memory. What is written is
 * read back, and compared with the same calls written by one process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "analysis/collection.h"
#include "analysis/merge.h"
#include "analysis/path_summary.h"
#include "core/run.h"
#include "formats/ranks.h"

/* -- mailboxes: one queue a pair of ranks that talk -- */

typedef struct letter {
    struct letter *next;
    int from;
    size_t size;
    char data[];
} letter;

typedef struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    letter *first, **last;
} mailbox;

typedef struct world {
    int size;
    mailbox *boxes;
    int dead; /* a rank that does not take part; -1: none */
} world;

static sp_status mail_send(sp_comm *comm, int to, const void *data, size_t size, double seconds)
{
    world *w = comm->context;
    letter *made = malloc(sizeof *made + size);
    if (made == NULL) return SP_ERR_NO_MEMORY;
    *made = (letter){.from = comm->rank, .size = size};
    if (size) memcpy(made->data, data, size);
    mailbox *box = &w->boxes[to];
    pthread_mutex_lock(&box->lock);
    *box->last = made;
    box->last = &made->next;
    pthread_cond_broadcast(&box->arrived);
    pthread_mutex_unlock(&box->lock);
    return SP_OK;
}

static letter *take_letter(mailbox *box, int from)
{
    for (letter **at = &box->first; *at; at = &(*at)->next) {
        letter *found = *at;
        if (found->from != from) continue;
        *at = found->next;
        if (found->next == NULL) box->last = at;
        return found;
    }
    return NULL;
}

static sp_status mail_receive(sp_comm *comm, int from, void *data, size_t size, double seconds)
{
    world *w = comm->context;
    mailbox *box = &w->boxes[comm->rank];
    struct timespec until;
    letter *found;
    clock_gettime(CLOCK_REALTIME, &until);
    const int64_t ns = until.tv_nsec + (int64_t)(seconds * 1e9);
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_mutex_lock(&box->lock);
    while ((found = take_letter(box, from)) == NULL) {
        if (pthread_cond_timedwait(&box->arrived, &box->lock, &until) == ETIMEDOUT) break;
    }
    pthread_mutex_unlock(&box->lock);
    if (found == NULL) return SP_ERR_BUSY;
    const bool fits = found->size == size;
    if (fits && size) memcpy(data, found->data, size);
    free(found);
    return fits ? SP_OK : SP_ERR_CORRUPT;
}

/* -- what a rank records -- */

typedef struct shape {
    int regions, calls; /* calls of region i of rank r: (calls + r + i) % (calls + 1), so they are uneven and some none */
    bool lanes;
} shape;

static uint64_t calls_of(const shape *s, int rank, int region)
{
    return s->calls ? (uint64_t)((s->calls + 3 * rank + region) % (s->calls + 1)) : 0;
}

static sp_profile *make_profile(const shape *s, int rank)
{
    sp_profile *p = sp_profile_new();
    uint64_t total = 0;
    p->row_count = p->name_count = (size_t)s->regions;
    p->names = calloc((size_t)s->regions + 1, sizeof *p->names);
    p->rows = calloc((size_t)s->regions + 1, sizeof *p->rows);
    for (int i = 0; i < s->regions; i++) {
        char name[32];
        /* ranks share most names, in another order, and have one of their own */
        snprintf(name, sizeof name, i == 0 ? "own of %d" : "region %d", i == 0 ? rank : (i + rank) % s->regions + 1);
        p->names[i] = strdup(name);
        p->rows[i] = (sp_row){.name = (uint32_t)i, .rank = (uint32_t)rank, .first = total, .source_line = SP_UNKNOWN,
                              .count = calls_of(s, rank, i), .exclusive_total = SP_UNKNOWN};
        total += p->rows[i].count;
    }
    p->call_count = total;
    for (int c = 0; c < SP_COLUMN_COUNT; c++) {
        const bool base = c <= SP_COLUMN_PARENT_ID, lane = c == SP_COLUMN_THREAD && s->lanes && rank % 2;
        if (base || lane) p->columns[c] = sp_column_alloc(total ? total : 1);
    }
    for (uint64_t i = 0; i < total; i++) {
        p->columns[SP_COLUMN_START][i] = 1000000 * (rank + 1) + (int64_t)i * 10;
        p->columns[SP_COLUMN_END][i] = p->columns[SP_COLUMN_START][i] + 1 + (int64_t)(i % 7);
        p->columns[SP_COLUMN_CALL_ID][i] = (int64_t)i;
        p->columns[SP_COLUMN_PARENT_ID][i] = -1;
        if (p->columns[SP_COLUMN_THREAD]) p->columns[SP_COLUMN_THREAD][i] = (int64_t)(i % 3);
    }
    if (s->lanes && rank % 2) {
        p->has_threads = true;
        p->threads = calloc(3, sizeof *p->threads);
        p->thread_count = 3;
        for (int t = 0; t < 3; t++) {
            p->threads[t] = (sp_thread_info){.rank = (uint32_t)rank, .index = t, .start_ns = 5, .end_ns = -1, .name = strdup("worker")};
        }
    }
    sp_profile_set_int(p, "start_time_ns", 1000000 * (rank + 1));
    return p;
}

/* -- what a rank records itself -- */

typedef struct recorded {
    sp_switch gate;
    sp_run *run;
    sp_collection *collection;
} recorded;

typedef enum nesting { NESTED, OVERLAPPING } nesting;

/* Uneven, and some none. */
static int pairs_of(const shape *s, int rank, int region)
{
    return (rank + region) % 4 == 3 ? 0 : s->calls + (s->calls ? rank : 0);
}

/* Pairs of regions, the second inside the first, or ending behind it; a call that stays open is around them on even ranks. */
static void record(recorded *r, const shape *s, int rank, nesting how)
{
    const sp_run_options options = {.tracks_threads = s->lanes && rank % 2, .tracks_tasks = s->lanes && rank % 3 == 0};
    sp_error error;
    uint32_t ids[8], around;
    if (sp_run_open(&options, &r->gate, &r->run, &error) != SP_OK) abort();
    for (int i = 0; i < s->regions; i++) {
        char name[32];
        snprintf(name, sizeof name, i == 0 ? "own of %d" : "region %d", i == 0 ? rank : (i + rank) % s->regions + 1);
        sp_run_region(r->run, name, NULL, -1, NULL, NULL, &ids[i], NULL);
    }
    sp_run_region(r->run, "around", NULL, -1, NULL, NULL, &around, NULL);
    sp_log *log = sp_run_log(r->run);
    if (rank % 2 == 0) sp_log_enter(log, around);
    for (int i = 0; i + 1 < s->regions; i++) {
        for (int k = 0; k < pairs_of(s, rank, i); k++) {
            sp_slot *outer = sp_log_enter(log, ids[i]), *inner = sp_log_enter(log, ids[i + 1]);
            sp_log_exit(log, how == NESTED ? inner : outer);
            sp_log_exit(log, how == NESTED ? outer : inner);
        }
    }
    if (sp_collection_begin_last(r->run, (uint32_t)rank, 0, &r->collection, &error) != SP_OK) abort();
    if (sp_collection_mark_open(r->collection, &error) != SP_OK) abort();
}

static void forget(recorded *r)
{
    sp_collection_abandon(r->collection);
    sp_run_drop(r->run);
}

/* -- running a world -- */

typedef struct member {
    world *w;
    const shape *s;
    recorded *runs; /* of each rank; NULL: they have profiles */
    const char *path; /* NULL: in memory */
    const sp_hdf5_options *options;
    double patience;
    int rank, broken; /* broken: the rank whose profile cannot be written; -1: none */
    bool written;
    sp_status status;
    sp_report report;
    sp_error error;
    sp_profile *all;
} member;

static void *live(void *argument)
{
    member *m = argument;
    if (m->rank == m->w->dead) return NULL;
    sp_comm comm = {.rank = m->rank, .size = m->w->size, .patience = m->patience, .send = mail_send, .receive = mail_receive,
                    .context = m->w};
    if (m->runs) {
        m->status = sp_ranks_write_collection(&comm, m->runs[m->rank].collection, m->path, m->options, &m->written, &m->report, &m->error);
        return NULL;
    }
    sp_profile *profile = make_profile(m->s, m->rank);
    if (m->rank == m->broken) profile->summary_only = true;
    if (m->path) {
        m->status = sp_ranks_write(&comm, profile, m->path, m->options, &m->written, &m->report, &m->error);
    } else {
        m->status = sp_ranks_collect(&comm, profile, &m->all, &m->report, &m->error);
    }
    profile->summary_only = false;
    sp_profile_release(profile);
    return NULL;
}

static member *run_world(int size, const member *pattern, int dead)
{
    world w = {.size = size, .boxes = calloc((size_t)size, sizeof *w.boxes), .dead = dead};
    member *members = calloc((size_t)size, sizeof *members);
    pthread_t *threads = calloc((size_t)size, sizeof *threads);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 20);
    for (int r = 0; r < size; r++) {
        pthread_mutex_init(&w.boxes[r].lock, NULL);
        pthread_cond_init(&w.boxes[r].arrived, NULL);
        w.boxes[r].last = &w.boxes[r].first;
    }
    for (int r = 0; r < size; r++) {
        members[r] = *pattern;
        members[r].w = &w;
        members[r].rank = r;
        assert_int_equal(pthread_create(&threads[r], &small, live, &members[r]), 0);
    }
    for (int r = 0; r < size; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < size; r++) {
        for (letter *at = w.boxes[r].first, *next; at; at = next) {
            next = at->next;
            free(at);
        }
    }
    free(threads);
    free(w.boxes);
    pthread_attr_destroy(&small);
    return members;
}

static char path[] = "/tmp/scope-profiler-ranks-XXXXXX";

static int set_up(void **state)
{
    const int fd = mkstemp(path);
    if (fd < 0) return -1;
    return close(fd);
}

static int tear_down(void **state)
{
    return unlink(path);
}

/* -- what must come out: the ranks' profiles, one after the other -- */

static const sp_row *find_row(const sp_profile *all, int rank, const char *name)
{
    for (size_t k = 0; k < all->row_count; k++) {
        const sp_row *row = &all->rows[k];
        if (row->rank == (uint32_t)rank && strcmp(all->names[row->name], name) == 0) return row;
    }
    fail_msg("rank %d has no row of %s", rank, name);
    return NULL;
}

static void check_calls(const sp_profile *all, const sp_profile *own, int rank)
{
    for (size_t i = 0; i < own->row_count; i++) {
        const sp_row *row = find_row(all, rank, own->names[own->rows[i].name]);
        assert_int_equal(row->count, own->rows[i].count);
        for (int c = 0; c < SP_COLUMN_COUNT; c++) {
            if (all->columns[c] == NULL) continue;
            for (uint64_t k = 0; k < row->count; k++) {
                const int64_t wanted = own->columns[c] ? own->columns[c][own->rows[i].first + k] : sp_column_default(c);
                if (all->columns[c][row->first + k] != wanted) fail_msg("rank %d row %zu column %d call %d", rank, i, c, (int)k);
            }
        }
        sp_row_statistics statistics;
        sp_row_statistics_compute(own, &own->rows[i], &statistics);
        if (!row->has_statistics) continue;
        assert_int_equal(row->statistics.total, statistics.total);
        assert_int_equal(row->statistics.minimum, statistics.minimum);
        assert_int_equal(row->statistics.maximum, statistics.maximum);
        assert_int_equal(row->statistics.first, statistics.first);
        assert_int_equal(row->statistics.last, statistics.last);
        assert_int_equal(row->statistics.start_minimum, statistics.start_minimum);
        assert_int_equal(row->statistics.end_maximum, statistics.end_maximum);
        assert_true(fabs(row->statistics.mean - statistics.mean) <= 1e-9 * statistics.mean);
        assert_true(fabs(row->statistics.m2 - statistics.m2) <= 1e-9 * statistics.m2);
    }
}

static void check_rank(const sp_profile *all, const shape *s, int rank, bool lanes)
{
    sp_profile *own = make_profile(s, rank);
    check_calls(all, own, rank);
    size_t threads = 0;
    for (size_t t = 0; t < all->thread_count; t++) {
        if (all->threads[t].rank != (uint32_t)rank) continue;
        threads++;
        /* relative to the start of rank 0 */
        assert_int_equal(all->threads[t].start_ns, 1000000 * rank + 5);
    }
    assert_int_equal(threads, own->thread_count);
    sp_profile_release(own);
}

/* The file that all ranks write, of the pattern's path. */
static sp_profile *written_by_all(int size, const member *pattern)
{
    member *members = run_world(size, pattern, -1);
    sp_profile *all;
    sp_error error;
    for (int r = 0; r < size; r++) {
        if (members[r].status != SP_OK) fail_msg("%s", members[r].error.message);
        assert_true(members[r].written);
    }
    free(members);
    if (sp_hdf5_read(pattern->path, NULL, &all, &error) != SP_OK) fail_msg("%s", error.message);
    return all;
}

static void check_world(int size, const shape *s, const sp_hdf5_options *options)
{
    const member pattern = {.s = s, .path = path, .options = options, .patience = 30, .broken = -1};
    sp_profile *all = written_by_all(size, &pattern);
    for (int r = 0; r < size; r++) check_rank(all, s, r, s->lanes);
    sp_profile_release(all);
}

static void every_rank_is_in_the_file(void **state)
{
    const int sizes[] = {1, 2, 3, 4, 7, 16, 33};
    const shape shapes[] = {{3, 50, true}, {1, 0, false}, {0, 0, false}, {4, 9000, true}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) check_world(sizes[i], &shapes[k], NULL);
    }
}

/* Chunks that end within a rank, at its end, and span many ranks. */
static void chunks_and_ranks_need_not_meet(void **state)
{
    const shape s = {2, 20, true};
    for (uint64_t chunk = 1; chunk < 200; chunk = chunk * 3 / 2 + 1) {
        for (int codec = SP_COMPRESSION_AUTO; codec <= SP_COMPRESSION_ZSTD; codec++) {
            const sp_hdf5_options options = {.compression = (sp_compression)codec, .level = -1, .chunk_size = chunk};
            check_world(5, &s, &options);
        }
    }
}

/* So many that the library throws pages of its metadata out of its cache while they get their places: those are written for real. */
static void metadata_is_whole_however_many_chunks_there_are(void **state)
{
    const shape s = {2, 20000, true};
    const sp_hdf5_options options = {.compression = SP_COMPRESSION_NONE, .level = -1, .chunk_size = 1};
    check_world(3, &s, &options);
}

/* The rows of the file as the ranks' calls have them in columns: times, ids, statistics, percentiles, open calls. */
static void check_recorded(int size, const shape *s, nesting how, const sp_hdf5_options *options)
{
    recorded *runs = calloc((size_t)size, sizeof *runs);
    /* Here, since who begins a collection has to end it. */
    for (int r = 0; r < size; r++) record(&runs[r], s, r, r % 2 ? how : NESTED);
    const member pattern = {.s = s, .runs = runs, .path = path, .options = options, .patience = 30, .broken = -1};
    sp_profile *all = written_by_all(size, &pattern), *summary;
    sp_error error;
    assert_int_equal(sp_hdf5_read(path, &(sp_hdf5_selection){.summary = true}, &summary, &error), SP_OK);
    uint64_t calls = 0, paths = 0;
    for (int r = 0; r < size; r++) {
        sp_profile *own = sp_collection_profile(runs[r].collection);
        assert_true(own->summary_only);
        own->summary_only = false;
        assert_int_equal(sp_collection_columns(runs[r].collection, 0, NULL, NULL), SP_OK);
        check_calls(all, own, r);
        calls += own->call_count;
        for (size_t i = 0; i < own->row_count; i++) {
            const sp_row *known = &own->rows[i];
            const char *name = own->names[known->name], *marks = find_row(all, r, name)->event_metadata;
            double percentiles[SP_PERCENTILE_COUNT];
            sp_row_percentiles_compute(own, known, sp_percentile_ranks, SP_PERCENTILE_COUNT, percentiles);
            assert_memory_equal(find_row(summary, r, name)->percentiles, percentiles, sizeof percentiles);
            assert_int_equal(find_row(summary, r, name)->exclusive_total, known->exclusive_total);
            if (known->event_metadata) assert_string_equal(marks, known->event_metadata);
            else assert_null(marks);
        }
    }
    assert_int_equal(all->call_count, calls);
    for (size_t i = 0; summary->stored_paths && i < summary->stored_paths->row_count; i++) paths += summary->stored_paths->rows[i].count;
    if (summary->stored_paths) assert_int_equal(paths, calls);
    assert_true(how == OVERLAPPING || calls == 0 || summary->stored_paths != NULL);
    sp_profile_release(all);
    sp_profile_release(summary);
    for (int r = 0; r < size; r++) forget(&runs[r]);
    free(runs);
}

static void note_ready(void *context, int fd, const char *target)
{
    struct stat there;
    assert_string_equal(target, path);
    assert_int_equal(fstat(fd, &there), 0);
    atomic_fetch_add((_Atomic(int) *)context, 1);
}

static void every_rank_hears_of_the_file_before_it_is_there(void **state)
{
    const shape s = {3, 20, true};
    _Atomic(int) told = 0;
    const sp_hdf5_options options = {.level = -1, .ready = note_ready, .ready_context = &told};
    check_recorded(6, &s, NESTED, &options);
    assert_int_equal(told, 6);
    check_world(3, &s, &options);
    assert_int_equal(told, 9);
}

static void calls_go_from_the_logs_of_all_ranks_into_the_file(void **state)
{
    const shape small = {3, 20, true}, none = {2, 0, false}, large = {3, 40000, true};
    for (int how = NESTED; how <= OVERLAPPING; how++) {
        for (uint64_t chunk = 1; chunk < 300; chunk = chunk * 3 / 2 + 1) {
            const sp_hdf5_options options = {.level = -1, .chunk_size = chunk};
            check_recorded(5, &small, (nesting)how, &options);
        }
        check_recorded(7, &small, (nesting)how, NULL);
        check_recorded(3, &none, (nesting)how, NULL);
        check_recorded(4, &large, (nesting)how, NULL);
    }
}

/* As they are, chunks take more than a rank holds in memory; and of so many calls that overlap no tree is made. */
static void chunks_wait_outside_of_memory(void **state)
{
    const shape s = {3, 260000, true};
    const sp_hdf5_options options = {.compression = SP_COMPRESSION_NONE, .level = -1};
    check_recorded(2, &s, NESTED, &options);
    check_recorded(2, &s, OVERLAPPING, &options);
}

static void a_rank_that_fails_is_named_on_all_and_the_old_file_stays(void **state)
{
    const shape s = {2, 20, false};
    const member pattern = {.s = &s, .path = path, .patience = 30, .broken = 5};
    check_world(3, &s, NULL);
    member *members = run_world(8, &pattern, -1);
    for (int r = 0; r < 8; r++) {
        assert_int_equal(members[r].status, SP_ERR_INVALID);
        assert_false(members[r].written);
        assert_non_null(strstr(members[r].error.message, "rank 5"));
    }
    free(members);
    sp_profile *all;
    assert_int_equal(sp_hdf5_read(path, NULL, &all, NULL), SP_OK);
    for (int r = 0; r < 3; r++) check_rank(all, &s, r, false);
    sp_profile_release(all);
}

static void a_directory_that_is_not_there_is_told_on_all(void **state)
{
    const shape s = {2, 20, false};
    const member pattern = {.s = &s, .path = "/tmp/scope-profiler-no-such/x.h5", .patience = 30, .broken = -1};
    member *members = run_world(4, &pattern, -1);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(members[r].status, SP_ERR_IO);
        assert_non_null(strstr(members[r].error.message, "scope-profiler-no-such"));
    }
    free(members);
}

/* Rank 7 has nobody below it; without it the others are written. Rank 4 speaks for 5 to 7, which cannot go on without it. */
static void without_a_rank_the_others_are_written_and_told(void **state)
{
    const shape s = {2, 20, false};
    const member pattern = {.s = &s, .path = path, .patience = 0.3, .broken = -1};
    const int dead[] = {7, 4};
    for (int k = 0; k < 2; k++) {
        member *members = run_world(8, &pattern, dead[k]);
        sp_profile *all;
        assert_int_equal(sp_hdf5_read(path, NULL, &all, NULL), SP_OK);
        const sp_metadata *missing = sp_profile_find_metadata(all, "missing_ranks");
        assert_non_null(missing);
        assert_int_equal(missing->size, k == 0 ? 1 : 4);
        assert_string_equal(missing->list[0], k == 0 ? "7" : "4");
        for (int r = 0; r < 8; r++) {
            const bool in_file = k == 0 ? r != 7 : r < 4;
            if (r == dead[k]) continue;
            assert_int_not_equal(members[r].status, SP_OK);
            assert_int_equal(members[r].written, in_file);
            assert_non_null(strstr(members[r].error.message, k == 0 ? "rank 7" : "rank 4"));
            if (in_file) check_rank(all, &s, r, false);
        }
        sp_profile_release(all);
        free(members);
    }
}

static void in_memory_rank_0_has_all(void **state)
{
    const shape s = {3, 40, true};
    const member pattern = {.s = &s, .patience = 30, .broken = -1};
    for (int size = 1; size < 12; size += 3) {
        member *members = run_world(size, &pattern, -1);
        for (int r = 0; r < size; r++) {
            assert_int_equal(members[r].status, SP_OK);
            assert_true((members[r].all != NULL) == (r == 0));
        }
        for (int r = 0; r < size; r++) check_rank(members[0].all, &s, r, true);
        sp_profile_release(members[0].all);
        free(members);
    }
}

static void a_thousand_ranks(void **state)
{
    const shape s = {5, 60, true};
    check_world(1024, &s, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_is_in_the_file),
        cmocka_unit_test(chunks_and_ranks_need_not_meet),
        cmocka_unit_test(metadata_is_whole_however_many_chunks_there_are),
        cmocka_unit_test(calls_go_from_the_logs_of_all_ranks_into_the_file),
        cmocka_unit_test(chunks_wait_outside_of_memory),
        cmocka_unit_test(every_rank_hears_of_the_file_before_it_is_there),
        cmocka_unit_test(a_rank_that_fails_is_named_on_all_and_the_old_file_stays),
        cmocka_unit_test(a_directory_that_is_not_there_is_told_on_all),
        cmocka_unit_test(without_a_rank_the_others_are_written_and_told),
        cmocka_unit_test(in_memory_rank_0_has_all),
        cmocka_unit_test(a_thousand_ranks),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
