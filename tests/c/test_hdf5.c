/* Profiles through files, without Python: everything comes back, and what is wrong has one sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/path_summary.h"
#include "formats/chunk_codec.h"
#include "formats/hdf5.h"
#include "formats/json_text.h"
#include "formats/utf8.h"

static char directory[] = "/tmp/test_hdf5.XXXXXX";
static char path[64];

static int make_directory(void **state)
{
    if (mkdtemp(directory) == NULL) return -1;
    snprintf(path, sizeof path, "%s/p.h5", directory);
    return 0;
}

static int remove_directory(void **state)
{
    unlink(path);
    return rmdir(directory);
}

static void set_column(sp_profile *profile, sp_column column, const int64_t *values)
{
    profile->columns[column] = sp_column_alloc(profile->call_count);
    memcpy(profile->columns[column], values, profile->call_count * sizeof *values);
}

/* main [100, 200) with two calls of "work" inside, on one thread. */
static sp_profile *small_profile(void)
{
    sp_profile *profile = sp_profile_new();
    profile->names = calloc(2, sizeof *profile->names);
    profile->names[0] = strdup("main");
    profile->names[1] = strdup("w\xc3\xb6rk/x");
    profile->name_count = 2;
    profile->call_count = 3;
    set_column(profile, SP_COLUMN_START, (int64_t[]){100, 110, 130});
    set_column(profile, SP_COLUMN_END, (int64_t[]){200, 120, 160});
    set_column(profile, SP_COLUMN_CALL_ID, (int64_t[]){0, 1, 2});
    set_column(profile, SP_COLUMN_PARENT_ID, (int64_t[]){-1, 0, 0});
    set_column(profile, SP_COLUMN_THREAD, (int64_t[]){0, 0, 0});
    profile->rows = calloc(2, sizeof *profile->rows);
    profile->row_count = 2;
    profile->rows[0] = (sp_row){.name = 0, .count = 1, .source_line = SP_UNKNOWN, .exclusive_total = 60};
    profile->rows[1] = (sp_row){.name = 1, .first = 1, .count = 2, .source_line = 7, .exclusive_total = 40,
                                .source_file = strdup("a.c"), .tags = strdup("[\"t\"]")};
    profile->has_threads = true;
    profile->threads = calloc(1, sizeof *profile->threads);
    profile->thread_count = 1;
    profile->threads[0] = (sp_thread_info){.ident = 5, .native_id = 6, .end_ns = -1, .name = strdup("main")};
    sp_profile_set_string(profile, "label", "C");
    return profile;
}

static void a_profile_comes_back(void **state)
{
    sp_profile *profile = small_profile(), *back;
    sp_error error;
    assert_int_equal(sp_hdf5_write(profile, path, NULL, &error), SP_OK);
    assert_int_equal(sp_hdf5_read(path, NULL, &back, &error), SP_OK);
    assert_int_equal(back->call_count, 3);
    assert_string_equal(back->names[1], "w\xc3\xb6rk/x");
    for (int c = 0; c <= SP_COLUMN_THREAD; c++) {
        assert_memory_equal(back->columns[c], profile->columns[c], 3 * sizeof(int64_t));
    }
    assert_null(back->columns[SP_COLUMN_TASK]);
    assert_int_equal(back->rows[1].statistics.total, 40);
    assert_true(back->rows[1].has_percentiles && back->rows[1].percentiles[0] == 20.0);
    assert_string_equal(back->rows[1].source_file, "a.c");
    assert_string_equal(back->threads[0].name, "main");
    assert_string_equal(sp_profile_find_metadata(back, "label")->text, "C");
    sp_profile_release(back);
    sp_profile_release(profile);
}

static void a_summary_has_the_sums_by_path(void **state)
{
    sp_profile *profile = small_profile(), *back;
    const sp_hdf5_selection summary = {.summary = true};
    sp_error error;
    assert_int_equal(sp_hdf5_write(profile, path, NULL, &error), SP_OK);
    assert_int_equal(sp_hdf5_read(path, &summary, &back, &error), SP_OK);
    assert_true(back->summary_only);
    assert_int_equal(back->rows[1].count, 2);
    const sp_path_summary *paths = back->stored_paths;
    assert_non_null(paths);
    assert_int_equal(paths->node_count, 2);
    assert_int_equal(paths->nodes[1].parent, 0);
    assert_int_equal(paths->rows[1].count, 2);
    assert_int_equal(paths->rows[0].exclusive, 60);
    sp_profile_release(back);
    sp_profile_release(profile);
}

