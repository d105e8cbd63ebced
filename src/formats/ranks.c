#include "formats/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/merge.h"
#include "analysis/wrap.h"
#include "formats/call_stream.h"
#include "formats/file_bytes.h"
#include "formats/file_seal.h"
#include "formats/hdf5_remote.h"
#include "formats/profile_image.h"
#include "formats/summary_job.h"

/* -- profiles as bytes ------------------------------------------------------------------------------------------------ */

static sp_status pack(const sp_profile *profile, sp_bytes *out, sp_error *error)
{
    const int fd = memfd_create("scope-profiler", MFD_CLOEXEC);
    struct stat facts;
    sp_status status = fd >= 0 ? sp_image_write(fd, SP_OK, NULL, profile) : SP_ERR_IO;
    if (status == SP_OK && fstat(fd, &facts) < 0) status = SP_ERR_IO;
    if (status == SP_OK) {
        out->data = malloc((size_t)facts.st_size);
        if (out->data) out->size = out->room = (size_t)facts.st_size;
        else status = SP_ERR_NO_MEMORY;
    }
    if (status == SP_OK && sp_file_read(fd, out->data, out->size, 0) < 0) status = SP_ERR_IO;
    if (status != SP_OK) {
        sp_fail_errno(error, status, "cannot copy a profile");
        sp_bytes_free(out);
    }
    if (fd >= 0) close(fd);
    return status;
}

static sp_status unpack(const sp_bytes *bytes, sp_profile **out, sp_error *error)
{
    const int fd = memfd_create("scope-profiler", MFD_CLOEXEC);
    sp_status status = fd >= 0 && sp_file_write(fd, bytes->data, bytes->size, 0) == 0 ? SP_OK : SP_ERR_IO;
    *out = NULL;
    if (status != SP_OK) sp_fail_errno(error, status, "cannot copy a profile");
    else if ((status = sp_image_read(fd, out, error)) == SP_ERR_CORRUPT) sp_fail(error, status, "a rank sent no profile");
    if (fd >= 0) close(fd);
    return status;
}

/* This rank's profile and its children's become one. */
static sp_status join_children(void *context, sp_bytes *own, sp_bytes *children, size_t count, sp_error *error)
{
    sp_profile *sets[65] = {0}, *joined = NULL;
    size_t there = 0;
    if (count == 0) return SP_OK;
    sp_status status = own->size ? unpack(own, &sets[there++], error) : SP_OK;
    for (size_t i = 0; i < count && status == SP_OK; i++) {
        if (children[i].size) status = unpack(&children[i], &sets[there++], error);
        sp_bytes_free(&children[i]);
    }
    sp_bytes_free(own);
    if (status == SP_OK && there) status = sp_profile_join((const sp_profile *const *)sets, there, &joined, error);
    for (size_t i = 0; i < there; i++) sp_profile_release(sets[i]);
    if (status == SP_OK && joined) status = pack(joined, own, error);
    sp_profile_release(joined);
    return status;
}

/* -- clocks ----------------------------------------------------------------------------------------------------------- */

#define SYNC_TRIES 16

/* A clock domain, the lowest rank of it, and what was found. */
typedef struct domain_clock {
    int64_t domain;
    int32_t rank, unused;
    sp_sync_point point;
} domain_clock;

static domain_clock *find_domain(domain_clock *domains, size_t count, int64_t domain)
{
    for (size_t i = 0; i < count; i++) {
        if (domains[i].domain == domain) return &domains[i];
    }
    return NULL;
}

/* Rank 0 asks for the time; half of the way there and back the other's clock was read. */
static void ask_time(sp_comm *comm, domain_clock *other)
{
    other->point.error_ns = SP_UNKNOWN;
    for (int i = 0; i < SYNC_TRIES; i++) {
        int64_t theirs = 0;
        const int64_t before = sp_clock_ns();
        if (comm->send(comm, other->rank, &theirs, sizeof theirs, comm->patience) != SP_OK ||
            comm->receive(comm, other->rank, &theirs, sizeof theirs, comm->patience) != SP_OK) {
            return;
        }
        const int64_t after = sp_clock_ns(), half = (after - before) / 2;
        if (other->point.error_ns != SP_UNKNOWN && half >= other->point.error_ns) continue;
        other->point = (sp_sync_point){.local_ns = theirs, .reference_ns = before + half, .error_ns = half};
    }
}

static void tell_time(sp_comm *comm)
{
    for (int i = 0; i < SYNC_TRIES; i++) {
        int64_t own;
        if (comm->receive(comm, 0, &own, sizeof own, comm->patience) != SP_OK) return;
        own = sp_clock_ns();
        if (comm->send(comm, 0, &own, sizeof own, comm->patience) != SP_OK) return;
    }
}

