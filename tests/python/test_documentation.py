"""The pages: every code block runs, what they show is what comes out, links lead somewhere, and nothing public is left out."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import os
import re
import shutil
import stat
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

import pytest

import scope_profiler as sp
from doc_blocks import ROOT, Reader, blocks_of, build_site, faults_of, same_output, tokens_of
from scope_profiler.settings import GROUPS, PERF_EVENTS, SETTINGS

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

# What no test can run, page by page: the reasons that the blocks give. There is nothing else that is not run.
NOT_RUN: dict[str, list[str]] = {}


# Members that come with a base of Python's own, and wrappers that are to mpi4py's methods what their names say.
INHERITED = {*dir(tuple), *dir(dict), *dir(OSError)}
WRAPPERS = {"ProfiledMPIComm", "ProfiledMPIRequest"}
MODULES = (
    "call_stack", "concurrency", "mpi_region", "native_samples", "native_trace", "plotting_scripts", "processes", "profile_config",
    "profile_io", "profile_manager", "results", "summary",
)  # fmt: skip

# OpenMPI's launcher asks whether root means it, and that as many ranks as a page starts may share what processors there are.
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "MPI4PY_MPIABI": "openmpi",
}


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


# -- blocks -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_block_can_be_run_or_says_why_not(page: Path) -> None:
    assert faults_of(page) == []


def test_these_blocks_are_not_run_and_no_others() -> None:
    found = {page_id(page): [block.marks["not run"] for block in blocks_of(page) if "not run" in block.marks] for page in PAGES}
    assert {name: reasons for name, reasons in found.items() if reasons} == NOT_RUN


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture(scope="module")
def prefix(native_library: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed C library, as `meson setup --libdir=lib` would have placed it."""
    from native_code import Library

    assert isinstance(native_library, Library)
    there = tmp_path_factory.mktemp("prefix")
    shutil.copytree(native_library.prefix, there, symlinks=True, dirs_exist_ok=True)
    directory = there / native_library.directory.relative_to(native_library.prefix)
    if directory != there / "lib":
        for entry in directory.iterdir():
            (there / "lib" / entry.name).symlink_to(entry)
    for package in (directory / "pkgconfig").glob("*.pc"):
        package.write_text(re.sub(r"^prefix=.*$", f"prefix={there}", package.read_text(), flags=re.MULTILINE))
    return there


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What stands in for programs that would install or build something: they only look whether they were called rightly."""
    directory = tmp_path_factory.mktemp("tools")
    program(
        directory / "pip",
        f"""#!{sys.executable}
import re, sys
from importlib.metadata import metadata
from pathlib import Path
root = Path({str(ROOT)!r})
assert sys.argv[1] == "install", sys.argv
extras = set(metadata("scope-profiler").get_all("Provides-Extra"))
known = "".join(path.read_text() for path in sorted((root / "requirements").glob("*.txt"))) + (root / "pyproject.toml").read_text()
for word in sys.argv[2:]:
    if word in (".", "scope-profiler"):
        continue
    found = re.fullmatch(r"(?:scope-profiler|\\.)\\[(.+)\\]", word)
    if found:
        assert set(found[1].split(",")) <= extras, word
    else:
        assert re.search(rf"\\b{{re.escape(word)}}\\b", known), f"nothing tells the version of {{word}}"
""",
    )
    program(
        directory / "meson",
        """#!/bin/sh
