"""The words after `%%model`: parsed here, and turned into the lines of a config they stand for.

Knows nothing of IPython and of the runtime.
"""

from __future__ import annotations

import argparse
import re
import shlex
from dataclasses import dataclass, field
from typing import NoReturn

from tritonclient.grpc.model_config_pb2 import ModelConfig

from devkit.control import messages
from devkit.errors import ConfigError

START_METHODS = ("warm", "spawn")
START_METHOD_PARAMETER = "DEVKIT_START_METHOD"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")


class UsageError(ConfigError):
    """The line of a magic cannot be understood; the message says why, and how it is written."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What a `%%model` line asks for; None where it leaves a config's own value."""

    name: str
    instances: int | None = None
    max_batch_size: int | None = None
    dynamic_batching: bool = False
    preferred_batch_sizes: tuple[int, ...] = ()
    max_queue_delay: int | None = None
    decoupled: bool = False
    start_method: str | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    quiet: bool = False

    def message(self, config: str | None = None) -> messages.ModelOptions:
        """What the runtime is told; `config` is a whole `config.pbtxt`, which then rules alone."""
        if config is not None:
            return messages.ModelOptions(config=config)
        return messages.ModelOptions(
            instances=self.instances,
            max_batch_size=self.max_batch_size,
            dynamic_batching=self.dynamic_batching,
            preferred_batch_size=self.preferred_batch_sizes,
            max_queue_delay_microseconds=self.max_queue_delay,
            decoupled=self.decoupled,
            parameters=self._parameters(),
        )

    def changes_config(self) -> bool:
        """Whether the line asks for anything that a config holds."""
        return self.message() != messages.ModelOptions()

    def _parameters(self) -> dict[str, str]:
        if self.start_method is None:
            return dict(self.parameters)
        return {START_METHOD_PARAMETER: self.start_method, **self.parameters}

    def apply(self, config: ModelConfig) -> None:
        """Write into `config` what the line asks for, and leave the rest of it alone."""
        if self.max_batch_size is not None:
            config.max_batch_size = self.max_batch_size
        if self.instances is not None:
            if not config.instance_group:
                config.instance_group.add(kind="KIND_CPU")
            config.instance_group[0].count = self.instances
        if self.dynamic_batching or self.preferred_batch_sizes or self.max_queue_delay is not None:
            config.dynamic_batching.SetInParent()
            if self.preferred_batch_sizes:
                config.dynamic_batching.preferred_batch_size[:] = self.preferred_batch_sizes
            if self.max_queue_delay is not None:
                config.dynamic_batching.max_queue_delay_microseconds = self.max_queue_delay
        if self.decoupled:
            config.model_transaction_policy.decoupled = True
        for key, value in self._parameters().items():
            config.parameters[key].string_value = value


class _Parser(argparse.ArgumentParser):
    """argparse that raises: in a kernel there is no process to leave."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%model: {message}", remedy=self.format_usage().strip())


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _size(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in text.split(",") if part)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def model_name(text: str) -> str:
    """`text` if it can name a model and its folder; raises UsageError otherwise."""
    if not _NAME.match(text):
        raise UsageError(
            f"{text!r} cannot name a model",
            remedy="use letters, digits, _, - and ., beginning with a letter, a digit or _",
        )
    return text


def _parser() -> _Parser:
    parser = _Parser(prog="%%model", add_help=False, allow_abbrev=False)
    parser.add_argument("name")
    parser.add_argument("--instances", type=_count)
    parser.add_argument("--max-batch-size", type=_size)
    parser.add_argument("--dynamic-batching", action="store_true")
    parser.add_argument("--preferred-batch-size", type=_sizes, default=(), metavar="N,N")
    parser.add_argument("--max-queue-delay", type=_size, metavar="MICROSECONDS")
    parser.add_argument("--decoupled", action="store_true")
    parser.add_argument("--start-method", choices=START_METHODS)
    parser.add_argument("--parameter", type=_pair, action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--quiet", action="store_true")
    return parser


def parse(line: str) -> ModelOptions:
    """Options of a `%%model` line. Raises UsageError, whose remedy is the usage."""
    parser = _parser()
    try:
        words = shlex.split(line)
    except ValueError as problem:
        raise UsageError(f"%%model: {problem}", remedy=parser.format_usage().strip()) from problem
    found = parser.parse_args(words)
    batching = bool(
        found.dynamic_batching or found.preferred_batch_size or found.max_queue_delay is not None
    )
    if batching and found.max_batch_size == 0:
        raise UsageError(
            "%%model: dynamic batching needs a batch dimension",
            remedy="give --max-batch-size a number of 1 or more",
        )
    return ModelOptions(
        name=model_name(found.name),
        instances=found.instances,
        max_batch_size=found.max_batch_size,
        dynamic_batching=batching,
        preferred_batch_sizes=found.preferred_batch_size,
        max_queue_delay=found.max_queue_delay,
        decoupled=found.decoupled,
        start_method=found.start_method,
        parameters=dict(found.parameter),
        quiet=found.quiet,
    )
