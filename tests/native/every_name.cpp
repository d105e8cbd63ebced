/* What scope_profiler.hpp offers, in each standard, with and without profiling; exits with the number of what went wrong. */
#include <scope_profiler.hpp>

#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>

static_assert(!std::is_copy_constructible<sp::Scope>::value && !std::is_copy_assignable<sp::Scope>::value, "");
static_assert(std::is_nothrow_move_constructible<sp::Scope>::value && std::is_nothrow_move_assignable<sp::Scope>::value, "");

static void throws(sp_profiler *profiler)
{
    SP_PROFILE_FUNCTION();
    SP_PROFILE_SCOPE(std::string("made at run time").c_str());
    SP_PROFILE_SCOPE_CTX(profiler, "own");
    SP_PROFILE_FUNCTION_CTX(profiler);
    (void)profiler;
    throw std::runtime_error("on purpose");
}

static int check(sp_profiler *profiler, const char *name, std::int64_t calls)
{
#ifdef SP_DISABLE_PROFILING
    (void)profiler;
    (void)name;
    (void)calls;
    return 0;
#else
    sp_region_stats stats;
    const int region = sp_profiler_region(profiler, name);
    return sp_profiler_get_region_stats(profiler, region, &stats) != SP_OK || stats.calls != calls;
#endif
}

int main()
{
    int wrong = sp_init("cpp", 0);
    sp_profiler *own = sp_create("cpp_own", 0);
    try {
        throws(own);
    } catch (const std::runtime_error &) {
    }
    const int region = sp_region("moved"), other = sp_profiler_region(own, "by handle");
    {
        sp::Scope first(region);
        sp::Scope second(std::move(first));
        sp::Scope third(own, other);
        third = std::move(second);
        wrong += check(own, "by handle", 1) + check(sp_default_profiler(), "moved", 0);
        /* A call can be ended by another thread. */
        std::thread([ending = std::move(third)]() mutable { ending.end(); }).join();
    }
    {
        sp::LikwidSession session;
        sp::likwid_thread_init();
        sp::Lane lane("lane"), empty;
        sp::Lane::Hold hold(lane);
        SP_SCOPE("on the lane");
    }
    wrong += check(own, "own", 1) + check(sp_default_profiler(), "made at run time", 1);
    wrong += sp_finalize() + sp_profiler_finalize(own);
    wrong += check(sp_default_profiler(), "moved", 1) + check(sp_default_profiler(), "on the lane", 1);
    sp_destroy(own);
    return wrong;
}
