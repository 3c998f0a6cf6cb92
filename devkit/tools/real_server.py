"""The real Triton server, fetched from PyPI wheels and run beside devkit.

Here live the download, with consent and progress, into a cache of devkit's own; what has to be
true for that build to work (a stub for this Python, NumPy 1, a shared libpython); and the life
of one server process with its ports, log and shared memory.  Comparing answers lives in
`verify`, measuring in the benchmarks; nothing here ever touches the user's environment.

The wheel `nvidia-pytriton` carries tritonserver with the Python backend for Linux x86-64, CPU.
Three things about it shape this module:

* its stub was built before NumPy 2 and with NumPy 2 sends every output without data, so models
  run in an environment that has NumPy 1 in front of the user's own packages;
* its embedded interpreter ignores PYTHONPATH and takes its environment from the first `python3`
  on PATH, so that environment is a virtual one whose `bin` comes first;
* its stub links to a shared libpython, which an interpreter built without one does not have.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import http.client
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from devkit.errors import DevkitError

SERVER_VERSION = "2.51.0"
SERVER_WHEEL = "nvidia-pytriton==0.7.0"  # carries tritonserver 2.51.0 (24.10)
CLIENT_WHEEL = "tritonclient==2.47.0"  # the last wheel that carries perf_analyzer
NUMPY_WHEEL = "numpy<2"
DOWNLOAD_MB = 75  # the three wheels together, told to the user before anything is fetched
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

_USER_PACKAGES = "DEVKIT_USER_PACKAGES"
_SHM_PREFIX = "devkit-real-"
# perf_analyzer's sonames; the server's wheel bundles both under mangled names.
_PERF_LIBRARIES = ("libb64.so.0d", "libcudart.so.12")
# Runs the server so that it dies with the process that asked for it, even by SIGKILL.
_TRAMPOLINE = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"
    "if os.getppid() != int(sys.argv[1]): os._exit(1)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)

Consent = Callable[[str], bool]


class RealServerError(DevkitError):
    """The real server cannot be had here, or did not start; `remedy` says what helps.

    `log` holds the last lines the server wrote, when it got that far.
    """

    def __init__(self, message: str, *, remedy: str | None = None, log: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.log = log


class ConsentRefused(RealServerError):
    """The user did not agree to the download. Run again and agree, or pass `--yes`."""


@dataclass(frozen=True)
class Command:
    """A program with what must be in its environment."""

    program: Path
    environment: Mapping[str, str]

    def environ(self) -> dict[str, str]:
        """The environment to start the program with: this process's, with ours over it."""
        return {**os.environ, **self.environment}


@dataclass(frozen=True)
class Installation:
    """What the cache holds for the running Python: the server, its backends, its environment."""

    cache: Path

    @property
    def root(self) -> Path:
        """The unpacked server."""
        return self.cache / "server" / "pytriton" / "tritonserver"

    @property
    def backends(self) -> Path:
        """Backend folder whose Python stub is of the running version.

        It lies beside the wheel's own, so that the libraries' relative rpaths stay right.
        """
        return self.root / f"backends-{PYTHON}"

    @property
    def environment(self) -> Path:
        """Virtual environment the models run in: NumPy 1, then the user's packages."""
        return self.cache / f"python-{PYTHON}"

    @property
    def complete(self) -> bool:
        """Whether everything is in place for the running Python."""
        return all(path.exists() for path in (self._unpacked_mark, self.backends, self.environment))

    @property
    def _unpacked_mark(self) -> Path:
        return self.cache / "server" / "complete"

    def server(self) -> Command:
        """How to start tritonserver."""
        paths = sysconfig.get_paths()
        return Command(
            self.root / "bin" / "tritonserver",
            {
                "PATH": _prepended("PATH", self.environment / "bin"),
                "LD_LIBRARY_PATH": _prepended("LD_LIBRARY_PATH", libpython_folder()),
                _USER_PACKAGES: os.pathsep.join(
                    dict.fromkeys((paths["purelib"], paths["platlib"]))
                ),
            },
        )

    def perf_analyzer(self) -> Command:
        """How to start perf_analyzer."""
        program = next((self.cache / "server").glob("tritonclient-*.data/data/bin/perf_analyzer"))
        libraries = _prepended("LD_LIBRARY_PATH", self.cache / "server" / "perf_libraries")
        return Command(program, {"LD_LIBRARY_PATH": libraries})


