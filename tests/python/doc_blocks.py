"""The code blocks of a Markdown page, and a reader who tries them all, from the top of the page to its end, in one directory.

What a block is, its language says; a comment directly above it can say more:

``<!-- file: NAME -->``
    The reader puts the block into this file. It is not run by itself: a later block has to use the file.
``<!-- continues -->``
    A Python block that goes on with the names of the one before. Without it each is a program of its own.
``<!-- not run: REASON -->``
    The block cannot be run in a test. Each of these is listed in the test of the pages.
``<!-- figure -->``
    A ``text`` block that is no output: a formula, a picture.
``<!-- exact -->``
    A ``text`` block that is the output to the digit. See :func:`same_output` for what is compared otherwise.

======================= ==================================================================================================
``python``              a program; what it writes on stderr is an error
``ipython``             cells, which go on with each other
``sh``                  lines for a shell; exported variables stay for the next block
``console``             commands behind ``$``, each with its output below it
``text``                the output of the block before
``c cpp fortran toml``  files, always
======================= ==================================================================================================
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
MARK = re.compile(r"<!-- (?P<key>file|not run|continues|figure|exact)(?:: (?P<value>.+?))? -->\s*")
RUN = ("python", "ipython", "sh", "console")
SENTINEL = "@@ next block @@"
CELLS = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor")
def run(cell):
    print({SENTINEL!r})
    shell.run_cell(cell).raise_error()
"""


@dataclass
class Block:
    """One fenced block."""

    language: str
    text: str
    line: int
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        return self.language in RUN and not {"file", "not run"} & set(self.marks)

    @property
    def is_output(self) -> bool:
        return self.language == "text" and not {"figure", "file", "not run"} & set(self.marks)


def tokens_of(page: Path) -> list[Token]:
    """The page as a parser of Markdown sees it."""
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


def blocks_of(page: Path) -> list[Block]:
    """The blocks in order, without the directives of the site's generator."""
    blocks = []
    before: Token | None = None
    for token in tokens_of(page):
        if token.type == "fence" and not token.info.startswith("{"):
            assert token.map is not None
            marks = dict(MARK.findall(before.content)) if before is not None and before.type == "html_block" else {}
            blocks.append(Block(token.info.strip(), token.content, token.map[0] + 1, marks))
        before = token
    return blocks


def faults_of(page: Path) -> list[str]:
    """What is wrong with the blocks of a page before any is run."""
    faults = []
    if any(token.type == "code_block" for token in tokens_of(page)):
        faults.append("an indented block: nobody runs those")
    blocks = blocks_of(page)
    for index, block in enumerate(blocks):
        where = f"line {block.line}"
        if "not run" in block.marks:
            if not block.marks["not run"]:
                faults.append(f"{where}: no reason why the block is not run")
        elif "file" in block.marks:
            later = "".join(other.text for other in blocks[index + 1 :] if other.runs)
            name = block.marks["file"]
            stem = re.escape(Path(name).stem)
            if not re.search(rf"{re.escape(name)}|\b(?:import|from|-m) {stem}\b|\b{stem}:", later):
                faults.append(f"{where}: no later block uses {name}")
        elif block.is_output:
            if index == 0 or not blocks[index - 1].runs or blocks[index - 1].language == "console":
                faults.append(f"{where}: output of nothing")
        elif block.language == "text":
            pass  # a figure
        elif not block.runs:
            faults.append(f"{where}: a block of {block.language or 'no language'} needs the name of a file, or a reason not to run")
        if "continues" in block.marks and not _goes_on(blocks[:index]):
            faults.append(f"{where}: continues nothing")
    return faults


def _goes_on(before: list[Block]) -> bool:
    """Whether the last of these blocks is a Python program, or the output of one."""
    while before and before[-1].is_output:
        before = before[:-1]
    return bool(before) and before[-1].language == "python" and before[-1].runs


# -- what was printed, and what the page says -----------------------------------------------------------------------------

_NUMBER = r"(?<![\w.])[-+−]?\d[\d,_]*(?:\.\d+)?(?:e[-+]?\d+)?"


def _shape(line: str) -> str:
    """A line without what differs from run to run: numbers, units of time and size, lengths of rules and gaps."""
    line = re.sub(r"\x1b\[[0-9;]*m", "", line)
    line = re.sub(r"[─━=-]{3,}", "---", line)
    line = re.sub(r"[▏▎▍▌▋▊▉█░▒▓⣀-⣿]+", "", line)
    line = re.sub(r"0x[0-9a-f]+", "#", line)
    line = re.sub(_NUMBER, "#", line)
    line = re.sub(r"# ?(?:ns|µs|us|ms|s|min|h)\b", "# s", line)
    line = re.sub(r"# ?(?:B|kB|MB|GB|KiB|MiB)\b", "# B", line)
    line = re.sub(r"\[\s+|\s+\]", lambda found: found[0].strip(), line)  # arrays, whose columns are as wide as their numbers
    return " ".join(line.split())


