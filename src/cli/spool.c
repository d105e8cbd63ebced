/* spool.c - recover: what a process that was killed had recorded. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "formats/spool.h"

static const cli_option recover_options[] = {
    {"output", 'o', CLI_VALUE, "FILE", "profile to write (default: OUTPUT with .recovered)"},
    {"keep", 0, CLI_FLAG, NULL, "leave the spool where it is"},
};

static int read_spool(const char *path, sp_spool_info *info, sp_profile **profile, sp_salvage *salvage)
{
    sp_error error = {0};
    sp_status status = sp_spool_inspect(path, info, &error);
    if (status == SP_OK) status = cli_read_spool(path, profile, salvage, &error);
    return status == SP_OK ? 0 : cli_fail_status(status, &error, path);
}

/* -- recover -- */

/* The output's name in that of its spool, "OUTPUT.<pid>-<number>.spool": how long it is; 0: it is no such name. */
static size_t output_size(const char *spool)
{
    const size_t size = strlen(spool);
    if (size < 6 || strcmp(spool + size - 6, ".spool") != 0) return 0;
    size_t at = size - 6;
    size_t digits = at;
    while (at > 0 && isdigit((unsigned char)spool[at - 1])) at--;
    if (at == digits || at == 0 || spool[at - 1] != '-') return 0;
    digits = --at;
    while (at > 0 && isdigit((unsigned char)spool[at - 1])) at--;
    return at < digits && at > 0 && spool[at - 1] == '.' ? at - 1 : 0;
}

/* Beside the spool, a name made of the output's that no file has: malloc'ed. */
static char *free_name(const char *spool)
{
    const size_t known = output_size(spool);
    char *output = NULL, *name = NULL;
    if (known) output = strndup(spool, known);
    else if (asprintf(&output, "%s.h5", spool) < 0) return NULL;
    if (output == NULL) return NULL;
    const char *slash = strrchr(output, '/'), *base = slash ? slash + 1 : output, *dot = strrchr(base, '.');
    while (*base == '.') base++; /* a name of dots alone before it has no ending */
    const size_t stem = dot && dot > base ? (size_t)(dot - output) : strlen(output);
    struct stat status;
    for (unsigned number = 1;; number++) {
        free(name);
        const int size = number == 1 ? asprintf(&name, "%.*s.recovered%s", (int)stem, output, output + stem)
                                     : asprintf(&name, "%.*s.recovered-%u%s", (int)stem, output, number, output + stem);
        if (size < 0) name = NULL;
        if (name == NULL || lstat(name, &status) != 0) break;
    }
    free(output);
    return name;
}

static void describe(const sp_profile *profile, const sp_salvage *salvage, sp_text *out)
{
    const uint64_t calls = sp_profile_calls(profile);
    sp_text_format(out, "%llu %s of %zu %s", (unsigned long long)calls, calls == 1 ? "call" : "calls",
                   profile->name_count, profile->name_count == 1 ? "region" : "regions");
    if (salvage->open_calls) sp_text_format(out, ", %llu of them open at the end", (unsigned long long)salvage->open_calls);
    if (salvage->damaged_bytes) sp_text_format(out, ", %llu bytes of the spool were damaged", (unsigned long long)salvage->damaged_bytes);
    sp_text_add(out, "\n");
}

/* The spool is of no use any more, unless something in it is not in the profile. */
static int dispose(const cli *c, const char *path, const sp_spool_info *info, const sp_salvage *salvage, sp_text *out)
{
    if (cli_flag(c, "keep")) return 0;
    if (info->alive) {
        sp_text_add(out, "its process is still running, so the spool stays\n");
    } else if (salvage->damaged_bytes) {
        sp_text_printable(out, path);
        sp_text_add(out, " stays, because part of it could not be understood\n");
    } else if (unlink(path) != 0) {
        return cli_fail("cannot remove %s: %s", path, strerror(errno));
    }
    return 0;
}

static int run_recover(cli *c)
{
    const char *path = c->operands[0];
    sp_spool_info info;
    sp_salvage salvage;
    sp_profile *profile = NULL;
    sp_text out = {0};
    int code = read_spool(path, &info, &profile, &salvage);
    if (code) return code;
    const bool any = sp_profile_calls(profile) > 0;
    char *target = any ? strdup(cli_value(c, "output", "")) : NULL;
    if (target && *target == '\0') {
        free(target);
        target = free_name(path);
    }
    if (any && target == NULL) code = cli_no_memory();
    if (code == 0 && any) code = cli_write(profile, target);
    if (code == 0 && any) {
        sp_text_add(&out, "wrote ");
        sp_text_printable(&out, target);
        sp_text_add(&out, ": ");
        describe(profile, &salvage, &out);
    } else if (code == 0) {
        sp_text_printable(&out, path);
        sp_text_add(&out, " holds no call that is not written\n");
    }
    if (code == 0 && salvage.incomplete) {
        sp_text_add(&out, "the disk was full, or the spool at its limit while a file was written: "
                          "later calls may have been in memory only, and are missing\n");
    }
    if (code == 0 && salvage.dropped_calls) {
        char line[128];
        snprintf(line, sizeof line, "the spool had reached its limit: the oldest calls were dropped to keep newer ones (%llu)\n",
                 (unsigned long long)salvage.dropped_calls);
        sp_text_add(&out, line);
    }
    if (code == 0 && salvage.limited) sp_text_add(&out, "recording had stopped at the limit of the spool's size: later calls are missing\n");
    if (code == 0) code = dispose(c, path, &info, &salvage, &out);
    const int printed = cli_print(c, &out);
    free(target);
    sp_profile_release(profile);
    return code ? code : printed ? printed : any ? 0 : CLI_NO;
}

const cli_command cli_recover = {
    .name = "recover",
    .summary = "write the profile of a process that was killed",
    .description = "Write a profile of the calls in a spool: what a process had recorded and not written when it was killed. The spool "
                   "is removed then, unless its process still lives or part of it could not be understood. Exits with 1 when it "
                   "holds no call",
    .operands = "SPOOL",
    .least = 1,
    .most = 1,
    .options = recover_options,
    .option_count = sizeof recover_options / sizeof *recover_options,
    .run = run_recover,
};