# `meson setup` only remembers the prefix, and `meson install` puts there what was built before.
set -e
case $1 in
setup) for word; do case $word in --prefix=*) echo "${word#--prefix=}" >.meson-prefix ;; esac; done ;;
install) mkdir -p "$(dirname "$(cat .meson-prefix)")" && ln -sfn "$INSTALLED_PREFIX" "$(cat .meson-prefix)" ;;
*) echo "what is meson $1?" >&2; exit 1 ;;
esac
""",
    )
    return directory


def needs_library(page: Path) -> bool:
    return any(block.language in ("c", "cpp", "fortran") or "meson" in block.text for block in blocks_of(page))


# Release 0.7.5, which the page about it calls by this name.
REFERENCE = os.environ.get("SCOPE_PROFILER_REFERENCE_PYTHON")


def needs_reference(page: Path) -> bool:
    return any("$OLD_PYTHON" in block.text for block in blocks_of(page))


def read(page: Path, directory: Path, tools: Path, prefix: Path | None) -> list[str | None]:
    here = directory / "here"
    here.mkdir()
    (directory / "tmp").mkdir()
    # The page's `./run NAME` is looked up: other tests, or this very run, carry it out.
    program(here / "run", f'#!/bin/sh\n{ROOT}/run help | grep -q "^  $1 "\n')
    environment = {"HOME": str(directory), "TMPDIR": str(directory / "tmp"), **MPI}
    if REFERENCE:
        environment["OLD_PYTHON"] = REFERENCE
    if prefix is not None:
        environment["INSTALLED_PREFIX"] = str(prefix)
        if page == ROOT / "README.md":  # it leaves the variables to the page about native programs
            environment.update(PKG_CONFIG_PATH=f"{prefix}/lib/pkgconfig", LD_LIBRARY_PATH=f"{prefix}/lib")
    for example in (ROOT / "examples").glob("*.py"):
        (here / "examples").mkdir(exist_ok=True)
        shutil.copy(example, here / "examples")
    return Reader(here, tools, directory / "exported", environment).read(page)


@pytest.fixture(scope="module")
def readings(
    request: pytest.FixtureRequest, tools: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Path, Future[list[str | None]]]]:
    """What each block of the chosen pages printed: a few readers at once."""
    chosen = {item.callspec.params["page"] for item in request.session.items if "readings" in getattr(item, "fixturenames", ()) and hasattr(item, "callspec")}
    chosen |= {ROOT / "README.md"} if any(item.name.startswith("test_readme") for item in request.session.items) else set()
    prefix = request.getfixturevalue("prefix") if os.environ.get("SCOPE_PROFILER_C_BUILD") else None
    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        yield {
            page: pool.submit(read, page, tmp_path_factory.mktemp(page.stem), tools, prefix)
            for page in PAGES
            if page in chosen and (prefix or not needs_library(page)) and (REFERENCE or not needs_reference(page))
        }


def reading(readings: dict[Path, Future[list[str | None]]], page: Path) -> list[str | None]:
    if page not in readings:
        pytest.skip("there is no build of the C library (SCOPE_PROFILER_C_BUILD), or release 0.7.5 (SCOPE_PROFILER_REFERENCE_PYTHON)")
    return readings[page].result()


@pytest.mark.slow
@pytest.mark.uninstrumented
@pytest.mark.parametrize("page", [page for page in PAGES if any(block.runs for block in blocks_of(page))], ids=page_id)
def test_the_blocks_of_a_page_do_what_it_says(page: Path, readings: dict[Path, Future[list[str | None]]]) -> None:
    reading(readings, page)


# -- the README in particular -----------------------------------------------------------------------------------------------


@pytest.fixture
def readme(readings: dict[Path, Future[list[str | None]]]) -> dict[str, str]:
    """What the blocks of README.md printed, by their text."""
    page = ROOT / "README.md"
    return {block.text: printed or "" for block, printed in zip(blocks_of(page), reading(readings, page))}


def output_of(readme: dict[str, str], text: str) -> str:
    """The output of the one block that contains this text."""
    [printed] = [printed for block, printed in readme.items() if text in block]
    return printed


def test_the_readme_starts_with_the_two_commands() -> None:
    page = ROOT / "README.md"
    assert re.findall(r"^\./run \w+", blocks_of(page)[0].text, re.MULTILINE) == ["./run demo", "./run test"]
    assert page.read_text(encoding="utf-8").partition("```")[0].strip() == "# scope-profiler"


@pytest.mark.slow
@pytest.mark.uninstrumented
def test_readme_programs_print_what_they_recorded(readme: dict[str, str]) -> None:
    for text in ("scope-profiler run -o app.h5", 'session(output="session.h5")'):
        assert "compress" in output_of(readme, text) and "make text" in output_of(readme, text)
    running, _, _, awaiting, *_ = output_of(readme, "track_async").split()
    assert 0 < float(running) and 0.1 < float(awaiting) < 10, "ten tasks slept for 10 ms"
    count, total, longest = output_of(readme, "p95_duration").splitlines()[0].split()
    assert count == "10" and 0 < float(longest) < float(total)
    assert "wrote tasks.pftrace" in output_of(readme, "ui.perfetto.dev")


# -- the mechanism ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expected, printed, same",
    [
        ("3 calls in 1.25 ms", "40 calls in 7.1 s", True),
        ("3 calls", "3 call", False),
        ("solve   0.1 s", "solve 12.75 s", True),
        ("solve 0.1 s", "other 0.1 s", False),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("a\n...\nd", "a\nd", True),
        ("a\n...\nd", "a\nb", False),
        ("wrote ... (2 files)", "wrote /tmp/x (5 files)", True),
        ("───────\nname", "────────────\nname", True),
        ("a\nb", "b\na", False),
        ("a", "a\nb", False),
        ("utf8", "utf16", False),
    ],
)
def test_outputs_are_compared_without_what_differs_each_time(expected: str, printed: str, same: bool) -> None:
    assert same_output(expected, printed) is same


def test_an_exact_output_is_compared_to_the_digit() -> None:
    assert same_output("3 calls\n", "3 calls  \n", exact=True)
    assert not same_output("3 calls", "4 calls", exact=True)


@pytest.mark.parametrize(
    "text, fault",
    [
        ("```\nx = 1\n```", "no language"),
        ("    x = 1\n", "an indented block"),
        ("```c\nint x;\n```", "needs the name of a file"),
        ("<!-- file: a.c -->\n```c\nint x;\n```\n\n```sh\ncc b.c\n```", "no later block uses a.c"),
        ("```text\nout\n```", "output of nothing"),
        ("<!-- continues -->\n```python\nx\n```", "continues nothing"),
        ("<!-- not run: -->\n```sh\nx\n```", None),
    ],
)
def test_a_block_that_would_not_be_run_is_a_fault(text: str, fault: str | None, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert any(fault in found for found in faults_of(page)) if fault else faults_of(page) == []


@pytest.mark.parametrize(
    "text",
    [
        "```python\n1 / 0\n```",
        "```sh\nfalse\n```",
        "```sh\necho x >&2\n```",
        "```python\nprint('a')\n```\n\n```text\nb\n```",
        "```console\n$ echo a\nb\n```",
        "```console\n$ false\n```",
        "```python\na = 1\n```\n\n```python\nprint(a)\n```",
    ],
)
def test_a_block_that_fails_or_prints_something_else_is_noticed(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    (tmp_path / "here").mkdir()
    with pytest.raises(AssertionError, match="page.md, line"):
        Reader(tmp_path / "here", tmp_path, tmp_path / "state").read(page)


def test_blocks_of_a_page_share_a_directory_variables_and_names(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\nexport WORD=seven\necho 7 >number\n```\n\n"
        "```python\nimport os\nnumber = int(open('number').read())\nprint(number)\n```\n\n<!-- exact -->\n```text\n7\n```\n\n"
        "<!-- continues -->\n```python\nprint(number + 1, os.environ['WORD'])\n```\n\n<!-- exact -->\n```text\n8 seven\n```\n\n"
        "```console\n$ echo $WORD\nseven\n$ cat none\n...\n$ echo $?\n1\n```\n"
    )
    (tmp_path / "here").mkdir()
    assert faults_of(page) == []
    Reader(tmp_path / "here", tmp_path, tmp_path / "state").read(page)


# -- links ------------------------------------------------------------------------------------------------------------------


def anchors_of(page: Path) -> set[str]:
    """What the headings of a page are called in links to them."""
    tokens = tokens_of(page)
    titles = [after.content for token, after in zip(tokens, tokens[1:]) if token.type == "heading_open"]
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", re.sub(r"`", "", title).lower()).strip()) for title in titles}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for token in tokens_of(page):
        for part in token.children or ():
            target = part.attrGet("href") or part.attrGet("src")
            if target is None or re.match(r"https?://", str(target)):
                continue
            path, _, anchor = unquote(str(target)).partition("#")
            there = (page.parent / path).resolve() if path else page
            if not there.exists() or (anchor and anchor not in anchors_of(there)):
                broken.append(target)
    assert broken == []


# -- docstrings ---------------------------------------------------------------------------------------------------------------


def public_docstrings() -> Iterator[tuple[str, str]]:
    """Names and docstrings of what the reference describes."""
    for module in ("", *(f".{name}" for name in MODULES)):
        package = importlib.import_module(f"scope_profiler{module}")
        for name in package.__all__:
            value = getattr(package, name)
            if not (inspect.isclass(value) or callable(value)) or type(value).__module__ == "typing":
                continue
            yield f"{package.__name__}.{name}", inspect.getdoc(value) or ""
            for member, found in vars(value).items() if inspect.isclass(value) else ():
                if not member.startswith("_") and (callable(found) or isinstance(found, (property, classmethod, staticmethod))):
                    yield f"{package.__name__}.{name}.{member}", inspect.getdoc(getattr(value, member)) or inspect.getdoc(found) or ""


def test_everything_public_has_a_docstring() -> None:
    assert [name for name, text in public_docstrings() if not text and name.split(".")[1] not in WRAPPERS] == []


def test_sections_of_docstrings_are_the_last_thing_in_them() -> None:
    """A paragraph after a list of parameters would be read as a part of the last one."""
    faults = []
    for name, text in public_docstrings():
        lines = text.splitlines()
        rules = [place for place, line in enumerate(lines) if re.fullmatch("-{3,}", line)]
        for place in range(rules[0] + 1, len(lines)) if rules and "Notes" not in lines else ():
            title = place + 1 in rules or place in rules
            entry = place + 1 < len(lines) and lines[place + 1].startswith(" ")
            if lines[place] and not lines[place].startswith(" ") and not title and not entry:
                faults.append(f"{name}: {lines[place]}")
    assert faults == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_names_in_the_text_exist(page: Path) -> None:
    """What a page calls `results.something()` or `scope_profiler.something` is there."""
    owners = {"results": sp.ProfilingResults, "ProfileManager": sp.ProfileManager, "scope_profiler": sp, "sp": sp}
    missing = []
    for token in tokens_of(page):
        for part in token.children or ():
            found = re.match(r"(results|ProfileManager|scope_profiler|sp)\.([a-z_]\w*)", part.content) if part.type == "code_inline" else None
            if found is None or re.search(r"\.(?:h|hpp|c|f90|pc|md)\b", part.content) or found[0] == "scope_profiler.session":
                continue
            owner, name = owners[found[1]], found[2]
            if not hasattr(owner, name) and importlib.util.find_spec(f"scope_profiler.{name}") is None:
                missing.append(part.content)
    assert missing == []


# -- the site ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def listed(site: Path) -> dict[str, set[str]]:
    """The names that the site describes, by the kind of thing."""
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    found: dict[str, set[str]] = {}
    for line in zlib.decompress(packed).decode().splitlines():
        match = re.fullmatch(r"(.+?) (\S+:\S+) -?\d+ \S* .*", line)
        assert match is not None, line
        found.setdefault(match[2], set()).add(match[1])
    return found


@pytest.mark.slow
@pytest.mark.uninstrumented
def test_every_public_name_is_in_the_reference(listed: dict[str, set[str]]) -> None:
    described = set().union(*(names for kind, names in listed.items() if kind.startswith("py:")))
    wanted = {f"scope_profiler.{name}": getattr(sp, name) for name in sp.__all__}
    for module in MODULES:
        for name in importlib.import_module(f"scope_profiler.{module}").__all__:
            if name not in sp.__all__:
                wanted[f"scope_profiler.{module}.{name}"] = getattr(importlib.import_module(f"scope_profiler.{module}"), name)
    for path, value in list(wanted.items()):
        if inspect.isclass(value) and path.rpartition(".")[2] not in WRAPPERS:
            members = [name for name in dir(value) if not name.startswith("_") and name not in INHERITED]
            wanted.update({f"{path}.{name}": None for name in members})
    assert sorted(set(wanted) - described) == []


@pytest.mark.slow
@pytest.mark.uninstrumented
def test_every_command_and_option_is_in_the_reference(site: Path, listed: dict[str, set[str]]) -> None:
    from scope_profiler.cli import COMMANDS
    from scope_profiler.cli.arguments import build_parser

    page = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    for name, (module, summary) in COMMANDS.items():
        assert f'<section id="{name.replace(" ", "-")}">' in page
        parser = build_parser(f"scope-profiler {name}", summary, importlib.import_module(module))
        for action in parser._actions:
            for option in action.option_strings:
                assert f"{parser.prog.replace(' ', '-')}.{option}" in listed["std:cmdoption"], (name, option)


@pytest.mark.slow
@pytest.mark.uninstrumented
def test_every_native_name_is_in_the_reference(listed: dict[str, set[str]]) -> None:
    described = set().union(*(names for kind, names in listed.items() if kind.startswith("c:")))
    for header in ("scope_profiler.h", "scope_profiler_mpi.h"):
        text = (ROOT / "include" / header).read_text(encoding="utf-8")
        functions = re.findall(r"^SP_API [^;{}#]*?(\w+)\([^;{}]*\);", text, re.MULTILINE)
        types = re.findall(r"^(?:typedef struct \w+|\}) (\w+);", text, re.MULTILINE)
        public = {name for name in (*functions, *types) if not name.endswith("_")}
        public |= set(re.findall(r"^    X\((SP_\w+),", text, re.MULTILINE))
        assert public - described == set(), header
        assert "sp_init" in public or "sp_mpi_init" in public
    told = {name.partition("(")[0].removeprefix("call ").partition(" =")[0] for name in listed["std:fortran"]}
    for module in ("scope_profiler.f90", "scope_profiler_mpi.f90"):
        source = (ROOT / "fortran" / module).read_text(encoding="utf-8")
        public = {name.strip() for line in re.findall(r"^ *public :: (.+)$", source, re.MULTILINE) for name in line.split(",")}
        assert public and public <= told, module


@pytest.mark.slow
@pytest.mark.uninstrumented
def test_every_setting_says_what_it_means(listed: dict[str, set[str]]) -> None:
    from scope_profiler.settings import SETTINGS

    assert {f"scope_profiler.ProfilingOptions.{name}" for name in SETTINGS} <= listed["py:attribute"]


@pytest.mark.slow
@pytest.mark.uninstrumented
def test_the_site_fetches_nothing(site: Path) -> None:
    fetched = re.compile(r"""<(?:script|img|iframe|source)[^>]*\ssrc="(?:https?:)?//|<link[^>]*\shref="(?:https?:)?//|@import|url\(["']?(?:https?:)?//""")
    found = {path.name for path in site.rglob("*.html") if fetched.search(path.read_text(encoding="utf-8"))}
    found |= {path.name for path in site.rglob("*.css") if fetched.search(path.read_text(encoding="utf-8"))}
    assert found == set()


