/*
 * scope_profiler.hpp - regions of C++ programs, closed by destructors. C++17; see scope_profiler.h for everything else.
 *
 *     void step()
 *     {
 *         SP_PROFILE_FUNCTION();
 *         {
 *             SP_PROFILE_SCOPE("assemble");
 *             ...
 *         }
 *     }
 *
 * sp::Scope is for handles, and for calls that are handed on: it moves, and ends its call exactly once, on whatever thread.
 * Coroutines of C++20 are lanes of their own: see sp::Lane and sp::Traced at the end.
 */
#ifndef SCOPE_PROFILER_HPP
#define SCOPE_PROFILER_HPP

#include "scope_profiler.h"

#include <cstdint>
#include <cstring>
#include <utility>

namespace sp {

/* One call of a region, from here to the end of its life. */
class Scope {
public:
    Scope(sp_profiler *profiler, int region) noexcept : scope_(sp_profiler_scope_begin(profiler, region)) {}
    explicit Scope(int region) noexcept : scope_(sp_scope_begin(region)) {}
    ~Scope() { end(); }

    Scope(Scope &&other) noexcept : scope_(other.scope_) { other.scope_.slot = -1; }
    Scope &operator=(Scope &&other) noexcept
    {
        if (this != &other) {
            end();
            scope_ = other.scope_;
            other.scope_.slot = -1;
        }
        return *this;
    }
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

    /* End the call now; later ends do nothing. */
    void end() noexcept
    {
        if (scope_.slot == -1) return;
#ifndef SP_DISABLE_PROFILING
        sp_place_leave_(&scope_);
#endif
        scope_.slot = -1;
    }

private:
    sp_scope scope_;
};

#ifndef SP_DISABLE_PROFILING

/* A call of a place of the program. Its region is remembered there, and looked up again when the name is another one. */
class ProfileScope {
public:
    ProfileScope(sp_place &place, sp_profiler *profiler, const char *name, bool constant) noexcept
        : scope_(enter(place, profiler, name, constant))
    {
    }
    ProfileScope(sp_place &place, const char *name, bool constant) noexcept : ProfileScope(place, sp_current_(), name, constant) {}
    explicit ProfileScope(sp_place &place) noexcept : ProfileScope(place, place.name, true) {}
    ~ProfileScope() { sp_place_leave_(&scope_); }
    ProfileScope(const ProfileScope &) = delete;
    ProfileScope &operator=(const ProfileScope &) = delete;

private:
    static sp_scope enter(sp_place &place, sp_profiler *profiler, const char *name, bool constant) noexcept
    {
        sp_scope scope = {profiler, SP_INVALID_REGION, -1, 0};
        if (!profiler || __atomic_load_n(&sp_head_(profiler)->recording, __ATOMIC_RELAXED) == 0) return scope;
        sp_scope begun = scope;
        sp_head_(profiler)->calls->scope_begin(profiler, region_of(place, profiler, name, constant), &begun);
        return begun;
    }

    static int region_of(sp_place &place, sp_profiler *profiler, const char *name, bool constant) noexcept
    {
        const sp_profiler_head *head = sp_head_(profiler);
        const std::uint64_t known = __atomic_load_n(&place.known, __ATOMIC_RELAXED);
        if (known >> 32 == head->serial) {
            const int region = static_cast<int>(static_cast<std::uint32_t>(known));
            if (constant || std::strcmp(head->calls->region_name(profiler, region), name) == 0) return region;
        }
        const int region = head->calls->region(profiler, name, place.file, place.line);
        if (region >= 0) {
            const std::uint64_t found = std::uint64_t(head->serial) << 32 | static_cast<std::uint32_t>(region);
            __atomic_store_n(&place.known, found, __ATOMIC_RELAXED);
        }
        return region;
    }

