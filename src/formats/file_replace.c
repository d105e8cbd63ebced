#include "formats/file_replace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "formats/file_bytes.h"

#define LINKS_MAX 40 /* as the kernel */

static sp_status cannot_write(sp_error *error, const char *path)
{
    if (errno == ESPIPE) { /* of check_target */
        const sp_status status = sp_fail(error, SP_ERR_IO, "cannot write %s: it is not a regular file", path);
        if (error) error->system = EINVAL;
        return status;
    }
    return sp_fail_errno(error, SP_ERR_IO, "cannot write %s", path);
}

/* The directory of `path` as a malloc'ed path that can be opened. */
static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* directory + "/" + name, malloc'ed. */
static char *join(const char *directory, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", directory, name) < 0) return NULL;
    return path;
}

/* Whether the link or file may have been planted for us: the rule of Linux's protected_symlinks, which may be off. */
static bool planted(const char *directory, const struct stat *entry)
{
    struct stat parent;
    if (stat(directory, &parent) < 0) return false;
    const bool shared = (parent.st_mode & S_ISVTX) && (parent.st_mode & S_IWOTH);
    return shared && entry->st_uid != geteuid() && entry->st_uid != parent.st_uid;
}

bool sp_replace_is_planted(const char *path)
{
    struct stat entry;
    if (lstat(path, &entry) < 0 || !S_ISLNK(entry.st_mode)) return false;
    char *directory = directory_of(path);
    const bool result = directory == NULL || planted(directory, &entry);
    free(directory);
    return result;
}

/* What the link at `path` points to, relative to the link's directory; malloc'ed. NULL with errno. */
static char *link_target(const char *directory, const char *path)
{
    char text[PATH_MAX];
    const ssize_t size = readlink(path, text, sizeof text - 1);
    if (size < 0) return NULL;
    text[size] = '\0';
    return text[0] == '/' ? strdup(text) : join(directory, text);
}

/* The path of the file to replace: `path`, or where the links at its last component lead. NULL with errno. */
static char *resolve(const char *path)
{
    char *target = strdup(path);
    for (int links = 0; target; links++) {
        struct stat status;
        if (lstat(target, &status) < 0) {
            if (errno == ENOENT) return target; /* a new file, if its directory exists */
            break;
        }
        if (!S_ISLNK(status.st_mode)) return target;
        if (links == LINKS_MAX) {
            errno = ELOOP;
            break;
        }
        char *directory = directory_of(target);
        if (directory && planted(directory, &status)) {
            free(directory);
            return target;
        }
        char *next = directory ? link_target(directory, target) : NULL;
        free(directory);
        if (next == NULL) break;
        free(target);
        target = next;
    }
    const int problem = target ? errno : ENOMEM;
    free(target);
    errno = problem;
    return NULL;
}

/* 0 if `target` can be replaced: a regular file, a (planted) link or nothing. Its status is in `old` when it exists. */
static int check_target(const char *target, struct stat *old, bool *exists)
{
    *exists = lstat(target, old) == 0;
    if (!*exists) return errno == ENOENT ? 0 : -1;
    if (S_ISDIR(old->st_mode)) errno = EISDIR;
    else if (!S_ISREG(old->st_mode) && !S_ISLNK(old->st_mode)) errno = ESPIPE; /* never rename over a device */
    else return 0;
    return -1;
}

/* ".name.xxxxxxxxxxxxxxxx.tmp" in the target's directory; a long name is cut so that it still fits. */
static char *temporary_name(const char *target)
{
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        random = ((uint64_t)getpid() << 32) ^ (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 30;
    }
    char *directory = directory_of(target), *path = NULL;
    if (directory == NULL) return NULL;
    if (asprintf(&path, "%s/.%.200s.%016llx.tmp", directory, base_of(target), (unsigned long long)random) < 0) {
        path = NULL;
    }
    free(directory);
    return path;
}

/* Whether the file there is one whose permissions and owner count: not if somebody else put it into a shared directory, to
 * become the owner of what we write. */
static bool keeps_permissions(const char *target, const struct stat *old)
{
    char *directory = S_ISREG(old->st_mode) ? directory_of(target) : NULL;
    const bool keeps = directory && !planted(directory, old);
    free(directory);
    return keeps;
}

/* Give the temporary the permissions of the file it replaces. A foreign owner is kept if we may (root), else ignored. */
static int keep_permissions(int fd, const struct stat *old)
{
    struct stat fresh;
    if (fstat(fd, &fresh) < 0) return -1;
    if (old->st_uid != fresh.st_uid || old->st_gid != fresh.st_gid) {
        const int ignored = fchown(fd, old->st_uid, old->st_gid);
        (void)ignored;
    }
    return fchmod(fd, old->st_mode & 0777);
}

/* -- a file that has no name yet: who is killed while it is written leaves nothing behind -- */

/* Open a file in the target's directory. -1 where the file system or the kernel have none without a name. */
static int open_nameless(const char *target, mode_t mode)
{
    char *directory = access("/proc/self/fd", X_OK) == 0 ? directory_of(target) : NULL; /* to give it a name later */
    const int fd = directory ? sp_file_not_standard(open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, mode)) : -1;
    free(directory);
    return fd;
}

/* -1 with errno; EEXIST: the name is taken. */
static int link_as(const sp_replacement *replacement, const char *name)
{
    char self[40];
    snprintf(self, sizeof self, "/proc/self/fd/%d", replacement->fd);
    return linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW);
}

/* Open a temporary with a name. */
static int open_named(sp_replacement *replacement, mode_t mode)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        char *name = temporary_name(replacement->target);
        int fd = name ? open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode) : -1;
        if (fd >= 0 && (fd = sp_file_not_standard(fd)) < 0) unlink(name);
        if (fd >= 0) {
            replacement->temporary = name;
            return fd;
        }
        const int problem = errno;
        free(name);
        errno = problem;
        if (problem != EEXIST) break;
    }
    return -1;
}

