"""tritonserver's command line, as data: every flag, its type, and what devkit does with it.

One declaration renders everywhere: the runtime parses its arguments with it, `--help` prints it,
and a form can be made of it. Nothing here opens a file or a port, and nothing here acts on a flag.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from devkit.errors import DevkitError

LOOPBACK = "127.0.0.1"

TRUE = frozenset({"true", "1", "on", "yes"})
FALSE = frozenset({"false", "0", "off", "no"})


class UsageError(DevkitError):
    """A command line that cannot be taken; `remedy` says what was probably meant."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag.

    Attributes:
        kind: `bool`, `int`, `float`, `str`, `choice`, `list` (repeatable), `map` (repeatable
            `scope,key=value`) or `switch` (takes no value).
        choices: the values a `choice` takes.
        use: `used`; `ignored` (accepted, and a note says that it changes nothing here); `refused`
            (devkit lacks what it asks for; silence would mislead).
        note: why it is ignored or refused.
    """

    name: str
    kind: str
    default: Any
    group: str
    help: str
    choices: tuple[str, ...] = ()
    use: str = "used"
    note: str = ""

    @property
    def field(self) -> str:
        """Name of the option it sets: `http_port` for `--http-port`."""
        return self.name.replace("-", "_")


def _used(group: str, *rows: tuple[Any, ...]) -> Iterator[Flag]:
    for name, kind, default, help_, *choices in rows:
        yield Flag(name, kind, default, group, help_, tuple(choices))


def _ignored(group: str, note: str, *rows: tuple[str, str]) -> Iterator[Flag]:
    for name, kind in rows:
        yield Flag(name, kind, None, group, note, use="ignored", note=note)


def _refused(group: str, note: str, *rows: tuple[str, str]) -> Iterator[Flag]:
    for name, kind in rows:
        yield Flag(name, kind, None, group, note, use="refused", note=note)


FLAGS: tuple[Flag, ...] = (
    *_used(
        "Server",
        ("id", "str", "triton", "name of this server, as GET /v2 gives it"),
        ("exit-timeout-secs", "int", 30, "seconds that a stop waits for running requests"),
    ),
    *_used(
        "Logging",
        ("log-verbose", "int", 0, "verbose level; 0 is off"),
        ("log-info", "bool", True, "log INFO lines"),
        ("log-warning", "bool", True, "log WARNING lines"),
        ("log-error", "bool", True, "log ERROR lines"),
        ("log-format", "choice", "default", "format of log lines", "default", "ISO8601"),
        ("log-file", "str", "", "write the log to this file instead of the terminal"),
    ),
    *_used(
        "Model repository",
        ("model-repository", "list", (), "folder of models; may be given several times"),
        ("model-store", "list", (), "the same as --model-repository"),
        ("model-control-mode", "choice", "none", "who loads models", "none", "poll", "explicit"),
        ("repository-poll-secs", "int", 15, "seconds between looks in poll mode"),
        ("load-model", "list", (), "model to load at start in explicit mode; * for all"),
        ("strict-readiness", "bool", True, "not ready while a model failed to load"),
        ("exit-on-error", "bool", False, "end when a model fails to load (tritonserver: true)"),
        ("disable-auto-complete-config", "switch", False, "take config.pbtxt as it stands"),
        ("model-load-thread-count", "int", 4, "models loaded at once"),
    ),
    *_used(
        "HTTP",
        ("allow-http", "bool", True, "serve HTTP"),
        ("http-address", "str", LOOPBACK, "address of HTTP (tritonserver: 0.0.0.0)"),
        ("http-port", "int", 8000, "port of HTTP; 0 for any"),
        ("reuse-http-port", "bool", False, "let several servers share the port"),
        ("http-header-forward-pattern", "str", "", "headers passed on as request parameters"),
        ("http-restricted-api", "list", (), "API,API:KEY=VALUE: calls need this header"),
    ),
    *_used(
        "gRPC",
        ("allow-grpc", "bool", True, "serve gRPC"),
        ("grpc-address", "str", LOOPBACK, "address of gRPC (tritonserver: 0.0.0.0)"),
        ("grpc-port", "int", 8001, "port of gRPC; 0 for any"),
        ("reuse-grpc-port", "bool", False, "let several servers share the port"),
        ("grpc-header-forward-pattern", "str", "", "metadata passed on as request parameters"),
        ("grpc-restricted-protocol", "list", (), "API,API:KEY=VALUE: calls need this metadata"),
        ("grpc-use-ssl", "bool", False, "TLS; needs the server's certificate and key"),
        ("grpc-use-ssl-mutual", "bool", False, "TLS on both sides; also needs --grpc-root-cert"),
        ("grpc-server-cert", "str", "", "PEM file of the server's certificate"),
        ("grpc-server-key", "str", "", "PEM file of the server's key"),
        ("grpc-root-cert", "str", "", "PEM file of who signs the clients' certificates"),
        ("grpc-keepalive-time", "int", None, "milliseconds between keep-alive pings"),
        ("grpc-keepalive-timeout", "int", None, "milliseconds that a ping may take"),
        ("grpc-keepalive-permit-without-calls", "bool", None, "pings while nothing is called"),
        ("grpc-http2-max-pings-without-data", "int", None, "pings in a row without data"),
        ("grpc-http2-min-recv-ping-interval-without-data", "int", None,
         "milliseconds between a client's pings"),
        ("grpc-http2-max-ping-strikes", "int", None, "pings too soon that a client may send"),
        ("grpc-max-connection-age", "int", None, "milliseconds that a connection may live"),
        ("grpc-max-connection-age-grace", "int", None, "milliseconds that its calls get then"),
    ),
    *_used(
        "Metrics",
        ("allow-metrics", "bool", True, "serve metrics"),
        ("metrics-address", "str", "", "address of metrics; that of HTTP where not given"),
        ("metrics-port", "int", 8002, "port of metrics; 0 for any"),
        ("metrics-interval-ms", "float", 2000.0, "milliseconds between looks at CPU and memory"),
        ("allow-cpu-metrics", "bool", True, "metrics of the machine's CPU and memory"),
        ("allow-gpu-metrics", "bool", True, "metrics of GPUs, where there are any"),
    ),
    *_used(
        "Tracing",
        ("trace-config", "map", (), "MODE,SETTING=VALUE or SETTING=VALUE; several times"),
    ),
    *_used(
        "Backend",
        ("backend-config", "map", (), "BACKEND,SETTING=VALUE, such as "
         "python,shm-default-byte-size=1048576; several times"),
    ),
    *_used(
        "Response cache",
        ("cache-config", "list", (), "local,size=BYTES: keep answers of models that ask for it"),
        ("response-cache-byte-size", "int", 0, "the same as --cache-config=local,size=N"),
    ),
    *_used(
        "Rate limiter",
        ("rate-limit", "choice", "off", "rate limiter", "off", "execution_count"),
        ("rate-limit-resource", "list", (), "NAME:COUNT[:DEVICE]; several times"),
    ),
    *_used(
        "devkit",
        ("port", "int", None, "first of three ports in a row; 0 for any three"),
        ("address", "str", None, "address of HTTP, gRPC and metrics alike"),
        ("no-debug", "switch", False, "let nobody attach a debugger to a model"),
        ("strict", "switch", False, "outputs unlike the config are errors, not warnings"),
        ("devkit-metrics", "switch", False, "add devkit's own gauges, devkit_*, to /metrics"),
        ("watch", "bool", False, "reload a model when its files change"),
        ("workspace", "str", "", "folder this runtime belongs to; the current one if not given"),
        ("start-method", "choice", "warm", "how instances start", "warm", "spawn"),
        ("bls-circle-grace-secs", "int", 0, "fail a BLS call in a circle; 0: only warn"),
        ("backend-directory", "str", "", "folder of Python-based backends, NAME/model.py each"),
        ("skip-model", "list", (), "model not to load at start; several times"),
        ("python", "str", "", "interpreter of the instances; devkit's own if not given"),
        ("quiet", "switch", False, "print no tables at start"),
    ),
    *_ignored(
        "Accepted, without effect",
        "devkit has no use for it",
        ("http-thread-count", "int"), ("grpc-infer-allocation-pool-size", "int"),
        ("buffer-manager-thread-count", "int"), ("model-load-retry-count", "int"),
        ("enable-peer-access", "bool"),
        ("repoagent-directory", "str"), ("cache-directory", "str"),
        ("pinned-memory-pool-byte-size", "int"), ("cuda-memory-pool-byte-size", "list"),
        ("cuda-virtual-address-size", "list"), ("min-supported-compute-capability", "float"),
        ("host-policy", "list"), ("model-load-gpu-limit", "list"), ("metrics-config", "list"),
        ("grpc-infer-response-compression-level", "str"), ("vertex-ai-thread-count", "int"),
        ("sagemaker-thread-count", "int"), ("strict-model-config", "bool"),
    ),
    *_ignored(
        "Accepted, without effect",
        "use --trace-config instead",
        ("trace-file", "str"), ("trace-level", "list"), ("trace-rate", "int"),
        ("trace-count", "int"), ("trace-log-frequency", "int"),
    ),
    *_refused(
        "Refused",
        "devkit does not serve the SageMaker and Vertex AI protocols",
        ("allow-sagemaker", "bool"), ("sagemaker-port", "int"),
        ("sagemaker-safe-port-range", "str"), ("allow-vertex-ai", "bool"),
        ("vertex-ai-port", "int"), ("vertex-ai-default-model", "str"),
    ),
    *_refused(
        "Refused",
        "devkit always reads config.pbtxt, in one namespace",
        ("model-config-name", "str"), ("model-namespacing", "bool"),
    ),
)  # fmt: skip
"""Every flag of tritonserver 2.51, and devkit's own, in the order that `--help` shows them."""

