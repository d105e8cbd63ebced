"""Documents that nobody wrote: JSON profiles and TOML settings give a result, or one error that names the file."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import scope_profiler as sp
from scope_profiler.profile_config import load_profiling_config

ODD = st.one_of(
    st.none(), st.booleans(), st.sampled_from([0, 1, -1, 2**31, 2**63, -(2**63) - 1, 10**30, 0.5, 1e308, float("nan"), float("inf")]),
    st.sampled_from(["", "a", "x\0y", "\ud800", "9" * 30, "-1", "rank0"]),
    st.lists(st.integers(-2, 5), max_size=3), st.dictionaries(st.sampled_from(["0", "a", "name", "rank"]), st.integers(-1, 3), max_size=2),
)  # fmt: skip


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("json") / "p.json"
    with sp.session(output=None, verbose=False, return_results=True, track_threads=True) as run:
        for _ in range(3):
            with sp.region("a", tags=["t"]):
                with sp.region("b"):
                    pass
    sp.export_json(run.results, path, verbose=False)
    return json.loads(path.read_text())


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += places(item, (*path, key))
    return found


def change(document: Any, path: tuple[Any, ...], value: Any, delete: bool) -> None:
    *above, last = path
    for key in above:
        document = document[key]
    if delete:
        del document[last]
    else:
        document[last] = value


def use(path: Path) -> None:
    """What is read can be looked at, summed up and written again; what cannot be read says so in one line with the name."""
    try:
        results = sp.load(path)
    except (ValueError, OSError) as error:
        assert path.name in str(error) and "\n" not in str(error), error
        return
    try:
        results.summary()
        results.call_graph()
        for region in results:
            for rank in region:
                region[rank].num_calls, region[rank].durations_ns, region[rank].tags
        sp.write_profile(results, path.with_suffix(".h5"))
    except (ValueError, sp.EventDataUnavailableError):
        pass


def many(reduced: int) -> Any:
    import os

    count = reduced * 100 if os.environ.get("SCOPE_PROFILER_SOAK", "") not in ("", "0") else reduced
    return settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))


@many(150)
@given(st.data())
def test_json_documents_with_anything_in_them(document: Any, tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    changed = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(changed)))
        change(changed, path, data.draw(ODD), data.draw(st.booleans()))
        if not places(changed):
            break
    path = tmp_path_factory.getbasetemp() / "fuzzed.json"
    path.write_text(json.dumps(changed), errors="surrogatepass")
    use(path)


@many(150)
@given(st.binary(max_size=300), st.integers(0, 2**20))
def test_json_documents_with_damaged_bytes(document: Any, tmp_path_factory: pytest.TempPathFactory, junk: bytes, place: int) -> None:
    content = json.dumps(document).encode()
    place %= len(content)
    path = tmp_path_factory.getbasetemp() / "fuzzed.json"
    path.write_bytes(content[:place] + junk + content[place + len(junk) // 2 :])
    use(path)


KEYS = st.sampled_from(
    ["track_threads", "track_async", "label", "output", "file_path", "hdf5", "memray", "gpu", "spool", "compression", "enable_tags",
     "spool_limit", "enabled", "perf_events", "x", "buffer_limit"]
)  # fmt: skip
LITERALS = st.sampled_from(
    ["true", "false", "0", "-1", "1.5", "nan", '"a"', '"\\u0000"', "[]", '["a", 1]', "{}", "{compression = 3}", "1979-05-27", "'gzip'", '""', "9" * 40]
)  # fmt: skip
LINES = st.one_of(
    st.tuples(KEYS, LITERALS).map(lambda pair: f"{pair[0]} = {pair[1]}"),
    st.sampled_from(["[hdf5]", "[gpu]", "[tool.scope_profiler]", "[tool.scope-profiler]", "[[hdf5]]", "[profiling]", "[", "="]),
    st.text(max_size=10),
)


@many(300)
@given(st.lists(LINES, max_size=8))
def test_settings_with_anything_in_them(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.toml"
    path.write_text("\n".join(lines), errors="surrogatepass")
    try:
        found = load_profiling_config(path)
    except (ValueError, TypeError) as error:
        assert "fuzzed.toml" in str(error), error
    else:
        assert isinstance(found, dict)


@many(100)
@given(st.binary(max_size=100))
def test_settings_that_are_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.toml"
    path.write_bytes(content)
    try:
        load_profiling_config(path)
    except (ValueError, TypeError) as error:
        assert "fuzzed.toml" in str(error), error


@pytest.mark.parametrize("content", ["x = " + "9" * 5000, "x = " + "[" * 100_000, "x" + ".x" * 100_000 + " = 1", "\ufeffx = 1"])
def test_settings_that_claim_much(tmp_path: Path, content: str) -> None:
    path = tmp_path / "claims.toml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match="claims.toml"):
        load_profiling_config(path)


def test_a_comment_may_have_any_number_of_dots(tmp_path: Path) -> None:
    path = tmp_path / "dots.toml"
    path.write_text("# " + "." * 500 + "\ntrack_threads = true  # " + ".." * 200 + "\n")
    assert load_profiling_config(path) == {"track_threads": True}


@pytest.mark.parametrize(
    ("place", "value"),
    [(("threads", "0", 0, "index"), 2**63), (("regions", 1, "tags", 0), None),
     (("regions", 0, "end_times_ns"), None), (("regions", 0, "source_lineno"), 10**30)],
)  # fmt: skip
def test_a_json_profile_with_a_value_of_the_wrong_kind_is_refused_by_name(document: Any, tmp_path: Path, place: Any, value: Any) -> None:
    changed = copy.deepcopy(document)
    change(changed, place, value, delete=False)
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(changed))
    with pytest.raises(sp.JSONProfileError, match="wrong.json"):
        sp.load(path)


def test_an_error_that_quotes_the_file_is_one_line(document: Any, tmp_path: Path) -> None:
    changed = copy.deepcopy(document)
    changed["threads"]["0"][0]["start\nns"] = 1
    path = tmp_path / "lines.json"
    path.write_text(json.dumps(changed))
    with pytest.raises(sp.JSONProfileError, match=r"lines.json is a damaged profile: .*start ns") as caught:
        sp.load(path)
    assert "\n" not in str(caught.value)
