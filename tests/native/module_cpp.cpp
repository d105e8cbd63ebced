/* A pybind11 module with a copy of the library of its own. */
#include <pybind11/pybind11.h>
#include <scope_profiler.hpp>

#include <stdexcept>
#include <thread>

static int compute(int n)
{
    SP_PROFILE_SCOPE("cpp.compute");
    for (int i = 0; i < n; i++) {
        SP_SCOPE("cpp.inner");
    }
    return n;
}

static void fail()
{
    SP_PROFILE_SCOPE("cpp.fail");
    throw std::runtime_error("on purpose");
}

static void on_thread()
{
    pybind11::gil_scoped_release release;
    std::thread([] { compute(1); }).join();
}

static int call_without_gil(int n)
{
    pybind11::gil_scoped_release release;
    return compute(n);
}

PYBIND11_MODULE(module_cpp, module)
{
    module.def("compute", compute);
    module.def("call_without_gil", call_without_gil);
    module.def("fail", fail);
    module.def("on_thread", on_thread);
}
