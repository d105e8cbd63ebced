#include "mpi/names.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* -- names -- */

static bool is_one_of(const char *operation, const char *const *words)
{
    for (; *words; words++) {
        if (strcmp(operation, *words) == 0) return true;
    }
    return false;
}

static const char *kind_of(const char *operation)
{
    static const char *const waits[] = {"wait", "waitall", "waitany", "waitsome", NULL};
    static const char *const messages[] = {"send", "ssend", "bsend", "rsend", "isend", "issend", "ibsend", "irsend", "recv",
                                           "irecv", "sendrecv", "sendrecv_replace", "probe", "mprobe", NULL};
    if (is_one_of(operation, waits)) return "wait";
    return is_one_of(operation, messages) ? "point-to-point" : "collective";
}

static int make_region(const sp_mpi_call *call)
{
    char name[320];
    snprintf(name, sizeof name, "mpi:%s kind=%s bytes=%lld peer=%d root=%d tag=%d comm=%d%s%s", call->operation,
             kind_of(call->operation), call->bytes, call->peer, call->root, call->tag, call->comm,
             call->request ? " request=" : "", call->request ? call->request : "");
    return sp_region(name);
}

/* -- regions by call: open addressing; an entry with `bytes` COUNT counts the shapes of its group -- */

#define COUNT INT64_MIN

typedef struct entry {
    sp_mpi_call call; /* operation NULL: free */
    int value;        /* the region, or the count */
} entry;

static entry *entries;
static size_t used, room;

static uint64_t hash_call(const sp_mpi_call *call)
{
    const uint64_t words[] = {(uint64_t)call->bytes, (uint64_t)(uint32_t)call->peer << 32 | (uint32_t)call->tag,
                              (uint64_t)(uint32_t)call->root << 32 | (uint32_t)call->comm};
    uint64_t hash = (uint64_t)crc32(crc32(0, NULL, 0), (const Bytef *)call->operation, (uInt)strlen(call->operation));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        hash = (hash ^ words[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return hash;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_call(const sp_mpi_call *a, const sp_mpi_call *b)
{
    return a->bytes == b->bytes && a->peer == b->peer && a->root == b->root && a->tag == b->tag && a->comm == b->comm &&
           same_text(a->operation, b->operation) && same_text(a->request, b->request);
}

static entry *find(entry *table, size_t size, const sp_mpi_call *call)
{
    for (size_t at = hash_call(call) & (size - 1);; at = (at + 1) & (size - 1)) {
        if (table[at].call.operation == NULL || same_call(&table[at].call, call)) return &table[at];
    }
}

static bool grow(void)
{
    const size_t larger = room ? 2 * room : 256;
    entry *made = calloc(larger, sizeof *made);
    if (made == NULL) return false;
    for (size_t i = 0; i < room; i++) {
        if (entries[i].call.operation) *find(made, larger, &entries[i].call) = entries[i];
    }
    free(entries);
    entries = made;
    room = larger;
    return true;
}

/* The entry of a call, made when new; NULL without memory. */
static entry *entry_of(const sp_mpi_call *call, bool *is_new)
{
    if (2 * (used + 1) > room && !grow()) return NULL;
    entry *found = find(entries, room, call);
    *is_new = found->call.operation == NULL;
    return found;
}

static void fill(entry *made, const sp_mpi_call *call, int value)
{
    *made = (entry){*call, value};
    used++;
}

static int region_with_lock(const sp_mpi_call *call)
{
    bool is_new;
    entry *known = entry_of(call, &is_new);
    if (known && !is_new) return known->value;
    sp_mpi_call group = *call, rest = *call;
    group.bytes = COUNT;
    group.peer = group.tag = -1;
    rest.bytes = rest.peer = rest.tag = -1;
    entry *shapes = entry_of(&group, &is_new);
    if (shapes && is_new) fill(shapes, &group, 0);
    if (shapes == NULL || shapes->value >= SP_MPI_SHAPES) {
        known = entry_of(&rest, &is_new);
        if (known && is_new) fill(known, &rest, make_region(&rest));
        return known ? known->value : SP_INVALID_REGION;
    }
    shapes->value++;
    const int region = make_region(call);
    if (region >= 0 && (known = entry_of(call, &is_new)) != NULL) fill(known, call, region);
    return region;
}

int sp_mpi_region_of(const sp_mpi_call *call)
{
    if (!sp_is_active()) return SP_INVALID_REGION;
    pthread_mutex_lock(&lock);
    const int region = region_with_lock(call);
    pthread_mutex_unlock(&lock);
    return region;
}

int sp_mpi_region(const char *operation, long long bytes, int peer, int root, int tag, MPI_Comm comm, const char *request)
{
    if (operation == NULL || strlen(operation) > 64 || (request && strlen(request) > 64)) return SP_INVALID_REGION;
    /* The texts are the caller's: the table must not keep them. They are interned as names of regions of no calls would be. */
    static char *kept[256];
    static size_t count;
    const char *texts[2] = {operation, request};
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 2 && texts[i]; i++) {
        size_t at = 0;
        while (at < count && strcmp(kept[at], texts[i]) != 0) at++;
        if (at == count && count < sizeof kept / sizeof *kept && (kept[at] = strdup(texts[i])) != NULL) count++;
        texts[i] = at < count ? kept[at] : NULL;
    }
    pthread_mutex_unlock(&lock);
    if (texts[0] == NULL) return SP_INVALID_REGION;
    return sp_mpi_region_of(&(sp_mpi_call){texts[0], texts[1], bytes, peer, root, tag, sp_mpi_number(comm)});
}

/* -- communicators: each carries its number -- */

typedef struct numbered {
    int number, children;
} numbered;

static int key = MPI_KEYVAL_INVALID;

static int drop(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    free(value);
    return MPI_SUCCESS;
}

static numbered *number_of(MPI_Comm comm)
{
    numbered *found = NULL;
    int there = 0;
    if (key == MPI_KEYVAL_INVALID || comm == MPI_COMM_NULL) return NULL;
    return PMPI_Comm_get_attr(comm, key, &found, &there) == MPI_SUCCESS && there ? found : NULL;
}

static bool give_number(MPI_Comm comm, int number)
{
    numbered *made = malloc(sizeof *made);
    if (made == NULL) return false;
    *made = (numbered){number, 0};
    if (PMPI_Comm_set_attr(comm, key, made) == MPI_SUCCESS) return true;
    free(made);
    return false;
}

bool sp_mpi_number_communicators(void)
{
    if (key != MPI_KEYVAL_INVALID) return true;
    if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, drop, &key, NULL) != MPI_SUCCESS) return false;
    return give_number(MPI_COMM_WORLD, 0) && give_number(MPI_COMM_SELF, 1);
}

