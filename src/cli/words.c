/* words.c - which command was meant, and what could stand next on a command line: the scripts of python/scope_profiler/cli/completions ask. */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli/cli.h"

#define LONGEST 31 /* of a name that is looked for */

/* How many letters are other, missing, added, or exchanged with the next one. SIZE_MAX: a word is too long to be a command. */
static size_t distance(const char *a, const char *b)
{
    const size_t rows = strlen(a), columns = strlen(b);
    size_t cost[LONGEST + 1][LONGEST + 1];
    if (rows > LONGEST || columns > LONGEST) return SIZE_MAX;
    for (size_t i = 0; i <= rows; i++) cost[i][0] = i;
    for (size_t j = 0; j <= columns; j++) cost[0][j] = j;
    for (size_t i = 1; i <= rows; i++) {
        for (size_t j = 1; j <= columns; j++) {
            const int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            size_t least = cost[i - 1][j - 1] + (x != y);
            if (cost[i - 1][j] + 1 < least) least = cost[i - 1][j] + 1;
            if (cost[i][j - 1] + 1 < least) least = cost[i][j - 1] + 1;
            const bool swapped = i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && y == tolower((unsigned char)a[i - 2]);
            if (swapped && cost[i - 2][j - 2] + 1 < least) least = cost[i - 2][j - 2] + 1;
            cost[i][j] = least;
        }
    }
    return cost[rows][columns];
}

const char *cli_meant(const char *name)
{
    const char *nearest = NULL;
    size_t least = (strlen(name) + 2) / 3 + 1; /* a third of its letters may be wrong */
    for (const cli_command *const *c = cli_commands; *c; c++) {
        const size_t wrong = distance(name, (*c)->name);
        if (wrong < least) {
            nearest = (*c)->name;
            least = wrong;
        }
    }
    for (const cli_command *const *c = cli_commands; nearest == NULL && *c; c++) {
        if (*name && strncasecmp(name, (*c)->name, strlen(name)) == 0) nearest = (*c)->name;
    }
    return nearest;
}

/* A candidate, if what is typed is its beginning. */
static void add(sp_text *text, const char *typed, const char *prefix, const char *word, const char *help)
{
    char whole[80];
    snprintf(whole, sizeof whole, "%s%s", prefix, word);
    if (strncmp(whole, typed, strlen(typed)) == 0) sp_text_format(text, "%s\t%s\n", whole, help);
}

/* Whether a word is an option whose value comes next. */
static bool takes_value(const cli_command *command, const char *word)
{
    for (size_t i = 0; i < command->option_count; i++) {
        const cli_option *o = &command->options[i];
        const bool by_name = strncmp(word, "--", 2) == 0 && strcmp(word + 2, o->name) == 0;
        const bool by_letter = o->letter && word[0] == '-' && word[1] == o->letter && word[2] == '\0';
        if (by_name || by_letter) return o->kind != CLI_FLAG;
    }
    return false;
}

int cli_complete(const cli *c, int count, char **words)
{
    sp_text text = {0};
    const char *typed = count > 0 ? words[count - 1] : "";
    const cli_command *command = NULL;
    for (const cli_command *const *one = cli_commands; count > 1 && *one; one++) {
        if (strcmp((*one)->name, words[0]) == 0) command = *one;
    }
    if (count <= 1) {
        for (const cli_command *const *one = cli_commands; *one; one++) add(&text, typed, "", (*one)->name, (*one)->summary);
        if (*typed == '-') {
            add(&text, typed, "--", "help", "show the commands");
            add(&text, typed, "--", "version", "show the version");
        }
    } else if (command && *typed == '-' && !takes_value(command, words[count - 2])) {
        add(&text, typed, "--", "help", "show the options");
        for (size_t i = 0; i < command->option_count; i++) add(&text, typed, "--", command->options[i].name, command->options[i].help);
    } else if (command) {
        sp_text_add(&text, ":files\n");
    }
    return cli_print(c, &text);
}
