/* long.h - what programs that record many calls share. Behind the header of the interface. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most that it has had of memory so far, in kB; -1: not known. */
static long peak_kb(void)
{
    char line[256];
    long kb = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) {
        if (strncmp(line, "VmHWM:", 6) == 0) kb = atol(line + 6);
    }
    if (status) fclose(status);
    return kb;
}

static void record_pair(int outer, int inner)
{
    sp_begin(outer);
    sp_begin(inner);
    sp_end(inner);
    sp_end(outer);
}
