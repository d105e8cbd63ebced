/*
 * native_trace.h - what the C and Fortran front ends of releases before 1.0 write, and ours still can: traces of calls
 * (.spt), of samples (.sps), and HDF5 files of one rank. docs/native-trace-format.md has the layouts.
 *
 * Calls of a .spt have no lane: they are one stack. A trace that is damaged is SP_ERR_CORRUPT, SP_ERR_FOREIGN or
 * SP_ERR_SCHEMA with a sentence that names the file; nothing of it is taken then.
 */
#ifndef SP_FORMATS_NATIVE_TRACE_H
#define SP_FORMATS_NATIVE_TRACE_H

#include "analysis/collection.h"
#include "analysis/profile.h"

#define SP_SPT_MAGIC "SCOPEPRF"
#define SP_SPT_VERSION 2
#define SP_SPS_MAGIC "SCOPESMP"
#define SP_SPS_VERSION 1

/*
 * The calls of one rank: a row for every region, in order of appearance; calls of a name that the file has twice go
 * together. Metadata: source, trace_format_version and, if there are calls, start_time_ns. The tree is not made. `rank` may
 * be NULL: without calls no row tells it.
 */
sp_status sp_spt_read(const char *path, sp_profile **out, uint32_t *rank, sp_error *error);
sp_status sp_spt_read_memory(const char *name, const void *data, size_t size, sp_profile **out, sp_error *error);

typedef struct sp_sample {
    int32_t region; /* the innermost open one, -1: none */
    int32_t module; /* that has the address, -1: none */
    uint64_t address;
} sp_sample;

typedef struct sp_samples {
    int32_t rank, hz;
    int64_t ticks; /* of the timer */
    char **regions;
    size_t region_count;
    char **modules;  /* paths */
    uint64_t *bases; /* where each was loaded */
    size_t module_count;
    sp_sample *samples;
    size_t sample_count;
} sp_samples;

sp_status sp_sps_read(const char *path, sp_samples *out, sp_error *error);
sp_status sp_sps_read_memory(const char *name, const void *data, size_t size, sp_samples *out, sp_error *error);
void sp_samples_free(sp_samples *samples);

/* Write them, put in place when the file is whole. */
sp_status sp_sps_write(const sp_samples *samples, const char *path, sp_error *error);

/*
 * The calls of a collection, which stays to be ended, as a trace of version 2. Memory is bounded, however many calls there are: each goes
 * to its place in the file. The collection's profile then has its statistics. `ready` (may be NULL) is called when the file is complete
 * and about to be renamed to `target`.
 */
sp_status sp_spt_write(sp_collection *collection, uint32_t rank, const char *path,
                       void (*ready)(void *context, int fd, const char *target), void *ready_context, sp_error *error);

/* Paths of files, malloc'ed. */
typedef struct sp_paths {
    char **paths;
    size_t count;
} sp_paths;
void sp_paths_free(sp_paths *paths);

/*
 * The native output that `inputs` name: files as they are, and of directories what is called *.spt or *_rank<digits>.h5, by
 * name. Each file once. SP_ERR_NOT_FOUND for an input that is not there, and for a directory without any.
 */
sp_status sp_traces_find(const char *const *inputs, size_t count, sp_paths *out, sp_error *error);

/*
 * Read these files, of any of the formats, as one profile. A rank may come from one file only (SP_ERR_INVALID names
 * both). `label` may be NULL. At least one file; SP_ERR_NOT_FOUND for none.
 */
sp_status sp_traces_load(const char *const *paths, size_t count, const char *label, sp_profile **out, sp_error *error);

#endif
