"""The debuggers of one runtime: which instance has one, who looks on, what becomes of it.

debugpy takes one client at a time, and a person may look through several faces; so the runtime is
that client, for as long as anybody asks for it. Sessions live here, next to the instances they are
about, and outlive a face. How a debugger is spoken to is `devkit.debug`'s business, what a face may
ask `control.debugging`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from devkit import errors
from devkit.control.messages import Attach, Breakpoint, ChainLink, DebugSession
from devkit.control.stream import Stream
from devkit.core.engine import Engine
from devkit.core.instance import Instance
from devkit.core.model import Model
from devkit.core.steering import TAKES, Target
from devkit.core.taps import InstanceEvent, ModelEvent
from devkit.debug import sources
from devkit.debug.breakpoints import Store
from devkit.debug.dap import Body
from devkit.debug.session import Point, Session, Stop
from devkit.debug.sources import Sources
from devkit.errors import DebugError

log = logging.getLogger("devkit.debugger")

FILE = Path(".devkit") / "breakpoints.json"
LISTEN_SECONDS = 30.0
LEAVE_SECONDS = 5.0
GRACE_SECONDS = 3.0
"""How long a session outlives the last face that looked on: a page that is loaded again is back."""

_OURS = str(Path(errors.__file__).parent / "**")


def _debugpy() -> str:
    """Where this interpreter has debugpy; a model's own environment may lack it."""
    import importlib.util

    found = importlib.util.find_spec("debugpy")
    return str(Path(found.origin).parent) if found is not None and found.origin else ""


