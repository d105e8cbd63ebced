/*
 * page_guard.h - memory that is mapped from a file, and stays memory when somebody cuts the file off or its disk fails.
 *
 * Touching such a page is SIGBUS, which ends the process. While anything is guarded there is a handler for it: a page of a guarded
 * range is replaced by memory of the process's own, with what can still be read of it, else with zeros, and whoever touched it goes on. Nothing
 * is called, counted or tested while all is well. Every other SIGBUS is passed to the handler that was there before, as the kernel would
 * have called it. With the last range our handler goes, if nobody has put another one over it.
 *
 * What it cannot help: a handler that the program installs later and that does not pass on what is not its own, and threads that block SIGBUS.
 */
#ifndef SP_PLATFORM_PAGE_GUARD_H
#define SP_PLATFORM_PAGE_GUARD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sp_page_guard sp_page_guard;

/* Makes the contents of a page that could not be read: `page` bytes of zeros at `fresh`, which will be at `at`. In a signal handler. */
typedef void (*sp_page_filler)(void *context, char *at, char *fresh, size_t page);

/*
 * Guard a range of whole pages. `*lost` counts pages that were replaced. `fill` may be NULL. NULL when there is no memory: the range is
 * as any other then.
 */
sp_page_guard *sp_page_guard_new(void *memory, size_t bytes, _Atomic(uint64_t) *lost, sp_page_filler fill, void *context);

/* Before the range is unmapped. NULL is allowed. */
void sp_page_guard_free(sp_page_guard *guard);

#endif
