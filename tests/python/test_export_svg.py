"""export_flamegraph_svg: well-formed pictures whose bars are as wide as the time they stand for."""

import xml.etree.ElementTree as ElementTree

import pytest

from export_helpers import region, results_of
from scope_profiler import EventDataUnavailableError, export_flamegraph_svg, read_h5_summary, write_profile

SVG = "{http://www.w3.org/2000/svg}"


def drawn(run, tmp_path, **options):
    """(root element, {tooltip: (x, y, width)})"""
    [path] = export_flamegraph_svg(run, tmp_path / "p", verbose=False, **options)
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    bars = {}
    for group in root.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        bars[group.find(f"{SVG}title").text] = tuple(float(rect.get(key)) for key in ("x", "y", "width"))
    return root, bars


def example():
    """main [0, 800] calls step twice (300 and 100), the first step calls leaf (100); other [1000, 1200]."""
    return results_of({
        "main": {0: region([0], [800])},
        "step": {0: region([0, 500], [300, 600])},
        "leaf": {0: region([50], [150])},
        "other": {0: region([1000], [1200])},
    }, "a run")


def test_bars_are_as_wide_as_their_time_and_stand_on_their_callers(tmp_path):
    root, bars = drawn(example(), tmp_path, width=1020)
    # 1000 pixels for 1000 ns; four bars of 18 between margins of 10
    assert bars == {
        "a run rank 0: 1e-06 s (100.00%), 1 call": (10, 64, 1000),
        "main: 8e-07 s (80.00%), 1 call, own 4e-07 s": (10, 46, 800),
        "step: 4e-07 s (40.00%), 2 calls, own 3e-07 s": (10, 28, 400),
        "leaf: 1e-07 s (10.00%), 1 call": (10, 10, 100),
        "other: 2e-07 s (20.00%), 1 call": (810, 46, 200),
    }
    assert root.get("viewBox") == "0 0 1020 92" and root.get("width") is None
    assert root.find(f"{SVG}title").text == "a run rank 0"


def test_a_picture_of_fixed_size(tmp_path):
    [path] = export_flamegraph_svg(example(), tmp_path / "p.v2.svg", scalable=False, width=640, verbose=False)
    assert path.name == "p.v2_rank0.svg" and path.read_bytes().startswith(b'<?xml version="1.0" encoding="UTF-8"?>\n<svg')
    root = ElementTree.fromstring(path.read_bytes())
    assert root.get("width") == "640" and root.get("viewBox") is None


def test_small_bars_are_left_out_with_what_is_on_them(tmp_path):
    _, bars = drawn(example(), tmp_path, threshold=0.41)
    assert [tip.split(":")[0] for tip in bars] == ["a run rank 0", "main"]


def test_a_bar_per_region(tmp_path):
    _, bars = drawn(example(), tmp_path, call_paths=False, width=1020)
    assert {tip.split(":")[0]: width for tip, (_, _, width) in bars.items()} == {
        "a run rank 0": 1000, "main": 400, "step": 300, "leaf": 100, "other": 200}


def test_any_name_is_valid_xml(tmp_path):
    names = ['<&"\x01\x1f\n>', "é😀" * 500, ""]
    run = results_of({name: {0: region([i * 10], [i * 10 + 9])} for i, name in enumerate(names)}, "<label>")
    root, bars = drawn(run, tmp_path)
    assert any(tip.startswith('<&"\\x01\\x1f\\n>:') for tip in bars) and len(bars) == 4
    texts = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert any(text.startswith("é😀") and text.endswith("…") for text in texts)


def test_calls_without_length_and_recursion(tmp_path):
    assert len(drawn(results_of({"a": {0: region([5, 5], [5, 5])}}), tmp_path, threshold=0)[1]) == 1
    depth = 5000
    run = results_of({"rec": {0: region(range(depth), range(3 * depth, 2 * depth, -1))}})
    assert [tip.split(":")[0] for tip in drawn(run, tmp_path)[1]] == ["run rank 0", "rec"]


def test_nothing_to_draw_is_an_error(tmp_path):
    for wrong in ({"ranks": 4}, {"include": "nothing"}):
        with pytest.raises(ValueError):
            export_flamegraph_svg(example(), tmp_path / "p", **wrong)
    write_profile(example(), tmp_path / "run.h5")
    with pytest.raises(EventDataUnavailableError):
        export_flamegraph_svg(read_h5_summary(tmp_path / "run.h5"), tmp_path / "p")


def test_a_line_is_printed_for_each_file(tmp_path, capsys):
    [path] = export_flamegraph_svg(example(), tmp_path / "new" / "p")
    assert capsys.readouterr().out == f"Wrote {path}\n"