class Debuggee:
    """One instance in a debugger, from the first attach until nobody wants it any more.

    The instance may die, or be swapped for another version, meanwhile: then the debugger moves to
    the one that takes its place.
    """

    def __init__(self, owner: Debuggers, number: int, asked: Attach, model: Model) -> None:
        self.told = DebugSession(number, model.name, model.version_text, take=asked.take)
        self.asked = asked
        self.version = asked.version
        self.session: Session | None = None
        self.instance: Instance | None = None
        self.target: Target | None = None
        self.sources = Sources("", "")
        self.spare: Instance | None = None
        self.spare_task: asyncio.Future[None] | None = None
        self.own = False
        self.faces = 0
        self.had_faces = False
        self.lines: dict[tuple[str, int], list[int]] = {}
        self.events: list[Callable[[str, Body], None]] = []
        self.stays = False
        self.swaps = 0
        self.moving = asyncio.Lock()
        self.moved: asyncio.Future[None] | None = None
        self._owner = owner
        self._since = time.monotonic()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- what is told ----------------------------------------------------------------------------

    def show(self, event: str = "", **changes: Any) -> None:
        """Change what is shown of it, wake who waits for a change, and tell the faces."""
        self.told = dataclasses.replace(self.told, turn=self.told.turn + 1, **changes)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        told = self.told
        self._owner.stream.emit(
            "debug", model=told.model, version=told.version, instance=told.instance, pid=told.pid,
            state=event or told.state, text=told.text or told.reason, line=told.line,
            session=told.id,
        )  # fmt: skip

    def now(self) -> DebugSession:
        """As it is now."""
        seconds = time.monotonic() - self._since
        return dataclasses.replace(self.told, seconds=seconds)

    async def wait(self, turn: int, seconds: float) -> DebugSession:
        """As it is once it has changed since `turn`, or when the time is over."""
        until = time.monotonic() + seconds
        while self.told.turn <= turn and self.told.state != "ended":
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), max(until - time.monotonic(), 0))
            if time.monotonic() >= until:
                break
        return self.now()

    # -- attaching -------------------------------------------------------------------------------

    async def attach(self, instance: Instance) -> None:
        """Put the debugger on `instance`. Raises DebugError."""
        self.instance = instance
        self.show(state="attaching", instance=instance.name, pid=instance.pid, reason="", text="")
        self.sources = Sources.of(str(instance.model.file), instance.files)
        try:
            reply = await instance.call("debug", timeout=LISTEN_SECONDS, debugpy=_debugpy())
        except (asyncio.TimeoutError, asyncio.CancelledError) as problem:
            raise DebugError("the model's process does not answer", instance=instance.name) from (
                problem
            )
        if "error" in reply:
            raise DebugError(
                f"the model's process cannot be debugged: {reply['error']}",
                model=instance.model.name, instance=instance.name,
            )  # fmt: skip
        session = self.session = Session(
            self._on_stop, self._on_resume, self._on_output,
            lambda: self._on_gone(session), self._on_event,
        )  # fmt: skip
        # Before the debugger can stop it: no request of others may be in its way.
        self.target = instance.model.hold(instance, self.told.take, self._on_answer)
        store = self._owner.store
        points = self._points(instance.model)
        taken = await session.attach(
            int(reply["port"]), points, raised=store.raised, uncaught=store.uncaught,
            foreign=(_OURS,),
        )  # fmt: skip
        for path, rows in taken.items():
            self._note(path, rows)
        if self.told.state == "attaching":
            self.show(state="running")

    def _points(self, model: Model) -> dict[str, list[Point]]:
        """Where to stop, by running file; the store's numbers of each go into `lines`."""
        store = self._owner.store
        files = set(store.paths())
        if store.of_model(model.name):
            files.add(str(model.file))
        return {self.sources.to_running(path): self._of_file(path) for path in sorted(files)}

    def _of_file(self, path: str) -> list[Point]:
        store = self._owner.store
        rows = store.of_file(path)
        running = self.sources.to_running(path)
        model = self.instance.model if self.instance is not None else None
        if model is not None and path == str(model.file):
            line = sources.entry_line(sources.text_of(running))
            rows += [dataclasses.replace(one, line=line) for one in store.of_model(model.name)]
        self.lines = {key: each for key, each in self.lines.items() if key[0] != running}
        self.lines[running, 0] = [row.id for row in rows]
        return [
            Point(self._line_in(path, running, row), row.condition, row.hits, row.log)
            for row in rows
        ]

    def _line_in(self, path: str, running: str, row: Breakpoint) -> int:
        """The line in the file that runs, where that is an older text than the edited one."""
        if path == running or row.model:
            return row.line
        from devkit.debug.breakpoints import line_map

        found: int = line_map(sources.text_of(path), sources.text_of(running))(row.line)
        return found

    def _note(self, running: str, rows: Any) -> None:
        numbers = self.lines.get((running, 0), [])
        for number, row in zip(numbers, rows, strict=False):
            moved = row.line if running == self.sources.to_user(running) else 0
            self._owner.store.told(number, verified=row.verified, text=row.text, line=moved)

    async def refresh(self, path: str) -> None:
        """A breakpoint of `path` has changed."""
        session = self.session
        if session is None or not session.attached:
            return
        running = self.sources.to_running(path)
        try:
            self._note(running, await session.set_points(running, self._of_file(path)))
        except DebugError as problem:
            # The process may be going just now; it is kept, and set in the one that comes after it.
            for number in self.lines.get((running, 0), ()):
                self._owner.store.told(number, verified=False, text=problem.message)

    async def refresh_exceptions(self) -> None:
        """Other exceptions are to be stopped at."""
        store = self._owner.store
        if self.session is not None and self.session.attached:
            await self.session.stop_at(raised=store.raised, uncaught=store.uncaught)

    # -- what the debugger says ------------------------------------------------------------------

    def _on_stop(self, stop: Stop) -> None:
        if self.target is not None:
            self.target.stopped()
            self.told = dataclasses.replace(self.told, take=self.target.take)
        self._start(self._look(stop))

    async def _look(self, stop: Stop) -> None:
        """Find out where it stands and for whom, then tell."""
        session, instance = self.session, self.instance
        if session is None or instance is None:
            return
        line = function = callee = ""
        try:
            frames = await session.stack(stop.thread, levels=1)
            if frames:
                top = frames[0]
                line = f"{self.sources.to_user(top.path)}:{top.line}"
                function = top.name
                callee = await self._callee(top.path, top.line, top.id)
        except DebugError:
            if session.stop is not stop:
                return  # it runs again
        if session.stop is not stop:
            return
        running = [one for one in instance.pending.values() if not one.done]
        self.show(
            state="stopped", thread=stop.thread, reason=stop.reason, text=stop.text, line=line,
            function=function, requests=tuple(one.id for one in running),
            chain=await self._chain(running[0]) if running else (), callee=callee,
        )  # fmt: skip

    async def _callee(self, path: str, line: int, frame: int) -> str:
        """The model that this line asks, if it is a call of `exec` that can be seen."""
        expression = sources.calls(sources.text_of(path), line)
        session = self.session
        if not expression or session is None:
            return ""
        with contextlib.suppress(DebugError):
            name = str(await session.ask_helper(f"callee({expression})", frame))
            if name in {model.name for model in self._owner.engine.models()}:
                return name
        return ""

    async def _chain(self, request: Any) -> tuple[ChainLink, ...]:
        links = []
        parent = request.parent
        while parent is not None:
            owner = parent.owner
            link = ChainLink(parent.model_name, request_id=parent.id)
            if isinstance(owner, Instance):
                line = await _line_of(owner)
                link = ChainLink(parent.model_name, owner.name, owner.pid, parent.id, line)
            links.append(link)
            parent = parent.parent
        return tuple(links)

    def _on_answer(self) -> None:
        """A request has had its answer: a step that went beyond its end is over."""
        instance = self.instance
        if instance is not None and self.told.state == "running":
            running = tuple(one.id for one in instance.pending.values() if not one.done)
            if running != self.told.requests:
                self.show("answered" if not running else "", requests=running)

    def _on_resume(self) -> None:
        if self.target is not None:
            self.target.resumed()
        if self.told.state == "stopped":
            self.show(
                state="running", thread=0, reason="", text="", line="", function="", chain=(),
                callee="",
            )  # fmt: skip

    def _on_output(self, category: str, text: str) -> None:
        # The process keeps its own output: what comes here is a log point's.
        if self.instance is not None and text.strip():
            self.instance.say("debug", text.rstrip("\n"))

    def _on_event(self, name: str, body: Body) -> None:
        for listener in list(self.events):
            listener(name, body)

    def _on_gone(self, session: Session) -> None:
        """The debugger has left the process, or the process has ended."""
        if session is not self.session:
            return  # one that was left before
        instance = self.instance
        self.session = None
        if instance is not None and self.told.state not in ("ended", "waiting"):
            self._let_go(instance)
            # Swapped while it was attached: the next version is debugged instead.
            moves = self.moving.locked()
            if instance.state == "ready" and not self._owner.closing and not moves:
                self._start(self._owner.end(self, "the debugger has ended"))
            else:
                self.show(state="waiting", reason="its process has ended", thread=0, line="")

    def _let_go(self, instance: Instance) -> None:
        if instance.debugger is not None and instance.debugger is self.target:
            instance.model.release(instance)
        self.target = None

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- leaving ---------------------------------------------------------------------------------

    async def leave(self, reason: str, *, state: str = "ended") -> None:
        """Let the instance run and serve as before."""
        session, instance = self.session, self.instance
        self.session = None
        self.show(state=state, reason=reason, thread=0, text="", line="", function="", chain=(),
                  callee="")  # fmt: skip
        if session is not None:
            with contextlib.suppress(asyncio.TimeoutError, DebugError):
                await asyncio.wait_for(session.leave(), LEAVE_SECONDS)
        if instance is not None:
            self._let_go(instance)
            if instance.state == "ready":
                with contextlib.suppress(asyncio.TimeoutError):
                    await instance.call("undebug", timeout=LEAVE_SECONDS)
        self.instance = None

    def standing(self) -> Session:
        """The session, for one who wants something of it. Raises DebugError."""
        if self.session is None:
            raise DebugError(f"the debugger of {self.told.instance} is not attached now")
        return self.session


