#include "formats/spt.h"

#include "formats/output.h"

#define VERSION INT32_C(2)

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
    SP_OUTPUT_LITERAL(&out, "SCOPEPRF");
    put_int32(&out, VERSION);
    put_int32(&out, (int32_t)rank);
    put_int64(&out, regions);
    for (size_t i = 0; i < profile->row_count; i++) {
        if (is_written(&profile->rows[i], rank)) put_region(&out, profile, &profile->rows[i]);
    }
    return sp_output_commit(&out, error);
}
