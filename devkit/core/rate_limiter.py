"""Who may execute when instances share resources (`--rate-limit=execution_count`).

An instance takes what its group's `rate_limiter` names before each execution and gives it back
after it. Where several wait, the one that has run least for its priority comes first, and nobody
overtakes it, however little he needs: else one that needs much would never run. The limiter knows
no queue; a `Permit` tells its instance's scheduler when to try again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from devkit.contract.config import InstanceSpec
from devkit.errors import LoadError

GLOBAL = None
Key = tuple[str, int | None]
"""Name and device of a resource; a global one has no device."""


@dataclass(frozen=True, slots=True)
class Amount:
    """How much there is of a resource, as the command line says it: on one device or on each."""

    name: str
    count: int
    device: int | None = None


def parse_amounts(texts: Iterable[str]) -> list[Amount]:
    """`NAME:COUNT` and `NAME:COUNT:DEVICE`; ValueError for anything else."""
    amounts = []
    for text in texts:
        name, *numbers = text.split(":")
        if not name or len(numbers) not in (1, 2):
            raise ValueError(f"'{text}' is not NAME:COUNT or NAME:COUNT:DEVICE")
        amounts.append(Amount(name, *map(int, numbers)))
    return amounts


class Permit:
    """One instance's right to execute, asked for before each batch and given back after it."""

    def __init__(
        self,
        limiter: RateLimiter,
        spec: InstanceSpec,
        wanted: Callable[[], bool],
        try_again: Callable[[], None],
    ) -> None:
        self.needs: dict[Key, int] = defaultdict(int)
        for resource in spec.resources:
            device = GLOBAL if resource.is_global else spec.device_id
            self.needs[resource.name, device] += resource.count
        self.priority = max(spec.priority, 1)
        self.executions = 0
        self.held = False
        self.wanted = wanted
        self.try_again = try_again
        self._limiter = limiter

    def ask(self) -> bool:
        """Whether the instance may execute at once; if not, it stands in line from now on."""
        return not self.held and self._limiter.ask(self)

    def take(self) -> None:
        """An execution begins: `ask` was true just now."""
        self.held = True
        self.executions += 1
        self._limiter.take(self)

    def give_back(self) -> None:
        """The execution is over."""
        if self.held:
            self.held = False
            self._limiter.give_back(self)

    def close(self) -> None:
        """The instance is gone for good."""
        self.give_back()
        self._limiter.remove(self)

    def rank(self) -> tuple[int, int]:
        """Smaller comes first: a priority of 3 runs a third as often as one of 1."""
        return ((self.executions + 1) * self.priority, self.priority)


class RateLimiter:
    """The resources of one runtime and the instances that share them."""

    def __init__(self, amounts: Iterable[Amount] = ()) -> None:
        self._amounts = list(amounts)
        self._permits: list[Permit] = []
        self._line: list[Permit] = []
        self._used: dict[Key, int] = defaultdict(int)

    def admit(
        self, spec: InstanceSpec, wanted: Callable[[], bool], try_again: Callable[[], None]
    ) -> Permit:
        """A permit for a new instance.

        `wanted` says whether its scheduler has work for it, `try_again` makes that dispatch.
        Raises LoadError where the instance could never run.
        """
        permit = Permit(self, spec, wanted, try_again)
        others = {key for each in self._permits for key in each.needs} | set(permit.needs)
        for name, device in permit.needs:
            if any(n == name and (d is GLOBAL) != (device is GLOBAL) for n, d in others):
                raise LoadError(
                    f'Invalid argument: Resource "{name}" is present as both global and '
                    "device-specific resource in the model configuration."
                )
        self._permits.append(permit)
        for key, count in permit.needs.items():
            if self.total(key) < count:
                total = self.total(key)
                self._permits.remove(permit)
                raise LoadError(
                    f'Invalid argument: Resource count for "{key[0]}" is limited to {total} which '
                    "will prevent scheduling of one or more model instances, the minimum required "
                    f"count is {count}"
                )
        return permit

    def total(self, key: Key) -> int:
        """How much there is: as given; with nothing given at all, the most an instance needs."""
        if not self._amounts:
            return max((permit.needs.get(key, 0) for permit in self._permits), default=0)
        name, device = key
        named = [amount for amount in self._amounts if amount.name == name]
        for amount in named:
            if amount.device == device:
                return amount.count
        return next((amount.count for amount in named if amount.device is None), 0)

    def ask(self, permit: Permit) -> bool:
        """Whether `permit` is the first in line and what it needs is there."""
        if not permit.needs:
            return True
        if permit not in self._line:
            self._line.append(permit)
        # Those whose work another instance took meanwhile stand in nobody's way.
        self._line = [each for each in self._line if each is permit or each.wanted()]
        return self._first() is permit and self._fits(permit)

    def take(self, permit: Permit) -> None:
        """`permit`'s instance begins an execution."""
        if permit in self._line:
            self._line.remove(permit)
        for key, count in permit.needs.items():
            self._used[key] += count

    def give_back(self, permit: Permit) -> None:
        """`permit`'s instance is done; the next in line may run."""
        for key, count in permit.needs.items():
            self._used[key] -= count
        if permit.needs and permit.wanted() and permit not in self._line:
            self._line.append(permit)  # before others are served: it may come first again
        self.serve()

    def remove(self, permit: Permit) -> None:
        """`permit`'s instance is gone."""
        if permit in self._permits:
            self._permits.remove(permit)
        if permit in self._line:
            self._line.remove(permit)
            self.serve()

    def serve(self) -> None:
        """Let those in line try, as far as the resources go."""
        while True:
            self._line = [each for each in self._line if each.wanted()]
            if not self._line:
                return
            first = self._first()
            if not self._fits(first):
                return
            first.try_again()
            if first in self._line:  # it has reasons of its own to wait
                self._line.remove(first)

    def _first(self) -> Permit:
        return min(self._line, key=Permit.rank)  # of equals, the one that came first

    def _fits(self, permit: Permit) -> bool:
        return all(
            self._used[key] + count <= self.total(key) for key, count in permit.needs.items()
        )
