"""How a debugger looks in a notebook: HTML of the source, the stack, the variables, and as text.

Frozen messages go in, text comes out. Colours are the theme's own, so that light and dark both
show them well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from devkit.control import messages
from devkit.debug import shown

Label = Callable[[str], str]
"""How a file is called in front of the user: `Cell In[7]` for a cell's."""

STYLE = """<style>
.devkit-dbg{font:13px/1.5 var(--jp-ui-font-family,system-ui,sans-serif);
color:var(--jp-ui-font-color1,inherit)}
.devkit-dbg .dim{color:var(--jp-ui-font-color2,#777)}
.devkit-dbg .name{font-weight:600;font-size:14px}
.devkit-dbg .stands{color:var(--jp-warn-color1,#b26a00);font-weight:600}
.devkit-dbg .runs{color:var(--jp-success-color1,#2e7d32);font-weight:600}
.devkit-dbg .gone{color:var(--jp-ui-font-color2,#777);font-weight:600}
.devkit-dbg .bad{color:var(--jp-error-color1,#c62828);white-space:pre-wrap}
.devkit-dbg .code,.devkit-dbg table.vars{font-family:var(--jp-code-font-family,monospace);
font-size:12px;line-height:1.45}
.devkit-dbg .code{border:1px solid var(--jp-border-color2,#8884);border-radius:3px;
background:var(--jp-cell-editor-background,transparent);padding:4px 0;overflow-x:auto}
.devkit-dbg .line{white-space:pre;padding-right:12px}
.devkit-dbg .line.here{background:var(--jp-warn-color3,#ffd54f55);
box-shadow:inset 3px 0 var(--jp-warn-color1,#b26a00)}
.devkit-dbg .mark{display:inline-block;width:1.6em;text-align:center;
color:var(--jp-error-color1,#c62828)}
.devkit-dbg .number{display:inline-block;width:3em;text-align:right;padding-right:1em;
color:var(--jp-ui-font-color2,#777);user-select:none}
.devkit-dbg table.vars{border-collapse:collapse;margin:0;border:0;width:auto}
.devkit-dbg table.vars tr{background:none}
.devkit-dbg table.vars td{padding:1px 18px 1px 4px;border:0;text-align:left;vertical-align:top;
max-width:640px;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.devkit-dbg table.vars tr.new td{background:var(--jp-info-color3,#0277bd22)}
.devkit-dbg .k{color:var(--jp-mirror-editor-keyword-color,#008000)}
.devkit-dbg .s{color:var(--jp-mirror-editor-string-color,#ba2121)}
.devkit-dbg .c{color:var(--jp-mirror-editor-comment-color,#408080);font-style:italic}
.devkit-dbg .m{color:var(--jp-mirror-editor-number-color,#080)}
.devkit-dbg .nf{color:var(--jp-mirror-editor-def-color,#00f)}
body[data-jp-theme-light="false"] .devkit-dbg .line.here{background:#ffb30033}
body[data-jp-theme-light="false"] .devkit-dbg table.vars tr.new td{background:#29b6f622}
</style>"""


def boxed(inner: str) -> str:
    """The piece of HTML that carries the style's class."""
    return f'<div class="devkit-dbg">{inner}</div>'


def head(told: messages.DebugSession, label: Label) -> str:
    """What is debugged, how it is, where it stands, for whom."""
    tone = {"stopped": "stands", "running": "runs"}.get(told.state, "gone")
    parts = [
        f'<span class="name">{escape(told.instance or told.model)}</span>',
        f'<span class="{tone}">{escape(shown.why(told))}</span>',
    ]
    if told.line:
        parts.append(f"<span>{escape(place(told.line, label))}"
                     f"{_in(told.function)}</span>")  # fmt: skip
    asked = shown.requests(told)
    if asked:
        parts.append(f'<span class="dim">{escape(asked)}</span>')
    if told.state == "stopped" and told.spare:
        parts.append(f'<span class="dim">{escape(told.spare)} serves the others</span>')
    if told.state == "running":
        parts.append(f'<span class="dim">gets {_words(shown.takes(told))}</span>')
    lines = [" &nbsp; ".join(parts)]
    if told.reason == "exception" and told.text:
        lines.append(f'<span class="bad">{escape(shown.clean(told.text))}</span>')
    for link in told.chain:
        lines.append(f'<span class="dim">called by {escape(_caller(link, label))}</span>')
    if told.callee:
        lines.append(f'<span class="dim">this line calls the model {escape(told.callee)}</span>')
    return boxed("<br>".join(lines))


