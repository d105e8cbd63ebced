#include "platform/perf_events.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

const char *const sp_perf_event_names[SP_PERF_EVENTS] = {
    "cycles", "instructions", "cache-references", "cache-misses", "branches", "branch-misses",
    "cpu-clock", "task-clock", "page-faults", "context-switches",
};

enum { CONTEXT_SWITCHES = 9 };

static const struct {
    uint32_t type;
    uint64_t config;
} kernel_events[SP_PERF_EVENTS] = {
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES},
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS},
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES},
    {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK},
    {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
    {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS},
    {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES},
};

static int open_event(uint8_t event, int leader, bool with_kernel)
{
    struct perf_event_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.size = sizeof attributes;
    attributes.type = kernel_events[event].type;
    attributes.config = kernel_events[event].config;
    attributes.exclude_kernel = !with_kernel;
    attributes.exclude_hv = 1;
    attributes.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    return (int)syscall(SYS_perf_event_open, &attributes, 0, -1, leader, PERF_FLAG_FD_CLOEXEC);
}

static bool is_software(uint8_t event)
{
    return kernel_events[event].type == PERF_TYPE_SOFTWARE;
}

/*
 * The kernel's part of software events counts where that is permitted: page faults that it takes for the program, and
 * switches of context, all of which happen in the kernel, so that a counter without that part would stay at 0.
 */
static int open_permitted(uint8_t event, int leader)
{
    int file = open_event(event, leader, is_software(event));
    const bool may_do_without = is_software(event) && event != CONTEXT_SWITCHES;
    if (file < 0 && may_do_without && (errno == EACCES || errno == EPERM)) file = open_event(event, leader, false);
    return file;
}

static sp_perf_problem problem_of(int error)
{
    switch (error) {
    case ENOSYS: return SP_PERF_NO_KERNEL;
    case EACCES:
    case EPERM: return SP_PERF_NO_PERMISSION;
    case ENOENT:
    case ENODEV:
    case ENXIO:
    case EOPNOTSUPP: return SP_PERF_NO_COUNTER;
    case EMFILE:
    case ENFILE: return SP_PERF_NO_FILES;
    default: return SP_PERF_OTHER;
    }
}

/*
 * Hardware counters are few, and a group that does not fit is never counted at all: they go in pairs, whose ratios are of
 * interest (instructions per cycle, misses per reference). Software events all fit into one group.
 */
static sp_perf_group *group_for(sp_perf_counters *counters, uint8_t event)
{
    for (size_t i = 0; i < counters->group_count; i++) {
        sp_perf_group *group = &counters->groups[i];
        const uint8_t first = group->events[0];
        if (is_software(event) ? is_software(first) : !is_software(first) && first / 2 == event / 2) return group;
    }
    return NULL;
}

static sp_perf_group *group_new(sp_perf_counters *counters)
{
    sp_perf_group *group = &counters->groups[counters->group_count++];
    *group = (sp_perf_group){.leader = -1};
    return group;
}

static bool add_event(sp_perf_counters *counters, uint8_t event)
{
    sp_perf_group *group = group_for(counters, event);
    int file = group ? open_permitted(event, group->leader) : -1;
    if (file < 0) {
        if (group && errno != EINVAL) return false; /* EINVAL: the two do not fit into one group */
        file = open_permitted(event, -1);
        if (file < 0) return false;
        group = group_new(counters);
        group->leader = file;
    }
    group->files[group->count] = file;
    group->events[group->count++] = event;
    return true;
}

sp_perf_problem sp_perf_open(sp_perf_counters *counters, const uint8_t *events, size_t count, uint8_t *event)
{
    counters->group_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (add_event(counters, events[i])) continue;
        const int error = errno;
        *event = events[i];
        sp_perf_close(counters);
        errno = error;
        return problem_of(error);
    }
    return SP_PERF_OK;
}

void sp_perf_close(sp_perf_counters *counters)
{
    for (size_t i = 0; i < counters->group_count; i++) {
        const sp_perf_group *group = &counters->groups[i];
        for (size_t member = 0; member < group->count; member++) close(group->files[member]);
    }
    counters->group_count = 0;
}

bool sp_perf_read(const sp_perf_counters *counters, sp_perf_reading readings[SP_PERF_EVENTS])
{
    struct {
        uint64_t count, enabled, running, values[SP_PERF_EVENTS];
    } group_values;
    for (size_t i = 0; i < counters->group_count; i++) {
        const sp_perf_group *group = &counters->groups[i];
        const ssize_t expected = (ssize_t)((3 + group->count) * sizeof(uint64_t));
        if (read(group->leader, &group_values, sizeof group_values) < expected) return false;
        for (size_t member = 0; member < group->count; member++) {
            readings[group->events[member]] =
                (sp_perf_reading){group_values.values[member], group_values.enabled, group_values.running};
        }
    }
    return true;
}

int sp_perf_paranoid(void)
{
    int level = -100;
    FILE *file = fopen("/proc/sys/kernel/perf_event_paranoid", "re");
    if (file == NULL) return level;
    if (fscanf(file, "%d", &level) != 1) level = -100;
    fclose(file);
    return level;
}
