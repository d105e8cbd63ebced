"""The printed summary: whole tables, compared line by line with what they should be."""

import io
import re
import threading
import time

import numpy as np
import pytest

import scope_profiler as sp
from scope_profiler import _core
from scope_profiler.concurrency import TaskInfo, ThreadInfo
from scope_profiler.mpi_region import MPIRegion
from scope_profiler.region_results import Region
from scope_profiler.results import ProfilingResults
from scope_profiler.summary import REGION_TABLE_COLUMNS, SORT_KEYS, format_count

MS = 1_000_000


def results_of(*calls, **parts):
    """calls: (name, start, end[, rank[, thread]]), times in ms after the start of the run."""
    rows = {}
    for name, start, end, *lane in calls:
        rank, thread = (*lane, *(0, None)[len(lane) :])
        rows.setdefault(name, {}).setdefault(rank, []).append((start, end, thread))
    regions = {}
    for name, by_rank in rows.items():
        regions[name] = MPIRegion(name, {
            rank: Region(
                np.array([round(s * MS) for s, _, _ in found]), np.array([round(e * MS) for _, e, _ in found]),
                thread_ids=None if found[0][2] is None else [t for _, _, t in found],
            )
            for rank, found in by_rank.items()
        })  # fmt: skip
    return ProfilingResults(regions, **parts)


def printed(results, **options):
    stream = io.StringIO()
    options.setdefault("suppress_notes", True)
    results.print_summary(stream=stream, **options)
    return stream.getvalue()


def cells(results, **options):
    """The rows below the title, each as the texts between gaps."""
    lines = printed(results, **options).splitlines()
    body = [line.strip().strip("│").rstrip() for line in lines if line.startswith("  │")]
    return [re.split(r"  +", line.strip()) for line in body[1:]]


TREE = [
    ("scope_profiler.session", 0, 10), ("outer", 1, 4), ("outer", 5, 9), ("inner", 1.5, 2), ("inner", 2.5, 3.5), ("inner", 6, 8),
    ("rec", 6.1, 7.9), ("rec", 6.2, 7), ("rec", 6.3, 6.4), ("leaf", 6.31, 6.32), ("leaf", 9.5, 9.6),
]  # fmt: skip


def test_the_default_table():
    assert printed(results_of(*TREE)) == """\
  ╭────────────────────────────────────────────────────────────────╮
  │ region                    % session          total [s]         │
  ├────────────────────────────────────────────────────────────────┤
  │ scope_profiler.session    100.00%            0.010000          │
  │ └─ (own)                     29.00%             0.002900       │
  │ └─ outer (2x)                70.00%             0.007000       │
  │ │ └─ (own)                     35.00%             0.003500     │
  │ │ └─ inner (3x)                35.00%             0.003500     │
  │ │ │ └─ (own)                     17.00%             0.001700   │
  │ │ │ └─ rec ↻ (3x)                18.00%             0.001800   │
  │ │ │ │ └─ (own)                     17.90%             0.001790 │
  │ │ │ │ └─ leaf                      0.10%              0.000010 │
  │ └─ leaf                      1.00%              0.000100       │
  ╰────────────────────────────────────────────────────────────────╯

"""


def test_every_column():
    table = cells(results_of(*TREE), columns=list(REGION_TABLE_COLUMNS))
    assert table[2] == ["└─ outer", "1", "2", "0.007000", "70.00%", "70.00%", "3.500e-03", "-", "-", "0.003000", "0.004000",
                        "0.003000", "0.004000", "0.000500", "0.003500", "0.003950", "0.003990", "0.00"]  # fmt: skip
    # the recursion: all levels count (1.8, 0.8 and 0.1 ms), the outermost is the total
    assert table[6] == ["│ │ └─ rec ↻", "1", "3", "0.001800", "18.00%", "51.43%", "9.000e-04", "-", "-", "0.000100", "0.001800",
                        "0.001800", "0.001800", "0.000698", "0.000800", "0.001700", "0.001780", "0.00"]  # fmt: skip
    assert table[7] == ["│ │ │ └─ (own)", "0.001790", "17.90%", "99.44%", "5.967e-04"]


