/* main.c - which command, and its options. */
#include <errno.h>
#include <getopt.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "formats/hdf5.h"

const cli_command *const cli_commands[] = {
    &cli_inspect, &cli_diff, &cli_check, &cli_export, &cli_view, &cli_merge, &cli_import_native, &cli_recover, &cli_top, NULL,
};

static void help(sp_text *out)
{
    sp_text_add(out, "usage: scope-profiler COMMAND [ARGUMENTS]\n\nRead profiles of regions, threads and tasks.\n\ncommands:\n");
    for (const cli_command *const *c = cli_commands; *c; c++) sp_text_format(out, "  %-13s  %s\n", (*c)->name, (*c)->summary);
    sp_text_add(out, "\noptions:\n  -h, --help     show this text\n  -V, --version  show the version\n\n"
                     "`scope-profiler COMMAND --help` tells more about a command. The command of the Python package has all of "
                     "these, and more.\n");
}

static void command_help(const cli_command *command, sp_text *out)
{
    sp_text_format(out, "usage: scope-profiler %s [OPTIONS] %s\n\n%s.\n\noptions:\n", command->name, command->operands,
                   command->description ? command->description : command->summary);
    sp_text_add(out, "  -h, --help                show this text\n");
    for (size_t i = 0; i < command->option_count; i++) {
        const cli_option *o = &command->options[i];
        char left[80], letter[8] = "";
        if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
        snprintf(left, sizeof left, "%s--%s%s%s%s", letter, o->name, o->kind == CLI_FLAG ? "" : " ", o->kind == CLI_FLAG ? "" : o->value,
                 o->kind == CLI_LIST ? " ..." : "");
        sp_text_format(out, "  %-24s  %s\n", left, o->help);
    }
}

/* -- options -- */

static bool add_value(cli_values *values, const char *item)
{
    const char **items = realloc(values->items, (values->count + 1) * sizeof *items);
    if (items == NULL) return false;
    values->items = items;
    items[values->count++] = item;
    return true;
}

static size_t option_by_letter(const cli_command *command, int letter)
{
    for (size_t i = 0; i < command->option_count; i++) {
        if (command->options[i].letter == letter) return i;
    }
    return command->option_count;
}

#define LONG_OPTION 1000

/* The command's options as getopt_long has them. Operands come in their order (-), a missing value is told apart (:). */
static void describe_options(const cli_command *command, struct option *longs, char *letters)
{
    char *at = stpcpy(letters, "-:h");
    for (size_t i = 0; i < command->option_count; i++) {
        const cli_option *o = &command->options[i];
        const bool value = o->kind != CLI_FLAG;
        longs[i] = (struct option){o->name, value ? required_argument : no_argument, NULL, LONG_OPTION + (int)i};
        if (o->letter == 0) continue;
        *at++ = o->letter;
        if (value) *at++ = ':';
    }
    *at = '\0';
    longs[command->option_count] = (struct option){"help", no_argument, NULL, 'h'};
    longs[command->option_count + 1] = (struct option){0};
}

/* -1: go on; else the exit code. The operands are to be freed in any case. */
static int parse(cli *c, int argc, char **argv, cli_values *operands)
{
    struct option longs[CLI_OPTIONS + 2];
    char letters[2 * CLI_OPTIONS + 4];
    const cli_command *command = c->command;
    cli_values *list = NULL; /* the option that takes what follows */
    describe_options(command, longs, letters);
    opterr = 0;
    for (int found; (found = getopt_long(argc, argv, letters, longs, NULL)) != -1;) {
        if (found == 1) {
            if (!add_value(list ? list : operands, optarg)) return cli_no_memory();
            continue;
        }
        list = NULL;
        if (found == 'h') {
            sp_text text = {0};
            command_help(command, &text);
            return cli_print(c, &text);
        }
        if (found == ':') return cli_fail("%s needs a value (see scope-profiler %s --help)", argv[optind - 1], command->name);
        const size_t place = found >= LONG_OPTION ? (size_t)(found - LONG_OPTION) : option_by_letter(command, found);
        if (found == '?' || place >= command->option_count) {
            return cli_fail("unknown option %s (see scope-profiler %s --help)", argv[optind - 1], command->name);
        }
        cli_values *values = &c->options[place];
        values->given = true;
        if (command->options[place].kind != CLI_FLAG && !add_value(values, optarg)) return cli_no_memory();
        if (command->options[place].kind == CLI_LIST) list = values;
    }
    for (; optind < argc; optind++) { /* behind -- */
        if (!add_value(operands, argv[optind])) return cli_no_memory();
    }
    if (operands->count < command->least || (command->most && operands->count > command->most)) {
        return cli_fail("%s takes %s (see scope-profiler %s --help)", command->name, command->operands, command->name);
    }
    return -1;
}

const cli_values *cli_option_of(const cli *c, const char *name)
{
    static const cli_values none;
    for (size_t i = 0; i < c->command->option_count; i++) {
        if (strcmp(c->command->options[i].name, name) == 0) return &c->options[i];
    }
    return &none;
}

bool cli_flag(const cli *c, const char *name)
{
    return cli_option_of(c, name)->given;
}

const char *cli_value(const cli *c, const char *name, const char *otherwise)
{
    const cli_values *values = cli_option_of(c, name);
    return values->count ? values->items[values->count - 1] : otherwise;
}

/* -- main -- */

static int run(cli *c, int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    sp_text text = {0};
    if (argc < 2 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        help(&text);
        const int code = cli_print(c, &text);
        return code ? code : argc < 2 ? CLI_NO : 0;
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        sp_text_format(&text, "scope-profiler %s\n", sp_version());
        return cli_print(c, &text);
    }
    for (const cli_command *const *command = cli_commands; *command; command++) {
        if (strcmp((*command)->name, name) == 0) c->command = *command;
    }
    if (strcmp(name, "__complete") == 0) return cli_complete(c, argc - 2, argv + 2);
    if (c->command == NULL && name[0] == '-') return cli_fail("unknown option '%s'; see scope-profiler --help", name);
    if (c->command == NULL) {
        const char *meant = cli_meant(name);
        return cli_fail("unknown command '%s'%s%s%s; see scope-profiler --help", name, meant ? ", did you mean '" : "", meant ? meant : "", meant ? "'?" : "");
    }
    cli_values operands = {0};
    const int code = parse(c, argc - 1, argv + 1, &operands);
    c->operands = operands.items;
    c->operand_count = operands.count;
    return code >= 0 ? code : c->command->run(c);
}

int main(int argc, char **argv)
{
    setlocale(LC_CTYPE, "");
    signal(SIGPIPE, SIG_IGN);
    sp_hdf5_use_alone();
    cli c = {.width = cli_terminal_width()};
    const int code = run(&c, argc, argv);
    for (size_t i = 0; i < CLI_OPTIONS; i++) free(c.options[i].items);
    free(c.operands);
    return code;
}
