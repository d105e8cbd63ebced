/* The page that shows profiles: written without Python, whole or not at all, also when memory runs out (the address sanitizer
 * sees whether something leaks then). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/html_report.h"
#include "support.h"

static char directory[] = "/tmp/test_html_report.XXXXXX";
static char path[sizeof directory + 16];

static int make_directory(void **state)
{
    if (mkdtemp(directory) == NULL) return -1;
    snprintf(path, sizeof path, "%s/page.html", directory);
    return 0;
}

static int remove_directory(void **state)
{
    unlink(path);
    return rmdir(directory);
}

/* outer [100, 200] holds two calls of "in</script>ner" on this thread; a worker has one call. */
static sp_profile *small_profile(void)
{
    recording *const of = record(true, true);
    puppet *const worker = puppet_new();
    call outer = enter(of, "outer", 100);
    calls(of, "in</script>ner", 2, 110);
    calls_on(worker, of, "work", 1, 120);
    leave(&outer, 200);
    puppet_end(worker);
    sp_profile *profile = collect(of);
    record_end(of);
    return profile;
}

static sp_status write_page(const sp_profile *profile, bool without_calls, sp_error *error)
{
    const uint32_t rank = 0;
    const sp_export run = {.profile = profile, .name = "a <run>", .ranks = &rank, .rank_count = 1};
    const sp_html_report report = {.runs = &run, .run_count = 1, .without_calls = without_calls};
    return sp_export_html(&report, path, error);
}

static char *read_page(void)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    struct stat about;
    assert_int_equal(fstat(fileno(file), &about), 0);
    char *text = calloc(1, (size_t)about.st_size + 1);
    assert_int_equal(fread(text, 1, (size_t)about.st_size, file), about.st_size);
    fclose(file);
    return text;
}

static size_t count_of(const char *text, const char *what)
{
    size_t count = 0;
    while ((text = strstr(text, what)) != NULL) {
        count++;
        text++;
    }
    return count;
}

/* A build without the viewer can only say so. */
static bool has_viewer(const sp_profile *profile)
{
    if (sp_viewer_page_size > 0) return true;
    sp_error error = {0};
    assert_int_equal(write_page(profile, false, &error), SP_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "no viewer"));
    assert_int_equal(access(path, F_OK), -1);
    return false;
}

static void the_data_is_in_the_middle_of_the_viewer(void **state)
{
    sp_profile *profile = small_profile();
    if (has_viewer(profile)) {
        sp_error error = {0};
        assert_int_equal(write_page(profile, false, &error), SP_OK);
        char *page = read_page();
        assert_non_null(strstr(page, SP_VIEWER_MARK));
        assert_non_null(strstr(page, "\"name\":\"a \\u003crun>\""));
        assert_null(strstr(page, "in</script>ner"));
        assert_int_equal(count_of(page, "<script"), count_of(page, "</script>"));
        /* Four columns, and await: the thread of the worker, then outer with two calls inside, which is a call more in a row. */
        assert_int_equal(count_of(page, "<script type=\"text/plain\" data-run="), 5);
        assert_non_null(strstr(page, "{\"tracks\":[[-3,0,[1]],\n[-2,0,[1,2]]]}"));
        assert_int_equal(count_of(page, "\n4 1 "), 3); /* gap, duration, name: four values of one byte each */
        assert_int_equal(count_of(page, "\n4 0 "), 2); /* no value needs a byte: parent, await */
        free(page);
        assert_int_equal(write_page(profile, true, &error), SP_OK);
        page = read_page();
        assert_int_equal(count_of(page, "<script type=\"text/plain\" data-run="), 0);
        assert_non_null(strstr(page, "\"paths\":[["));
        free(page);
    }
    sp_profile_release(profile);
}

static off_t size_of_page(void)
{
    struct stat page;
    return stat(path, &page) == 0 ? page.st_size : -1;
}

static void a_page_is_whole_or_not_there(void **state)
{
    clock_at(1);
    sp_profile *profile = small_profile();
    if (has_viewer(profile)) {
        assert_int_equal(write_page(profile, false, NULL), SP_OK);
        const off_t whole = size_of_page();
        unlink(path);
        for (int all = 0; all < 2; all++) {
            for (int64_t n = 0;; n++) {
                sp_error error = {0};
                memory_reset();
                memory_fail(n, all);
                const sp_status status = write_page(profile, false, &error);
                const bool reached = memory_requests() > n;
                memory_fail(-1, false);
                if (!reached) {
                    assert_int_equal(status, SP_OK);
                    break;
                }
                if (status == SP_OK) { /* what failed was only there to be faster */
                    assert_int_equal(size_of_page(), whole);
                    assert_int_equal(unlink(path), 0);
                    continue;
                }
                assert_true(error.message[0] != '\0');
                assert_int_equal(access(path, F_OK), -1);
            }
            assert_int_equal(unlink(path), 0);
        }
    }
    sp_profile_release(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_data_is_in_the_middle_of_the_viewer),
        cmocka_unit_test(a_page_is_whole_or_not_there),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
