/* Coroutines on a scheduler of three threads: each is a lane of its own, whatever thread runs it. */
#include <scope_profiler.hpp>

#include <condition_variable>
#include <coroutine>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

class Scheduler {
public:
    void post(std::coroutine_handle<> handle)
    {
        std::lock_guard<std::mutex> guard(mutex_);
        ready_.push_back(handle);
        changed_.notify_one();
    }

    void run(std::size_t coroutines, unsigned threads)
    {
        left_ = coroutines;
        std::vector<std::thread> workers;
        for (unsigned i = 0; i < threads; i++) workers.emplace_back([this] { work(); });
        for (auto &worker : workers) worker.join();
    }

    void finished()
    {
        std::lock_guard<std::mutex> guard(mutex_);
        if (--left_ == 0) changed_.notify_all();
    }

private:
    void work()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            changed_.wait(lock, [this] { return left_ == 0 || !ready_.empty(); });
            if (ready_.empty()) return;
            const auto handle = ready_.front();
            ready_.pop_front();
            lock.unlock();
            handle.resume();
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::coroutine_handle<>> ready_;
    std::size_t left_ = 0;
};

static Scheduler scheduler;

struct Yield {
    bool await_ready() noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) { scheduler.post(handle); }
    void await_resume() noexcept {}
};

struct Task {
    struct promise_type : sp::Traced<promise_type> {
        promise_type() : Traced("worker") {}
        Task get_return_object() { return Task{std::coroutine_handle<promise_type>::from_promise(*this)}; }
        auto initial_suspend() { return first(std::suspend_always{}); }
        auto final_suspend() noexcept { return last(std::suspend_never{}); }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
    std::coroutine_handle<promise_type> handle;
};

static Task worker(int rounds)
{
    {
        SP_PROFILE_SCOPE("coroutine");
        for (int i = 0; i < rounds; i++) {
            SP_SCOPE("round");
            co_await Yield{};
            {
                SP_SCOPE("step");
            }
            co_await Yield{};
        }
    }
    scheduler.finished();
}

int main(int count, char **arguments)
{
    const std::size_t coroutines = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 50;
    if (sp_init("coroutines", 0) != 0) return 1;
    for (std::size_t i = 0; i < coroutines; i++) scheduler.post(worker(4).handle);
    scheduler.run(coroutines, 3);
    return sp_finalize();
}
