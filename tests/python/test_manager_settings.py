"""Settings: one meaning and one refusal wherever they are written."""

import dataclasses
import os

import numpy as np
import pytest

import scope_profiler as sp
from manager_helpers import enter
from scope_profiler import _core
from scope_profiler.profile_config import ProfilingConfig, load_profiling_config


def config(**settings):
    return ProfilingConfig(**settings)


def test_defaults():
    plain = config()
    assert plain.file_path == "profiling_data.h5" and plain.label is None and plain.buffer_limit == 1024
    assert plain.hdf5_compression == "auto" and plain.metadata_detail == "minimal" and plain.output_mode == "auto"
    assert plain.enable_tags == () and plain.tracker is None and plain.comm is None and plain.paused is False
    assert plain.checkpoint == "replace" and not plain.track_threads and not plain.deactivate_file_output


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"buffr_limit": 3}, TypeError, "'buffr_limit' (did you mean 'buffer_limit'?)"),
        ({"zzz": 3}, TypeError, "'zzz'"),
        ({"label": 3}, TypeError, "label"),
        ({"label": "a\0b"}, ValueError, "label"),
        ({"label": "a\ud800"}, ValueError, "label"),
        ({"file_path": 7}, TypeError, "file_path"),
        ({"file_path": ""}, ValueError, "file_path"),
        ({"file_path": "a\0b"}, ValueError, "file_path"),
        ({"buffer_limit": -1}, ValueError, "buffer_limit"),
        ({"buffer_limit": "9"}, TypeError, "buffer_limit"),
        ({"buffer_limit": True}, TypeError, "buffer_limit"),
        ({"track_threads": "no"}, TypeError, "track_threads"),
        ({"capture_region_source": []}, TypeError, "capture_region_source"),
        ({"metadata_detail": "some"}, ValueError, "metadata_detail"),
        ({"output_mode": "fast"}, ValueError, "output_mode"),
        ({"hdf5_compression": "lzma"}, ValueError, "hdf5_compression"),
        ({"hdf5_compression": 3}, ValueError, "hdf5_compression"),
        ({"hdf5_compression_level": True}, ValueError, "hdf5_compression_level"),
        ({"hdf5_compression_level": 1.5}, ValueError, "hdf5_compression_level"),
        ({"hdf5_compression": "gzip", "hdf5_compression_level": 10}, ValueError, "0 to 9"),
        ({"hdf5_compression": "zstd", "hdf5_compression_level": 0}, ValueError, "1 to 22"),
        ({"hdf5_compression": "lzf", "hdf5_compression_level": 1}, ValueError, "lzf"),
        ({"hdf5_chunk_size": 0}, ValueError, "hdf5_chunk_size"),
        ({"hdf5_chunk_size": True}, ValueError, "hdf5_chunk_size"),
        ({"enable_tags": ["a", 3]}, TypeError, "enable_tags"),
        ({"checkpoint": "both"}, ValueError, "checkpoint"),
        ({"perf_events": []}, ValueError, "perf_events"),
        ({"perf_events": ["cycle"]}, ValueError, "cycle"),
        ({"perf_events": ["cycles", "cycles"]}, ValueError, "twice"),
        ({"gpu_sync_on_exit": True}, ValueError, "use_gpu_timing"),
        ({"aggregation_mode": True, "use_nvtx": True}, ValueError, "aggregation_mode cannot be combined with use_nvtx"),
        ({"track_threads": True, "aggregation_mode": True}, ValueError, "track_threads cannot be combined"),
        ({"track_threads": True, "use_line_profiler": True}, ValueError, "track_threads cannot be combined"),
    ],
)
def test_what_is_wrong_is_told_at_setup_by_name(pm, settings, error, words):
    with pytest.raises(error) as caught:
        pm.setup(output=None, **settings) if "file_path" not in settings else pm.setup(**settings)
    assert words in str(caught.value)
    assert not pm.is_configured() and not pm.is_active()



@pytest.mark.parametrize(
    ("given", "kept"),
    [(None, "auto"), ("", None), ("none", None), (" GZIP ", "gzip"), ("Auto", "auto"), ("lzf", "lzf"), ("zstd", "zstd")],
)
def test_spellings_of_compression(given, kept):
    assert config(hdf5_compression=given).hdf5_compression == kept


def test_values_in_other_types():
    assert config(track_threads=np.True_).track_threads is True and config(track_threads=1).track_threads is True
    assert config(label="").label is None
    assert config(enable_tags="slow").enable_tags == ("slow",) and config(enable_tags={"x"}).enable_tags == ("x",)
    assert config(buffer_limit=0).buffer_limit == 0
    assert ProfilingConfig("x.h5").file_path == "x.h5"
    with pytest.raises(TypeError):
        ProfilingConfig("x.h5", file_path="y.h5")