def cache_folder() -> Path:
    """Where the real server is kept: `$DEVKIT_CACHE/triton`, else `~/.cache/devkit/triton`."""
    base = os.environ.get("DEVKIT_CACHE")
    return (Path(base) if base else Path.home() / ".cache" / "devkit").expanduser() / "triton"


def unsupported(
    system: str = sys.platform,
    machine: str = platform.machine(),
    version: tuple[int, int] = sys.version_info[:2],
) -> RealServerError | None:
    """Why the real server can't run on a machine and Python, these ones; None where it can."""
    elsewhere = (
        "verify on a Linux x86-64 machine or in a container: copy the exported folder there and "
        "run `devkit verify` on it"
    )
    if system != "linux":
        name = {"darwin": "macOS", "win32": "Windows"}.get(system, system)
        return RealServerError(
            f"the real Triton server runs on Linux only, and this is {name}", remedy=elsewhere
        )
    if machine not in ("x86_64", "AMD64"):
        return RealServerError(
            f"the wheel of the real Triton server is for x86-64, and this machine is {machine}",
            remedy=elsewhere,
        )
    if not (3, 8) <= version <= (3, 12):
        return RealServerError(
            f"the real server's Python stub exists for Python 3.8 to 3.12, and this is "
            f"{version[0]}.{version[1]}",
            remedy="make an environment with Python 3.12 and run `devkit verify` from it",
        )
    try:
        libpython_folder()
    except RealServerError as problem:
        return problem
    return None


def libpython_folder() -> Path | None:
    """Folder of this interpreter's shared libpython; None where the loader finds it by itself."""
    soname = f"libpython{PYTHON}.so.1.0"
    folders = [sysconfig.get_config_var("LIBDIR"), Path(sys.base_prefix, "lib")]
    multiarch = sysconfig.get_config_var("MULTIARCH")
    if folders[0] and multiarch:
        folders.append(Path(str(folders[0]), multiarch))
    for folder in folders:
        if folder and Path(folder, soname).is_file():
            return Path(folder)
    try:
        ctypes.CDLL(soname)
    except OSError:
        raise RealServerError(
            f"{sys.executable} has no shared {soname}, which the real server's stub links to",
            remedy=f"Debian, Ubuntu: apt-get install libpython{PYTHON}; pyenv: build with "
            f"PYTHON_CONFIGURE_OPTS=--enable-shared; conda and uv Pythons have it",
        ) from None
    return None


def ensure(
    cache: Path | None = None,
    *,
    consent: Consent | None = None,
    console: Console | None = None,
) -> Installation:
    """The installation, downloaded first where it is missing and `consent` agrees.

    `consent` gets one question and answers it; None means that the caller has agreed already.
    Progress goes to `console` (stderr by default). Safe to call from several processes at once.
    """
    problem = unsupported()
    if problem is not None:
        raise problem
    installation = Installation((cache or cache_folder()).expanduser().resolve())
    if installation.complete:
        return installation
    question = (
        f"Download the real Triton server {SERVER_VERSION} from PyPI (about {DOWNLOAD_MB} MB) "
        f"into {installation.cache}?"
    )
    if consent is not None and not consent(question):
        raise ConsentRefused(
            "the real Triton server is not installed and was not downloaded",
            remedy="run it again and agree, or pass --yes",
        )
    installation.cache.mkdir(parents=True, exist_ok=True)
    with _locked(installation.cache / "lock"):
        _install(installation, console or Console(stderr=True))
    return installation


