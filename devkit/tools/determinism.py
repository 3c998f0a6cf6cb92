"""Whether a model answers the same request the same way: again, on other instances, in batches.

Recorded requests are replayed through the runtime; answers of one request are compared bit by bit
with its first. What differs is told by output, by how much, and under which change it shows.
Nothing here judges whether an answer is right.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from devkit.contract import recording
from devkit.errors import ControlError, InferError

if TYPE_CHECKING:
    from devkit.contract.recording import Record
    from devkit.control import messages
    from devkit.control.client import Client

Array = npt.NDArray[Any]
Answer = dict[str, Array] | str
"""Outputs by name, or an error's text."""

AGAIN, INSTANCES, TOGETHER = "again", "instances", "together"
CHANGES = {
    AGAIN: "asked again, alone, of the same instance",
    INSTANCES: "asked of another instance",
    TOGETHER: "asked while other requests run beside it, in batches where the model has them",
}

_HINTS = (
    (
        r"^\s*(?:import|from)\s+torch\b",
        "PyTorch: torch.manual_seed(0), model.eval() (dropout, batch norm), "
        "torch.use_deterministic_algorithms(True) with CUBLAS_WORKSPACE_CONFIG=:4096:8, "
        "torch.backends.cudnn.benchmark = False, torch.backends.cuda.matmul.allow_tf32 = False, "
        "torch.set_num_threads(1) where sums over threads differ.",
    ),
    (
        r"^\s*(?:import|from)\s+(?:tensorflow|keras)\b",
        "TensorFlow: tf.keras.utils.set_random_seed(0), "
        "tf.config.experimental.enable_op_determinism(), call the model with training=False, "
        "tf.config.experimental.enable_tensor_float_32_execution(False).",
    ),
    (
        r"^\s*(?:import|from)\s+jax\b",
        "JAX: pass the same PRNG key, XLA_FLAGS=--xla_gpu_deterministic_ops=true, "
        "jax_default_matmul_precision='highest'.",
    ),
    (
        r"^\s*(?:import|from)\s+(?:random|secrets|uuid)\b|np\.random|numpy\.random|default_rng",
        "The model draws random numbers: seed them per request, from what the request holds.",
    ),
)
_GENERAL = {
    AGAIN: "It differs on the very same instance, alone: look for random numbers, clocks, state "
    "kept from request to request (`self.`), sets whose order is used, threads that race.",
    INSTANCES: "It differs only between instances: look at what initialize draws at random or "
    "loads, at seeds per process, at hash() of strings (PYTHONHASHSEED), at instances on different "
    "devices.",
    TOGETHER: "It differs only beside other requests: sums in another order for another batch "
    "size (BLAS, cuDNN), batch normalisation in training mode, padding to the longest in the "
    "batch, or state that requests share.",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One output of one request that did not stay the same under one change.

    Attributes:
        unequal: of how many of `total` values, at most in any answer.
        largest, relative: the largest absolute and relative difference of a value.
        ulps: the same in units in the last place; 0 where the type has none.
        answers: how many of the answers differed, out of `asked`.
    """

    request: int
    output: str
    change: str
    detail: str
    answers: int
    asked: int
    unequal: int = 0
    total: int = 0
    largest: float = 0.0
    relative: float = 0.0
    ulps: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What was asked and what differed."""

    model: str
    requests: int
    repeats: int
    instances: tuple[str, ...]
    batched: bool
    asked: int
    differences: tuple[Difference, ...] = ()
    hints: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def deterministic(self) -> bool:
        """Whether every answer was the same, bit by bit."""
        return not self.differences

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**dataclasses.asdict(self), "deterministic": self.deterministic}

    def text(self) -> str:
        """For people."""
        over = f"{len(self.instances)} instance{'s' if len(self.instances) != 1 else ''}"
        lines = [
            f"{self.model}: {self.requests} requests asked {self.asked} times in all, over {over}, "
            f"alone and {'in batches' if self.batched else 'beside each other'}"
        ]
        lines += [f"note: {note}" for note in self.notes]
        if self.deterministic:
            lines.append("deterministic: every answer was the same, bit by bit")
        for one in self.differences:
            lines.append(
                f"differs: request {one.request}, {one.output or 'the answer'}, "
                f"{CHANGES[one.change]}: "
                f"{one.answers} of {one.asked} answers, {one.detail}"
            )
        lines += [f"hint: {hint}" for hint in self.hints]
        return "\n".join(lines)