def test_without_a_session_there_is_no_share_of_it():
    r = results_of(*TREE[1:])
    assert cells(r)[0] == ["outer (2x)", "0.007000"]
    assert cells(r, columns=["region", "percent", "parent_percent"])[:2] == [["outer (2x)", "-", "-"], ["└─ (own)", "-", "50.00%"]]
    assert cells(r, columns="total")[:2] == [["0.007000"], ["0.003500"]]


def test_exclusive_percentages():
    r = results_of(*TREE)
    shares = {row[0]: row[1] for row in cells(r, columns=["region", "percent"], percentage_mode="exclusive")}
    assert shares["scope_profiler.session"] == "29.00%" and shares["└─ outer (2x)"] == "35.00%"
    assert shares["│ │ └─ rec ↻ (3x)"] == "17.90%"


@pytest.mark.parametrize("sort", SORT_KEYS)
def test_sorting_keeps_every_call_below_its_caller(sort):
    rows = [row[0] for row in cells(results_of(*TREE), sort=sort, columns=["region", "calls", "total"])]
    assert rows[0] == "scope_profiler.session" and rows[1] == "└─ (own)"
    inside = rows[rows.index("│ └─ inner") :]
    assert inside[:4] == ["│ └─ inner", "│ │ └─ (own)", "│ │ └─ rec ↻", "│ │ │ └─ (own)"]
    first = [row for row in rows if row in ("└─ outer", "└─ leaf")]
    assert first == (["└─ leaf", "└─ outer"] if sort == "name" else ["└─ outer", "└─ leaf"])


def test_sorting_orders_siblings():
    r = results_of(("b", 0, 1), ("a", 2, 8), ("c", 10, 11), ("c", 12, 13))
    order = {sort: "".join(row[0] for row in cells(r, sort=sort, columns=["region", "calls"])) for sort in ("start", "total", "calls", "name", "max")}
    assert order == {"start": "bac", "total": "acb", "calls": "cba", "name": "abc", "max": "abc"}


def test_several_ranks_share_their_paths():
    r = results_of(
        ("scope_profiler.session", 0, 10), ("scope_profiler.session", 0, 12, 1),
        ("outer", 1, 4), ("outer", 1, 4, 1), ("outer", 5, 11, 1), ("inner", 2, 3), ("only1", 2, 3, 1),
    )  # fmt: skip
    columns = ["region", "ranks", "calls", "total", "percent", "imbalance"]
    assert cells(r, columns=columns) == [
        ["scope_profiler.session", "2", "2", "0.022000", "100.00%", "9.09"],
        ["└─ (own)", "0.010000", "45.45%"],
        ["└─ outer", "2", "3", "0.012000", "54.55%", "50.00"],
        ["│ └─ (own)", "0.010000", "45.45%"],
        ["│ └─ inner", "1", "1", "0.001000", "4.55%", "0.00"],
        ["│ └─ only1", "1", "1", "0.001000", "4.55%", "0.00"],
    ]
    assert cells(r, columns=columns, ranks=[1])[2:] == [
        ["└─ outer", "1", "2", "0.009000", "75.00%", "0.00"],
        ["│ └─ (own)", "0.008000", "66.67%"],
        ["│ └─ only1", "1", "1", "0.001000", "8.33%", "0.00"],
        ["inner", "0", "0", "-", "-", "0.00"],
    ]


def test_processes_without_a_session_are_compared_with_that_of_the_first():
    r = results_of(("scope_profiler.session", 0, 10), ("all", 1, 9), ("job", 2, 8, 1), ("job", 1, 9, 2))
    assert cells(r, columns=["region", "calls", "ranks", "percent"])[-1] == ["job", "2", "2", "70.00%"]  # the mean of 60 and 80 %
    assert cells(r, columns=["region", "percent"], percentage_mode="exclusive")[-1] == ["job (2x)", "70.00%"]
    assert cells(r, columns=["region", "percent"], exclude="scope_profiler.session")[-1] == ["job (2x)", "70.00%"]