/* Long enough for several workers and a summary on a thread of its own. */
static void long_columns_come_back(void **state)
{
    const uint64_t count = 400000;
    sp_profile *profile = small_profile(), *back;
    sp_error error;
    for (int c = 0; c < SP_COLUMN_COUNT; c++) {
        sp_column_free(profile->columns[c], profile->call_count);
        profile->columns[c] = NULL;
    }
    profile->call_count = count;
    profile->rows[0].count = count / 2;
    profile->rows[1].first = profile->rows[1].count = count / 2;
    for (int c = 0; c <= SP_COLUMN_PARENT_ID; c++) profile->columns[c] = sp_column_alloc(count);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t half = i % (count / 2), inside = i / (count / 2);
        profile->columns[SP_COLUMN_START][i] = (int64_t)(half * 100 + inside * 10);
        profile->columns[SP_COLUMN_END][i] = (int64_t)(half * 100 + 90 - inside * 10 - half % 7);
        profile->columns[SP_COLUMN_CALL_ID][i] = (int64_t)(2 * half + inside);
        profile->columns[SP_COLUMN_PARENT_ID][i] = inside ? (int64_t)(2 * half) : -1;
    }
    static const sp_compression kinds[] = {SP_COMPRESSION_AUTO, SP_COMPRESSION_NONE, SP_COMPRESSION_GZIP,
                                           SP_COMPRESSION_LZF, SP_COMPRESSION_ZSTD};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const sp_hdf5_options options = {.compression = kinds[k], .level = -1};
        assert_int_equal(sp_hdf5_write(profile, path, &options, &error), SP_OK);
        assert_int_equal(sp_hdf5_read(path, NULL, &back, &error), SP_OK);
        for (int c = 0; c <= SP_COLUMN_PARENT_ID; c++) {
            assert_memory_equal(back->columns[c], profile->columns[c], count * sizeof(int64_t));
        }
        sp_profile_release(back);
    }
    sp_profile_release(profile);
}

/* A coder keeps what a chunk of one number became: it must never take it for another. */
static void a_chunk_of_one_number_is_what_a_new_coder_makes_of_it(void **state)
{
    enum { LARGEST = 4096 };
    int64_t raw[LARGEST], decoded[LARGEST];
    uint8_t *out = malloc(sp_encoded_bound(sizeof raw)), *expected = malloc(sp_encoded_bound(sizeof raw));
    sp_coder *coder = sp_coder_new();
    for (unsigned i = 0; i < 96; i++) { /* numbers, sizes, filters and levels in turn, each several times */
        const int64_t number = (int64_t)(i % 6) - 1;
        const size_t count = i % 4 == 3 ? LARGEST / 2 : LARGEST, size = count * sizeof *raw;
        const sp_pipeline pipeline = {.count = 2, .filters = {SP_FILTER_SHUFFLE, i % 3 ? SP_FILTER_DEFLATE : SP_FILTER_ZSTD},
                                      .level = i % 3 == 2 ? SP_LEVEL_QUICK : 1 + (int)(i / 24), .element = sizeof *raw};
        size_t used = 0, wanted = 0;
        uint32_t skipped = 1, wanted_skipped = 1;
        sp_coder *fresh = sp_coder_new();
        for (size_t k = 0; k < count; k++) raw[k] = number;
        if (i % 5 == 4) raw[count - 1]++; /* which is not one number over and over */
        assert_int_equal(sp_chunk_encode(fresh, &pipeline, memcpy(decoded, raw, size), size, expected, &wanted, &wanted_skipped), SP_OK);
        assert_int_equal(sp_chunk_encode(coder, &pipeline, memcpy(decoded, raw, size), size, out, &used, &skipped), SP_OK);
        assert_int_equal(used, wanted);
        assert_int_equal(skipped, wanted_skipped);
        assert_memory_equal(out, expected, wanted);
        assert_int_equal(sp_chunk_decode(coder, &pipeline, out, used, skipped, decoded, size), SP_OK);
        assert_memory_equal(decoded, raw, size);
        sp_coder_free(fresh);
    }
    sp_coder_free(coder);
    free(out);
    free(expected);
}

static void a_name_that_is_no_utf8_is_repaired(void **state)
{
    sp_profile *profile = small_profile(), *back;
    sp_error error;
    free(profile->names[0]);
    profile->names[0] = strdup("a\xff" "b");
    assert_int_equal(sp_hdf5_write(profile, path, NULL, &error), SP_OK);
    assert_int_equal(sp_hdf5_read(path, NULL, &back, &error), SP_OK);
    assert_string_equal(back->names[0], "a\xef\xbf\xbd" "b");
    sp_profile_release(back);
    sp_profile_release(profile);
}

