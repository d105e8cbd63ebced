"""``scope-profiler export``: both forms, names of files, and what is refused."""

import gzip

import pytest

from export_helpers import region, results_of, strict_json, thread
from perfetto_trace import Reader
from scope_profiler import load_prof, read_json, write_profile
from scope_profiler.cli import main
from scope_profiler.cli.export import FORMATS


def run(label="run", end=100):
    return results_of({"main": {0: region([0], [end], [0]), 1: region([0], [7], [0])}, "step": {0: region([10], [40], [0])}},
                      label, threads={0: [thread(0, "MainThread")]})


@pytest.fixture(autouse=True)
def profile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_profile(run(), "run.h5")


def wrote(capsys, *arguments):
    """The files that an export tells of, relative to the directory."""
    assert main(["export", *arguments]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    return [line.removeprefix("wrote ") for line in told.out.splitlines()]


def refused(capsys, *arguments):
    assert main(["export", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    return line


NAMES = {
    "speedscope": "profile.speedscope.json", "perfetto": "profile.pftrace", "chrome-trace": "profile.trace.json",
    "prof": "profile_rank0.prof", "folded": "profile.folded", "flamegraph": "flamegraph_rank0.svg", "csv": "profile.csv",
    "parquet": "profile.parquet", "json": "profile.json",
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_by_both_forms_is_the_same_file(name, tmp_path, capsys):
    [first] = wrote(capsys, name, "run.h5", "-o", "new/dir")
    assert first == f"new/dir/{NAMES[name]}"
    [second] = wrote(capsys, "run.h5", "--to", name, "-o", "new/")
    assert second == f"new/{NAMES[name]}"
    assert (tmp_path / first).read_bytes() == (tmp_path / second).read_bytes() != b""
    [third] = wrote(capsys, "run.h5", "--to", name)
    assert third == NAMES[name]


def test_the_suffix_of_the_output_tells_the_format(capsys):
    assert wrote(capsys, "run.h5", "-o", "a.pftrace") == ["a.pftrace"]
    assert Reader("a.pftrace").calls() == [("main", 0, 100), ("step", 10, 40)]
    assert wrote(capsys, "run.h5", "-o", "b.trace.json.gz") == ["b.trace.json.gz"]
    assert strict_json("b.trace.json.gz")["traceEvents"]
    assert wrote(capsys, "run.h5", "-o", "c.json") == ["c.json"] and read_json("c.json").num_ranks == 2
    assert wrote(capsys, "run.h5", "-o", "d.x.prof") == ["d.x_rank0.prof"]
    assert "which format" in refused(capsys, "run.h5", "-o", "e.bin")
    assert "which format" in refused(capsys, "run.h5")


def test_files_are_compressed_on_demand(tmp_path, capsys):
    assert wrote(capsys, "json", "run.h5", "-o", ".", "--gzip") == ["profile.json.gz"]
    assert wrote(capsys, "run.h5", "--to", "folded", "-o", "x", "--gzip") == ["x.folded.gz"]
    assert gzip.decompress((tmp_path / "x.folded.gz").read_bytes()) == b"main 70\nmain;step 30\n"
    assert wrote(capsys, "run.h5", "--to", "flamegraph", "-o", "y.svg.gz") == ["y_rank0.svg.gz"]
    assert "not compressed" in refused(capsys, "run.h5", "--to", "prof", "-o", "x.prof.gz")
    assert "not compressed" in refused(capsys, "parquet", "run.h5", "--gzip")


def test_globs_labels_ranks_and_regions(tmp_path, capsys):
    write_profile(run("other", end=200), "two.h5")
    assert wrote(capsys, "folded", "*.h5", "-o", "d", "--label", "A", "--label", "B b") == ["d/profile_A.folded", "d/profile_B_b.folded"]
    assert (tmp_path / "d/profile_B_b.folded").read_text() == "main 170\nmain;step 30\n"
    wrote(capsys, "run.h5", "--to", "folded", "-o", "r.folded", "--ranks", "0-1", "-e", "st")
    assert (tmp_path / "r.folded").read_text() == "rank 0;main 100\nrank 1;main 7\n"
    assert wrote(capsys, "prof", "run.h5", "-o", ".", "--ranks", "0", "1", "--include", "main", "--no-call-paths") == [
        "profile_rank0.prof", "profile_rank1.prof"]
    assert ("~", 0, "main") in load_prof("profile_rank1.prof").stats


def test_options_of_single_formats(tmp_path, capsys):
    wrote(capsys, "run.h5", "-o", "lanes.folded", "--by-lane")
    assert (tmp_path / "lanes.folded").read_text() == "MainThread;main 70\nMainThread;main;step 30\n"
    wrote(capsys, "run.h5", "-o", "i.json", "--indent", "2")
    assert (tmp_path / "i.json").read_text().startswith('{\n  "format": ')
    wrote(capsys, "run.h5", "-o", "f.svg", "--fixed-width", "--width", "300", "--threshold", "35%")
    picture = (tmp_path / "f_rank0.svg").read_text()
    assert 'width="300"' in picture and ">main<" in picture and ">step<" not in picture


@pytest.mark.parametrize(("arguments", "words"), [
    (["run.h5", "--to", "speedscop"], ["speedscope"]),
    (["none.h5", "--to", "csv"], ["none.h5", "no such file"]),
    (["*.none", "--to", "csv"], ["*.none", "no file matches"]),
    (["csv", "run.h5", "--to", "json"], ["csv", "json"]),
    (["csv", "run.h5", "--by-lane"], ["--by-lane", "folded", "csv"]),
    (["csv", "run.h5", "--indent", "-1"], ["-1", "spaces"]),
    (["flamegraph", "run.h5", "--width", "x"], ["x", "pixels"]),
    (["csv", "run.h5", "--include", "("], ["regular expression"]),
    (["csv", "run.h5", "--include", "nothing"], ["run.h5", "no region matches"]),
    (["csv", "run.h5", "--ranks", "5"], ["run.h5", "no rank 5"]),
    (["csv", "run.h5", "--label", "a", "--label", "b"], ["2 labels for 1 files"]),
    (["run.h5", "--to", "csv", "-o", "run.h5/x.csv"], ["run.h5/x.csv"]),
    (["csv"], ["FILE"]),
])  # fmt: skip
def test_what_cannot_be_done_is_told_in_one_line(arguments, words, capsys):
    line = refused(capsys, *arguments)
    assert all(word in line for word in words), line


def test_help_names_the_formats(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["export", "--help"])
    assert not stop.value.code
    text = capsys.readouterr().out
    assert all(name in text for name in FORMATS)
    assert main(["--help"]) == 0
    assert "export " in capsys.readouterr().out


def test_a_file_named_like_a_format_is_a_file(tmp_path, capsys):
    (tmp_path / "run.h5").rename(tmp_path / "csv")
    assert wrote(capsys, "csv", "--to", "folded") == ["profile.folded"]
