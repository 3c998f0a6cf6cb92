"""What is measured and how: perf_analyzer against either server, loads, calls from Python.

Rounds of both servers alternate, so that a machine that is busy for a while is busy for both.
A figure is the median of its rounds, with the lowest and highest beside it.
"""

from __future__ import annotations

import csv
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tritonclient.http
from rich.console import Console
from rich.table import Table

from devkit.tools.real_server import SERVER_VERSION, Installation
from tests.support.session import Session

WINDOW_MS = 1500
CALLS = 2000
LOADS = 3


@dataclass(frozen=True)
class Measure:
    """One thing measured on both servers.

    Attributes:
        more_is_better: requests a second are; seconds are not.
        wanted: the ratio, devkit to real in the better direction, that the project holds itself to.
    """

    name: str
    unit: str
    ask: Callable[[Session], float]
    more_is_better: bool = True
    wanted: float | None = None


@dataclass
class Figures:
    """The rounds of one measure."""

    measure: Measure
    real: list[float] = field(default_factory=list)
    devkit: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """How much better devkit is, round by round."""
        pairs = zip(self.real, self.devkit, strict=True)
        if self.measure.more_is_better:
            return [ours / theirs for theirs, ours in pairs]
        return [theirs / ours for theirs, ours in pairs]

    def to_plain(self) -> dict[str, Any]:
        return {
            "name": self.measure.name,
            "unit": self.measure.unit,
            "more_is_better": self.measure.more_is_better,
            "real": self.real,
            "devkit": self.devkit,
            "ratio": statistics.median(self.ratios),
            "ratio_low": min(self.ratios),
            "ratio_high": max(self.ratios),
            "wanted": self.measure.wanted,
        }


def perf(installation: Installation, protocol: str, concurrency: int) -> Callable[[Session], float]:
    """Requests a second that perf_analyzer reaches with add_sub."""

    def ask(session: Session) -> float:
        command = installation.perf_analyzer()
        result = Path(session.server.log_path.parent, "perf.csv")
        arguments = [
            *("-m", "add_sub", "-i", protocol),
            *("-u", session.url if protocol == "http" else session.grpc_url),
            *("--concurrency-range", f"{concurrency}:{concurrency}"),
            # Its own stability test would refuse a noisy machine; the rounds show the spread.
            *("-p", str(WINDOW_MS), "-s", "999", "-r", "4", "-f", str(result)),
        ]
        done = subprocess.run(
            [str(command.program), *arguments],
            env=command.environ(),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        with result.open(newline="") as table:
            (row,) = csv.DictReader(table)
        return float(row["Inferences/Second"])

    return ask


def arrays() -> dict[str, np.ndarray]:
    return {name: np.arange(16, dtype=np.float32) for name in ("INPUT0", "INPUT1")}


def call_seconds(session: Session) -> float:
    """Microseconds of one call from Python: devkit.infer, or tritonclient.http on the real one."""
    inputs = arrays()
    if session.kind == "devkit":
        with session.client() as client:
            return _microseconds(lambda: client.infer("add_sub", inputs)["OUTPUT0"])
    with tritonclient.http.InferenceServerClient(session.url) as client:

        def call() -> np.ndarray:
            given = []
            for name, array in inputs.items():
                tensor = tritonclient.http.InferInput(name, list(array.shape), "FP32")
                tensor.set_data_from_numpy(array)
                given.append(tensor)
            return client.infer("add_sub", given).as_numpy("OUTPUT0")

        return _microseconds(call)


def _microseconds(call: Callable[[], np.ndarray]) -> float:
    expected = arrays()["INPUT0"] * 2
    for _ in range(CALLS // 10):
        assert np.array_equal(call(), expected)
    times = []
    for _ in range(CALLS):
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / 1000


def reload_seconds(session: Session) -> float:
    """Milliseconds from a changed model.py to the new version being served."""
    times = []
    file = session.repository / "add_sub_reload" / "1" / "model.py"
    for _ in range(LOADS):
        file.write_text(file.read_text() + f"\n# {time.time_ns()}\n")
        start = time.perf_counter_ns()
        answer = session.http("POST", "/v2/repository/models/add_sub_reload/load", b"")
        times.append((time.perf_counter_ns() - start) / 1e6)
        assert answer.status == 200, answer
    return statistics.median(times)


def measures(installation: Installation) -> list[Measure]:
    wanted = {("http", 1): 1.0, ("http", 16): 1.0, ("grpc", 16): 0.8}
    rates = [
        Measure(
            f"{protocol} c{concurrency}",
            "requests/s",
            perf(installation, protocol, concurrency),
            wanted=wanted.get((protocol, concurrency)),
        )
        for protocol in ("http", "grpc")
        for concurrency in (1, 4, 16)
    ]
    return [
        *rates,
        Measure("call from Python", "µs", call_seconds, more_is_better=False, wanted=1.0),
        Measure("reload", "ms", reload_seconds, more_is_better=False, wanted=10.0),
    ]


def run(sessions: dict[str, Session], chosen: list[Measure], rounds: int) -> list[Figures]:
    """Measure all, the servers taking turns, and who begins changing from round to round."""
    figures = [Figures(measure) for measure in chosen]
    console = Console(stderr=True)
    for number in range(rounds):
        kinds = ("real", "devkit") if number % 2 == 0 else ("devkit", "real")
        for row in figures:
            for kind in kinds:
                console.print(
                    f"round {number + 1}/{rounds}  {row.measure.name}  {kind}", style="dim"
                )
                getattr(row, kind).append(row.measure.ask(sessions[kind]))
    return figures


def show(figures: list[Figures]) -> Table:
    table = Table(title=f"devkit beside Triton {SERVER_VERSION}, medians of {len(figures[0].real)}")
    for column in ("add_sub", "unit", "real", "devkit", "ratio", "lowest-highest", "wanted"):
        table.add_column(column, justify="left" if column in ("add_sub", "unit") else "right")
    for row in figures:
        plain = row.to_plain()
        wanted = plain["wanted"]
        met = wanted is None or plain["ratio"] >= wanted
        table.add_row(
            row.measure.name,
            row.measure.unit,
            f"{statistics.median(row.real):,.1f}",
            f"{statistics.median(row.devkit):,.1f}",
            f"{plain['ratio']:.2f}",
            f"{plain['ratio_low']:.2f}-{plain['ratio_high']:.2f}",
            "" if wanted is None else f"{wanted:g}",
            style="" if met else "red",
        )
    return table


def save(figures: list[Figures], target: Path) -> None:
    report = {
        "server": SERVER_VERSION,
        "machine": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "memory": psutil.virtual_memory().total,
        "measures": [row.to_plain() for row in figures],
    }
    target.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
