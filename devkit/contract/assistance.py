"""What an editor may say of a place in `config.pbtxt`: what can be there, and what is there.

Fields and values come from the protocol's own description; their words are ours. Pure: text and a
place in, suggestions out; a text that does not parse is no obstacle, since it is being written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from tritonclient.grpc.model_config_pb2 import ModelConfig

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"?|\#[^\n]*|[A-Za-z_][\w.]*|[-+]?\d[\w.]*|[\[\]{}<>:,;]')
_WORDS = {
    "name": "The model's name. Must be that of its folder; may be left out.",
    "backend": 'What runs the model: "python".',
    "platform": 'Only "ensemble" for an ensemble; a backend is named by `backend`.',
    "max_batch_size": "Largest batch that one execution gets. 0: the model has no batch dimension. "
    "Above 0 the server puts a dimension in front of every tensor's dims, and without "
    "`dynamic_batching` requests still run one by one.",
    "input": "The tensors that a request must bring.",
    "output": "The tensors that a response has. What is not declared here is dropped.",
    "dynamic_batching": "Puts requests together into batches. `dynamic_batching { }` is enough.",
    "sequence_batching": "Sends all requests of a sequence to one instance, in their order.",
    "ensemble_scheduling": "The steps of an ensemble and the tensors that pass between them.",
    "instance_group": "How many instances (processes) serve the model, and on which devices.",
    "default_model_filename": "The file that is loaded from the version folder: model.py.",
    "parameters": "Texts for the model: `parameters { key: ... value: { string_value: ... } }`. "
    "EXECUTION_ENV_PATH names the environment it runs in.",
    "model_warmup": "Requests that each instance runs before it serves.",
    "model_transaction_policy": "`decoupled: true`: a request may get any number of responses.",
    "version_policy": "Which versions are served; the newest one if nothing is said.",
    "optimization": "Pinned memory and other hints; rarely needed for Python models.",
    "response_cache": "Answers equal requests from a cache, where the server has one.",
    "ModelInput.name": "Name of the tensor; what `get_input_tensor_by_name` takes.",
    "ModelInput.data_type": "Its type. TYPE_STRING is an array of bytes objects.",
    "ModelInput.dims": "Its shape without the batch; -1 for any extent.",
    "ModelInput.reshape": "Another shape for the model; `{ shape: [ ] }` makes [ 1 ] a scalar.",
    "ModelInput.optional": "A request may leave it out: `get_input_tensor_by_name` gives None.",
    "ModelInput.allow_ragged_batch": "Requests of a batch may differ in shape.",
    "ModelInput.format": "FORMAT_NONE, NHWC or NCHW; says something to other backends only.",
    "ModelOutput.name": "Name of the tensor, as the model gives it to `pb_utils.Tensor`.",
    "ModelOutput.data_type": "Its type; the server does not check what the model really answers.",
    "ModelOutput.dims": "Its shape without the batch; -1 for any extent. Not checked either.",
    "ModelOutput.reshape": "Another shape for clients than the model answers.",
    "ModelOutput.label_filename": "File with a label a line, for the classification extension.",
    "ModelInstanceGroup.count": "Instances on each device of the group; each is a process.",
    "ModelInstanceGroup.kind": "KIND_CPU, KIND_GPU (needs one to load), KIND_AUTO, or KIND_MODEL: "
    "the model chooses for itself.",
    "ModelInstanceGroup.gpus": "Numbers of the GPUs; all of them if nothing is said.",
    "ModelInstanceGroup.rate_limiter": "Resources that an execution takes, with --rate-limit.",
    "ModelInstanceGroup.passive": "Loaded, but never given requests.",
    "ModelDynamicBatching.preferred_batch_size": "A batch of one of these sizes is sent at once.",
    "ModelDynamicBatching.max_queue_delay_microseconds": "How long a request may wait for company.",
    "ModelDynamicBatching.preserve_ordering": "Responses leave in the order of their requests.",
    "ModelDynamicBatching.priority_levels": "How many priorities requests may have, 1 the highest.",
    "ModelDynamicBatching.default_priority_level": "Priority of a request that names none.",
    "ModelDynamicBatching.default_queue_policy": "Time-out and largest length of the queue.",
    "ModelQueuePolicy.timeout_action": "REJECT or DELAY a request that waited too long.",
    "ModelQueuePolicy.default_timeout_microseconds": "How long a request may wait.",
    "ModelQueuePolicy.allow_timeout_override": "A request may say its own time-out.",
    "ModelQueuePolicy.max_queue_size": "More requests than that are refused at once (503).",
    "ModelSequenceBatching.max_sequence_idle_microseconds": "A sequence that is idle for longer "
    "ends without a word.",
    "ModelSequenceBatching.control_input": "Tensors that tell the model about the sequence.",
    "ModelSequenceBatching.state": "State that the server keeps between a sequence's requests.",
    "ModelSequenceBatching.direct": "Each sequence has its own slot of the batch.",
    "ModelSequenceBatching.oldest": "Batches are made of the oldest requests of any sequences.",
    "Step.model_name": "The model of this step.",
    "Step.model_version": "Its version; -1 for the newest.",
    "Step.input_map": "key: the model's input. value: the ensemble's tensor.",
    "Step.output_map": "key: the model's output. value: the ensemble's tensor.",
    "ModelWarmup.batch_size": "How many requests of one row make the batch; 0 runs nothing.",
    "ModelWarmup.count": "How often the sample runs.",
    "ModelWarmup.inputs": "Its tensors, by name.",
    "Input.input_data_file": "File with the bytes, in the model's folder `warmup`.",
    "Input.zero_data": "Zeros of the shape.",
    "Input.random_data": "Random values of the shape.",
    "ModelTransactionPolicy.decoupled": "Responses go through the response sender, any number.",
    "Latest.num_versions": "How many of the newest versions are served.",
    "ModelParameter.string_value": "The text.",
}
_TYPES = {
    FieldDescriptor.TYPE_STRING: "text", FieldDescriptor.TYPE_BOOL: "true or false",
    FieldDescriptor.TYPE_FLOAT: "number",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Something that can be written at a place.

    Attributes:
        insert: what to write; a field with what must follow its name.
        kind: `field` or `value`.
        type: of a field: `text`, `whole number`, `list of ...`, or the message's name.
    """

    label: str
    insert: str
    kind: str
    type: str = ""
    text: str = ""


