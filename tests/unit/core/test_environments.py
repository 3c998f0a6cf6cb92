"""`EXECUTION_ENV_PATH` with real environments: venvs, archives of them, and other Pythons."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest

from devkit.core import archives, environments, interpreters
from devkit.errors import LoadError

SAYS = """
import os, sys
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        said = "|".join([
            "%d.%d" % sys.version_info[:2], sys.prefix, np.__version__,
            os.environ.get("LD_LIBRARY_PATH", ""), os.environ.get("PATH", ""),
            os.environ.get("FROM_ACTIVATE", ""),
        ])
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([said], np.object_))])
            for _ in requests
        ]
"""


def config(path: str) -> str:
    return f"""
backend: "python"
input [ {{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "Y" data_type: TYPE_STRING dims: [ 1 ] }} ]
parameters {{ key: "EXECUTION_ENV_PATH" value: {{ string_value: "{path}" }} }}
"""


async def said(bench, name="says"):
    """(Python, prefix, NumPy, LD_LIBRARY_PATH, PATH, FROM_ACTIVATE) of the model's process."""
    (text,) = await bench.ask(name, [1])
    return text.decode().split("|")


def make_venv(folder: Path, python: str = sys.executable) -> Path:
    """A venv that holds its own Python program and finds NumPy where this interpreter has it."""
    command = [python, "-m", "venv", "--copies", "--without-pip", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "numpy.pth").write_text(str(Path(np.__file__).parents[1]))
    with (folder / "bin" / "activate").open("a") as script:
        script.write("\nexport FROM_ACTIVATE=yes\n")
    return folder


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    return make_venv(tmp_path_factory.mktemp("environment") / "venv")


@pytest.fixture(scope="module")
def packed(venv):
    archive = venv.with_name("venv.tar.gz")
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for each in sorted(venv.iterdir()):
            tar.add(each, each.name)
    return archive


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DEVKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "environments"


# -- serving from one ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["warm", "spawn"])
async def test_a_model_runs_in_the_folder_its_config_names(bench, venv, method):
    runtime = bench(start_method=method)
    runtime.write("says", config(str(venv)), SAYS)
    await runtime.engine.start()
    version, prefix, _, libraries, path, activated = await said(runtime)
    assert version == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert prefix == str(venv)
    assert libraries.split(":")[0] == str(venv / "lib")
    assert path.split(":")[0] == str(venv / "bin")
    assert activated == "yes"
    assert runtime.engine.model("says").instances[0].process.method == method


async def test_an_archive_in_the_models_folder_is_unpacked_into_the_cache(bench, packed, cache):
    runtime = bench()
    home = runtime.write("says", config("$$TRITON_MODEL_DIRECTORY/e.tar.gz"), SAYS)
    shutil.copy(packed, home / "e.tar.gz")
    assert await runtime.engine.start() == []
    prefix = (await said(runtime))[1]
    assert Path(prefix).parent == cache
    before = os.stat(prefix).st_ctime_ns
    await runtime.engine.reload("says")
    assert (await said(runtime))[1] == prefix
    assert os.stat(prefix).st_ctime_ns == before


async def test_two_models_with_the_same_archive_share_what_was_unpacked(bench, packed, cache):
    runtime = bench()
    for name in ("one", "two"):
        home = runtime.write(name, config("$$TRITON_MODEL_DIRECTORY/e.tar.gz"), SAYS)
        shutil.copy(packed, home / "e.tar.gz")
    assert await runtime.engine.start() == []
    assert (await said(runtime, "one"))[1] == (await said(runtime, "two"))[1]
    assert len([one for one in cache.iterdir() if one.is_dir()]) == 1


async def test_models_with_and_without_an_environment_keep_theirs(bench, venv):
    runtime = bench()
    runtime.write("says", config(str(venv)), SAYS)
    runtime.write("plain", config(""), SAYS)
    assert await runtime.engine.start() == []
    for _ in range(2):
        assert (await said(runtime))[1] == str(venv)
        assert (await said(runtime, "plain"))[1] == sys.prefix
        assert (await said(runtime, "plain"))[5] == ""
        await asyncio.gather(runtime.engine.reload("says"), runtime.engine.reload("plain"))


