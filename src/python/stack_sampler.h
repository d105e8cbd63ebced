/* stack_sampler.h - what threads do between regions: a thread that looks at them now and then. */
#ifndef SP_PYTHON_STACK_SAMPLER_H
#define SP_PYTHON_STACK_SAMPLER_H

#include "python/state.h"

/* The interpreter ends: no sampler may ask for it any more. */
void sp_samplers_stop(void);

int sp_python_add_stack_sampler(PyObject *module);

#endif
