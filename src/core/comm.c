#include "core/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each level of the tree waits a little longer than the one below, so that a rank hears whom its child waited for in vain. */
#define LEVEL_SECONDS 1.0
#define LEVEL_SHARE 0.05

bool sp_bytes_add(sp_bytes *bytes, const void *data, size_t size)
{
    if (size > bytes->room - bytes->size) {
        const size_t room = (bytes->size + size) * 2;
        char *grown = realloc(bytes->data, room);
        if (grown == NULL) return false;
        bytes->data = grown;
        bytes->room = room;
    }
    if (size) memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
    return true;
}

void sp_bytes_free(sp_bytes *bytes)
{
    free(bytes->data);
    *bytes = (sp_bytes){0};
}

/* -- the tree -- */

static int parent_of(int rank)
{
    return rank & (rank - 1);
}

/* How many children a rank can have, and how many levels hang below it. */
static int levels_below(const sp_comm *comm, int rank)
{
    int levels = 0;
    for (int64_t step = 1; rank + step < comm->size && (rank & step) == 0; step *= 2) levels++;
    return levels;
}

static int ranks_below(const sp_comm *comm, int rank)
{
    const int64_t end = (int64_t)rank + ((int64_t)1 << levels_below(comm, rank));
    return (int)(end < comm->size ? end : comm->size) - rank - 1;
}

static double patience(const sp_comm *comm, int levels)
{
    return comm->patience + levels * (LEVEL_SECONDS + LEVEL_SHARE * comm->patience);
}

/*
 * How long to wait for the parent: rank 0 speaks after everybody was waited for. The deeper, the longer, so that a rank whose
 * parent gives up still hears of it; and nobody gives up, and ends its process, before rank 0 can have written the file.
 */
static double patience_upwards(const sp_comm *comm)
{
    return patience(comm, levels_below(comm, 0) + __builtin_popcount((unsigned)comm->rank));
}

/* -- reports -- */

bool sp_report_may_go_on(const sp_report *report)
{
    return report->status == SP_OK || report->missing;
}

void sp_report_note(sp_report *report, const sp_comm *comm, sp_status status, const sp_error *error)
{
    if (status == SP_OK || !sp_report_may_go_on(report)) return;
    *report = (sp_report){.status = status, .rank = comm->rank, .system = error ? error->system : 0};
    snprintf(report->message, sizeof report->message, "rank %d: %.470s", comm->rank,
             error ? error->message : sp_error_string(status));
}

static void note_missing(sp_report *report, const sp_comm *comm, int rank, sp_status status, const sp_error *error)
{
    char others[48] = "";
    const int below = rank > comm->rank ? ranks_below(comm, rank) : 0;
    if (report->status != SP_OK) return;
    *report = (sp_report){.status = SP_ERR_IO, .rank = rank, .missing = 1};
    if (below) snprintf(others, sizeof others, " (it speaks for ranks %d to %d)", rank, rank + below);
    if (status == SP_ERR_BUSY) {
        snprintf(report->message, sizeof report->message, "rank %d did not answer rank %d within %g s%s", rank,
                 comm->rank, comm->patience, others);
    } else {
        snprintf(report->message, sizeof report->message, "rank %d cannot be reached by rank %d: %.380s", rank,
                 comm->rank, error->message);
    }
}

static void cut_off(sp_report *report, sp_comm *comm, int parent, sp_status status, const sp_error *error)
{
    comm->cut_off = true;
    *report = (sp_report){0};
    note_missing(report, comm, parent, status, error);
    report->missing = 0;
    report->cut_off = 1;
}

sp_status sp_report_fail(const sp_report *report, sp_error *error)
{
    if (report->status == SP_OK) return SP_OK;
    sp_fail(error, (sp_status)report->status, "%s", report->message);
    if (error) error->system = report->system;
    return (sp_status)report->status;
}

/* -- messages: their length, then pieces -- */

static sp_status transport(sp_error *error, sp_status status, const char *what, int rank)
{
    if (status == SP_OK) return SP_OK;
    if (status == SP_ERR_BUSY) return sp_fail(error, status, "rank %d does not answer", rank);
    return sp_fail(error, status, "cannot %s rank %d: %s", what, rank, sp_error_string(status));
}

sp_status sp_comm_send(sp_comm *comm, int to, const void *data, size_t size, double seconds, sp_error *error)
{
    const uint64_t length = size;
    sp_status status = comm->send(comm, to, &length, sizeof length, seconds);
    for (size_t at = 0; at < size && status == SP_OK;) {
        const size_t piece = size - at < SP_COMM_PIECE_MAX ? size - at : SP_COMM_PIECE_MAX;
        status = comm->send(comm, to, (const char *)data + at, piece, seconds);
        at += piece;
    }
    return transport(error, status, "send to", to);
}

