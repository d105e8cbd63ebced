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

typedef struct job {
    sp_comm *comm;
    sp_profile *profile;
    const char *path;
    const sp_hdf5_options *options;
    sp_report report;
    sp_remote_layout layout;
    uint64_t *firsts; /* of each rank's calls, and one more: calls in all */
    made_chunk *made; /* this rank's */
    char **data;      /* of each */
    size_t made_count, made_room;
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

/* What rank 0 has to know of a profile: all but its calls. Sums by row and call path are made here, in parallel. */
static sp_status pack_head(const sp_profile *profile, const sp_sync_point *clock, sp_bytes *out, sp_error *error)
{
    sp_summary_job sums;
    sp_profile *head = sp_profile_copy((sp_profile *)profile, true);
    if (head == NULL) return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for a profile");
    sp_summary_job_begin(&sums, profile);
    sp_status status = sp_summary_job_wait(&sums);
    if (status != SP_OK) sp_fail(error, status, "out of memory for the sums of a profile");
    for (size_t i = 0; status == SP_OK && i < head->row_count; i++) {
        sp_row *row = &head->rows[i];
        row->has_statistics = row->has_percentiles = true;
        row->statistics = sums.statistics[i];
        for (size_t p = 0; p < SP_PERCENTILE_COUNT; p++) row->percentiles[p] = sums.percentiles[p * head->row_count + i];
    }
    sp_process_info *const processes = head->processes;
    sp_process_info *clocked = NULL;
    if (status == SP_OK && clock->error_ns != SP_UNKNOWN && head->process_count == 1) {
        clocked = malloc(sizeof *clocked);
        if (clocked == NULL) status = sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for a profile");
        else head->processes = set_clock(clocked, processes, clock);
    }
    struct sp_path_summary *const stored = head->stored_paths;
    int64_t *columns[SP_COLUMN_COUNT];
    memcpy(columns, head->columns, sizeof columns);
    memset(head->columns, 0, sizeof head->columns);
    head->stored_paths = sums.paths;
    head->summary_only = true;
    if (status == SP_OK) status = pack(head, out, error);
    memcpy(head->columns, columns, sizeof columns);
    head->stored_paths = stored;
    head->processes = processes;
    free(clocked);
    sp_profile_release(head);
    sp_summary_job_free(&sums);
    return status;
}

static uint32_t columns_of(const sp_profile *profile)
{
    uint32_t columns = 1u << SP_COLUMN_START | 1u << SP_COLUMN_END;
    for (int c = 0; c < SP_COLUMN_COUNT; c++) columns |= profile->columns[c] ? 1u << c : 0;
    return columns;
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
    const uint32_t own[2] = {(uint32_t)comm->rank, columns_of(j->profile)};
    sync_clocks(comm, j->profile->process_count ? j->profile->processes[0].clock_domain : 0, &clock, &j->report);
    if (comm->rank == 0) clock.error_ns = SP_UNKNOWN; /* it keeps the calendar as its reference */
    j->firsts = calloc((size_t)comm->size + 1, sizeof *j->firsts);
    if (j->firsts == NULL) note_memory(j);
    else note(j, pack_head(j->profile, &clock, &head, &error), &error);
    if (failed(j)) sp_bytes_free(&head);
    sp_comm_gather(comm, &j->report, &head, join_children, NULL);
    if (!sp_bytes_add(&facts, own, sizeof own)) note_memory(j);
    gather(j, &facts);
    if (comm->rank == 0 && !failed(j)) {
        sp_bytes ranks = {0};
        uint32_t columns = 0, fact[2];
        for (size_t at = 0; at + sizeof fact <= facts.size; at += sizeof fact) {
            memcpy(fact, facts.data + at, sizeof fact);
            columns |= fact[1];
            if (!sp_bytes_add(&ranks, fact, sizeof fact[0])) note_memory(j);
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
            sp_remote_layout_make(&j->layout, j->options, j->firsts[comm->size], columns);
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

static bool keep_chunk(job *j, uint64_t index, const void *data, size_t size, uint32_t skipped)
{
    if (j->made_count == j->made_room) {
        const size_t room = j->made_room ? 2 * j->made_room : 16;
        made_chunk *made = realloc(j->made, room * sizeof *made);
        if (made) j->made = made;
        char **held = realloc(j->data, room * sizeof *held);
        if (held) j->data = held;
        if (made == NULL || held == NULL) return false;
        j->made_room = room;
    }
    char *copy = malloc(size);
    if (copy == NULL) return false;
    memcpy(copy, data, size);
    j->made[j->made_count] = (made_chunk){index, size, skipped};
    j->data[j->made_count++] = copy;
    return true;
}

/* Fill `values` beyond this rank's own calls, up to `end`, with what later ranks send. */
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

/* The chunks of one column that begin in this rank's calls; the calls before the first of them go to an earlier rank. */
static sp_status make_column(job *j, sp_coder *coder, sp_column column, uint64_t column_number, sp_error *error)
{
    const sp_remote_layout *layout = &j->layout;
    const uint64_t first = j->firsts[j->comm->rank], after = j->firsts[j->comm->rank + 1], chunk = layout->chunk;
    if (first == after) return SP_OK;
    const uint64_t begin = (first + chunk - 1) / chunk, end = (after + chunk - 1) / chunk; /* chunks that begin here */
    const uint64_t head = begin < end ? begin * chunk - first : after - first;
    const uint64_t reach = end * chunk < layout->calls ? end * chunk : layout->calls; /* end of the last chunk's calls */
    int64_t *values = malloc((begin < end ? reach - first : after - first) * sizeof *values);
    const size_t bytes = (size_t)chunk * sizeof *values;
    int64_t *raw = malloc(bytes);
    char *encoded = malloc(sp_encoded_bound(bytes));
    sp_status status = values && raw && encoded ? SP_OK : sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for a column");
    if (status == SP_OK) make_values(j->profile, column, values);
    if (status == SP_OK && head) {
        const int owner = owner_of(j, first / chunk * chunk);
        status = sp_comm_send(j->comm, owner, values, head * sizeof *values, j->comm->patience, error);
    }
    if (status == SP_OK && begin < end && reach > after) status = receive_rest(j, values, first, reach, error);
    for (uint64_t c = begin; c < end && status == SP_OK; c++) {
        const uint64_t left = layout->calls - c * chunk, count = left < chunk ? left : chunk;
        size_t size;
        uint32_t skipped;
        memcpy(raw, values + (c * chunk - first), count * sizeof *raw);
        memset(raw + count, 0, bytes - count * sizeof *raw);
        status = sp_chunk_encode(coder, &layout->filters, raw, bytes, encoded, &size, &skipped);
        if (status == SP_OK && !keep_chunk(j, column_number * layout->chunks + c, encoded, size, skipped)) {
            status = SP_ERR_NO_MEMORY;
        }
        if (status != SP_OK) sp_fail(error, status, "cannot compress calls");
    }
    free(values);
    free(raw);
    free(encoded);
    return status;
}

static void make_chunks(job *j)
{
    sp_coder *coder = sp_coder_new();
    sp_error error;
    uint64_t number = 0;
    if (coder == NULL) note_memory(j);
    for (int c = 0; c < SP_COLUMN_COUNT && !failed(j) && j->layout.calls; c++) {
        if (j->layout.columns >> c & 1) note(j, make_column(j, coder, (sp_column)c, number++, &error), &error);
    }
    sp_coder_free(coder);
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
    j->fd = j->replacement.fd;
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

static sp_status put_own(job *j, sp_error *error)
{
    sp_status status = SP_OK;
    for (size_t i = 0; i < j->made_count && status == SP_OK; i++) {
        status = put_at(j, j->data[i], j->made[i].size, j->places[j->made[i].index], error);
    }
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

static sp_status send_own(job *j, sp_error *error)
{
    sp_status status = SP_OK;
    for (size_t i = 0; i < j->made_count && status == SP_OK; i++) {
        sp_bytes chunk = {0};
        const uint64_t *place = &j->places[j->made[i].index];
        if (sp_bytes_add(&chunk, place, sizeof *place) && sp_bytes_add(&chunk, j->data[i], j->made[i].size)) {
            status = sp_comm_send(j->comm, 0, chunk.data, chunk.size, j->comm->patience * j->comm->size, error);
        } else {
            status = sp_fail(error, SP_ERR_NO_MEMORY, "out of memory writing %s", j->path);
        }
        sp_bytes_free(&chunk);
    }
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
        else if (j->comm->rank == (int)other[0]) note(j, send_own(j, &error), &error);
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
    for (size_t i = 0; i < j->made_count; i++) free(j->data[i]);
    free(j->data);
    free(j->made);
    free(j->chunks);
    free(j->places);
    free(j->firsts);
    sp_profile_release(j->head);
}

sp_status sp_ranks_write(sp_comm *comm, sp_profile *profile, const char *path, const sp_hdf5_options *options,
                         bool *written, sp_report *report, sp_error *error)
{
    job j = {.comm = comm, .profile = profile, .path = path, .options = options, .fd = -1};
    sp_error problem;
    if (profile->summary_only) {
        note(&j, sp_fail(&problem, SP_ERR_INVALID, "cannot write %s: the profile was read without its calls", path), &problem);
    }
    share_heads(&j);
    share_plan(&j);
    if (!j.over) {
        make_chunks(&j);
        write_file(&j);
        share_places(&j);
    }
    if (!j.over) put_chunks(&j);
    if (!j.over) seal(&j);
    publish(&j);
    *written = !j.over;
    if (report) *report = j.report;
    const sp_status status = sp_report_fail(&j.report, error);
    free_job(&j);
    return status;
}
