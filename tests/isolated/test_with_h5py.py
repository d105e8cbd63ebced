"""Our libhdf5 and that of h5py in one process: each keeps working, whichever is loaded first."""

import subprocess
import sys

import pytest

pytest.importorskip("h5py")

PROGRAM = """
import sys, threading
{first}
{second}
import h5py
import numpy as np
import scope_profiler as sp

def foreign(number):
    for i in range(20):
        with h5py.File(f"foreign-{{number}}.h5", "w") as file:
            file.create_dataset("x", data=np.arange(1000), compression="gzip")
        with h5py.File(f"foreign-{{number}}.h5") as file:
            assert file["x"][999] == 999

threads = [threading.Thread(target=foreign, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
for i in range(20):
    with sp.session(output="ours.h5", verbose=False):
        for _ in range(100):
            with sp.region("x"):
                pass
    assert sp.load("ours.h5")["x"][0].num_calls == 100
for thread in threads:
    thread.join()
with h5py.File("ours.h5") as file:
    assert file["regions"] if "regions" in file else len(file) > 0
print("done")
"""


@pytest.mark.parametrize("order", [("import h5py", "import scope_profiler._core"), ("import scope_profiler._core", "import h5py")])
def test_both_write_and_read_at_the_same_time(order, tmp_path):
    program = PROGRAM.format(first=order[0], second=order[1])
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
