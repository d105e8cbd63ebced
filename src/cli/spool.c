/* spool.c - recover and top: what a process that was killed, or that is running, has recorded. */
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/clock.h"
#include "core/sort.h"
#include "formats/spool.h"

static const cli_option recover_options[] = {
    {"output", 'o', CLI_VALUE, "FILE", "profile to write (default: OUTPUT with .recovered)"},
    {"keep", 0, CLI_FLAG, NULL, "leave the spool where it is"},
};

static const cli_option top_options[] = {
    {"once", 0, CLI_FLAG, NULL, "show one look and end"},
    {"interval", 0, CLI_VALUE, "S", "seconds between looks (default: 1)"},
    {"rows", 0, CLI_VALUE, "N", "lines of each table (default: 20)"},
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
    sp_text_format(out, "%llu %s of %zu %s", (unsigned long long)profile->call_count, profile->call_count == 1 ? "call" : "calls",
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
    } else if (salvage->values) {
        sp_text_printable(out, path);
        sp_text_add(out, " stays, because it has metadata of single calls, which the Python command recovers\n");
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
    const bool any = profile->call_count > 0;
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
    if (code == 0 && salvage.incomplete) sp_text_add(&out, "the disk was full: later calls may have been in memory only, and are missing\n");
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

/* -- top -- */

typedef struct region_line {
    const char *name;
    int64_t total;
    uint64_t calls, open;
} region_line;

static int by_total(const void *left, const void *right)
{
    const region_line *a = left, *b = right;
    if (a->total != b->total) return a->total > b->total ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Calls that are marked as open. The marks are the spool reader's own text. */
static uint64_t count_open(const char *marks)
{
    uint64_t count = 0;
    for (const char *at = marks; at && (at = strstr(at, "\"open\"")); at++) count++;
    return count;
}

static void add_more(size_t count, size_t rows, sp_text *out)
{
    if (count > rows) sp_text_format(out, "  ... and %zu more\n", count - rows);
}

static void add_regions(const sp_profile *profile, size_t rows, sp_text *out)
{
    region_line *lines = calloc(profile->row_count + 1, sizeof *lines);
    if (lines == NULL) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < profile->row_count; i++) {
        const sp_row *row = &profile->rows[i];
        lines[i] = (region_line){profile->names[row->name], 0, row->count, count_open(row->event_metadata)};
        for (uint64_t c = row->first; c < row->first + row->count; c++) {
            lines[i].total += profile->columns[SP_COLUMN_END][c] - profile->columns[SP_COLUMN_START][c];
        }
    }
    sp_sort(lines, profile->row_count, sizeof *lines, by_total);
    sp_text_add(out, "   total [s]        calls   open  region\n");
    for (size_t i = 0; i < profile->row_count && i < rows; i++) {
        sp_text_format(out, "%12.6f %12llu %6llu  ", (double)lines[i].total / 1e9, (unsigned long long)lines[i].calls,
                       (unsigned long long)lines[i].open);
        sp_text_printable(out, lines[i].name);
        sp_text_add(out, "\n");
    }
    add_more(profile->row_count, rows, out);
    sp_text_add(out, "\n");
    free(lines);
}

static void add_threads(const sp_profile *profile, size_t rows, sp_text *out)
{
    size_t living = 0, shown = 0;
    if (profile->thread_count == 0) return;
    for (size_t i = 0; i < profile->thread_count; i++) living += profile->threads[i].end_ns == SP_UNKNOWN;
    sp_text_format(out, "%zu threads, %zu alive\n", profile->thread_count, living);
    for (size_t i = 0; i < profile->thread_count && shown < rows; i++) {
        if (profile->threads[i].end_ns != SP_UNKNOWN) continue;
        shown++;
        sp_text_add(out, "  ");
        sp_text_printable(out, profile->threads[i].name ? profile->threads[i].name : "");
        sp_text_add(out, "\n");
    }
    add_more(living, rows, out);
    sp_text_add(out, "\n");
}

static void add_tasks(const sp_profile *profile, size_t rows, sp_text *out)
{
    size_t pending = 0, shown = 0;
    if (profile->task_count == 0) return;
    for (size_t i = 0; i < profile->task_count; i++) pending += profile->tasks[i].done_ns == SP_UNKNOWN;
    sp_text_format(out, "%zu tasks, %zu pending\n", profile->task_count, pending);
    for (size_t i = 0; i < profile->task_count && shown < rows; i++) {
        const sp_task_info *task = &profile->tasks[i];
        if (task->done_ns != SP_UNKNOWN) continue;
        shown++;
        sp_text_add(out, "  ");
        sp_text_printable(out, task->name ? task->name : "");
        sp_text_add(out, "  ");
        sp_text_printable(out, task->coro_name ? task->coro_name : "");
        sp_text_format(out, "  %lld steps\n", (long long)task->steps);
    }
    add_more(pending, rows, out);
    sp_text_add(out, "\n");
}

static int look(const cli *c, const char *path, size_t rows, bool clear)
{
    sp_spool_info info;
    sp_salvage salvage;
    sp_profile *profile = NULL;
    sp_text out = {0};
    const int code = read_spool(path, &info, &profile, &salvage);
    if (code) return code;
    sp_text_printable(&out, info.output[0] ? info.output : path);
    if (info.alive) sp_text_format(&out, ": process %lld, running for %.1f s\n\n", (long long)info.pid, (double)(sp_now_ns() - info.start_ns) / 1e9);
    else sp_text_format(&out, ": process %lld, not running\n\n", (long long)info.pid);
    add_regions(profile, rows, &out);
    add_threads(profile, rows, &out);
    add_tasks(profile, rows, &out);
    sp_profile_release(profile);
    if (clear) cli_clear();
    return cli_print(c, &out);
}

/* In a list of mappings the kernel writes a newline of a path as \012, and a backslash as itself. */
static void put_newlines_back(char *path)
{
    char *to = path;
    for (const char *from = path; *from; to++) {
        const bool newline = strncmp(from, "\\012", 4) == 0;
        *to = newline ? '\n' : *from;
        from += newline ? 4 : 1;
    }
    *to = '\0';
}

/* The newest of the spools that a process has mapped: malloc'ed; NULL with *code. */
static char *spool_of(const char *process, int *code)
{
    char path[64], *line = NULL, *best = NULL;
    size_t room = 0;
    struct timespec newest = {0};
    snprintf(path, sizeof path, "/proc/%.20s/maps", process);
    FILE *maps = fopen(path, "re");
    if (maps == NULL) {
        *code = errno == ENOENT ? cli_fail("there is no process %s", process) : cli_fail("process %s: %s", process, strerror(errno));
        return NULL;
    }
    while (getline(&line, &room, maps) > 0) {
        char *file = strchr(line, '/');
        if (file == NULL) continue;
        file[strcspn(file, "\n")] = '\0';
        const size_t size = strlen(file);
        struct stat status;
        if (size < 6 || strcmp(file + size - 6, ".spool") != 0) continue;
        if (stat(file, &status) != 0) {
            put_newlines_back(file);
            if (stat(file, &status) != 0) continue;
        }
        const bool newer = status.st_mtim.tv_sec > newest.tv_sec ||
                           (status.st_mtim.tv_sec == newest.tv_sec && status.st_mtim.tv_nsec > newest.tv_nsec);
        if (best && !newer) continue;
        free(best);
        best = strdup(file);
        newest = status.st_mtim;
    }
    free(line);
    fclose(maps);
    if (best == NULL) *code = cli_fail("process %s records into no spool", process);
    return best;
}

static bool is_number(const char *text)
{
    return *text && text[strspn(text, "0123456789")] == '\0';
}

static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

static int run_top(cli *c)
{
    const char *target = c->operands[0], *interval = cli_value(c, "interval", "1"), *wanted = cli_value(c, "rows", "20");
    char *end;
    int64_t rows;
    int code = 0;
    const double wait = strtod(interval, &end);
    if (*end || end == interval || !(wait >= 0.05 && wait <= 86400)) {
        return cli_fail("'%s' is not an interval from 0.05 to 86400 seconds", interval);
    }
    if (!cli_parse_count(wanted, &rows)) return cli_fail("'%s' is not a number of rows", wanted);
    struct stat status;
    char *path = is_number(target) && stat(target, &status) != 0 ? spool_of(target, &code) : strdup(target);
    if (path == NULL) return code ? code : cli_no_memory();
    struct sigaction action = {.sa_handler = interrupt};
    sigaction(SIGINT, &action, NULL);
    const struct timespec pause = {(time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9)};
    const bool once = cli_flag(c, "once");
    for (bool seen = false; code == 0 && !interrupted && !cli_closed(); seen = true) {
        if (seen && stat(path, &status) != 0) {
            sp_text text = {0};
            sp_text_add(&text, "the run has ended\n");
            code = cli_print(c, &text);
            break;
        }
        code = look(c, path, (size_t)rows, !once);
        if (once) break;
        if (code == 0) nanosleep(&pause, NULL);
    }
    free(path);
    return code;
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

const cli_command cli_top = {
    .name = "top",
    .summary = "watch a running program: regions, threads and tasks",
    .description = "Show the regions, threads and tasks of a program that records into a spool, again and again until Ctrl-C or its "
                   "end. Calls that are in a file already (of a checkpoint) are not counted. Each look reads the whole spool",
    .operands = "PID|SPOOL",
    .least = 1,
    .most = 1,
    .options = top_options,
    .option_count = sizeof top_options / sizeof *top_options,
    .run = run_top,
};