def _install(installation: Installation, console: Console) -> None:
    if installation.complete:  # another process did it while this one waited for the lock
        return
    for stale in installation.cache.glob(".new-*"):
        shutil.rmtree(stale)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=installation.cache) as scratch:
        fetch = _Fetcher(Path(scratch), console)
        if not installation._unpacked_mark.is_file():
            _place_server(installation, fetch)
        if not installation.backends.is_dir():
            _place_stub(installation, Path(scratch))
        if not installation.environment.is_dir():
            _place_environment(installation, fetch)


def _place_server(installation: Installation, fetch: _Fetcher) -> None:
    """Unpack the two wheels and name the libraries as perf_analyzer looks for them."""
    made = fetch.scratch / "server"
    _unpack(fetch.wheel(SERVER_WHEEL), made, ("pytriton/tritonserver/", "nvidia_pytriton.libs/"))
    _unpack(fetch.wheel(CLIENT_WHEEL), made, ("data/bin/perf_analyzer",))
    links = made / "perf_libraries"
    links.mkdir()
    for soname in _PERF_LIBRARIES:
        stem, suffix = soname.split(".so.")
        bundled = next((made / "nvidia_pytriton.libs").glob(f"{stem}-*.so.{suffix}*"))
        (links / soname).symlink_to(Path("..", "nvidia_pytriton.libs", bundled.name))
    (made / "complete").touch()
    target = installation.cache / "server"
    if target.exists():  # unpacked halfway by a version that did not rename into place
        shutil.rmtree(target)
    made.rename(target)


def _place_stub(installation: Installation, scratch: Path) -> None:
    """Copy the Python backend with the stub of the running version in it."""
    stub = installation.root / "python_backend_stubs" / PYTHON / "triton_python_backend_stub"
    if not stub.is_file():
        found = sorted(path.name for path in (installation.root / "python_backend_stubs").iterdir())
        raise RealServerError(
            f"the wheel of the real server has no stub for Python {PYTHON}",
            remedy=f"run devkit with one of Python {', '.join(found)}",
        )
    made = scratch / "backends"
    shutil.copytree(installation.root / "backends" / "python", made / "python")
    shutil.copy2(stub, made / "python" / stub.name)
    made.rename(installation.backends)


def _place_environment(installation: Installation, fetch: _Fetcher) -> None:
    """Make the environment of the models: NumPy 1 of its own, then what the user has."""
    made = fetch.scratch / "python"
    venv.create(made, symlinks=True, with_pip=False)
    packages = made / "lib" / f"python{PYTHON}" / "site-packages"
    _unpack(fetch.wheel(NUMPY_WHEEL), packages, ("",))
    # The paths come at run time: one cache serves every environment of this Python version.
    (packages / "devkit_user_packages.pth").write_text(
        f"import os, sys; sys.path += os.environ.get({_USER_PACKAGES!r}, '').split(os.pathsep)\n"
    )
    # The user's packages hold devkit's stand-in for this module; the real server gets its own.
    utilities = installation.backends / "python" / "triton_python_backend_utils.py"
    (packages / utilities.name).symlink_to(utilities)
    made.rename(installation.environment)