BY_NAME = {flag.name: flag for flag in FLAGS}


@dataclass(slots=True)
class CommandLine:
    """What a command line said.

    Attributes:
        values: by field name (`http_port`), defaults filled in for the flags that are used.
        given: field names that the command line itself gave.
        repositories: positional arguments and `--model-repository`, in order.
        backend: settings of `--backend-config`, by backend (`""` for the global ones).
        trace: settings of `--trace-config`, by mode (`""` for the global ones).
        notes: what was accepted and changes nothing, a line each.
        help: whether help was asked for.
    """

    values: dict[str, Any] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    repositories: list[str] = field(default_factory=list)
    backend: dict[str, dict[str, str]] = field(default_factory=dict)
    trace: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    help: bool = False


def parse(arguments: Sequence[str]) -> CommandLine:
    """Read a command line of tritonserver's; raises UsageError.

    `--flag=value`, `--flag value`, `-flag` for `--flag`, underscores for dashes, and a bare
    boolean for true are all understood, since scripts of every kind hold them.
    """
    line = CommandLine(values={f.field: _fresh(f) for f in FLAGS if f.use == "used"})
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in ("--help", "-h"):
            line.help = True
        elif word == "--":
            line.repositories += rest
            break
        elif not word.startswith("-") or word == "-":
            line.repositories.append(word)
        else:
            name, equals, text = word.lstrip("-").partition("=")
            flag = _find(name, word)
            value = text if equals else _take(flag, rest)
            _apply(line, flag, value)
    _finish(line)
    return line


