"""The HTML report in a real browser: it loads and runs nothing, is read in the dark, on a phone, by keyboard, on paper."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gate.tests import report_documents as documents
from gate.tests.browser import Browser, browser
from gate.tests.report_documents import HOSTILE, commit, document, full, hostile, judged
from holdtrue_gate.report import kinds

PAGES = {"full": full, "long": documents.long, "hostile": hostile, "nothing": document}
each_page = pytest.mark.parametrize("name", PAGES)
each_width = pytest.mark.parametrize("width", [360, 800, 1440])
each_scheme = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {name: write(folder / f"{name}.html", made()) for name, made in PAGES.items()}


def write(path: Path, data: documents.Data) -> Path:
    path.write_text(kinds.render("html", data), encoding="utf-8")
    return path


# --- without a browser


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the ids that they define."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@each_page
def test_the_page_has_neither_script_nor_address_nor_inline_style(name: str) -> None:
    for tag, attributes in Elements(kinds.render("html", PAGES[name]())).found:
        assert tag not in (
            "script",
            "link",
            "img",
            "iframe",
            "object",
            "embed",
            "form",
            "base",
            "svg",
            "audio",
            "video",
        )
        assert not any(key.startswith("on") or key in ("style", "src", "srcset", "action") for key in attributes)
        assert (attributes.get("href") or "#").startswith("#")


@each_page
def test_ids_are_there_once_and_every_link_has_its_target(name: str) -> None:
    found = Elements(kinds.render("html", PAGES[name]())).found
    ids = [attributes["id"] for _, attributes in found if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {str(attributes["href"])[1:] for _, attributes in found if "href" in attributes} <= set(ids)


def test_the_policy_allows_the_own_style_sheet_and_nothing_else() -> None:
    text = kinds.render("html", full())
    (css,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    (policy,) = [a["content"] for tag, a in Elements(text).found if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert "url(" not in css
    assert "@import" not in css


def test_untrusted_text_is_text_wherever_it_stands() -> None:
    text = kinds.render("html", hostile())
    plain = {tag for tag, _ in Elements(kinds.render("html", full())).found}
    assert {tag for tag, _ in Elements(text).found} <= plain
    assert html.escape('<script>document.title="pwned"</script>') in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", text)


def test_a_hostile_page_has_the_elements_of_a_harmless_one() -> None:
    harmless = json.loads(json.dumps(hostile()).replace(json.dumps(HOSTILE)[1:-1], "x"))
    tags = [[tag for tag, _ in Elements(kinds.render("html", data)).found] for data in (hostile(), harmless)]
    # A very long id is shown once more in full, and a shortened one is marked; nothing else may differ.
    assert set(tags[0]) == set(tags[1])
    assert abs(len(tags[0]) - len(tags[1])) <= 4


def test_output_is_cut_at_its_beginning_and_says_so() -> None:
    test = judged("t.py::test_a")
    test["runs"][3]["output"] = "first\n" + "x" * 9000 + "\nlast"
    text = kinds.render("html", document(commit(test)))
    assert "Output (its end)" in text
    assert "last</code>" in text
    assert "first\n" not in text
    assert len(text) < 60_000


def test_colours_of_a_terminal_are_dropped_and_other_controls_are_shown() -> None:
    test = judged("t.py::test_a")
    test["runs"][3]["output"] = "\x1b[31mred\x1b[0m \x1b]0;title\x07"
    text = kinds.render("html", document(commit(test)))
    assert "red \\x1b]0;title\\x07" in text


# --- in the browser

# Relative luminance and contrast: WCAG 2.2, section 1.4.3. Answers what has too little of it.
CONTRAST = """
(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => { const f = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const ground = (node) => { for (; node; node = node.parentElement) {
      const found = rgba(getComputedStyle(node).backgroundColor); if (found[3] === 255) return found; }
    return [255, 255, 255, 255]; };
  const bad = [];
  let looked = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || node.closest('.unseen, .skip')) continue;
    looked += 1;
    const [a, b] = [light(rgba(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push([node.className, walker.currentNode.data.slice(0, 40), ratio]);
  }
  return {looked, bad};
})()
"""
OPEN_ALL = "document.querySelectorAll('details').forEach((one) => one.open = true)"


@each_page
@each_width
def test_the_page_loads_nothing_and_fits_its_width(
    chromium: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    chromium.open(pages[name], width=width)
    chromium.evaluate(OPEN_ALL)
    assert chromium.requests() == [pages[name].as_uri()]
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    outside = "[...document.querySelectorAll('main *')].filter((one) => !one.closest('.scroll, pre, .unseen')"
    outside += f" && one.getBoundingClientRect().right > {width} + 1).map((one) => one.outerHTML.slice(0, 80))"
    assert chromium.evaluate(outside) == []


def test_the_policy_holds_in_the_browser(chromium: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    chromium.open(pages["full"])
    assert not [event for event in chromium.events if event.get("method") == "Log.entryAdded"]
    assert chromium.evaluate("getComputedStyle(document.querySelector('.commit')).borderRadius") == "14px"
    # The check can fail: markup that came through would be stopped, and heard of.
    text = pages["full"].read_text(encoding="utf-8")
    broken = tmp_path / "broken.html"
    broken.write_text(
        text.replace("<main", "<script>document.title='pwned'</script><img src=x><main style='color:red'")
    )
    chromium.open(broken)
    chromium.evaluate("1")
    told = [e["params"]["entry"]["text"] for e in chromium.events if e.get("method") == "Log.entryAdded"]
    assert len([words for words in told if "Content Security Policy" in words]) >= 3
    assert "pwned" not in chromium.evaluate("document.title")


def test_hostile_text_is_shown_as_it_is_and_does_nothing(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["hostile"])
    assert chromium.evaluate("document.title").startswith("gate: NO")
    assert not [event for event in chromium.events if event.get("method") == "Log.entryAdded"]
    assert chromium.evaluate("document.querySelectorAll('script, img, iframe, object').length") == 0
    shown = chromium.evaluate("document.querySelector('main h2').textContent")
    assert shown.startswith('<script>document.title="pwned"</script><img src=x onerror=alert(1)>')


@each_page
@each_scheme
def test_every_text_has_enough_contrast(chromium: Browser, pages: dict[str, Path], name: str, dark: bool) -> None:
    chromium.open(pages[name], dark=dark)
    chromium.evaluate(OPEN_ALL)
    found = chromium.evaluate(CONTRAST)
    assert found["looked"] > 10
    assert found["bad"] == []


def test_the_check_of_contrast_sees_grey_on_grey(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["full"])
    chromium.evaluate("document.querySelector('h1 span:last-child').style.color = '#ccc'")
    assert len(chromium.evaluate(CONTRAST)["bad"]) == 1


def test_dark_and_light_are_two_looks(chromium: Browser, pages: dict[str, Path]) -> None:
    grounds = []
    for dark in (False, True):
        chromium.open(pages["full"], dark=dark)
        grounds.append(chromium.evaluate("getComputedStyle(document.body).backgroundColor"))
    light, night = ([int(part) for part in re.findall(r"\d+", ground)] for ground in grounds)
    assert min(light) > 200
    assert max(night) < 60


FOCUSED = "(() => { const it = document.activeElement; return it.tagName + '.' + it.className; })()"


def test_a_keyboard_reaches_and_opens_every_test(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["full"])
    reached = []
    for _ in range(80):
        chromium.press("Tab")
        reached.append(chromium.evaluate(FOCUSED))
        if reached[-1].startswith("BODY"):
            break
    assert reached[0] == "A.skip"
    summaries = chromium.evaluate("document.querySelectorAll('summary').length")
    assert sum(one.startswith("SUMMARY") for one in reached) == summaries
    assert "DIV.scroll" in reached
    chromium.open(pages["full"])
    while not chromium.evaluate(FOCUSED).startswith("SUMMARY"):
        chromium.press("Tab")
    assert chromium.evaluate("document.activeElement.parentElement.open") is False
    chromium.press("Enter")
    assert chromium.evaluate("document.activeElement.parentElement.open") is True
    # The one who tabs sees where he is.
    assert chromium.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_long_list_is_narrowed_by_keyboard(chromium: Browser, pages: dict[str, Path]) -> None:
    shown = "[...document.querySelectorAll('article:first-child .test')].filter((one) => one.offsetHeight).length"
    chromium.open(pages["long"])
    assert chromium.evaluate(shown) == 50
    while not chromium.evaluate(FOCUSED).startswith("INPUT"):
        chromium.press("Tab")
    chromium.press("ArrowRight")
    assert chromium.evaluate(shown) == 10
    chromium.press("ArrowRight")
    assert chromium.evaluate(shown) == 40


def test_a_link_from_the_table_opens_the_test(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["full"])
    target = "document.getElementById(document.querySelector('.matrix tbody a').getAttribute('href').slice(1))"
    assert chromium.evaluate(f"{target}.closest('details').open") is False
    chromium.evaluate("document.querySelector('.matrix tbody a').focus()")
    chromium.press("Enter")
    assert chromium.evaluate(f"{target}.closest('details').open") is True


def test_a_screen_reader_hears_headings_in_order_the_table_and_what_signs_mean(
    chromium: Browser, pages: dict[str, Path]
) -> None:
    chromium.open(pages["full"])
    levels = chromium.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5')].map((one) => Number(one.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    nodes: list[dict[str, Any]] = chromium.ask("Accessibility.getFullAXTree")["nodes"]
    named = {
        (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
    }
    roles = {role for role, _ in named}
    assert {"main", "banner", "contentinfo", "navigation", "article", "table", "columnheader", "rowheader"} <= roles
    assert any(role == "article" and name == "fix: take a discount once" for role, name in named)
    cells = {name for role, name in named if role in ("cell", "gridcell")}
    assert {"fails without it (own-assertion)", "passes without it", "missing-api without it"} <= cells
    assert not [node for node in nodes if node["role"]["value"] in ("link", "radio") and not node["name"]["value"]]


def test_on_paper_everything_is_open(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["full"])
    hidden = "[...document.querySelectorAll('.side')].filter((one) => !one.checkVisibility()).length"
    assert chromium.evaluate(hidden) > 0
    chromium.ask("Emulation.setEmulatedMedia", media="print")
    assert chromium.evaluate(hidden) == 0
    paper = chromium.print()
    assert paper.startswith(b"%PDF")
    chromium.ask("Emulation.setEmulatedMedia", media="")


@each_scheme
@pytest.mark.parametrize("width", [420, 1280])
def test_a_screenshot_is_a_picture_with_the_result_in_its_colour(
    chromium: Browser, pages: dict[str, Path], tmp_path: Path, width: int, dark: bool
) -> None:
    chromium.open(pages["full"], width=width, height=200, dark=dark)
    red, green, blue = average(chromium.screenshot(tmp_path / "page.png"))
    assert (max(red, green, blue) < 70) if dark else (min(red, green, blue) > 200)


def average(png: bytes) -> tuple[float, float, float]:
    """The mean colour of an 8-bit RGB or RGBA picture (PNG, ISO/IEC 15948, without interlace), of its unfiltered rows."""
    width, height = int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
    channels = {2: 3, 6: 4}[png[25]]
    data, at = b"", 8
    while at < len(png):
        size = int.from_bytes(png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + size]
        at += 12 + size
    raw, stride = zlib.decompress(data), width * channels
    before, sums = bytearray(stride), [0, 0, 0]
    for row in range(height):
        start = row * (stride + 1)
        line = bytearray(raw[start + 1 : start + 1 + stride])
        unfilter(raw[start], line, before, channels)
        for channel in range(3):
            sums[channel] += sum(line[channel::channels])
        before = line
    red, green, blue = (total / (width * height) for total in sums)
    return red, green, blue


def unfilter(kind: int, line: bytearray, before: bytearray, step: int) -> None:
    for place in range(len(line)):
        left = line[place - step] if place >= step else 0
        above, corner = before[place], before[place - step] if place >= step else 0
        if kind == 1:
            guess = left
        elif kind == 2:
            guess = above
        elif kind == 3:
            guess = (left + above) // 2
        elif kind == 4:
            estimate = left + above - corner
            guess = min((left, above, corner), key=lambda value: abs(estimate - value))
        else:
            return
        line[place] = (line[place] + guess) & 255