# -- settings ---------------------------------------------------------------------------------------------------------------


def settings_reference():
    spec = importlib.util.spec_from_file_location("settings_reference", DOCS / "_extensions" / "settings_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_settings_has_the_table_that_the_program_gives() -> None:
    reference = settings_reference()
    _, table, _ = reference.split(reference.PAGE.read_text(encoding="utf-8"))
    assert table.strip() == reference.table().strip(), "run python docs/_extensions/settings_reference.py"


def test_every_setting_is_told_by_the_docstring_of_the_options() -> None:
    told = settings_reference().meanings()
    assert list(told) == [field.name for field in dataclasses.fields(sp.ProfilingOptions)]
    assert {*told} - {*GROUPS} == {*SETTINGS} and all(told.values())
    assert '"monotonic"' in told["clock"] and all(f"``{event}``" in told["perf_events"] for event in PERF_EVENTS)


def test_the_page_of_settings_has_every_variable_of_the_environment() -> None:
    sources = [path for part in ("python", "src", "include", "fortran") for path in (ROOT / part).rglob("*") if path.is_file()]
    texts = [path.read_text(encoding="utf-8") for path in sources if path.suffix in {".py", ".c", ".h", ".hpp", ".f90"}]
    read = {name for text in texts for name in re.findall(r'"(SCOPE_PROFILER_[A-Z_]+)"', text)}
    told = set(re.findall(r"^\|? ?`(SCOPE_PROFILER_[A-Z_]+)`|, `(SCOPE_PROFILER_[A-Z_]+)`", settings_reference().PAGE.read_text(), re.MULTILINE))
    assert read == {name for pair in told for name in pair if name} and len(read) >= 13
