#include "formats/isolated.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* their shadow is terabytes of address space */
#else
#define SANITIZED 0
#endif

/* Bytes of address space the process has now; 0 if that cannot be told. */
static uint64_t address_space(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL) return 0;
    if (fscanf(file, "%llu", &pages) != 1) pages = 0;
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void limit(int resource, uint64_t most)
{
    struct rlimit value;
    if (getrlimit(resource, &value) < 0) return;
    if (value.rlim_max == RLIM_INFINITY || value.rlim_max > most) value.rlim_max = most;
    value.rlim_cur = value.rlim_max;
    setrlimit(resource, &value);
}

/* What the parent had arranged for a crash (a traceback, a core dump) is not for this one. */
static void prepare_child(unsigned seconds, uint64_t bytes, uint64_t space)
{
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU, SIGSYS, SIGTRAP};
    sigset_t none;
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++) signal(deadly[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, seconds);
    if (!SANITIZED && space && bytes < UINT64_MAX - space) limit(RLIMIT_AS, space + bytes);
    const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, STDERR_FILENO);
}

/* Wait for the child's byte; false when it ended without one. */
static bool wait_for_byte(int pipe_end, pid_t child, int *status)
{
    *status = 0;
    for (bool ended = false;;) {
        struct pollfd ready = {.fd = pipe_end, .events = POLLIN};
        const int count = poll(&ready, 1, ended ? 0 : 50);
        char byte;
        if (count > 0) {
            const ssize_t got = read(pipe_end, &byte, 1);
            if (got == 1) return true;
            if (got == 0) return false;
        }
        if (ended) return false;
        /* A process forked meanwhile may hold the pipe's other end open: look at the child too. */
        if (count == 0 && waitpid(child, status, WNOHANG) == child) ended = true;
    }
}

sp_isolated sp_run_isolated(void (*body)(void *context, int output), void *context, unsigned seconds, uint64_t bytes,
                            int *output)
{
    int ends[2], status;
    const uint64_t space = address_space();
    *output = -1;
    const int memory = memfd_create("scope-profiler", MFD_CLOEXEC);
    if (memory < 0) return SP_ISOLATED_IMPOSSIBLE;
    if (pipe2(ends, O_CLOEXEC) < 0) {
        close(memory);
        return SP_ISOLATED_IMPOSSIBLE;
    }
    const pid_t child = fork();
    if (child == 0) {
        prepare_child(seconds, bytes, space);
        body(context, memory);
        const ssize_t told = write(ends[1], "", 1);
        _exit(told == 1 ? 0 : 1);
    }
    close(ends[1]);
    const bool done = child > 0 && wait_for_byte(ends[0], child, &status);
    close(ends[0]);
    if (child > 0 && (done || status == 0)) {
        /* ECHILD: the application reaps every child by itself */
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    }
    if (done) {
        *output = memory;
        return SP_ISOLATED_DONE;
    }
    close(memory);
    if (child < 0) return SP_ISOLATED_IMPOSSIBLE;
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU ? SP_ISOLATED_TOO_LONG : SP_ISOLATED_CRASHED;
}