/* `report` tells afterwards of missing ranks and other problems; with the latter there is no point. */
static void sync_clocks(sp_comm *comm, int64_t clock_domain, sp_sync_point *point, sp_report *report)
{
    sp_bytes all = {0}, domains = {0};
    const domain_clock own = {.domain = clock_domain, .rank = comm->rank};
    *point = (sp_sync_point){.error_ns = SP_UNKNOWN};
    if (!sp_bytes_add(&all, &own, sizeof own)) sp_report_note(report, comm, SP_ERR_NO_MEMORY, NULL);
    sp_comm_gather(comm, report, &all, NULL, NULL);
    if (comm->rank == 0) { /* the first of each domain, in rank order; an unknown one is one of its own */
        for (size_t at = 0; at + sizeof own <= all.size; at += sizeof own) {
            domain_clock next;
            memcpy(&next, all.data + at, sizeof next);
            if (next.domain == 0) next.domain = -1 - next.rank;
            if (find_domain((domain_clock *)(void *)domains.data, domains.size / sizeof next, next.domain)) continue;
            if (!sp_bytes_add(&domains, &next, sizeof next)) sp_report_note(report, comm, SP_ERR_NO_MEMORY, NULL);
        }
    }
    sp_comm_broadcast(comm, report, &domains);
    domain_clock *clocks = (domain_clock *)(void *)domains.data;
    const size_t count = domains.size / sizeof *clocks;
    for (size_t i = 1; sp_report_may_go_on(report) && i < count; i++) {
        if (comm->rank == 0) ask_time(comm, &clocks[i]);
        else if (comm->rank == clocks[i].rank) tell_time(comm);
    }
    if (count > 1 && sp_report_may_go_on(report)) sp_comm_broadcast(comm, report, &domains);
    clocks = (domain_clock *)(void *)domains.data;
    const domain_clock *mine = NULL;
    if (sp_report_may_go_on(report)) {
        mine = find_domain(clocks, domains.size / sizeof *clocks, clock_domain ? clock_domain : -1 - comm->rank);
    }
    if (mine) *point = mine->point;
    if (mine && mine == clocks) { /* rank 0's own */
        point->local_ns = point->reference_ns = sp_clock_ns();
        point->error_ns = 0;
    }
    sp_bytes_free(&all);
    sp_bytes_free(&domains);
}

sp_status sp_ranks_sync(sp_comm *comm, int64_t clock_domain, sp_sync_point *point, sp_error *error)
{
    sp_report report = {0};
    sync_clocks(comm, clock_domain, point, &report);
    return sp_report_may_go_on(&report) ? SP_OK : sp_report_fail(&report, error);
}

/* -- ranks that are missing ------------------------------------------------------------------------------------------- */

/* Which ranks have rows or lanes in a joined profile says nothing of those that recorded nothing: they are told apart here. */
static void note_rank(sp_comm *comm, sp_report *report, sp_bytes *ranks)
{
    const int32_t own = comm->rank;
    if (!sp_bytes_add(ranks, &own, sizeof own)) sp_report_note(report, comm, SP_ERR_NO_MEMORY, NULL);
    sp_comm_gather(comm, report, ranks, NULL, NULL);
}

/* The ranks that did not arrive, ascending, as texts. */
static sp_status store_missing(sp_profile *profile, const sp_bytes *there, int size)
{
    char *seen = calloc(1, (size_t)size);
    const char **list = malloc((size_t)size * sizeof *list);
    char(*numbers)[12] = malloc((size_t)size * sizeof *numbers);
    sp_status status = seen && list && numbers ? SP_OK : SP_ERR_NO_MEMORY;
    size_t missing = 0;
    for (size_t at = 0; status == SP_OK && at + 4 <= there->size; at += 4) {
        int32_t rank;
        memcpy(&rank, there->data + at, sizeof rank);
        if (rank >= 0 && rank < size) seen[rank] = 1;
    }
    for (int rank = 0; status == SP_OK && rank < size; rank++) {
        if (seen[rank]) continue;
        char *at = numbers[missing] + sizeof numbers[0] - 1;
        *at = '\0';
        int left = rank;
        do *--at = (char)('0' + left % 10);
        while ((left /= 10) > 0);
        list[missing++] = at;
    }
    if (status == SP_OK && missing) status = sp_profile_set_strings(profile, "missing_ranks", list, missing);
    free(seen);
    free(list);
    free(numbers);
    return status;
}

/* -- in memory -------------------------------------------------------------------------------------------------------- */

sp_status sp_ranks_collect(sp_comm *comm, sp_profile *profile, sp_profile **out, sp_report *report, sp_error *error)
{
    sp_report spare;
    sp_bytes bytes = {0}, ranks = {0}, nothing = {0};
    sp_error problem;
    if (report == NULL) report = &spare;
    *report = (sp_report){0};
    *out = NULL;
    sp_report_note(report, comm, pack(profile, &bytes, &problem), &problem);
    sp_comm_gather(comm, report, &bytes, join_children, NULL);
    note_rank(comm, report, &ranks);
    if (comm->rank == 0 && sp_report_may_go_on(report) && bytes.size) {
        sp_status status = unpack(&bytes, out, &problem);
        if (status == SP_OK && report->missing) status = store_missing(*out, &ranks, comm->size);
        if (status != SP_OK) {
            sp_report_note(report, comm, status, &problem);
            sp_profile_release(*out);
            *out = NULL;
        }
    }
    sp_comm_broadcast(comm, report, &nothing);
    sp_bytes_free(&bytes);
    sp_bytes_free(&ranks);
    sp_bytes_free(&nothing);
    return sp_report_fail(report, error);
}

/* -- into a file ------------------------------------------------------------------------------------------------------ */

/* One rank's compressed chunk on its way. */
typedef struct made_chunk {
    uint64_t index; /* of the chunk among all: column by column, those that are there */
    uint64_t size;
    uint64_t skipped;
} made_chunk;

/* A compressed chunk until it goes into the file. */
typedef struct held_chunk {
    char *data;     /* or NULL: */
    uint64_t place; /* in the spill */
} held_chunk;

