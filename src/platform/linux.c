#include "platform/platform.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

bool sp_platform_barriers;

/* Of linux/membarrier.h, which not every system has the headers of. */
#define MEMBARRIER_PRIVATE_EXPEDITED 8
#define MEMBARRIER_REGISTER_PRIVATE_EXPEDITED 16

void sp_platform_barriers_prepare(void)
{
#ifdef SYS_membarrier
    sp_platform_barriers = syscall(SYS_membarrier, MEMBARRIER_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
#endif
}

void sp_platform_barrier(void)
{
    atomic_thread_fence(memory_order_seq_cst);
#ifdef SYS_membarrier
    if (!sp_platform_barriers || syscall(SYS_membarrier, MEMBARRIER_PRIVATE_EXPEDITED, 0, 0) == 0) return;
    /* A forked child may have to ask for it again. */
    sp_platform_barriers_prepare();
    syscall(SYS_membarrier, MEMBARRIER_PRIVATE_EXPEDITED, 0, 0);
#endif
}

#define HUGE_PAGE ((size_t)2 << 20)

int64_t sp_platform_thread_id(void)
{
    return (int64_t)syscall(SYS_gettid);
}

/*
 * The kernel's encoding of "the CPU clock of thread `id`": clock_gettime(2) reaches it for any thread of the process.
 * pthread_getcpuclockid makes the same number, but from a pthread_t, which must not be used once the thread may be gone.
 */
static clockid_t thread_cpu_clock(int64_t id)
{
    return (clockid_t)((~(unsigned)id << 3) | 6u);
}

int64_t sp_platform_thread_cpu_ns(int64_t thread_id)
{
    struct timespec now;
    if (clock_gettime(thread_cpu_clock(thread_id), &now) != 0) return -1;
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t sp_platform_own_cpu_ns(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) return -1;
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void sp_platform_thread_name(char *name, size_t size)
{
    char text[16] = "";
    prctl(PR_GET_NAME, text, 0, 0, 0);
    text[sizeof text - 1] = '\0';
    const size_t used = strnlen(text, sizeof text);
    const size_t kept = used < size - 1 ? used : size - 1;
    memcpy(name, text, kept);
    name[kept] = '\0';
}

int64_t sp_platform_monotonic_ns(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) return -1;
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t sp_platform_realtime_ns(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A hash of the boot's random id and the time namespace: it tells clocks apart without telling which machine it was. */
int64_t sp_platform_clock_domain(void)
{
    char text[128] = "";
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    const ssize_t got = read(file, text, 64);
    close(file);
    if (got <= 0) return 0;
    /* Without time namespaces (Linux before 5.6) there is nothing to add. */
    const ssize_t more = readlink("/proc/self/ns/time", text + got, sizeof text - (size_t)got - 1);
    const size_t size = (size_t)got + (more > 0 ? (size_t)more : 0);
    for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return (int64_t)(hash >> 1);
}

static bool kernel_clock_is(const char *source)
{
    char text[32] = "";
    const int file = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    const ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    if (got <= 0) return false;
    text[strcspn(text, "\n")] = '\0';
    return strcmp(text, source) == 0;
}

bool sp_platform_counter_usable(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (!__get_cpuid(0x80000007u, &a, &b, &c, &d) || !(d & (1u << 8))) return false; /* invariant TSC */
    return kernel_clock_is("tsc");
#elif defined(__aarch64__)
    return kernel_clock_is("arch_sys_counter");
#else
    return false;
#endif
}

unsigned sp_platform_processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

bool sp_platform_start_thread(pthread_t *thread, void *(*work)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* ours, for pages that are gone (page_guard.h): blocked, it would end the process */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(thread, NULL, work, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

void *sp_platform_map(size_t bytes)
{
    const bool huge = bytes >= HUGE_PAGE && bytes % HUGE_PAGE == 0;
    const size_t asked = huge ? bytes + HUGE_PAGE : bytes;
    char *memory = mmap(NULL, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    if (!huge) return memory;
    /* A huge page needs an aligned range: keep the aligned part of what was mapped. */
    const size_t before = (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
    if (before) munmap(memory, before);
    if (HUGE_PAGE - before) munmap(memory + before + bytes, HUGE_PAGE - before);
    madvise(memory + before, bytes, MADV_HUGEPAGE);
    return memory + before;
}

void sp_platform_unmap(void *memory, size_t bytes)
{
    if (memory) munmap(memory, bytes);
}

void sp_platform_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

void sp_platform_empty(void *begin, void *end)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = ((uintptr_t)begin + page - 1) / page * page, last = (uintptr_t)end / page * page;
    if (first < last) madvise((void *)first, last - first, MADV_DONTNEED);
}

uintptr_t sp_platform_stack_floor(void)
{
    pthread_attr_t attributes;
    void *lowest = NULL;
    size_t size = 0, guard = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
    pthread_attr_getstack(&attributes, &lowest, &size);
    pthread_attr_getguardsize(&attributes, &guard);
    pthread_attr_destroy(&attributes);
    if (sp_platform_thread_id() != getpid()) return (uintptr_t)lowest + guard;
    /* The first thread's stack grows up to its limit; musl reports what is mapped so far. */
    struct rlimit limit;
    const uintptr_t top = (uintptr_t)lowest + size;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= top) return 0;
    return top - (uintptr_t)limit.rlim_cur;
}
