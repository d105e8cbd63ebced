/* Records, says so, and ends as it is told: killed, by exit() without finalize, or with a fork that exits. */
#include <scope_profiler.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    const char *how = count > 1 ? arguments[1] : "";
    int i, outer, inner;
    if (sp_init("survivor", 0) != 0) return 2;
    outer = sp_region("outer");
    inner = sp_region("inner");
    sp_begin(outer);
    for (i = 0; i < 100000; i++) {
        sp_begin(inner);
        sp_end(inner);
    }
    if (strcmp(how, "killed") == 0) {
        puts("recorded");
        fflush(stdout);
        for (;;) pause();
    }
    sp_end(outer);
    if (strcmp(how, "flushed") == 0) return sp_flush();
    if (strcmp(how, "forked") == 0) {
        pid_t child = fork();
        if (child == 0) exit(0);
        waitpid(child, NULL, 0);
        return sp_finalize();
    }
    return 0;
}
