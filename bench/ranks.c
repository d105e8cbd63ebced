/*
 * ranks.c RANKS REGIONS CALLS OUTPUT: what it costs to write one file of many ranks. Each rank is a process with made-up calls
 * (CALLS of them, spread over REGIONS); messages go through sockets in the place of MPI. One line of JSON: seconds from the
 * moment all ranks are ready to the last one's return; growth of memory and processor seconds of rank 0, and the most of any
 * other; bytes of the file. On a machine with fewer processors than ranks the seconds are the processors' work, not a cluster's.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "formats/ranks.h"

#define PIECE ((size_t)64 << 10)

/* A datagram that came before it was asked for. */
typedef struct stashed {
    struct stashed *next;
    int from;
    size_t size, at;
    char data[];
} stashed;

typedef struct post {
    int fd;
    stashed *first, **last;
} post;

typedef struct datagram {
    int32_t from;
    char data[PIECE];
} datagram;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static socklen_t address(struct sockaddr_un *out, int world, int rank)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int size = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "scope-profiler-%d-%d", world, rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size);
}

static int world;

/* Take what has arrived, so that nobody who sends to us waits for long. */
static bool take(post *p, int timeout)
{
    static datagram got;
    struct pollfd ready = {.fd = p->fd, .events = POLLIN};
    if (poll(&ready, 1, timeout) <= 0) return false;
    const ssize_t size = recv(p->fd, &got, sizeof got, MSG_DONTWAIT);
    if (size < (ssize_t)sizeof got.from) return false;
    stashed *kept = malloc(sizeof *kept + (size_t)size);
    if (kept == NULL) abort();
    *kept = (stashed){.from = got.from, .size = (size_t)size - sizeof got.from};
    memcpy(kept->data, got.data, kept->size);
    *p->last = kept;
    p->last = &kept->next;
    return true;
}

static sp_status socket_send(sp_comm *comm, int to, const void *data, size_t size, double seconds)
{
    static datagram out;
    post *p = comm->context;
    struct sockaddr_un where;
    const socklen_t length = address(&where, world, to);
    const double until = now() + seconds;
    for (size_t at = 0; at < size;) {
        const size_t piece = size - at < PIECE ? size - at : PIECE;
        out.from = comm->rank;
        memcpy(out.data, (const char *)data + at, piece);
        if (sendto(p->fd, &out, sizeof out.from + piece, MSG_DONTWAIT, (struct sockaddr *)&where, length) >= 0) {
            at += piece;
        } else if (errno != EAGAIN && errno != ENOBUFS) {
            return SP_ERR_IO;
        } else if (now() > until) {
            return SP_ERR_BUSY;
        } else if (!take(p, 1)) {
            continue;
        }
    }
    return SP_OK;
}

static sp_status socket_receive(sp_comm *comm, int from, void *data, size_t size, double seconds)
{
    post *p = comm->context;
    const double until = now() + seconds;
    for (size_t at = 0; at < size;) {
        stashed **link = &p->first;
        while (*link && (*link)->from != from) link = &(*link)->next;
        stashed *found = *link;
        if (found == NULL) {
            if (!take(p, 100) && now() > until) return SP_ERR_BUSY;
            continue;
        }
        const size_t left = found->size - found->at, piece = left < size - at ? left : size - at;
        memcpy((char *)data + at, found->data + found->at, piece);
        at += piece;
        found->at += piece;
        if (found->at < found->size) continue;
        *link = found->next;
        if (found->next == NULL) p->last = link;
        free(found);
    }
    return SP_OK;
}