def test_sums_of_threads_at_once_are_no_share_of_the_session():
    ready, go = threading.Barrier(3), threading.Event()

    def work():
        with sp.region("together"):
            ready.wait(60)
            go.wait(60)

    with sp.session(output=None, verbose=False, return_results=True, aggregation_mode=True) as run:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        ready.wait(60)
        with sp.region("once"):
            time.sleep(1)  # most of the session: twice of it is more than all of it
        go.set()
        for thread in threads:
            thread.join()
    rows = {row[0]: row[1] for row in cells(run.results, columns=["region", "percent", "total"])}
    assert rows["scope_profiler.session"] == "100.00%" and rows["once"].endswith("%") and rows["together (2x)"] == "-"
    assert "summed over threads and tasks" in printed(run.results, suppress_notes=False)


def test_regions_left_out_disappear_from_the_middle_of_the_tree():
    r = results_of(*TREE)
    assert [row[0] for row in cells(r, include="o|leaf")] == ["outer (2x)", "└─ (own)", "└─ leaf", "leaf"]
    assert [row[0] for row in cells(r, exclude=["scope", "inner", "rec"])] == ["outer (2x)", "└─ (own)", "└─ leaf", "leaf"]
    # a share of the session can be asked for though it is not shown
    assert cells(r, include="outer", columns=["region", "percent"]) == [["outer (2x)", "70.00%"]]


def test_threads_count_their_wall_clock_once():
    r = results_of(
        ("scope_profiler.session", 0, 100, 0, 0), ("a", 1, 50, 0, 1), ("a", 20, 60, 0, 2), ("b", 30, 40, 0, 1), ("b", 35, 45, 0, 2)
    )
    assert cells(r, columns=["region", "calls", "percent", "parent_percent", "total"]) == [
        ["scope_profiler.session", "1", "100.00%", "-", "0.100000"],
        ["a", "2", "59.00%", "-", "0.089000"],
        ["└─ (own)", "45.74%", "77.53%", "0.069000"],  # of the wall clock, like the 59 %: 69 of 89 ms
        ["└─ b", "2", "15.00%", "22.47%", "0.020000"],
    ]


def test_calls_that_do_not_nest_are_a_list_that_says_so():
    text = printed(results_of(("scope_profiler.session", 0, 100), ("a", 1, 50), ("b", 30, 60)), suppress_notes=False)
    assert "│ a                         49.00%       0.049000  │" in text and "└─" not in text and "track_threads=True" in text


def test_calls_of_one_thread_that_overlap_keep_the_tree():
    text = printed(results_of(("s", 0, 100, 0, 0), ("a", 1, 50, 0, 0), ("b", 30, 60, 0, 0)), suppress_notes=False)
    assert "│ └─ b           0.030000 │" in text and "began last" in text


def test_levels_beyond_any_screen_are_cut():
    deep = [("even" if i % 2 == 0 else "odd", i, 1000 - i) for i in range(400)]
    lines = printed(results_of(*deep)).splitlines()
    assert len(lines) < 200 and sum("…" in line for line in lines) == 1 and max(map(len, lines)) < 400


def test_names_cannot_drive_the_terminal_or_fill_it():
    text = printed(results_of(("a\x1b[31m\nb", 0, 1), ("x" * 100_000, 2, 3), ("日本", 4, 5)))
    assert "\x1b" not in text and r"a\x1b[31m\nb" in text and max(map(len, text.splitlines())) < 140
    assert "│ 日本 " in text


def test_an_encoding_without_line_drawing_still_prints():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    results_of(("é", 0, 1)).print_summary(stream=stream, suppress_notes=True)
    stream.flush()
    assert b"\\xe9" in stream.buffer.getvalue() and b"+---" in stream.buffer.getvalue()


def test_an_empty_run_says_so(capsys):
    ProfilingResults({}, file_path="x/y.h5").print_summary()
    assert capsys.readouterr().out == "x/y.h5 (0 ranks)\n  (no regions recorded)\n"


def test_nothing_is_printed_away_from_the_root(capsys):
    ProfilingResults({}, is_root=False).print_summary()
    assert capsys.readouterr().out == ""


def test_unknown_words_are_refused():
    r = results_of(*TREE)
    with pytest.raises(ValueError, match="'bogus'.*parent_percent"):
        r.print_summary(columns=["region", "bogus"])
    with pytest.raises(ValueError, match="at least"):
        r.print_summary(columns=[])
    with pytest.raises(ValueError, match="coverage"):
        r.print_summary(percentage_mode="x")
    with pytest.raises(KeyError, match="imbalance"):
        r.print_summary(sort="x")


