"""`devkit infer`: one request from the command line, its outputs as text, JSON or .npy files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from devkit.cli import complete
from devkit.cli.process import JSON, WORKSPACE

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from devkit.control import messages


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(infer)


def infer(
    name: str = typer.Argument(..., help="Name of the model.", autocompletion=complete.models),
    inputs: list[str] = typer.Option(
        [],
        "--input",
        "-i",
        help="NAME=1,2,3 or NAME=[[1,2],[3,4]] or NAME=@array.npy; once per input.",
    ),
    json_file: Path = typer.Option(
        None, "--json-file", help="A KServe v2 request body, or an object of arrays by name."
    ),
    outputs: list[str] = typer.Option([], "--output", "-o", help="Only this output; repeatable."),
    version: str = typer.Option("", "--model-version", help="Version of the model."),
    id: str = typer.Option("", "--id", help="Request id."),
    parameters: list[str] = typer.Option([], "--parameter", "-p", help="KEY=VALUE; repeatable."),
    timeout: float = typer.Option(None, "--timeout", help="Seconds to wait for the answer."),
    save: Path = typer.Option(None, "--save", help="Folder to write each output to, as NAME.npy."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Send one request and print the outputs."""
    from devkit.cli import output

    client = output.connect(workspace)
    model = client.model(name)
    arrays = _read_json(json_file) if json_file else {}
    arrays |= dict(_read_input(text, model) for text in inputs)
    found = client.infer(
        name,
        arrays,
        outputs=outputs or None,
        version=version,
        id=id,
        parameters=dict(_parameter(text) for text in parameters) or None,
        timeout=timeout,
    )
    if save is not None:
        _save(save, found)
    if json:
        output.as_json({"outputs": [_described(key, array) for key, array in found.items()]})
    else:
        _print(found)


def _read_json(path: Path) -> dict[str, Any]:
    import json

    import numpy as np

    from devkit.transport import dtypes

    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise typer.BadParameter(f"{path}: {problem}") from problem
    if not isinstance(value, dict):
        raise typer.BadParameter(f"{path} holds no object")
    if not isinstance(value.get("inputs"), list):
        return value
    arrays: dict[str, Any] = {}
    for row in value["inputs"]:
        kind = dtypes.NUMPY.get(row.get("datatype", ""))
        if kind is None or "data" not in row:
            raise typer.BadParameter(f"{path}: input {row.get('name')} lacks a datatype or data")
        arrays[row["name"]] = np.asarray(row["data"], dtype=kind).reshape(row["shape"])
    return arrays


def _read_input(text: str, model: messages.Model) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"'{text}' is not NAME=VALUE", param_hint="--input")
    if value.startswith("@"):
        return name, _load_array(value[1:])
    declared = next((one for one in model.inputs if one.name == name), None)
    return name, _parse_values(name, value, declared)


def _load_array(path: str) -> npt.NDArray[Any]:
    import numpy as np

    try:
        loaded: npt.NDArray[Any] = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as problem:
        raise typer.BadParameter(f"{path}: {problem}", param_hint="--input") from problem
    return loaded


def _parse_values(name: str, text: str, declared: messages.Tensor | None) -> npt.NDArray[Any]:
    """An array of the declared type, and of the declared shape where the values fit it."""
    import json

    import numpy as np

    from devkit.transport import dtypes

    strings = declared is not None and declared.datatype == "BYTES"
    try:
        values = json.loads(text if text[:1] == "[" else f"[{text}]")
    except ValueError:
        values = text.split(",")
    if strings:
        values = values if text[:1] == "[" else text.split(",")
        array: npt.NDArray[Any] = np.asarray(values, dtype=np.object_)
    else:
        kind = dtypes.NUMPY.get(declared.datatype) if declared is not None else None
        try:
            array = np.asarray(values, dtype=kind)
        except (ValueError, TypeError, OverflowError) as problem:
            raise typer.BadParameter(f"{name}: {problem}", param_hint="--input") from problem
        if kind is None and array.dtype.kind == "U":
            array = array.astype(np.object_)
    return _shaped(array, declared)


def _shaped(array: npt.NDArray[Any], declared: messages.Tensor | None) -> npt.NDArray[Any]:
    """Flat values in the declared shape: a batch of one, and at most one free dimension filled."""
    if declared is None or array.ndim == len(declared.shape):
        return array
    shape = list(declared.shape)
    if shape[:1] == [-1] and len(shape) > 1 and array.ndim == len(shape) - 1:
        return array[None]
    if array.ndim != 1:
        return array
    if shape.count(-1) > 1:
        shape[0] = 1
    fixed = 1
    for extent in shape:
        fixed *= max(extent, 1)
    if shape.count(-1) > 1 or (fixed and array.size % fixed):
        return array
    if -1 not in shape and array.size != fixed:
        return array
    return array.reshape(shape)


def _parameter(text: str) -> tuple[str, Any]:
    import json

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"'{text}' is not KEY=VALUE", param_hint="--parameter")
    try:
        parsed = json.loads(value)
    except ValueError:
        return name, value
    return name, parsed if isinstance(parsed, (bool, int, float, str)) else value


def _described(name: str, array: npt.NDArray[Any]) -> dict[str, Any]:
    from devkit.control.fast import datatype_of

    return {
        "name": name,
        "datatype": datatype_of(name, array),
        "shape": list(array.shape),
        "data": [_scalar(item) for item in array.ravel().tolist()],
    }


def _scalar(item: Any) -> Any:
    return item.decode("utf-8", "replace") if isinstance(item, bytes) else item


def _print(found: dict[str, npt.NDArray[Any]]) -> None:
    import numpy as np

    from devkit.control.fast import datatype_of

    for name, array in found.items():
        typer.echo(f"{name}  {datatype_of(name, array)} {list(array.shape)}")
        shown = array
        if array.dtype == np.object_:
            shown = np.array([_scalar(item) for item in array.ravel()], dtype=object)
            shown = shown.reshape(array.shape)
        typer.echo(np.array2string(shown, threshold=100, max_line_width=100))


def _save(folder: Path, found: dict[str, npt.NDArray[np.generic]]) -> None:
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    for name, array in found.items():
        plain = array.astype("S") if array.dtype == np.object_ else array
        np.save(folder / f"{name}.npy", plain, allow_pickle=False)
