"""Hunks between two versions of files, and what source means beside its wording: pure, from bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdtrue_gate import meaning
from holdtrue_gate.bonds import Bonds
from holdtrue_gate.hunks import Diff, HunkKind, Version, lines_of

TEXT, SCRIPT, LINK, MODULE = "100644", "100755", "120000", "160000"


def file(text: str | bytes, mode: str = TEXT) -> Version:
    return Version(mode, text.encode() if isinstance(text, str) else text)


def numbers(diff: Diff) -> list[int]:
    return [hunk.number for hunk in diff.hunks]


def kinds(diff: Diff) -> list[HunkKind]:
    return [hunk.kind for hunk in diff.hunks]


LINE = st.sampled_from([b"a\n", b"b\n", b"\n", b"    c\n", b"a\r\n", b"\xff\xfe\n", b"\r\n", b"d\r", b"e"])
BODY = st.lists(LINE, max_size=12).map(b"".join)
CONTENT = st.one_of(BODY, st.binary(max_size=12))
VERSION = st.builds(Version, st.sampled_from([TEXT, TEXT, TEXT, SCRIPT, LINK]), CONTENT)
TREE = st.dictionaries(st.sampled_from(["a.py", "b.py", "c/d.txt", "ü e.bin"]), VERSION, max_size=4)


@settings(max_examples=100, deadline=None)
@given(parent=TREE, head=TREE, data=st.data())
def test_any_set_of_hunks_taken_back_is_the_head_with_the_parents_text_at_these_places(
    parent: dict[str, Version], head: dict[str, Version], data: st.DataObject
) -> None:
    diff = Diff(parent, head)
    assert diff.without([]) == head
    assert diff.reversed([]) == {}
    assert diff.without(numbers(diff)) == parent
    chosen = data.draw(st.sets(st.sampled_from(numbers(diff)))) if diff.hunks else set()
    # The same state, reached from the other side: the rest of the hunks taken back from a change that goes the other way.
    mixed = diff.without(chosen)
    back = Diff(parent, mixed)
    assert back.without(numbers(back)) == parent
    for hunk in diff.hunks:
        text = mixed.get(hunk.file) or mixed.get(hunk.old_file)
        lines = hunk.old_lines if hunk.number in chosen else hunk.new_lines
        if hunk.kind is HunkKind.LINES and text is not None:
            assert b"".join(lines) in text.data


@settings(max_examples=100, deadline=None)
@given(old=BODY, new=BODY)
def test_hunks_of_a_text_are_apart_in_order_and_change_something(old: bytes, new: bytes) -> None:
    diff = Diff({"a": file(old)}, {"a": file(new)})
    assert bool(diff.hunks) == (old != new)
    before_end = head_end = -1
    for hunk in diff.hunks:
        assert hunk.old_lines != hunk.new_lines
        assert hunk.parent[0] > before_end
        assert hunk.head[0] > head_end
        before_end, head_end = sum(hunk.parent), sum(hunk.head)
        assert b"".join(lines_of(new)[hunk.head[0] - 1 : head_end - 1]) == b"".join(hunk.new_lines)
        assert b"".join(lines_of(old)[hunk.parent[0] - 1 : before_end - 1]) == b"".join(hunk.old_lines)


def test_each_changed_place_is_a_hunk_of_its_own_with_its_lines_on_both_sides() -> None:
    diff = Diff({"m.py": file("a\nb\nc\nd\n")}, {"m.py": file("a\nB\nc\nd\ne\n")})
    assert [(h.id, h.file, h.head, h.parent, h.old_lines, h.new_lines) for h in diff.hunks] == [
        ("H1", "m.py", (2, 1), (2, 1), (b"b\n",), (b"B\n",)),
        ("H2", "m.py", (5, 1), (5, 0), (), (b"e\n",)),
    ]
    assert diff.without([1])["m.py"].data == b"a\nb\nc\nd\ne\n"


def test_an_added_function_is_the_function_and_not_the_end_of_one_and_the_head_of_the_next() -> None:
    one, two = "def a():\n    return 1\n\n", "def b():\n    return 1\n\n"
    (hunk,) = Diff({"m.py": file(one)}, {"m.py": file(one + two)}).hunks
    assert hunk.new_lines[0] == b"def b():\n"
    (hunk,) = Diff({"m.py": file(one + two + one)}, {"m.py": file(one + one)}).hunks
    assert hunk.old_lines[0] == b"def b():\n"
    ends = "@cached\ndef {}():\n    return 1\n\n"
    (hunk,) = Diff(
        {"m.py": file(ends.format("a") + ends.format("c"))}, {"m.py": file("".join(map(ends.format, "abc")))}
    ).hunks
    assert b"".join(hunk.new_lines).decode() == ends.format("b")
    (hunk,) = Diff(
        {"m.py": file("".join(map(ends.format, "abc")))}, {"m.py": file(ends.format("a") + ends.format("c"))}
    ).hunks
    assert b"".join(hunk.old_lines).decode() == ends.format("b")


def test_carriage_returns_and_a_missing_last_line_end_belong_to_their_lines() -> None:
    parent, head = b"a\r\nb\r\nc", b"a\nb\r\nc\n"
    diff = Diff({"m": file(parent)}, {"m": file(head)})
    assert [h.new_lines for h in diff.hunks] == [(b"a\n",), (b"c\n",)]
    assert diff.without([1])["m"].data == b"a\r\nb\r\nc\n"
    assert diff.without([2])["m"].data == b"a\nb\r\nc"


def test_added_deleted_binary_and_linked_files_are_one_hunk_each() -> None:
    parent = {"gone": file("x\n"), "bin": file(b"\0one\n\n"), "link": file("a", LINK), "sub": file("1" * 40, MODULE)}
    head = {
        "new": file("completely other\n"),
        "bin": file(b"\0two\n\n"),
        "link": file("a"),
        "sub": file("2" * 40, MODULE),
    }
    diff = Diff(parent, head)
    by_file = {hunk.file: hunk for hunk in diff.hunks}
    assert {name: hunk.kind for name, hunk in by_file.items()} == {
        "bin": HunkKind.CONTENT,
        "link": HunkKind.CONTENT,
        "sub": HunkKind.CONTENT,
        "new": HunkKind.ADDED,
        "gone": HunkKind.DELETED,
    }
    assert diff.reversed([by_file["new"].number]) == {"new": None}
    assert diff.reversed([by_file["gone"].number]) == {"gone": parent["gone"]}
    assert diff.reversed([by_file["link"].number]) == {"link": parent["link"]}


def test_a_mode_is_taken_back_without_the_text_and_the_text_without_the_mode() -> None:
    diff = Diff({"run": file("a\n")}, {"run": file("b\n", SCRIPT)})
    assert kinds(diff) == [HunkKind.MODE, HunkKind.LINES]
    assert diff.without([1]) == {"run": file("b\n")}
    assert diff.without([2]) == {"run": file("a\n", SCRIPT)}


def test_a_moved_file_keeps_its_edits_apart_from_the_move() -> None:
    text = "".join(f"line {n}\n" for n in range(20))
    diff = Diff({"old.py": file(text)}, {"pkg/new.py": file(text.replace("line 7", "seven"))})
    assert kinds(diff) == [HunkKind.RENAMED, HunkKind.LINES]
    assert diff.without([1]) == {"old.py": file(text.replace("line 7", "seven"))}
    assert diff.without([2]) == {"pkg/new.py": file(text)}


def test_a_removed_and_an_added_file_without_a_common_line_are_no_move() -> None:
    assert sorted(kinds(Diff({"a": file("x\n")}, {"b": file("y\n")}))) == [HunkKind.ADDED, HunkKind.DELETED]


def test_the_fingerprint_of_a_hunk_survives_lines_added_above_it() -> None:
    (one,) = Diff({"m": file("a\nb\n")}, {"m": file("a\nc\n")}).hunks
    (two,) = Diff({"m": file("z\na\nb\n")}, {"m": file("z\na\nc\n")}).hunks
    assert one.digest == two.digest
    assert one.head != two.head


def test_a_large_file_with_ever_the_same_lines_is_compared_in_time() -> None:
    lines = [f"x{n % 7}\n" for n in range(20_000)]
    diff = Diff({"m": file("".join(lines))}, {"m": file("".join([*lines[:9_000], "new\n", *lines[9_001:]]))})
    assert [hunk.head for hunk in diff.hunks] == [(9_001, 1)]


# --- wording


SAME = {
    "comment": ("x = 1  # one\n", "x = 1\n"),
    "docstring": ('def f():\n    "old"\n    return 1\n', 'def f():\n    """New."""\n\n    return 1\n'),
    "only a docstring": ('class A:\n    "a"\n', "class A:\n    pass\n"),
    "annotation": ("def f(a, *b):\n    return a\n", "def f(a: int, *b: str) -> int:\n    return a\n"),
    "local annotation": ("def f():\n    x = 1\n    return x\n", "def f():\n    x: int = 1\n    return x\n"),
    "layout": ("x = f(1, 2)\n", "x = f(\n    1,\n    2,\n)\n"),
    "import for annotations": (
        "def f(a):\n    return a\n",
        "from __future__ import annotations\nfrom m import T\ndef f(a: T):\n    return a\n",
    ),
    "checker's import": (
        "x = 1\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from m import T\nx = 1\n",
    ),
    "idle import": ("import os\nx = 1\n", "x = 1\n"),
}
DIFFERENT = {
    "value": ("x = 1\n", "x = 2\n"),
    "field": ("class A:\n    x = 1\n", "class A:\n    x: int = 1\n"),
    "read annotation": ("@route\ndef f(a: int): ...\n", "@route\ndef f(a: str): ...\n"),
    "text that is no docstring": ("x = 1\n'a'\nf('b')\n", "x = 1\n'a'\nf('c')\n"),
    "import with an effect": ("import plugin\n", "x = 1\n"),
    "used import": ("import os\nx = os.sep\n", "x = os.sep\n"),
    "default": ("def f(a: int = 1): ...\n", "def f(a: int = 2): ...\n"),
    "no Python": ("x = \n", "x = \n"),
}


@pytest.mark.parametrize(("old", "new"), SAME.values(), ids=SAME)
def test_what_only_a_reader_or_a_checker_sees_is_no_change(old: str, new: str) -> None:
    assert meaning.same(old.encode(), new.encode())


@pytest.mark.parametrize(("old", "new"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_a_run_can_see_is_a_change(old: str, new: str) -> None:
    assert not meaning.same(old.encode(), new.encode())


def test_names_that_nobody_defines_are_found_and_those_of_python_are_not() -> None:
    source = (
        b"import os\nfrom m import a as b\n"
        b"def f(x):\n    global g\n    g = 1\n    return [len(y) + x for y in os.sep] + helper(b)\n"
        b"class C:\n    z = 1\n    def m(self):\n        return z, g, __class__\n"
    )
    assert meaning.undefined(source) == {"helper", "z"}
    assert meaning.undefined(b"from m import *\nhelper()\n") == frozenset()


# --- bonds


def bonds(parent: dict[str, str], head: dict[str, str], others: tuple[str, ...] = ()) -> Bonds:
    old = {path: file(text) for path, text in parent.items()}
    new = {path: file(text) for path, text in head.items()}
    return Bonds(Diff(old, new), old, new, others)


USE = "def price(n):\n    return n + 1\n\n\ndef tax(n):\n    return n\n"
USED = "def price(n):\n    return times(n)\n\n\ndef tax(n):\n    return n\n\n\ndef times(n):\n    return n * 10\n"


def test_a_definition_goes_with_its_use_and_the_use_goes_alone() -> None:
    found = bonds({"m.py": USE}, {"m.py": USED})
    use, definition = numbers(found.diff)
    assert found.closed([definition], [use, definition]) == {use, definition}
    assert found.closed([use], [use, definition]) == {use}
    assert {(b.kind, b.name) for b in found.certain([definition])} == {("undefined", "times")}


def test_an_old_use_brings_back_the_old_definition() -> None:
    found = bonds({"m.py": USED}, {"m.py": USE})
    use, definition = numbers(found.diff)
    assert found.closed([use], [use, definition]) == {use, definition}
    assert found.closed([definition], [use, definition]) == {definition}
    assert found.only_old([definition])
    assert not found.only_old([use])


def test_an_import_goes_with_the_module_that_it_needs() -> None:
    head = {"pkg/a.py": "from pkg.b import f\nfrom . import c\nx = f(c)\n", "pkg/b.py": "def f(a):\n    return 1\n"}
    found = bonds({"pkg/a.py": "x = 1\n"}, head, ("pkg/__init__.py", "pkg/c.py"))
    by_file = {hunk.file: hunk.number for hunk in found.diff.hunks}
    every = list(by_file.values())
    assert found.closed([by_file["pkg/b.py"]], every) == set(every)
    assert found.closed([by_file["pkg/a.py"]], every) == {by_file["pkg/a.py"]}
    assert found.vanished([by_file["pkg/b.py"]]) == {"b", "f", "a"}
    assert found.vanished([by_file["pkg/a.py"]]) == frozenset()


def test_a_part_of_a_statement_goes_with_the_rest_of_it() -> None:
    found = bonds({"m.py": "x = 1\ny = 2\nz = 3\n"}, {"m.py": "x = [\n    1,\ny := 2,\nz := 3]\n"})
    every = numbers(found.diff)
    for number in every:
        assert not found.certain(found.closed([number], every))


def test_an_attribute_or_a_keyword_that_is_gone_is_only_likely_missed() -> None:
    parent = {"m.py": "class A:\n    pass\n\n\ndef f(a):\n    return 1\n"}
    head = {
        "m.py": "class A:\n    def go(self, fast=False):\n        return 2\n\n\ndef f(a):\n    return a.go(fast=True)\n"
    }
    found = bonds(parent, head)
    method, use = numbers(found.diff)
    assert found.likely([method]) == {"go", "fast"}
    assert found.certain([method]) == frozenset()
    assert found.likely([use]) == found.likely([method, use]) == frozenset()


def test_a_function_that_loses_its_end_is_likely_broken() -> None:
    parent = "def f(n):\n    return g(n)\n\n\ndef h():\n    pass\n"
    head = (
        "def f(n):\n    found = g(n)\n    check(n)\n    if not found:\n        raise ValueError\n    return found\n"
        "\n\ndef h():\n    pass\n"
    )
    found = bonds({"m.py": parent}, {"m.py": head})
    (hunk,) = numbers(found.diff)
    assert found.likely([hunk]) == frozenset()
    parent = parent.replace("return g(n)", "return g(\n        n\n    )")
    head = head.replace("found = g(n)", "found = g(\n        n\n    )")
    found = bonds({"m.py": parent}, {"m.py": head})
    assignment, end = numbers(found.diff)
    assert found.likely([end]) == {"f"}
    assert {b.name for b in found.certain([assignment])} == {"found"}
    assert found.likely([assignment, end]) == frozenset()


def test_a_hunk_of_new_definitions_alone_is_told_from_one_that_changes_what_was_there() -> None:
    found = bonds({"m.py": USE}, {"m.py": USED, "new.py": "x = 1\n"})
    new = {hunk.number: found.only_new([hunk.number]) for hunk in found.diff.hunks}
    assert list(new.values()) == [False, True, True]
    special = bonds(
        {"m.py": "class A:\n    x = 1\n"}, {"m.py": "class A:\n    x = 1\n    def __len__(self):\n        return 1\n"}
    )
    assert not special.only_new(numbers(special.diff))
    plain = bonds(
        {"m.py": "class A:\n    x = 1\n"}, {"m.py": "class A:\n    x = 1\n    def size(self):\n        return 1\n"}
    )
    assert plain.only_new(numbers(plain.diff))


def test_a_silent_hunk_says_why_it_is_silent() -> None:
    found = bonds(
        {"m.py": "# one\nx = 1\n\ndef f(a):\n    return a\n", "m.pyi": "x: int\n", "data.txt": "# one\n"},
        {"m.py": "# two\nx = 1\n\n\ndef f(a: int):\n    return a\n", "m.pyi": "x: str\n", "data.txt": "# two\n"},
    )
    told = [(hunk.file, found.silent(hunk)) for hunk in found.diff.hunks]
    assert told == [
        ("data.txt", ""),
        ("m.py", "only comments"),
        ("m.py", "only comments, docstrings, annotations or layout"),
        ("m.pyi", "types for a checker, which are never run"),
    ]