    sp_scope scope_;
};

#endif

/* A stack of calls of its own: a fiber's, a coroutine's. Empty when it is made by default. */
class Lane {
public:
    Lane() noexcept : lane_(nullptr) {}
    explicit Lane(const char *name) noexcept : lane_(sp_lane_create(name)) {}
    ~Lane() { sp_lane_end(lane_); }
    Lane(Lane &&other) noexcept : lane_(std::exchange(other.lane_, nullptr)) {}
    Lane &operator=(Lane &&other) noexcept
    {
        if (this != &other) {
            sp_lane_end(lane_);
            lane_ = std::exchange(other.lane_, nullptr);
        }
        return *this;
    }
    Lane(const Lane &) = delete;
    Lane &operator=(const Lane &) = delete;

    sp_lane *get() const noexcept { return lane_; }

    /* The lane holds the calling thread as long as this lives; then the one before does again. */
    class Hold {
    public:
        explicit Hold(const Lane &lane) noexcept : before_(sp_lane_switch(lane.lane_)) {}
        ~Hold() { sp_lane_switch(before_); }
        Hold(const Hold &) = delete;
        Hold &operator=(const Hold &) = delete;

    private:
        sp_lane *before_;
    };

private:
    sp_lane *lane_;
};

/* LIKWID's markers are its own: these are here for programs that name them. */
class LikwidSession {
public:
    LikwidSession() noexcept {}
    ~LikwidSession() {} /* not trivial: nobody is told that the variable is not used */
    LikwidSession(const LikwidSession &) = delete;
    LikwidSession &operator=(const LikwidSession &) = delete;
};
inline void likwid_thread_init() noexcept {}

} // namespace sp

#if defined(_MSC_VER)
#define SP_FUNCTION_NAME_ __FUNCSIG__
#else
#define SP_FUNCTION_NAME_ __PRETTY_FUNCTION__
#endif

#define SP_HPP_JOIN_INNER_(a, b) a##b
#define SP_HPP_JOIN_(a, b) SP_HPP_JOIN_INNER_(a, b)

/*
 * The rest of the enclosing block is a call of the region: of the default profiler, or of `profiler`. Names are any
 * const char *; a constant one is looked up once.
 */
#ifdef SP_DISABLE_PROFILING
#define SP_PROFILE_SCOPE(name) ((void)0)
#define SP_PROFILE_SCOPE_CTX(profiler, name) ((void)0)
#define SP_PROFILE_FUNCTION() ((void)0)
#define SP_PROFILE_FUNCTION_CTX(profiler) ((void)0)
#else
#define SP_HPP_PLACE_(name)                                                                                            \
    static sp_place SP_HPP_JOIN_(sp_profile_place_, __LINE__) = {(name), __FILE__, __LINE__, 0};                       \
    ::sp::ProfileScope SP_HPP_JOIN_(sp_profile_scope_, __LINE__)
#define SP_PROFILE_SCOPE(name)                                                                                         \
    SP_HPP_PLACE_(nullptr)(SP_HPP_JOIN_(sp_profile_place_, __LINE__), (name), __builtin_constant_p(name) != 0)
#define SP_PROFILE_SCOPE_CTX(profiler, name)                                                                           \
    SP_HPP_PLACE_(nullptr)                                                                                             \
    (SP_HPP_JOIN_(sp_profile_place_, __LINE__), (profiler), (name), __builtin_constant_p(name) != 0)
#define SP_PROFILE_FUNCTION() SP_HPP_PLACE_(SP_FUNCTION_NAME_)(SP_HPP_JOIN_(sp_profile_place_, __LINE__))
#define SP_PROFILE_FUNCTION_CTX(profiler)                                                                              \
    SP_HPP_PLACE_(SP_FUNCTION_NAME_)                                                                                   \
    (SP_HPP_JOIN_(sp_profile_place_, __LINE__), (profiler), SP_FUNCTION_NAME_, true)
#endif

/* ---- coroutines ---- */

#if defined(__cpp_impl_coroutine) && __cpp_impl_coroutine >= 201902L
#include <coroutine>

