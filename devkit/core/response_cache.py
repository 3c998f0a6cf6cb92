"""Answers that were given before: the response cache (`--cache-config=local,size=BYTES`).

One for the whole runtime; a model takes part by `response_cache { enable: true }`. As in the real
server (observed on tritonserver 2.51) only inputs make the key: neither the outputs a client names
nor parameters or ids count, so a hit has the outputs that the first request got; and an answer that
was an error is kept as one without outputs. Unlike there, a reloaded model starts with nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devkit.core.request import NO_OUTPUTS, OutputSignature, Request, Response, SharedPlace
from devkit.core.taps import Taps
from devkit.errors import DevkitError
from devkit.transport.dtypes import ReadableBuffer

if TYPE_CHECKING:
    from devkit.core.model import Model

log = logging.getLogger("devkit.response_cache")

SMALLEST = 1024
"""Bytes below which the real server refuses to make a cache."""

_PER_ENTRY, _PER_OUTPUT = 4, 32  # bytes that the real cache writes beside names, shapes and data


class CacheConfigError(DevkitError):
    """`--cache-config` cannot be taken; `remedy` says how it is written."""


def parse(settings: Sequence[str]) -> int:
    """Bytes of the cache that `local,size=BYTES` asks for, 0 without one. CacheConfigError."""
    size = 0
    for text in settings:
        name, comma, setting = text.partition(",")
        key, _, value = setting.partition("=")
        if name != "local" or not comma:
            raise CacheConfigError(
                f"--cache-config={text}: devkit has the cache 'local' alone",
                remedy="--cache-config=local,size=BYTES",
            )
        if key != "size" or not value.isdecimal():
            raise CacheConfigError(
                f"--cache-config={text}: '{setting}' is not size=BYTES",
                remedy="--cache-config=local,size=1048576",
            )
        size = int(value)
    if size and size < SMALLEST:
        raise CacheConfigError(f"--cache-config: a cache of {size} bytes is too small",
                               remedy=f"give it {SMALLEST} bytes or more")  # fmt: skip
    return size


@dataclass(frozen=True, slots=True)
class Entry:
    """One answer that is kept."""

    signature: OutputSignature
    buffers: tuple[bytes, ...]
    size: int


class ResponseCache:
    """The answers kept, the least recently used at the front, and what was asked of them.

    Attributes:
        size: bytes it may hold; `used` are in use.
        hits, misses, evictions: how often; `lookup_ns`, `insertion_ns`: how long in all.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self.hits = self.misses = self.evictions = 0
        self.lookup_ns = self.insertion_ns = 0
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def utilization(self) -> float:
        """The part of it that is in use."""
        return self.used / self.size

    def find(self, key: bytes) -> Entry | None:
        """The answer kept for `key`; it counts as used now."""
        entry = self._entries.get(key)
        if entry is None:
            self.misses += 1
        else:
            self.hits += 1
            self._entries.move_to_end(key)
        return entry

    def insert(self, key: bytes, entry: Entry) -> None:
        """Keep an answer, at the cost of those that were not asked for longest."""
        if key in self._entries:
            return
        if entry.size > self.size:
            log.error(
                "Failed to insert key [%s] into response cache: Requested byte_size: %d is greater "
                "than total cache size: %d", key.hex(), entry.size, self.size,
            )  # fmt: skip
            return
        while self.used + entry.size > self.size:
            _, old = self._entries.popitem(last=False)
            self.used -= old.size
            self.evictions += 1
        self._entries[key] = entry
        self.used += entry.size


def key_of(model: Model, request: Request) -> bytes:
    """What `request` has in common with every request that gets the same answer."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{model.generation}".encode())
    rows = zip(request.description.inputs, request.buffers, strict=True)
    for spec, buffer in sorted(rows, key=lambda row: row[0].name):
        digest.update(repr((spec.name, spec.datatype, spec.shape)).encode())
        digest.update(buffer.view() if type(buffer) is SharedPlace else buffer)  # type: ignore[arg-type]
    return digest.digest()


def answer(cache: ResponseCache, model: Model, request: Request) -> bool:
    """Answer a request that fits `model` from the cache; False, and its answer is kept, if not."""
    began = time.monotonic_ns()
    key = key_of(model, request)
    entry = cache.find(key)
    looked = time.monotonic_ns() - began
    cache.lookup_ns += looked
    if entry is None:
        _keep_answer(cache, model, request, key, looked)
        return False
    model.open_requests += 1
    asyncio.get_running_loop().call_soon(_hit, model, request, entry, looked)
    return True


def _hit(model: Model, request: Request, entry: Entry, looked: int) -> None:
    if request.done:
        return
    request.done = True
    blocks, request.blocks = request.blocks, []
    for block in blocks:
        block.release()
    model.finished(request)
    now = time.monotonic_ns()
    request.times.request_end = now
    counters = model.counters
    counters.success.add(now - request.times.request_start)
    counters.queue.add(max(now - looked - request.times.queue_start, 0))
    counters.cache_hit.add(looked)
    buffers: list[ReadableBuffer] = list(entry.buffers)
    response = Response(request, model.name, model.version_text, entry.signature, buffers)
    if model.taps.responses:
        Taps.emit(model.taps.responses, request, response)
    request.on_response(response)


def _keep_answer(
    cache: ResponseCache, model: Model, request: Request, key: bytes, looked: int
) -> None:
    hand_on = request.on_response

    def keep(response: Response) -> None:
        if request.times.compute_start and not request.cancelled:
            began = time.monotonic_ns()
            if response.error is not None:
                log.warning(
                    "model '%s': the response cache keeps an error as an answer without outputs, "
                    "as the real server does; the next request alike gets that", model.name,
                )  # fmt: skip
            cache.insert(key, _entry(response))
            took = time.monotonic_ns() - began
            cache.insertion_ns += took
            model.counters.cache_miss.add(looked + took)
        hand_on(response)

    request.on_response = keep


def _entry(response: Response) -> Entry:
    signature = NO_OUTPUTS if response.error is not None else response.signature
    buffers = () if response.error is not None else tuple(bytes(each) for each in response.buffers)
    size = _PER_ENTRY + sum(
        _PER_OUTPUT + len(spec.name) + 8 * len(spec.shape) + len(data)
        for spec, data in zip(signature.outputs, buffers, strict=True)
    )
    return Entry(signature, buffers, size)
