#include "core/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "platform/platform.h"

sp_clock_source sp_clock_current = SP_CLOCK_UNSET;

static sp_ticks (*injected_ticks)(void);
static int64_t (*injected_ns)(void);
static pthread_once_t chosen = PTHREAD_ONCE_INIT;

static sp_anchor first_anchor;
static sp_anchor take_anchor(void);

static _Atomic(const char *) selected; /* by sp_clock_select */

static void choose(void)
{
    if (sp_clock_current == SP_CLOCK_INJECTED) return;
    const char *wish = atomic_load(&selected);
    if (wish == NULL) wish = getenv("SCOPE_PROFILER_CLOCK");
    const bool forced = wish && strcmp(wish, "tsc") == 0;
    const bool counter = forced || (!(wish && strcmp(wish, "monotonic") == 0) && sp_platform_counter_usable());
    sp_clock_current = counter ? SP_CLOCK_COUNTER : SP_CLOCK_MONOTONIC;
    first_anchor = take_anchor();
}

void sp_clock_choose(void)
{
    pthread_once(&chosen, choose);
}

sp_status sp_clock_select(const char *name, sp_error *error)
{
    const bool counter = strcmp(name, "tsc") == 0, monotonic = strcmp(name, "monotonic") == 0;
    if (!counter && !monotonic && strcmp(name, "auto") != 0) {
        return sp_fail(error, SP_ERR_INVALID, "there is no clock \"%s\", but auto, tsc and monotonic", name);
    }
    if (counter || monotonic) atomic_store(&selected, counter ? "tsc" : "monotonic");
    sp_clock_choose();
    const char *chosen_name = sp_clock_source_name();
    if ((!counter && !monotonic) || sp_clock_current == SP_CLOCK_INJECTED || strcmp(name, chosen_name) == 0) return SP_OK;
    return sp_fail(error, SP_ERR_INVALID, "the clock of this process is \"%s\" since its first run, and cannot be \"%s\" now",
                   chosen_name, name);
}

const char *sp_clock_source_name(void)
{
    sp_clock_choose();
    switch (sp_clock_current) {
    case SP_CLOCK_COUNTER: return "tsc";
    case SP_CLOCK_INJECTED: return "injected";
    default: return "monotonic";
    }
}

void sp_clock_inject(sp_ticks (*ticks)(void), int64_t (*ns)(void))
{
    sp_clock_choose();
    injected_ticks = ticks;
    injected_ns = ns;
    if (ticks) {
        sp_clock_current = SP_CLOCK_INJECTED;
    } else {
        sp_clock_current = SP_CLOCK_UNSET;
        choose();
    }
}

sp_ticks sp_clock_read_slow(void)
{
    if (sp_clock_current == SP_CLOCK_INJECTED) return injected_ticks();
    if (sp_clock_current == SP_CLOCK_UNSET) {
        sp_clock_choose();
        return sp_clock_read();
    }
    return (sp_ticks)sp_platform_monotonic_ns();
}

int64_t sp_clock_ns(void)
{
    sp_clock_choose();
    if (sp_clock_current != SP_CLOCK_INJECTED) return sp_platform_monotonic_ns();
    return injected_ns ? injected_ns() : (int64_t)injected_ticks();
}

