"""One timeline of Python threads, asyncio tasks, threads of OpenMP, a C and a Fortran kernel: ``mixed.py LIBRARY OUTPUT``."""

import asyncio
import ctypes
import sys
import threading

import scope_profiler as sp

library = ctypes.CDLL(sys.argv[1])
library.kernel_sum.restype = library.kernel_norm.restype = ctypes.c_double


def compute(name: str) -> None:
    """A Python region with native ones inside."""
    with sp.region(name):
        library.kernel_sum(1000)
        library.kernel_norm(1000)


async def task(number: int) -> None:
    """The same in a task: the kernels are on the lane of the task."""
    with sp.region("task"):
        await asyncio.sleep(0.001 * number)
        compute("in task")


async def main() -> None:
    """Three tasks at once."""
    await asyncio.gather(*(task(i) for i in range(3)))


with sp.session(output=sys.argv[2], track_async=True, verbose=False):
    threads = [threading.Thread(target=compute, args=("in thread",), name=f"worker-{i}") for i in range(2)]
    for thread in threads:
        thread.start()
    asyncio.run(main())
    for thread in threads:
        thread.join()
    compute("in main")
    library.kernel_team(1000)
