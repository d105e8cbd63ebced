/*
 * stack.h - Python code called from C nests as deep as Python code called from Python.
 *
 * A decorated function is one frame for the recursion limit, as before; but each of its calls passes through C. Up to 3.11
 * nothing bounds that but the recursion limit, which programs raise since it costs no C stack otherwise: the check here
 * turns the overflow into RecursionError. 3.12 counts C levels, and would end a decorated recursion at 750 of the default
 * 1000: there the level is given back, since the check guards the stack better than the count.
 */
#ifndef SP_PYTHON_STACK_H
#define SP_PYTHON_STACK_H

#include "python/state.h"

#include <stdbool.h>

#include "core/hot.h"

/* Below this address the stack is nearly full. UINTPTR_MAX until the thread's first look. */
#if defined(__GLIBC__)
extern _Thread_local uintptr_t sp_stack_mark __attribute__((tls_model("initial-exec")));
#else
extern _Thread_local uintptr_t sp_stack_mark;
#endif

/* Look up the thread's stack if need be. Whether there is room; RecursionError is set if not. */
SP_NOINLINE bool sp_stack_look(uintptr_t here);

/* An address in the calling function's frame. __builtin_frame_address would have each such function keep a frame pointer. */
static inline __attribute__((always_inline)) uintptr_t sp_stack_here(void)
{
#if defined(__x86_64__)
    uintptr_t here;
    __asm__("mov %%rsp, %0" : "=r"(here));
    return here;
#else
    return (uintptr_t)__builtin_frame_address(0);
#endif
}

/* Whether sp_stack_look has something to say. */
static inline __attribute__((always_inline)) bool sp_stack_is_low(void)
{
    return sp_stack_here() < sp_stack_mark;
}

static inline __attribute__((always_inline)) bool sp_stack_has_room(void)
{
    /* Not with ||: the compiler would take all that follows for as rare as a full stack, and put it elsewhere. */
    if (SP_UNLIKELY(sp_stack_is_low())) return sp_stack_look(sp_stack_here());
    return true;
}

#if PY_VERSION_HEX >= 0x030c0000 && PY_VERSION_HEX < 0x030d0000
#define SP_C_LEVELS 2 /* of one frame entered from C */
static inline PyThreadState *sp_levels_give(void)
{
    PyThreadState *thread = PyThreadState_Get();
    thread->c_recursion_remaining += SP_C_LEVELS;
    return thread;
}
static inline void sp_levels_take(PyThreadState *thread)
{
    thread->c_recursion_remaining -= SP_C_LEVELS;
}
#else
static inline PyThreadState *sp_levels_give(void)
{
    return NULL;
}
static inline void sp_levels_take(PyThreadState *thread)
{
}
#endif

#endif
