#include "core/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "platform/platform.h"

sp_clock_source sp_clock_current = SP_CLOCK_UNSET;

static sp_ticks (*injected_read)(void);
static pthread_once_t chosen = PTHREAD_ONCE_INIT;

static void choose(void)
{
    if (sp_clock_current == SP_CLOCK_INJECTED) return;
    const char *wish = getenv("SCOPE_PROFILER_CLOCK");
    const bool counter = !(wish && strcmp(wish, "monotonic") == 0) && sp_platform_counter_usable();
    sp_clock_current = counter ? SP_CLOCK_COUNTER : SP_CLOCK_MONOTONIC;
}

void sp_clock_choose(void)
{
    pthread_once(&chosen, choose);
}

void sp_clock_inject(sp_ticks (*read)(void))
{
    sp_clock_choose();
    injected_read = read;
    if (read) {
        sp_clock_current = SP_CLOCK_INJECTED;
    } else {
        sp_clock_current = SP_CLOCK_UNSET;
        choose();
    }
}

sp_ticks sp_clock_read_slow(void)
{
    if (sp_clock_current == SP_CLOCK_INJECTED) return injected_read();
    if (sp_clock_current == SP_CLOCK_UNSET) {
        sp_clock_choose();
        return sp_clock_read();
    }
    return (sp_ticks)sp_platform_monotonic_ns();
}

int64_t sp_clock_ns(void)
{
    return sp_clock_current == SP_CLOCK_INJECTED ? (int64_t)injected_read() : sp_platform_monotonic_ns();
}

int64_t sp_now_ns(void)
{
    return sp_platform_monotonic_ns();
}

/*
 * Both clocks at one moment: the kernel's time is read between two reads of the counter, and the tightest of a few tries
 * is kept, so that an interrupt in between does not count. The error is at most half the gap, tens of ns.
 */
static sp_anchor take_anchor(void)
{
    sp_anchor best = {0, 0};
    if (sp_clock_current != SP_CLOCK_COUNTER) {
        best.ticks = sp_clock_read();
        best.ns = (int64_t)best.ticks;
        return best;
    }
    uint64_t tightest = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        const sp_ticks before = sp_clock_read();
        const int64_t ns = sp_platform_monotonic_ns();
        const sp_ticks after = sp_clock_read();
        if (after - before < tightest) {
            tightest = after - before;
            best.ticks = before + (after - before) / 2;
            best.ns = ns;
        }
    }
    return best;
}

/* Ticks in `ns`, by the rate between the first anchor and the last; a guess of 1 GHz (early, never late) before there are two. */
static uint64_t ticks_in(const sp_timeline *timeline, int64_t ns)
{
    if (sp_clock_current != SP_CLOCK_COUNTER || timeline->count < 2) return (uint64_t)ns;
    const sp_anchor *first = &timeline->anchors[0], *last = &timeline->anchors[timeline->count - 1];
    return (uint64_t)((double)(last->ticks - first->ticks) / (double)(last->ns - first->ns) * (double)ns);
}

sp_ticks sp_timeline_anchor(sp_timeline *timeline, int64_t minimum_ns)
{
    sp_anchor anchor = take_anchor();
    sp_anchor *last = timeline->count ? &timeline->anchors[timeline->count - 1] : NULL;
    if (last && (anchor.ns - last->ns < minimum_ns || anchor.ticks <= last->ticks || anchor.ns <= last->ns)) {
        return last->ticks + ticks_in(timeline, SP_ANCHOR_INTERVAL_NS);
    }
    if (timeline->count == timeline->size) {
        const size_t size = timeline->size ? timeline->size * 2 : 16;
        sp_anchor *anchors = realloc(timeline->anchors, size * sizeof *anchors);
        /* Without memory the newest anchor gives way: less exact, still in order. */
        if (anchors == NULL) {
            if (last) *last = anchor;
            return anchor.ticks + ticks_in(timeline, SP_ANCHOR_INTERVAL_NS);
        }
        timeline->anchors = anchors;
        timeline->size = size;
    }
    timeline->anchors[timeline->count++] = anchor;
    return anchor.ticks + ticks_in(timeline, SP_ANCHOR_INTERVAL_NS);
}

void sp_timeline_free(sp_timeline *timeline)
{
    free(timeline->anchors);
    memset(timeline, 0, sizeof *timeline);
}

int64_t sp_timeline_to_ns(sp_timeline_cursor *cursor, sp_ticks ticks)
{
    if (sp_clock_current != SP_CLOCK_COUNTER) return (int64_t)ticks;
    const sp_timeline *timeline = cursor->timeline;
    if (timeline->count == 0) return 0;
    size_t at = cursor->segment;
    while (at > 0 && ticks < timeline->anchors[at].ticks) at--;
    while (at + 2 < timeline->count && ticks >= timeline->anchors[at + 1].ticks) at++;
    const sp_anchor *left = &timeline->anchors[at];
    if (timeline->count < 2) return left->ns;
    const sp_anchor *right = left + 1;
    if (at != cursor->segment || cursor->rate == 0) {
        cursor->rate = (double)(right->ns - left->ns) / (double)(right->ticks - left->ticks);
        cursor->segment = at;
    }
    const double rate = cursor->rate;
    if (ticks >= left->ticks) {
        const int64_t ns = left->ns + (int64_t)((double)(ticks - left->ticks) * rate);
        /* Rounding must not carry a tick past the next anchor: conversions stay in order across segments. */
        return ticks <= right->ticks && ns > right->ns ? right->ns : ns;
    }
    return left->ns - (int64_t)((double)(left->ticks - ticks) * rate);
}

int64_t sp_timeline_duration(const sp_timeline *timeline, uint64_t ticks)
{
    if (sp_clock_current != SP_CLOCK_COUNTER || timeline->count < 2) return (int64_t)ticks;
    const sp_anchor *first = &timeline->anchors[0], *last = &timeline->anchors[timeline->count - 1];
    return (int64_t)((double)ticks * ((double)(last->ns - first->ns) / (double)(last->ticks - first->ticks)));
}
