"""Where an instance spends its time, and where it is stuck: py-spy beside it, and the stub's word.

py-spy runs as a child of the runtime and looks into the model's process from outside; the model
runs on. What the operating system does not allow is explained, with what allows it. Nothing here
runs unasked.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devkit.errors import ControlError, DevkitError

if TYPE_CHECKING:
    from devkit.core.instance import Instance

FORMATS = ("speedscope", "flamegraph", "raw")
LONGEST = 600.0
ANSWER_SECONDS = 1.0
"""How long a stub may take to say where it is, before it is looked at from outside."""

_FRAME = re.compile(r'^  File "', re.MULTILINE)
_OURS = re.compile(r'[^"]*/devkit/(?:stub|transport)/[^"/]+\.py"')

_LOCK_NOTE = (
    "the process does not answer itself: native code holds the interpreter's lock; seen from "
    "outside by py-spy"
)


@dataclass(frozen=True, slots=True)
class Found:
    """Stacks of an instance's threads: (name, text), and how they were found."""

    threads: tuple[tuple[str, str], ...]
    note: str = ""


def program() -> str:
    """py-spy's path; ControlError where it is not installed."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("py-spy", path=beside) or shutil.which("py-spy")
    if found is None:
        raise ControlError(
            "py-spy, which takes profiles, is not installed",
            remedy="pip install 'triton-devkit[profile]', into the runtime's environment",
        )
    return found


async def record(
    instance: Instance,
    seconds: float,
    *,
    rate: int = 200,
    format: str = "speedscope",
    native: bool = False,
    idle: bool = False,
    pause: bool = False,
) -> bytes:
    """A profile of an instance over the next `seconds`, in one of py-spy's formats."""
    if format not in FORMATS:
        raise ControlError(f"'{format}' is no profile format", remedy=f"take {', '.join(FORMATS)}")
    if not 0 < seconds <= LONGEST:
        raise ControlError(f"{seconds:g} s is no length of a profile", remedy="give up to 600")
    command = [program(), "record", "--pid", str(instance.pid), "--duration", str(round(seconds))]
    if seconds < 1:
        command[-1] = "1"
    command += ["--rate", str(max(1, min(rate, 1000))), "--format", format, "--threads"]
    command += ["--native"] if native else []
    command += ["--idle"] if idle else []
    command += [] if pause or native else ["--nonblocking"]
    await _permit(instance)
    with tempfile.TemporaryDirectory(prefix="devkit-profile-") as folder:
        target = Path(folder, "profile")
        said, status = await _run([*command, "--output", str(target)], seconds + 30)
        if not target.is_file() or not target.stat().st_size:
            raise _explained(said, status, instance)
        return await asyncio.to_thread(target.read_bytes)


async def stack(instance: Instance) -> Found:
    """Where every thread of an instance is now, also when it is stuck."""
    try:
        answer = await instance.call("stack", timeout=ANSWER_SECONDS)
    except asyncio.TimeoutError:  # the built-in one only since 3.11
        return await _dump(instance)
    if "error" in answer:
        return Found((), f"the process could not say where it is: {answer['error']}")
    threads = tuple((one["thread"], _trimmed(one["stack"])) for one in answer["threads"])
    return Found(threads)


def _trimmed(stack: str) -> str:
    """A traceback without the frames of ours that lead to the model's."""
    frames = _FRAME.split(stack)[1:]
    own = 0
    while own < len(frames) and _OURS.match(frames[own]):
        own += 1
    if own == len(frames):
        return "  waits for requests\n"
    return "".join(f'  File "{frame}' for frame in frames[own:])


async def _dump(instance: Instance) -> Found:
    """From outside: where the process does not get to answer."""
    try:
        command = [program(), "dump", "--pid", str(instance.pid), "--nonblocking"]
        said, status = await _run(command, 20)
        if status:
            raise _explained(said, status, instance)
    except DevkitError as problem:
        remedy = f" ({problem.remedy})" if problem.remedy else ""
        return Found((), f"the process does not answer, and: {problem.message}{remedy}")
    threads = []
    for block in said.split("\nThread ")[1:]:
        name, _, text = block.partition("\n")
        # py-spy has the innermost frame first, Python's own tracebacks have it last.
        threads.append((name.strip(), "\n".join(reversed(text.strip("\n").splitlines()))))
    return Found(tuple(threads), _LOCK_NOTE)


async def _permit(instance: Instance) -> None:
    """Have the process allow it, where only its parents may look into it (Yama)."""
    # One that holds the interpreter's lock does not answer; it may be allowed all the same.
    with contextlib.suppress(asyncio.TimeoutError):
        await instance.call("traceable", timeout=ANSWER_SECONDS)


async def _run(command: list[str], seconds: float) -> tuple[str, int]:
    """Output and exit status of a command; it ends with this call."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), seconds)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return said.decode("utf-8", "replace"), process.returncode


def _explained(said: str, status: int, instance: Any) -> ControlError:
    """py-spy's failure in words that help."""
    lowered = said.lower()
    lines = [line for line in said.strip().splitlines() if line.strip()]
    last = lines[-1].strip() if lines else f"exit status {status}"
    about = {"model": instance.model.name, "instance": instance.name}
    if (
        "permission denied" in lowered
        or "operation not permitted" in lowered
        or "as root" in lowered
    ):
        return ControlError(
            f"the system does not let py-spy look into {instance.name}: {last}",
            remedy="in a container start it with --cap-add=SYS_PTRACE; on a host set "
            "`sysctl kernel.yama.ptrace_scope=0` or run the runtime as the user of its models; on "
            "macOS run `sudo devkit serve`",
            **about,
        )
    if "no such process" in lowered or "failed to find" in lowered:
        return ControlError(f"{instance.name} ended while it was profiled: {last}", **about)
    return ControlError(
        f"py-spy took no profile of {instance.name}: {last}",
        remedy="an instance that does nothing has no samples: send it requests, or take --idle",
        **about,
    )
