/* trace_write.c - the files of native programs, as they are written here. */
#include "formats/native_trace.h"
#include "formats/output.h"

static void put_int32(sp_output *out, int32_t value)
{
    sp_output_bytes(out, &value, sizeof value);
}

static void put_int64(sp_output *out, int64_t value)
{
    sp_output_bytes(out, &value, sizeof value);
}

static void put_text(sp_output *out, const char *text)
{
    const size_t size = strlen(text);
    put_int32(out, (int32_t)size);
    sp_output_bytes(out, text, size);
}

static void put_region(sp_output *out, const sp_profile *profile, const sp_row *row)
{
    const size_t bytes = (size_t)row->count * sizeof(int64_t);
    put_text(out, profile->names[row->name]);
    put_text(out, row->source_file ? row->source_file : "");
    put_int32(out, row->source_file && row->source_line >= 0 ? (int32_t)row->source_line : -1);
    put_int64(out, (int64_t)row->count);
    sp_output_bytes(out, profile->columns[SP_COLUMN_START] + row->first, bytes);
    sp_output_bytes(out, profile->columns[SP_COLUMN_END] + row->first, bytes);
}

static bool is_written(const sp_row *row, uint32_t rank)
{
    return row->rank == rank && row->count > 0;
}

sp_status sp_spt_write(const sp_profile *profile, uint32_t rank, const char *path, sp_error *error)
{
    sp_output out;
    const sp_status status = sp_output_begin(&out, path, error);
    if (status != SP_OK) return status;
    int64_t regions = 0;
    for (size_t i = 0; i < profile->row_count; i++) regions += is_written(&profile->rows[i], rank);
    SP_OUTPUT_LITERAL(&out, SP_SPT_MAGIC);
    put_int32(&out, SP_SPT_VERSION);
    put_int32(&out, (int32_t)rank);
    put_int64(&out, regions);
    for (size_t i = 0; i < profile->row_count; i++) {
        if (is_written(&profile->rows[i], rank)) put_region(&out, profile, &profile->rows[i]);
    }
    return sp_output_commit(&out, error);
}

sp_status sp_sps_write(const sp_samples *samples, const char *path, sp_error *error)
{
    sp_output out;
    const sp_status status = sp_output_begin(&out, path, error);
    if (status != SP_OK) return status;
    SP_OUTPUT_LITERAL(&out, SP_SPS_MAGIC);
    put_int32(&out, SP_SPS_VERSION);
    put_int32(&out, samples->rank);
    put_int32(&out, samples->hz);
    put_int64(&out, samples->ticks);
    put_int32(&out, (int32_t)samples->region_count);
    for (size_t i = 0; i < samples->region_count; i++) put_text(&out, samples->regions[i]);
    put_int32(&out, (int32_t)samples->module_count);
    for (size_t i = 0; i < samples->module_count; i++) {
        put_text(&out, samples->modules[i]);
        put_int64(&out, (int64_t)samples->bases[i]);
    }
    put_int64(&out, (int64_t)samples->sample_count);
    for (size_t i = 0; i < samples->sample_count; i++) {
        put_int32(&out, samples->samples[i].region);
        put_int32(&out, samples->samples[i].module);
        put_int64(&out, (int64_t)samples->samples[i].address);
    }
    return sp_output_commit(&out, error);
}
