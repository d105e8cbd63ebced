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


FUNCTIONS = textwrap.dedent(
    """\
    class Thing:
        @deco(
            name=None
        )
        @other
        def method(self):
            return 1

    @deco
    async def job():
        pass
    """
)


def test_a_decorated_function_keeps_its_text_with_the_decorators(tmp_path):
    path = tmp_path / "functions.py"
    path.write_text(FUNCTIONS)
    recorder = _core.Recorder()

    def deco(function=None, name=None):
        return _core.wrap(recorder, function) if function else deco

    namespace = {"deco": deco, "other": lambda function: function}
    exec(compile(FUNCTIONS, str(path), "exec"), namespace)
    recorder.open(capture_source=True)
    namespace["Thing"]().method()
    namespace["job"]().close()
    lines = FUNCTIONS.splitlines(keepends=True)
    assert recorder.region("method").source_text == "".join(lines[1:7])
    (row,) = recorder.run.collect().rows
    assert row[6] == "".join(lines[1:7])
    recorder.open()
    namespace["Thing"]().method()
    (row,) = recorder.run.collect().rows
    assert row[6] is None
