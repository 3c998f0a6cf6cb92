"""What the runtime and the faces say to each other: frozen dataclasses, to and from JSON.

The second of the two seams (the first is `transport.messages`). A snapshot is a frozen picture,
an event says what changed since; both carry a sequence number from one counter, so that a reader
who missed something knows it. Unknown fields are ignored and missing ones take their default, so
a face and a runtime of neighbouring versions understand each other; `VERSION` changes only when
that no longer holds. Nothing here opens a socket, and nothing here reaches into the runtime.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass, field
from typing import Any, TypeVar, Union

from devkit.contract.tracing import Trace

VERSION = 1
"""Version of this protocol: the `/v1` of every path, and `version` in every snapshot."""

Message = TypeVar("Message")


# --- what is shown ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output of a model; `shape` has the batch dimension (-1) where there is one."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Process:
    """What the operating system says of one process; bytes, and -1 where it does not say."""

    pid: int
    rss: int = -1
    pss: int = -1
    uss: int = -1
    cpu_percent: float = 0.0
    threads: int = 0
    open_files: int = -1
    gpu: int = -1


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance of a model, which is one process.

    Attributes:
        state: `starting`, `ready`, `busy`, `debugging`, `dead`, `restarting` or `stopped`.
        started: how it was started: `warm`, `spawn` or `shared`.
        load_seconds: from its start until it was ready.
        executes: calls of `execute` since then.
        last_words: signal, and the end of stderr, where an instance before it died.
    """

    name: str
    model: str
    version: str = ""
    pid: int = 0
    state: str = "starting"
    kind: str = "CPU"
    device: int = 0
    started: str = ""
    load_seconds: float = 0.0
    restarts: int = 0
    executes: int = 0
    in_flight: int = 0
    process: Process | None = None
    work: Work | None = None
    last_words: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    """One model of the repository, loaded or not.

    Attributes:
        state: `READY`, `LOADING`, `UNLOADING`, `UNAVAILABLE`, or empty where it was never loaded.
        reason: why it is not ready.
        file: its `model.py`; empty for an ensemble.
        files: the files of its own that it has loaded.
        scratch: whether it was made by a cell, in the workspace's own repository.
        assumed: what was taken from sample requests because no config says it, a sentence each.
        unlearned: whether its config still waits for a sample request (see `Learn`).
        error: traceback of the last load that failed, also while an older version serves.
    """

    name: str
    version: str = ""
    versions: tuple[str, ...] = ()
    state: str = ""
    reason: str = ""
    platform: str = "python"
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    max_batch_size: int = 0
    decoupled: bool = False
    folder: str = ""
    file: str = ""
    files: tuple[str, ...] = ()
    scratch: bool = False
    assumed: tuple[str, ...] = ()
    unlearned: bool = False
    error: str = ""
    instances: tuple[Instance, ...] = ()
    pending: int = 0
    inferences: int = 0
    executions: int = 0
    failures: int = 0
    work: Work | None = None
    batch_sizes: tuple[BatchSize, ...] = ()
    warnings: tuple[Warned, ...] = ()
    loaded_at: float = 0.0
    load_seconds: float = 0.0

    @property
    def remark(self) -> str:
        """What a row about it should add, in one line: why it is not served, or not as written."""
        if self.state == "READY" and self.error:
            return "older version serves: " + self.error.strip().splitlines()[-1]
        if self.unlearned:
            return "waits for a first request to take its config from"
        return self.reason.strip().partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Owner:
    """Bytes of a slab that belong to one owner."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Slab:
    """One shared-memory region of this runtime; all numbers are bytes except `blocks`."""

    name: str
    size: int
    used: int = -1
    free: int = -1
    high_water: int = -1
    blocks: int = -1
    owners: tuple[Owner, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """`/dev/shm` as a whole, and our part of it."""

    total: int = 0
    free: int = 0
    slabs: tuple[Slab, ...] = ()
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a protocol is served."""

    protocol: str
    address: str
    port: int

    @property
    def url(self) -> str:
        """`host:port`, as `tritonclient` takes it; a wildcard address becomes loopback."""
        host = {"0.0.0.0": "localhost", "::": "localhost"}.get(self.address, self.address)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Runtime:
    """One runtime: also what the discovery file holds."""

    pid: int
    workspace: str
    started: float
    control: str
    local: str
    endpoints: tuple[Endpoint, ...] = ()
    repositories: tuple[str, ...] = ()
    scratch: str = ""
    log_file: str = ""
    python: str = ""
    devkit: str = ""
    server_version: str = ""
    version: int = VERSION

    def url(self, protocol: str) -> str:
        """`host:port` of `http`, `grpc` or `metrics`; empty where it is not served."""
        return next((e.url for e in self.endpoints if e.protocol == protocol), "")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All there is to show, as of event number `sequence`."""

    sequence: int
    runtime: Runtime
    live: bool = True
    ready: bool = False
    models: tuple[Model, ...] = ()
    process: Process | None = None
    memory: SharedMemory = field(default_factory=SharedMemory)
    gpus: tuple[Gpu, ...] = ()
    time: float = 0.0
    version: int = VERSION


# --- what happens -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened; `sequence` grows by one from event to event, over all kinds.

    Attributes:
        kind: `model`, `instance`, `log`, `warning` (of the contract), `failure` (of an `execute`)
            or `reload`; `stage` of a load, `operation` (a load, swap or unload has ended, `text`
            says how it went), `sequence` and `memory` (shared memory runs low).
        state: the new state of a model or instance; the level of a log line.
        text: the line, the reason, the message.
        line: `path:line` in the user's files, where there is one.
        rule: name of the rule that a contract warning is about.
        session: number of the debug session, for events of kind `debug`.
    """

    sequence: int
    time: float
    kind: str
    model: str = ""
    version: str = ""
    instance: str = ""
    pid: int = 0
    state: str = ""
    text: str = ""
    line: str = ""
    rule: str = ""
    traceback: str = ""
    seconds: float = 0.0
    session: int = 0


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the log or of a model's output.

    `stream` is `stdout`, `stderr`, or the level of a Logger line.
    """

    sequence: int
    time: float
    stream: str
    text: str
    model: str = ""
    instance: str = ""
    pid: int = 0
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call was refused or failed; `kind` is the name of the error in `devkit.errors`."""

    error: str
    kind: str = "DevkitError"
    model: str | None = None
    instance: str | None = None
    line: str | None = None
    remedy: str | None = None
    traceback: str | None = None
    code: int | None = None


