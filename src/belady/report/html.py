"""A self-contained HTML report: key figures, tables, plots and the resolved configuration in one file.

The page loads nothing: no script, no font, no image from elsewhere, and a content policy that says so. Every string
handed in is escaped; only an `Svg` made by `belady.report.svg` is embedded as markup.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import msgspec

from belady.report.svg import STYLE, Svg
from belady.report.table import Cell, format_cell, numeric_columns

_CSS = (
    STYLE
    + """
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 32px 20px 64px; max-width: 1120px; color: var(--ink); background: var(--paper);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 12px; }
p { margin: 0 0 12px; color: var(--muted); max-width: 78ch; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 20px 0; }
.figure { border: 1px solid var(--grid); border-radius: 8px; padding: 12px 14px; }
.figure b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; } .figure span { color: var(--muted); font-size: 13px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: 6px; white-space: nowrap; }
th, td { text-align: left; padding: 5px 16px 5px 0; border-bottom: 1px solid var(--grid); white-space: nowrap; }
th { color: var(--muted); font-weight: 500; } .right { text-align: right; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(500px, 100%), 1fr)); gap: 20px; margin: 12px 0; }
figure { margin: 0; border: 1px solid var(--grid); border-radius: 8px; padding: 10px; }
figcaption { color: var(--muted); font-size: 13px; padding: 4px 8px; }
details { margin-top: 20px; } summary { cursor: pointer; font-weight: 600; }
pre { overflow-x: auto; border: 1px solid var(--grid); border-radius: 8px; padding: 12px; font-size: 12.5px; }
"""
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """One number worth reading first, already formatted with its unit; `note` says beside what."""

    label: str
    value: str
    note: str = ""


class Report:
    """Collects the parts of one page in order; `render` may be called at any time and changes nothing."""

    def __init__(self, title: str, subtitle: str = "") -> None:
        self._title = title
        self._parts = [f"<header><h1>{_safe(title)}</h1>"]
        self._parts.append((f"<p>{_safe(subtitle)}</p>" if subtitle else "") + "</header>")

    def heading(self, text: str) -> None:
        """Begins a section."""
        self._parts.append(f"<h2>{_safe(text)}</h2>")

    def text(self, text: str) -> None:
        """One paragraph of plain text."""
        self._parts.append(f"<p>{_safe(text)}</p>")

    def figures(self, figures: Sequence[KeyFigure]) -> None:
        """A row of key figures."""
        cards = (
            f'<div class="figure"><span>{_safe(f.label)}</span><b>{_safe(f.value)}</b><span>{_safe(f.note)}</span></div>'
            for f in figures
        )
        self._parts.append(f'<div class="figures">{"".join(cards)}</div>')

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """A table; columns of numbers are aligned to the right."""
        kinds = [' class="right"' if number else "" for number in numeric_columns(columns, rows)]
        head = "".join(f"<th{kind}>{_safe(name)}</th>" for name, kind in zip(columns, kinds, strict=True))
        body = "".join(
            "<tr>"
            + "".join(f"<td{kind}>{_safe(format_cell(c))}</td>" for c, kind in zip(row, kinds, strict=True))
            + "</tr>"
            for row in rows
        )
        self._parts.append(
            f'<div class="wide"><table><caption>{_safe(title)}</caption><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def plots(self, *plots: Svg | tuple[Svg, str]) -> None:
        """Plots side by side where the page is wide enough, each alone or with a caption."""
        out = []
        for plot in plots:
            svg, caption = plot if isinstance(plot, tuple) else (plot, "")
            if not isinstance(svg, Svg):
                raise TypeError("plots() takes drawings made by belady.report.svg, not markup from elsewhere")
            note = f"<figcaption>{_safe(caption)}</figcaption>" if caption else ""
            out.append(f"<figure>{svg}{note}</figure>")
        self._parts.append(f'<div class="plots">{"".join(out)}</div>')

    def config(self, title: str, value: object) -> None:
        """A folded block of JSON: anything that msgspec can encode, such as a resolved configuration."""
        text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        self._parts.append(f"<details><summary>{_safe(title)}</summary><pre>{_safe(text)}</pre></details>")

    def render(self) -> str:
        """The whole page."""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f"<title>{_safe(self._title)}</title><style>{_CSS}</style></head><body>\n"
            + "\n".join(self._parts)
            + "\n</body></html>\n"
        )

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Writes the page in one piece: readers see the old file or the new one, never half of it."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        draft.write_text(self.render(), encoding="utf-8", errors="backslashreplace")
        draft.replace(target)
        return target


def _safe(text: str) -> str:
    """Escaped for element text, without control characters other than line breaks."""
    return escape("".join(c if c.isprintable() or c == "\n" else " " for c in text), quote=True)