def test_notes_suggest_commands_for_a_file_that_is_there(tmp_path, capsys):
    file = tmp_path / "my run.h5"
    file.touch()
    results_of(*TREE, file_path=file).print_summary()
    text = capsys.readouterr().out
    assert f"scope-profiler inspect '{file}'" in text and "Summary: " in text and "↻" in text
    profile = results_of(*TREE)._to_profile()
    results_of(*TREE, file_path=tmp_path / "none.h5").print_summary(title="Mine")
    ProfilingResults._from_profile(profile, file_path=file, in_memory=True).print_summary()  # the file is another run's
    text = capsys.readouterr().out
    assert "scope-profiler inspect" not in text and "Summary: Mine" in text and "in memory" in text


def test_a_concurrent_run_shows_its_threads():
    threads = [ThreadInfo(0, 0, "MainThread", 1, 1, False, 0, -1, 20 * MS)]
    threads += [ThreadInfo(i, 0, f"w{i}", 1, 1, False, 10 * MS, (20 + i) * MS, i * MS) for i in (1, 2)]
    r = results_of(
        ("main", 0, 50, 0, 0), ("work", 11, 15, 0, 1), ("work", 12, 20, 0, 2), ("work", 16, 18, 0, 1),
        threads={0: threads}, metadata={"start_time_ns": 0, "finalize_time_ns": 100 * MS},
    )  # fmt: skip
    text = printed(r, suppress_notes=False)
    # 50, 6 and 8 ms inside of regions in 100 ms
    facts = "3 threads, 1 of them alive at the end, at most 3 at once, 0.64 inside of regions on average over 0.100 s"
    assert f"Concurrent run: {facts}, 0.023 s of CPU" in text
    rows = [re.split(r"  +", line.strip(" │")) for line in text.splitlines() if re.search(r"│ +\d ", line)]
    assert rows == [
        ["0", "MainThread", "1", "0.050000", "0.020000", "alive"],
        ["1", "w1", "2", "0.006000", "0.001000", "0.011000"],
        ["2", "w2", "1", "0.008000", "0.002000", "0.012000"],
    ]
    assert "Concurrent" not in printed(r)  # the table alone
    filtered = printed(r, include="work", suppress_notes=False)
    assert [line for line in filtered.splitlines() if "MainThread" in line] == [line for line in text.splitlines() if "MainThread" in line]


def test_cpu_time_that_is_unknown_is_not_taken_for_none():
    threads = [ThreadInfo(0, 0, "MainThread", 1, 1, False, 0, -1, 20 * MS), ThreadInfo(1, 0, "killed", 1, 1, False, 0, -1, -1)]
    some = printed(results_of(("r", 0, 5, 0, 0), threads={0: threads}), suppress_notes=False)
    assert ", 0.020 s of CPU on 1 of them, unknown on the others\n" in some
    for thread in threads:
        thread.cpu_time = float("nan")
    none = printed(results_of(("r", 0, 5, 0, 0), threads={0: threads}), suppress_notes=False)
    assert "Concurrent run: 2 threads" in none and "s of CPU" not in none
    many = [ThreadInfo(i, 0, f"t{i}", 1, 1, False, 0, 9 * MS, -1 if i % 2 else MS) for i in range(100)]
    text = printed(results_of(("r", 0, 5, 0, 0), threads={0: many}), suppress_notes=False)
    (line,) = (line for line in text.splitlines() if " more threads" in line)
    assert line.startswith("  and ") and ", of 50 it is unknown" in line


def test_many_threads_and_tasks_are_put_together():
    threads = [ThreadInfo(i, 0, f"w{i}", 1, 1, False, 0, MS, i * MS) for i in range(100)]
    tasks = [TaskInfo(i, 0, "task", f"Task-{i}", "fetch" if i % 2 else "main", 0, 0, MS, 2, 3 * MS, 5 * MS) for i in range(20)]
    text = printed(results_of(("a", 0, 1, 0, 0), threads={0: threads}, tasks={0: tasks}), suppress_notes=False)
    assert "w99" in text and "w83 " not in text and "and 84 more threads with 3.486 s" in text.replace("3.486000", "3.486")
    assert re.search(r"│ fetch +10 +20 +0\.030000 +0\.050000 │", text)


