"""`ModelConfig`: what `auto_complete_config` gets and returns."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Union

_SCHEDULERS = ("dynamic_batching", "sequence_batching", "ensemble_scheduling")


class ModelConfig:
    """A model's configuration while it is being completed.

    The setters refuse, with ValueError, what contradicts the `config.pbtxt` that was given.
    """

    def __init__(self, model_config: Union[str, bytes, bytearray]) -> None:
        self._model_config: Dict[str, Any] = json.loads(model_config)

    def as_dict(self) -> Dict[str, Any]:
        """The configuration so far as a dict; the very one, changes count."""
        return self._model_config

    @property
    def _where(self) -> str:
        return f"in auto-complete-config function for model '{self._model_config['name']}'"

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set the largest batch size; the config may name a smaller one but no larger one."""
        given = self._model_config.get("max_batch_size", 0)
        if given > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {given}, but {self._where} specified "
                f"max_batch_size {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Ask for the dynamic batcher; the config may not have chosen another scheduler."""
        for choice in _SCHEDULERS:
            if choice in self._model_config and choice != "dynamic_batching":
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{choice}', but "
                    f"auto-complete-config function for model '{self._model_config['name']}' "
                    "tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, transaction_policy_dict: Dict[str, Any]) -> None:
        """Set `{"decoupled": bool}`."""
        for name in transaction_policy_dict.keys():  # noqa: SIM118  (a non-dict fails on `keys`)
            if name != "decoupled":
                raise ValueError(
                    f"model transaction property {self._where} contains property other than "
                    "'decoupled'."
                )
        given = self._model_config.setdefault("model_transaction_policy", {})
        if "decoupled" not in transaction_policy_dict:
            return
        wanted = transaction_policy_dict["decoupled"]
        if given.get("decoupled", wanted) != wanted:
            raise ValueError(
                "trying to change decoupled property in auto-complete-config for model "
                f"'{self._model_config['name']}', which is already set to "
                f"'{given['decoupled']}'."
            )
        given["decoupled"] = wanted

    def add_input(self, input: Dict[str, Any]) -> None:  # the parameter has the real one's name
        """Add an input `{"name", "data_type", "dims"[, "optional"]}`, or check the one given."""
        self._add("input", input, ["name", "data_type", "dims", "optional"])

    def add_output(self, output: Dict[str, Any]) -> None:
        """Add an output `{"name", "data_type", "dims"}`, or check the one given."""
        self._add("output", output, ["name", "data_type", "dims"])

    def _add(self, kind: str, tensor: Dict[str, Any], allowed: List[str]) -> None:
        for name in tensor:
            if name not in allowed:
                *most, last = (f"'{word}'" for word in allowed)
                raise ValueError(
                    f"{kind} '{tensor['name']}' {self._where} contains property other than "
                    f"{', '.join(most)} and {last}."
                )
        if "name" not in tensor:
            raise ValueError(f"{kind} {self._where} is missing 'name' property.")
        for name in ("data_type", "dims"):
            if name not in tensor:
                raise ValueError(
                    f"{kind} '{tensor['name']}' {self._where} is missing '{name}' property."
                )
        known = self._model_config.setdefault(kind, [])
        for given in known:
            if given["name"] == tensor["name"]:
                self._merge(kind, given, tensor)
                return
        known.append(tensor)

    def _merge(self, kind: str, given: Dict[str, Any], tensor: Dict[str, Any]) -> None:
        """Fill what `config.pbtxt` left open of one tensor, refuse what it has otherwise."""
        model, name = self._model_config["name"], tensor["name"]
        if given.get("data_type", "TYPE_INVALID") == "TYPE_INVALID":
            given["data_type"] = tensor["data_type"]
        elif given["data_type"] != tensor["data_type"]:
            raise ValueError(
                f"unable to load model '{model}', configuration expects datatype "
                f"{given['data_type']} for {kind} '{name}', model provides {tensor['data_type']}"
            )
        if not given.get("dims"):
            given["dims"] = tensor["dims"]
        for key in ("dims", "optional"):
            if key in tensor and given.setdefault(key, tensor[key]) != tensor[key]:
                raise ValueError(
                    f"model '{model}', tensor '{name}': the model expects {key} {tensor[key]} but "
                    f"the model configuration specifies {key} {given[key]}"
                )


ModelConfig.__module__ = "triton_python_backend_utils"
