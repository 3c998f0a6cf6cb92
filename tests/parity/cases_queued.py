"""Requests that are cancelled while they wait, in every kind of queue; and ids that are too long."""

from __future__ import annotations

import contextlib
import re
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from tritonclient.grpc import service_pb2 as pb

from tests.parity.asking import (
    Answer,
    Asked,
    Case,
    Http,
    Stream,
    given,
    grpc_infer,
    infer,
    message,
    post,
    run,
)
from tests.support.session import Session

HOLD = """\
import os
print("runs hold", flush=True)
until = time.monotonic() + 20
while not os.path.exists(GATE) and time.monotonic() < until:
    time.sleep(0.01)
return [text("x") for r in requests]
"""
SAY = """\
print("runs", LABEL, [r.is_cancelled() for r in requests], flush=True)
return [text("x") for r in requests]
"""
GAP = 0.1  # for requests to come in their order, and for cancellations to arrive: nothing tells


@dataclass(frozen=True)
class Part:
    """One request of a queue; `flags` S and E start and end `sequence`."""

    label: str
    flags: str = ""
    sequence: int = 0

    def parameters(self) -> dict[str, Any]:
        if not self.sequence:
            return {}
        flags = {"S": "sequence_start", "E": "sequence_end"}
        return {"sequence_id": self.sequence, **{flags[each]: True for each in self.flags}}


@dataclass(frozen=True)
class Queue:
    """Requests behind one that holds the only instance until the cancellations have arrived.

    Shows what the model ran, with what `is_cancelled()` said, and how each request ended. `cancel`
    names those whose call is cancelled, `http` those that are asked over HTTP.
    """

    model: str
    hold: Part
    parts: tuple[Part, ...]
    cancel: tuple[str, ...]
    http: tuple[str, ...] = ()

    def ask(self, session: Session) -> Answer:
        start = len(session.log())
        with (
            tempfile.TemporaryDirectory(prefix="devkit-test-") as folder,
            ThreadPoolExecutor(1 + len(self.http)) as pool,
        ):
            gate = Path(folder, "gate")
            held = self._call(session, self.hold, HOLD.replace("GATE", repr(str(gate))))
            shown: Answer = {"started": session.wait_for_log("runs hold", 20, since=start)}
            calls: dict[str, Any] = {}
            for part in self.parts:
                code = SAY.replace("LABEL", repr(part.label))
                if part.label in self.http:
                    calls[part.label] = pool.submit(self._http(part, code).ask, session)
                else:
                    calls[part.label] = self._call(session, part, code)
                time.sleep(GAP)
            for label in self.cancel:
                calls[label].cancel()
            time.sleep(GAP)
            gate.touch()
            shown["ends"] = {label: _end(call) for label, call in {"hold": held, **calls}.items()}
        # Behind all the others in the same pipe.
        last = self._call(session, Part("last", "SE", self.hold.sequence and 99), _say("last"))
        shown["last"] = _end(last)
        session.wait_for_log("runs last", since=start)
        shown["ran"] = re.findall(r"^runs (.*)$", session.log()[start:], re.MULTILINE)
        return shown

    def _shape(self) -> list[int]:
        return [1] if self.model == "queue" else [1, 1]

    def _call(self, session: Session, part: Part, code: str) -> Any:
        kinds = {name: _kind(value) for name, value in part.parameters().items()}
        request = message(
            self.model, [("CODE", "BYTES", self._shape(), [code.encode()])], parameters=kinds
        )
        return session.stub.ModelInfer.future(request, timeout=30)

    def _http(self, part: Part, code: str) -> Http:
        inputs = [given("CODE", "BYTES", self._shape(), [code])]
        return infer(self.model, inputs, parameters=part.parameters())


def _say(label: str) -> str:
    return SAY.replace("LABEL", repr(label))


def _kind(value: Any) -> tuple[str, Any]:
    return ("bool_param" if isinstance(value, bool) else "int64_param"), value


def _end(call: Any) -> Any:
    if not isinstance(call, grpc.Future):
        return call.result(timeout=30)
    with contextlib.suppress(grpc.RpcError, grpc.FutureCancelledError):
        call.result(timeout=30)
    return [call.code().name, "" if call.cancelled() else call.details()]


