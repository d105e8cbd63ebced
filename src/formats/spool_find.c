#include "formats/spool_find.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/grow.h"
#include "core/sort.h"
#include "formats/spool.h"

#define MOST_CHILDREN 4096

/* In a list of mappings the kernel writes a newline of a path as \012, and a backslash as itself. */
static void put_newlines_back(char *path)
{
    char *to = path;
    for (const char *from = path; *from; to++) {
        const bool newline = strncmp(from, "\\012", 4) == 0;
        *to = newline ? '\n' : *from;
        from += newline ? 4 : 1;
    }
    *to = '\0';
}

/* The spool in a line of such a list; NULL: it is about something else. */
static char *spool_in(char *line, struct stat *status)
{
    char *file = strchr(line, '/');
    if (file == NULL) return NULL;
    file[strcspn(file, "\n")] = '\0';
    const size_t size = strlen(file);
    if (size < 6 || strcmp(file + size - 6, ".spool") != 0) return NULL;
    if (stat(file, status) == 0) return file;
    put_newlines_back(file);
    return stat(file, status) == 0 ? file : NULL;
}

/* A forked child has what its parent had mapped. */
static bool was_made_by(const char *spool, int64_t pid)
{
    sp_spool_info info;
    return sp_spool_inspect(spool, &info, NULL) == SP_OK && info.pid == pid;
}

/* The newest; NULL with errno: the list cannot be read, or 0. */
static char *newest_spool(int64_t pid, bool own)
{
    char path[64], *line = NULL, *best = NULL;
    size_t room = 0;
    struct timespec newest = {0};
    snprintf(path, sizeof path, "/proc/%lld/maps", (long long)pid);
    FILE *maps = fopen(path, "re");
    if (maps == NULL) return NULL;
    while (getline(&line, &room, maps) > 0) {
        struct stat status;
        const char *file = spool_in(line, &status);
        if (file == NULL || (best && strcmp(file, best) == 0)) continue;
        const bool newer = status.st_mtim.tv_sec > newest.tv_sec ||
                           (status.st_mtim.tv_sec == newest.tv_sec && status.st_mtim.tv_nsec > newest.tv_nsec);
        if ((best && !newer) || (own && !was_made_by(file, pid))) continue;
        free(best);
        best = strdup(file);
        newest = status.st_mtim;
    }
    free(line);
    fclose(maps);
    errno = 0;
    return best;
}

/* ---- children ---- */

typedef struct processes {
    int64_t *ids;
    size_t count, room;
} processes;

static void add_process(processes *all, int64_t pid)
{
    if (all->count == MOST_CHILDREN) return;
    if (!sp_grow(&all->ids, &all->room, all->count, sizeof *all->ids, 16)) return;
    all->ids[all->count++] = pid;
}

/* What a thread of a process has started. */
static void add_children_of_thread(processes *all, int64_t pid, const char *thread)
{
    char path[96];
    long long child;
    snprintf(path, sizeof path, "/proc/%lld/task/%.20s/children", (long long)pid, thread);
    FILE *file = fopen(path, "re");
    if (file == NULL) return;
    while (fscanf(file, "%lld", &child) == 1) add_process(all, child);
    fclose(file);
}

static void add_children(processes *all, int64_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/task", (long long)pid);
    DIR *threads = opendir(path);
    if (threads == NULL) return;
    for (const struct dirent *entry; (entry = readdir(threads)) != NULL;) {
        if (entry->d_name[0] != '.') add_children_of_thread(all, pid, entry->d_name);
    }
    closedir(threads);
}

static int by_pid(const void *left, const void *right)
{
    const int64_t a = ((const sp_recording_child *)left)->pid, b = ((const sp_recording_child *)right)->pid;
    return (a > b) - (a < b);
}

size_t sp_recording_children(int64_t pid, sp_recording_child **list)
{
    processes all = {0};
    *list = NULL;
    add_children(&all, pid);
    for (size_t i = 0; i < all.count; i++) add_children(&all, all.ids[i]);
    sp_recording_child *found = all.count ? malloc(all.count * sizeof *found) : NULL;
    size_t count = 0;
    for (size_t i = 0; found && i < all.count; i++) {
        char *spool = newest_spool(all.ids[i], true);
        if (spool) found[count++] = (sp_recording_child){all.ids[i], spool};
    }
    free(all.ids);
    if (count) sp_sort(found, count, sizeof *found, by_pid);
    *list = found;
    return count;
}

void sp_recording_children_free(sp_recording_child *list, size_t count)
{
    for (size_t i = 0; i < count; i++) free(list[i].spool);
    free(list);
}

/* ---- a process ---- */

/* Where a process records into none, but others that it started do: who, in a few words. */
static sp_status tell_children(int64_t pid, sp_error *error)
{
    sp_recording_child *children;
    const size_t count = sp_recording_children(pid, &children);
    char text[128] = "";
    for (size_t i = 0, used = 0; i < count && i < 5; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld", i ? ", " : "", (long long)children[i].pid);
    }
    sp_recording_children_free(children, count);
    if (count == 0) return sp_fail(error, SP_ERR_NOT_FOUND, "process %lld records into no spool", (long long)pid);
    return sp_fail(error, SP_ERR_NOT_FOUND, "process %lld records into no spool, but what it started does: %s%s", (long long)pid, text,
                   count > 5 ? ", ..." : "");
}

sp_status sp_spool_of_process(int64_t pid, char **path, sp_error *error)
{
    *path = newest_spool(pid, false);
    if (*path) return SP_OK;
    if (errno == ENOENT || errno == ESRCH) return sp_fail(error, SP_ERR_NOT_FOUND, "there is no process %lld", (long long)pid);
    if (errno) return sp_fail_errno(error, SP_ERR_IO, "process %lld", (long long)pid);
    return tell_children(pid, error);
}