def test_a_run_without_lanes_shows_no_threads():
    threads = {0: [ThreadInfo(0, 0, "MainThread", 1, 1, False, 0, -1, 20)]}
    assert "Concurrent" not in printed(results_of(("a", 0, 1, 0, 0), threads=threads), suppress_notes=False)


def test_counts_have_three_figures():
    numbers = (1, 999, 1000, 1500, 99_999, 999_999, 1_000_000, 1_234_567, 10**9, 12 * 10**9, 10**20)
    assert [format_count(n) for n in numbers] == ["1", "999", "1k", "1.5k", "100k", "1M", "1M", "1.23M", "1G", "12G", "100000P"]


def test_a_profile_without_its_calls_lists_its_regions():
    statistics = (60 * MS, 10 * MS, 30 * MS, 30 * MS, 10 * MS, 0, 80 * MS, 0, 0, 20.0 * MS, 200.0)
    session = (100 * MS, 100 * MS, 100 * MS, 100 * MS, 100 * MS, 0, 100 * MS, 0, 0, 100.0 * MS, 0.0)
    r = ProfilingResults._from_profile(_core.make_profile(
        names=["scope_profiler.session", "a"], columns={}, summary_only=True,
        rows=[(0, 0, 0, 1, None, -1, None, (), None, 40 * MS, session, None), (1, 0, 0, 3, None, -1, None, (), None, 60 * MS, statistics, None, (20.0 * MS, 29.0 * MS, 30.0 * MS))],
    ))  # fmt: skip
    assert cells(r, columns=["region", "percent", "total", "max", "p50", "p95"]) == [
        ["scope_profiler.session", "100.00%", "0.100000", "0.100000", "-", "-"],
        ["a (3x)", "60.00%", "0.060000", "0.030000", "0.020000", "0.029000"],
    ]
    assert "without its calls" in printed(r, suppress_notes=False)


def test_two_million_calls_are_summed_up_in_a_moment():
    import time

    count = 500_000
    starts = np.arange(count, dtype=np.int64) * 100
    columns = {
        "start_ns": np.concatenate([starts, starts + 5, starts + 30, starts + 60]),
        "end_ns": np.concatenate([starts + 90, starts + 20, starts + 50, starts + 80]),
        "call_ids": np.concatenate([np.arange(count) * 4 + i for i in range(4)]),
        "parent_ids": np.concatenate([np.full(count, -1), *[np.arange(count) * 4] * 3]),
    }
    rows = [(i, 0, count * i, count, None, -1, None, (), None, -1, None, None) for i in range(4)]
    r = ProfilingResults._from_profile(_core.make_profile(names=list("abcd"), rows=rows, columns=columns))
    begin = time.process_time()
    table = cells(r)
    assert time.process_time() - begin < 1.0  # 0.03 s here; building one object a call would take 10
    assert table[0] == ["a (500kx)", "0.045000"] and table[2] == ["└─ b (500kx)", "0.007500"]


def test_a_summary_that_a_file_keeps_prints_the_table_of_its_calls(tmp_path):
    from scope_profiler import read_h5, read_h5_summary, write_profile

    calls = [*[(*call, 0, 0) for call in TREE], ("work", 1, 5, 0, 1), ("leaf", 2, 3, 0, 1), ("work", 1, 4, 1, 0)]
    threads = {0: [ThreadInfo(i, 0, f"t{i}", 1, 1, False, 0, 9 * MS, MS) for i in range(2)]}
    write_profile(results_of(*calls, threads=threads, metadata={"start_time_ns": 0}), tmp_path / "x.h5")
    whole, kept = read_h5(tmp_path / "x.h5"), read_h5_summary(tmp_path / "x.h5")
    assert whole.has_event_data and not kept.has_event_data
    columns = [name for name in REGION_TABLE_COLUMNS if name not in ("p50", "p95", "p99")]
    for options in ({}, {"exclude": "inner"}, {"ranks": [1]}, {"include": "leaf|work", "sort": "total"}):
        assert printed(kept, columns=columns, **options) == printed(whole, columns=columns, **options)
    assert "│ └─ leaf" in printed(kept) and kept.thread_summary() == whole.thread_summary()
    assert printed(kept, suppress_notes=False) == printed(whole, suppress_notes=False)
