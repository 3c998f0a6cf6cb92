"""What being looked at costs: one runtime under load, with and without somebody attached.

Short rounds of every mode alternate with rounds of none in the same process, so a busy machine is
busy for all. Each round gives requests a second, and CPU time a request of the runtime and of the
instance, which says the same where other programs take the processor.
"""

from __future__ import annotations

import contextlib
import csv
import json
import statistics
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.table import Table

from devkit.control.client import Client
from devkit.tools.real_server import Installation
from tests.support.session import Session

WINDOW_MS = 700
CONCURRENCY = 16
TRACE_FILE = "trace.json"
ARGUMENTS = [f"--trace-config=triton,file={TRACE_FILE}"]
"""What the runtime must be started with: the file cannot be set later, as in the real server."""
EVERYTHING = 0.9
"""Of the throughput with nobody attached, what everything attached must leave."""


@dataclass
class Mode:
    """A way to be attached, and its rounds: throughput and CPU microseconds, with and without."""

    name: str
    attach: Callable[[Session], AbstractContextManager[None]]
    wanted: float | None = None
    rates: list[tuple[float, float]] = field(default_factory=list)
    costs: list[tuple[float, float]] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Throughput attached over throughput not attached, round by round."""
        return [attached / without for without, attached in self.rates]

    def to_plain(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "rates": self.rates,
            "cpu_us": self.costs,
            "ratio": statistics.median(self.ratios),
            "ratio_low": min(self.ratios),
            "ratio_high": max(self.ratios),
            "wanted": self.wanted,
        }


@contextmanager
def nothing(session: Session) -> Iterator[None]:
    """Nobody looks, and nothing is recorded."""
    yield


@contextmanager
def capture(session: Session) -> Iterator[None]:
    """The ring of recorded requests, as it is unless somebody turns it off."""
    with session.client() as client:
        client.capture_settings(on=True)
        yield
        client.capture_settings(on=False)


def traced(*levels: str) -> Callable[[Session], AbstractContextManager[None]]:
    """The trace extension with every request."""

    @contextmanager
    def attach(session: Session) -> Iterator[None]:
        _set_trace(session, {"trace_level": list(levels), "trace_rate": "1"})
        yield
        _set_trace(session, {"trace_level": ["OFF"]})
        (session.server.log_path.parent / TRACE_FILE).unlink(missing_ok=True)

    return attach


def _set_trace(session: Session, changes: dict[str, Any]) -> None:
    answer = session.http("POST", "/v2/trace/setting", json.dumps(changes).encode())
    assert answer.status == 200, answer


@contextmanager
def face(session: Session) -> Iterator[None]:
    """A dashboard: every event, and the gauges once a second."""
    stop = threading.Event()
    listening = threading.Event()

    def read(client: Client) -> None:
        with contextlib.closing(client.events(gauges=1.0)) as events:  # type: ignore[type-var]
            for _ in events:
                listening.set()
                if stop.is_set():
                    return

    with session.client() as client:
        thread = threading.Thread(target=read, args=(client,))
        thread.start()
        assert listening.wait(30)
        yield
        stop.set()
        thread.join(30)


@contextmanager
def everything(session: Session) -> Iterator[None]:
    """All of it at once."""
    with ExitStack() as stack:
        for attach in (capture, traced("TIMESTAMPS"), face):
            stack.enter_context(attach(session))
        yield


def modes() -> list[Mode]:
    return [
        Mode("nothing", nothing),
        Mode("capture", capture),
        Mode("gauges and events", face),
        Mode("trace rate 1, TIMESTAMPS", traced("TIMESTAMPS")),
        Mode("trace rate 1, TENSORS", traced("TIMESTAMPS", "TENSORS")),
        Mode("everything (TIMESTAMPS)", everything, wanted=EVERYTHING),
    ]


def measure(session: Session, installation: Installation, chosen: list[Mode], rounds: int) -> None:
    """Fill the modes' figures. Who begins changes from round to round."""
    with session.client() as client:
        client.capture_settings(on=False)
    _load(session, installation)  # warm
    for number in range(rounds):
        for mode in chosen:
            found: dict[bool, tuple[float, float]] = {}
            for attached in (number % 2 == 0, number % 2 == 1):
                with (mode.attach if attached else nothing)(session):
                    found[attached] = _load(session, installation)
            mode.rates.append((found[False][0], found[True][0]))
            mode.costs.append((found[False][1], found[True][1]))


def _load(session: Session, installation: Installation) -> tuple[float, float]:
    """Requests a second that perf_analyzer reaches, and CPU microseconds of each on the server."""
    before = _used(session)
    command = installation.perf_analyzer()
    result = Path(session.server.log_path.parent, "perf.csv")
    arguments = [
        *("-m", "add_sub", "-i", "http", "-u", session.url),
        *("--concurrency-range", f"{CONCURRENCY}:{CONCURRENCY}"),
        *("-p", str(WINDOW_MS), "-s", "999", "-r", "3", "-f", str(result)),
    ]
    done = subprocess.run(
        [str(command.program), *arguments],
        env=command.environ(), capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    after = _used(session)
    with result.open(newline="") as table:
        (row,) = csv.DictReader(table)
    return (
        float(row["Inferences/Second"]),
        (after[1] - before[1]) / (after[0] - before[0]) * 1e6,
    )


def _used(session: Session) -> tuple[int, float]:
    """Requests answered so far, and CPU seconds of the runtime and its instances."""
    with session.client() as client:
        (row,) = client.statistics("add_sub")
    spent = 0.0
    root = psutil.Process(session.server.pid)
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent += times.user + times.system
    return int(row.get("inference_count", 0)), spent


def show(chosen: list[Mode]) -> Table:
    table = Table(title=f"add_sub over HTTP, concurrency {CONCURRENCY}, while somebody looks")
    for column in ("attached", "without", "with", "ratio", "lowest-highest", "CPU", "wanted"):
        table.add_column(column, justify="left" if column == "attached" else "right")
    for mode in chosen:
        ratio = statistics.median(mode.ratios)
        costs = [attached / without for without, attached in mode.costs]
        met = mode.wanted is None or ratio >= mode.wanted
        table.add_row(
            mode.name,
            f"{statistics.median(one for one, _ in mode.rates):,.0f}",
            f"{statistics.median(one for _, one in mode.rates):,.0f}",
            f"{ratio:.2f}",
            f"{min(mode.ratios):.2f}-{max(mode.ratios):.2f}",
            f"{statistics.median(costs):.2f}x",
            "" if mode.wanted is None else f"{mode.wanted:g}",
            style="" if met else "red",
        )
    return table