static int copy_all(int from, int to)
{
    char bytes[64 << 10];
    for (off_t at = 0;;) {
        const ssize_t got = pread(from, bytes, sizeof bytes, at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return (int)got;
        if (sp_file_write(to, bytes, (size_t)got, (uint64_t)at) < 0) return -1;
        at += got;
    }
}

/* Have the disk hold what is written, where that is waited for. Some file systems cannot: that is not an error. */
static int sync_content(const sp_replacement *replacement)
{
    return replacement->unsynced || fsync(replacement->fd) == 0 || errno == EINVAL ? 0 : -1;
}

/* Where a file without a name can be made, but not be given one: a second file, with a name from the beginning. */
static int copy_to_named(sp_replacement *replacement)
{
    struct stat facts;
    if (fstat(replacement->fd, &facts) < 0) return -1;
    const int fd = open_named(replacement, 0600);
    if (fd < 0) return -1;
    const int nameless = replacement->fd;
    replacement->fd = fd;
    const int result = copy_all(nameless, fd) < 0 || keep_permissions(fd, &facts) < 0 || sync_content(replacement) < 0 ? -1 : 0;
    const int problem = errno;
    close(nameless);
    errno = problem;
    return result;
}

static int give_name(sp_replacement *replacement)
{
    for (int attempt = 0; replacement->temporary == NULL && attempt < 100; attempt++) {
        char *name = temporary_name(replacement->target);
        if (name == NULL) return -1;
        if (link_as(replacement, name) == 0) {
            replacement->temporary = name;
            return 0;
        }
        const int problem = errno;
        free(name);
        errno = problem;
        if (problem != EEXIST) return copy_to_named(replacement);
    }
    return replacement->temporary ? 0 : -1;
}

sp_status sp_replace_name(sp_replacement *replacement, sp_error *error)
{
    return give_name(replacement) == 0 ? SP_OK : cannot_write(error, replacement->path);
}

sp_status sp_replace_begin(sp_replacement *replacement, const char *path, sp_error *error)
{
    struct stat old;
    bool exists;
    *replacement = (sp_replacement){.fd = -1, .path = path};
    if (*path == '\0') {
        errno = ENOENT;
        return sp_fail_errno(error, SP_ERR_IO, "cannot write a file without a name");
    }
    replacement->target = resolve(path);
    if (replacement->target == NULL || check_target(replacement->target, &old, &exists) < 0) goto failed;
    const bool keeps = exists && keeps_permissions(replacement->target, &old);
    /* 0666: the kernel takes the umask off; asking for the umask would be a race with other threads. Where permissions are
     * kept, nobody may open the new file before it has them. */
    const mode_t mode = keeps ? 0600 : 0666;
    replacement->fd = open_nameless(replacement->target, mode);
    if (replacement->fd < 0) replacement->fd = open_named(replacement, mode);
    if (replacement->fd < 0) goto failed;
    if (keeps && keep_permissions(replacement->fd, &old) < 0) goto failed;
    return SP_OK;
failed:
    cannot_write(error, path);
    sp_replace_abort(replacement);
    return SP_ERR_IO;
}

/* Open the directory that is to be made durable. False with errno; *fd -1: it may be written but not read. */
static bool open_directory(const char *target, int *fd)
{
    char *directory = directory_of(target);
    if (directory == NULL) return false;
    *fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(directory);
    return *fd >= 0 || errno == EACCES;
}

/* Some file systems cannot sync a directory: that is not an error. */
static int sync_directory(int fd)
{
    return fd >= 0 && fsync(fd) < 0 && errno != EINVAL && errno != ENOTSUP ? -1 : 0;
}

static int put_in_place(sp_replacement *replacement)
{
    if (replacement->temporary == NULL) {
        if (link_as(replacement, replacement->target) == 0) return 0; /* there was none before */
        if (give_name(replacement) < 0) return -1;
    }
    if (rename(replacement->temporary, replacement->target) < 0) return -1;
    free(replacement->temporary);
    replacement->temporary = NULL;
    return 0;
}

sp_status sp_replace_commit(sp_replacement *replacement, sp_error *error)
{
    int directory = -1; /* opened before anything is replaced, so that this cannot fail behind it */
    if (!replacement->unsynced && !open_directory(replacement->target, &directory)) goto failed;
    if (sync_content(replacement) < 0) goto failed;
    if (put_in_place(replacement) < 0 || sync_directory(directory) < 0) goto failed;
    if (directory >= 0) close(directory);
    sp_replace_abort(replacement);
    return SP_OK;
failed:
    cannot_write(error, replacement->path);
    if (directory >= 0) close(directory);
    sp_replace_abort(replacement);
    return SP_ERR_IO;
}

void sp_replace_abort(sp_replacement *replacement)
{
    if (replacement->temporary) unlink(replacement->temporary);
    if (replacement->fd >= 0) close(replacement->fd);
    free(replacement->temporary);
    free(replacement->target);
    *replacement = (sp_replacement){.fd = -1};
}

sp_status sp_replace_check(const char *path, sp_error *error)
{
    struct stat old;
    bool exists;
    char *target = *path ? resolve(path) : NULL, *directory = NULL;
    if (*path == '\0') errno = ENOENT;
    bool fine = target && check_target(target, &old, &exists) == 0;
    if (fine) {
        directory = directory_of(target);
        fine = directory && access(directory, W_OK | X_OK) == 0;
    }
    if (!fine) cannot_write(error, path);
    free(target);
    free(directory);
    return fine ? SP_OK : SP_ERR_IO;
}