sp_status sp_comm_receive(sp_comm *comm, int from, sp_bytes *bytes, double seconds, sp_error *error)
{
    uint64_t length = 0;
    *bytes = (sp_bytes){0};
    sp_status status = comm->receive(comm, from, &length, sizeof length, seconds);
    if (status == SP_OK && length) {
        bytes->data = malloc(length);
        bytes->size = bytes->room = length;
        if (bytes->data == NULL) status = SP_ERR_NO_MEMORY;
    }
    for (size_t at = 0; at < length && status == SP_OK;) {
        const size_t piece = length - at < SP_COMM_PIECE_MAX ? length - at : SP_COMM_PIECE_MAX;
        status = comm->receive(comm, from, bytes->data + at, piece, seconds);
        at += piece;
    }
    if (status != SP_OK) sp_bytes_free(bytes);
    return transport(error, status, "receive from", from);
}

/* A report, and behind it the bytes. */
static sp_status send_report(sp_comm *comm, int to, const sp_report *report, const sp_bytes *bytes, double seconds,
                             sp_error *error)
{
    const sp_status status = sp_comm_send(comm, to, report, sizeof *report, seconds, error);
    return status == SP_OK ? sp_comm_send(comm, to, bytes->data, bytes->size, seconds, error) : status;
}

static sp_status receive_report(sp_comm *comm, int from, sp_report *report, sp_bytes *bytes, double seconds,
                                sp_error *error)
{
    sp_bytes head;
    sp_status status = sp_comm_receive(comm, from, &head, seconds, error);
    if (status != SP_OK) return status;
    if (head.size != sizeof *report) {
        status = sp_fail(error, SP_ERR_CORRUPT, "rank %d sent something else", from);
    } else {
        memcpy(report, head.data, sizeof *report);
        status = sp_comm_receive(comm, from, bytes, comm->patience, error);
    }
    sp_bytes_free(&head);
    return status;
}

/* -- up and down -- */

static sp_status append(void *context, sp_bytes *own, sp_bytes *children, size_t count, sp_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (!sp_bytes_add(own, children[i].data, children[i].size)) {
            return sp_fail(error, SP_ERR_NO_MEMORY, "out of memory for what the ranks say");
        }
    }
    return SP_OK;
}

void sp_comm_gather(sp_comm *comm, sp_report *report, sp_bytes *own, sp_combine combine, void *context)
{
    sp_bytes children[64];
    size_t count = 0;
    sp_error error;
    const int levels = levels_below(comm, comm->rank);
    for (int k = 0; k < levels; k++) {
        const int child = comm->rank + (1 << k);
        sp_report theirs;
        if (comm->lost >> k & 1) continue;
        const sp_status status = receive_report(comm, child, &theirs, &children[count], patience(comm, k), &error);
        if (status == SP_OK) {
            const bool worse = report->status == SP_OK || (report->missing && !sp_report_may_go_on(&theirs));
            if (worse) *report = theirs;
            count++;
        } else {
            comm->lost |= UINT64_C(1) << k;
            note_missing(report, comm, child, status, &error);
        }
    }
    const sp_status combined = (combine ? combine : append)(context, own, children, count, &error);
    sp_report_note(report, comm, combined, &error);
    for (size_t i = 0; i < count; i++) sp_bytes_free(&children[i]);
    if (comm->rank == 0) return;
    const int parent = parent_of(comm->rank);
    const sp_status sent = send_report(comm, parent, report, own, patience_upwards(comm), &error);
    if (sent != SP_OK) cut_off(report, comm, parent, sent, &error);
}

void sp_comm_broadcast(sp_comm *comm, sp_report *report, sp_bytes *bytes)
{
    sp_error error;
    if (comm->rank != 0) {
        sp_report heard;
        const int parent = parent_of(comm->rank);
        sp_bytes_free(bytes);
        const sp_status status =
            comm->cut_off ? SP_OK : receive_report(comm, parent, &heard, bytes, patience_upwards(comm), &error);
        if (status != SP_OK) cut_off(report, comm, parent, status, &error);
        else if (!comm->cut_off) *report = heard;
        comm->cut_off = comm->cut_off || report->cut_off;
    }
    for (int k = levels_below(comm, comm->rank) - 1; k >= 0; k--) { /* the largest subtree first */
        const int child = comm->rank + (1 << k);
        if (comm->lost >> k & 1) continue;
        if (send_report(comm, child, report, bytes, comm->patience, &error) != SP_OK) comm->lost |= UINT64_C(1) << k;
    }
}
