"""What a model must keep to, where the real server says nothing when it does not.

A `Rule` names the habit, where the behaviour is known from, and what production would do; a
`Finding` is one case of it. Warnings are made of these, whoever notices: the stub, the engine or
a face. Refusals, which have texts of their own, are elsewhere; nothing here raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from devkit.contract.tensors import IOSpec

OBSERVED = "observed on tritonserver 2.51"
DOCUMENTED = "Triton's Python backend documentation"


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing a model has to keep to.

    Attributes:
        id: stable name; events, logs and tests use it.
        source: where the behaviour is known from.
        message: what the model did, with `{}` fields for the case at hand.
        production: what a production server does about it.
        remedy: what to change in the model or its configuration.
    """

    id: str
    source: str
    message: str
    production: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One case of a rule broken; `message` is complete and can be shown as it is."""

    rule: Rule
    message: str


_ALL = (
    Rule(
        "no-response",
        OBSERVED,
        "execute left {count} of {total} requests without a response",
        "the client never gets an answer: None is taken as a promise to use the response sender",
        "Return one InferenceResponse for each request, in their order.",
    ),
    Rule(
        "undeclared-output",
        OBSERVED,
        "output '{name}' is not in the model's configuration",
        "the output is dropped without a word, even when the client asked for it",
        "Declare it under `output` in config.pbtxt or with add_output, or spell it as declared.",
    ),
    Rule(
        "missing-output",
        OBSERVED,
        "output '{name}' is declared and was asked for, but the response lacks it",
        "the client gets 200 and a response without it",
        "Put it into the response, or take it out of the configuration.",
    ),
    Rule(
        "duplicate-output",
        OBSERVED,
        "output '{name}' is in the response {count} times",
        "the client gets all of them under one name, and most clients read the first only",
        "Give each output a name of its own.",
    ),
    Rule(
        "output-datatype",
        OBSERVED,
        "output '{name}' is {actual}, but the configuration declares {declared}",
        "the tensor is passed through unchecked, and an ensemble's next step refuses it",
        "Convert the array (`astype`), or declare the type that the model really answers.",
    ),
    Rule(
        "output-shape",
        OBSERVED,
        "output '{name}' has shape {actual}, but the configuration declares {declared}",
        "the tensor is passed through unchecked, and clients that trust the metadata misread it",
        "Reshape the array, or declare -1 for dimensions that vary.",
    ),
    Rule(
        "output-batch",
        OBSERVED,
        "output '{name}' has batch size {actual} for a request of batch size {expected}",
        "the tensor is passed through unchecked, and rows no longer belong to their requests",
        "Answer each request with as many rows as it sent.",
    ),
    Rule(
        "no-execute",
        OBSERVED,
        "TritonPythonModel has no execute method",
        "the model loads, and every request to it fails",
        "Define `execute(self, requests)`.",
    ),
    Rule(
        "self-call",
        DOCUMENTED,
        "the model calls '{name}' while all its instances wait for this answer",
        "the call can never be served and the instance hangs for good",
        "Give the model more instances, or move what is called into a model of its own.",
    ),
    Rule(
        "bls-mode",
        DOCUMENTED,
        "{call} of '{name}' in {execute} execute of a {mode} model is refused",
        "the response is an error",
        "Call decoupled models with decoupled=True.",
    ),
    Rule(
        "bls-blocks",
        DOCUMENTED,
        "{call} of '{name}' blocks the event loop that all requests of the instance share",
        "no other request of the instance goes on meanwhile",
        "Await async_exec instead.",
    ),
    Rule(
        "stub-died",
        OBSERVED,
        "the process of instance '{name}' ended: {cause}",
        "it is never started again: every later request to the instance fails",
        "Find the cause in the instance's last words; production needs the model reloaded.",
    ),
    Rule(
        "slow-initialize",
        DOCUMENTED,
        "initialize took {seconds:.0f} s, once for each of {count} instances",
        "the model is not ready meanwhile, and every restart takes as long",
        "Load less in initialize, or share what instances have in common.",
    ),
)

RULES: Mapping[str, Rule] = {rule.id: rule for rule in _ALL}
"""Every rule by its id."""


def find(rule: str, **case: object) -> Finding:
    """A finding of the rule of that id; `case` fills its message. KeyError: no such rule."""
    known = RULES[rule]
    return Finding(known, f"{known.message.format(**case)}: {known.production}")


def check_response(
    declared: Mapping[str, IOSpec],
    answered: Sequence[tuple[str, str, Sequence[int]]],
    requested: Iterable[str] = (),
    batch: int = 0,
) -> list[Finding]:
    """What is wrong with a response that the real server would pass on in silence.

    `answered` has name, protocol datatype and shape of each output; no `requested` name means all
    that are declared. `batch` is the request's batch size, 0 for a model that does not batch.
    """
    findings = []
    for name, datatype, shape in answered:
        spec = declared.get(name)
        if spec is None:
            findings.append(find("undeclared-output", name=name))
        else:
            findings += _check_tensor(spec, datatype, tuple(shape), batch)
    counts = Counter(name for name, _, _ in answered)
    for name, count in counts.items():
        if count > 1:
            findings.append(find("duplicate-output", name=name, count=count))
    for name in requested or declared:
        if name in declared and name not in counts:
            findings.append(find("missing-output", name=name))
    return findings


def _check_tensor(
    spec: IOSpec, datatype: str, shape: tuple[int, ...], batch: int
) -> Iterable[Finding]:
    if datatype != spec.datatype:
        yield find("output-datatype", name=spec.name, actual=datatype, declared=spec.datatype)
    expected = _expected(spec)
    if len(shape) != len(expected) or any(
        want not in (-1, got) for want, got in zip(expected, shape, strict=True)
    ):
        yield find("output-shape", name=spec.name, actual=list(shape), declared=list(expected))
    elif batch and shape[0] != batch:
        yield find("output-batch", name=spec.name, actual=shape[0], expected=batch)


def _expected(spec: IOSpec) -> tuple[int, ...]:
    """The shape the model gives an output: `reshape` where there is one, batch dimension first."""
    if spec.reshape is None:
        return spec.shape
    batched = len(spec.shape) > len(spec.dims)
    return (-1, *spec.reshape) if batched else spec.reshape