def suggestions(text: str, line: int, column: int) -> list[Suggestion]:
    """What can stand at a place (from 1), narrowed by what has been typed of it."""
    offset = _offset(text, line, column)
    message, field, given = _context(text[:offset])
    typed = re.search(r"[\w.]*$", text[:offset])
    prefix = typed[0].lower() if typed else ""
    found = _values(field) if field is not None else _fields(message, given)
    return [one for one in found if prefix in one.label.lower()]


def explanation(text: str, line: int, column: int) -> str:
    """What the field or value at a place means, as Markdown; empty where there is none."""
    offset = _offset(text, line, column)
    for token in _TOKEN.finditer(text):
        if not token.start() <= offset <= token.end() or not re.match(r"[A-Za-z_]", token[0]):
            continue
        message, field, _ = _context(text[: token.start()])
        if field is not None:
            return f"**{token[0]}**, of `{field.name}`: {_words(field)}".rstrip(": ")
        known = message.fields_by_name.get(token[0])
        if known is not None:
            return f"**{known.name}** ({_type(known)}). {_words(known)}".rstrip()
    return ""


def _offset(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    line = min(max(line, 1), len(lines))
    return sum(len(one) + 1 for one in lines[: line - 1]) + min(
        max(column, 1) - 1, len(lines[line - 1])
    )


def _context(before: str) -> tuple[Descriptor, FieldDescriptor | None, set[str]]:
    """The message around a place, the field whose value is due there, and fields given so far."""
    stack: list[tuple[Descriptor, set[str], str]] = [(ModelConfig.DESCRIPTOR, set(), "")]
    field: FieldDescriptor | None = None
    lists: list[FieldDescriptor] = []
    tokens = [token for token in _TOKEN.finditer(before) if not token[0].startswith("#")]
    if tokens and tokens[-1].end() == len(before) and re.match(r"[A-Za-z_]", tokens[-1][0]):
        tokens.pop()  # the word that is being typed
    for token in tokens:
        sign = token[0]
        message, given, _ = stack[-1]
        if sign in "{<":
            inner = field.message_type if field is not None else None
            stack.append((inner or message, set(), "list" if lists else ""))
            field = None
        elif sign in "}>":
            if len(stack) > 1:
                stack.pop()
            field = lists[-1] if lists and _inside(lists[-1], stack[-1][0]) else None
        elif sign == "[":
            if field is not None:
                lists.append(field)
        elif sign == "]":
            if lists:
                lists.pop()
            field = None
        elif sign in ":,;":
            if sign == "," and lists:
                field = lists[-1]
        elif field is None:
            field = message.fields_by_name.get(sign)
            given.add(sign)
        elif not (lists and lists[-1] is field):
            field = None  # its value has been read
    message, given, _ = stack[-1]
    if field is not None and field.message_type is not None:
        # `input ` or `input [`: only a brace can follow
        return message, field, given
    return message, field, given


def _inside(field: FieldDescriptor, message: Descriptor) -> bool:
    return bool(field.containing_type is message)


def _fields(message: Descriptor, given: set[str]) -> list[Suggestion]:
    found = []
    for field in message.fields:
        if field.name in given and not _repeated(field):
            continue
        follows = " {" if field.message_type is not None else ": "
        if field.message_type is not None and _repeated(field) and not _is_map(field):
            follows = " [ { "
        found.append(
            Suggestion(field.name, field.name + follows, "field", _type(field), _words(field))
        )
    return found


def _values(field: FieldDescriptor) -> list[Suggestion]:
    if field.enum_type is not None:
        names = [one.name for one in field.enum_type.values]
    elif field.type == FieldDescriptor.TYPE_BOOL:
        names = ["true", "false"]
    elif field.name == "backend":
        names = ['"python"']
    else:
        names = []
    return [Suggestion(name, name, "value", field.name, _words(field)) for name in names]


def _repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _type(field: FieldDescriptor) -> str:
    if _is_map(field):
        return "map"
    if field.message_type is not None:
        name = field.message_type.name
    elif field.enum_type is not None:
        name = field.enum_type.name
    else:
        name = _TYPES.get(field.type, "whole number")
    return f"list of {name}" if _repeated(field) else name


def _words(field: FieldDescriptor) -> str:
    owner = field.containing_type.name if field.containing_type is not None else ""
    key = field.name if owner == "ModelConfig" else f"{owner}.{field.name}"
    return _WORDS.get(key, "")