static void damage_is_named(void **state)
{
    sp_profile *profile = small_profile(), *back;
    sp_error error;
    assert_int_equal(sp_hdf5_write(profile, path, NULL, &error), SP_OK);
    const int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "x", 1, 700), 1);
    assert_int_equal(sp_hdf5_read(path, NULL, &back, &error), SP_ERR_CORRUPT);
    assert_null(back);
    assert_non_null(strstr(error.message, path));
    assert_int_equal(ftruncate(fd, 300), 0);
    assert_int_equal(sp_hdf5_read(path, NULL, &back, &error), SP_ERR_CORRUPT);
    close(fd);
    sp_profile_release(profile);
}

static void errors_have_a_status_an_errno_and_the_path(void **state)
{
    sp_profile *profile = small_profile(), *back;
    sp_error error;
    char missing[100];
    snprintf(missing, sizeof missing, "%s/none/p.h5", directory);
    assert_int_equal(sp_hdf5_write(profile, missing, NULL, &error), SP_ERR_IO);
    assert_int_equal(error.system, ENOENT);
    assert_non_null(strstr(error.message, missing));
    assert_int_equal(sp_hdf5_read(missing, NULL, &back, &error), SP_ERR_NOT_FOUND);
    assert_int_equal(error.system, ENOENT);
    assert_int_equal(sp_hdf5_read(directory, NULL, &back, &error), SP_ERR_FOREIGN);
    assert_int_equal(sp_hdf5_read(missing, NULL, &back, NULL), SP_ERR_NOT_FOUND);
    sp_profile_release(profile);
}

static void json_lists_are_counted_and_checked(void **state)
{
    static const struct {
        const char *text;
        char first;
        int count; /* -1: not a list of that */
    } cases[] = {
        {"[]", '"', 0}, {" [ \"a\" , \"b\\n\\u00e9\" ] ", '"', 2}, {"[{}]", '{', 1},
        {"[{\"k\": [1, -2.5e+3, true, null, NaN, -Infinity, {\"x\": \"]\"}]}, {}]", '{', 2},
        {"", '"', -1}, {"[", '"', -1}, {"[\"a\"", '"', -1}, {"[\"a\",]", '"', -1}, {"[1]", '"', -1}, {"{}", '"', -1},
        {"[\"a\"] x", '"', -1}, {"[\"\\x\"]", '"', -1}, {"[{\"k\" 1}]", '{', -1}, {"[{1: 2}]", '{', -1}, {"[{\"k\": 1.}]", '{', -1},
        {"[\"a\tb\"]", '"', -1}, {"[{\"k\": truth}]", '{', -1}, {"[\"\\u12g4\"]", '"', -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t count = 0;
        const bool fine = sp_json_list(cases[i].text, cases[i].first, &count);
        assert_int_equal(fine ? (int)count : -1, cases[i].count);
    }
}

static void utf8_is_what_the_standard_says(void **state)
{
    static const struct {
        const char *text;
        bool valid;
    } cases[] = {
        {"", true}, {"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", true}, {"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf", true},
        {"\x80", false}, {"\xc3", false}, {"\xc0\x80", false}, {"\xe0\x80\x80", false}, {"\xed\xa0\x80", false},
        {"\xf0\x80\x80\x80", false}, {"\xf4\x90\x80\x80", false}, {"\xf5\x80\x80\x80", false}, {"\xe2\x82", false}, {"\xe2\x28\xa1", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(sp_utf8_valid(cases[i].text, strlen(cases[i].text)), cases[i].valid);
        char *repaired = sp_utf8_repaired(cases[i].text);
        assert_true(sp_utf8_valid(repaired, strlen(repaired)));
        free(repaired);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_comes_back),
        cmocka_unit_test(long_columns_come_back),
        cmocka_unit_test(a_chunk_of_one_number_is_what_a_new_coder_makes_of_it),
        cmocka_unit_test(a_summary_has_the_sums_by_path),
        cmocka_unit_test(a_name_that_is_no_utf8_is_repaired),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(errors_have_a_status_an_errno_and_the_path),
        cmocka_unit_test(json_lists_are_counted_and_checked),
        cmocka_unit_test(utf8_is_what_the_standard_says),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
