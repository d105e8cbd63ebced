// A C++ program with regions that end with their scope, whatever leaves it.
#include <cstdio>
#include <scope_profiler.hpp>
#include <stdexcept>

static int attempt(int step)
{
    SP_PROFILE_FUNCTION();
    if (step == 2) throw std::runtime_error("no solution");
    return step;
}

int main()
{
    if (sp_init("solver_cpp", 0) != SP_OK) return 1;
    int failed = 0;
    for (int step = 0; step < 4; step++) {
        SP_PROFILE_SCOPE("step");
        try {
            attempt(step);
        } catch (const std::runtime_error &) {
            failed++;
        }
    }
    std::printf("failed: %d\n", failed);
    return sp_finalize();
}
