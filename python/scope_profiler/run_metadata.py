"""What a file says about its run: when, on what machine, with which versions.

``metadata_detail="minimal"`` names no person, host or path. ``"full"`` adds them, and the environment of the batch system;
there, whatever looks like a secret is replaced by ``[redacted]``, since profiles are mailed around and attached to reports.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

__all__ = ["REDACTED", "RunFacts", "redact"]

REDACTED: Final = "[redacted]"
MAX_TEXT: Final = 60_000  # characters of one value; HDF5 holds attributes of at most 64 kB in the object header

_ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "LOADEDMODULES")
_ENVIRONMENT_PREFIXES: Final = ("MODULE", "PYTHON_", "SLURM_", "SLURMD_")

_machine: dict[str, Any] = {}  # what does not change while the process lives


class RunFacts:
    """What is true at the start of a run and may not be at its end; the rest is gathered when asked for."""

    __slots__ = ("_environment", "_full", "_started", "_working_directory")

    def __init__(self, *, full: bool) -> None:
        import time

        self._started = time.time()
        self._full = full
        self._environment = _selected_environment() if full else {}
        self._working_directory = _working_directory() if full else ""

    def collect(self, *, label: str | None, memory_profile_path: str | None, start_time_ns: int) -> dict[str, Any]:
        """All entries, in the order of the file."""
        facts: dict[str, Any] = {"timestamp": _utc_text(self._started), **_machine_facts()}
        omp = omp_threads()
        facts.update(omp_num_threads=omp, mpi_size=1, total_cores=omp, num_nodes=1)
        if self._full:
            facts.update(self._private(memory_profile_path))
        facts["start_time_ns"] = start_time_ns
        if label:
            facts["label"] = label[:MAX_TEXT]
        return facts

    def _private(self, memory_profile_path: str | None) -> dict[str, Any]:
        uname = os.uname()
        modules = [module for module in self._environment.get("LOADEDMODULES", "").split(":") if module]
        facts: dict[str, Any] = {
            "hostname": uname.nodename,
            "uname": " ".join(uname),
            "working_directory": self._working_directory,
            "user": _user(),
            "modules": modules,
            "memory_profile_path": memory_profile_path,
            **self._environment,
        }
        return {key: redact(key, value) for key, value in facts.items() if value not in (None, "", [])}


def _selected_environment() -> dict[str, str]:
    return {
        name: _storable(value)
        for name, value in sorted(os.environ.items())
        if name in _ENVIRONMENT or name.startswith(_ENVIRONMENT_PREFIXES)
    }


def _working_directory() -> str:
    try:
        return _storable(os.getcwd())
    except OSError:  # it was removed
        return ""


def _storable(text: str) -> str:
    # The environment may hold any bytes, which Python passes on as lone surrogates; a file cannot.
    return text.encode("utf-8", "backslashreplace").decode()


def _user() -> str:
    import pwd

    try:
        return _storable(pwd.getpwuid(os.getuid()).pw_name)
    except KeyError:  # a container's user without an entry
        return str(os.getuid())


def _utc_text(seconds: float) -> str:
    from time import gmtime, strftime

    microseconds = round(seconds * 1e6)
    return f"{strftime('%Y-%m-%dT%H:%M:%S', gmtime(microseconds // 1_000_000))}.{microseconds % 1_000_000:06d}+00:00"


def _machine_facts() -> dict[str, Any]:
    # Not by the platform module: it runs a program to learn the name of the processor, and a fork in the middle of a
    # threaded run is more than metadata is worth.
    if not _machine:
        import sys

        from ._core import __version__

        uname = os.uname()
        _machine.update(
            platform=f"{uname.sysname}-{uname.release}-{uname.machine}{_libc()}",
            chip_information=_chip() or uname.machine,
            python_version=sys.version.split()[0].rstrip("+"),
            scope_profiler_version=__version__,
        )
    return _machine


def _libc() -> str:
    try:
        name, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except (ValueError, OSError):  # not glibc
        return "-with-musl" if os.path.exists(f"/lib/ld-musl-{os.uname().machine}.so.1") else ""
    return f"-with-{name}{version}"


def _chip() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() in ("model name", "Model", "Hardware", "cpu"):
                    return value.strip()
    except OSError:
        pass
    return ""


def omp_threads() -> int:
    """Threads an OpenMP region would use: what a runtime that is loaded says, else the environment, else the CPUs.

    A runtime is asked only if the program loaded it; loading one to ask would start its threads.
    """
    asked = _ask_openmp()
    if asked:
        return asked
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if first.isdecimal() and int(first) > 0:
        return int(first)
    return len(os.sched_getaffinity(0))


def _ask_openmp() -> int:
    library = _loaded_openmp()
    if not library:
        return 0
    import ctypes

    try:
        runtime = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return int(runtime.omp_get_max_threads())
    except (OSError, AttributeError):
        return 0


def _loaded_openmp() -> str:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                path = line.rstrip("\n").partition("/")[2]
                if path.rpartition("/")[2].startswith(("libgomp", "libomp", "libiomp5")):
                    return "/" + path
    except OSError:
        pass
    return ""


# -- source paths ------------------------------------------------------------------------------------------------------


def short_source_path(path: str) -> str:
    """``path`` without what it tells about the machine: relative to the working directory, else to the deepest root of
    ``sys.path`` above it, else the name alone."""
    import sys

    if path.startswith("<"):  # <stdin>, <string>, <frozen ...>
        return path
    path = os.path.abspath(path)
    roots = [root for root in map(os.path.abspath, filter(None, sys.path)) if _is_below(path, root)]
    working_directory = _working_directory()
    root = working_directory if _is_below(path, working_directory) else max(roots, key=len, default="")
    return os.path.relpath(path, root) if root else os.path.basename(path)


def absolute_source_path(path: str) -> str:
    """``path`` in full."""
    return path if path.startswith("<") else os.path.abspath(path)


def _is_below(path: str, root: str) -> bool:
    return bool(root) and path.startswith(root.rstrip("/") + "/")


# -- secrets -----------------------------------------------------------------------------------------------------------

# Words of a name that announce a secret. PWD and AUTHOR do not: whole words are compared.
_SECRET_WORDS: Final = frozenset(
    "token secret secrets password passwd passphrase passwort pass pw jwt credential credentials cred creds apikey "
    "key keys auth authorization cookie cookies private bearer signature sig dsn accesskey secretkey authtoken "
    "netrc pat".split()
)

# Parts of a value that are secrets wherever they stand.
_SECRET_VALUES: Final = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)*",  # JSON web token
    r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|sk-|sk_live_|rk_live_|pypi-|npm_|hf_|dop_v1_|AIza|ya29\.)[A-Za-z0-9_.-]{16,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
)
_URL_USER: Final = r"(?<=://)[^/\s@]+(?=@)"
_AUTHORIZATION: Final = r"\b(Bearer|Basic)\s+[A-Za-z0-9+/=._~-]{6,}"
_NAMES: Final = (
    r"([A-Za-z][A-Za-z0-9_.-]*)\s*[=:]\s*(?!//)",  # name=value, name: value
    r"(--?[A-Za-z][A-Za-z0-9-]*)\s+(?!-)",  # --option value
)
_VALUE: Final = r"\"[^\"]*\"|'[^']*'|[^\s&;,\"']+"
_RANDOM: Final = r"[A-Za-z0-9+/_-]{32,}={0,2}"


def redact(key: str, value: Any) -> Any:
    """``value``, or as much of it as is safe to publish under the name ``key``."""
    if isinstance(value, list):
        return [redact(key, item) for item in value]
    if not isinstance(value, str):
        return value
    if value and _is_secret_name(key):
        return REDACTED
    return _redact_text(value)[:MAX_TEXT]


def _is_secret_name(name: str) -> bool:
    import re

    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return not _SECRET_WORDS.isdisjoint(word.lower() for word in words)


def _redact_text(text: str) -> str:
    import re

    for pattern in _SECRET_VALUES:
        text = re.sub(pattern, REDACTED, text, flags=re.DOTALL)
    text = re.sub(_URL_USER, REDACTED, text)
    text = re.sub(_AUTHORIZATION, rf"\1 {REDACTED}", text, flags=re.IGNORECASE)
    for pattern in _NAMES:
        text = _redact_pairs(text, pattern)
    return REDACTED if _looks_random(text) else text


def _redact_pairs(text: str, names: str) -> str:
    """``text`` with the values after secret names replaced."""
    import re

    parts = []
    done = 0
    for match in re.finditer(names, text):
        value = re.compile(_VALUE).match(text, match.end()) if _is_secret_name(match[1]) else None
        if value and match.start() >= done:
            parts += [text[done : match.end()], REDACTED]
            done = value.end()
    return "".join([*parts, text[done:]])


def _looks_random(text: str) -> bool:
    """One long word that keeps changing between cases and digits, as generated keys do and names do not."""
    import re

    if not re.fullmatch(_RANDOM, text) or text.startswith("/"):
        return False
    changes = len(re.findall(r"[A-Z](?=[a-z0-9])|[a-z](?=[A-Z0-9])|[0-9](?=[A-Za-z])", text))
    return changes * 3 > len(text)