def queue(name: str, model: str, *parts: Part, cancel: str, hold: Part, http: str = "") -> Case:
    asked = Queue(model, hold, parts, tuple(cancel.split()), tuple(http.split()))
    return Case(f"cancel in a queue: {name}", (asked,), "3", setup="contract", issue=3)


A, B, C = Part("a"), Part("b"), Part("c")
FIRST = Part("hold")
OF_ONE = Part("hold", "S", 1)
CANCELLED = [
    queue("no batcher", "queue", A, B, cancel="a", hold=FIRST),
    queue("batcher, in a batch by then", "queue_batch", A, B, C, cancel="b", hold=FIRST),
    queue("batcher, in none yet", "queue_batch", A, B, C, cancel="c", hold=FIRST),
    queue("batcher with a queue policy", "queue_bounded", A, B, C, cancel="a", hold=FIRST),
    *(
        case
        for model in ("queue_direct", "queue_oldest")
        for case in (
            queue(
                f"{model}, the rest of the sequence goes with it", model,
                Part("a", "", 1), Part("b", "", 1), Part("c", "", 1), Part("d", "", 1),
                cancel="b", http="d", hold=OF_ONE,
            ),
            queue(
                f"{model}, no new start while it waits", model,
                Part("a", "", 1), Part("b", "S", 1), Part("c", "E", 1), cancel="a", hold=OF_ONE,
            ),
            queue(
                f"{model}, another sequence behind its end", model,
                Part("a", "", 1), Part("b", "E", 1), Part("c", "SE", 1), cancel="a", hold=OF_ONE,
            ),
        )
    ),
    queue(
        "a sequence without a slot, its first", "queue_direct",
        Part("a", "S", 2), Part("b", "E", 2), Part("c", "E", 1), cancel="a", hold=OF_ONE,
    ),
    queue(
        "a sequence without a slot, its last", "queue_direct",
        Part("a", "S", 2), Part("b", "E", 2), Part("c", "E", 1), cancel="b", hold=OF_ONE,
    ),
]  # fmt: skip

# -- ids of sequences -----------------------------------------------------------------------------

SAYS_ID = "return [text(str(requests[0].correlation_id()))]"
TOO_LONG = {"sequence_id": "x" * 129}


def id_message(model: str, length: int) -> pb.ModelInferRequest:
    parameters = {"sequence_id": ("string_param", "x" * length)}
    return message(model, [("CODE", "BYTES", [1], [SAYS_ID.encode()])], parameters=parameters)


def called(model: str, length: int) -> Http:
    call = f"ask({model!r}, {SAYS_ID!r}, correlation_id='x' * {length}).exec()"
    return run("script", f"return [text(show({call}))]")


IDS: list[tuple[str, Asked]] = [
    ("128 bytes", run("script", SAYS_ID, parameters={"sequence_id": "x" * 128})),
    ("129 bytes", run("script", SAYS_ID, parameters=TOO_LONG)),
    ("64 letters of two bytes", run("script", SAYS_ID, parameters={"sequence_id": "é" * 64})),
    ("65 letters of two bytes", run("script", SAYS_ID, parameters={"sequence_id": "é" * 65})),
    ("before the inputs", infer("script", [], parameters=TOO_LONG)),
    ("before the outputs", run("script", SAYS_ID, parameters=TOO_LONG, outputs=[{"name": "no"}])),
    ("after the model", run("nobody", SAYS_ID, parameters=TOO_LONG)),
    ("after the version", run("script", SAYS_ID, parameters=TOO_LONG, version="9")),
    ("an ensemble", infer("chain", [given("FIRST", "BYTES", [1], ["x"])], parameters=TOO_LONG)),
    ("gRPC", grpc_infer(id_message("script", 129))),
    ("stream", Stream((id_message("script_decoupled", 129),))),
    ("generate", post("/v2/models/script/generate", {"CODE": SAYS_ID, **TOO_LONG})),
    ("BLS, 128 bytes", called("callee", 128)),
    ("BLS, 129 bytes", called("callee", 129)),
]
LONG = [
    Case(f"sequence id: {name}", (asked,), "4", setup="contract", issue=3) for name, asked in IDS
]
CASES = [*CANCELLED, *LONG]
