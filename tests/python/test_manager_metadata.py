"""Metadata of calls (scopes, decorators, outcomes) and of the run."""

import asyncio
import json
import os
import random
import threading
import time

import numpy as np
import pytest

import scope_profiler as sp
from manager_helpers import enter
from scope_profiler.event_metadata import EventMetadata, encode
from scope_profiler.run_metadata import REDACTED, redact, short_source_path

QUIET = {"output": None, "verbose": False, "return_results": True}


def values(results, name):
    return list(results[name][0].event_metadata)


def finalize(manager):
    return manager.finalize(verbose=False, return_results=True)


# -- scopes ------------------------------------------------------------------------------------------------------------------


def test_calls_inside_a_scope_get_its_values_and_others_none(pm):
    with pm.session(**QUIET) as run:
        enter(pm, "a")
        with pm.metadata(step=1):
            enter(pm, "a", 2)
        enter(pm, "a")
        with pm.region("around"), pm.metadata(step=2):
            enter(pm, "a")
    assert values(run.results, "a") == [{}, {"step": 1}, {"step": 1}, {}, {"step": 2}]
    assert values(run.results, "around") in ([], [{}])


def test_scopes_nest_and_the_inner_wins(pm):
    with pm.session(**QUIET) as run:
        with pm.metadata(a=1, b=1) as outer:
            enter(pm, "x")
            with pm.metadata(b=2, c=2) as inner:
                assert inner == {"a": 1, "b": 2, "c": 2}
                enter(pm, "x")
            enter(pm, "x")
            assert outer == {"a": 1, "b": 1}
    assert values(run.results, "x") == [{"a": 1, "b": 1}, {"a": 1, "b": 2, "c": 2}, {"a": 1, "b": 1}]


def test_values_may_be_added_until_the_scope_ends(pm):
    with pm.session(**QUIET) as run:
        with pm.metadata(a=1) as scope:
            enter(pm, "x")
            scope["late"] = True
        scope["too_late"] = True
    assert values(run.results, "x") == [{"a": 1, "late": True}]


def test_a_scope_object_can_be_used_again_and_inside_itself(pm):
    with pm.session(**QUIET) as run:
        scope = pm.metadata(a=1)
        for _ in range(2):
            with scope, scope:
                enter(pm, "x")
    assert values(run.results, "x") == [{"a": 1}] * 2