namespace sp {

/*
 * Makes a lane of every coroutine of a type: derive its promise from sp::Traced<promise>, and calls inside the coroutine are
 * its own, whichever thread resumes it; the time between its steps is what it awaited.
 *
 *     struct task {
 *         struct promise_type : sp::Traced<promise_type> {
 *             promise_type() : Traced("task") {}
 *             ...                                          // everything else as before
 *         };
 *     };
 *
 * It is done in await_transform, through which each co_await of the coroutine goes: the lane gives the thread back before
 * the awaitable may suspend, and takes it when the coroutine goes on. A promise with an await_transform of its own calls
 * this->traced(awaitable) there. The first step begins at the initial suspension point: give initial_suspend() back
 * through this->first(std::suspend_always{}), and final_suspend() through this->last(std::suspend_always{}).
 */
template <class Promise> class Traced {
public:
    explicit Traced(const char *name) noexcept : lane_(name), before_(nullptr) {}

    template <class Awaiter> class Step {
    public:
        Step(Awaiter &&awaiter, Traced *coroutine, bool runs)
            : awaiter_(std::forward<Awaiter>(awaiter)), coroutine_(coroutine), runs_(runs)
        {
        }

        bool await_ready() { return awaiter_.await_ready(); }

        template <class Handle> decltype(auto) await_suspend(std::coroutine_handle<Handle> handle)
        {
            /* The coroutine may be resumed elsewhere before this returns: nothing of it is touched after. */
            if (runs_) coroutine_->leave();
            runs_ = false;
            return awaiter_.await_suspend(handle);
        }

        decltype(auto) await_resume()
        {
            if (!runs_) coroutine_->enter();
            return awaiter_.await_resume();
        }

    private:
        Awaiter awaiter_;
        Traced *coroutine_;
        bool runs_; /* its lane holds the thread */
    };

    template <class Awaitable> auto traced(Awaitable &&awaitable)
    {
        if constexpr (requires { std::forward<Awaitable>(awaitable).operator co_await(); }) {
            using Awaiter = decltype(std::forward<Awaitable>(awaitable).operator co_await());
            return Step<Awaiter>(std::forward<Awaitable>(awaitable).operator co_await(), this, true);
        } else if constexpr (requires { operator co_await(std::forward<Awaitable>(awaitable)); }) {
            using Awaiter = decltype(operator co_await(std::forward<Awaitable>(awaitable)));
            return Step<Awaiter>(operator co_await(std::forward<Awaitable>(awaitable)), this, true);
        } else {
            return Step<Awaitable>(std::forward<Awaitable>(awaitable), this, true);
        }
    }

    template <class Awaitable> auto await_transform(Awaitable &&awaitable)
    {
        return traced(std::forward<Awaitable>(awaitable));
    }

    /* The initial suspension: the coroutine does not run yet. */
    template <class Awaiter> auto first(Awaiter awaiter) { return Step<Awaiter>(std::move(awaiter), this, false); }

    /* The final one: the lane is done. */
    template <class Awaiter> class Last {
    public:
        Last(Awaiter awaiter, Traced *coroutine) noexcept : awaiter_(std::move(awaiter)), coroutine_(coroutine) {}

        bool await_ready() noexcept
        {
            coroutine_->leave();
            coroutine_->lane_ = Lane();
            return awaiter_.await_ready();
        }
        template <class Handle> decltype(auto) await_suspend(std::coroutine_handle<Handle> handle) noexcept
        {
            return awaiter_.await_suspend(handle);
        }
        decltype(auto) await_resume() noexcept { return awaiter_.await_resume(); }

    private:
        Awaiter awaiter_;
        Traced *coroutine_;
    };
    template <class Awaiter> Last<Awaiter> last(Awaiter awaiter) noexcept { return Last<Awaiter>(std::move(awaiter), this); }

private:
    /* The lane that it interrupts gets its thread back: another coroutine's, if that one resumed this. */
    void enter() noexcept { before_ = sp_lane_switch(lane_.get()); }
    void leave() noexcept { sp_lane_switch(before_); }

    Lane lane_;
    sp_lane *before_;
};

} // namespace sp

#endif
#endif