async def test_scaling_starts_instances_in_the_same_environment(bench, venv):
    runtime = bench()
    runtime.write("says", config(str(venv)), SAYS)
    await runtime.engine.start()
    await runtime.engine.scale("says", 2)
    assert {(await said(runtime))[1] for _ in range(4)} == {str(venv)}


async def test_an_environment_in_the_models_folder_is_not_taken_for_its_sources(bench):
    runtime = bench()
    home = runtime.write("says", config("$$TRITON_MODEL_DIRECTORY/env"), SAYS)
    make_venv(home / "env")
    await runtime.engine.start()
    assert (await said(runtime))[1] == str(home / "env")
    model = runtime.engine.model("says")
    assert [Path(file).name for file in model.instances[0].files] == ["model.py"]
    (home / "1" / "model.py").write_text("no python")
    (pid,) = [instance.pid for instance in model.instances]
    os.kill(pid, 9)
    while model.instances[0].pid == pid or model.instances[0].state != "ready":
        await asyncio.sleep(0.01)
    assert (await said(runtime))[1] == str(home / "env")


async def test_the_real_servers_own_stub_is_ignored_and_the_log_says_why(bench, caplog):
    runtime = bench()
    home = runtime.write("says", config(""), SAYS)
    (home / "triton_python_backend_stub").write_text("no program")
    with caplog.at_level("WARNING"):
        assert await runtime.engine.start() == []
    assert "triton_python_backend_stub is ignored: it is the real server's own" in caplog.text


# -- other Pythons ---------------------------------------------------------------------------------


def other_pythons():
    """Programs of Python 3.9 and newer on this machine, other than this one's version."""
    found = {}
    places = [Path(one) for one in os.environ.get("PATH", "").split(os.pathsep) if one]
    places += sorted(Path.home().glob(".pyenv/versions/*/bin"))
    for minor in range(9, 15):
        for place in places:
            program = place / f"python3.{minor}"
            if minor == sys.version_info[1] or "shims" in place.parts or not program.exists():
                continue
            found.setdefault(f"3.{minor}", str(program))
    return found


OTHERS = other_pythons()