@dataclass(frozen=True, slots=True)
class CaptureInfo:
    """One recorded request, without its bytes."""

    number: int
    model: str
    version: str
    id: str
    time: float
    seconds: float
    request_bytes: int
    response_bytes: int
    responses: int
    error: str = ""
    whole: bool = True
    probes: int = 0
    dropped: int = 0
    inputs: tuple[Tensor, ...] = ()


# --- what is asked ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Load a model; `config` replaces its config, `files` (base64) its files, for this load."""

    config: dict[str, Any] | None = None
    files: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class UnloadModel:
    """Unload a model, and with `dependents` the models only its ensemble needed."""

    dependents: bool = False


@dataclass(frozen=True, slots=True)
class ScaleModel:
    """Change how many instances a model has."""

    count: int


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What a cell says about its model; becomes a `config.pbtxt` where it brings none.

    Attributes:
        config: the whole text of a `config.pbtxt`, which then rules alone.
        parameters: the config's `parameters`, strings.
    """

    instances: int | None = None
    kind: str | None = None
    max_batch_size: int | None = None
    dynamic_batching: bool = False
    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_microseconds: int | None = None
    preserve_ordering: bool = False
    decoupled: bool = False
    parameters: dict[str, str] = field(default_factory=dict)
    config: str | None = None


@dataclass(frozen=True, slots=True)
class PutModel:
    """Write a model into the workspace's scratch repository and serve it.

    `files` are texts by their path in the model's folder, such as `1/model.py`. A model that is
    there already keeps the files that are not named, and is swapped without losing a request.
    """

    files: dict[str, str]
    options: ModelOptions = field(default_factory=ModelOptions)


@dataclass(frozen=True, slots=True)
class Learn:
    """Sample tensors of a model whose config names none, to make its config of.

    Inputs alone announce a request whose answer is to be learned; nothing at all takes that back.
    """

    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()


# --- what is measured and explained -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Work:
    """What a model or an instance has done, in the statistics extension's terms, nanoseconds.

    `queue_ns`, `input_ns`, `infer_ns` and `output_ns` are sums over requests; `busy_ns` is the time
    inside `execute`, each batch counted once.
    """

    inferences: int = 0
    executions: int = 0
    requests: int = 0
    failed: int = 0
    queue_ns: int = 0
    input_ns: int = 0
    infer_ns: int = 0
    output_ns: int = 0
    busy_ns: int = 0


@dataclass(frozen=True, slots=True)
class BatchSize:
    """How many executions had this batch size, and how long their `execute` took in all."""

    size: int
    executions: int
    infer_ns: int = 0


@dataclass(frozen=True, slots=True)
class Warned:
    """A contract warning that a model has earned since it was loaded."""

    rule: str
    text: str
    line: str = ""
    instance: str = ""
    count: int = 1
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; bytes, and percent of the last moments in which it computed."""

    index: int
    name: str
    total: int = -1
    used: int = -1
    busy_percent: int = -1


