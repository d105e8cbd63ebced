/* Texts: what is not UTF-8 is repaired, what is quoted is JSON, and a list that passes as JSON stays one when it is copied. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/json_text.h"
#include "formats/output.h"
#include "formats/utf8.h"
#include "fuzz.h"

static void check_quoted(const char *text)
{
    char *quoted = sp_json_quoted(text), *list = NULL;
    uint64_t count;
    FUZZ_CHECK(quoted && asprintf(&list, "[%s]", quoted) > 0);
    FUZZ_CHECK(sp_utf8_valid(quoted, strlen(quoted)));
    FUZZ_CHECK(sp_json_list(list, '"', &count) && count == 1);
    free(quoted);
    free(list);
}

/* A piece goes through an output; what arrives is as long or shorter, and JSON without the words that JSON does not have. */
static void check_piece(const char *text)
{
    static char path[64];
    sp_output out;
    sp_error error;
    if (path[0] == '\0') snprintf(path, sizeof path, "/dev/shm/scope-profiler-fuzz-%d.json", (int)getpid());
    FUZZ_CHECK(sp_output_begin(&out, path, &error) == SP_OK);
    sp_output_json_piece(&out, text, strlen(text));
    char *written = strndup(out.buffer, out.used < SP_OUTPUT_BUFFER ? out.used : 0);
    uint64_t count;
    if (out.written == 0 && strlen(text) < SP_OUTPUT_BUFFER / 8) FUZZ_CHECK(sp_json_list(written, '{', &count));
    free(written);
    sp_output_abort(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size);
    const bool valid = sp_utf8_valid(text, strlen(text));
    char *repaired = sp_utf8_repaired(text);
    uint64_t strings, objects;
    FUZZ_CHECK(repaired && sp_utf8_valid(repaired, strlen(repaired)));
    if (valid) FUZZ_CHECK(strcmp(text, repaired) == 0);
    (void)sp_json_list(text, '"', &strings);
    if (sp_json_list(text, '{', &objects)) check_piece(text);
    check_quoted(text);
    free(repaired);
    free(text);
    return 0;
}
