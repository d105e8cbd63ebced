/* top.c - a running process, looked at again and again. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "cli/cli.h"
#include "formats/spool_watch.h"
#include "report/watch.h"

static const cli_option top_options[] = {
    {"once", 0, CLI_FLAG, NULL, "show one look and end"},
    {"interval", 0, CLI_VALUE, "S", "seconds between looks (default: 1)"},
    {"rows", 0, CLI_VALUE, "N", "lines of each table (default: 20)"},
    {"sort", 0, CLI_VALUE, "KEY", "order of regions: total, calls, rate, open or name (default: total)"},
};

static const char *const sort_names[] = {"total", "calls", "rate", "open", "name"}; /* as SP_WATCH_SORTS has them */

/* -- which spool -- */

/* Malloc'ed; NULL with *code. */
static char *spool_of(const char *process, int *code)
{
    sp_error error = {0};
    char *path = NULL;
    if (sp_spool_of_process(strtoll(process, NULL, 10), &path, &error) != SP_OK) *code = cli_fail_text(error.message);
    return path;
}

static bool is_number(const char *text)
{
    return *text && text[strspn(text, "0123456789")] == '\0';
}

/* -- keys -- */

static volatile sig_atomic_t interrupted;
static struct termios usual;

static void interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* Keys one by one and unseen, if somebody sits there. The command's end restores what was. */
static bool take_keyboard(void)
{
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetpgrp(STDIN_FILENO) != getpgrp()) return false;
    if (tcgetattr(STDIN_FILENO, &usual) != 0) return false;
    struct termios raw = usual;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    return tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

/* Wait, or until a key has changed the view. False: q. */
static bool wait_for_key(sp_watch_view *view, int milliseconds)
{
    struct pollfd keyboard = {.fd = view->keys ? STDIN_FILENO : -1, .events = POLLIN};
    char key;
    if (poll(&keyboard, 1, milliseconds) <= 0) return true;
    if (read(STDIN_FILENO, &key, 1) != 1) {
        view->keys = false; /* nobody there any more */
        return true;
    }
    if (key == 'p') view->paused = !view->paused;
    else if (strchr(SP_WATCH_SORTS, key)) view->sort = key;
    return key != 'q';
}

/* -- looks -- */

static int show(const cli *c, const char *path, const sp_watched *seen, const sp_watch_view *view, bool clear)
{
    sp_text out = {0};
    sp_report_watch(seen, path, view, &out);
    if (clear) cli_clear();
    return cli_print(c, &out);
}

static int watch_it(const cli *c, const char *path, sp_watch *watch, sp_watch_view *view, int milliseconds)
{
    const bool once = cli_flag(c, "once");
    const sp_watched *seen = NULL;
    struct stat status;
    int code = 0;
    while (code == 0 && !interrupted && !cli_closed()) {
        sp_error error = {0};
        if (seen && stat(path, &status) != 0) {
            sp_text text = {0};
            sp_text_add(&text, "the run has ended\n");
            return cli_print(c, &text);
        }
        if (!view->paused || seen == NULL) {
            const sp_status looked = sp_watch_look(watch, &seen, &error);
            if (looked != SP_OK) return cli_fail_status(looked, &error, path);
        }
        code = show(c, path, seen, view, !once);
        if (once || (code == 0 && !wait_for_key(view, milliseconds))) break;
    }
    return code;
}

static int run_top(cli *c)
{
    const char *target = c->operands[0], *interval = cli_value(c, "interval", "1"), *wanted = cli_value(c, "rows", "20");
    const size_t sort = cli_find_name(cli_value(c, "sort", "total"), sort_names, sizeof sort_names / sizeof *sort_names);
    char *end;
    int64_t rows;
    int code = 0;
    const double wait = strtod(interval, &end);
    if (*end || end == interval || !(wait >= 0.05 && wait <= 86400)) {
        return cli_fail("'%s' is not an interval from 0.05 to 86400 seconds", interval);
    }
    if (!cli_parse_count(wanted, &rows)) return cli_fail("'%s' is not a number of rows", wanted);
    if (sort == sizeof sort_names / sizeof *sort_names) {
        return cli_fail("'%s' is no order of regions: total, calls, rate, open or name", cli_value(c, "sort", ""));
    }
    struct stat status;
    char *path = is_number(target) && stat(target, &status) != 0 ? spool_of(target, &code) : strdup(target);
    if (path == NULL) return code ? code : cli_no_memory();
    sp_watch *watch = NULL;
    sp_error error = {0};
    const sp_status opened = sp_watch_open(path, &watch, &error);
    if (opened != SP_OK) {
        code = cli_fail_status(opened, &error, path);
    } else {
        const struct sigaction action = {.sa_handler = interrupt};
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        const bool keys = !cli_flag(c, "once") && take_keyboard();
        sp_watch_view view = {.sort = SP_WATCH_SORTS[sort], .rows = (size_t)rows, .keys = keys};
        code = watch_it(c, path, watch, &view, (int)(wait * 1000));
        if (keys) tcsetattr(STDIN_FILENO, TCSANOW, &usual);
    }
    sp_watch_close(watch);
    free(path);
    return code;
}

const cli_command cli_top = {
    .name = "top",
    .summary = "watch a running program: regions, threads and tasks",
    .description = "Show the regions, threads and tasks of a program that records into a spool, again and again until q, Ctrl-C or "
                   "its end. Calls that were in a file already (of a checkpoint) at the first look are not counted. Times of open calls go on",
    .operands = "PID|SPOOL",
    .least = 1,
    .most = 1,
    .options = top_options,
    .option_count = sizeof top_options / sizeof *top_options,
    .run = run_top,
};
