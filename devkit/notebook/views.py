"""From the runtime's messages to display objects: what of a model is worth a line in a notebook."""

from __future__ import annotations

import time
from collections.abc import Sequence

from devkit.control import messages
from devkit.notebook.display import InstanceRow, ModelCard, Table, TensorRow, duration, size

_NO_CONFIG = (
    "No config yet: inputs and outputs are worked out from the first "
    '`devkit.infer("{name}", {{"INPUT": array}})`.'
)
_FUNCTION = (
    "Made of the function `{function}`: its arguments are the inputs, the dict it returns the "
    "outputs; the class around it is written by devkit, and exported with it."
)


def card(
    model: messages.Model,
    *,
    tone: str = "",
    state: str = "",
    notes: Sequence[str] = (),
    function: str | None = None,
) -> ModelCard:
    """The state of one model; `tone` and `state` where the caller knows better."""
    words = [*notes]
    if function:
        words.append(_FUNCTION.format(function=function))
    words += [f"Assumed: {sentence}" for sentence in model.assumed]
    if model.unlearned and not model.assumed:
        words.append(_NO_CONFIG.format(name=model.name))
    return ModelCard(
        name=model.name,
        state=state or model.state or "not loaded",
        tone=tone or ("good" if model.state == "READY" else "warn"),
        version=model.version,
        seconds=model.load_seconds or None,
        instances=[_instance(one) for one in model.instances],
        inputs=[_tensor(one) for one in model.inputs],
        outputs=[_tensor(one) for one in model.outputs],
        notes=words,
    )


def _instance(instance: messages.Instance) -> InstanceRow:
    memory = instance.process.rss if instance.process is not None else 0
    state = instance.state
    if instance.restarts:
        state += f" (restarted {instance.restarts}×)"
    return InstanceRow(instance.name, instance.pid, instance.kind, state, max(memory, 0))


def _tensor(tensor: messages.Tensor) -> TensorRow:
    return TensorRow(tensor.name, tensor.datatype, tensor.shape)


def runtime(snapshot: messages.Snapshot) -> Table:
    """All models, and where the runtime answers."""
    facts = [f"pid {snapshot.runtime.pid}"]
    facts += [f"{endpoint.protocol} {endpoint.url}" for endpoint in snapshot.runtime.endpoints]
    columns: tuple[str, ...] = (
        "model",
        "version",
        "state",
        "instances",
        "served",
        "memory",
        "loaded in",
    )
    rows = [_model_row(model) for model in snapshot.models]
    if any(model.remark for model in snapshot.models):
        columns = (*columns, "note")
        rows = [(*row, model.remark) for row, model in zip(rows, snapshot.models, strict=True)]
    return Table(
        title="devkit",
        columns=columns,
        rows=rows,
        facts=facts,
        empty="No models yet. Begin a cell with %%model NAME.",
        numbers=(3, 4, 5, 6),
    )


def _model_row(model: messages.Model) -> tuple[str, ...]:
    memory = sum(one.process.rss for one in model.instances if one.process and one.process.rss > 0)
    return (
        model.name,
        model.version,
        model.state or "not loaded",
        str(len(model.instances)),
        str(model.inferences),
        size(memory) if memory else "",
        duration(model.load_seconds) if model.load_seconds else "",
    )


def log_line(line: messages.LogLine) -> str:
    """One line of the log: time of day, who said it, what."""
    clock = time.strftime("%H:%M:%S", time.localtime(line.time))
    who = line.instance or line.model or "runtime"
    return f"{clock} {who} {line.stream}: {line.text}"