typedef struct job {
    sp_comm *comm;
    sp_profile *profile;
    sp_collection *collection; /* where its calls are; NULL: in its columns */
    bool tree;                 /* the collection's calls nest */
    sp_summary_job sums;
    const char *path;
    const sp_hdf5_options *options;
    sp_report report;
    sp_remote_layout layout;
    uint64_t *firsts; /* of each rank's calls, and one more: calls in all */
    made_chunk *made;   /* this rank's */
    held_chunk *held;   /* each of them */
    size_t made_count, made_room;
    uint64_t held_bytes, spilled, largest; /* in memory, in the spill, and of a chunk there */
    sp_replacement spill;
    bool spills; /* it was begun */
    int64_t *before[SP_COLUMN_COUNT], *behind[SP_COLUMN_COUNT]; /* of a collection's calls: those in chunks that are not its own */
    sp_remote_chunk *chunks; /* rank 0: all */
    uint64_t *places;        /* all */
    uint64_t file_size;
    sp_profile *head; /* rank 0: of all */
    sp_replacement replacement;
    bool begun; /* rank 0 has a replacement */
    bool over;  /* a problem was told to all: all leave */
    int fd;
} job;

static bool failed(const job *j)
{
    return !sp_report_may_go_on(&j->report);
}

static void note(job *j, sp_status status, const sp_error *error)
{
    sp_report_note(&j->report, j->comm, status, error);
}

static void note_memory(job *j)
{
    sp_error error;
    note(j, sp_fail(&error, SP_ERR_NO_MEMORY, "out of memory writing %s", j->path), &error);
}

static void broadcast(job *j, sp_bytes *bytes)
{
    sp_comm_broadcast(j->comm, &j->report, bytes);
    j->over = failed(j);
}

static void gather(job *j, sp_bytes *bytes)
{
    if (failed(j)) sp_bytes_free(bytes);
    sp_comm_gather(j->comm, &j->report, bytes, NULL, NULL);
}

/* -- 1: heads -- */

/* The process row with what its clock shows against rank 0's: now, and at the start where it was asked then. */
static sp_process_info *set_clock(sp_process_info *out, const sp_process_info *process, const sp_sync_point *now)
{
    static char rank_0[] = "rank 0";
    *out = *process;
    const bool known = strcmp(process->reference, rank_0) == 0;
    if (!known) {
        out->start_ns = now->local_ns;
        out->start_reference_ns = now->reference_ns;
    }
    out->end_ns = now->local_ns;
    out->end_reference_ns = now->reference_ns;
    out->error_ns = known && process->error_ns > now->error_ns ? process->error_ns : now->error_ns;
    out->reference = rank_0;
    return out;
}

/* Sums by row and call path, on all ranks at once. Calls that overlap are nested from columns, where they are not many. */
static sp_status sum_up(job *j, sp_error *error)
{
    if (j->collection) {
        sp_status status = sp_stream_sums(j->collection, true, &j->sums, error);
        j->tree = status == SP_OK;
        if (status != SP_ERR_NESTING) return status;
        sp_summary_job_free(&j->sums);
        if (j->profile->call_count > SP_NEST_CALLS_MAX) return sp_stream_sums(j->collection, false, &j->sums, error);
        status = sp_collection_columns(j->collection, 0, NULL, error);
        if (status != SP_OK) return status;
        j->collection = NULL;
    }
    sp_summary_job_begin(&j->sums, j->profile);
    const sp_status status = sp_summary_job_wait(&j->sums);
    return status == SP_OK ? status : sp_fail(error, status, "out of memory for the sums of a profile");
}

