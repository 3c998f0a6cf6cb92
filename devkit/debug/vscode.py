"""`.vscode/launch.json`: an attach configuration for each instance, beside all that is in it.

What the file holds of its owner's, comments too, stays letter by letter; a file that cannot be
understood is left alone. It is written whole or not at all.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from devkit.debug import jsonc
from devkit.errors import DebugError

FILE = Path(".vscode") / "launch.json"
_INDENT = " " * 4
_NEW = '{\n    "version": "0.2.0",\n    "configurations": []\n}\n'


def name(instance: str) -> str:
    """What the configuration of an instance is called."""
    return f"devkit: {instance}"


def configuration(instance: str, port: int, root: str) -> dict[str, Any]:
    """How VS Code attaches to an instance: `root` is the workspace's folder on this machine."""
    return {
        "name": name(instance),
        "type": "debugpy",
        "request": "attach",
        "connect": {"host": "127.0.0.1", "port": port},
        # The same folder when VS Code runs here; elsewhere it finds its own copy of the files.
        "pathMappings": [{"localRoot": "${workspaceFolder}", "remoteRoot": root}],
        "justMyCode": True,
    }


def ports(text: str) -> dict[str, int]:
    """The ports that the configurations of a file have, by their names."""
    try:
        root = jsonc.parse(text)
    except jsonc.JsoncError:
        return {}
    found = {}
    for each in _rows(root):
        value = each.value
        if isinstance(value, dict) and isinstance(value.get("connect"), dict):
            port = value["connect"].get("port")
            if isinstance(port, int) and isinstance(value.get("name"), str):
                found[value["name"]] = port
    return found


def _rows(root: jsonc.Node) -> list[jsonc.Node]:
    rows = root.members.get("configurations")
    return rows.items if rows is not None else []


def updated(text: str, wanted: Mapping[str, int], root: str) -> str:
    """The file's text with a configuration for each instance of `wanted`, on its port.

    Of one that is there only the address is changed. Raises DebugError.
    """
    text = text if text.strip() else _NEW
    for instance, port in wanted.items():
        text = _with(text, configuration(instance, port, root))
    return text


def _with(text: str, wanted: dict[str, Any]) -> str:
    try:
        found = jsonc.parse(text)
    except jsonc.JsoncError as problem:
        raise DebugError(str(problem)) from None
    if not isinstance(found.value, dict):
        raise DebugError("it holds no object")
    rows = found.members.get("configurations")
    if rows is None:
        text = jsonc.appended(text, found, '"configurations": []', _INDENT)
        return _with(text, wanted)
    if not isinstance(rows.value, list):
        raise DebugError("its 'configurations' are no list")
    for each in rows.items:
        if isinstance(each.value, dict) and each.value.get("name") == wanted["name"]:
            return _moved(text, each, wanted["connect"])
    body = json.dumps(wanted, indent=4, ensure_ascii=False).replace("\n", "\n" + 2 * _INDENT)
    return jsonc.appended(text, rows, body, 2 * _INDENT)


def _moved(text: str, row: jsonc.Node, connect: dict[str, Any]) -> str:
    if row.value.get("connect") == connect:
        return text
    written = json.dumps(connect)
    known = row.members.get("connect")
    if known is not None:
        return jsonc.replaced(text, known, written)
    return jsonc.appended(text, row, f'"connect": {written}', 3 * _INDENT)


def write(folder: Path, wanted: Mapping[str, int]) -> Path:
    """Bring a folder's `launch.json` up to date; the file. Raises DebugError."""
    file = folder / FILE
    target = Path(os.path.realpath(file))
    before = read(folder)
    newline = "\r\n" if "\r\n" in before else "\n"
    try:
        text = updated(before.replace("\r\n", "\n"), wanted, str(folder))
    except DebugError as problem:
        raise DebugError(
            f"{file} is left as it is: {problem.message}",
            remedy="correct it, or move it away and run this again",
        ) from None
    if text != before.replace("\r\n", "\n"):
        _replace(target, text.replace("\n", newline))
    return file


def read(folder: Path) -> str:
    """The text of a folder's `launch.json`, empty where there is none. Raises DebugError."""
    file = folder / FILE
    try:
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as problem:
        raise DebugError(f"{file} cannot be read: {problem}") from None


def _replace(target: Path, text: str) -> None:
    """Write a file in one step, with the rights it had."""
    target.parent.mkdir(parents=True, exist_ok=True)
    number, partial = tempfile.mkstemp(dir=target.parent, prefix=".launch.", suffix=".json")
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(text.encode("utf-8"))
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
        os.chmod(partial, mode)
        os.replace(partial, target)
    except BaseException:
        os.unlink(partial)
        raise
