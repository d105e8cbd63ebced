/*
 * rendezvous.h - how the copies of the library in a process find each other: every module that exports `sp_host_v1` is one,
 * whatever scope it was loaded into. (Promoting the module of the host to the global scope would promote the libraries it
 * needs with it, and another libhdf5 of the process would be mixed up with ours.)
 */
#ifndef SP_NATIVE_RENDEZVOUS_H
#define SP_NATIVE_RENDEZVOUS_H

#include "scope_profiler.h"

/* The host to join: of those with the highest rank the one that was loaded first. `own` is one of them in any case. */
const sp_host *sp_native_find_host(const sp_host *own);

/* Tell every other copy that is loaded now to join this host. */
void sp_native_announce(const sp_host *own);

#endif