def _words(text: str) -> str:
    """A sentence with `code` in it."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _in(function: str) -> str:
    return f" in <b>{escape(shown.clean(function))}</b>" if function else ""


def _caller(link: messages.ChainLink, label: Label) -> str:
    who = f"{link.model} ({link.instance})" if link.instance else link.model
    return f"{who} at {place(link.line, label)}" if link.line else who


def place(line: str, label: Label) -> str:
    """`path:line` as a person says it: `Cell In[3], line 9`."""
    path, number = shown.place(line)
    return f"{label(path)}, line {number}"


def source(lines: Sequence[shown.Line]) -> str:
    """Lines of source, the current one highlighted, breakpoints in the margin."""
    if not lines:
        return ""
    coloured = _coloured("\n".join(line.text for line in lines))
    rows = []
    for line, code in zip(lines, coloured, strict=True):
        here = " here" if line.here else ""
        rows.append(
            f'<div class="line{here}"><span class="mark">{line.mark}</span>'
            f'<span class="number">{line.number}</span>{code or " "}</div>'
        )
    return boxed(f'<div class="code">{"".join(rows)}</div>')


def _coloured(text: str) -> list[str]:
    """Each line as HTML, in the classes of the style above."""
    from pygments.lexers.python import PythonLexer

    out = [""]
    lexer = PythonLexer(ensurenl=False, stripnl=False)
    for kind, piece in lexer.get_tokens(text):
        name = _class(str(kind))
        for number, part in enumerate(piece.split("\n")):
            if number:
                out.append("")
            if part:
                said = escape(part)
                out[-1] += f'<span class="{name}">{said}</span>' if name else said
    count = text.count("\n") + 1
    return (out + [""] * count)[:count]


def _class(kind: str) -> str:
    for prefix, name in (
        ("Token.Keyword", "k"), ("Token.Operator.Word", "k"), ("Token.Literal.String", "s"),
        ("Token.Comment", "c"), ("Token.Literal.Number", "m"), ("Token.Name.Function", "nf"),
        ("Token.Name.Class", "nf"),
    ):  # fmt: skip
        if kind.startswith(prefix):
            return name
    return ""


def variables(found: Sequence[messages.Variable], changed: frozenset[str] = frozenset()) -> str:
    """A table of names, types and values; tensors say what they are."""
    rows = []
    for each in shown.own(found):
        new = ' class="new"' if each.name in changed else ""
        value = shown.value(each)
        title = escape(value, quote=True)
        rows.append(
            f'<tr{new}><td><b>{escape(each.name)}</b></td><td class="dim">'
            f'{escape(shown.kind(each))}</td><td title="{title}">{escape(value)}</td></tr>'
        )
    return boxed(f'<table class="vars">{"".join(rows)}</table>') if rows else ""


def value(found: messages.Variable) -> str:
    """What an expression gave."""
    if not found.value and found.tensor is None:
        return boxed('<span class="dim">done</span>')
    return boxed(f'<span class="code" style="border:0">{escape(shown.value(found, 4000))}</span>')


def problem(text: str) -> str:
    """An error, in red."""
    return boxed(f'<span class="bad">{_words(text)}</span>')


def answer(found: dict[str, Any]) -> str:
    """What the request was answered."""
    import numpy as np

    rows = []
    for name, array in found.items():
        values = np.array2string(array, threshold=20, max_line_width=100)
        what = f"{array.dtype}{list(array.shape)}"
        rows.append(
            f'<tr><td>→ <b>{escape(name)}</b></td><td class="dim">{escape(what)}</td>'
            f"<td>{escape(values)}</td></tr>"
        )
    return boxed(f'<table class="vars">{"".join(rows)}</table>')


def text(
    told: messages.DebugSession,
    label: Label,
    lines: Sequence[shown.Line] = (),
    found: Sequence[messages.Variable] = (),
) -> str:
    """All of it where there are no widgets."""
    where = f", {place(told.line, label)}" if told.line else ""
    out = [f"{told.instance or told.model}: {shown.why(told)}{where}"]
    if told.reason == "exception" and told.text:
        out.append(f"  {shown.clean(told.text)}")
    if told.state == "running":
        out.append(f"  gets {shown.takes(told)}")
    out += [
        f"{line.mark or ' '}{'→' if line.here else ' '}{line.number:>4}  {line.text}"
        for line in lines
    ]
    out += [f"  {each.name} = {shown.value(each)}" for each in shown.own(found)]
    return "\n".join(out)
