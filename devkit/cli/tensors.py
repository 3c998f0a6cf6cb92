"""`devkit tensors` and `devkit compare`: what a recorded request's tensors hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from devkit.cli.process import JSON, WORKSPACE

if TYPE_CHECKING:
    from devkit.control.client import Client
    from devkit.tools.inspection import TensorView


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(tensors)
    app.command()(compare)


def tensors(
    number: int = typer.Argument(..., help="Number of the recorded request, or of a failure."),
    name: str = typer.Argument("", help="Only this tensor; PART/NAME where two have it."),
    failure: bool = typer.Option(False, "--failure", help="The number is that of a failure."),
    file: Path = typer.Option(None, "--file", help="Recording that the request is in."),
    index: str = typer.Option("", "--slice", "-s", help="Print these values: `0, :, 10:20`."),
    exact: bool = typer.Option(False, "--exact", help="Look at every value of a large tensor."),
    save: Path = typer.Option(None, "--save", help="Write it: .npy (values) or .png (picture)."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Show tensors of a recorded request: inputs, probes, outputs."""
    from devkit.cli import output

    shown = _inspection(str(number), workspace, failure, file)
    if not name and (index or save or exact):
        raise typer.BadParameter("say which tensor", param_hint="NAME")
    if not name:
        if json:
            output.as_json(shown.to_dict())
        else:
            output.console().print(shown)
        return
    try:
        view = shown[name]
    except KeyError:
        names = ", ".join(f"{one.part}/{one.name}" for one in shown)
        raise typer.BadParameter(f"there is no '{name}', but {names}", param_hint="NAME") from None
    if save is not None:
        _save(view, save, index)
    elif index:
        _values(view, index, json)
    else:
        if exact:
            view.summary = view.look(exact=True)
        if json:
            output.as_json(view.to_dict())
        else:
            output.console().print(view)


def _inspection(text: str, workspace: str, failure: bool, file: Path | None) -> Any:
    from devkit.cli import output
    from devkit.tools.inspection import Captures, FailureList

    number = int(text)
    if file is not None:
        return Captures.read(file).number(number).inspect()
    client: Client = output.connect(workspace)
    if failure:
        return FailureList.of(client).number(number).inspect()
    return Captures.of(client, numbers=[number]).number(number).inspect()


def _values(view: TensorView, index: str, json: bool) -> None:
    import numpy as np

    from devkit.cli import output
    from devkit.contract import inspection

    array = view.values(index)
    if array.dtype == np.object_:
        texts = [inspection.shown(one) for one in array.ravel().tolist()]
        array = np.array(texts, dtype=object).reshape(array.shape)
    if json:
        output.as_json({"shape": list(array.shape), "values": array.tolist()})
    else:
        typer.echo(np.array2string(array, threshold=1000, max_line_width=100))


def _save(view: TensorView, path: Path, index: str) -> None:
    import numpy as np

    from devkit.cli import output
    from devkit.control.observing import png_of

    if path.suffix == ".png":
        picture = view.picture(index=index)
        if picture is None:
            raise typer.BadParameter(f"'{view.name}' does not look like a picture")
        path.write_bytes(png_of(picture))
    else:
        array = view.values(index, limit=1 << 40)
        plain = array.astype("S") if array.dtype == np.object_ else array
        np.save(path, plain, allow_pickle=False)
    output.note(f"{path} written")


def compare(
    left: str = typer.Argument(..., help="Number of a recorded request, or FILE:NUMBER."),
    right: str = typer.Argument(..., help="Number of another, or FILE:NUMBER."),
    exact: bool = typer.Option(False, "--exact", help="Look at every value of large tensors."),
    workspace: str = WORKSPACE,
    json: bool = JSON,
) -> None:
    """Compare the tensors of two recorded requests: how far apart, where, how many ulp."""
    from devkit.cli import output
    from devkit.tools import inspection

    sides = []
    for text in (left, right):
        path, colon, number = text.rpartition(":")
        if not number.isdigit():
            raise typer.BadParameter(f"'{text}' is neither a number nor FILE:NUMBER")
        sides.append(_inspection(number, workspace, False, Path(path) if colon else None))
    found = inspection.compare(*sides, exact=exact, names=(left, right))
    if json:
        output.as_json(found.to_dict())
    else:
        output.console().print(found)
    raise typer.Exit(0 if found.same else 1)
