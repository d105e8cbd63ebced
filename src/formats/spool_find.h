/* spool_find.h - which spools the processes of this machine record into, from what the kernel says about them. */
#ifndef SP_FORMATS_SPOOL_FIND_H
#define SP_FORMATS_SPOOL_FIND_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

/* The newest spool that a process has mapped, malloc'ed. SP_ERR_NOT_FOUND: there is no such process, or it records into none. */
sp_status sp_spool_of_process(int64_t pid, char **path, sp_error *error);

/* A process that was started by another one, directly or not, and the spool that it made. */
typedef struct sp_recording_child {
    int64_t pid;
    char *spool; /* malloc'ed */
} sp_recording_child;

/* Those of a process, in the order of their ids; `*list` is malloc'ed. How many: what cannot be looked at is left out. */
size_t sp_recording_children(int64_t pid, sp_recording_child **list);

void sp_recording_children_free(sp_recording_child *list, size_t count); /* NULL is allowed */

#endif
