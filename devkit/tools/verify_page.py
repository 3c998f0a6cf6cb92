"""The report of `verify` as one HTML page that needs nothing else."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devkit.tools.verify import VerifyReport

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 1.6rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #8884;
         vertical-align: top; }
td.what { font-family: ui-monospace, monospace; font-size: .85em; white-space: pre-wrap; }
.same { color: #1a7f37; } .close { color: #9a6700; } .differs { color: #cf222e; font-weight: 600; }
@media (prefers-color-scheme: dark) { .same { color: #4ac26b; } .close { color: #d4a72c; }
  .differs { color: #ff6b6b; } }
"""


def page(report: VerifyReport) -> str:
    """The page's text."""
    title = f"{report.path} on Triton {report.server}"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1>",
        f"<p class='{report.verdict}'>{html.escape(report.summary())}</p>",
    ]
    for model in report.models:
        parts.append(f"<h2>{html.escape(model.name)} {_mark(model.verdict)}</h2>")
        for text in (model.error, model.metadata, model.skipped, model.note):
            if text:
                parts.append(f"<p>{html.escape(text)}</p>")
        if model.requests:
            parts.append(
                "<table><thead><tr><th>request<th>output<th>type<th>verdict<th>what</tr></thead>"
                "<tbody>"
            )
            for request in model.requests:
                for output in request.outputs:
                    kind = f"{output.datatype} {list(output.shape)}" if output.datatype else ""
                    parts.append(
                        f"<tr><td>{request.origin} {request.number}<td>{html.escape(output.name)}"
                        f"<td>{html.escape(kind)}<td>{_mark(output.verdict)}"
                        f"<td class='what'>{html.escape(output.detail)}</tr>"
                    )
            parts.append("</tbody></table>")
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _mark(verdict: str) -> str:
    return f"<span class='{verdict}'>{verdict}</span>"
