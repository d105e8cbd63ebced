/* stack.c - see stack.h. */
#include "python/stack.h"

#include "platform/platform.h"

_Thread_local uintptr_t sp_stack_mark = UINTPTR_MAX;

/* Kept free for C code that nests without looking, as CPython's own does: an eighth of 8 MB is 1 MB. */
#define RESERVED_FRACTION 8

static _Thread_local uintptr_t stack_floor;

bool sp_stack_look(uintptr_t here)
{
    if (sp_stack_mark == UINTPTR_MAX) {
        stack_floor = sp_platform_stack_floor();
        sp_stack_mark = stack_floor && stack_floor < here ? stack_floor + (here - stack_floor) / RESERVED_FRACTION : 0;
        if (here >= sp_stack_mark) return true;
    }
    /* Further down is another stack altogether, of a library that switches stacks. */
    if (here < stack_floor) return true;
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded while calling a profiled function");
    return false;
}