def test_none_means_unset_everywhere(pm):
    names = [field.name for field in dataclasses.fields(sp.ProfilingOptions) if field.name not in ("memray", "gpu", "hdf5")]
    pm.setup(**dict.fromkeys(names), replace=False, region_tags=None, config_path=None)
    assert repr(pm.get_config()) == repr(config())


# -- output ------------------------------------------------------------------------------------------------------------------


def test_output_is_a_path_or_none(pm, tmp_path):
    assert pm.setup(output=tmp_path / "a.h5").file_path == str(tmp_path / "a.h5")
    assert pm.setup(output=os.fsencode(tmp_path / "b.h5"), replace=True).file_path == str(tmp_path / "b.h5")
    pm.setup(output=None, replace=True)
    assert pm.get_config().deactivate_file_output
    for clash in ({"file_path": "x.h5"}, {"deactivate_file_output": False}):
        with pytest.raises(TypeError, match="output cannot be combined with"):
            pm.setup(output="a.h5", replace=True, **clash)
    with pytest.raises(TypeError):
        pm.setup(output=3, replace=True)
    with pytest.raises(ValueError, match="directory"):
        pm.setup(output=tmp_path, replace=True)


@pytest.mark.parametrize("name", ["a.html", "a.HTM"])
def test_a_build_without_the_viewer_refuses_pages_at_once(pm, name, monkeypatch):
    monkeypatch.setattr(_core, "HAS_VIEWER", False)
    with pytest.raises(ValueError, match="has no viewer"):
        pm.setup(output=name)


def test_an_extension_is_a_format_for_output_only(pm, tmp_path):
    path = tmp_path / "x.json"
    pm.setup(file_path=path)
    enter(pm, "a")
    pm.finalize(verbose=False)
    assert path.read_bytes().startswith(b"\x89HDF")


def test_an_explicit_output_wins_over_options_and_file(pm, tmp_path):
    options = sp.ProfilingOptions(deactivate_file_output=True, file_path="other.h5")
    run = pm.setup(options, output=tmp_path / "a.h5")
    enter(pm, "a")
    run.finalize(verbose=False)
    assert (tmp_path / "a.h5").exists()


# -- options -----------------------------------------------------------------------------------------------------------------


def test_keywords_before_options_before_the_file(pm, tmp_path):
    toml = tmp_path / "c.toml"
    toml.write_text('[profiling]\nlabel = "file"\nbuffer_limit = 7\nhdf5_chunk_size = 64\n')
    options = sp.ProfilingOptions(label="options", hdf5=sp.HDF5Options(compression="gzip"), buffer_limit=8)
    pm.setup(options, config_path=toml, label="keyword")
    kept = pm.get_config()
    assert (kept.label, kept.buffer_limit, kept.hdf5_chunk_size, kept.hdf5_compression) == ("keyword", 8, 64, "gzip")


def test_groups_flatten_and_clash():
    options = sp.ProfilingOptions(
        memray=sp.MemrayOptions(enabled=False, path="m.bin"), gpu=sp.GPUOptions(nvtx=False), hdf5=sp.HDF5Options(chunk_size=9)
    )
    assert options.to_kwargs() == {
        "use_memray": False, "memory_profile_path": "m.bin", "use_nvtx": False, "hdf5_chunk_size": 9,
    }  # fmt: skip
    clash = sp.ProfilingOptions(hdf5_compression="lzf", hdf5=sp.HDF5Options(compression="gzip"))
    with pytest.raises(ValueError, match="hdf5_compression is set both"):
        clash.to_kwargs()


def test_what_is_no_options_object_is_refused(pm):
    with pytest.raises(TypeError, match="ProfilingOptions"):
        pm.setup("p.h5")
    with pytest.raises(TypeError, match="'hdf5'"):
        pm.setup(hdf5=sp.HDF5Options())