@dataclass(frozen=True, slots=True)
class Series:
    """One number over time, oldest first; None where it was not there.

    `name` is the number's name and `unit` what it is in (`bytes`, `percent`, `per second`, ...);
    `model`, `version` and `instance` say whose it is, all empty for the machine's.
    """

    name: str
    unit: str
    model: str = ""
    version: str = ""
    instance: str = ""
    values: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class History:
    """The last minutes; the last value of every series is as of `end`, one each `step` seconds."""

    end: float
    step: float
    series: tuple[Series, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchedRequest:
    """A request as a part of a batch.

    `outcome` is `answered`, `failed`, `open` (its answers are still to come: a response sender has
    it), `cancelled` (its client has gone) or `empty` (an empty slot of a sequence batch).
    """

    id: str
    inputs: tuple[Tensor, ...] = ()
    batch_size: int = 1
    correlation_id: str = ""
    flags: int = 0
    queue_us: float = 0.0
    outcome: str = "answered"


@dataclass(frozen=True, slots=True)
class Batch:
    """One `execute`: what it was made of, and why it closed.

    Attributes:
        number: of the instance's executes.
        reason: stable name of why; `why` has it in words.
        requests: the first of them; `count` is how many there were.
    """

    number: int
    time: float
    model: str
    version: str
    instance: str
    size: int
    count: int
    reason: str
    why: str
    input_us: float = 0.0
    infer_us: float = 0.0
    failed: bool = False
    requests: tuple[BatchedRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchReason:
    """How many executions closed for that reason."""

    reason: str
    why: str
    executions: int
    inferences: int


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request that waits or runs, and for how long. `state` is `queued`, `running`, `cancelled`
    (it never ran, or has ended since) or `abandoned`: its client has gone, the model was told so,
    and has not ended it.
    """

    id: str
    model: str
    version: str
    state: str
    seconds: float
    instance: str = ""
    correlation_id: str = ""


@dataclass(frozen=True, slots=True)
class Batches:
    """How a model's requests became batches; `advice` says what would change it, a sentence each.

    `gone` are the last requests whose clients gave them up, `open` those that wait or run now.
    `batches` are the last that were kept: all of a slow model, a number a second of a fast one.
    `reasons` and `sizes` count every one.
    """

    model: str
    reasons: tuple[BatchReason, ...] = ()
    sizes: tuple[BatchSize, ...] = ()
    batches: tuple[Batch, ...] = ()
    open: tuple[OpenRequest, ...] = ()
    gone: tuple[OpenRequest, ...] = ()
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamedResponse:
    """One response of a stream, `at` seconds after its request came."""

    at: float
    final: bool
    empty: bool = False
    error: str = ""
    outputs: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Streamed:
    """A request to a decoupled model; `state` is `open`, `ended`, `failed`, `cancelled` or
    `abandoned` (its client has gone and the model has not ended it). `count` responses came, of
    which `responses` are the first and the last.
    """

    id: str
    model: str
    version: str
    time: float
    state: str
    count: int
    responses: tuple[StreamedResponse, ...] = ()


@dataclass(frozen=True, slots=True)
class SequenceLane:
    """A sequence and where it ran; `state` is `waiting` (for a slot), `running`, `ended` or
    `evicted` (it was silent for longer than it may).
    """

    correlation_id: str
    model: str
    version: str
    state: str
    started: float
    instance: str = ""
    slot: int = -1
    ended: float = 0.0
    moves: int = 0


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a load, and how long it took; the last one of a load that runs is still going."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Operation:
    """A load, swap, unload or restart: why it came, what it did, what it waits for.

    Attributes:
        kind: `load`, `swap`, `unload`, `scale` or `restart`.
        state: `running`, `done` or `failed`.
        cause: what it was done for.
        blocks: what it waits for now; empty when it waits for nothing.
        text: all of it in a sentence.
    """

    model: str
    kind: str
    state: str
    time: float
    seconds: float
    cause: str = ""
    version: str = ""
    stages: tuple[Stage, ...] = ()
    blocks: str = ""
    error: str = ""
    line: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """Where a thread is, as Python's own traceback text, the innermost frame last."""

    name: str
    stack: str


@dataclass(frozen=True, slots=True)
class Stack:
    """Where every thread of an instance is now; `note` says how it was found, or why it was not.

    `running` are the ids of the requests that it executes, `seconds` how long it has done so.
    """

    instance: str
    pid: int
    threads: tuple[ThreadStack, ...] = ()
    running: tuple[str, ...] = ()
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True)
class TakeProfile:
    """Sample an instance; `format` is `speedscope`, `flamegraph` (SVG) or `raw`.

    `native` adds the frames of C extensions, `idle` the threads that wait, `pause` stops the
    process for each sample: exact, and slower.
    """

    instance: str = ""
    seconds: float = 5.0
    rate: int = 200
    format: str = "speedscope"
    native: bool = False
    idle: bool = False
    pause: bool = False


# --- debugging ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One of the requests that a stopped one was made for: which model made it, and at which line.

    `instance` is empty where that request waits, or is an ensemble's.
    """

    model: str
    instance: str = ""
    pid: int = 0
    request_id: str = ""
    line: str = ""


@dataclass(frozen=True, slots=True)
class DebugSession:
    """A debugger on one instance; several faces share it.

    Attributes:
        state: `attaching`, `running`, `stopped`, `waiting` (its instance restarts) or `ended`.
        take: which requests the instance gets: `marked` ones alone, also the `next` ones until one
            has stopped, or `every` one.
        turn: grows with every change, so that one can wait for the next.
        reason: why it stopped: `breakpoint`, `step`, `exception`, `pause`, `entry`, ...; why it
            ended.
        text: the exception, or what else the debugger says of the stop.
        line: `path:line` where it stopped, `function` in which function.
        requests: ids of the requests that are being executed, empty for those without one.
        chain: the requests that these were made for, the nearest first.
        callee: the model that the line it stopped at is about to call, as far as can be seen.
        spare: the instance that was started to serve the others meanwhile.
    """

    id: int
    model: str
    version: str = ""
    instance: str = ""
    pid: int = 0
    state: str = "attaching"
    take: str = "next"
    turn: int = 0
    thread: int = 0
    reason: str = ""
    text: str = ""
    line: str = ""
    function: str = ""
    requests: tuple[str, ...] = ()
    chain: tuple[ChainLink, ...] = ()
    callee: str = ""
    spare: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DebugThread:
    """A thread of a debugged instance."""

    id: int
    name: str
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """One call of a stack; `path` is the user's own file, `own` false for library code."""

    id: int
    name: str
    path: str
    line: int
    column: int = 0
    own: bool = True


@dataclass(frozen=True, slots=True)
class Scope:
    """A group of a frame's variables: locals, globals."""

    name: str
    reference: int
    expensive: bool = False


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """What is known of a tensor in a stopped process without copying it.

    `preview` are its first elements; `min`, `max` and `mean` are of the finite ones.
    """

    kind: str
    dtype: str
    shape: tuple[int, ...]
    device: str = ""
    preview: tuple[Any, ...] = ()
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    nan: int = 0
    inf: int = 0


@dataclass(frozen=True, slots=True)
class Variable:
    """A name and its value; `reference` is not 0 where there is more inside.

    `named` and `indexed` count what is inside, where the debugger knows.
    """

    name: str
    value: str
    type: str = ""
    reference: int = 0
    named: int = 0
    indexed: int = 0
    expression: str = ""
    tensor: TensorSummary | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """A way to go on with what was typed: `text` replaces `length` characters from `start`."""

    label: str
    text: str
    start: int = 0
    length: int = 0
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """Where to stop; kept by the runtime, whether a debugger is attached or not.

    Attributes:
        path, line: in the user's own file; it follows the line when the file is edited.
        model: with no path: at the first line of this model's `execute`.
        condition: stops only where this expression is true.
        hits: stops only at such a hit: `3`, `>= 3`, `% 10`.
        log: does not stop, but writes this text into the log; `{expression}` is filled in.
        verified: whether a debugger has taken it; `text` says why not.
    """

    id: int = 0
    path: str = ""
    line: int = 0
    model: str = ""
    condition: str = ""
    hits: str = ""
    log: str = ""
    enabled: bool = True
    verified: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class Breakpoints:
    """All breakpoints, and at which exceptions to stop.

    `raised`: at every one; `uncaught`: at those that leave the model's own code.
    """

    breakpoints: tuple[Breakpoint, ...] = ()
    raised: bool = False
    uncaught: bool = False


@dataclass(frozen=True, slots=True)
class Attach:
    """Attach a debugger to an instance of a model, the named one or any.

    Attributes:
        take: as `DebugSession.take`.
        spare: start an instance more where this one is the only one, so that others are served.
        fresh: attach to a new instance, which is there only for this.
    """

    model: str
    version: str = ""
    instance: str = ""
    take: str = "next"
    spare: bool = True
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """Go on: `continue`, `next`, `step_in`, `step_out`, `pause`, or `goto` a line.

    `into` is a model that the line calls: a debugger is attached to it, too, and its `execute`
    stops for this request.
    """

    how: str
    thread: int = 0
    line: int = 0
    into: str = ""


@dataclass(frozen=True, slots=True)
class Take:
    """Which requests the debugged instance gets from now on."""

    take: str


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Evaluate an expression, or run a statement (`context` "repl"), in a frame."""

    expression: str
    frame: int = 0
    context: str = "repl"


@dataclass(frozen=True, slots=True)
class SetVariable:
    """Give a variable of a scope (or of a structure) another value, written as an expression."""

    reference: int
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Complete:
    """What could be meant by `text` with the cursor at `column` (from 1), in a frame."""

    text: str
    column: int
    frame: int = 0


@dataclass(frozen=True, slots=True)
class AskDebugger:
    """A request of the Debug Adapter Protocol, for a face that speaks it itself."""

    command: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Door:
    """A port on loopback where an editor's debugger finds a model, as long as the door is open."""

    model: str
    instance: str
    port: int


# --- what was kept: requests, tensors, failures ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """How much is recorded.

    Attributes:
        count, bytes: bounds of the ring over all models.
        largest: bytes of a request that is kept whole; of a larger one a sample is.
        rate: requests a second and model that are kept; 0 keeps every one.
        slow: seconds from which on a request is kept in any case, 0 for never.
        probes: whether models are asked for what they `devkit.probe`.
        used, kept: bytes and records in the ring; not a setting.
    """

    on: bool = True
    count: int = 1000
    bytes: int = 64 << 20
    largest: int = 16 << 20
    rate: float = 10.0
    slow: float = 1.0
    probes: bool = True
    used: int = 0
    kept: int = 0


@dataclass(frozen=True, slots=True)
class TensorAddress:
    """One tensor that was kept.

    Attributes:
        capture: number of the recorded request, or
        failure, request: number of a failure, and which of its requests (1 is the first).
        part: `inputs`, `outputs` or `probes`; empty for whichever has the name.
        reply: which response of a stream.
        occurrence: which of several probes of one name.
    """

    capture: int = 0
    failure: int = 0
    request: int = 1
    part: str = ""
    name: str = ""
    reply: int = 0
    occurrence: int = 0


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor that was kept, without its values.

    `view` is what shows it best (`scalar`, `series`, `table`, `image`, `text`, `values`); `whole`
    is False where only a sample of its values was kept.
    """

    address: TensorAddress
    datatype: str
    shape: tuple[int, ...]
    bytes: int
    view: str
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Picture:
    """A tensor as a picture; `png` in base64.

    Attributes:
        layout: which dimension is what: `HWC`, `CHW`, `NHWC`, `NCHW`, `HW`, `NHW`.
        shown, count: pictures in it, and in the tensor.
        step: every how many-th pixel was taken.
        scaling: the values that became black and white.
    """

    png: str
    layout: str
    width: int
    height: int
    shown: int
    count: int
    step: int
    scaling: str


@dataclass(frozen=True, slots=True)
class Texts:
    """The first elements of a BYTES tensor as text, long ones cut."""

    count: int
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompareTensors:
    """Compare two tensors that were kept; `exact` looks at every value, however many."""

    left: TensorAddress
    right: TensorAddress
    exact: bool = False


@dataclass(frozen=True, slots=True)
class FailureInfo:
    """An `execute` that raised (`kind` is `raised`) or a process that died (`died`).

    Attributes:
        error: what its clients were told.
        ending: signal or exit status of the process, in words.
        requests: how many were executed, `repeats` how often the same failed right after.
    """

    number: int
    time: float
    kind: str
    model: str
    version: str
    instance: str
    pid: int
    error: str
    line: str = ""
    ending: str = ""
    requests: int = 0
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a file as it was."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class KeptFrame:
    """One frame of a traceback; the values of `locals` are short reprs."""

    file: str
    line: int
    function: str
    source: tuple[SourceLine, ...] = ()
    locals: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PostMortem:
    """All that is known of a failure; frames are outermost first, `log` ends with the last line."""

    info: FailureInfo
    traceback: str = ""
    frames: tuple[KeptFrame, ...] = ()
    requests: tuple[CaptureInfo, ...] = ()
    log: tuple[LogLine, ...] = ()


# --- traces -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartTraces:
    """Trace the next `count` requests (0: until it is stopped) to `model` (empty: to any)."""

    model: str = ""
    count: int = 0
    tensors: bool = False


@dataclass(frozen=True, slots=True)
class TraceSession:
    """Traces that are being taken, or were.

    Attributes:
        begun, collected: requests chosen, and those of them that are over.
        runtime: pid of the runtime.
        offset: what makes nanoseconds since 1970 of the traces' times.
        traces: of each request, and of those it caused; only when they were asked for.
    """

    number: int
    model: str
    count: int
    running: bool
    begun: int = 0
    collected: int = 0
    runtime: int = 0
    offset: int = 0
    traces: tuple[Trace, ...] = ()


# --- JSON ---------------------------------------------------------------------------------------


def to_plain(message: Any) -> Any:
    """A message as dicts, lists and scalars."""
    if dataclasses.is_dataclass(message) and not isinstance(message, type):
        return {f.name: to_plain(getattr(message, f.name)) for f in dataclasses.fields(message)}
    if isinstance(message, (tuple, list)):
        return [to_plain(item) for item in message]
    if isinstance(message, dict):
        return {key: to_plain(value) for key, value in message.items()}
    return message


def to_json(message: Any) -> str:
    """A message as JSON text."""
    return json.dumps(to_plain(message), separators=(",", ":"))


def from_plain(kind: type[Message], value: Any) -> Message:
    """The message of type `kind` that `value` describes; ValueError where it describes none."""
    result = _read(kind, value, kind.__name__)
    return typing.cast(Message, result)


def from_json(kind: type[Message], text: str | bytes) -> Message:
    """The message of type `kind` in JSON `text`; ValueError where there is none."""
    return from_plain(kind, json.loads(text))


_FIELDS: dict[type[Any], dict[str, tuple[Any, bool]]] = {}  # (type, required), by message


def _fields(kind: type[Any]) -> dict[str, tuple[Any, bool]]:
    known = _FIELDS.get(kind)
    if known is None:
        hints = typing.get_type_hints(kind)
        missing = dataclasses.MISSING
        known = _FIELDS[kind] = {
            f.name: (hints[f.name], f.default is missing and f.default_factory is missing)
            for f in dataclasses.fields(kind)
        }
    return known


def _read(hint: Any, value: Any, where: str) -> Any:
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint):
        return _read_message(typing.cast("type[Any]", hint), value, where)
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        (inner,) = (one for one in typing.get_args(hint) if one is not type(None))
        return _read(inner, value, where)
    if origin is tuple:
        _check(isinstance(value, list), where, "a list")
        inner = typing.get_args(hint)[0]
        return tuple(_read(inner, item, where) for item in value)
    if origin is dict:
        _check(isinstance(value, dict), where, "an object")
        inner = typing.get_args(hint)[1]
        return {str(key): _read(inner, item, f"{where}.{key}") for key, item in value.items()}
    if hint is float:
        _check(isinstance(value, (int, float)) and not isinstance(value, bool), where, "a number")
        return float(value)
    if hint is int:
        _check(isinstance(value, int) and not isinstance(value, bool), where, "an integer")
    else:
        _check(isinstance(value, hint), where, f"a {hint.__name__}")
    return value


def _read_message(kind: type[Any], value: Any, where: str) -> Any:
    _check(isinstance(value, dict), where, "an object")
    arguments = {}
    for name, (hint, required) in _fields(kind).items():
        if name in value:
            arguments[name] = _read(hint, value[name], f"{where}.{name}")
        elif required:
            raise ValueError(f"{where}: '{name}' is missing")
    return kind(**arguments)


def _check(holds: bool, where: str, expected: str) -> None:
    if not holds:
        raise ValueError(f"{where} must be {expected}")