def test_a_scope_is_of_its_thread(pm):
    barrier = threading.Barrier(2)

    def scoped():
        with pm.metadata(who="A"):
            barrier.wait()
            enter(pm, "a")
            barrier.wait()

    def other():
        barrier.wait()
        enter(pm, "b")
        barrier.wait()

    for track in (False, True):
        with pm.session(**QUIET, track_threads=track) as run:
            threads = [threading.Thread(target=target) for target in (scoped, other)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert values(run.results, "a") == [{"who": "A"}]
        assert values(run.results, "b") in ([], [{}])


def test_without_a_run_a_scope_only_yields(pm):
    with pm.metadata(a=1) as outer, pm.metadata(b=2) as inner:
        assert outer == {"a": 1} and inner == {"a": 1, "b": 2}
        enter(pm, "x")
    pm.setup(output=None)
    enter(pm, "x")
    assert values(finalize(pm), "x") in ([], [{}])


def test_a_scope_that_is_open_at_a_checkpoint_reaches_the_calls_in_it(pm, tmp_path):
    pm.setup(output=tmp_path / "p.h5")
    with pm.metadata(phase="one") as scope:
        enter(pm, "x")
        assert values(finalize(pm), "x") == [{"phase": "one"}]
        scope["more"] = 1
        enter(pm, "x")
    enter(pm, "x")
    assert values(finalize(pm), "x") == [{"phase": "one", "more": 1}, {}]


def test_a_scope_that_outlives_its_run_is_none_of_the_next(pm):
    pm.setup(output=None)
    with pm.metadata(a=1):
        finalize(pm)
        pm.setup(output=None)
        enter(pm, "x")
    assert values(finalize(pm), "x") in ([], [{}])


def test_scopes_held_by_interleaving_generators(pm):
    def held(**more):
        with pm.metadata(**more):
            enter(pm, "x")
            yield
            enter(pm, "x")

    with pm.session(**QUIET) as run:
        a, b = held(a=1), held(b=2)
        next(a), next(b)
        enter(pm, "both")
        next(a, None)
        enter(pm, "b_only")
        next(b, None)
        enter(pm, "none")
    assert values(run.results, "both") == [{"a": 1, "b": 2}]
    assert [set(v) for v in values(run.results, "b_only")] == [{"a", "b"}] or values(run.results, "b_only") == [{"b": 2}]
    assert values(run.results, "none") in ([], [{}])


def test_a_scope_left_in_another_context_is_no_error(pm):
    async def generator():
        with pm.metadata(a=1):
            enter(pm, "x")
            yield

    async def main():
        made = generator()
        await asyncio.create_task(made.__anext__())
        await made.aclose()

    with pm.session(**QUIET) as run:
        asyncio.run(main())
    assert values(run.results, "x") == [{"a": 1}]


def test_cost_is_linear_in_calls_and_scopes(pm):
    def seconds(n):
        pm.setup(output=None, replace=True)
        for i in range(n):
            with pm.metadata(i=i):
                enter(pm, "x")
        start = time.perf_counter()
        results = finalize(pm)
        assert values(results, "x")[-1] == {"i": n - 1}
        return time.perf_counter() - start

    seconds(1000)
    small, large = min(seconds(2000) for _ in range(3)), min(seconds(16000) for _ in range(2))
    assert large < small * 8 * 4


class FakeRun:
    spool_path = None
    """Ticks are ns; lanes are given."""

    def __init__(self, lanes):
        self.keys = np.array(lanes, dtype=np.int64)

    def to_ns(self, ticks):
        return ticks

    def collect_lanes(self):
        return self.keys.tobytes()


class FakeProfile:
    def __init__(self, starts, ends):
        self.columns = {"start_ns": np.array(starts, dtype=np.int64), "end_ns": np.array(ends, dtype=np.int64)}
        self.call_count = len(starts)
        self.names = ["r"]
        self.rows = [(0, 0, 0, len(starts))]

    def column(self, name):
        return memoryview(self.columns[name])


def model(calls, scopes):
    """By the definition: every scope of the lane that contains the call whole, the outer ones first."""
    out = []
    for lane, start, end in calls:
        around = [s for s in scopes if s[0] == lane and s[1] <= start and end <= s[2]]
        merged = {}
        for scope in sorted(around, key=lambda s: (s[1], -s[2])):
            merged.update(scope[3])
        out.append(merged)
    return out


@pytest.mark.parametrize("nesting", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_matching_agrees_with_its_definition(seed, nesting):
    rng = random.Random(seed)
    scopes, calls = [], []

    def grow(lane, low, high, depth):
        # Bounds are multiples of 10, all different, so that the slack of 1 ns for rounding changes nothing.
        if high - low < 60 or depth > 5:
            return
        cuts = sorted(rng.sample(range(low + 10, high - 10, 10), min(rng.choice((2, 4, 6)), (high - low - 20) // 10 // 2 * 2)))
        for a, b in zip(cuts[::2], cuts[1::2]):
            if rng.random() < 0.5:
                scopes.append((lane, a, b, {f"k{rng.randrange(4)}": len(scopes)}))
            else:
                calls.append((lane, a + 5, b - 5))
            grow(lane, a, b, depth + 1)

    for lane in (-2, -3, 0, 7):
        grow(lane, 0, 2000, 0)
        if not nesting:
            for _ in range(6):
                a, b = sorted(rng.sample(range(1, 2000, 10), 2))
                scopes.append((lane, a, b, {f"k{rng.randrange(4)}": len(scopes)}))
    rng.shuffle(calls)
    events = EventMetadata(FakeRun([lane for lane, _, _ in calls]))
    for scope in sorted(scopes, key=lambda s: s[2]):  # they close in this order
        events.add_scope(*scope)
    texts = events.texts(FakeProfile([c[1] for c in calls], [c[2] for c in calls]))
    expected = model(calls, scopes)
    assert (json.loads(texts[0]) if texts else [{}] * len(calls)) == expected


# -- decorated functions ---------------------------------------------------------------------------------------------------------


def test_metadata_of_a_decorated_function(pm):
    @pm.profile(metadata={"kind": "constant"})
    def constant():
        enter(pm, "inside")

    @pm.profile(metadata=lambda items, scale=1: {"size": len(items) * scale})
    def sized(items, scale=1):
        items.clear()

    sized([1])
    with pm.session(**QUIET) as run:
        constant()
        sized([1, 2])
        sized([1, 2, 3], scale=2)
    assert values(run.results, "constant") == [{"kind": "constant"}] == values(run.results, "inside")
    assert values(run.results, "sized") == [{"size": 2}, {"size": 6}], "asked before the call empties the list"


def test_outcomes_are_of_the_call_alone(pm):
    @pm.profile(record_outcome=True, metadata={"m": 1})
    def work(fail):
        enter(pm, "inside")
        if fail:
            raise KeyError("x")

    with pm.session(**QUIET) as run:
        work(False)
        with pytest.raises(KeyError):
            work(True)
    assert values(run.results, "work") == [{"m": 1, "status": "ok"}, {"m": 1, "status": "error", "exception": "KeyError"}]
    assert values(run.results, "inside") == [{"m": 1}] * 2


def test_every_one_of_many_calls_has_its_own_outcome(pm):
    @pm.profile(record_outcome=True)
    def recurse(depth, fail):
        if depth:
            try:
                recurse(depth - 1, not fail)
            except ValueError:
                pass
        if fail:
            raise ValueError

    def work():
        for k in range(500):
            try:
                recurse(k % 4, k % 2)
            except ValueError:
                pass

    with pm.session(**QUIET, track_threads=True) as run:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = values(run.results, "recurse")
    assert len(found) == 3 * sum(1 + k % 4 for k in range(500))
    errors = sum((fail + level) % 2 for k in range(500) for fail in [k % 2] for level in range(1 + k % 4))
    assert sum(value["status"] == "error" for value in found) == 3 * errors
    assert sum(value["status"] == "ok" for value in found) == len(found) - 3 * errors


def test_coroutines_have_metadata_too(pm):
    @pm.profile(metadata=lambda x: {"x": x}, record_outcome=True)
    async def work(x):
        await asyncio.sleep(0)
        if x:
            raise ValueError

    with pm.session(**QUIET) as run:
        asyncio.run(work(0))
        with pytest.raises(ValueError):
            asyncio.run(work(1))
    assert values(run.results, "work") == [{"x": 0, "status": "ok"}, {"x": 1, "status": "error", "exception": "ValueError"}]


def test_what_is_no_mapping_is_told(pm):
    with pytest.raises(TypeError, match="mapping"):
        pm.profile(metadata=3)(len)

    @pm.profile(metadata=lambda: 3)
    def work():
        raise AssertionError("never called")

    with pm.session(**QUIET):
        with pytest.raises(TypeError, match="mapping"):
            work()


# -- values ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (np.int64(3), 3), (np.float32(0.5), 0.5), (np.bool_(True), True), (np.array([1, 2]), [1, 2]),
        ((1, 2), [1, 2]), ({3}, [3]), (None, None), ("żółć \ud800 \0", "żółć \ud800 \0"),
    ],
)  # fmt: skip
def test_values_that_json_does_not_know(value, stored):
    assert json.loads(encode({"k": value})) == {"k": stored}


def test_no_value_stops_the_file(pm, tmp_path):
    class Broken:
        def __str__(self):
            raise RuntimeError

    circle = []
    circle.append(circle)
    pm.setup(output=tmp_path / "p.h5")
    with pm.metadata(path=tmp_path, o=object(), broken=Broken(), circle=circle) as scope:
        scope[(1, 2)] = "tuple"
        enter(pm, "x")
    pm.finalize(verbose=False)
    stored = values(sp.load(tmp_path / "p.h5"), "x")[0]
    assert stored["path"] == str(tmp_path) and stored["(1, 2)"] == "tuple" and set(stored) > {"o", "broken", "circle"}


# -- the run ---------------------------------------------------------------------------------------------------------------------


def test_minimal_metadata_names_no_person_host_or_path(pm, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    with pm.session(**QUIET, label="lab") as run:
        pass
    metadata = run.results.metadata
    assert set(metadata) == {
        "timestamp", "platform", "chip_information", "python_version", "scope_profiler_version", "omp_num_threads",
        "mpi_size", "total_cores", "num_nodes", "start_time_ns", "finalize_time_ns", "label",
        "overhead_calls", "overhead_ns",
    }  # fmt: skip
    assert metadata["omp_num_threads"] == metadata["total_cores"] == 3 and metadata["mpi_size"] == metadata["num_nodes"] == 1
    assert metadata["scope_profiler_version"] == sp.__version__ and metadata["label"] == "lab"
    assert metadata["start_time_ns"] <= metadata["finalize_time_ns"]
    from datetime import datetime, timezone

    stamp = datetime.fromisoformat(metadata["timestamp"])
    assert stamp.tzinfo == timezone.utc and abs(stamp.timestamp() - time.time()) < 100


def test_metadata_of_the_configuration_can_be_extended(pm):
    pm.setup(output=None)
    pm.get_config().metadata["experiment"] = "x1"
    enter(pm, "a")
    assert finalize(pm).metadata["experiment"] == "x1"


def test_full_metadata(pm, monkeypatch, tmp_path):
    for name, value in {
        "LOADEDMODULES": "gcc/12:mpi/4", "MODULEPATH": "/m", "PYTHON_X": "1", "SLURM_JOB_ID": "3", "SLURMD_NODENAME": "n",
        "SLURM_JWT": "abc", "HOME_SECRET": "not selected", "SLURM_COMMENT": "see https://me:pw@host/x",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(os.environb, b"SLURM_BYTES", b"\xff")
    monkeypatch.chdir(tmp_path)
    with pm.session(output="p.h5", verbose=False, metadata_detail="full"):
        enter(pm, "a")
    metadata = sp.load("p.h5").metadata
    assert metadata["hostname"] == os.uname().nodename and metadata["working_directory"] == str(tmp_path)
    assert list(metadata["modules"]) == ["gcc/12", "mpi/4"] and metadata["PATH"] and metadata["user"]
    assert metadata["SLURM_JOB_ID"] == "3" and metadata["SLURMD_NODENAME"] == "n" and metadata["PYTHON_X"] == "1"
    assert metadata["SLURM_JWT"] == REDACTED and metadata["SLURM_COMMENT"] == f"see https://{REDACTED}@host/x"
    assert "HOME_SECRET" not in metadata and metadata["SLURM_BYTES"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("SLURM_JWT", "x"), ("MODULE_API_KEY", "x"), ("SLURM_DB_PASSWORD", "x"), ("PYTHON_AUTH_TOKEN", "x"),
        ("SLURM_AccessKey", "x"), ("MODULE_CREDENTIALS", "x"), ("SLURM_X", "ghp_" + "a1B2" * 9),
        ("SLURM_X", "AKIAABCDEFGHIJKLMNOP"), ("SLURM_X", "-----BEGIN RSA PRIVATE KEY-----\nabc"),
        ("SLURM_X", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.sig_nature"), ("SLURM_X", "hT5kQ9zL2mX8vB4nR7wP1sD6fG3jK0yA"),
        ("SLURM_X", "5f4dcc3b5aa765d61d8327deb882cf99"),
    ],
)  # fmt: skip
def test_secrets_by_name_or_look_are_replaced_whole(key, value):
    assert redact(key, value) == REDACTED


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("postgres://user:pw@db:5432/x?sslmode=on", f"postgres://{REDACTED}@db:5432/x?sslmode=on"),
        ("run --token abc --n 3", f"run --token {REDACTED} --n 3"),
        ("run --password=abc --n=3", f"run --password={REDACTED} --n=3"),
        ("https://h/x?access_token=abc&n=1", f"https://h/x?access_token={REDACTED}&n=1"),
        ("Authorization: Bearer abcdefgh", f"Authorization: {REDACTED} {REDACTED}"),
        ("a=1;api_key='x y';b=2", f"a=1;api_key={REDACTED};b=2"),
    ],
)
def test_secrets_inside_a_value_are_replaced_alone(value, shown):
    assert redact("SLURM_X", value).replace(f"Bearer {REDACTED}", f"{REDACTED} {REDACTED}") == shown


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("PATH", "/usr/local/bin:/opt/Key-Tools/12/bin:/nix/store/0c5dz8qnmbxvmn8a2p1l5zj9j6vq3x9d-hello/bin"),
        ("LOADEDMODULES", "GROMACS/2021.5-foss-2021b-CUDA-11.4.1:OpenFOAM/v2112-foss-2021b-Singularity"),
        ("modules", "OpenFOAM/v2112-foss-2021b-Singularity"), ("SLURM_JOB_NODELIST", "node[001-004,010]"),
        ("SLURM_SUBMIT_DIR", "/home/author/passwords-paper"), ("SLURM_JOB_NAME", "monkey=1"), ("PWD", "/x"),
        ("uname", "Linux host 6.1.0-13-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.55-1 (2023-09-29) x86_64"),
        ("SLURM_TASKS_PER_NODE", "4(x2)"), ("working_directory", "/scratch/Users/Ab12Cd34Ef56Gh78Ij90Kl12Mn34Op56"),
    ],
)  # fmt: skip
def test_what_is_no_secret_stays(key, value):
    assert redact(key, value) == value


def test_long_values_are_cut():
    assert len(redact("PATH", "/a:" * 50_000)) == 60_000


def test_openmp_is_asked_only_if_it_is_loaded_and_never_loaded(python):
    process = python(
        """
import os
os.environ.pop("OMP_NUM_THREADS", None); os.environ["PMI_RANK"] = "0"
import sys, scope_profiler as sp
@sp.profile
def f(): pass
f()
print("mpi4py" in sys.modules)
os.environ["SCOPE_PROFILER_MPI"] = "0"
with sp.session(output=None, verbose=False, return_results=True) as run: f()
print(run.results.metadata["omp_num_threads"] == len(os.sched_getaffinity(0)))
print(any("libgomp" in line or "libomp" in line for line in open("/proc/self/maps")), "mpi4py" in sys.modules)
"""
    )
    assert process.stdout.split() == ["False", "True", "False", "False"]


def test_source_paths_by_detail(pm, tmp_path, monkeypatch):
    module = tmp_path / "deep" / "where.py"
    module.parent.mkdir()
    module.write_text("def use(manager):\n    with manager.region('there'):\n        pass\n")
    monkeypatch.syspath_prepend(str(module.parent))
    import where

    with pm.session(**QUIET) as run:
        where.use(pm)
    assert run.results["there"].source_file == "where.py" and run.results["there"].source_lineno == 2
    monkeypatch.chdir(tmp_path)
    with pm.session(**QUIET) as run:
        where.use(pm)
    assert run.results["there"].source_file == os.path.join("deep", "where.py")
    with pm.session(**QUIET, metadata_detail="full") as run:
        where.use(pm)
    assert run.results["there"].source_file == str(module)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    assert short_source_path("/some/where/else.py") == "else.py" and short_source_path("<stdin>") == "<stdin>"


def test_captured_source_text(pm):
    with pm.session(**QUIET, capture_region_source=True) as run:
        with pm.region("block"):
            total = 1 + 1
    assert total == 2
    text = run.results["block"].source_text
    assert text.startswith('        with pm.region("block"):') and "total = 1 + 1" in text
