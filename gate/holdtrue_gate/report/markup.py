"""HTML by construction: text can only become markup through `element`, and `element` escapes it.

A child or value that is a plain `str` is text of somebody else and is escaped; only what `element` made is markup. A
template engine gives the same promise with one more dependency, and takes it back with one filter.
"""

from __future__ import annotations

import html

from holdtrue_gate.report.text import printable

_VOID = frozenset({"meta", "input", "br", "hr", "col"})


class Markup(str):
    """Finished HTML. Nobody outside this module makes one."""

    __slots__ = ()


Child = str | None
Value = str | int | bool | None


def escape(text: str) -> Markup:
    """Text as HTML shows it, in an element or in a quoted attribute."""
    return Markup(html.escape(printable(text, lines=True), quote=True))


def element(tag: str, /, *children: Child, **attributes: Value) -> Markup:
    """One element. A trailing underscore of an attribute's name is dropped, others become hyphens (`class_`, `aria_label`);
    True is a bare attribute, None and False are left out."""
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{joined(*children)}</{tag}>")


def joined(*children: Child) -> Markup:
    """Several children after one another."""
    return Markup(
        "".join(child if isinstance(child, Markup) else escape(child) for child in children if child is not None)
    )


def page(head: Markup, body: Markup, language: str) -> str:
    """A whole document."""
    root = element("html", element("head", head), element("body", body), lang=language)
    return f"<!doctype html>\n{root}"


def style(css: str) -> Markup:
    """A style element of our own CSS, as it is: a hash in the page's policy names its bytes."""
    if "</" in css:
        raise ValueError("CSS must not end its element")
    return Markup(f"<style>{css}</style>")


def _attribute(name: str, value: Value) -> str:
    if value is None or value is False:
        return ""
    shown = name.rstrip("_").replace("_", "-")
    return f" {shown}" if value is True else f' {shown}="{escape(str(value))}"'
