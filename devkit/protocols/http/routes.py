"""Paths and methods of the KServe v2 HTTP API and Triton's extensions, and who answers them.

A table and its look-up; what an endpoint does is in `endpoints` and `infer`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from devkit.protocols.access import HTTP_API
from devkit.protocols.http.server import Connection, Head, Route, Router
from devkit.transport.memory import Block

JSON = "application/json"
TEXT = "text/plain"

_MODEL = r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+))?"
_REGION = r"/v2/(?P<kind>system|cuda)sharedmemory(?:/region/(?P<region>[^/]+))?"

Entry = tuple[str, str, str, str]
"""(name of the endpoint, pattern of the path, methods, content type of a 405)"""

TABLE: tuple[Entry, ...] = (
    ("infer", _MODEL + r"/infer", "POST", TEXT),
    ("generate", _MODEL + r"/generate", "POST", JSON),
    ("generate_stream", _MODEL + r"/generate_stream", "POST", JSON),
    ("model_ready", _MODEL + r"/ready", "GET", TEXT),
    ("config", _MODEL + r"/config", "GET", JSON),
    ("all_stats", r"/v2/models/stats", "GET", JSON),
    ("stats", _MODEL + r"/stats", "GET", JSON),
    ("trace", r"/v2/models/(?P<model>[^/]+)/trace/setting", "GET POST", JSON),
    ("trace", r"/v2/trace/setting", "GET POST", JSON),
    ("logging", r"/v2/logging", "GET POST", JSON),
    ("metadata", _MODEL, "GET", JSON),
    ("live", r"/v2/health/live", "GET", TEXT),
    ("ready", r"/v2/health/ready", "GET", TEXT),
    ("server", r"/v2", "GET", JSON),
    ("index", r"/v2/repository(?:/(?P<repository>[^/]+))?/index", "POST", JSON),
    (
        "control",
        r"/v2/repository(?:/(?P<repository>[^/]+))?/models/(?P<model>[^/]+)/(?P<action>load|unload)",
        "POST",
        JSON,
    ),
    ("region_status", _REGION + r"/status", "GET", JSON),
    ("register", _REGION + r"/register", "POST", JSON),
    ("unregister", _REGION + r"/unregister", "POST", JSON),
)


def fixed(status: int, content_type: str, body: bytes) -> Route:
    """A route that always answers the same."""

    def handle(connection: Connection, head: Head, data: memoryview, block: Block | None) -> None:
        connection.reply(status, content_type, body)

    return Route(handle)


NOT_FOUND = fixed(404, TEXT, b'{"error":"Not Found"}')
NOT_ALLOWED = {
    content_type: fixed(405, content_type, b'{"error":"Method Not Allowed"}')
    for content_type in (JSON, TEXT)
}


def router(endpoints: dict[str, Callable[[str, dict[str, str]], Route]]) -> Router:
    """A Router over `endpoints`: name to what makes the Route of a method and the path's names."""
    compiled = [
        (re.compile(pattern), methods.split(), refusal, HTTP_API[name], endpoints[name])
        for name, pattern, methods, refusal in TABLE
    ]

    def find(method: str, path: str) -> Route:
        for pattern, methods, refusal, api, make in compiled:
            match = pattern.fullmatch(path)
            if match is None:
                continue
            if method not in methods:
                return replace(NOT_ALLOWED[refusal], api=api)
            names = {name: value or "" for name, value in match.groupdict().items()}
            return replace(make(method, names), arguments=tuple(names.values()), api=api)
        return NOT_FOUND

    return find
