"""The one event loop of a model instance, on a thread of its own, for `async def execute`.

Imported only when a model has a coroutine to run: asyncio costs tens of milliseconds to import.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any, Callable, Optional

_loop: Optional[asyncio.AbstractEventLoop] = None


def is_coroutine(value: Any) -> bool:
    """Whether the backend would await `value`: coroutines, and before 3.12 generators too."""
    return asyncio.iscoroutine(value)


def running() -> asyncio.AbstractEventLoop:
    """The instance's loop, started at the first call."""
    global _loop
    if _loop is None:
        _loop = asyncio.new_event_loop()
        threading.Thread(target=_loop.run_forever, name="event loop", daemon=True).start()
    return _loop


def run(coroutine: Any) -> Any:
    """Run `coroutine` on the loop and wait for what it returns or raises."""
    return asyncio.run_coroutine_threadsafe(coroutine, running()).result()


def start(coroutine: Any, on_failure: Callable[[BaseException], None]) -> None:
    """Run `coroutine` in the background; `on_failure` gets what it raises."""

    def ended(future: Future[Any]) -> None:
        problem = None if future.cancelled() else future.exception()
        if problem is not None:
            on_failure(problem)

    asyncio.run_coroutine_threadsafe(coroutine, running()).add_done_callback(ended)


def call_on_loop(function: Callable[[], object]) -> None:
    """Call `function` on the loop's thread, if there is one."""
    if _loop is not None:
        _loop.call_soon_threadsafe(function)


def stop() -> None:
    """End the loop; what still runs on it is abandoned."""
    if _loop is not None:
        _loop.call_soon_threadsafe(_loop.stop)
