"""Who may call what, which headers a model sees, and with which keys gRPC is encrypted.

Options of the front ends alone: what they mean is read here once, and each front end asks for its
own part. Where none is given a front end has none of these objects, and a request costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devkit.errors import DevkitError

APIS = (
    "health", "metadata", "inference", "shared-memory", "model-config", "model-repository",
    "statistics", "trace", "logging",
)  # fmt: skip
"""What the restriction flags call the parts of either protocol."""

GRPC_PREFIX = "triton-grpc-protocol-"
"""What the metadata key of a restricted gRPC protocol begins with."""


class AccessError(DevkitError):
    """A flag about access cannot be taken; `remedy` says how it is written."""


@dataclass(frozen=True, slots=True)
class Key:
    """The header that a restricted part of a protocol wants, in lower case, and its value."""

    header: str
    value: str
    shown: str

    def opens(self, headers: Mapping[str, str]) -> bool:
        """Whether these headers (names in lower case) hold it."""
        return headers.get(self.header) == self.value


def restrictions(flag: str, settings: Sequence[str], prefix: str = "") -> dict[str, Key]:
    """Keys by part of the protocol, out of `PART,PART:KEY=VALUE` texts. Raises AccessError.

    Texts of the refusals are tritonserver's (observed on 2.51).
    """
    kind = flag.rpartition("-")[2]
    found: dict[str, Key] = {}
    for text in settings:
        parts, colon, setting = text.partition(":")
        key, equals, value = setting.partition("=")
        if not colon or not equals:
            raise AccessError(
                f"--{flag} option format is '<config name>:<setting>=<value>'. Got {text}",
                remedy=f"--{flag}=model-repository,model-config:admin-key=VALUE",
            )
        for part in parts.split(","):
            if part not in APIS:
                raise AccessError(
                    f"unknown restricted {kind} '{part}'", remedy=f"one of {', '.join(APIS)}"
                )
            if part in found:
                raise AccessError(
                    f"restricted {kind} '{part}' can not be specified in multiple config groups"
                )
            found[part] = Key((prefix + key).lower(), value, prefix + key)
    return found


class Forwarding:
    """Which headers become parameters of a request."""

    def __init__(self, flag: str, pattern: str) -> None:
        """Raises AccessError where `pattern` is no regular expression."""
        try:
            self._pattern = re.compile(pattern, re.IGNORECASE)
        except re.error as problem:
            raise AccessError(
                f"--{flag}: '{pattern}' is not a regular expression: {problem}",
                remedy=f"--{flag}='^x-.*'",
            ) from problem

    def chosen(self, headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Those whose names the pattern finds something in; the last of a name counts."""
        return tuple((name, value) for name, value in headers if self._pattern.search(name))


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM texts of a gRPC server; `root` is who signed the clients that it takes, None for any."""

    certificate: bytes
    key: bytes
    root: bytes | None


def tls(values: Mapping[str, Any]) -> Tls | None:
    """What the `--grpc-use-ssl*` flags ask for. Raises AccessError where a file is missing."""
    mutual = bool(values.get("grpc_use_ssl_mutual"))
    if not values.get("grpc_use_ssl") and not mutual:
        return None
    certificate = _read("grpc-server-cert", values["grpc_server_cert"])
    key = _read("grpc-server-key", values["grpc_server_key"])
    root = _read("grpc-root-cert", values["grpc_root_cert"]) if mutual else None
    return Tls(certificate, key, root)


def _read(flag: str, path: str) -> bytes:
    if not path:
        raise AccessError(f"gRPC over TLS needs --{flag}", remedy=f"--{flag}=FILE.pem")
    try:
        return Path(path).read_bytes()
    except OSError as problem:
        raise AccessError(f"--{flag}: {path} cannot be read: {problem.strerror}") from problem


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """What the flags say for HTTP."""

    restricted: Mapping[str, Key]
    forwarding: Forwarding | None


@dataclass(frozen=True, slots=True)
class GrpcAccess:
    """What the flags say for gRPC; `plain` where they say nothing."""

    restricted: Mapping[str, Key]
    forwarding: Forwarding | None
    tls: Tls | None
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def plain(self) -> bool:
        """Whether nothing is asked for."""
        return not (self.restricted or self.forwarding or self.tls or self.options)


def of_http(values: Mapping[str, Any]) -> HttpAccess | None:
    """What a command line's values say for HTTP, None where nothing. Raises AccessError."""
    flag = "http-header-forward-pattern"
    pattern = values["http_header_forward_pattern"]
    restricted = restrictions("http-restricted-api", values["http_restricted_api"])
    if not pattern and not restricted:
        return None
    return HttpAccess(restricted, Forwarding(flag, pattern) if pattern else None)


_CHANNEL = {
    "grpc_keepalive_time": "grpc.keepalive_time_ms",
    "grpc_keepalive_timeout": "grpc.keepalive_timeout_ms",
    "grpc_keepalive_permit_without_calls": "grpc.keepalive_permit_without_calls",
    "grpc_http2_max_pings_without_data": "grpc.http2.max_pings_without_data",
    "grpc_http2_min_recv_ping_interval_without_data":
        "grpc.http2.min_ping_interval_without_data_ms",
    "grpc_http2_max_ping_strikes": "grpc.http2.max_ping_strikes",
    "grpc_max_connection_age": "grpc.max_connection_age_ms",
    "grpc_max_connection_age_grace": "grpc.max_connection_age_grace_ms",
}  # fmt: skip


def of_grpc(values: Mapping[str, Any]) -> GrpcAccess:
    """What a command line's values say for gRPC. Raises AccessError."""
    flag = "grpc-header-forward-pattern"
    pattern = values["grpc_header_forward_pattern"]
    return GrpcAccess(
        restrictions("grpc-restricted-protocol", values["grpc_restricted_protocol"], GRPC_PREFIX),
        Forwarding(flag, pattern) if pattern else None,
        tls(values),
        tuple((name, int(values[field])) for field, name in _CHANNEL.items()
              if values.get(field) is not None),
    )  # fmt: skip


HTTP_API = {
    "live": "health", "ready": "health", "model_ready": "health", "server": "metadata",
    "metadata": "metadata", "infer": "inference", "generate": "inference",
    "generate_stream": "inference", "region_status": "shared-memory", "register": "shared-memory",
    "unregister": "shared-memory", "config": "model-config", "index": "model-repository",
    "control": "model-repository", "stats": "statistics", "all_stats": "statistics",
    "trace": "trace", "logging": "logging",
}  # fmt: skip
"""The part of the protocol that each endpoint of `http.routes.TABLE` belongs to."""

GRPC_API = {
    "ServerLive": "health", "ServerReady": "health", "ModelReady": "health",
    "ServerMetadata": "metadata", "ModelMetadata": "metadata", "ModelInfer": "inference",
    "ModelStreamInfer": "inference", "SystemSharedMemoryStatus": "shared-memory",
    "SystemSharedMemoryRegister": "shared-memory", "SystemSharedMemoryUnregister": "shared-memory",
    "CudaSharedMemoryStatus": "shared-memory", "CudaSharedMemoryRegister": "shared-memory",
    "CudaSharedMemoryUnregister": "shared-memory", "ModelConfig": "model-config",
    "RepositoryIndex": "model-repository", "RepositoryModelLoad": "model-repository",
    "RepositoryModelUnload": "model-repository", "ModelStatistics": "statistics",
    "TraceSetting": "trace", "LogSettings": "logging",
}  # fmt: skip
"""The same for each RPC."""
