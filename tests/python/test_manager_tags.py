"""Which regions record, by their tags."""

import pytest

import scope_profiler as sp
from scope_profiler import tags

ROOT = "scope_profiler.session"


@pytest.fixture(autouse=True)
def no_opt_in(monkeypatch):
    monkeypatch.setattr(tags, "_opt_in", frozenset())
    monkeypatch.delenv("SCOPE_PROFILER_ENABLE_TAGS", raising=False)


def recorded(manager, **settings):
    """Which of three regions, tagged a, b and not at all, a session records."""
    with manager.session(output=None, verbose=False, return_results=True, **settings) as run:
        for name, own in (("x", ["a"]), ("y", ["b"]), ("z", None)):
            with manager.region(name, tags=own):
                pass
    return run.results.region_names


def test_without_rules_everything_records(pm):
    assert recorded(pm) == [ROOT, "x", "y", "z"]


@pytest.mark.parametrize(
    ("wanted", "names"), [(["a"], ["x"]), ("a", ["x"]), (["a", "b"], ["x", "y"]), (["c"], []), ([], []), ("ab", [])]
)
def test_region_tags_keep_what_shares_one_and_the_root(pm, wanted, names):
    assert recorded(pm, region_tags=wanted) == [ROOT, *names]
    assert recorded(pm) == [ROOT, "x", "y", "z"], "the filter is of one run"


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, ["y", "z"]),
        ({"enable_tags": "a"}, ["x", "y", "z"]),
        ({"enable_tags": ["*"]}, ["x", "y", "z"]),
        ({"enable_tags": ["b"]}, ["y", "z"]),
        ({"region_tags": ["a"]}, ["x"]),
        ({"region_tags": ["b"]}, ["y"]),
    ],
)
def test_opt_in_tags_record_where_enabled(pm, settings, names):
    pm.register_opt_in_tag("a")
    assert recorded(pm, **settings) == [ROOT, *names]


def test_one_of_a_regions_own_opt_in_tags_must_be_enabled(pm):
    pm.register_opt_in_tag("a", "b")
    with pm.session(output=None, verbose=False, return_results=True, enable_tags=["a"]) as run:
        for name, own in (("both", ["a", "b"]), ("b", ["b"]), ("other", ["c"])):
            with pm.region(name, tags=own):
                pass
    assert run.results.region_names == [ROOT, "both", "other"]


def test_the_environment_enables(pm, monkeypatch):
    pm.register_opt_in_tag("a")
    monkeypatch.setenv("SCOPE_PROFILER_ENABLE_TAGS", "q, a ,")
    assert "x" in recorded(pm)
    monkeypatch.setenv("SCOPE_PROFILER_ENABLE_TAGS", "*")
    assert "x" in recorded(pm)
    monkeypatch.setenv("SCOPE_PROFILER_ENABLE_TAGS", "")
    assert "x" not in recorded(pm)


def test_registration_reaches_regions_and_decorators_that_exist_in_every_manager(pm, default):
    @pm.profile(tags=["late"])
    def work():
        return None

    region = default.region("r", tags=["late"])
    pm.setup(output=None)
    default.setup(output=None)

    def use():
        work()
        with region:
            pass

    use()
    sp.register_opt_in_tag("late")
    use()
    assert pm.region("work").num_calls == 1 and region.num_calls == 1
    pm.finalize(verbose=False)
    pm.reset()
    pm.setup(output=None)
    use()
    assert pm.region("work").num_calls == 0, "the registration survives reset()"


@pytest.mark.parametrize("bad", ["", 1, None])
def test_what_is_no_tag_is_refused(pm, bad):
    with pytest.raises(TypeError, match="opt-in tag"):
        pm.register_opt_in_tag("good", bad)
    assert tags.opt_in_tags() == frozenset()
    pm.register_opt_in_tag()


def test_tags_are_in_results_and_file(pm, tmp_path):
    with pm.session(output=tmp_path / "p.h5", verbose=False, return_results=True) as run:
        with pm.region("x", tags=("é", "b")):
            pass
    assert run.results["x"].tags == ("é", "b") and sp.load(tmp_path / "p.h5")["x"].tags == ("é", "b")
