/*
 * file_replace.h - a file that is either the old one or the whole new one, whatever happens in between.
 *
 * The new content is written to a temporary file in the target's directory, which has no name where the file system allows that,
 * so that a process which is killed leaves nothing behind, except between the two system calls that put it over an older file;
 * commit makes it durable (fsync), renames it over the target and makes the directory durable. A symbolic link at the path is
 * kept: what it points to is replaced.
 * The one exception is a link that somebody else planted in a directory everybody may write to (sticky, like /tmp): it is
 * replaced itself, so that nobody can choose which file we overwrite. An existing file's permissions are kept, and its owner
 * where we may; a new file gets what the umask leaves.
 */
#ifndef SP_FORMATS_FILE_REPLACE_H
#define SP_FORMATS_FILE_REPLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"

typedef struct sp_replacement {
    char *target;    /* what will be replaced: the path with its last component's links resolved */
    int fd;          /* write here: a temporary with the final permissions, open for reading and writing */
    char *temporary; /* its name; NULL: it has none */
    const char *path; /* as the caller named it, for messages; not owned */
    bool unsynced;    /* set after begin: what can be made again need not wait for the disk */
} sp_replacement;

/* Make the temporary. On failure nothing is left behind and the structure needs no abort. */
sp_status sp_replace_begin(sp_replacement *replacement, const char *path, sp_error *error);

/* Give the temporary a name, for others who are to open it. On failure an abort is needed. */
sp_status sp_replace_name(sp_replacement *replacement, sp_error *error);

/* Put it in place. On failure the temporary is removed and the target is as it was. */
sp_status sp_replace_commit(sp_replacement *replacement, sp_error *error);

/* Remove the temporary. */
void sp_replace_abort(sp_replacement *replacement);

/* Whether at `path` is a link that somebody else may have planted, and that is not followed for that. */
bool sp_replace_is_planted(const char *path);

/* Whether begin would succeed now, without making anything: the directory is there and may be written, the path is not a
 * directory or a device. */
sp_status sp_replace_check(const char *path, sp_error *error);

#endif
