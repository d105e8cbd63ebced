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
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "analysis/merge.h"
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

/* -- running a world -- */

typedef struct member {
    world *w;
    const shape *s;
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

static void check_rank(const sp_profile *all, const shape *s, int rank, bool lanes)
{
    sp_profile *own = make_profile(s, rank);
    for (size_t i = 0; i < own->row_count; i++) {
        const sp_row *row = NULL;
        for (size_t k = 0; k < all->row_count && row == NULL; k++) {
            const sp_row *other = &all->rows[k];
            if (other->rank == (uint32_t)rank && strcmp(all->names[other->name], own->names[i]) == 0) row = other;
        }
        assert_non_null(row);
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
        if (row->has_statistics) assert_int_equal(row->statistics.total, statistics.total);
    }
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

static void check_world(int size, const shape *s, const sp_hdf5_options *options)
{
    const member pattern = {.s = s, .path = path, .options = options, .patience = 30, .broken = -1};
    member *members = run_world(size, &pattern, -1);
    sp_profile *all;
    sp_error error;
    for (int r = 0; r < size; r++) {
        if (members[r].status != SP_OK) fail_msg("%s", members[r].error.message);
        assert_true(members[r].written);
    }
    free(members);
    if (sp_hdf5_read(path, NULL, &all, &error) != SP_OK) fail_msg("%s", error.message);
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
        cmocka_unit_test(a_rank_that_fails_is_named_on_all_and_the_old_file_stays),
        cmocka_unit_test(a_directory_that_is_not_there_is_told_on_all),
        cmocka_unit_test(without_a_rank_the_others_are_written_and_told),
        cmocka_unit_test(in_memory_rank_0_has_all),
        cmocka_unit_test(a_thousand_ranks),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
