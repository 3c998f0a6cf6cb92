"""The HTTP calls of the browser: passed on to the runtime, or answered from the desk.

The control API keeps its own paths under `v1/`; what a browser cannot do itself (start a runtime,
send tensors over the fast socket, write a model's first files) has a call of its own. A runtime
that is not there is an answer, not an error of the server.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlencode

import httpx
from jupyter_server.base.handlers import APIHandler
from tornado import web

from devkit.control import messages
from devkit.errors import DevkitError
from devkit.lab import asking
from devkit.lab.desk import Desk
from devkit.tools import templates

_PASSED_ON = ("Content-Type", "Accept")
STATE_HEADER = "Devkit-Runtime"
"""Set where the answer is that there is no runtime."""

_OURS = frozenset({"token", "_xsrf"})


class DeskHandler(APIHandler):
    """A call that knows the desk; only for who may use this Jupyter server."""

    desk: Desk
    auth_resource: ClassVar[str] = "devkit"

    def initialize(self, desk: Desk) -> None:
        self.desk = desk

    def asked(self) -> dict[str, Any]:
        """The body, which is an object or nothing."""
        try:
            body = json.loads(self.request.body or b"{}")
        except ValueError as problem:
            raise web.HTTPError(400, f"the call is no JSON: {problem}") from problem
        if not isinstance(body, dict):
            raise web.HTTPError(400, "the call is no JSON object")
        return body

    def tell(self, message: Any) -> None:
        """Answer with `message` as JSON."""
        self.finish(messages.to_json(message))

    def refuse(self, status: int, failure: messages.Failure) -> None:
        """Answer as the control API does where it refuses."""
        self.set_status(status)
        self.tell(failure)

    def tell_gone(self) -> None:
        """Say that no runtime runs: a state, so no error in the browser's console and our log."""
        self.set_header(STATE_HEADER, "none")
        self.tell(
            messages.Failure(
                f"no runtime serves {self.desk.workspace}",
                "NoRuntime",
                remedy="start one in the Models panel, or with `devkit serve` in that folder",
            )
        )


class RuntimeHandler(DeskHandler):
    """Whether a runtime runs, and starting one."""

    @web.authenticated
    async def get(self) -> None:
        await self.desk.look()
        self.tell(self.desk.status())

    @web.authenticated
    async def post(self) -> None:
        asked = self.asked()
        if await self.desk.look() is None:
            self.desk.start([str(one) for one in asked.get("repositories", ())])
        self.tell(self.desk.status())


class CallHandler(DeskHandler):
    """A call of the control API, there and back as it is."""

    @web.authenticated
    async def get(self, path: str) -> None:
        await self._pass_on()

    @web.authenticated
    async def post(self, path: str) -> None:
        await self._pass_on()

    @web.authenticated
    async def put(self, path: str) -> None:
        await self._pass_on()

    @web.authenticated
    async def delete(self, path: str) -> None:
        await self._pass_on()

    async def _pass_on(self) -> None:
        for _ in range(2):  # the second time where another runtime has taken its place
            runtime = await self.desk.look()
            if runtime is None:
                break
            try:
                await self._send(runtime)
                return
            except httpx.TransportError:
                if self._headers_written:
                    raise
                self.desk.missed()
        self.tell_gone()

    async def _send(self, runtime: messages.Runtime) -> None:
        request = self.request
        # As it was written: the name of a model may hold an escaped slash.
        path = request.path.partition("/devkit/api/")[2]
        pairs = parse_qsl(request.query, keep_blank_values=True)
        query = urlencode([pair for pair in pairs if pair[0] not in _OURS])
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        async with self.desk.http(runtime).stream(
            request.method or "GET",
            f"http://runtime/{path}" + (f"?{query}" if query else ""),
            headers=headers,
            content=request.body,
        ) as answer:
            kind = answer.headers.get("Content-Type", "application/octet-stream")
            self.set_status(answer.status_code)
            self.set_header("Content-Type", kind)
            self.set_header("Cache-Control", "no-store")
            async for part in answer.aiter_bytes():
                self.write(part)
                await self.flush()
            self.finish(set_content_type=kind)


class AskHandler(DeskHandler):
    """One inference for a person to look at: values as JSON, there and back."""

    @web.authenticated
    async def post(self) -> None:
        asked = self.asked()
        runtime = await self.desk.look()
        if runtime is None:
            self.tell_gone()
            return
        try:
            answer = await self.desk.with_client(runtime, lambda one: asking.ask(one, asked))
        except DevkitError as problem:
            # A model that says no is what the person wanted to see: no error of this server.
            self.tell({"responses": [], "seconds": 0.0, "error": messages.to_plain(told(problem))})
        else:
            self.tell(answer)


class NewModelHandler(DeskHandler):
    """The first files of a new model."""

    @web.authenticated
    async def get(self) -> None:
        self.tell([{"name": each.name, "text": each.text} for each in templates.all_templates()])

    @web.authenticated
    async def post(self) -> None:
        asked = self.asked()
        runtime = await self.desk.look()
        if runtime is None:
            self.tell_gone()
            return
        repository = str(asked.get("repository", ""))
        try:
            if repository not in runtime.repositories:
                raise templates.TemplateError(
                    f"'{repository}' is no repository of this runtime",
                    remedy="choose one of " + ", ".join(runtime.repositories),
                )
            name, template = str(asked.get("name", "")), str(asked.get("template", ""))
            files = await asyncio.to_thread(templates.create, repository, name, template)
        except DevkitError as problem:
            self.refuse(400, told(problem))
        else:
            self.tell({"files": [str(file) for file in files]})


def told(problem: DevkitError) -> messages.Failure:
    """An error as the control API writes it."""
    return messages.Failure(
        problem.message,
        type(problem).__name__,
        problem.model,
        problem.instance,
        problem.line,
        problem.remedy,
        getattr(problem, "traceback", None),
    )