static sp_profile *make_profile(int rank, int regions, uint64_t calls)
{
    sp_profile *p = sp_profile_new();
    const uint64_t each = calls / (uint64_t)regions;
    p->row_count = p->name_count = (size_t)regions;
    p->names = calloc((size_t)regions, sizeof *p->names);
    p->rows = calloc((size_t)regions, sizeof *p->rows);
    p->call_count = each * (uint64_t)regions;
    for (int i = 0; i < regions; i++) {
        char name[32];
        snprintf(name, sizeof name, "region %d", i);
        p->names[i] = strdup(name);
        p->rows[i] = (sp_row){.name = (uint32_t)i, .rank = (uint32_t)rank, .first = (uint64_t)i * each, .count = each,
                              .source_line = SP_UNKNOWN};
    }
    uint64_t random = 88172645463325252u + (uint64_t)rank;
    for (int c = 0; c <= SP_COLUMN_PARENT_ID; c++) p->columns[c] = sp_column_alloc(p->call_count);
    int64_t time = 1000000;
    for (uint64_t i = 0; i < p->call_count; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        const int64_t length = 100 + (int64_t)(random % 1000);
        p->columns[SP_COLUMN_START][i] = time;
        p->columns[SP_COLUMN_END][i] = time + length;
        p->columns[SP_COLUMN_CALL_ID][i] = (int64_t)i;
        p->columns[SP_COLUMN_PARENT_ID][i] = -1;
        time += length + 50;
    }
    return p;
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static long peak_kb(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_maxrss;
}

typedef struct board {
    _Atomic int ready, go;
    double begin;
    struct {
        double end, cpu;
        long before_kb, after_kb;
        int status;
    } ranks[];
} board;

static void live(board *b, int rank, int size, int regions, uint64_t calls, const char *path)
{
    post p = {.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_un where;
    const socklen_t length = address(&where, world, rank);
    p.last = &p.first;
    if (p.fd < 0 || bind(p.fd, (struct sockaddr *)&where, length) < 0) _exit(1);
    sp_comm comm = {.rank = rank, .size = size, .patience = 300, .send = socket_send, .receive = socket_receive, .context = &p};
    sp_profile *profile = make_profile(rank, regions, calls);
    bool written;
    sp_error error;
    b->ready++;
    while (!b->go) usleep(1000);
    b->ranks[rank].before_kb = peak_kb();
    const double cpu = cpu_seconds();
    b->ranks[rank].status = sp_ranks_write(&comm, profile, path, NULL, &written, NULL, &error);
    b->ranks[rank].end = now();
    b->ranks[rank].cpu = cpu_seconds() - cpu;
    b->ranks[rank].after_kb = peak_kb();
    if (b->ranks[rank].status != SP_OK) fprintf(stderr, "rank %d: %s\n", rank, error.message);
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc != 5) return 2;
    const int size = atoi(argv[1]), regions = atoi(argv[2]);
    const uint64_t calls = strtoull(argv[3], NULL, 10);
    const size_t room = sizeof(board) + (size_t)size * sizeof(((board *)0)->ranks[0]);
    board *b = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED || size < 1 || regions < 1) return 1;
    world = (int)getpid();
    for (int rank = 0; rank < size; rank++) {
        const pid_t child = fork();
        if (child < 0) return 1;
        if (child == 0) live(b, rank, size, regions, calls, argv[4]);
    }
    while (b->ready < size) usleep(1000);
    b->begin = now();
    b->go = 1;
    int status, failed = 0;
    while (wait(&status) > 0) failed |= status;
    double last = 0, cpu = 0;
    long others = 0;
    for (int rank = 0; rank < size; rank++) {
        failed |= b->ranks[rank].status;
        if (b->ranks[rank].end > last) last = b->ranks[rank].end;
        const long grown = b->ranks[rank].after_kb - b->ranks[rank].before_kb;
        if (rank && grown > others) others = grown;
        if (rank && b->ranks[rank].cpu > cpu) cpu = b->ranks[rank].cpu;
    }
    struct stat facts = {0};
    stat(argv[4], &facts);
    printf("{\"ranks\": %d, \"seconds\": %.4f, \"root_cpu\": %.4f, \"others_cpu\": %.4f, \"root_kb\": %ld, \"others_kb\": %ld, "
           "\"bytes\": %lld}\n",
           size, last - b->begin, b->ranks[0].cpu, cpu, b->ranks[0].after_kb - b->ranks[0].before_kb, others,
           (long long)facts.st_size);
    return failed != 0;
}
