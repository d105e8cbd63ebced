#include "native/rendezvous.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/grow.h"

typedef struct modules {
    char **names;
    size_t count, size;
} modules;

static int note_module(struct dl_phdr_info *info, size_t size, void *with)
{
    modules *found = with;
    (void)size;
    if (!sp_grow(&found->names, &found->size, found->count, sizeof *found->names, 64)) return 1;
    found->names[found->count] = strdup(info->dlpi_name ? info->dlpi_name : "");
    return found->names[found->count++] == NULL;
}

/* The host that a module exports itself, or NULL. dlsym also looks into what the module needs, so the answer may repeat. */
static const sp_host *host_of(const char *name)
{
    /* The program itself has no name. */
    void *module = dlopen(*name ? name : NULL, RTLD_LAZY | RTLD_NOLOAD);
    if (module == NULL) return NULL;
    const sp_host *host = dlsym(module, "sp_host_v1");
    dlclose(module);
    return host && host->version == SP_HOST_VERSION ? host : NULL;
}

/* Whatever takes a host returns true to stop there. */
static void each_host(bool (*take)(const sp_host *host, void *with), void *with)
{
    modules found = {0};
    /* Names first: a callback must not open modules. */
    dl_iterate_phdr(note_module, &found);
    bool stop = false;
    for (size_t i = 0; i < found.count && !stop; i++) {
        const sp_host *host = found.names[i] ? host_of(found.names[i]) : NULL;
        stop = host && take(host, with);
    }
    for (size_t i = 0; i < found.count; i++) free(found.names[i]);
    free(found.names);
}

static bool keep_best(const sp_host *host, void *with)
{
    const sp_host **best = with;
    if (*best == NULL || host->rank > (*best)->rank) *best = host;
    return false;
}

const sp_host *sp_native_find_host(const sp_host *own)
{
    const sp_host *best = NULL;
    each_host(keep_best, &best);
    return best && best->rank >= own->rank ? best : own;
}

static bool tell(const sp_host *host, void *with)
{
    const sp_host *own = with;
    if (host != own && host->attach) (void)host->attach(own);
    return false;
}

void sp_native_announce(const sp_host *own)
{
    each_host(tell, (void *)(uintptr_t)own);
}