class _Fetcher:
    """Downloads wheels with pip into a scratch folder and shows how far it is."""

    def __init__(self, scratch: Path, console: Console) -> None:
        self.scratch = scratch
        self._console = console
        self._pip: list[str] = []

    def wheel(self, requirement: str) -> Path:
        """Download one wheel, without its dependencies."""
        into = Path(tempfile.mkdtemp(prefix="wheel-", dir=self.scratch))
        command = [
            *self._pip_command(),
            *("download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"),
            *("--disable-pip-version-check", "--progress-bar=off", "--dest", str(into)),
            requirement,
        ]
        output = into / "pip.log"
        with output.open("wb") as log:
            # pip writes to its temporary folder first: its size there is the progress.
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(into)},
            )
            try:
                self._watch(process, requirement, into, output)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        found = next(into.glob("*.whl"), None)
        if process.returncode != 0 or found is None:
            raise RealServerError(
                f"pip could not download {requirement}: {_last_line(output)}",
                remedy="check the connection to PyPI (pip's own settings such as PIP_INDEX_URL "
                "and HTTPS_PROXY are used) and try again",
            )
        return found

    def _watch(
        self, process: subprocess.Popen[bytes], requirement: str, into: Path, output: Path
    ) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(f"Downloading {requirement}", total=None)
            while process.poll() is None:
                said = re.search(r"\((\d+(?:\.\d+)?) (kB|MB)\)", output.read_text("utf-8"))
                if said:
                    scale = {"kB": 1e3, "MB": 1e6}[said[2]]
                    progress.update(task, total=float(said[1]) * scale)
                progress.update(task, completed=_folder_size(into))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)

    def _pip_command(self) -> list[str]:
        """pip of the running interpreter, or one in a scratch environment where it has none."""
        if not self._pip:
            for python in (sys.executable, self._scratch_python):
                path = python if isinstance(python, str) else python()
                probe = [path, "-m", "pip", "--version"]
                if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
                    self._pip = [path, "-m", "pip"]
                    break
            else:
                raise RealServerError(
                    f"neither {sys.executable} nor a new environment of it has pip",
                    remedy=f"Debian, Ubuntu: apt-get install python{PYTHON}-venv; uv: uv pip "
                    f"install pip",
                )
        return self._pip

    def _scratch_python(self) -> str:
        made = self.scratch / "pip"
        create = [sys.executable, "-m", "venv", str(made)]
        subprocess.run(create, capture_output=True, check=False)
        return str(made / "bin" / "python")


def _folder_size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # pip moves files while we look
            total += path.stat().st_size if path.is_file() else 0
    return total


