/*
 * cli.h - the command `scope-profiler` without Python: one file a command, each a specification and a function.
 *
 * Exit codes: 0, 1 for a negative answer, 2 for wrong usage or a file that cannot be used, told in one line on stderr.
 */
#ifndef SP_CLI_CLI_H
#define SP_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "analysis/profile.h"
#include "formats/spool.h"
#include "report/report.h"

#define CLI_NO 1
#define CLI_USAGE 2
#define CLI_OPTIONS 20

typedef enum cli_kind {
    CLI_FLAG,
    CLI_VALUE, /* one; the last counts */
    CLI_LIST   /* one or more, up to the next option, as with Python's argparse */
} cli_kind;

typedef struct cli_option {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    cli_kind kind;
    const char *value; /* what the help calls it */
    const char *help;
} cli_option;

typedef struct cli_values {
    const char **items;
    size_t count;
    bool given;
} cli_values;

struct cli;

typedef struct cli_command {
    const char *name, *summary, *operands; /* operands: as the help shows them */
    size_t least, most;                    /* operands; most 0: any number */
    const cli_option *options;
    size_t option_count;
    int (*run)(struct cli *cli);
    const char *description; /* NULL: the summary */
} cli_command;

typedef struct cli {
    const cli_command *command;
    cli_values options[CLI_OPTIONS];
    const char **operands;
    size_t operand_count;
    size_t width; /* of the terminal, 0: no terminal */
} cli;

/* Every command, ended by one without a name. */
extern const cli_command *const cli_commands[];
extern const cli_command cli_inspect, cli_diff, cli_check, cli_export, cli_view, cli_merge, cli_recover, cli_top, cli_import_native;

/* The command that was meant by a name that none has; NULL: none is near. */
const char *cli_meant(const char *name);
/* Print what could stand in the place of the last of these words of a command line, the first of which is the command. */
int cli_complete(const cli *cli, int count, char **words);

/* Say on stderr, in one line, what is wrong; CLI_USAGE. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
int cli_fail_text(const char *message); /* as it is, but printable and in one line */
int cli_no_memory(void);

/* The option called `name`, which the command has. */
const cli_values *cli_option_of(const cli *cli, const char *name);
bool cli_flag(const cli *cli, const char *name);
const char *cli_value(const cli *cli, const char *name, const char *otherwise);

/* Print lines, and free them. CLI_USAGE if they cannot be written; a reader that went away is no failure. */
int cli_print(const cli *cli, sp_text *text);
bool cli_closed(void); /* nobody reads any more */
void cli_clear(void);  /* the screen, if it is one */
size_t cli_terminal_width(void); /* of standard output; 0: it is none */

/* A whole number that is not negative. */
bool cli_parse_count(const char *text, int64_t *value);
/* A percentage that is not negative. */
bool cli_parse_percentage(const char *text, double *value);
/* The place of `text` in a list of names; count when it is not there. */
size_t cli_find_name(const char *text, const char *const *names, size_t count);

/* -- files -- */

/* Paths of operands, globs among them expanded, each once. Not zero: the exit code. */
typedef struct cli_paths {
    char **paths;
    size_t count;
} cli_paths;
int cli_expand(const char *const *patterns, size_t count, cli_paths *out);
/* The same for one pattern, which stands for itself when nothing matches. */
int cli_glob(const char *pattern, cli_paths *out);
/* One more, unless it is there. False: no memory. */
bool cli_add_path(cli_paths *paths, const char *path);
void cli_paths_free(cli_paths *paths);

/* A profile in HDF5, or a spool. Not zero: the exit code. */
int cli_load(const char *path, sp_profile **out);
/* The same for what a function of the library said about `path`. */
int cli_fail_status(sp_status status, const sp_error *error, const char *path);
/* -1: not known. */
int64_t cli_file_size(const char *path);
/* The calls in a spool, on their rank, with the metadata that its journal has. */
sp_status cli_read_spool(const char *path, sp_profile **out, sp_salvage *salvage, sp_error *error);
/* What a run is called: its label, else its file's name without directory and ending. malloc'ed; NULL: out of memory. */
char *cli_run_name(const sp_profile *profile, const char *path);
/* Write a profile as HDF5; not zero: the exit code. */
int cli_write(const sp_profile *profile, const char *path);

/* -- regions and ranks -- */

#define CLI_SELECTION_OPTIONS                                                                                          \
    {"include", 0, CLI_LIST, "REGEX", "only regions whose name begins with one of these"},                             \
    {"exclude", 0, CLI_LIST, "REGEX", "no regions whose name begins with one of these"},                               \
    {"ranks", 0, CLI_LIST, "RANKS", "only these ranks: 0 2, 0-3 or 1,3"}

typedef struct cli_chosen {
    sp_selection selection;
    bool *visible;
    uint32_t *ranks;
    bool any; /* some region is chosen */
} cli_chosen;

/* What --include, --exclude and --ranks choose of a profile. Not zero: the exit code. */
int cli_choose(const cli *cli, const sp_profile *profile, const char *path, cli_chosen *out);
void cli_chosen_free(cli_chosen *chosen);

#endif
