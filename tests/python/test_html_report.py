"""Pages for the browser: what is in the file, and the commands that write it. How it looks is in tests/browser."""

from __future__ import annotations

import base64
import json
import os
import re
import stat
import zlib

import pytest

import scope_profiler as sp
from export_helpers import region, results_of, task, thread
from scope_profiler import _core, create_html_report
from scope_profiler.cli import main

COLUMN = re.compile(r'<script type="text/plain" data-run="(\d+)" data-rank="(\d+)" data-column="(\w+)">(.*?)</script>', re.DOTALL)
RANK = re.compile(r'<script type="application/json" data-run="(\d+)" data-rank="(\d+)">(.*?)</script>', re.DOTALL)


def parts_of(path):
    """The report of a page, the ranks with their tracks, and the columns: an independent reader."""
    page = path.read_text(encoding="utf-8")
    report = json.loads(re.search(r'<script type="application/json" id="sp-report">(.*?)</script>', page, re.DOTALL)[1])
    ranks = {(int(run), int(rank)): json.loads(text)["tracks"] for run, rank, text in RANK.findall(page)}
    columns = {}
    for run, rank, name, text in COLUMN.findall(page):
        lines = text.split("\n")[1:-1]
        columns[int(run), int(rank), name] = lines if name == "metadata" else [value for line in lines for value in unpacked(line)]
    return report, ranks, columns


def unpacked(line):
    count, width, text = line.split(" ")
    count, width = int(count), int(width)
    data = zlib.decompress(base64.b64decode(text, validate=True)) if width else b""
    assert len(data) == count * width
    return [sum(data[plane * count + i] << 8 * plane for plane in range(width)) for i in range(count)]


def test_calls_lie_as_they_are_drawn(tmp_path):
    # a [100, 200] holds b [110, 120] and b [130, 170], that holds c [140, 150]; then a [300, 300], which has no length
    run = results_of({"a": {0: region([100, 300], [200, 300])}, "b": {0: region([110, 130], [120, 170])}, "c": {0: region([140], [150])}})
    report, ranks, columns = parts_of(create_html_report(run, tmp_path / "p.html"))
    assert report["runs"][0]["names"] == ["a", "b", "c"]
    assert ranks == {(0, 0): [[-1, 0, [2, 2, 1]]]}
    assert columns == {
        (0, 0, "gap"): [0, 100, 10, 10, 40],
        (0, 0, "duration"): [100, 0, 10, 40, 10],
        (0, 0, "name"): [0, 0, 1, 1, 2],
        (0, 0, "parent"): [0, 0, 0, 0, 1],
    }


def test_awaiting_gpu_times_and_metadata_are_columns_where_a_run_has_them(tmp_path):
    run = results_of({"a": {0: region([0, 10], [5, 20], [0, 0], [-1, 3], await_times=[0, 4], gpu_durations=[-1, 6],
                                      event_metadata=[{}, {"k": "</script>"}])}})  # fmt: skip
    _, ranks, columns = parts_of(create_html_report(run, tmp_path / "p.html"))
    assert ranks[0, 0] == [[-2, 0, [1]], [3, 0, [1]]]
    assert columns[0, 0, "await"] == [0, 4] and columns[0, 0, "gpu"] == [0, 7]
    assert columns[0, 0, "metadata"] == ['1 {"k": "\\u003c/script>"}']


def test_more_calls_than_a_block_holds(tmp_path):
    count = 150_000
    starts = [i * 10 + 10**15 for i in range(count)]
    run = results_of({"a": {0: region(starts, [s + 3 for s in starts])}})
    _, ranks, columns = parts_of(create_html_report(run, tmp_path / "p.html"))
    assert ranks[0, 0] == [[-1, 0, [count]]]
    assert columns[0, 0, "gap"] == [0] + [7] * (count - 1) and columns[0, 0, "duration"] == [3] * count


def test_statistics_and_lanes_are_in_the_report(tmp_path):
    run = results_of({"a": {0: region([0, 100], [10, 130], [1, 1], await_times=[2, 3], source_file="/f.py", source_lineno=3)}},
                     threads={0: [thread(1, "w")]}, tasks={0: [task(4, "T", "C.f", 1)]}, metadata={"start_time_ns": 0, "x": 1.5})  # fmt: skip
    [one] = parts_of(create_html_report(run, tmp_path / "p.html"))[0]["runs"]
    [row] = one["regions"]
    # name rank calls total min max mean m2 first last start end p50 p95 p99 own await gpu source
    assert row[:12] == [0, 0, 2, 40, 10, 30, 20, 200, 10, 30, 0, 130]
    assert row[12] == 20 and row[15:] == [40, 5, None, ["/f.py", 3, None, []]]
    assert one["threads"] == [[0, 1, "w", "1001", "2001", False, 5, None, 7]]
    assert one["tasks"] == [[0, 4, "task", "T", "C.f", 1, 1, 90, 2, 3, 4, -1, -1]]
    assert one["usage"] == [[0, 1, 2, 40]]
    assert dict(one["metadata"]) == {"label": "run", "start_time_ns": "0", "x": 1.5}