def same_output(expected: str, printed: str, exact: bool = False) -> bool:
    """Whether a page tells the truth about an output.

    ``...`` stands for any text, and for any lines when it is a line by itself. Unless it is exact, numbers are any numbers, and how
    wide columns are does not matter; everything else is compared.
    """
    shape = str.rstrip if exact else _shape
    wanted = [shape(line) for line in expected.strip("\n").splitlines()]
    found = [shape(line) for line in printed.strip("\n").splitlines()]
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else ".*?".join(map(re.escape, line.split("..."))) + r"\n" for line in wanted)
    return re.fullmatch(pattern, "".join(line + "\n" for line in found)) is not None


def _chain(blocks: list[Block], first: int) -> list[int]:
    """The blocks that are one program, or one notebook, with this one."""
    language = blocks[first].language

    def belongs(later: int) -> bool:
        block = blocks[later]
        return block.is_output or (block.language == language and ("continues" in block.marks or language == "ipython") and block.runs)

    return [one for one in (first, *takewhile(belongs, range(first + 1, len(blocks)))) if not blocks[one].is_output]


# -- running ----------------------------------------------------------------------------------------------------------------


@dataclass
class Reader:
    """Somebody who does what a page says, in an empty directory."""

    directory: Path
    tools: Path  # programs that stand before the system's: those that would install something
    state: Path  # what the shell exported
    environment: dict[str, str] = field(default_factory=dict)

    def execute(self, command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(self.tools), str(Path(sys.executable).parent), os.environ["PATH"]])
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SCOPE_PROFILER_", "PYTEST_"))}
        environment = {**kept, "PATH": path, "BROWSER": "true", "PYTHONUNBUFFERED": "1", "COLUMNS": "120", **self.environment}
        return subprocess.run(
            command, cwd=self.directory, env=environment, capture_output=True, text=True, timeout=180, **options
        )  # type: ignore[call-overload,no-any-return]

    def read(self, page: Path) -> list[str | None]:
        """Do everything; returns what each block printed. An AssertionError tells which block failed, and how."""
        blocks = blocks_of(page)
        outputs: list[str | None] = [None] * len(blocks)
        for index, block in enumerate(blocks):
            where = f"{page.name}, line {block.line}"
            if "not run" in block.marks:
                continue
            if "file" in block.marks:
                path = self.directory / block.marks["file"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
            elif block.language == "console":
                self._console(block, where)
            elif block.language == "sh":
                outputs[index] = self._shell(block.text, where)
            elif block.language in ("python", "ipython") and outputs[index] is None:
                chain = _chain(blocks, index)
                texts = [blocks[one].text for one in chain]
                printed_by = self._python(texts, where) if block.language == "python" else self._cells(texts, where)
                assert len(printed_by) == len(chain), where
                for one, printed in zip(chain, printed_by):
                    outputs[one] = printed
            elif block.is_output:
                printed = outputs[index - 1]
                assert printed is not None
                told = f"{where}: this was printed:\n{printed}"
                assert same_output(block.text, printed, "exact" in block.marks), told
        return outputs

    def _cells(self, texts: list[str], where: str) -> list[str]:
        cells = "".join(f"run({text!r})\n" for text in texts)
        return self._python([f"{CELLS}{cells}"], where)[1:]

    def _python(self, texts: list[str], where: str) -> list[str]:
        script = self.directory / "block.py"
        script.write_text(f"print({SENTINEL!r})\n".join(texts))
        done = self._bash(f"{shlex.quote(sys.executable)} {script.name}")
        assert done.returncode == 0 and done.stderr == "", f"{where}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout.split(SENTINEL + "\n")

    def _bash(self, text: str) -> subprocess.CompletedProcess[str]:
        state = shlex.quote(str(self.state))
        begin = f"[ ! -e {state} ] || . {state}\n"
        # The state is kept whatever the block ends with.
        return self.execute(["bash", "-c", f"{begin}trap 'export -p >{state}' EXIT\n{text}"])

    def _shell(self, text: str, where: str) -> str:
        done = self._bash(f"set -eo pipefail\n{text}")
        assert done.returncode == 0 and done.stderr == "", f"{where}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _console(self, block: Block, where: str) -> None:
        """Commands with their outputs. One that fails is followed by ``$ echo $?``."""
        commands: list[list[str]] = []
        for line in block.text.splitlines():
            if line.startswith("$ "):
                commands.append([line[2:]])
            elif line.startswith("> ") and len(commands[-1]) == 1:
                commands[-1][0] += "\n" + line[2:]
            else:
                commands[-1].append(line)
        marks = f"\ncode=$?; echo; echo '{SENTINEL}' $code; (exit $code)\n"
        done = self._bash("exec 2>&1\n" + "".join(command + marks for command, *_ in commands))
        parts = re.split(rf"\n?{SENTINEL} (\d+)\n", done.stdout)
        for index, (command, *expected) in enumerate(commands):
            printed, code = parts[2 * index], int(parts[2 * index + 1])
            told = f"{where}: {command}: exit code {code}, and this was printed:\n{printed}"
            last = index + 1 == len(commands)
            assert code == 0 or (not last and commands[index + 1][0] == "echo $?"), told
            assert same_output("\n".join(expected), printed, "exact" in block.marks), told


# -- the site ---------------------------------------------------------------------------------------------------------------


def build_site(target: Path) -> Path:
    """The site as `./run docs` makes it, where any warning is an error; returns where its pages are."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(target / "state")]
    done = subprocess.run([*command, str(ROOT / "docs"), str(target / "html")], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return target / "html"
