"""The client of a runtime: what notebooks, scripts, the command line and the panels call.

Synchronous and usable from any thread. Control calls are JSON over the control socket, inference
goes by `control.fast`. Errors come back as the errors of `devkit.errors` that they were in the
runtime. Finding a runtime is `control.discovery`'s business; starting one, `control.starter`'s.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import numpy as np
import numpy.typing as npt

from devkit import errors
from devkit.control import discovery, messages, starter
from devkit.control.debug_calls import DebugCalls
from devkit.control.fast import FastPath, Response, datatype_of
from devkit.control.leaving import LeavingCalls
from devkit.control.observing import ObservingCalls
from devkit.control.tracing import Tracing
from devkit.control.watching import Watching
from devkit.errors import Code, ControlError, DevkitError, InferError, TransportError
from devkit.transport import dtypes
from devkit.transport import messages as frames

Array = npt.NDArray[Any]
Read = TypeVar("Read")

_START = 1
_END = 2


def connect(
    workspace: str | Path | None = None,
    *,
    start: bool = True,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Client:
    """The client of the runtime of `workspace`, or of this folder or the nearest above.

    Where none runs, one is started that goes on when this process ends, unless `start` is False:
    then ControlError. `options` are those of `starter.start`.
    """
    runtime = discovery.find(workspace)
    if runtime is None and start:
        runtime = starter.start(workspace, progress=progress, **options)
    if runtime is None:
        place = discovery.workspace_of(workspace)
        raise ControlError(
            f"no runtime serves {place}",
            remedy="start one with `devkit serve` in that folder, or name another --workspace",
        )
    return Client(runtime)


class Client(Watching, ObservingCalls, Tracing, DebugCalls, LeavingCalls):
    """One runtime, as its user sees it.

    Attributes:
        runtime: what the discovery file said: pid, sockets, ports.
        on_note: called with a sentence about each thing assumed; printed to stderr if unset.
    """

    def __init__(
        self, runtime: messages.Runtime, *, on_note: Callable[[str], None] | None = None
    ) -> None:
        if runtime.version != messages.VERSION:
            raise ControlError(
                f"the runtime (pid {runtime.pid}) speaks version {runtime.version} of the control "
                f"protocol, this devkit version {messages.VERSION}",
                remedy="stop it with the devkit it was started with, and start it again",
            )
        self.runtime = runtime
        self.on_note = on_note
        self._local = threading.local()
        self._calls: set[_Connection] = set()
        self._fast = FastPath(runtime.local)
        self._known: dict[str, messages.Model] = {}

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the runtime goes on."""
        self._fast.close()
        for connection in list(self._calls):
            connection.close()

    def alive(self) -> bool:
        """Whether the runtime still answers."""
        try:
            self._call("GET", "/ready")
        except ControlError:
            return False
        return True

    # -- what there is ---------------------------------------------------------------------------

    def status(self) -> messages.Snapshot:
        """A picture of everything: models, instances, processes, memory."""
        return messages.from_plain(messages.Snapshot, self._call("GET", "/snapshot"))

    def models(self) -> list[messages.Model]:
        """Every model of the repositories, loaded or not."""
        return [messages.from_plain(messages.Model, one) for one in self._call("GET", "/models")]

    def model(self, name: str) -> messages.Model:
        """One model; UnknownModelError where the repositories lack it."""
        return self._model(self._call("GET", f"/models/{quote(name)}"))

    def config(self, name: str) -> dict[str, Any]:
        """The completed configuration of a loaded model, as JSON says it."""
        found: dict[str, Any] = self._call("GET", f"/models/{quote(name)}/config")
        return found

    def config_text(self, name: str) -> str:
        """The configuration of a loaded model as readable `config.pbtxt` text."""
        data = self._request("GET", f"/models/{quote(name)}/config?format=pbtxt")
        return data.decode("utf-8")

    def memory(self) -> messages.SharedMemory:
        """Shared memory: every slab, and /dev/shm as a whole."""
        return messages.from_plain(messages.SharedMemory, self._call("GET", "/memory"))

    def statistics(self, name: str = "") -> list[dict[str, Any]]:
        """The statistics extension's counters of one model or all."""
        rows: list[dict[str, Any]] = self._call("GET", "/statistics", query={"model": name})
        return rows

    def logs(
        self, model: str = "", instance: str = "", *, count: int = 500, after: int = 0
    ) -> list[messages.LogLine]:
        """The last lines of the log, of all, of a model or of an instance."""
        query = {"model": model, "instance": instance, "count": count, "after": after}
        rows = self._call("GET", "/logs", query=query)
        return [messages.from_plain(messages.LogLine, row) for row in rows]

    def events(
        self,
        *,
        kinds: Sequence[str] = (),
        since: int | None = None,
        gauges: float | None = None,
        debugger: int | None = None,
    ) -> Iterator[messages.Snapshot | messages.Event]:
        """A snapshot, then events as they happen; a reader too slow gets a snapshot again.

        Ends when the runtime does. `gauges` adds a snapshot every so many seconds. `debugger` looks
        on at a debug session: it ends soon after the last who does has gone.
        """
        from websockets.exceptions import ConnectionClosed
        from websockets.sync.client import unix_connect

        query = {"kinds": ",".join(kinds)}
        if since is not None:
            query["since"] = str(since)
        if gauges is not None:
            query["gauges"] = str(gauges)
        if debugger is not None:
            query["debugger"] = str(debugger)
        uri = f"ws://devkit/v{messages.VERSION}/events?{urlencode(query)}"
        try:
            stream = unix_connect(self.runtime.control, uri, max_size=None)
        except OSError as problem:
            raise self._gone(problem) from problem
        with stream:
            while True:
                try:
                    message = json.loads(stream.recv())
                except ConnectionClosed:
                    return
                if message["type"] == "snapshot":
                    yield messages.from_plain(messages.Snapshot, message["snapshot"])
                else:
                    for one in message["events"]:
                        yield messages.from_plain(messages.Event, one)

    # -- control ---------------------------------------------------------------------------------

    def load(
        self,
        name: str,
        config: dict[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> messages.Model:
        """Load a model, or swap it for what its files say now; LoadError keeps what served."""
        encoded = None
        if files is not None:
            encoded = {path: base64.b64encode(data).decode() for path, data in files.items()}
        asked = messages.LoadModel(config, encoded)
        return self._changed(name, self._call("POST", f"/models/{quote(name)}/load", asked))

    def unload(self, name: str, *, dependents: bool = False) -> None:
        """Stop serving a model; what runs is finished."""
        self._known.pop(name, None)
        self._call("POST", f"/models/{quote(name)}/unload", messages.UnloadModel(dependents))

    def reload(self, name: str, *, force: bool = False) -> messages.Model:
        """Start the model afresh and swap it without a gap, also if no file has changed.

        `force` continues an instance that stands in a debugger; else that is a LoadError.
        """
        query = {"force": 1} if force else None
        return self._changed(name, self._call("POST", f"/models/{quote(name)}/reload", query=query))

    def scale(self, name: str, count: int) -> messages.Model:
        """Run `count` instances of a model from now on."""
        asked = messages.ScaleModel(count)
        return self._changed(name, self._call("POST", f"/models/{quote(name)}/scale", asked))

    def put_model(
        self,
        name: str,
        files: Mapping[str, str],
        options: messages.ModelOptions | None = None,
    ) -> messages.Model:
        """Write a model into the workspace's scratch repository and serve it.

        `files` are texts by path in the model's folder (`1/model.py`). LoadError where it does not
        load; what served under that name before goes on serving.
        """
        asked = messages.PutModel(dict(files), options or messages.ModelOptions())
        return self._changed(name, self._call("PUT", f"/models/{quote(name)}", asked))

    def remove_model(self, name: str) -> None:
        """Unload a model that a cell made, and delete its files."""
        self._known.pop(name, None)
        self._call("DELETE", f"/models/{quote(name)}")

    def wait_ready(self, name: str = "", *, timeout: float = 60.0) -> None:
        """Wait until the runtime, or a model, is ready; ControlError when it is not in time."""
        until = time.monotonic() + timeout
        while not self._is_ready(name):
            if time.monotonic() > until:
                what = f"model '{name}'" if name else "the runtime"
                raise ControlError(
                    f"{what} is not ready after {timeout:g} s",
                    model=name or None,
                    remedy="`devkit status` and `devkit logs` say why",
                )
            time.sleep(0.02)

    def _is_ready(self, name: str) -> bool:
        if not name:
            return bool(self._call("GET", "/ready")["ready"])
        try:
            return self.model(name).state == "READY"
        except InferError:
            return False

    def shutdown(self, *, wait: float = 30.0) -> None:
        """Stop the runtime: it drains and ends. Returns when it is gone, at most `wait` seconds."""
        self._call("POST", "/shutdown")
        until = time.monotonic() + wait
        while wait and discovery.answers(self.runtime):
            if time.monotonic() > until:
                raise ControlError(f"the runtime (pid {self.runtime.pid}) has not ended yet")
            time.sleep(0.02)
        self.close()

    # -- inference -------------------------------------------------------------------------------

    def infer(
        self,
        name: str,
        inputs: Mapping[str, npt.ArrayLike],
        *,
        outputs: Sequence[str] | None = None,
        version: str = "",
        id: str = "",
        parameters: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        sequence_id: int | str = 0,
        sequence_start: bool = False,
        sequence_end: bool = False,
        priority: int = 0,
        debug: bool = False,
    ) -> dict[str, Array]:
        """Run one inference; the outputs as NumPy arrays, by name.

        Values that are no arrays (lists, numbers, strings) become arrays of the model's own data
        types. A model without a config gets one from these inputs: `on_note` says what was assumed.
        `timeout` is in seconds. `debug` sends it to the instance that a debugger is attached to.
        Raises InferError with the server's own text.
        """
        model = self._known.get(name)
        if model is None:
            model = self._look_up(name)
        arrays = {
            key: value if type(value) is np.ndarray else _as_array(key, value, model)
            for key, value in inputs.items()
        }
        extra = _extra(sequence_id, sequence_start, sequence_end, priority)
        if debug:
            extra = {**(extra or {}), "steer": frames.DEBUGGED}
        if model is not None and model.unlearned and not _in_debugger(model, debug):
            return self._learn(name, arrays, version, id, parameters, extra, timeout)
        response = self._infer(name, arrays, outputs or (), version, id, parameters, extra, timeout)
        return response.outputs

    def ask(
        self,
        name: str,
        inputs: Mapping[str, Array],
        *,
        outputs: Sequence[str] = (),
        parameters: Mapping[str, Any] | None = None,
        instance: str = "",
    ) -> dict[str, Array]:
        """One inference as it is, learning nothing; `instance` names the only one that may serve it
        (of a model that does not batch)."""
        extra = {"steer": instance} if instance else None
        return self._infer(name, dict(inputs), outputs, "", "", parameters, extra, None).outputs

    def stream(
        self,
        name: str,
        inputs: Mapping[str, npt.ArrayLike],
        *,
        outputs: Sequence[str] | None = None,
        version: str = "",
        id: str = "",
        parameters: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Iterator[dict[str, Array]]:
        """Run one inference of a decoupled model; its responses as they come.

        Leaving the loop early cancels the rest.
        """
        model = self._known.get(name) or self._look_up(name)
        arrays = {key: _as_array(key, value, model) for key, value in inputs.items()}
        for response in self._fast.stream(
            name, arrays, outputs=outputs or (), version=version, id=id,
            parameters=dict(parameters or {}), timeout=timeout,
        ):  # fmt: skip
            yield response.outputs

    def _infer(
        self,
        name: str,
        arrays: dict[str, Array],
        outputs: Sequence[str],
        version: str,
        id: str,
        parameters: Mapping[str, Any] | None,
        extra: dict[str, Any] | None,
        timeout: float | None,
    ) -> Response:
        try:
            return self._fast.infer(
                name, arrays, outputs=outputs, version=version, id=id,
                parameters=dict(parameters) if parameters else None, extra=extra, timeout=timeout,
            )  # fmt: skip
        except InferError as problem:
            problem.model = name
            raise
        except TransportError as problem:
            raise self._gone(problem) from problem

    def announce(self, name: str, inputs: Mapping[str, npt.ArrayLike]) -> messages.Model:
        """Say what inputs a model without a config is about to get, so that it takes them.

        A first request by `infer` does that itself; one for a debugger must find the model as the
        debugger was attached to it.
        """
        arrays = {key: _as_array(key, value, None) for key, value in inputs.items()}
        samples = tuple(
            messages.Tensor(key, datatype_of(key, array), tuple(array.shape))
            for key, array in arrays.items()
        )
        path = f"/models/{quote(name)}/learn"
        return self._changed(name, self._call("POST", path, messages.Learn(samples)))

    def _learn(
        self,
        name: str,
        arrays: dict[str, Array],
        version: str,
        id: str,
        parameters: Mapping[str, Any] | None,
        extra: dict[str, Any] | None,
        timeout: float | None,
    ) -> dict[str, Array]:
        """The first request of a model without a config: it becomes the config."""
        samples = tuple(
            messages.Tensor(key, datatype_of(key, array), tuple(array.shape))
            for key, array in arrays.items()
        )
        path = f"/models/{quote(name)}/learn"
        self._changed(name, self._call("POST", path, messages.Learn(samples)))
        try:
            found = self._infer(name, arrays, (), version, id, parameters, extra, timeout).outputs
        except (InferError, KeyboardInterrupt):
            # There is nothing to learn: what earlier requests said stands again.
            self._changed(name, self._call("POST", path, messages.Learn()))
            raise
        answers = tuple(
            messages.Tensor(key, datatype_of(key, array), tuple(array.shape))
            for key, array in found.items()
        )
        model = self._changed(name, self._call("POST", path, messages.Learn(samples, answers)))
        for sentence in model.assumed:
            self._note(f"{name}: assumed {sentence}")
        return found

    def _note(self, sentence: str) -> None:
        if self.on_note is not None:
            self.on_note(sentence)
            return
        import sys

        print(sentence, file=sys.stderr)

    def _look_up(self, name: str) -> messages.Model | None:
        """What the model takes, asked once; None where it is not there (the request says so)."""
        try:
            model = self.model(name)
        except InferError:
            return None
        if model.state == "READY" and not model.unlearned:
            self._known[name] = model
        return model

    # -- calls -----------------------------------------------------------------------------------

    def _model(self, value: Any) -> messages.Model:
        return messages.from_plain(messages.Model, value)

    def _changed(self, name: str, value: Any) -> messages.Model:
        self._known.pop(name, None)
        return self._model(value)

    def _call(
        self, method: str, path: str, asked: Any = None, query: Mapping[str, Any] | None = None
    ) -> Any:
        return json.loads(self._request(method, path, asked, query))

    def _request(
        self,
        method: str,
        path: str,
        asked: Any = None,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
    ) -> bytes:
        where = f"/v{messages.VERSION}{path}"
        if query:
            where += "?" + urlencode(query)
        if asked is not None:
            body = messages.to_json(asked).encode("utf-8")
        status, data = self._exchange(method, where, body)
        if status >= 400:
            raise _failure(status, data)
        return data

    def _exchange(self, method: str, where: str, body: bytes | None) -> tuple[int, bytes]:
        for fresh in (False, True):
            connection = self._connection(fresh)
            try:
                connection.request(method, where, body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                return answer.status, answer.read()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as gone:
                # An idle connection that the runtime closed; a fresh one shows whether it is there.
                connection.close()
                if fresh:
                    raise self._gone(gone) from gone
            except OSError as problem:
                connection.close()
                raise self._gone(problem) from problem
            except BaseException:
                connection.close()  # interrupted halfway: the next answer would be this one's
                raise
        raise AssertionError("unreachable")

    def _connection(self, fresh: bool) -> _Connection:
        found: _Connection | None = getattr(self._local, "connection", None)
        if found is None or fresh:
            found = self._local.connection = _Connection(self.runtime.control)
            self._calls.add(found)
        return found

    def _gone(self, problem: Exception) -> ControlError:
        return ControlError(
            f"the runtime of {self.runtime.workspace} (pid {self.runtime.pid}) does not answer: "
            f"{problem}",
            remedy="start it with `devkit serve`; `devkit logs` may say why it ended",
        )


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket, kept open from call to call."""

    def __init__(self, path: str) -> None:
        super().__init__("devkit")
        self._path = path

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.connect(self._path)
        except BaseException:
            self.sock.close()
            self.sock = None
            raise


def _failure(status: int, data: bytes) -> DevkitError:
    """The error that a control call failed with, as it was in the runtime."""
    try:
        failure = messages.from_json(messages.Failure, data)
    except ValueError:
        return ControlError(f"the runtime answered {status}: {data[:200].decode(errors='replace')}")
    about: dict[str, Any] = {"model": failure.model, "line": failure.line}
    about["remedy"] = failure.remedy
    code = Code(failure.code) if failure.code is not None else Code.INVALID_ARG
    error: DevkitError
    if failure.kind == "UnknownModelError":
        error = errors.UnknownModelError(failure.error, model=failure.model)
    elif failure.kind == "LoadError":
        error = errors.LoadError(failure.error, code, traceback=failure.traceback, **about)
    elif failure.kind == "InferError":
        error = errors.InferError(failure.error, code, model=failure.model)
    else:
        kind = getattr(errors, failure.kind, DevkitError)
        error = kind(failure.error, **about)
    error.instance = failure.instance
    error.remedy = failure.remedy
    return error


def _extra(sequence_id: int | str, start: bool, end: bool, priority: int) -> dict[str, Any] | None:
    if not (sequence_id or priority):
        return None
    extra: dict[str, Any] = {}
    if sequence_id:
        extra["correlation_id"] = sequence_id
        extra["flags"] = (_START if start else 0) | (_END if end else 0)
    if priority:
        extra["priority"] = priority
    return extra


def _in_debugger(model: messages.Model, asked: bool) -> bool:
    """Whether a request must find the model as it is: it is for a debugger (and was announced), or
    an instance stands in one, and with it every swap."""
    stands = any(one.state == "debugging" for one in model.instances)
    return bool(model.inputs) and (asked or stands)


def _as_array(name: str, value: npt.ArrayLike, model: messages.Model | None) -> Array:
    """An array of `value`, of the data type that the model declares for that input."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__array__"):
        return np.asarray(value)
    declared = next((one for one in model.inputs if one.name == name), None) if model else None
    if declared is None:
        array = np.asarray(value)
        return array.astype(np.object_) if array.dtype.kind in "SU" else array
    if declared.datatype == "BYTES":
        return np.asarray(value, dtype=np.object_)
    if declared.datatype == "BF16":
        raise InferError(f"input '{name}' is BF16: give an array of ml_dtypes.bfloat16")
    try:
        return np.asarray(value, dtype=dtypes.NUMPY[declared.datatype])
    except (ValueError, TypeError, OverflowError) as problem:
        raise InferError(
            f"input '{name}' cannot be made {declared.datatype}: {problem}"
        ) from problem