def _last_line(output: Path) -> str:
    lines = [line for line in output.read_text("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["pip said nothing"])[-1]


def _unpack(wheel: Path, into: Path, wanted: tuple[str, ...]) -> None:
    """Extract the members whose path contains one of `wanted`, with their file modes."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if not member.is_dir() and any(part in member.filename for part in wanted):
                target = archive.extract(member, into)
                os.chmod(target, (member.external_attr >> 16) & 0o777 | 0o600)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _prepended(variable: str, folder: Path | None) -> str:
    parts = [str(folder) if folder else "", os.environ.get(variable, "")]
    return os.pathsep.join(part for part in parts if part)


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on right now; all held at once so that they differ."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for held in sockets:
            held.bind(("127.0.0.1", 0))
        return [int(held.getsockname()[1]) for held in sockets]


def sweep_shared_memory() -> list[str]:
    """Remove what real servers of dead processes left in `/dev/shm`; says what it removed."""
    removed = []
    for path in Path("/dev/shm").glob(f"{_SHM_PREFIX}*"):
        owner = path.name.removeprefix(_SHM_PREFIX).split("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            path.unlink(missing_ok=True)
            removed.append(path.name)
    return removed


class RealServer:
    """One running tritonserver on loopback ports of its own; a context manager.

    It starts with the object's `start` and ends with `stop`, and in any case with the thread
    that started it. Its shared-memory regions carry the starting process's id in their names,
    so a later start can clear away what a killed one left.
    """

    def __init__(
        self,
        repository: Path | Sequence[Path],
        installation: Installation,
        *,
        arguments: Sequence[str] = (),
        log: Path | None = None,
    ) -> None:
        """Prepare a server over `repository`; `arguments` are tritonserver's own flags."""
        found = [repository] if isinstance(repository, Path) else list(repository)
        self.repositories = [path.resolve() for path in found]
        self.installation = installation
        self.arguments = list(arguments)
        self.host = "127.0.0.1"
        self.http_port = self.grpc_port = self.metrics_port = 0
        self._own_folder = (
            None if log else tempfile.TemporaryDirectory(prefix="devkit-real-server-")
        )
        self.log_path = log or Path(self._own_folder.name if self._own_folder else ".", "log")
        self._process: subprocess.Popen[bytes] | None = None
        self._prefix = ""

    @property
    def pid(self) -> int:
        """The server's process id."""
        if self._process is None:
            raise RealServerError("the real server is not running")
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status, once it has ended."""
        return self._process.poll() if self._process else None

    def log(self) -> str:
        """Everything the server and its models have written so far."""
        if not self.log_path.exists():
            return ""
        return self.log_path.read_text("utf-8", "replace")

    def __enter__(self) -> RealServer:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, timeout: float = 120.0, *, wait: str = "ready") -> RealServer:
        """Start and wait until `/v2/health/<wait>` says yes; `wait=""` returns at once."""
        sweep_shared_memory()
        for attempt in range(3):
            self._launch()
            if not wait:
                return self
            try:
                self._wait(f"/v2/health/{wait}", timeout)
                return self
            except RealServerError as problem:
                self._end(grace=0)
                # Somebody took a port between our choosing and the server's binding.
                if "Address already in use" not in problem.log or attempt == 2:
                    self.stop()
                    raise
        return self

    def stop(self, timeout: float = 40.0) -> int | None:
        """End it as an operator would (SIGTERM), by force after `timeout`; leaves nothing."""
        self._end(grace=timeout)
        status = self.returncode
        if self._own_folder is not None:
            self._own_folder.cleanup()
        return status

    def kill(self) -> None:
        """End it at once, with its stubs."""
        self._end(grace=0)

    def _launch(self) -> None:
        self.http_port, self.grpc_port, self.metrics_port = free_ports(3)
        # Unique within this process too: a second server must not clear the first one's regions.
        self._prefix = f"{_SHM_PREFIX}{os.getpid()}-{self.http_port}-"
        command = self.installation.server()
        flags = [f"--model-repository={path}" for path in self.repositories]
        flags += [
            f"--backend-directory={self.installation.backends}",
            f"--cache-directory={self.installation.root / 'caches'}",
            f"--backend-config=python,shm-region-prefix-name={self._prefix}",
            *(f"--{door}-address={self.host}" for door in ("http", "grpc", "metrics")),
            f"--http-port={self.http_port}",
            f"--grpc-port={self.grpc_port}",
            f"--metrics-port={self.metrics_port}",
            *self.arguments,
        ]
        starter = [sys.executable, "-I", "-S", "-c", _TRAMPOLINE, str(os.getpid())]
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*starter, str(command.program), *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=command.environ(),
                start_new_session=True,
            )

    def _wait(self, path: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self.returncode is not None:
                raise RealServerError(
                    f"the real server ended with status {self.returncode} while starting: "
                    f"{explain(self.log())}",
                    log=self.log(),
                )
            if self._asks(path):
                return
            time.sleep(0.05)
        raise RealServerError(
            f"the real server was not ready within {timeout:.0f} s: {explain(self.log())}",
            remedy="it hangs for good on a model folder without model.py; see its log",
            log=self.log(),
        )

    def _asks(self, path: str) -> bool:
        connection = http.client.HTTPConnection(self.host, self.http_port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _end(self, grace: float) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None and grace > 0:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace)
        # The stubs share its session; a server that ended by itself may leave one that hangs.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for path in Path("/dev/shm").glob(f"{self._prefix}*"):
            path.unlink(missing_ok=True)


def explain(log: str) -> str:
    """The lines of a server log that say why it or a model of it failed, in one short text."""
    said = re.findall(r'^E\d{4} [^]]*\] "?(.*?)"?$', log, re.MULTILINE)
    causes = [line for line in said if line.startswith(("failed to", "Poll failed"))]
    reasons = causes or re.findall(r"^error: (.*)$", log, re.MULTILINE) or said
    text = "; ".join(dict.fromkeys(reasons)).replace("\\n", "\n")
    return text[-2000:] or "its log gives no reason"