static bool ticks_are_ns(void)
{
    return sp_clock_current == SP_CLOCK_MONOTONIC || (sp_clock_current == SP_CLOCK_INJECTED && injected_ns == NULL);
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
        best.ns = ticks_are_ns() ? (int64_t)best.ticks : injected_ns();
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

sp_anchor sp_clock_first_anchor(void)
{
    sp_clock_choose();
    return first_anchor;
}

static double ticks_a_ns(const sp_anchor *from, const sp_anchor *to)
{
    return (double)(to->ticks - from->ticks) / (double)(to->ns - from->ns);
}

#define EARLY_TICKS UINT64_C(2000000) /* an interval while the rate is not known: under 100 ms on any counter from 20 MHz */
#define EARLY_NS INT64_C(1000000)     /* anchors closer than this give no rate: their error is tens of ns */

/*
 * Ticks of one interval, by the rate since the first anchor. It is never longer than the run has been, so that what a spool
 * has behind the last anchor is never further from it than the anchors that give the rate.
 */
static uint64_t interval_ticks(const sp_timeline *timeline)
{
    const sp_anchor *first = timeline->anchors, *last = first ? &first[timeline->count - 1] : NULL;
    if (last == NULL || last->ns - first->ns < EARLY_NS) return EARLY_TICKS;
    const int64_t age = last->ns - first->ns;
    return (uint64_t)(ticks_a_ns(first, last) * (double)(age < SP_ANCHOR_INTERVAL_NS ? age : SP_ANCHOR_INTERVAL_NS));
}

static bool make_room(sp_timeline *timeline, size_t more)
{
    if (timeline->count + more <= timeline->size) return true;
    const size_t size = timeline->size ? timeline->size * 2 : 16;
    sp_anchor *anchors = realloc(timeline->anchors, size * sizeof *anchors);
    if (anchors == NULL) return false;
    timeline->anchors = anchors;
    timeline->size = size;
    return true;
}

/* Ticks a ns before the last anchor; 0: nothing says how fast the clock ran then. */
static double rate_before(const sp_timeline *timeline)
{
    const sp_anchor *last = &timeline->anchors[timeline->count - 1], *first = last;
    while (first > timeline->anchors && last->ns - first->ns < SP_ANCHOR_INTERVAL_NS / 2) first--;
    return last->ns - first->ns < SP_ANCHOR_INTERVAL_NS / 2 ? 0 : ticks_a_ns(first, last);
}

/*
 * An anchor that belongs between the last one and `now`: where one was due before a long pause, or, if the counter has moved
 * on by a hundredth more than the kernel's clock, which no time discipline does, just before it did. That is now: whatever
 * is recorded first after it takes the anchor that is due.
 */
static bool anchor_between(const sp_timeline *timeline, const sp_anchor *now, sp_anchor *out)
{
    const sp_anchor *last = &timeline->anchors[timeline->count - 1];
    const double rate = rate_before(timeline);
    if (rate == 0) return false;
    const bool jumped = (double)(now->ticks - last->ticks) > 1.01 * rate * (double)(now->ns - last->ns);
    if (!jumped && now->ns - last->ns < 2 * SP_ANCHOR_INTERVAL_NS) return false;
    out->ns = jumped ? now->ns - 1 : last->ns + SP_ANCHOR_INTERVAL_NS;
    out->ticks = last->ticks + (uint64_t)(rate * (double)(out->ns - last->ns));
    return out->ns > last->ns && out->ticks > last->ticks && out->ticks < now->ticks;
}

sp_ticks sp_timeline_anchor(sp_timeline *timeline, int64_t minimum_ns)
{
    if (timeline->restored || (ticks_are_ns() && timeline->count)) return timeline->due = UINT64_MAX;
    const sp_anchor anchor = take_anchor();
    sp_anchor *last = timeline->count ? &timeline->anchors[timeline->count - 1] : NULL;
    if (last) {
        if (anchor.ticks <= last->ticks || anchor.ns <= last->ns) return timeline->due;
        if (anchor.ns - last->ns < minimum_ns && anchor.ticks < timeline->due) return timeline->due;
    }
    sp_anchor between;
    if (!make_room(timeline, 2)) {
        /* Without memory the newest anchor gives way: less exact, still in order. */
        if (last) *last = anchor;
    } else {
        if (last && anchor_between(timeline, &anchor, &between)) timeline->anchors[timeline->count++] = between;
        timeline->anchors[timeline->count++] = anchor;
    }
    return timeline->due = anchor.ticks + interval_ticks(timeline);
}

void sp_timeline_free(sp_timeline *timeline)
{
    free(timeline->anchors);
    memset(timeline, 0, sizeof *timeline);
}

static bool is_in_ns(const sp_timeline *timeline)
{
    return timeline->restored ? timeline->source != SP_CLOCK_COUNTER : ticks_are_ns();
}

int64_t sp_timeline_seek(sp_timeline_cursor *cursor, sp_ticks ticks)
{
    const sp_timeline *timeline = cursor->timeline;
    if (is_in_ns(timeline)) return (int64_t)ticks;
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
    if (ticks < left->ticks) return left->ns - (int64_t)((double)(left->ticks - ticks) * rate);
    cursor->from = left->ticks;
    cursor->length = right->ticks - left->ticks;
    cursor->from_ns = left->ns;
    cursor->until_ns = right->ns;
    const int64_t ns = left->ns + (int64_t)((double)(ticks - left->ticks) * rate);
    return ticks <= right->ticks && ns > right->ns ? right->ns : ns;
}

int64_t sp_timeline_duration(const sp_timeline *timeline, uint64_t ticks)
{
    if (is_in_ns(timeline) || timeline->count < 2) return (int64_t)ticks;
    return (int64_t)((double)ticks / ticks_a_ns(&timeline->anchors[0], &timeline->anchors[timeline->count - 1]));
}

#define SYNC_TRIES 5

sp_sync_point sp_sync_with_calendar(void)
{
    sp_sync_point best = {.error_ns = -1};
    for (int i = 0; i < SYNC_TRIES; i++) {
        const int64_t before = sp_clock_ns(), calendar = sp_platform_realtime_ns(), after = sp_clock_ns();
        const int64_t half = (after - before) / 2;
        if (calendar < 0 || half < 0 || (best.error_ns >= 0 && half >= best.error_ns)) continue;
        best = (sp_sync_point){.local_ns = before + half, .reference_ns = calendar, .error_ns = half};
    }
    return best;
}
