"""A stub process from its sockets to its end: load the model, answer batches, finalize.

One loop, on the main thread: models may rely on that. Results of fast models are kept back while
the next batch is at hand already, so that one write carries several; a slow model's leave at once.
User code is called in `model`, frames are made in `outbox`.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import inspect
import os
import platform
import signal
import socket
import sys
import time
from types import FrameType
from typing import Any, Dict, List, Optional

from devkit.errors import TransportError
from devkit.stub import bls, debugging, failures, link, pb_utils, spans
from devkit.stub.bls import Client
from devkit.stub.control_thread import Control
from devkit.stub.memory import Regions, ResponseMemory
from devkit.stub.model import Refused, StageError, UserModel, load
from devkit.stub.outbox import Outbox
from devkit.stub.probes import Probes
from devkit.stub.requests import REQUEST_RELEASE_ALL, Inbox, InferenceRequest, Leases, PlanState
from devkit.stub.responses import InferenceResponse
from devkit.transport import messages
from devkit.transport.channel import Channel

FAST = 100_000  # nanoseconds: results of quicker executes may wait for the next batch at hand


def prepare() -> None:
    """What every stub and zygote does first: tell of crashes, print at once, leave signals be."""
    if sys.stderr is not None:
        faulthandler.enable(file=sys.stderr, all_threads=True)
    if sys.stdout is not None:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # Ctrl-C and service managers signal the whole group; the runtime drains, then says FINALIZE.
    # A handler and not SIG_IGN, which the model's own child processes would inherit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave_to_the_runtime)


def _leave_to_the_runtime(number: int, frame: Optional[FrameType]) -> None:
    pass


def run(data: int, control: int, bls: int) -> int:
    """Serve one model instance over three inherited sockets; returns the exit status."""
    return Stub(_channel(data), _channel(control, spin=0), _channel(bls)).serve()


def _channel(descriptor: int, **options: int) -> Channel:
    os.set_inheritable(descriptor, False)  # or a model's child process would keep it open
    return Channel(socket.socket(fileno=descriptor), **options)


class Stub:
    """One model instance."""

    def __init__(self, data: Channel, control: Channel, bls: Channel) -> None:
        self._data = data
        self._control_channel = control
        self._bls_channel = bls
        self._regions = Regions()
        self._slowest = 0
        self._model: UserModel
        self._inbox: Inbox
        self._outbox: Outbox
        self._memory: ResponseMemory
        self._link: link.Link
        self._spans: spans.Recorder
        self._decoupled = False
        self._finalized = False

    def serve(self) -> int:
        """Load, answer until told to end, finalize."""
        try:
            first = self._data.receive()
            if first is None:
                return 0
            described = messages.parse_json(first[1])
            if not self._load(described):
                return 1
            if described["action"] == "auto_complete":
                return 0
            self._loop()
        except TransportError:
            pass  # the runtime is gone: nobody is left to answer
        self._end()
        return 0

    # -- loading --------------------------------------------------------------------------------

    def _load(self, described: Dict[str, Any]) -> bool:
        started = time.monotonic()
        self._connect(described)
        try:
            self._model = load(described)
            if described["action"] == "auto_complete":
                completed = self._model.auto_complete(described["config"])
                self._data.send(messages.json_frame(messages.READY, {"config": completed}))
                return True
            self._model.initialize(described["args"])
        except StageError as problem:
            failed = {
                "error": problem.message,
                "traceback": problem.traceback,
                "line": problem.line,
                "stage": problem.stage,
            }
            sys.stdout.flush()
            self._data.send(messages.json_frame(messages.FAILED, failed))
            return False
        ready = {
            "pid": os.getpid(),
            "execute": self._model.executes,
            "asynchronous": self._model.asynchronous,
            "execute_line": self._model.execute_line() if self._model.executes else "",
            "is_ready": hasattr(self._model.instance, "is_ready"),
            "seconds": time.monotonic() - started,
            "python": platform.python_version(),
            "files": self._model.files(),
            "modules": self._model.modules(),
        }
        self._data.send(messages.json_frame(messages.READY, ready))
        return True

    def _connect(self, described: Dict[str, Any]) -> None:
        """Everything that user code may reach from its first line on."""
        os.environ.update(described.get("env") or {})
        slab = described.get("response_slab") or {"name": "", "size": 1 << 20, "step": 1 << 20}
        self._memory = ResponseMemory(slab["name"], slab["size"], slab["step"])
        self._decoupled = bool(described.get("decoupled"))
        control = Control(self._control_channel)
        control.verbose = int(described.get("verbose") or 0)
        self._outbox = Outbox(
            self._data,
            self._memory,
            inline_limit=described.get("inline_limit", messages.INLINE_LIMIT),
            declared=frozenset(described.get("outputs") or ()),
            on_undeclared=self._warn_undeclared,
            strict=bool(described.get("strict")),
        )
        self._inbox = Inbox(self._outbox, self._regions)
        self._link = link.Link(
            self._outbox,
            control,
            Client(self._bls_channel, self._outbox),
            described.get("args") or {},
            described.get("version_dir", ""),
            self._decoupled,
        )
        self._spans = self._link.spans = spans.Recorder(self._outbox)
        self._spans.install()
        link.current = self._link
        pb_utils.install()
        self._probes = Probes(self._link)
        self.show_probes(**(described.get("probes") or {"on": False}))
        control.start(self)

    # -- serving --------------------------------------------------------------------------------

    def _loop(self) -> None:
        while not self._finalized:
            if not self._data.at_hand:
                self._outbox.flush()
            received = self._data.receive()
            if received is None:
                return
            kind, payload = received
            if kind == messages.EXECUTE:
                self._execute(payload)
            elif kind == messages.PLAN:
                slot, plan = messages.parse_plan(payload)
                self._inbox.plans[slot] = PlanState(plan)
            elif kind == messages.RELEASE:
                self._outbox.release(messages.parse_sequences(payload))
            elif kind == messages.REGION:
                self._regions.announce(*messages.parse_slot(payload))
            elif kind == messages.FINALIZE:
                self._finalized = True

    def _execute(self, payload: memoryview) -> None:
        """Run one batch and keep or send its result."""
        if self._slowest > FAST:
            self._outbox.flush()
        batch, requests, leases = self._inbox.read(payload)
        self._link.executing = requests[0]._sequence if requests else 0
        if self._inbox.traced:
            self._spans.begin(self._inbox.traced)
        failure: Optional[bytes] = None
        answer: Any = None
        if debugging.watching:
            debugging.before_execute()
        started = time.monotonic_ns()
        try:
            answer = self._model.execute(requests)
            if type(answer) is not list or self._decoupled:
                answer = self._unusual(answer, requests)
            ended = time.monotonic_ns()
            answer = self._checked(answer, requests)
        except TransportError:
            raise  # no fault of the model's: the runtime is gone
        except BaseException as problem:  # user code may raise anything, SystemExit too
            failure = self._failure(batch, len(requests), started, problem)
            ended = time.monotonic_ns()
        if self._spans.open:
            self._spans.executed(requests)
        if leases:
            # Nothing of ours may keep an input alive from here on.
            mine, answers = list(requests), [] if failure else list(answer)
            del requests, answer
            self._finish_placed(batch, started, ended, mine, answers, leases, failure)
        elif failure:
            self._outbox.post(failure)
        else:
            self._outbox.result(batch, started, ended, requests, answer)
        # The slowest of late, fading: one quick execute among slow ones must not hold results back.
        self._slowest = max(ended - started, self._slowest * 15 // 16)
        if self._slowest > FAST:
            self._outbox.flush()

    def _finish_placed(
        self,
        batch: int,
        started: int,
        ended: int,
        requests: List[InferenceRequest],
        answer: List[Optional[InferenceResponse]],
        leases: Leases,
        failure: Optional[bytes],
    ) -> None:
        if failure is None:
            self._outbox.placed_result(batch, started, ended, requests, answer, leases)
            return
        requests.clear()
        self._outbox.hold(leases)
        self._outbox.post(failure)

    def _unusual(self, answer: Any, requests: List[InferenceRequest]) -> List[Any]:
        """What an answer that is no plain list of a default-mode model comes down to."""
        if answer is not None and not isinstance(answer, list):
            from devkit.stub import event_loop

            if event_loop.is_coroutine(answer):
                bls.parent.set(self._link.executing)  # what the coroutine's own calls are made for
                if self._decoupled:
                    event_loop.start(answer, self._background_failed)
                    answer = None
                else:
                    answer = event_loop.run(answer)
        if self._decoupled:
            if answer is not None:
                raise Refused(
                    f"Python model '{self._link.instance}' is using the decoupled mode and the "
                    "execute function must return None."
                )
        elif answer is not None:
            return self._listed(answer)
        return [None] * len(requests)

    @staticmethod
    def _listed(answer: Any) -> List[Any]:
        if not isinstance(answer, list):
            raise Refused(f"Expected a list in the execute return, found type '{type(answer)}'.")
        return answer

    def _checked(self, answer: List[Any], requests: List[InferenceRequest]) -> List[Any]:
        """`answer` if it has a response, or None, for each request; else raises Refused."""
        if len(answer) != len(requests):
            raise Refused(
                "Number of InferenceResponse objects do not match the number of InferenceRequest "
                f"objects. InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) "
                f"size is:{len(answer)}\n"
            )
        unanswered = 0
        for number, request in enumerate(requests):
            response = answer[number]
            if type(response) is not InferenceResponse:
                unanswered += self._is_forgotten(request, response)
            elif request._release != REQUEST_RELEASE_ALL:
                raise Refused(
                    "Expected a None object in the execute function return list for reschduled "
                    f"request, found type '{type(response)}'."
                )
            elif request._sender is not None and request._sender.closed:
                answer = [*answer[:number], None, *answer[number + 1 :]]
                self._warn(
                    "answered-twice",
                    "execute returned a response for a request whose response sender has sent its "
                    "last: it is dropped here, and ends a production server",
                )
        if unanswered:
            self._warn(
                "no-response",
                f"execute left {unanswered} of {len(requests)} requests without a response: the "
                "client never gets an answer: None is taken as a promise to use the response "
                "sender",
            )
        return answer

    def _is_forgotten(self, request: InferenceRequest, response: Any) -> bool:
        """Whether nobody is going to answer a request that execute gave no response for."""
        if response is not None:
            raise Refused(
                "Expected an 'InferenceResponse' object in the execute function return list, "
                f"found type '{type(response)}'."
            )
        if self._decoupled or request._sender is not None:
            return False
        return request._release == REQUEST_RELEASE_ALL

    def _failure(self, batch: int, count: int, started: int, problem: BaseException) -> bytes:
        """FAILURE frame of a batch whose execute raised or returned what may not be returned."""
        refused = isinstance(problem, Refused)
        described = {
            "batch": batch,
            "started": started,
            "ended": time.monotonic_ns(),
            "error": str(problem) if refused else failures.text(problem),
            "traceback": "" if refused else failures.formatted(problem),
            "line": failures.line(problem, self._model.model_dir) or self._model.execute_line(),
            "frames": failures.frames(problem),
        }
        sys.stdout.flush()
        return messages.json_frame(messages.FAILURE, described)

    def _background_failed(self, problem: BaseException) -> None:
        """A coroutine of a decoupled model ended with an exception: nobody waits for it."""
        line = failures.line(problem, self._model.model_dir) or self._model.execute_line()
        path, _, number = line.rpartition(":")
        text = failures.formatted(problem).rstrip()
        self._link.control.log("ERROR", text, os.path.basename(path), int(number))
        self._link.control.warn(
            "lost-exception",
            "a coroutine of a decoupled model ended with an exception after execute had returned: "
            "a production server only logs it, and the client waits for good",
            line,
        )

    def _warn_undeclared(self, name: str) -> None:
        self._warn(
            "undeclared-output",
            f"output '{name}' is not in the model's configuration: the output is dropped without a "
            "word, even when the client asked for it",
        )

    def _warn(self, rule: str, message: str) -> None:
        self._link.control.warn(rule, message, self._model.execute_line())

    # -- asked by the control thread --------------------------------------------------------------

    def cancel(self, sequences: List[int]) -> None:
        """Clients gave these requests up: the model may ask, nothing is stopped."""
        self._link.cancel(sequences)

    def show_probes(self, on: bool, every: Optional[int] = None, largest: int = 0) -> None:
        """Show what models probe, or nothing; at most one execute in `every` nanoseconds."""
        if every is not None:
            self._probes.every = every
        if largest:
            self._probes.largest = largest
        devkit = sys.modules["devkit"]
        devkit._take_probe = self._probes.take if on else None  # type: ignore[attr-defined]

    def slab(self) -> Optional[Dict[str, Any]]:
        """What its response slab holds, for the gauges; None while there is none."""
        usage = self._memory.usage()
        return dataclasses.asdict(usage) if usage is not None else None

    def is_ready(self) -> bool:
        """The model's own opinion of whether it can serve, asked on a thread of its own.

        Raises what `is_ready` raises, and TypeError where it returns no bool.
        """
        opinion = self._model.is_ready()
        if inspect.iscoroutine(opinion):
            from devkit.stub import event_loop

            opinion = event_loop.run(opinion)
        if not isinstance(opinion, bool):
            raise TypeError(f"is_ready must return a bool, it returned {type(opinion).__name__}")
        return opinion

    # -- the end --------------------------------------------------------------------------------

    def _end(self) -> None:
        problem = self._model.finalize()
        sys.stdout.flush()
        self._memory.unlink()
        error = failures.text(problem) if problem else None
        # Where the runtime is gone, this goes nowhere.
        self._data.post(messages.json_frame(messages.FINALIZED, {"error": error}))