/* What rank 0 has to know of a profile: all but its calls. */
static sp_status pack_head(const job *j, const sp_sync_point *clock, sp_bytes *out, sp_error *error)
{
    sp_profile *head = sp_profile_copy(j->profile, true);
    if (head == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for a profile");
    sp_status status = SP_OK;
    sp_summary_job_tell_rows(&j->sums, head);
    sp_process_info *const processes = head->processes;
    sp_process_info *clocked = NULL;
    if (clock->error_ns != SP_UNKNOWN && head->process_count == 1) {
        clocked = malloc(sizeof *clocked);
        if (clocked == NULL) status = sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for a profile");
        else head->processes = set_clock(clocked, processes, clock);
    }
    struct sp_path_summary *const stored = head->stored_paths;
    int64_t *columns[SP_COLUMN_COUNT];
    memcpy(columns, head->columns, sizeof columns);
    memset(head->columns, 0, sizeof head->columns);
    head->stored_paths = j->sums.paths;
    head->summary_only = true;
    if (status == SP_OK) status = pack(head, out, error);
    memcpy(head->columns, columns, sizeof columns);
    head->stored_paths = stored;
    head->processes = processes;
    free(clocked);
    sp_profile_release(head);
    return status;
}

/* What the plan needs to know of each rank. */
typedef struct rank_facts {
    int32_t rank;
    uint32_t columns;
    uint64_t most; /* elements of a chunk */
} rank_facts;

static rank_facts facts_of(const job *j)
{
    rank_facts facts = {.rank = j->comm->rank, .most = SP_STREAM_CHUNK};
    if (j->collection) {
        facts.columns = sp_stream_columns(j->profile, j->tree);
        facts.most = sp_stream_chunk(j->profile, (size_t)__builtin_popcount(facts.columns), SP_STREAM_CHUNK);
        return facts;
    }
    facts.columns = 1u << SP_COLUMN_START | 1u << SP_COLUMN_END;
    for (int c = 0; c < SP_COLUMN_COUNT; c++) facts.columns |= j->profile->columns[c] ? 1u << c : 0;
    return facts;
}

/* Rank 0: where each row's and each rank's calls lie. */
static void place_rows(job *j)
{
    uint64_t calls = 0;
    int rank = 0;
    for (size_t i = 0; i < j->head->row_count; i++) {
        sp_row *row = &j->head->rows[i];
        while (rank <= (int)row->rank && rank <= j->comm->size) j->firsts[rank++] = calls;
        row->first = calls;
        calls += row->count;
    }
    while (rank <= j->comm->size) j->firsts[rank++] = calls;
}

static void share_heads(job *j)
{
    sp_comm *const comm = j->comm;
    sp_bytes head = {0}, facts = {0};
    sp_error error;
    sp_sync_point clock;
    sync_clocks(comm, j->profile->process_count ? j->profile->processes[0].clock_domain : 0, &clock, &j->report);
    if (comm->rank == 0) clock.error_ns = SP_UNKNOWN; /* it keeps the calendar as its reference */
    j->firsts = calloc((size_t)comm->size + 1, sizeof *j->firsts);
    if (j->firsts == NULL) note_memory(j);
    if (!failed(j)) note(j, sum_up(j, &error), &error);
    if (!failed(j)) note(j, pack_head(j, &clock, &head, &error), &error);
    if (failed(j)) sp_bytes_free(&head);
    sp_comm_gather(comm, &j->report, &head, join_children, NULL);
    const rank_facts own = facts_of(j);
    if (!sp_bytes_add(&facts, &own, sizeof own)) note_memory(j);
    gather(j, &facts);
    if (comm->rank == 0 && !failed(j)) {
        sp_bytes ranks = {0};
        rank_facts all = {.most = SP_STREAM_CHUNK}, fact;
        for (size_t at = 0; at + sizeof fact <= facts.size; at += sizeof fact) {
            memcpy(&fact, facts.data + at, sizeof fact);
            all.columns |= fact.columns;
            if (fact.most && fact.most < all.most) all.most = fact.most;
            if (!sp_bytes_add(&ranks, &fact.rank, sizeof fact.rank)) note_memory(j);
        }
        sp_status status = unpack(&head, &j->head, &error);
        for (size_t i = 0; status == SP_OK && i < j->head->row_count; i++) {
            if (j->head->rows[i].rank < (uint32_t)comm->size) continue;
            status = sp_fail(&error, SP_ERR_INVALID, "there is no rank %u of %d", j->head->rows[i].rank, comm->size);
        }
        if (status == SP_OK && j->report.missing) status = store_missing(j->head, &ranks, comm->size);
        note(j, status, &error);
        if (!failed(j)) {
            place_rows(j);
            sp_remote_layout_make(&j->layout, j->options, j->firsts[comm->size], all.columns, all.most);
        }
        sp_bytes_free(&ranks);
    }
    sp_bytes_free(&head);
    sp_bytes_free(&facts);
}

/* -- 2: the plan -- */

static void share_plan(job *j)
{
    sp_bytes plan = {0};
    const size_t firsts = ((size_t)j->comm->size + 1) * sizeof *j->firsts;
    if (j->comm->rank == 0 && !failed(j) &&
        !(sp_bytes_add(&plan, &j->layout, sizeof j->layout) && sp_bytes_add(&plan, j->firsts, firsts))) {
        note_memory(j);
        sp_bytes_free(&plan);
    }
    broadcast(j, &plan);
    if (!failed(j) && plan.size == sizeof j->layout + firsts) {
        memcpy(&j->layout, plan.data, sizeof j->layout);
        memcpy(j->firsts, plan.data + sizeof j->layout, firsts);
    }
    sp_bytes_free(&plan);
}

/* -- 3: values and chunks -- */

/* One column of this rank's calls, row after row, as the file has it. */
static void make_values(const sp_profile *profile, sp_column column, int64_t *out)
{
    const int64_t *start = profile->columns[SP_COLUMN_START], *end = profile->columns[SP_COLUMN_END];
    for (size_t r = 0; r < profile->row_count; r++) {
        const uint64_t first = profile->rows[r].first, count = profile->rows[r].count;
        for (uint64_t i = first; i < first + count; i++) {
            if (column == SP_COLUMN_START) *out++ = i > first ? sp_minus(start[i], start[i - 1]) : start[i];
            else if (column == SP_COLUMN_END) *out++ = sp_minus(end[i], start[i]);
            else *out++ = profile->columns[column] ? profile->columns[column][i] : sp_column_default(column);
        }
    }
}

/* The rank in which a chunk begins: the last whose calls begin at or before it and that has any. */
static int owner_of(const job *j, uint64_t element)
{
    int low = 0, high = j->comm->size - 1;
    while (low < high) {
        const int middle = low + (high - low + 1) / 2;
        if (j->firsts[middle] <= element) low = middle;
        else high = middle - 1;
    }
    return low;
}

/* What compressed chunks may take in memory; those beyond it wait in a file without a name beside the output. */
#define HELD_BYTES ((uint64_t)16 << 20)

static bool spill_chunk(job *j, const void *data, size_t size, held_chunk *held)
{
    if (!j->spills) {
        if (sp_replace_begin(&j->spill, j->path, NULL) != SP_OK) return false;
        if (j->spill.temporary) unlink(j->spill.temporary); /* so a killed rank leaves none */
        j->spills = true;
    }
    if (sp_file_write(j->spill.fd, data, size, j->spilled) < 0) return false;
    held->place = j->spilled;
    j->spilled += size;
    if (size > j->largest) j->largest = size;
    return true;
}

/* Where a chunk cannot be spilled, on a full disk or without the directory, it stays in memory. */
static bool keep_chunk(job *j, uint64_t index, const void *data, size_t size, uint32_t skipped)
{
    if (j->made_count == j->made_room) {
        const size_t room = j->made_room ? 2 * j->made_room : 16;
        made_chunk *made = realloc(j->made, room * sizeof *made);
        if (made) j->made = made;
        held_chunk *all = realloc(j->held, room * sizeof *all);
        if (all) j->held = all;
        if (made == NULL || all == NULL) return false;
        j->made_room = room;
    }
    held_chunk held = {0};
    const bool full = j->collection && j->held_bytes + size > HELD_BYTES;
    if (!full || !spill_chunk(j, data, size, &held)) {
        held.data = malloc(size);
        if (held.data == NULL) return false;
        memcpy(held.data, data, size);
        j->held_bytes += size;
    }
    j->made[j->made_count] = (made_chunk){index, size, skipped};
    j->held[j->made_count++] = held;
    return true;
}

/* The bytes of a chunk, in `buffer` if they have to be fetched. NULL with errno. */
static const char *fetch_chunk(const job *j, size_t at, char *buffer)
{
    if (j->held[at].data) return j->held[at].data;
    return sp_file_read(j->spill.fd, buffer, j->made[at].size, j->held[at].place) == 0 ? buffer : NULL;
}

/* Which elements of a column are this rank's, and which chunks: those that begin with one of them. */
typedef struct span {
    uint64_t first, after; /* elements */
    uint64_t begin, end;   /* chunks */
    uint64_t head;         /* elements before the first of these chunks, which an earlier rank compresses */
    uint64_t tail;         /* elements in the last, if it has some of later ranks too; else 0 */
} span;

static span span_of(const job *j)
{
    const uint64_t chunk = j->layout.chunk;
    span s = {.first = j->firsts[j->comm->rank], .after = j->firsts[j->comm->rank + 1]};
    if (s.first == s.after) return s;
    s.begin = (s.first + chunk - 1) / chunk;
    s.end = (s.after + chunk - 1) / chunk;
    s.head = s.begin < s.end ? s.begin * chunk - s.first : s.after - s.first;
    const bool shared = s.begin < s.end && s.end * chunk > s.after && s.after < j->layout.calls;
    s.tail = shared ? s.after - (s.end - 1) * chunk : 0;
    return s;
}

/* Fill `values`, which begin at element `from`, beyond this rank's own calls, up to `end`, with what later ranks send. */
static sp_status receive_rest(job *j, int64_t *values, uint64_t from, uint64_t end, sp_error *error)
{
    sp_status status = SP_OK;
    for (int rank = j->comm->rank + 1; status == SP_OK && rank < j->comm->size && j->firsts[rank] < end; rank++) {
        const uint64_t last = j->firsts[rank + 1] < end ? j->firsts[rank + 1] : end, count = last - j->firsts[rank];
        sp_bytes piece = {0};
        if (count == 0) continue;
        status = sp_comm_receive(j->comm, rank, &piece, j->comm->patience, error);
        if (status == SP_OK && piece.size != count * sizeof *values) {
            status = sp_fail(error, SP_ERR_CORRUPT, "rank %d sent %zu bytes of calls for %llu calls", rank, piece.size,
                             (unsigned long long)count);
        }
        if (status == SP_OK) memcpy(values + (j->firsts[rank] - from), piece.data, piece.size);
        sp_bytes_free(&piece);
    }
    return status;
}

/* Compress and keep a chunk of the column; `raw`, with room for a chunk, is overwritten. */
static sp_status make_chunk(job *j, sp_coder *coder, uint64_t column_number, uint64_t chunk, int64_t *raw, char *encoded,
                            sp_error *error)
{
    const sp_remote_layout *layout = &j->layout;
    const uint64_t left = layout->calls - chunk * layout->chunk, count = left < layout->chunk ? left : layout->chunk;
    const size_t bytes = (size_t)layout->chunk * sizeof *raw;
    size_t size;
    uint32_t skipped;
    memset(raw + count, 0, bytes - count * sizeof *raw);
    sp_status status = sp_chunk_encode(coder, &layout->filters, raw, bytes, encoded, &size, &skipped);
    if (status == SP_OK && !keep_chunk(j, column_number * layout->chunks + chunk, encoded, size, skipped)) status = SP_ERR_NO_MEMORY;
    return status == SP_OK ? SP_OK : sp_fail(error, status, "cannot compress calls");
}

/* The ends of one column: the calls before this rank's first chunk go to an earlier rank, those that its last one misses come. */
static sp_status settle_ends(job *j, const span *s, sp_coder *coder, uint64_t column_number, const int64_t *head,
                             const int64_t *tail, int64_t *raw, char *encoded, sp_error *error)
{
    const uint64_t chunk = j->layout.chunk;
    sp_status status = SP_OK;
    if (s->head) {
        const int owner = owner_of(j, s->first / chunk * chunk);
        status = sp_comm_send(j->comm, owner, head, s->head * sizeof *head, j->comm->patience, error);
    }
    if (s->tail == 0 || status != SP_OK) return status;
    const uint64_t from = (s->end - 1) * chunk, reach = s->end * chunk < j->layout.calls ? s->end * chunk : j->layout.calls;
    memcpy(raw, tail, s->tail * sizeof *raw);
    status = receive_rest(j, raw, from, reach, error);
    return status == SP_OK ? make_chunk(j, coder, column_number, s->end - 1, raw, encoded, error) : status;
}

/* One column of the profile. */
static sp_status make_column(job *j, const span *s, sp_coder *coder, sp_column column, uint64_t column_number, int64_t *raw,
                             char *encoded, sp_error *error)
{
    const uint64_t chunk = j->layout.chunk;
    int64_t *values = malloc((s->after - s->first) * sizeof *values);
    if (values == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for a column");
    make_values(j->profile, column, values);
    const uint64_t last = s->end * chunk - s->first - chunk; /* where the last chunk begins */
    sp_status status = settle_ends(j, s, coder, column_number, values, values + (s->tail ? last : 0), raw, encoded, error);
    for (uint64_t c = s->begin; c < s->end - (s->tail > 0) && status == SP_OK; c++) {
        const uint64_t left = s->after - c * chunk, count = left < chunk ? left : chunk;
        memcpy(raw, values + (c * chunk - s->first), count * sizeof *raw);
        status = make_chunk(j, coder, column_number, c, raw, encoded, error);
    }
    free(values);
    return status;
}

/* -- the same of a collection -- */

/* Where the chunks of one column go. */
typedef struct column_taker {
    job *job;
    uint64_t number; /* of the column */
} column_taker;

static sp_status take_chunk(void *taker, uint64_t first, const void *data, size_t size, uint32_t skipped, sp_error *error)
{
    const column_taker *t = taker;
    const sp_remote_layout *layout = &t->job->layout;
    if (keep_chunk(t->job, t->number * layout->chunks + first / layout->chunk, data, size, skipped)) return SP_OK;
    return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory writing %s", t->job->path);
}

static sp_status take_end(void *context, sp_column column, uint64_t first, uint64_t count, const int64_t *values, sp_error *error)
{
    job *j = context;
    int64_t **end = first % j->layout.chunk ? &j->before[column] : &j->behind[column];
    *end = malloc(count * sizeof *values);
    if (*end == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory writing %s", j->path);
    memcpy(*end, values, count * sizeof *values);
    return SP_OK;
}

/* All columns, but for their ends, which are left in j->before and j->behind. */
static sp_status stream_columns(job *j, const span *s, sp_error *error)
{
    const sp_remote_layout *layout = &j->layout;
    const sp_stream_part part = {.first = s->first, .edge = take_end, .context = j};
    sp_chunk_source sources[SP_COLUMN_COUNT] = {{0}};
    column_taker takers[SP_COLUMN_COUNT];
    uint64_t number = 0;
    for (int c = 0; c < SP_COLUMN_COUNT; c++) {
        if (!(layout->columns >> c & 1)) continue;
        takers[c] = (column_taker){j, number++};
        sources[c] = (sp_chunk_source){.name = "calls", .count = layout->calls, .chunk = layout->chunk, .element = sizeof(int64_t),
                                       .take = take_chunk, .taker = &takers[c]};
    }
    return sp_stream_calls(j->collection, sources, &layout->filters, j->tree, NULL, &part, error);
}

static void make_chunks(job *j)
{
    const span s = span_of(j);
    if (failed(j) || s.first == s.after) return;
    const size_t bytes = (size_t)j->layout.chunk * sizeof(int64_t);
    sp_coder *coder = sp_coder_new();
    int64_t *raw = malloc(bytes);
    char *encoded = malloc(sp_encoded_bound(bytes));
    sp_error error;
    uint64_t number = 0;
    if (coder == NULL || raw == NULL || encoded == NULL) note_memory(j);
    if (j->collection && !failed(j)) note(j, stream_columns(j, &s, &error), &error);
    for (int c = 0; c < SP_COLUMN_COUNT && !failed(j); c++) {
        if (!(j->layout.columns >> c & 1)) continue;
        const sp_status status = j->collection
            ? settle_ends(j, &s, coder, number, j->before[c], j->behind[c], raw, encoded, &error)
            : make_column(j, &s, coder, (sp_column)c, number, raw, encoded, &error);
        note(j, status, &error);
        number++;
    }
    sp_coder_free(coder);
    free(raw);
    free(encoded);
}

/* -- 4: sizes, and rank 0's file -- */

static uint64_t chunk_count(const job *j)
{
    return j->layout.chunks * (uint64_t)__builtin_popcount(j->layout.columns);
}

/* Rank 0: the chunks of all, as they say. */
static sp_status take_sizes(job *j, const sp_bytes *sizes, sp_error *error)
{
    const uint64_t count = chunk_count(j);
    uint64_t taken = 0;
    j->chunks = calloc(count + 1, sizeof *j->chunks);
    if (j->chunks == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory writing %s", j->path);
    for (size_t at = 0; at + sizeof(made_chunk) <= sizes->size; at += sizeof(made_chunk)) {
        made_chunk made;
        memcpy(&made, sizes->data + at, sizeof made);
        if (made.index >= count || made.size == 0 || j->chunks[made.index].size) break;
        j->chunks[made.index] = (sp_remote_chunk){.size = made.size, .skipped = (uint32_t)made.skipped};
        taken++;
    }
    if (taken == count) return SP_OK;
    return sp_fail(error, SP_ERR_CORRUPT, "%llu of %llu chunks of calls were made", (unsigned long long)taken,
                   (unsigned long long)count);
}

static sp_status write_frame(job *j, sp_error *error)
{
    struct stat facts;
    sp_status status = sp_replace_begin(&j->replacement, j->path, error);
    if (status != SP_OK) return status;
    j->begun = true;
    status = sp_replace_name(&j->replacement, error); /* the other ranks open it */
    j->fd = j->replacement.fd;
    if (status != SP_OK) return status;
    status = sp_hdf5_write_remote(j->head, &j->layout, j->chunks, j->options, &j->replacement, error);
    if (status != SP_OK) return status;
    if (fstat(j->fd, &facts) < 0) return sp_fail_errno(error, SP_ERR_IO, "cannot write %s", j->path);
    j->file_size = (uint64_t)facts.st_size;
    return SP_OK;
}

static void write_file(job *j)
{
    sp_bytes sizes = {0};
    sp_error error;
    if (!sp_bytes_add(&sizes, j->made, j->made_count * sizeof *j->made)) note_memory(j);
    gather(j, &sizes);
    if (j->comm->rank == 0 && !failed(j)) {
        sp_status status = take_sizes(j, &sizes, &error);
        if (status == SP_OK) status = write_frame(j, &error);
        note(j, status, &error);
    }
    sp_bytes_free(&sizes);
}

/* -- 5: places -- */

static void share_places(job *j)
{
    sp_bytes places = {0};
    const uint64_t count = chunk_count(j);
    bool fine = true;
    if (j->comm->rank == 0 && !failed(j)) {
        fine = sp_bytes_add(&places, &j->file_size, sizeof j->file_size);
        for (uint64_t i = 0; i < count && fine; i++) fine = sp_bytes_add(&places, &j->chunks[i].place, sizeof(uint64_t));
        fine = fine && sp_bytes_add(&places, j->replacement.temporary, strlen(j->replacement.temporary) + 1);
        if (!fine) note_memory(j);
    }
    broadcast(j, &places);
    const size_t numbers = (1 + (size_t)count) * sizeof(uint64_t);
    if (!failed(j) && places.size > numbers) {
        memcpy(&j->file_size, places.data, sizeof j->file_size);
        j->places = malloc(numbers);
        if (j->places) memcpy(j->places, places.data + sizeof(uint64_t), numbers - sizeof(uint64_t));
        else note_memory(j);
        if (j->comm->rank != 0) {
            struct stat facts;
            /* Another host may not see the file, or see another one: its chunks go through rank 0 then. */
            j->fd = open(places.data + numbers, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
            if (j->fd >= 0 && (fstat(j->fd, &facts) < 0 || (uint64_t)facts.st_size != j->file_size)) {
                close(j->fd);
                j->fd = -1;
            }
        }
    }
    sp_bytes_free(&places);
}

/* -- 6: the chunks -- */

static sp_status put_at(job *j, const char *data, uint64_t size, uint64_t place, sp_error *error)
{
    if (sp_file_write(j->fd, data, size, place) == 0) return SP_OK;
    return sp_fail_errno(error, SP_ERR_IO, "cannot write %s", j->path);
}

/* Hand each of this rank's chunks to `use`. */
static sp_status each_chunk(job *j, sp_status (*use)(job *j, size_t at, const char *data, sp_error *error), sp_error *error)
{
    char *buffer = malloc(j->largest + 1);
    sp_status status = buffer ? SP_OK : sp_fail(error, SP_ERR_NO_MEMORY, "out of memory writing %s", j->path);
    for (size_t i = 0; i < j->made_count && status == SP_OK; i++) {
        const char *data = fetch_chunk(j, i, buffer);
        status = data ? use(j, i, data, error) : sp_fail_errno(error, SP_ERR_IO, "cannot write %s", j->path);
    }
    free(buffer);
    return status;
}

static sp_status put_chunk(job *j, size_t at, const char *data, sp_error *error)
{
    return put_at(j, data, j->made[at].size, j->places[j->made[at].index], error);
}

static sp_status put_own(job *j, sp_error *error)
{
    sp_status status = each_chunk(j, put_chunk, error);
    /* Rank 0 makes the file durable, but on a network file system only this host knows what this rank wrote. */
    if (status == SP_OK && j->made_count && j->comm->rank && fsync(j->fd) < 0 && errno != EINVAL) {
        status = sp_fail_errno(error, SP_ERR_IO, "cannot write %s", j->path);
    }
    return status;
}

/* The chunks of a rank that does not see the file, one by one. */
static sp_status put_for(job *j, int rank, uint64_t count, sp_error *error)
{
    sp_status status = SP_OK;
    for (uint64_t i = 0; i < count && status == SP_OK; i++) {
        sp_bytes chunk;
        uint64_t place;
        status = sp_comm_receive(j->comm, rank, &chunk, j->comm->patience, error);
        if (status == SP_OK && chunk.size < sizeof place) status = sp_fail(error, SP_ERR_CORRUPT, "rank %d sent no chunk", rank);
        if (status == SP_OK) {
            memcpy(&place, chunk.data, sizeof place);
            status = put_at(j, chunk.data + sizeof place, chunk.size - sizeof place, place, error);
        }
        sp_bytes_free(&chunk);
    }
    return status;
}

static sp_status send_chunk(job *j, size_t at, const char *data, sp_error *error)
{
    sp_bytes chunk = {0};
    const uint64_t *place = &j->places[j->made[at].index];
    sp_status status = SP_ERR_NO_MEMORY;
    if (sp_bytes_add(&chunk, place, sizeof *place) && sp_bytes_add(&chunk, data, j->made[at].size)) {
        status = sp_comm_send(j->comm, 0, chunk.data, chunk.size, j->comm->patience * j->comm->size, error);
    } else {
        sp_fail(error, status, "out of memory writing %s", j->path);
    }
    sp_bytes_free(&chunk);
    return status;
}

static void put_chunks(job *j)
{
    sp_bytes blind = {0}; /* pairs: a rank that does not see the file, and how many chunks it has */
    sp_error error;
    const uint64_t own[2] = {(uint64_t)j->comm->rank, j->made_count};
    if (!failed(j) && j->fd >= 0) note(j, put_own(j, &error), &error);
    if (j->fd < 0 && j->made_count && !sp_bytes_add(&blind, own, sizeof own)) note_memory(j);
    gather(j, &blind);
    broadcast(j, &blind);
    for (size_t at = 0; at + sizeof own <= blind.size && !failed(j); at += sizeof own) {
        uint64_t other[2];
        memcpy(other, blind.data + at, sizeof other);
        if (j->comm->rank == 0) note(j, put_for(j, (int)other[0], other[1], &error), &error);
        else if (j->comm->rank == (int)other[0]) note(j, each_chunk(j, send_chunk, &error), &error);
    }
    sp_bytes_free(&blind);
}

/* -- 7: the seal -- */

typedef struct share_sum {
    uint64_t size;
    uint32_t sum, there;
} share_sum;

static void seal(job *j)
{
    sp_bytes sums = {0};
    sp_error error;
    const uint64_t size = (uint64_t)j->comm->size, rank = (uint64_t)j->comm->rank;
    const uint64_t from = j->file_size / size * rank, to = rank + 1 < size ? j->file_size / size * (rank + 1) : j->file_size;
    share_sum own = {.size = to - from};
    gather(j, &sums); /* all chunks are there */
    broadcast(j, &sums);
    if (!failed(j) && j->fd >= 0) own.there = sp_seal_sum(j->fd, from, to, &own.sum) == SP_OK;
    if (!sp_bytes_add(&sums, &own, sizeof own)) note_memory(j);
    gather(j, &sums);
    if (j->comm->rank == 0 && !failed(j)) {
        bool whole = sums.size == size * sizeof own;
        uint32_t sum = 0;
        for (size_t at = 0; at + sizeof own <= sums.size && whole; at += sizeof own) {
            memcpy(&own, sums.data + at, sizeof own);
            whole = own.there;
            sum = at ? sp_seal_sum_join(sum, own.sum, own.size) : own.sum;
        }
        /* Where a rank could not read its share rank 0 reads it all. */
        const sp_status status = whole ? sp_seal_append_sum(j->fd, sum) : sp_seal_append(j->fd);
        if (status != SP_OK) note(j, sp_fail_errno(&error, SP_ERR_IO, "cannot write %s", j->path), &error);
    }
    sp_bytes_free(&sums);
}

/* -- 8: the file is whole -- */

/* Each rank that sees the file can note which one has its calls, before it is there: one that dies now is not recovered twice. */
static void tell_ready(job *j)
{
    sp_bytes target = {0}, nothing = {0};
    if (j->comm->rank == 0 && !failed(j) &&
        !sp_bytes_add(&target, j->replacement.target, strlen(j->replacement.target) + 1)) {
        note_memory(j);
    }
    broadcast(j, &target);
    const bool asked = j->options && j->options->ready;
    if (!j->over && asked && j->fd >= 0 && target.size) j->options->ready(j->options->ready_context, j->fd, target.data);
    if (!j->over) gather(j, &nothing);
    sp_bytes_free(&target);
}

static void publish(job *j)
{
    sp_bytes nothing = {0};
    sp_error error;
    if (j->comm->rank == 0 && j->begun) {
        if (failed(j)) sp_replace_abort(&j->replacement);
        else note(j, sp_replace_commit(&j->replacement, &error), &error);
    }
    broadcast(j, &nothing);
    sp_bytes_free(&nothing);
}

static void free_job(job *j)
{
    if (j->comm->rank != 0 && j->fd >= 0) close(j->fd);
    for (size_t i = 0; i < j->made_count; i++) free(j->held[i].data);
    for (int c = 0; c < SP_COLUMN_COUNT; c++) {
        free(j->before[c]);
        free(j->behind[c]);
    }
    if (j->spills) sp_replace_abort(&j->spill);
    sp_summary_job_free(&j->sums);
    free(j->held);
    free(j->made);
    free(j->chunks);
    free(j->places);
    free(j->firsts);
    sp_profile_release(j->head);
}

/* `j` has what to write, and where. */
static sp_status write_together(job *j, bool *written, sp_report *report, sp_error *error)
{
    share_heads(j);
    share_plan(j);
    if (!j->over) {
        make_chunks(j);
        write_file(j);
        share_places(j);
    }
    if (!j->over) put_chunks(j);
    if (!j->over) seal(j);
    if (!j->over) tell_ready(j);
    publish(j);
    *written = !j->over;
    if (report) *report = j->report;
    return sp_report_fail(&j->report, error);
}

sp_status sp_ranks_write(sp_comm *comm, sp_profile *profile, const char *path, const sp_hdf5_options *options,
                         bool *written, sp_report *report, sp_error *error)
{
    job j = {.comm = comm, .profile = profile, .path = path, .options = options, .fd = -1};
    sp_error problem;
    if (profile->summary_only) {
        note(&j, sp_fail(&problem, SP_ERR_INVALID, "cannot write %s: the profile was read without its calls", path), &problem);
    }
    const sp_status status = write_together(&j, written, report, error);
    free_job(&j);
    return status;
}

sp_status sp_ranks_write_collection(sp_comm *comm, sp_collection *collection, const char *path, const sp_hdf5_options *options,
                                    bool *written, sp_report *report, sp_error *error)
{
    job j = {.comm = comm, .profile = sp_collection_profile(collection), .collection = collection, .path = path,
             .options = options, .fd = -1};
    const sp_status status = write_together(&j, written, report, error);
    if (*written) {
        sp_summary_job_keep(&j.sums, j.profile);
        j.profile->summary_only = true;
    }
    free_job(&j);
    return status;
}
