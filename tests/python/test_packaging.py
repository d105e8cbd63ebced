"""The package as pip builds and installs it: nothing but the checkout, nothing from the network."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUICK = ["-Csetup-args=-Doptimization=0"]  # where only the build as such matters

pytestmark = [
    pytest.mark.slow,
    pytest.mark.uninstrumented,
    pytest.mark.skipif(shutil.which("meson") is None, reason="the build tools are not on the path"),
]


def pip(*arguments, **environment):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr


def build_wheel(source, directory, *settings):
    pip("wheel", "--no-index", "--no-deps", "--no-build-isolation", "-w", str(directory), *settings, str(source))
    [wheel] = Path(directory).glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout, or the finished one that `./run wheel` asks to test."""
    finished = os.environ.get("SCOPE_PROFILER_WHEEL")
    if finished:
        return Path(finished)
    # The build directory of the installed package, if there is one, saves compiling it all again.
    key = "{}.{}".format(*sys.version_info)
    build = ROOT / "build" / f"package-{key}"
    settings = [f"-Cbuild-dir={build}"] if build.exists() else []
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"), *settings)


def install(wheel, directory):
    """An interpreter that has a wheel and, through PYTHONPATH, numpy of the interpreter that runs the tests."""
    directory.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory / "venv")], check=True)
    python = directory / "venv" / "bin" / "python"
    pip("--python", str(python), "install", "--no-index", "--no-deps", str(wheel))
    import numpy

    shared = directory / "shared"
    shared.mkdir()
    for name in ("numpy", "numpy.libs"):
        found = Path(numpy.__file__).parents[1] / name
        if found.exists():
            (shared / name).symlink_to(found)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))}
    environment["PYTHONPATH"] = str(shared)

    def run(*arguments, check=True):
        done = subprocess.run(
            [str(python), *arguments], cwd=directory, env=environment, check=check, capture_output=True, text=True
        )
        return done.stdout if check else done

    run.bin = python.parent
    run.directory = directory
    return run


@pytest.fixture(scope="module")
def clean_python(wheel, tmp_path_factory):
    return install(wheel, tmp_path_factory.mktemp("clean"))


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    libraries = {"scope_profiler.libs"} if "SCOPE_PROFILER_WHEEL" in os.environ else set()
    parts = {"scope_profiler", "scope_profiler-1.0.0.dist-info", "scope_profiler-1.0.0.data"}
    assert {name.split("/")[0] for name in names} == parts | libraries
    # What shells complete the command with, where they look for it.
    share = "scope_profiler-1.0.0.data/data/share/"
    assert {name.removeprefix(share) for name in names if ".data/" in name} == {
        "bash-completion/completions/scope-profiler",
        "fish/vendor_completions.d/scope-profiler.fish",
        "zsh/site-functions/_scope-profiler",
    }
    assert "scope_profiler/py.typed" in names
    assert "scope_profiler/_core.pyi" in names
    assert any(name.endswith(".so") for name in names)
    assert not [name for name in names if "__pycache__" in name]


def test_the_wheel_records_in_a_clean_environment(clean_python):
    script = clean_python.directory / "program.py"
    script.write_text(
        "import scope_profiler\n"
        "with scope_profiler.session(file_path='profile.h5', verbose=False, return_results=True) as run:\n"
        "    for _ in range(3):\n"
        "        with scope_profiler.region('step'):\n"
        "            pass\n"
        "print(run.results['step'][0].num_calls, scope_profiler.load('profile.h5')['step'][0].num_calls)\n"
    )
    assert clean_python(str(script)) == "3 3\n"


def test_the_wheel_installs_the_command(clean_python):
    done = subprocess.run(
        [str(clean_python.bin / "scope-profiler"), "--version"], check=True, capture_output=True, text=True
    )
    assert done.stdout.split()[-1] == "1.0.0"


def test_a_kernel_built_with_what_the_wheel_brings_joins_the_run(clean_python):
    command = str(clean_python.bin / "scope-profiler")
    directory = clean_python.directory
    (directory / "kernel.c").write_text('#include <scope_profiler.h>\nvoid kernel(void) { SP_SCOPE("kernel"); }\n')

    def told(*options):
        return subprocess.run([command, *options], check=True, capture_output=True, text=True).stdout.split()

    subprocess.run(["cc", "-shared", "-fPIC", "kernel.c", "-o", "libkernel.so", *told("--includes", "--libs")], cwd=directory, check=True)
    [module] = told("--fortran")
    assert "module scope_profiler" in Path(module).read_text()
    program = (
        "import ctypes, scope_profiler as sp\n"
        "with sp.session(output=None, verbose=False, return_results=True, track_threads=True) as run:\n"
        "    with sp.region('python'): ctypes.CDLL('./libkernel.so').kernel()\n"
        "print([(call['name'], call['depth']) for call in run.results.call_stack()])"
    )
    assert clean_python("-c", program) == "[('scope_profiler.session', 0), ('python', 1), ('kernel', 2)]\n"