int sp_mpi_number(MPI_Comm comm)
{
    const numbered *found = number_of(comm);
    return found ? found->number : -1;
}

void sp_mpi_number_child(MPI_Comm parent, MPI_Comm made)
{
    numbered *from = number_of(parent);
    if (from == NULL) return;
    pthread_mutex_lock(&lock);
    const int child = ++from->children;
    pthread_mutex_unlock(&lock);
    if (child > SP_MPI_CHILDREN || from->number < 0 || made == MPI_COMM_NULL) return;
    int number = child + 1;
    if (from->number != 0) {
        char way[40];
        const int length = snprintf(way, sizeof way, "%d.%d", from->number, child);
        number = (int)((crc32(crc32(0, NULL, 0), (const Bytef *)way, (uInt)length) & 0x7FFFFFFFu) | 1u << 30);
    }
    (void)give_number(made, number);
}

/* -- requests -- */

#define REQUESTS 4096u

static struct {
    MPI_Request request;
    sp_mpi_call call; /* operation NULL: none */
} requests[REQUESTS];

static size_t place_of(MPI_Request request)
{
    return (size_t)(((uint64_t)(uintptr_t)request * 0x9E3779B97F4A7C15u) >> 52) & (REQUESTS - 1);
}

void sp_mpi_keep_request(MPI_Request request, const sp_mpi_call *call)
{
    const size_t at = place_of(request);
    pthread_mutex_lock(&lock);
    requests[at].request = request;
    requests[at].call = *call;
    pthread_mutex_unlock(&lock);
}

bool sp_mpi_find_request(MPI_Request request, sp_mpi_call *call)
{
    const size_t at = place_of(request);
    pthread_mutex_lock(&lock);
    const bool found = requests[at].call.operation && requests[at].request == request;
    if (found) *call = requests[at].call;
    pthread_mutex_unlock(&lock);
    return found;
}
