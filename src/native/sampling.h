/* sampling.h - where a program spends its processor time: samples of a timer's signal. */
#ifndef SP_NATIVE_SAMPLING_H
#define SP_NATIVE_SAMPLING_H

#include "native/profiler.h"

/* Write the samples taken for the profiler, if any, beside its output, and forget them. With its lock held. */
sp_status sp_native_write_samples(sp_profiler *profiler, sp_error *error);

/* Stop and forget, without writing. */
void sp_native_drop_samples(const sp_profiler *profiler);

#endif