def _fresh(flag: Flag) -> Any:
    return list(flag.default) if flag.kind in ("list", "map") else flag.default


def _find(name: str, word: str) -> Flag:
    dashed = name.replace("_", "-")
    flag = BY_NAME.get(dashed)
    if flag is not None:
        return flag
    near = difflib.get_close_matches(dashed, BY_NAME, n=1, cutoff=0.6)
    raise UsageError(
        f"unrecognized option '--{name}'" if word.startswith("--") else f"unrecognized '{word}'",
        remedy=f"did you mean --{near[0]}?" if near else "`devkit serve --help` lists the flags",
    )


def _take(flag: Flag, rest: list[str]) -> str:
    if flag.kind == "switch":
        return "true"
    if flag.kind == "bool":
        return rest.pop(0) if rest and rest[0].lower() in TRUE | FALSE else "true"
    if not rest:
        raise UsageError(f"option '--{flag.name}' requires a value", remedy=flag.help)
    return rest.pop(0)


def _apply(line: CommandLine, flag: Flag, text: str) -> None:
    value = _convert(flag, text)
    line.given.add(flag.field)
    if flag.use == "refused":
        if value is not False:
            raise UsageError(f"--{flag.name} is not supported", remedy=flag.note)
    elif flag.use == "ignored":
        line.notes.append(f"--{flag.name} has no effect: {flag.note}")
    elif flag.name in ("model-repository", "model-store"):
        line.repositories.append(text)
    elif flag.kind == "map":
        scope, key, setting = _setting(flag, text)
        target = line.backend if flag.name == "backend-config" else line.trace
        target.setdefault(scope, {})[key] = setting
    elif flag.kind == "list":
        line.values[flag.field].append(text)
    else:
        line.values[flag.field] = value