def check(
    client: Client,
    name: str,
    *,
    repeats: int = 5,
    requests: int = 10,
    captures: Path | None = None,
) -> Report:
    """Ask recorded requests of `name` again and again; ControlError where none is recorded."""
    model = client.model(name)
    notes: list[str] = []
    records = _chosen(client, name, captures, requests)
    if model.decoupled:
        raise ControlError(
            f"'{name}' is decoupled: its answers are streams, which are not compared", model=name
        )
    inputs = [record.inputs() for record in records]
    instances = [one.name for one in model.instances if one.state in ("ready", "busy")]
    config = client.config(name)
    batched = "dynamic_batching" in config or "dynamicBatching" in config
    if "sequence_batching" in config or "sequenceBatching" in config:
        raise ControlError(
            f"'{name}' keeps sequences: a request alone does not say what it answers", model=name
        )
    asking = _Asking(client, name, model, records, inputs, steered=not batched)
    if batched and len(instances) > 1:
        notes.append("with dynamic batching no instance can be chosen: all were asked as they came")
    firsts = [asking.ask(index, instances[0] if instances else "") for index in range(len(records))]
    found: list[Difference] = []
    for index, first in enumerate(firsts):
        again = [asking.ask(index, instances[0] if instances else "") for _ in range(repeats - 1)]
        found += _differences(index, AGAIN, first, again, records)
        if not batched:
            for other in instances[1:]:
                others = [asking.ask(index, other) for _ in range(max(repeats // 2, 1))]
                found += _differences(index, INSTANCES, first, others, records)
    for index, answers in enumerate(asking.together(repeats)):
        found += _differences(index, TOGETHER, firsts[index], answers, records)
    found = _blamed(found)
    return Report(
        name, len(records), repeats, tuple(instances), batched, asking.count, tuple(found),
        tuple(_hints(model, found)), tuple(notes),
    )  # fmt: skip


def _chosen(client: Client, name: str, captures: Path | None, count: int) -> list[Record]:
    """The last recorded requests of the model that were answered, of distinct forms first."""
    if captures is not None:
        with captures.open("rb") as file:
            records = [one for one in recording.read(file) if one.model == name]
    else:
        records = client.captures(name)
    usable = [one for one in records if not one.error and "sequence_id" not in _parameters(one)]
    if not usable:
        raise ControlError(
            f"no answered request of '{name}' is recorded",
            model=name,
            remedy="send it a few requests first: the runtime records them by itself",
        )
    forms: dict[Any, Record] = {}
    for one in usable:
        header = one.request.header
        forms[tuple((i["name"], tuple(i["shape"])) for i in header["inputs"])] = one
    distinct = list(forms.values())
    rest = [one for one in reversed(usable) if one not in distinct]
    return (distinct + rest)[:count]


def _parameters(record: Record) -> dict[str, Any]:
    found = record.request.header.get("parameters", {})
    return {key: value for key, value in found.items() if key != "binary_data_output"}


@dataclass
class _Asking:
    """Asks the recorded requests, counts, and keeps errors as answers."""

    client: Client
    name: str
    model: messages.Model
    records: Sequence[Record]
    inputs: Sequence[dict[str, Array]]
    steered: bool
    count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, index: int, instance: str = "") -> Answer:
        record = self.records[index]
        wanted = [row["name"] for row in record.request.header.get("outputs", ())]
        with self._lock:
            self.count += 1
        try:
            return self.client.ask(
                self.name,
                self.inputs[index],
                outputs=wanted,
                parameters=_parameters(record),
                instance=instance if self.steered else "",
            )
        except InferError as problem:
            return problem.message

    def together(self, repeats: int) -> list[list[Answer]]:
        """Every request at once with all others, so that batches form; answers by request."""
        answers: list[list[Answer]] = [[] for _ in self.records]
        width = max(4, min(16, 2 * max(self.model.max_batch_size, 1)))
        order = [i for _ in range(repeats) for i in range(len(self.records))]
        work = iter(order * max(1, -(-width // max(len(order), 1))))

        def run() -> None:
            while True:
                with self._lock:
                    index = next(work, None)
                if index is None:
                    return
                answer = self.ask(index)
                with self._lock:
                    answers[index].append(answer)

        _all_at_once([run] * width)
        return answers


def _all_at_once(calls: Sequence[Callable[[], None]]) -> None:
    """Run each on a thread of its own; the first exception is raised here."""
    problems: list[BaseException] = []

    def guarded(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


def _differences(
    index: int, change: str, first: Answer, others: Sequence[Answer], records: Sequence[Record]
) -> list[Difference]:
    """What of `others` is unlike `first`, an entry for each output."""
    number = records[index].number
    texts = [isinstance(each, str) for each in (first, *others)]
    if any(texts):
        unlike = [each for each in others if _told(each) != _told(first)]
        if not unlike:
            return []
        detail = f"{_told(unlike[0])} instead of {_told(first)}"
        return [Difference(number, "", change, detail, len(unlike), len(others))]
    assert not isinstance(first, str)
    found = []
    for name, base in first.items():
        gaps = []
        for other in others:
            assert not isinstance(other, str)
            gap = compare(base, other.get(name))
            if gap is not None:
                gaps.append(gap)
        if gaps:
            worst = max(gaps, key=lambda gap: (gap.detail == "", gap.largest, gap.unequal))
            detail = worst.detail or worst.words()
            found.append(
                Difference(
                    number, name, change, detail, len(gaps), len(others), worst.unequal,
                    worst.total, worst.largest, worst.relative, worst.ulps,
                )
            )  # fmt: skip
    return found


def _told(answer: Answer) -> str:
    return answer.partition("\n")[0] if isinstance(answer, str) else "an answer"


@dataclass(frozen=True, slots=True)
class Gap:
    """How far apart two arrays are; `detail` where they cannot be compared value by value."""

    unequal: int = 0
    total: int = 0
    largest: float = 0.0
    relative: float = 0.0
    ulps: int = 0
    detail: str = ""

    def words(self) -> str:
        """As a sentence has it."""
        ulps = f", {self.ulps} ULP" if self.ulps else ""
        return (
            f"{self.unequal} of {self.total} values differ, by up to {self.largest:.3g} "
            f"({self.relative:.2g} of the value{ulps})"
        )


def compare(base: Array, other: Array | None) -> Gap | None:
    """None where both are the same bit by bit (a NaN equals a NaN)."""
    if other is None:
        return Gap(detail="the output is missing in some answers")
    if base.dtype != other.dtype or base.shape != other.shape:
        detail = f"{other.dtype}{list(other.shape)} instead of {base.dtype}{list(base.shape)}"
        return Gap(detail=detail)
    unequal = np.asarray(base != other)
    if base.dtype.kind == "f" or base.dtype.name == "bfloat16":
        unequal &= ~(np.isnan(base) & np.isnan(other))
    count = int(np.count_nonzero(unequal))
    if not count:
        return None
    if base.dtype.kind not in "fiu" and base.dtype.name != "bfloat16":
        return Gap(count, base.size, detail=f"{count} of {base.size} values differ")
    with np.errstate(all="ignore"):
        one = base[unequal].astype(np.float64)
        two = other[unequal].astype(np.float64)
        gap = np.abs(one - two)
        scale = np.maximum(np.abs(one), np.abs(two))
        relative = np.where(scale > 0, gap / scale, 0.0)
    return Gap(
        count, base.size, float(np.max(gap)), float(np.max(relative)),
        _ulps(base[unequal], other[unequal]),
    )  # fmt: skip


def _ulps(one: Array, two: Array) -> int:
    """The largest distance in units in the last place; 0 for types that have none."""
    integer = {2: np.int16, 4: np.int32, 8: np.int64}.get(one.dtype.itemsize)
    if one.dtype.kind in "iu" or integer is None:
        return 0

    def ordered(array: Array) -> list[int]:
        bits = np.ascontiguousarray(array).view(integer).astype(object)
        lowest = 1 << (8 * one.dtype.itemsize - 1)
        return [int(each) if each >= 0 else -(int(each) + lowest) for each in bits.ravel()]

    finite = np.isfinite(one.astype(np.float64)) & np.isfinite(two.astype(np.float64))
    pairs = zip(ordered(one[finite]), ordered(two[finite]), strict=True)
    return max((abs(a - b) for a, b in pairs), default=0)


def _blamed(found: list[Difference]) -> list[Difference]:
    """Only the plainest change of each output: what differs alone differs everywhere."""
    order = list(CHANGES)
    best: dict[tuple[int, str], Difference] = {}
    for one in found:
        key = (one.request, one.output)
        known = best.get(key)
        if known is None or order.index(one.change) < order.index(known.change):
            best[key] = one
    return list(best.values())


def _hints(model: messages.Model, found: Sequence[Difference]) -> list[str]:
    if not found:
        return []
    hints = [_GENERAL[change] for change in CHANGES if any(one.change == change for one in found)]
    source = ""
    for file in {model.file, *model.files}:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            source += Path(file).read_text(encoding="utf-8") + "\n"
    return hints + [text for pattern, text in _HINTS if re.search(pattern, source, re.MULTILINE)]
