"""The folder of a new finding: its number, its slug, `finding.toml` and a test that fails until somebody writes it.

Two people or two processes that ask at once get two numbers: the number is taken by making the folder `F-0007`, which only
one of them can, and given its slug by a rename. Nothing that exists is ever written over.
"""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdtrue_gate.errors import CannotJudgeError
from holdtrue_gate.finding_toml import literal
from holdtrue_gate.findings import FILE, FOLDER

_ID = re.compile(r"\.?(F-(?P<number>[0-9]{4,}))(?:-.*)?\Z")
_SLUG_LENGTH = 60
_TRIES = 10_000

_TOML = """\
id = {id}
title = {title}
category = {category}
severity = {severity}
{invariant}status = "open"
tests = {tests}
expected_at_parent = "assertion"
"""

_SKELETON = '''\
"""{id}: {title}"""

import pytest


def {function}():
    # Show the fault: fail with an assertion where it is, pass where it is not. Then take this line out.
    pytest.fail("{id}: this test is not written yet")
'''


@dataclass(frozen=True)
class Draft:
    """What a new finding is to say. `tests` are existing tests; `function` is the name of one to be written instead."""

    title: str
    category: str
    severity: str
    invariant: str | None = None
    tests: tuple[str, ...] = ()
    function: str | None = None


@dataclass(frozen=True)
class Made:
    """A folder that was made: the finding's id, and its files relative to the project."""

    id: str
    folder: str
    files: tuple[str, ...]
    tests: tuple[str, ...]


def slug_of(title: str) -> str:
    """A title as lower-case ASCII words joined by hyphens; letters without one are left out."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    # An apostrophe joins what it stands between: the store's lock is stores-lock, not store-s-lock.
    words = re.findall(r"[a-z0-9]+", plain.replace("'", "").lower())
    slug = ""
    for word in words:
        longer = f"{slug}-{word}" if slug else word[:_SLUG_LENGTH]
        if len(longer) > _SLUG_LENGTH:
            break
        slug = longer
    return slug or "untitled"


def numbers(root: Path) -> set[int]:
    """The numbers of the folders on disk, also of one that is being made."""
    folder = root / FOLDER
    if not folder.is_dir():
        return set()
    found = (_ID.match(path.name) for path in folder.iterdir())
    return {int(match["number"]) for match in found if match}


def make(root: Path, draft: Draft, taken: Iterable[int]) -> Made:
    """Make the folder with the next number above those on disk and those `taken` elsewhere. Raises CannotJudgeError."""
    elsewhere = set(taken)
    folder = root / FOLDER
    folder.mkdir(exist_ok=True)
    for _ in range(_TRIES):
        number = max(elsewhere | numbers(root), default=0) + 1
        # Hidden until it is whole: whoever reads the findings meanwhile must not meet half of one.
        reserved = folder / f".F-{number:04d}"
        try:
            reserved.mkdir()
        except FileExistsError:
            continue
        try:
            # Between the look and the mkdir another one may have taken the number and renamed its folder already.
            if len([path for path in folder.iterdir() if _number(path) == number]) > 1:
                reserved.rmdir()
                continue
            return _fill(root, reserved, draft)
        except BaseException:
            shutil.rmtree(reserved, ignore_errors=True)
            raise
    raise CannotJudgeError("no-number", f"no free number was found in {FOLDER}/ after {_TRIES} tries")


def _number(path: Path) -> int | None:
    match = _ID.match(path.name)
    return int(match["number"]) if match else None


def _fill(root: Path, reserved: Path, draft: Draft) -> Made:
    id_ = reserved.name.removeprefix(".")
    slug = slug_of(draft.title)
    folder = f"{FOLDER}/{id_}-{slug}"
    texts: dict[str, str] = {}
    tests = draft.tests
    if not tests:
        function = draft.function or f"test_{slug.replace('-', '_')}"
        file = f"{function}.py"
        texts[file] = _SKELETON.format(id=id_, title=_docstring(draft.title), function=function)
        tests = (f"{folder}/{file}::{function}",)
    texts[FILE] = _TOML.format(
        id=literal(id_),
        title=literal(draft.title),
        category=literal(draft.category),
        severity=literal(draft.severity),
        invariant=f"invariant = {literal(draft.invariant)}\n" if draft.invariant else "",
        tests=literal(list(tests)),
    )
    _write(reserved, texts)
    reserved.rename(root / folder)
    return Made(id_, folder, tuple(f"{folder}/{name}" for name in sorted(texts)), tests)


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        with (folder / name).open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)


def _docstring(title: str) -> str:
    """The title inside the quotes of a docstring: nothing in it ends them."""
    escaped = title.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in escaped)