def test_no_text_can_end_its_element(tmp_path):
    evil = "</script><!--<script>"
    run = results_of({evil: {0: region([0], [1], [0], source_file=evil, source_text=evil, tags=[evil])}}, evil,
                     threads={0: [thread(0, evil)]}, tasks={0: [task(0, evil, evil)]}, metadata={"k" + evil: evil})  # fmt: skip
    path = create_html_report(run, tmp_path / "p.html")
    page = path.read_text(encoding="utf-8")
    assert evil not in page
    assert page.count("<script") == page.count("</script>")
    assert parts_of(path)[0]["runs"][0]["names"] == [evil]


def test_regions_and_ranks_can_be_chosen(tmp_path):
    run = results_of({"a": {0: region([0], [10]), 1: region([0], [5])}, "b": {0: region([2], [8])}, "c": {0: region([3], [4])}})
    report, ranks, columns = parts_of(create_html_report(run, tmp_path / "p.html", exclude="b", ranks=[0]))
    assert [row[:2] for row in report["runs"][0]["regions"]] == [[0, 0], [2, 0]]
    assert ranks == {(0, 0): [[-1, 0, [1, 1]]]} and columns[0, 0, "name"] == [0, 2]
    assert set(parts_of(create_html_report(run, tmp_path / "p.html"))[1]) == {(0, 0), (0, 1)}
    with pytest.raises(ValueError, match="no rank 7"):
        create_html_report(run, tmp_path / "p.html", ranks=[7])


@pytest.mark.parametrize(("options", "message"), [
    ({"sort": "bogus"}, "sort must be one of .* not 'bogus'"), ({"columns": ["calls", "bogus"]}, "no column 'bogus'"),
    ({"scaling": "bogus"}, "scaling must be"), ({"speedup_x": "bogus"}, "speedup_x must be"), ({"speedup_x": "threads"}, "one, two did not record"),
])  # fmt: skip
def test_options_are_checked_before_anything_is_written(tmp_path, options, message):
    runs = [results_of({"a": {0: region([0], [1])}}, label) for label in ("one", "two")]
    with pytest.raises(ValueError, match=message):
        create_html_report(runs, tmp_path / "p.html", **options)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="no results"):
        create_html_report([], tmp_path / "p.html")


def test_several_runs_get_a_page_together_and_one_each(tmp_path):
    runs = [results_of({"a": {r: region([0], [1]) for r in range(n)}}, label, num_ranks=n, metadata={"omp_num_threads": "2"})
            for label, n in (("base one", 1), ("a/b", 2))]  # fmt: skip
    assert create_html_report(runs, tmp_path / "sub" / "y.html") == tmp_path / "sub" / "y.html"
    assert sorted(os.listdir(tmp_path / "sub")) == ["y-0-base-one.html", "y-1-a-b.html", "y.html"]
    options = parts_of(tmp_path / "sub" / "y.html")[0]["options"]
    assert options["links"] == [["base one", "y-0-base-one.html"], ["a/b", "y-1-a-b.html"]]
    assert options["axes"] == [{"name": "MPI ranks", "values": [1, 2]}, {"name": "cores", "values": [2, 4]}]
    create_html_report(runs, tmp_path / "z.html", individual_reports=False, speedup_x="cores", scaling="weak")
    options = parts_of(tmp_path / "z.html")[0]["options"]
    assert "links" not in options and options["axes"][0]["name"] == "cores" and options["scaling"] == "weak"
    assert [path.name for path in tmp_path.glob("*.html")] == ["z.html"]


def test_a_page_without_charts_holds_sums_by_path_and_no_calls(tmp_path):
    run = results_of({"a": {0: region([0], [10])}, "b": {0: region([2], [8])}})
    report, ranks, columns = parts_of(create_html_report(run, tmp_path / "p.html", include_charts=False))
    assert (ranks, columns) == ({}, {})
    assert report["runs"][0]["nodes"] == [[0, -1], [1, 0]]
    assert report["runs"][0]["paths"] == [[0, 0, 1, 10, 4, 10], [1, 0, 1, 6, 6, 6]]


