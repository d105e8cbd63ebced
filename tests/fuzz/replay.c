/* replay.c - run a fuzz target on files, and on all files in directories: no fuzzer is needed for what was found once. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

static size_t inputs;

static void run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat status;
    FUZZ_CHECK(file && fstat(fileno(file), &status) == 0);
    const size_t size = (size_t)status.st_size;
    /* of exactly this size, so that a sanitizer sees a read behind the end */
    uint8_t *data = malloc(size ? size : 1);
    FUZZ_CHECK(data && fread(data, 1, size, file) == size);
    fclose(file);
    fprintf(stderr, "%s\n", path);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    inputs++;
}

static void run_directory(const char *path)
{
    struct dirent **entries;
    const int count = scandir(path, &entries, NULL, alphasort);
    FUZZ_CHECK(count >= 0);
    for (int i = 0; i < count; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') run_file(name);
        free(entries[i]);
    }
    free(entries);
}

int main(int count, char **arguments)
{
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < count; i++) {
        struct stat status;
        FUZZ_CHECK(stat(arguments[i], &status) == 0);
        if (S_ISDIR(status.st_mode)) run_directory(arguments[i]);
        else run_file(arguments[i]);
    }
    printf("%zu inputs\n", inputs);
    return inputs > 0 || count == 1 ? 0 : 1;
}
