/* spool.c - recover: what a process that was killed had recorded. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/sort.h"
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

/* -- worker processes -- */

/* "<digits>.workers" */
static bool is_workers_ending(const char *text)
{
    const size_t digits = strspn(text, "0123456789");
    return digits > 0 && strcmp(text + digits, ".workers") == 0;
}

static bool has_entries(const char *directory)
{
    DIR *entries = opendir(directory);
    if (entries == NULL) return false;
    bool any = false;
    for (const struct dirent *entry; !any && (entry = readdir(entries)) != NULL;) {
        any = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(entries);
    return any;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What processes that the run of the spool followed left beside it: directories with something in them, by name. */
static int worker_directories(const char *spool, cli_paths *out)
{
    *out = (cli_paths){0};
    if (output_size(spool) == 0) return 0;
    const char *slash = strrchr(spool, '/'), *name = slash ? slash + 1 : spool;
    const size_t place = (size_t)(name - spool), known = (size_t)(strrchr(name, '-') - name) + 1; /* OUTPUT.PID- */
    char *directory = strndup(slash ? spool : ".", slash ? place : 1);
    DIR *entries = directory ? opendir(directory) : NULL;
    int code = directory ? 0 : cli_no_memory();
    free(directory);
    for (const struct dirent *entry; entries && code == 0 && (entry = readdir(entries)) != NULL;) {
        if (strncmp(entry->d_name, name, known) != 0 || !is_workers_ending(entry->d_name + known)) continue;
        char *path;
        if (asprintf(&path, "%.*s%s", (int)place, spool, entry->d_name) < 0) path = NULL;
        if (path == NULL || (has_entries(path) && !cli_add_path(out, path))) code = cli_no_memory();
        free(path);
    }
    if (entries) closedir(entries);
    if (out->count) sp_sort(out->paths, out->count, sizeof *out->paths, by_text);
    return code;
}

/* As a shell reads it back. */
static void add_quoted(sp_text *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_";
    if (*word && word[strspn(word, plain)] == '\0') {
        sp_text_add(out, word);
        return;
    }
    sp_text_add(out, "'");
    for (const char *at = word; *at; at++) {
        if (*at == '\'') sp_text_add(out, "'\"'\"'");
        else sp_text_format(out, "%c", *at);
    }
    sp_text_add(out, "'");
}

/* The calls of processes that the run followed are not in the profile; the spool stays, as they are put together with it. */
static void tell_workers(const char *path, const cli_paths *directories, const char *target, sp_text *out)
{
    sp_text line = {0};
    sp_text_format(&line, "the calls of its worker processes are not in it, so %s stays; all of them: scope-profiler merge ", path);
    add_quoted(&line, path);
    for (size_t i = 0; i < directories->count; i++) {
        sp_text_add(&line, " ");
        add_quoted(&line, directories->paths[i]);
        sp_text_add(&line, "/*");
    }
    sp_text_add(&line, " -o ");
    add_quoted(&line, target);
    sp_text_printable(out, line.data ? line.data : "");
    sp_text_add(out, "\n");
    out->failed |= line.failed;
    sp_text_free(&line);
}

/* The spool is of no use any more, unless something in it is not in the profile. */
static int dispose(const cli *c, const char *path, const sp_spool_info *info, const sp_salvage *salvage, const char *target, sp_text *out)
{
    cli_paths workers = {0};
    const int code = info->alive ? 0 : worker_directories(path, &workers);
    const bool needed = workers.count > 0;
    if (needed) tell_workers(path, &workers, target, out);
    cli_paths_free(&workers);
    if (code || needed || cli_flag(c, "keep")) return code;
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
    char *target = strdup(cli_value(c, "output", ""));
    if (target && *target == '\0') {
        free(target);
        target = free_name(path);
    }
    if (target == NULL) code = cli_no_memory();
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
    if (code == 0) code = dispose(c, path, &info, &salvage, target, &out);
    const int printed = cli_print(c, &out);
    free(target);
    sp_profile_release(profile);
    return code ? code : printed ? printed : any ? 0 : CLI_NO;
}

const cli_command cli_recover = {
    .name = "recover",
    .summary = "write the profile of a process that was killed",
    .description = "Write a profile of the calls in a spool: what a process had recorded and not written when it was killed. The spool "
                   "is removed then, unless its process still lives, part of it could not be understood, or worker processes left calls of "
                   "their own. Exits with 1 when it holds no call",
    .operands = "SPOOL",
    .least = 1,
    .most = 1,
    .options = recover_options,
    .option_count = sizeof recover_options / sizeof *recover_options,
    .run = run_recover,
};