@pytest.fixture(scope="module", params=sorted(OTHERS) or ["none"])
def other(request):
    """A venv of another Python version with a NumPy of its own, kept between test runs."""
    version = request.param
    if version == "none":
        pytest.skip("this machine has no other Python from 3.9 on: only this version is tested")
    folder = Path(request.config.cache.mkdir("environments")) / f"python-{version}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([OTHERS[version], "-m", "venv", str(folder)], check=True)
        done = subprocess.run(
            [str(folder / "bin" / "pip"), "install", "--quiet", "numpy"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"pip has no NumPy for Python {version}: {done.stderr.strip()[-200:]}")
        (folder / "complete").touch()
    return version, folder


@pytest.mark.parametrize("method", ["warm", "spawn"])
async def test_a_model_runs_on_another_version_of_python(bench, other, method):
    version, folder = other
    runtime = bench(start_method=method)
    runtime.write("says", config(str(folder)), SAYS)
    assert await runtime.engine.start() == []
    found = await said(runtime)
    assert found[:2] == [version, str(folder)]
    await runtime.engine.reload("says")
    assert (await said(runtime))[:2] == [version, str(folder)]


# -- what is refused before it fails deep inside ---------------------------------------------------


async def refusal(runtime, path, name="says"):
    runtime.write(name, config(path), SAYS)
    (failure,) = await runtime.engine.start()
    assert failure.remedy
    head = f"load failed for model '{name}': version 1 is at UNAVAILABLE state: Internal: "
    assert failure.message.startswith(head)
    return failure.message[len(head) :].rstrip(";\n"), failure.remedy


async def test_a_path_that_is_not_there_is_refused_in_the_servers_words(bench, tmp_path):
    text, _ = await refusal(bench(), f"{tmp_path}/nothing.tar.gz")
    assert text == f"Failed to get the canonical path for {tmp_path}/nothing.tar.gz."


async def test_a_relative_path_is_taken_from_the_servers_folder(bench):
    text, remedy = await refusal(bench(), "nothing")
    assert text == "Failed to get the canonical path for nothing."
    assert str(Path.cwd() / "nothing") in remedy
    assert "$$TRITON_MODEL_DIRECTORY" in remedy


async def test_a_folder_without_activate_is_refused_in_the_servers_words(bench, tmp_path):
    (tmp_path / "bare" / "bin").mkdir(parents=True)
    text, remedy = await refusal(bench(), f"{tmp_path}/bare")
    assert text == (
        f"Path {tmp_path}/bare/bin/activate does not exist. The Python environment should contain "
        "an 'activate' script."
    )
    assert "conda-pack" in remedy


async def test_a_file_that_is_no_archive_is_refused_in_the_servers_words(bench, tmp_path, cache):
    (tmp_path / "e.tar.gz").write_text("hello\n")
    text, _ = await refusal(bench(), f"{tmp_path}/e.tar.gz")
    assert text == "archive_read_open_filename() failed."
    assert [one for one in cache.iterdir() if one.is_dir()] == []


async def test_a_cut_off_archive_leaves_nothing_behind(bench, tmp_path, packed, cache):
    data = packed.read_bytes()
    (tmp_path / "e.tar.gz").write_bytes(data[: len(data) // 2])
    text, _ = await refusal(bench(), f"{tmp_path}/e.tar.gz")
    assert "cannot be unpacked" in text
    assert [one for one in cache.iterdir() if one.is_dir()] == []


async def test_an_activate_that_fails_says_so(bench, venv, tmp_path):
    (tmp_path / "e" / "bin").mkdir(parents=True)
    (tmp_path / "e" / "bin" / "activate").write_text("echo out of luck >&2; return 3\n")
    text, _ = await refusal(bench(), f"{tmp_path}/e")
    assert text == f"sourcing {tmp_path}/e/bin/activate failed with status 3: out of luck"


def environment_with(tmp_path, program: bytes | None, mode: int = 0o755):
    folder = tmp_path / "e"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "activate").write_text("")
    if program is not None:
        (folder / "bin" / "python3").write_bytes(program)
        (folder / "bin" / "python3").chmod(mode)
    return folder


ELF_ARM = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00" + bytes(44)


@pytest.mark.parametrize(
    ("program", "mode", "what"),
    [
        (ELF_ARM, 0o755, "it is a Linux program for aarch64, and this machine is"),
        (b"\xcf\xfa\xed\xfe" + bytes(60), 0o755, "it is a program for macOS, and this machine is"),
        (b"MZ" + bytes(60), 0o755, "it is a program for Windows, and this machine is"),
        (b"#!/bin/sh\n", 0o644, "it is not executable"),
        (b"#!/bin/sh\necho no luck >&2; exit 7\n", 0o755, "it ended with status 7: no luck"),
    ],
    ids=["arm", "macos", "windows", "mode", "fails"],
)
async def test_a_program_that_cannot_run_here_is_named(bench, tmp_path, program, mode, what):
    folder = environment_with(tmp_path, program, mode)
    text, _ = await refusal(bench(), str(folder))
    assert text.startswith(
        f"the interpreter {folder}/bin/python3 (of EXECUTION_ENV_PATH {folder}) cannot run the "
        f"model: {what}"
    )


async def test_a_link_to_a_python_that_is_not_there_is_named(bench, tmp_path):
    folder = environment_with(tmp_path, None)
    (folder / "bin" / "python3").symlink_to("/nowhere/python3")
    text, remedy = await refusal(bench(), str(folder))
    assert "it is a link to /nowhere/python3, which is not there" in text
    assert "conda-pack" in remedy


async def test_an_environment_without_numpy_is_named(bench, tmp_path):
    folder = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    text, remedy = await refusal(bench(), str(folder))
    assert f"(of EXECUTION_ENV_PATH {folder}, Python {sys.version.split()[0]})" in text
    assert text.endswith("cannot run the model: it has no NumPy.")
    assert "pip install numpy" in remedy


async def test_a_numpy_that_does_not_import_is_named(bench, tmp_path):
    folder = tmp_path / "broken"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "numpy.py").write_text("raise ImportError('built for another Python')")
    text, _ = await refusal(bench(), str(folder))
    assert "its NumPy does not import: ImportError: built for another Python" in text


async def test_too_old_a_python_is_named(bench, tmp_path):
    """A program that answers as an old Python would: what is asked runs in any version."""
    answer = interpreters._MARK + '{"version": [3, 8, 18], "numpy": "1.24.4"}'
    folder = environment_with(tmp_path, f"#!/bin/sh\necho '{answer}'\n".encode())
    text, remedy = await refusal(bench(), str(folder))
    assert "Python 3.8.18) cannot run the model: Python 3.8.18 is too old." in text
    assert "3.9" in remedy


@pytest.mark.parametrize(
    "python", sorted(Path.home().glob(".pyenv/versions/*/bin/python")), ids=str
)
def test_every_python_understands_the_question(python):
    """Also those that are far too old to run a stub."""
    answer = interpreters._ask(str(python), "found here", os.environ)
    assert len(answer["version"]) == 3


async def test_an_environment_without_python_gives_its_variables_to_ours(bench, tmp_path):
    folder = environment_with(tmp_path, None)
    (folder / "bin" / "activate").write_text("export FROM_ACTIVATE=variables\n")
    runtime = bench()
    runtime.write("says", config(str(folder)), SAYS)
    assert await runtime.engine.start() == []
    found = await said(runtime)
    assert found[1] == sys.prefix
    assert found[5] == "variables"


def test_only_the_first_model_directory_is_filled_in(tmp_path):
    from devkit.contract import config as contract

    parsed = contract.parse(config("$$TRITON_MODEL_DIRECTORY/$$TRITON_MODEL_DIRECTORY"))
    assert environments.named_by(parsed, tmp_path) == f"{tmp_path}/$$TRITON_MODEL_DIRECTORY"


# -- archives --------------------------------------------------------------------------------------


def archive_of(*members):
    """A tar archive's bytes; a member is (name, kind, content or target)."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.mode = 0o6777
            if kind == tarfile.REGTYPE:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                info.linkname = content
                tar.addfile(info)
    return io.BytesIO(data.getvalue())


FILE, FOLDER, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE

UNSAFE = {
    "absolute": [("/tmp/x", FILE, b"x")],
    "parent": [("../x", FILE, b"x")],
    "hidden parent": [("a/../../x", FILE, b"x")],
    "absolute link": [("bin/python", LINK, "/usr/bin/python3")],
    "link out": [("a/b", LINK, "../../x")],
    "through a link": [("a", LINK, "b"), ("b", FOLDER, ""), ("a/x", FILE, b"x")],
    "through a link to a folder that is there": [
        ("b", FOLDER, ""), ("a", LINK, "b"), ("a/x", FILE, b"x"),
    ],
    "out by way of two links": [
        ("d/e", FOLDER, ""), ("d/e/f", LINK, "../.."), ("g", LINK, "d/e/f/../.."),
    ],
    "hard link out": [("a", HARD, "../../etc/passwd")],
    "hard link to nothing": [("a", HARD, "b")],
    "hard link to a link": [("b", LINK, "c"), ("c", FILE, b""), ("a", HARD, "b")],
    "device": [("null", tarfile.CHRTYPE, "")],
    "pipe": [("pipe", tarfile.FIFOTYPE, "")],
    "a folder replaced by a link": [("a/x", FILE, b"x"), ("a", LINK, ".."), ("a/y", FILE, b"y")],
}  # fmt: skip


@pytest.mark.parametrize("members", UNSAFE.values(), ids=UNSAFE.keys())
def test_nothing_reaches_out_of_the_folder(members, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(archives.UnsafeArchive) as caught:
        archives.extract(archive_of(*members), root)
    assert caught.value.remedy
    assert sorted(one.name for one in tmp_path.iterdir()) == ["root"]


def test_what_is_allowed_is_unpacked_as_it_was(tmp_path):
    members = [
        ("./", FOLDER, ""),
        ("./bin", FOLDER, ""),
        ("./bin/python3.11", FILE, b"#!program"),
        ("bin/python3", LINK, "python3.11"),
        ("lib/deep/file", FILE, b"one"),
        ("lib/deep/file", FILE, b"two"),
        ("lib/same", HARD, "lib/deep/file"),
        ("lib64", LINK, "lib"),
        ("dangling", LINK, "lib/nothing"),
    ]
    archives.extract(archive_of(*members), tmp_path)
    assert (tmp_path / "bin/python3").read_bytes() == b"#!program"
    assert (tmp_path / "lib64/deep/file").read_bytes() == b"two"
    assert (tmp_path / "lib/same").samefile(tmp_path / "lib/deep/file")
    assert (tmp_path / "bin/python3.11").stat().st_mode & 0o7777 == 0o755


async def test_an_unsafe_archive_is_refused_with_the_member_named(bench, tmp_path, cache):
    data = archive_of(("bin/activate", FILE, b""), ("bin/python3", LINK, "/usr/bin/python3"))
    (tmp_path / "e.tar.gz").write_bytes(data.getvalue())
    text, remedy = await refusal(bench(), f"{tmp_path}/e.tar.gz")
    assert text == (
        f"{tmp_path}/e.tar.gz is not unpacked: bin/python3 is an absolute link to /usr/bin/python3"
    )
    assert "conda-pack" in remedy
    assert [one for one in cache.iterdir() if one.is_dir()] == []


def test_the_same_content_is_unpacked_once_whoever_asks_at_once(tmp_path, packed):
    copies = [tmp_path / f"{number}.tar.gz" for number in range(4)]
    for copy in copies:
        shutil.copy(packed, copy)
    words: list[str] = []
    found: list[Path] = []

    def ask(archive):
        found.append(archives.unpacked(archive, words.append, tmp_path / "there"))

    threads = [threading.Thread(target=ask, args=(copy,)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert sum(word.startswith("unpacking execution environment") for word in words) == 1
    assert (found[0] / "bin" / "python3").exists()


def test_processes_that_ask_at_once_get_the_same_folder(tmp_path, packed):
    code = (
        "import sys; from pathlib import Path; from devkit.core import archives; "
        "print(archives.unpacked(Path(sys.argv[1]), print))"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(packed)], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        )
        for _ in range(3)
    ]  # fmt: skip
    said = [process.communicate()[0].splitlines() for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert len({lines[-1] for lines in said}) == 1
    assert sum(len(lines) > 1 for lines in said) == 1


def test_what_a_process_left_that_died_in_the_middle_is_removed(tmp_path, packed):
    there = tmp_path / "there"
    left = there / f".{archives.digest(packed)}-dead"
    (left / "bin").mkdir(parents=True)
    archives.unpacked(packed, lambda _: None, there)
    assert not left.exists()


def test_an_archive_whose_content_changes_is_another_environment(tmp_path):
    archive = tmp_path / "e.tar.gz"
    found = []
    for content in (b"one", b"other"):
        archive.write_bytes(archive_of(("file", FILE, content)).getvalue())
        found.append(archives.unpacked(archive, lambda _: None, tmp_path / "there"))
    assert [(one / "file").read_bytes() for one in found] == [b"one", b"other"]


def test_an_interpreter_of_the_command_line_is_examined_too(tmp_path):
    with pytest.raises(LoadError, match=r"named by --python\) cannot run the model"):
        environments.resolve("m", "", str(tmp_path / "nothing"))
