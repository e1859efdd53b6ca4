"""The page is well-formed, asks the network for nothing, and shows strings as strings."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from belady.report.axis import Axis
from belady.report.html import KeyFigure, Report
from belady.report.svg import Series, line_plot

VOID = {"meta", "br"}
EVIL = "</pre></style><script>alert('x')</script><img src=x onerror=alert(1)>\x07"


class Page(HTMLParser):
    """Checks that every element that opens also closes, in order; keeps tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend(attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def _report(text: str) -> Report:
    report = Report(text, text)
    report.figures([KeyFigure(text, text, text), KeyFigure("plain", "1")])
    report.heading(text)
    report.text(text)
    report.table(text, [text, "n"], [[text, 1], ["x", None]])
    series = [Series(name=text, x=[0.0, 1.0], y=[1.0, 2.0])]
    plot = line_plot(text, series, Axis(label=text), Axis(label="y"))
    report.plots(plot, (plot, text))
    report.config(text, {text: text, "seed": 7})
    return report


def test_page_is_well_formed_and_complete() -> None:
    page = Page(_report("harmless").render())
    assert page.tags.count("svg") == 2 and page.tags.count("table") == 1 and page.tags.count("details") == 1
    config = next(w for w in page.words if w.lstrip().startswith("{") and "seed" in w)
    assert json.loads(config) == {"harmless": "harmless", "seed": 7}


def test_strings_never_become_markup() -> None:
    page = Page(_report(EVIL).render())
    assert not {"script", "img"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert sum("alert('x')" in word for word in page.words) >= 10


def test_page_loads_nothing() -> None:
    page = Page(_report("harmless").render())
    assert not {"script", "link", "img", "iframe", "a"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("src", "href", "srcset")]
    policy = [value for name, value in page.attributes if name == "content"]
    assert "default-src 'none'; style-src 'unsafe-inline'" in policy
    style = "".join(page.words)
    assert "url(" not in style and "@import" not in style


def test_only_our_drawings_are_embedded() -> None:
    markup: Any = "<svg></svg>"
    with pytest.raises(TypeError, match=r"belady\.report\.svg"):
        Report("t").plots(markup)


def test_a_row_of_another_width_is_named() -> None:
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        Report("t").table("t", ["a", "b"], [[1]])


def test_write_replaces_the_file_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "page.html"
    _report("one").write(target)
    report = Report("two \ud800 ü")
    assert report.write(target) == target
    assert "two" in target.read_text("utf-8") and [p.name for p in target.parent.iterdir()] == ["page.html"]