def _convert(flag: Flag, text: str) -> Any:
    if flag.kind in ("bool", "switch"):
        lowered = text.lower()
        if lowered in TRUE or lowered in FALSE:
            return lowered in TRUE
        raise UsageError(f"--{flag.name}: '{text}' is neither true nor false")
    if flag.kind == "choice" and text not in flag.choices:
        near = difflib.get_close_matches(text, flag.choices, n=1)
        raise UsageError(
            f"--{flag.name}: '{text}' is not one of {', '.join(flag.choices)}",
            remedy=f"did you mean {near[0]}?" if near else None,
        )
    if flag.kind in ("int", "float"):
        try:
            return int(text) if flag.kind == "int" else float(text)
        except ValueError:
            raise UsageError(f"--{flag.name}: '{text}' is not a number") from None
    return text


def _setting(flag: Flag, text: str) -> tuple[str, str, str]:
    match = re.fullmatch(r"(?:([^,=]*),)?([^=,]+)=(.*)", text)
    if match is None:
        raise UsageError(f"--{flag.name}: '{text}' is not of the form {flag.help.split(';')[0]}")
    scope, key, value = match.groups()
    return scope or "", key, value


def _finish(line: CommandLine) -> None:
    values = line.values
    first = values["port"]
    if first is not None:
        for index, field_ in enumerate(("http_port", "grpc_port", "metrics_port")):
            if field_ not in line.given:
                values[field_] = first + index if first else 0
    if values["address"] is not None:
        for field_ in ("http_address", "grpc_address", "metrics_address"):
            if field_ not in line.given:
                values[field_] = values["address"]
    if not values["metrics_address"]:
        values["metrics_address"] = values["http_address"]
    for field_ in ("http_port", "grpc_port", "metrics_port"):
        if not 0 <= values[field_] <= 65535:
            raise UsageError(f"--{field_.replace('_', '-')}: {values[field_]} is not a port")
    if "*" in values["load_model"] and len(values["load_model"]) > 1:
        raise UsageError("--load-model=* must be the only --load-model")
    if values["load_model"] and values["model_control_mode"] != "explicit":
        raise UsageError(
            "--load-model needs --model-control-mode=explicit", remedy="add it, or drop the flag"
        )


def help_text() -> str:
    """What `devkit serve --help` prints."""
    lines = [
        "Usage: devkit serve [REPOSITORY...] [FLAGS]",
        "",
        "Serve the models of one or more repositories, as tritonserver would. Flags are",
        "tritonserver's own, as --flag=value or --flag value.",
    ]
    group = ""
    for flag in FLAGS:
        if flag.group == "Accepted, without effect":
            break
        if flag.group != group:
            group = flag.group
            lines += ["", f"{group}:"]
        shown = f"--{flag.name}{_placeholder(flag)}"
        default = "" if flag.default in (None, "", (), False) else f" [{_shown(flag.default)}]"
        lines.append(f"  {shown:<36}  {flag.help}{default}")
    lines += ["", "Other flags of tritonserver are accepted and noted, or refused with the reason."]
    return "\n".join(lines)


def _placeholder(flag: Flag) -> str:
    if flag.kind == "choice":
        return "=" + "|".join(flag.choices)
    return {"bool": "=BOOL", "switch": "", "int": "=N", "float": "=N"}.get(flag.kind, "=TEXT")


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
