"""Ranks against each other, processes with their names in every view: from files of processes that were made by hand."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest

import scope_profiler as sp
from scope_profiler import _core
from scope_profiler.__main__ import main

SECOND = 10**9


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """solve: 1, 2 and 6 s on ranks 0 to 2, in 2 calls on rank 2; only: on rank 1. Rank 2's process has no name."""
    starts = [0, 0, 0, 3 * SECOND, 5 * SECOND]
    ends = [SECOND, 2 * SECOND, 2 * SECOND, 7 * SECOND, 6 * SECOND]
    table = {
        "ranks": array("q", [0, 1, 2]), "pid": array("q", [100, 4711, 0]), "name": ["parent", "worker <1>", ""], "reference": [""] * 3,
        **{key: array("q", [0, 0, 0]) for key in ("clock_domain", "start_ns", "start_reference_ns", "end_ns", "end_reference_ns", "error_ns")},
    }  # fmt: skip
    rows = [(0, 0, 0, 1), (0, 1, 1, 1), (0, 2, 2, 2), (1, 1, 4, 1)]
    made = _core.make_profile(
        names=["solve", "only"], rows=[(*row, None, -1, None, (), None, -1, None, None) for row in rows],
        columns={"start_ns": array("q", starts), "end_ns": array("q", ends)}, processes=table, metadata={"mpi_size": 3},
    )  # fmt: skip
    path = tmp_path / "ranks.h5"
    _core.write_h5(made, str(path))
    return path


def test_imbalance_names_the_ranks_that_wait_and_are_waited_for(profile: Path) -> None:
    results = sp.load(profile)
    solve, only = results.imbalance()
    assert (solve.name, solve.num_calls, solve.totals) == ("solve", 4, {0: 1.0, 1: 2.0, 2: 6.0})
    assert (solve.mean, solve.minimum, solve.min_rank, solve.maximum, solve.max_rank) == (3.0, 1.0, 0, 6.0, 2)
    assert solve.imbalance_pct == 100.0 and solve.lost_time == 3.0
    assert solve.waiting_times == {0: 5.0, 1: 4.0, 2: 0.0}
    assert solve.imbalance_pct == results["solve"].rank_imbalance_pct
    assert (only.totals, only.imbalance_pct, only.lost_time) == ({1: 1.0}, 0.0, 0.0)
    (pair,) = results.imbalance(include="solve", ranks=[0, 1])
    assert (pair.mean, pair.lost_time, pair.num_calls) == (1.5, 0.5, 2)
    assert sp.read_h5_summary(profile).imbalance()[0] == solve


@pytest.mark.parametrize("order", [["--ranks", "FILE"], ["FILE", "--ranks"], ["-r", "--include", "solve", "FILE"]])
def test_inspect_ranks_without_a_rank_shows_the_balance(profile: Path, capsys: pytest.CaptureFixture[str], order: list[str]) -> None:
    assert main(["inspect", *(str(profile) if word == "FILE" else word for word in order)]) == 0
    lines = [line.strip(" │").split() for line in capsys.readouterr().out.splitlines()]
    assert ["solve", "3", "4", "3.000000", "1.000000", "0", "6.000000", "2", "100.00", "3.000000"] in lines
    assert ["1", "worker", "<1>", "4711", "2", "0", "0"] in lines
    assert ["2", "-", "-", "2", "0", "0"] in lines
    assert (["only", "1", "1", "1.000000", "1.000000", "1", "1.000000", "1", "0.00", "0.000000"] in lines) == ("solve" not in order)


def test_inspect_ranks_with_a_rank_still_chooses(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(profile), "--ranks", "1-2"]) == 0
    shown = capsys.readouterr().out
    assert "Balance" not in shown and "worker <1>" in shown and "parent" not in shown
    assert main(["inspect", "--json", "--ranks", "0", str(profile)]) == 0
    document = json.loads(capsys.readouterr().out)["profiles"][0]
    assert "balance" not in document and document["processes"] == [{"rank": 0, "name": "parent", "pid": 100}]
    assert main(["inspect", "--json", "--ranks", "--", str(profile)]) == 0
    balance = json.loads(capsys.readouterr().out)["profiles"][0]["balance"]
    assert balance[0]["totals"] == {"0": 1.0, "1": 2.0, "2": 6.0} and balance[0]["max_rank"] == 2


def test_views_name_processes(profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = ["parent (rank 0, pid 100)", "worker <1> (rank 1, pid 4711)", "rank 2"]
    results = sp.load(profile)
    assert [results.rank_label(rank) for rank in range(3)] == labels
    assert main(["inspect", str(profile), "--tree"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line.endswith(" - all calls")] == [f"{label} - all calls" for label in labels]
    sp.export_speedscope(results, tmp_path / "p.speedscope.json", ranks=[0, 1, 2])
    speedscope = json.loads((tmp_path / "p.speedscope.json").read_text())
    assert [one["name"] for one in speedscope["profiles"]] == labels
    sp.export_chrome_trace(results, tmp_path / "p.trace.json", ranks=[0, 1, 2])
    trace = json.loads((tmp_path / "p.trace.json").read_text())
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    assert [event["args"]["name"] for event in events if event["name"] == "process_name"] == labels
    sp.export_perfetto(results, tmp_path / "p.pftrace", ranks=[0, 1, 2])
    content = (tmp_path / "p.pftrace").read_bytes()
    assert all(label.encode() in content for label in labels)
