"""Dependencies between the layers of the C code run one way only."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"

# Each layer may include itself and what stands before it. The front ends do not include each other, but that of native code
# is below the others: native code joins their runs.
ORDER = ["platform", "core", "analysis", "formats", "report", "native"]
FRONT_ENDS = ["python", "cli", "mpi"]
ALLOWED = {layer: set(ORDER[: ORDER.index(layer) + 1]) for layer in ORDER}
ALLOWED |= {layer: {*ORDER, layer} for layer in FRONT_ENDS}

# Headers of other projects that only one layer may see.
OWNED_HEADERS = {
    r"(Python|structmember|frameobject)\.h|cpython/.*|greenlet/.*": {"python"},
    r"hdf5.*\.h|H5.*\.h": {"formats"},
    r"(zstd.*|lzf|libdeflate)\.h": {"formats"},
    r"mpi\.h": {"mpi"},
}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def includes():
    """(layer, file, kind of bracket, included name) of every include below src."""
    for path in sorted(SOURCE.rglob("*.[ch]")):
        layer = path.relative_to(SOURCE).parts[0]
        for bracket, name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            yield layer, str(path.relative_to(ROOT)), bracket, name


def test_there_is_something_to_check():
    assert {layer for layer, *_ in includes()} >= {"core", "python"}


def test_every_source_is_in_a_known_layer():
    assert {path.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.[ch]")} <= ALLOWED.keys()


def test_layers_include_only_what_is_below_them():
    wrong = [
        f"{file} includes {name}"
        for layer, file, bracket, name in includes()
        if bracket == '"' and (SOURCE / name).exists() and name.split("/")[0] not in ALLOWED[layer]
    ]
    assert wrong == []


def test_quoted_includes_are_written_from_src_or_include():
    wrong = [
        f"{file} includes {name}"
        for _, file, bracket, name in includes()
        if bracket == '"' and not (SOURCE / name).exists() and not (ROOT / "include" / name).exists()
    ]
    assert wrong == []


@pytest.mark.parametrize("pattern", OWNED_HEADERS)
def test_foreign_headers_stay_in_their_layer(pattern):
    wrong = [
        f"{file} includes {name}"
        for layer, file, _, name in includes()
        if re.fullmatch(pattern, name) and layer not in OWNED_HEADERS[pattern]
    ]
    assert wrong == []


def test_the_public_header_needs_only_the_c_library():
    def names(header):
        return {name for _, name in INCLUDE.findall((ROOT / "include" / header).read_text(encoding="utf-8"))}

    assert names("scope_profiler.h") <= {"stdbool.h", "stddef.h", "stdint.h", "time.h", "scope_profiler_client.h"}
    assert names("scope_profiler_client.h") <= {"dlfcn.h", "stdio.h", "stdlib.h", "string.h", "sys/auxv.h"}  # opens the library