# -- TOML --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", {}),
        ('label = "top"\n[hdf5]\nchunk_size = 9\n', {"label": "top", "hdf5_chunk_size": 9}),
        ('label = "ignored"\n[profiling]\nbuffer_limit = 7\n[profiling.hdf5]\nchunk_size = 9\n',
         {"buffer_limit": 7, "hdf5_chunk_size": 9}),
    ],
)  # fmt: skip
def test_toml(tmp_path, text, settings):
    path = tmp_path / "c.toml"
    path.write_text(text)
    assert load_profiling_config(path) == settings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x =", "invalid TOML"),
        ("profiling = 3", "must be a table"),
        ("[profiling]\nhdf5 = 3", "must be a table"),
        ("[profiling]\nbogus = 1", "bogus"),
        ("bufer_limit = 3", "did you mean 'buffer_limit'"),
        ("[profiling]\nauto_finalize = true", "auto_finalize"),
        ("[profiling.hdf5]\nbogus = 1", "bogus"),
        ("[profiling]\nhdf5_chunk_size = 3\n[profiling.hdf5]\nchunk_size = 9", "set both"),
    ],
)
def test_bad_toml_is_a_valueerror_naming_the_file(pm, tmp_path, text, words):
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(ValueError) as caught:
        pm.setup(config_path=path)
    assert words in str(caught.value) and str(path) in str(caught.value)
    assert not pm.is_configured()


def test_unreadable_toml(pm, tmp_path):
    with pytest.raises(ValueError, match="cannot read"):
        pm.setup(config_path=tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="invalid TOML"):
        pm.setup(config_path=tmp_path / "bytes.toml")


# -- environment ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def environment(monkeypatch):
    for name in ("CONFIG", "OUTPUT", "RECURSIVE", "AUTO_FINALIZE", "ENABLE_TAGS"):
        monkeypatch.delenv(f"SCOPE_PROFILER_{name}", raising=False)
    return lambda name, value: monkeypatch.setenv(f"SCOPE_PROFILER_{name}", value)


def test_setup_from_env(pm, tmp_path, environment):
    toml = tmp_path / "c.toml"
    toml.write_text('label = "from the file"')
    environment("CONFIG", str(toml))
    environment("OUTPUT", str(tmp_path / "env.h5"))
    run = pm.setup_from_env()
    assert run.file_path == str(tmp_path / "env.h5") and pm.get_config().label == "from the file"
    assert pm.setup_from_env(output="kw.h5", label="kw", replace=True).file_path == "kw.h5"
    assert pm.get_config().label == "kw"
    assert pm.setup_from_env(file_path="own.h5", replace=True).file_path == "own.h5"
    environment("OUTPUT", "")
    assert pm.setup_from_env(replace=True).file_path == "profiling_data.h5"


@pytest.mark.parametrize(("value", "truth"), [("1", True), (" YES ", True), ("on", True), ("no", False), ("maybe", False)])
def test_flags_of_the_environment(pm, environment, value, truth):
    environment("AUTO_FINALIZE", value)
    pm.setup_from_env(output=None)
    assert (pm._state.at_exit is not None) == truth
    environment("RECURSIVE", value)
    pm.setup_from_env(output=None, replace=True)
    assert pm.get_config().recursive_profile == truth


# -- a configuration before a run --------------------------------------------------------------------------------------------------


def test_get_config_before_setup_gives_defaults_and_configures_nothing(pm):
    assert pm.get_config() is pm.get_config() and pm.get_config().file_path == "profiling_data.h5"
    assert not pm.is_configured() and not pm.is_active()
    assert pm.get_config().start_time_ns > 0


@pytest.mark.parametrize(
    ("settings", "filters", "chunks"),
    [
        ({"hdf5_compression": "none"}, None, None),
        ({"hdf5_compression": "gzip", "hdf5_compression_level": 9}, "gzip", None),
        ({"hdf5_compression": "lzf"}, "lzf", None),
        ({"hdf5_chunk_size": 512}, "gzip", (512,)),
    ],
)
def test_storage_settings_reach_the_file(pm, tmp_path, settings, filters, chunks):
    h5py = pytest.importorskip("h5py")
    pm.setup(output=tmp_path / "p.h5", **settings)
    enter(pm, "a", 20_000)
    pm.finalize(verbose=False)
    with h5py.File(tmp_path / "p.h5") as file:
        column = file["events/start_deltas"]
        assert column.shape == (20_000,) and column.compression == filters
        assert filters != "gzip" or column.compression_opts == settings.get("hdf5_compression_level", column.compression_opts)
        assert chunks is None or column.chunks == chunks


@pytest.mark.parametrize("setting", ["enable_tags", "region_tags"])
@pytest.mark.parametrize("value", [5, b"bytes", 1.5])
def test_tags_that_are_no_texts_are_refused_in_the_name_of_the_setting(pm, setting, value):
    with pytest.raises(TypeError, match=f"^{setting} must be a str or an iterable of them"):
        pm.setup(output=None, **{setting: value})
    with pytest.raises(TypeError, match=f"a tag of {setting} must be a str"):
        pm.setup(output=None, **{setting: [value]})
    assert not pm.is_configured()
