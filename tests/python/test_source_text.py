"""The source text that a region keeps when the run captures it."""

import textwrap

import pytest

from scope_profiler import _core, _source

PROGRAM = textwrap.dedent(
    """\
    def outer(region):
        with region("block"):
            a = 1
            if a:
                b = 2
        with (
            region("first"),
            region("second"),
        ):
            pass
        return region("lone")
    """
)


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


@pytest.mark.parametrize(
    ("line", "first", "last"),
    [(2, 2, 5), (3, 3, 3), (4, 4, 5), (7, 6, 10), (8, 6, 10), (11, 11, 11)],
)
def test_text_is_the_statement_whose_header_holds_the_line(program, line, first, last):
    expected = "".join(PROGRAM.splitlines(keepends=True)[first - 1 : last])
    assert _source.block_text(program, line) == expected


@pytest.mark.parametrize("line", [0, -1, 99])
def test_a_line_outside_the_file_has_no_text(program, line):
    assert _source.block_text(program, line) is None


def test_source_that_does_not_parse_has_no_text(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("with region(:\n    pass\n")
    assert _source.block_text(str(path), 1) is None


def test_a_region_keeps_the_block_it_was_first_used_in(program):
    recorder = _core.Recorder()
    recorder.open(capture_source=True)
    namespace = {}
    exec(compile(PROGRAM, program, "exec"), namespace)
    lone = namespace["outer"](recorder.region)
    assert lone.source_text == '    return region("lone")\n'
    assert recorder.region("block").source_text == "".join(PROGRAM.splitlines(keepends=True)[1:5])
    assert (lone.source_file, lone.source_lineno) == (program, 11)


def test_without_capture_a_region_has_no_text(program):
    recorder = _core.Recorder()
    recorder.open()
    assert recorder.region("x").source_text is None
