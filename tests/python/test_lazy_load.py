"""A file that was opened is read as far as it is asked for, and stays what it was."""

from __future__ import annotations

import gc
import io
import os
from pathlib import Path

import h5py
import pytest

import scope_profiler as sp
from scope_profiler import _core, stored_run


def write_run(path: Path, calls: int, names: tuple[str, ...] = ("outer", "inner")) -> Path:
    """Calls of the first region around one of each other region, on two threads' worth of lanes."""
    manager = sp.ProfileManager()
    manager.setup(output=path, track_threads=True)
    outer, *inner = [manager.region(name) for name in names]
    for number in range(calls):
        with manager.metadata(number=number), outer:
            for region in inner:
                with region:
                    pass
    manager.finalize(verbose=False)
    manager.reset()
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was read of files since the test began: "head" or "whole"."""
    done: list[str] = []
    read = _core.read_h5

    def counted(path: str, **options: object) -> _core.Profile:
        profile = read(path, **options)  # type: ignore[arg-type]
        done.append("head" if options.get("head") else "whole")
        return profile

    monkeypatch.setattr(_core, "read_h5", counted)
    return done


def printed(results: sp.ProfilingResults) -> str:
    stream = io.StringIO()
    results.print_summary(stream=stream)
    return stream.getvalue()


def test_a_summary_is_printed_without_reading_the_calls(tmp_path: Path, reads: list[str]) -> None:
    results = sp.load(write_run(tmp_path / "p.h5", 50))
    lazily = printed(results)
    assert results["outer"].num_calls == 50 and results["outer"].total_duration > 0 and results.has_event_data
    assert [row["num_calls"] for row in results.thread_summary()] == [100]
    assert len(results.summary()) == 2
    assert reads == ["head"]
    assert len(results["outer"][0].durations) == 50
    assert reads == ["head", "whole"]
    assert printed(results) == lazily and "inner" in lazily


@pytest.mark.parametrize(
    "options",
    [{"include": "inner"}, {"exclude": "inner"}, {"columns": ["region", "p95"]}, {"ranks": [0]}, {"sort": "calls"}],
)
def test_every_form_of_the_summary_is_that_of_the_whole_run(tmp_path: Path, options: dict[str, object]) -> None:
    path = write_run(tmp_path / "p.h5", 20)
    whole = sp.load(path)
    assert len(whole["outer"][0].durations) == 20
    texts = []
    for results in (whole, sp.load(path)):
        stream = io.StringIO()
        results.print_summary(stream=stream, **options)  # type: ignore[arg-type]
        texts.append(stream.getvalue())
    assert texts[0] == texts[1]


def test_metadata_of_calls_comes_with_the_calls(tmp_path: Path) -> None:
    results = sp.load(write_run(tmp_path / "p.h5", 3))
    assert results["outer"][0].event_metadata == ({"number": 0}, {"number": 1}, {"number": 2})


def test_a_file_that_is_replaced_stays_what_was_opened(tmp_path: Path) -> None:
    path = write_run(tmp_path / "p.h5", 5)
    results = sp.load(path)
    write_run(path, 9, ("other",))
    assert results.region_names == ["outer", "inner"] and len(results["outer"][0].durations) == 5
    assert sp.load(path).region_names == ["other"]


def test_a_file_that_is_deleted_is_still_read(tmp_path: Path) -> None:
    path = write_run(tmp_path / "p.h5", 5)
    results = sp.load(path)
    path.unlink()
    assert len(results["inner"][0].durations) == 5


def test_a_file_that_is_changed_in_place_is_an_error(tmp_path: Path) -> None:
    path = write_run(tmp_path / "p.h5", 5)
    results = sp.load(path)
    with open(path, "r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(b"12345678")
    with pytest.raises(sp.CorruptProfileError, match=r"p\.h5 was changed after it had been opened"):
        _ = results["outer"][0].durations


def test_a_damaged_file_is_noticed_when_it_is_opened(tmp_path: Path) -> None:
    path = write_run(tmp_path / "p.h5", 500)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(sp.CorruptProfileError, match="damaged"):
        sp.load(path)


def test_a_file_that_others_have_written_to_is_read_whole(tmp_path: Path, reads: list[str]) -> None:
    path = write_run(tmp_path / "p.h5", 5)
    with h5py.File(path, "r+") as file:
        file.attrs["note"] = "mine"
    assert sp.load(path)["outer"].num_calls == 5
    assert reads == ["whole"]


def test_descriptors_are_few_and_given_back(tmp_path: Path) -> None:
    path = write_run(tmp_path / "p.h5", 2)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    many = [sp.load(path) for _ in range(3 * stored_run.MOST_OPEN)]
    assert len(os.listdir("/proc/self/fd")) <= before + stored_run.MOST_OPEN
    assert all(len(one["outer"][0].durations) == 2 for one in many)
    assert len(os.listdir("/proc/self/fd")) == before
    many = [sp.load(path) for _ in range(3)]
    assert len(os.listdir("/proc/self/fd")) == before + 3
    many.clear()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_copies_and_pickles_have_the_calls(tmp_path: Path) -> None:
    import copy
    import pickle

    path = write_run(tmp_path / "p.h5", 4)
    for again in (copy.copy, copy.deepcopy, lambda results: pickle.loads(pickle.dumps(results))):
        assert len(again(sp.load(path))["outer"][0].durations) == 4
        assert len(again(sp.load(path)["outer"][0]).durations) == 4