async def _line_of(instance: Instance) -> str:
    """The line of its own code that an instance's main thread is at."""
    with contextlib.suppress(asyncio.TimeoutError):
        reply = await instance.call("stack", timeout=2.0)
        folder = str(instance.model.model_dir)
        for thread in reply.get("threads", ()):
            for row in reversed(thread["stack"].splitlines()):
                part = row.strip()
                if part.startswith(f'File "{folder}'):
                    path, number = part.split('"')[1], part.split("line ")[1].split(",")[0]
                    return f"{path}:{number}"
    return ""


class Debuggers:
    """Every debugger of a runtime, and its breakpoints."""

    def __init__(
        self, engine: Engine, stream: Stream, workspace: Path, *, allowed: bool = True
    ) -> None:
        self.engine = engine
        self.stream = stream
        self.store = Store(workspace / FILE)
        self.allowed = allowed
        self.closing = False
        self.sessions: dict[int, Debuggee] = {}
        self._numbers = itertools.count(1)
        self._leaving: dict[str, set[asyncio.Future[None]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- sessions --------------------------------------------------------------------------------

    def get(self, number: int) -> Debuggee:
        """The session of that number. Raises DebugError."""
        found = self.sessions.get(number)
        if found is None:
            raise DebugError(f"there is no debug session {number}")
        return found

    def of_model(self, name: str) -> list[Debuggee]:
        """The sessions of one model."""
        return [each for each in self.sessions.values() if each.told.model == name]

    async def attach(self, asked: Attach) -> Debuggee:
        """Attach a debugger, or find the one that is attached. Raises DebugError."""
        self._check(asked)
        # One that still leaves would take the port of the new one with it.
        while leaving := self._leaving.get(asked.model):
            await asyncio.wait(leaving)
        model = self.engine.model(asked.model, asked.version)
        if not model.instances:
            raise DebugError(
                f"'{model.name}' has no process of its own to debug", model=model.name,
                remedy="debug one of the models it is made of",
            )  # fmt: skip
        known = self._attached(asked)
        if known is not None:
            if known.target is not None:
                known.target.take = asked.take
                known.show(take=asked.take)
            return known
        for path in self.store.paths():
            self.store.follow(path)
        session = Debuggee(self, next(self._numbers), asked, model)
        if not self.sessions:
            self._listen()
        self.sessions[session.told.id] = session
        try:
            await self._start(session, model, asked)
        except BaseException:
            await asyncio.shield(self.end(session, "it could not be attached"))
            raise
        return session

    def _check(self, asked: Attach) -> None:
        if not self.allowed:
            raise DebugError(
                "this runtime allows no debugger", remedy="serve without --no-debug",
            )  # fmt: skip
        if asked.take not in TAKES:
            raise DebugError(f"'{asked.take}' is none of {', '.join(TAKES)}")

    def _attached(self, asked: Attach) -> Debuggee | None:
        if asked.fresh:
            return None
        for each in self.of_model(asked.model):
            same = asked.instance in ("", each.told.instance) and not each.own
            if same and asked.version in ("", each.told.version):
                return each
        return None

    async def _start(self, session: Debuggee, model: Model, asked: Attach) -> None:
        if asked.fresh:
            session.own = True
            session.told = dataclasses.replace(session.told, take="marked")
            session.spare = await model.start_spare()
            await session.attach(session.spare)
            return
        instance = self._choose(model, asked.instance)
        alone = all(other is instance or other.debugger is not None for other in model.instances)
        if alone and asked.spare and model.sequences is None:
            # Nobody waits for it here: the others do, once this one stands.
            session.spare_task = asyncio.ensure_future(self._start_spare(session, model))
        await session.attach(instance)

    async def _start_spare(self, session: Debuggee, model: Model) -> None:
        try:
            spare = await model.start_spare()
            if session.told.id not in self.sessions:  # ended meanwhile
                await model.end_spare(spare)
                return
            session.spare = spare
            session.show("spare", spare=spare.name)
        except errors.LoadError as problem:
            log.warning(
                "no second instance of '%s' could be started: while the first one stands in the "
                "debugger, nobody else is served: %s", session.told.model, problem.message,
            )  # fmt: skip

    def _choose(self, model: Model, name: str) -> Instance:
        ready = [each for each in model.instances if each.state == "ready"]
        if name:
            ready = [each for each in ready if each.name == name]
        ready = [each for each in ready if each.debugger is None]
        if not ready:
            which = f"instance '{name}'" if name else f"no instance of '{model.name}'"
            raise DebugError(f"{which} is ready to be debugged", model=model.name)
        return min(ready, key=lambda each: len(each.pending))

    async def end(self, session: Debuggee, reason: str = "detached") -> None:
        """End a session: its instance runs and serves as before."""
        if self.sessions.pop(session.told.id, None) is None:
            return
        spare, session.spare = session.spare, None
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        leaving = self._leaving.setdefault(session.told.model, set())
        leaving.add(gone)
        try:
            await session.leave(reason)
            if spare is not None:
                with contextlib.suppress(ValueError):
                    await spare.model.end_spare(spare)
        finally:
            gone.set_result(None)
            leaving.discard(gone)
        if not self.sessions:
            self._unlisten()

    async def close(self) -> None:
        """The runtime ends: let everything run, so that it can end in order."""
        self.closing = True
        await asyncio.gather(
            *(self.end(each, "the runtime ends") for each in list(self.sessions.values()))
        )

    async def let_run(self, model: str) -> None:
        """End what stands in the way of a reload of `model`, which was asked for by force."""
        for each in self.of_model(model):
            if each.told.state == "stopped":
                with contextlib.suppress(DebugError):
                    await each.standing().resume()

    def check_free(self, model: str) -> None:
        """Raise DebugError where an instance of `model` stands in a debugger."""
        for each in self.of_model(model):
            if each.told.state == "stopped":
                raise DebugError(
                    f"{each.told.instance} stands in the debugger at {each.told.line}",
                    model=model, instance=each.told.instance, line=each.told.line,
                    remedy="continue it first, or reload with --force, which continues it",
                )  # fmt: skip

    # -- faces that look on ----------------------------------------------------------------------

    def join(self, number: int) -> Callable[[], None]:
        """A face looks on until it calls what this returns; the last to leave ends the session."""
        session = self.get(number)
        session.faces += 1
        session.had_faces = True

        def leave() -> None:
            session.faces -= 1
            if not session.faces and not self.closing:
                self._task(self._end_unless_back(session))

        return leave

    async def _end_unless_back(self, session: Debuggee) -> None:
        await asyncio.sleep(GRACE_SECONDS)
        if not session.faces and not session.stays:
            await self.end(session, "nobody looks on any more")

    # -- breakpoints -----------------------------------------------------------------------------

    async def put(self, asked: Breakpoint) -> Breakpoint:
        """Add or change a breakpoint, in every process that is debugged."""
        kept = self.store.put(asked)
        await self._refresh(kept)
        self.stream.emit(
            "debug", state="breakpoints", model=kept.model, line=f"{kept.path}:{kept.line}"
        )
        return next(each for each in self.store.all().breakpoints if each.id == kept.id)

    async def remove(self, number: int) -> None:
        """Take a breakpoint away everywhere."""
        await self._refresh(self.store.remove(number))
        self.stream.emit("debug", state="breakpoints")

    async def clear(self) -> None:
        """Take all breakpoints away."""
        before = self.store.all().breakpoints
        self.store.clear()
        for each in before:
            await self._refresh(each)
        await self._refresh_exceptions()
        self.stream.emit("debug", state="breakpoints")

    async def replace_file(self, path: str, asked: tuple[Breakpoint, ...]) -> list[Breakpoint]:
        """Make these the breakpoints of a file."""
        kept = self.store.replace_file(path, asked)
        await asyncio.gather(*(each.refresh(path) for each in self.sessions.values()))
        self.stream.emit("debug", state="breakpoints", line=f"{path}:0")
        known = {each.id: each for each in self.store.all().breakpoints}
        return [known[each.id] for each in kept]

    async def stop_at(self, raised: bool, uncaught: bool) -> None:
        """Choose the exceptions to stop at."""
        self.store.stop_at(raised=raised, uncaught=uncaught)
        await self._refresh_exceptions()
        self.stream.emit("debug", state="breakpoints")

    async def _refresh(self, changed: Breakpoint) -> None:
        for each in list(self.sessions.values()):
            if changed.path:
                await each.refresh(changed.path)
            elif each.told.model == changed.model and each.instance is not None:
                await each.refresh(str(each.instance.model.file))

    async def _refresh_exceptions(self) -> None:
        await asyncio.gather(*(each.refresh_exceptions() for each in self.sessions.values()))

    # -- what happens to the models meanwhile ----------------------------------------------------

    def _listen(self) -> None:
        taps = self.engine.taps
        taps.instances.append(self._on_instance)
        taps.models.append(self._on_model)

    def _unlisten(self) -> None:
        taps = self.engine.taps
        for listeners, own in ((taps.instances, self._on_instance), (taps.models, self._on_model)):
            if own in listeners:
                listeners.remove(own)

    def _on_instance(self, event: InstanceEvent) -> None:
        for each in self.of_model(event.model):
            told = each.told
            if told.instance != event.instance or told.version != event.version:
                continue
            if event.state == "dead" and event.pid == told.pid:
                if each.own:
                    self._task(self.end(each, "its process has ended"))
                else:
                    each.instance = None
                    each.show(state="waiting", reason="its process has ended", thread=0, line="")
            elif event.state == "ready" and told.state == "waiting":
                self._task(self._again(each))

    def _on_model(self, event: ModelEvent) -> None:
        for each in self.of_model(event.name):
            if event.state == "swapped" and not each.own:
                each.swaps += 1
                if each.moved is not None and self._outdated(each):
                    each.moved.cancel()  # what it is attached to is going already
                self._task(self._move(each, each.swaps))
            elif event.state == "unloaded":
                self._task(self.end(each, "the model was unloaded"))

    async def _again(self, session: Debuggee) -> None:
        """The instance has started again: wait until it serves, and attach to it."""
        for _ in range(200):
            await asyncio.sleep(0.01)
            with contextlib.suppress(errors.InferError):
                model = self.engine.model(session.told.model, session.told.version)
                for instance in model.instances:
                    if instance.name == session.told.instance and instance.state == "ready":
                        await self._attach_again(session, instance)
                        return
        await self.end(session, "its process did not come back")

    async def _move(self, session: Debuggee, swap: int) -> None:
        """Another version serves: its instance of that name is debugged from now on.

        Where several come one after the other, the last one counts.
        """
        async with session.moving:
            known = swap == session.swaps and session.told.id in self.sessions
            if known and self._outdated(session):
                await self._move_on(session, swap)

    def _outdated(self, session: Debuggee) -> bool:
        """Whether what a session is attached to is of a version that serves no more."""
        with contextlib.suppress(errors.InferError):
            model = self.engine.model(session.told.model, session.version)
            return session.instance not in model.instances
        return True

    async def _move_on(self, session: Debuggee, swap: int) -> None:
        for path in self.store.paths():
            self.store.follow(path)
        old, session.spare = session.spare, None
        if session.told.state == "stopped":
            # Its answer is still owed; the old version ends when it has been given.
            with contextlib.suppress(DebugError):
                await session.standing().resume()
        await session.leave("another version serves", state="waiting")
        if old is not None:
            await old.model.end_spare(old)
        if swap != session.swaps:
            return  # the next one is waiting for its turn
        try:
            model = self.engine.model(session.told.model, session.version)
            names = {instance.name: instance for instance in model.instances}
            instance = names.get(session.told.instance) or self._choose(model, "")
            session.told = dataclasses.replace(session.told, version=model.version_text)
            session.moved = asyncio.ensure_future(session.attach(instance))
            await session.moved
            if session.asked.spare and len(model.instances) == 1 and model.sequences is None:
                session.spare_task = asyncio.ensure_future(self._start_spare(session, model))
        except (DebugError, errors.InferError) as problem:
            if swap == session.swaps:
                await self.end(session, problem.message)
        except asyncio.CancelledError:
            if swap == session.swaps:
                raise
        finally:
            session.moved = None

    async def _attach_again(self, session: Debuggee, instance: Instance) -> None:
        try:
            await session.attach(instance)
        except DebugError as problem:
            await self.end(session, problem.message)

    def _task(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
