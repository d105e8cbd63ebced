/* sps_read.c - .sps: where a rank's timer found it, by region. */
#include <stdlib.h>
#include <string.h>

#include "formats/native_trace.h"
#include "formats/trace_input.h"

void sp_samples_free(sp_samples *samples)
{
    for (size_t i = 0; i < samples->region_count; i++) free(samples->regions[i]);
    for (size_t i = 0; i < samples->module_count; i++) free(samples->modules[i]);
    free(samples->regions);
    free(samples->modules);
    free(samples->bases);
    free(samples->samples);
    *samples = (sp_samples){0};
}

static sp_status no_memory(const sp_trace_input *in)
{
    return sp_fail(in->error, SP_ERR_NO_MEMORY, "%s: out of memory", in->path);
}

static sp_status read_header(sp_trace_input *in, sp_samples *out)
{
    int32_t version;
    sp_status status = sp_trace_begin(in, SP_SPS_MAGIC, SP_SPS_VERSION, "a scope-profiler sample file", &version);
    if (status == SP_OK) status = sp_trace_int32(in, "its rank", &out->rank);
    if (status == SP_OK) status = sp_trace_int32(in, "its rate", &out->hz);
    if (status == SP_OK) status = sp_trace_int64(in, "its number of ticks", &out->ticks);
    if (status == SP_OK && (out->rank < 0 || out->hz < 0 || out->ticks < 0)) {
        status = sp_trace_damaged(in, "rank %d, %d samples a second, %lld ticks", (int)out->rank, (int)out->hz,
                                  (long long)out->ticks);
    }
    return status;
}

static sp_status read_regions(sp_trace_input *in, sp_samples *out)
{
    int32_t count;
    sp_status status = sp_trace_int32(in, "the number of regions", &count);
    if (status == SP_OK) status = sp_trace_check_count(in, "regions", count, sizeof(int32_t));
    if (status != SP_OK) return status;
    out->regions = calloc((size_t)count + 1, sizeof *out->regions);
    if (out->regions == NULL) return no_memory(in);
    while (status == SP_OK && out->region_count < (size_t)count) {
        status = sp_trace_text(in, "a region name", &out->regions[out->region_count]);
        if (status == SP_OK) out->region_count++;
    }
    return status;
}

static sp_status read_modules(sp_trace_input *in, sp_samples *out)
{
    int32_t count;
    sp_status status = sp_trace_int32(in, "the number of modules", &count);
    if (status == SP_OK) status = sp_trace_check_count(in, "modules", count, sizeof(int32_t) + sizeof(int64_t));
    if (status != SP_OK) return status;
    out->modules = calloc((size_t)count + 1, sizeof *out->modules);
    out->bases = calloc((size_t)count + 1, sizeof *out->bases);
    if (out->modules == NULL || out->bases == NULL) return no_memory(in);
    while (status == SP_OK && out->module_count < (size_t)count) {
        int64_t base = 0;
        status = sp_trace_text(in, "a module's path", &out->modules[out->module_count]);
        if (status != SP_OK) break;
        status = sp_trace_int64(in, "a module's address", &base);
        out->bases[out->module_count++] = (uint64_t)base;
    }
    return status;
}

static sp_status read_sample(sp_trace_input *in, const sp_samples *known, sp_sample *sample)
{
    int64_t address = 0;
    sp_status status = sp_trace_int32(in, "a sample", &sample->region);
    if (status == SP_OK) status = sp_trace_int32(in, "a sample", &sample->module);
    if (status == SP_OK) status = sp_trace_int64(in, "a sample", &address);
    sample->address = (uint64_t)address;
    if (status != SP_OK) return status;
    if (sample->region < -1 || sample->region >= (int64_t)known->region_count) {
        return sp_trace_damaged(in, "a sample of region %d of %zu", (int)sample->region, known->region_count);
    }
    if (sample->module < -1 || sample->module >= (int64_t)known->module_count) {
        return sp_trace_damaged(in, "a sample of module %d of %zu", (int)sample->module, known->module_count);
    }
    return SP_OK;
}

static sp_status read_samples(sp_trace_input *in, sp_samples *out)
{
    int64_t count;
    sp_status status = sp_trace_int64(in, "the number of samples", &count);
    if (status == SP_OK) status = sp_trace_check_count(in, "samples", count, sizeof(sp_sample));
    if (status != SP_OK) return status;
    out->samples = calloc((size_t)count + 1, sizeof *out->samples);
    if (out->samples == NULL) return no_memory(in);
    for (; status == SP_OK && out->sample_count < (size_t)count; out->sample_count++) {
        status = read_sample(in, out, &out->samples[out->sample_count]);
    }
    return status == SP_OK ? sp_trace_end(in) : status;
}

static sp_status read_all(sp_trace_input *in, sp_samples *out)
{
    *out = (sp_samples){0};
    sp_status status = read_header(in, out);
    if (status == SP_OK) status = read_regions(in, out);
    if (status == SP_OK) status = read_modules(in, out);
    if (status == SP_OK) status = read_samples(in, out);
    if (status != SP_OK) sp_samples_free(out);
    return status;
}

sp_status sp_sps_read(const char *path, sp_samples *out, sp_error *error)
{
    sp_trace_input in;
    *out = (sp_samples){0};
    sp_status status = sp_trace_open(&in, path, error);
    if (status == SP_OK) status = read_all(&in, out);
    sp_trace_close(&in);
    return status;
}

sp_status sp_sps_read_memory(const char *name, const void *data, size_t size, sp_samples *out, sp_error *error)
{
    sp_trace_input in;
    sp_trace_open_memory(&in, name, data, size, error);
    return read_all(&in, out);
}