@pytest.mark.skipif("SCOPE_PROFILER_WHEEL" not in os.environ, reason="./run wheel makes wheels that bring their libraries")
def test_a_finished_wheel_brings_its_libraries_and_shows_nothing_of_hdf5(wheel, clean_python):
    program = "import scope_profiler._core as c; print(c.__file__); print(open('/proc/self/maps').read())"
    core, maps = clean_python("-c", program).split("\n", 1)
    site = str(Path(core).parents[1])
    foreign = [line.split()[-1] for line in maps.splitlines() if any(name in line for name in ("hdf5", "zstd", "lzf", "deflate"))]
    assert [path for path in foreign if not path.startswith(site)] == []
    listing = subprocess.run(["nm", "-D", core], check=True, capture_output=True, text=True).stdout
    assert " H5" not in listing
    assert "manylinux" in wheel.name


def test_the_installed_version_is_the_one_of_the_build():
    assert importlib.metadata.version("scope-profiler") == "1.0.0"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a source distribution is made from a git checkout")
def test_a_wheel_builds_from_the_source_distribution_of_a_clean_checkout(tmp_path):
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(checkout)], check=True)
    subprocess.run(
        [sys.executable, "-c", "import mesonpy, sys; mesonpy.build_sdist(sys.argv[1])", str(tmp_path)],
        cwd=checkout,
        check=True,
        capture_output=True,
    )
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    assert {"LICENSE", "README.md", "meson.build", "pyproject.toml", "include/scope_profiler.h", "run"} <= names
    assert "viewer/page.html" in names  # whoever builds from it needs no Node.js
    shutil.unpack_archive(archive, tmp_path / "unpacked")
    [unpacked] = (tmp_path / "unpacked").iterdir()
    built = build_wheel(unpacked, tmp_path / "wheel", *QUICK)
    with zipfile.ZipFile(built) as package:
        assert "scope_profiler/py.typed" in package.namelist()


def test_a_build_without_the_viewer_says_so_and_does_all_else(tmp_path):
    python = install(build_wheel(ROOT, tmp_path, *QUICK, "-Csetup-args=-Dviewer=disabled"), tmp_path / "clean")
    (python.directory / "program.py").write_text("import scope_profiler as sp\nwith sp.region('a'): pass\n")
    python("-m", "scope_profiler", "run", "-o", "profile.h5", "program.py")
    shown = python("-m", "scope_profiler", "view", "profile.h5", "--no-open", "-o", "page.html", check=False)
    assert shown.returncode == 2 and shown.stderr.count("\n") == 1
    assert "has no viewer" in shown.stderr and not (python.directory / "page.html").exists()


def test_an_editable_install_imports_from_the_checkout(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    settings = ["--no-index", "--no-deps", "--no-build-isolation", f"-Cbuild-dir={tmp_path / 'build'}", *QUICK]
    # The build backend is that of the interpreter that runs the tests.
    pip("--python", python, "install", *settings, "-e", str(ROOT), PYTHONPATH=sysconfig.get_path("purelib"))
    program = "import scope_profiler, scope_profiler._core; print(scope_profiler.__file__)"
    done = subprocess.run([python, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert Path(done.stdout.strip()) == ROOT / "python" / "scope_profiler" / "__init__.py"


def test_other_systems_get_a_clear_error_from_the_build(tmp_path):
    cross = tmp_path / "cross.ini"
    cross.write_text(
        "[binaries]\nc = 'cc'\npkg-config = 'pkg-config'\n"
        "[host_machine]\nsystem = 'windows'\ncpu_family = 'x86_64'\ncpu = 'x86_64'\nendian = 'little'\n"
        "[properties]\nneeds_exe_wrapper = false\n"
    )
    done = subprocess.run(
        ["meson", "setup", str(tmp_path / "build"), str(ROOT), "--cross-file", str(cross)], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "scope-profiler runs on Linux only; this is windows" in done.stdout