def test_a_failed_write_leaves_the_old_page(tmp_path):
    run = results_of({"a": {0: region([0], [10])}})
    path = create_html_report(run, tmp_path / "p.html")
    before = path.read_bytes()
    with pytest.raises(OSError, match="p.html"):
        create_html_report(run, path / "below.html")
    path.with_name("q.html").mkdir()
    with pytest.raises(OSError, match="q.html"):
        create_html_report(run, tmp_path / "q.html")
    assert path.read_bytes() == before


def test_a_session_can_write_a_page(pm, tmp_path):
    with pm.session(output=tmp_path / "page.html", verbose=False), pm.region("step"):
        pass
    assert "step" in parts_of(tmp_path / "page.html")[0]["runs"][0]["names"]


# -- the command line ------------------------------------------------------------------------------------------------------


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "run.h5"
    sp.write_profile(results_of({"a": {0: region([0], [10])}}), path)
    return path


def test_view_writes_a_page_and_prints_where_it_is(profile, tmp_path, capsys):
    assert main(["view", str(profile), "--no-open", "-o", str(tmp_path / "out.html")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out.html'}\n"
    assert parts_of(tmp_path / "out.html")[0]["runs"][0]["name"] == "run"


def test_view_keeps_a_page_without_a_name_to_the_user(profile, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["view", str(profile), "--no-open"]) == 0
    page = capsys.readouterr().out.strip()
    assert os.path.basename(page) == "run.html"
    assert stat.S_IMODE(os.stat(os.path.dirname(page)).st_mode) == 0o700


def test_view_opens_the_browser_where_there_is_a_screen(profile, tmp_path, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    assert main(["view", str(profile), "-o", str(tmp_path / "out.html")]) == 0
    assert opened == [] and capsys.readouterr() == (f"{tmp_path / 'out.html'}\n", "")
    monkeypatch.setenv("DISPLAY", ":7")
    assert main(["view", str(profile), "-o", str(tmp_path / "out.html")]) == 0
    assert opened == [(tmp_path / "out.html").as_uri()] and capsys.readouterr().err == ""


def test_view_shows_a_program_that_runs(python, tmp_path):
    python(
        "import scope_profiler as sp\n"
        "from scope_profiler.cli import main\n"
        "import glob\n"
        "with sp.session(output='live.h5', verbose=False, spool=True):\n"
        "    with sp.region('early'): pass\n"
        "    [spool] = glob.glob('live.h5.*.spool')\n"
        "    assert main(['view', spool, '--no-open', '-o', 'live.html']) == 0\n"
    )
    assert "early" in parts_of(tmp_path / "live.html")[0]["runs"][0]["names"]


def test_report_takes_the_options_of_the_release(profile, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(profile), "--no-charts", "--charts-cdn", "--sort", "total", "--columns", "region", "calls",
                 "--scaling", "weak", "--speedup-x", "auto", "--no-individual-reports"]) == 0  # fmt: skip
    assert capsys.readouterr().out == "report.html\n"
    assert parts_of(tmp_path / "report.html")[0]["options"] == {"sort": "total", "charts": False, "columns": ["region", "calls"]}


def test_report_names_every_page_that_it_writes(profile, tmp_path, capsys):
    target, other = tmp_path / "both.html", tmp_path / "other.h5"
    other.write_bytes(profile.read_bytes())
    assert main(["report", str(profile), str(other), "-o", str(target), "--no-charts"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == str(target) and len(printed) == 3
    assert sorted(printed) == sorted(str(path) for path in tmp_path.glob("both*.html"))
    assert main(["report", str(profile), str(other), "-o", str(target), "--no-charts", "--no-individual-reports"]) == 0
    assert capsys.readouterr().out == f"{target}\n"


@pytest.mark.parametrize("command", ["view", "report"])
def test_what_cannot_be_shown_is_told_in_one_line(command, profile, tmp_path, capsys):
    def told(*arguments):
        assert main([command, *arguments]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    assert "missing.h5: no such file" in told("missing.h5")
    assert "p.html" in told(str(profile), "-o", str(profile / "p.html"))
    assert "not a regular expression" in told(str(profile), "--include", "(", "-o", str(tmp_path / "p.html"))
    assert "no rank 9" in told(str(profile), "--ranks", "9", "-o", str(tmp_path / "p.html"))


def test_bad_arguments_of_the_extension_are_refused(profile, tmp_path):
    whole = sp.load(profile)._to_profile()
    for runs, error in (([whole], TypeError), ([(whole, "x", [0])], TypeError), ([(whole, "x", [-1], None)], OverflowError),
                        ([(whole, "x", [0], [True, False])], ValueError), ([(1, "x", [0], None)], TypeError), (3, TypeError)):  # fmt: skip
        with pytest.raises(error):
            _core.export_html(runs, str(tmp_path / "p.html"))
    assert not (tmp_path / "p.html").exists()
