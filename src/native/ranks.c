#include "native/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "core/sort.h"
#include "formats/hdf5.h"
#include "formats/ranks.h"

static sp_status link_status(int outcome)
{
    return outcome >= 0 && outcome < SP_STATUS_END ? (sp_status)outcome : SP_ERR_IO;
}

static sp_status send_bytes(sp_comm *comm, int to, const void *data, size_t size, double seconds)
{
    sp_link *link = comm->context;
    return link_status(link->send(link, to, data, size, seconds));
}

static sp_status receive_bytes(sp_comm *comm, int from, void *data, size_t size, double seconds)
{
    sp_link *link = comm->context;
    return link_status(link->receive(link, from, data, size, seconds));
}

static sp_comm comm_of(sp_link *link)
{
    return (sp_comm){.rank = link->rank, .size = link->size, .patience = link->patience, .send = send_bytes,
                     .receive = receive_bytes, .context = link};
}

/* -- how many hosts -- */

typedef char host_name[sizeof((struct utsname *)NULL)->nodename];

static int compare_hosts(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(host_name));
}

static int count_hosts(sp_bytes *names)
{
    const size_t count = names->size / sizeof(host_name);
    int hosts = 0;
    sp_sort(names->data, count, sizeof(host_name), compare_hosts);
    for (size_t i = 0; i < count; i++) {
        const char *name = names->data + i * sizeof(host_name);
        hosts += i == 0 || compare_hosts(name - sizeof(host_name), name) != 0;
    }
    return hosts;
}

sp_status sp_native_meet(sp_link *link, sp_status own, sp_team *team, sp_error *error)
{
    sp_report report = {0};
    sp_bytes names = {0};
    struct utsname system = {0};
    team->comm = comm_of(link);
    uname(&system);
    if (own != SP_OK) sp_report_note(&report, &team->comm, own, error);
    if (!sp_bytes_add(&names, system.nodename, sizeof system.nodename)) {
        sp_report_note(&report, &team->comm, SP_ERR_NO_MEMORY, NULL);
    }
    sp_comm_gather(&team->comm, &report, &names, NULL, NULL);
    sp_comm_broadcast(&team->comm, &report, &names);
    team->hosts = count_hosts(&names);
    sp_bytes_free(&names);
    /* Ranks that are missing are met again when the file is written, which knows what to do. */
    return sp_report_may_go_on(&report) ? SP_OK : sp_report_fail(&report, error);
}

sp_status sp_native_write_ranks(sp_team *team, sp_collection *collection, const char *path, const sp_hdf5_options *options,
                                bool *written, sp_error *error)
{
    /* Afresh: who was missing at the meeting is waited for once more, and told to all if that was in vain. */
    team->comm.lost = 0;
    return sp_ranks_write_collection(&team->comm, collection, path, options, written, NULL, error);
}

char *sp_native_shared_path(const char *output)
{
    const char *end = strrchr(output, '_'); /* of "_rank00000" */
    const size_t length = end ? (size_t)(end - output) : strlen(output), room = length + sizeof ".h5";
    char *path = malloc(room);
    if (path) snprintf(path, room, "%.*s.h5", (int)length, output);
    return path;
}
