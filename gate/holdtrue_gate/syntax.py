"""Syntax trees as text: names, source on one line, and normal forms that do not see layout, variables or literals."""

from __future__ import annotations

import ast
import re

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def dotted(node: ast.expr) -> str:
    """`a.b.c` of a name or attribute, through calls; empty for anything else at its root."""
    if isinstance(node, ast.Call):
        return dotted(node.func)
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def tail(node: ast.expr) -> str:
    """The last component of `dotted`."""
    return dotted(node).rpartition(".")[2]


class Source:
    """The text of a file by lines, as the tokenizer counts them: `ast.get_source_segment` would split it at each call."""

    def __init__(self, text: str) -> None:
        self._lines = re.split(rb"\r\n|\r|\n", text.encode("utf-8", "surrogateescape"))

    def of(self, node: ast.AST) -> str:
        """The source of a node on one line; empty when it has no place."""
        first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
        if first is None or last is None:
            return ""
        lines = self._lines[first - 1 : last]
        if not lines:
            return ""
        # Columns count bytes.
        lines[-1] = lines[-1][: getattr(node, "end_col_offset", None)]
        lines[0] = lines[0][getattr(node, "col_offset", 0) :]
        return snippet(b"\n".join(lines).decode("utf-8", "replace"))


def snippet(text: str, limit: int = 200) -> str:
    """Source on one line, cut at `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


_DISPLAYS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.JoinedStr, ast.FormattedValue)
_SKIPPED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_params", "returns", "annotation"})


def text_of(node: object, local: frozenset[str] = frozenset(), *, names: bool = True, literals: bool = True) -> str:
    """A tree as text: without positions, on request without the names of local variables and without literals.

    Without literals a local name and a literal look the same, because a literal may have become a parameter.
    """
    if isinstance(node, ast.Name):
        if names or node.id not in local:
            return node.id
        return "_" if literals else "*"
    if isinstance(node, ast.Constant):
        return f"{type(node.value).__name__}:{node.value!r}" if literals else "*"
    if isinstance(node, ast.Attribute):
        # What a class keeps on self, a function keeps in a local variable or takes as a fixture.
        if not names and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            return "_" if literals else "*"
        return f"{text_of(node.value, local, names=names, literals=literals)}.{node.attr}"
    if isinstance(node, ast.AST):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            sides = sorted(
                text_of(side, local, names=names, literals=literals) for side in (node.left, node.comparators[0])
            )
            return f"({sides[0]}{'==' if isinstance(node.ops[0], ast.Eq) else '!='}{sides[1]})"
        parts = [
            text_of(value, local, names=names, literals=literals)
            for field_name, value in ast.iter_fields(node)
            if field_name not in _SKIPPED_FIELDS
        ]
        if not literals:
            if isinstance(node, ast.UnaryOp) and parts[-1] == "*":
                return "*"
            if isinstance(node, _DISPLAYS) and not re.search(r"[^\[\]*,~-]", "".join(parts)):
                return "*"
        return f"{type(node).__name__}({','.join(parts)})"
    if isinstance(node, list):
        return "[" + ",".join(text_of(item, local, names=names, literals=literals) for item in node) + "]"
    return "-" if node is None else str(node)


_COMMON = frozenset(
    {"self", "cls", "pytest", "raises", "mark", "parametrize", "len", "str", "list", "dict", "set", "int", "value"}
    | {"True", "False", "None", "''", "0", "1", "isinstance", "sorted", "range", "tuple", "match", "param", "unittest"}
)


def words_of(node: ast.AST, local: frozenset[str]) -> frozenset[str]:
    """Names of other code, attributes, keywords and literals: what a test is about, whatever its variables are called."""
    found: set[str] = set()
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and child.id not in local:
            found.add(child.id)
        elif isinstance(child, ast.Attribute):
            found.add(child.attr)
        elif isinstance(child, ast.keyword) and child.arg:
            found.add(child.arg)
        elif isinstance(child, ast.alias):
            found.add(child.name.rpartition(".")[2])
        elif isinstance(child, ast.Constant) and child.value is not None and not isinstance(child.value, bool):
            found.add(repr(child.value)[:200])
    return frozenset(found - _COMMON)


def locals_of(function: FunctionNode) -> frozenset[str]:
    """Names that the function binds: arguments, assignments, targets of loops and `with`, inner functions."""
    found: set[str] = set()
    for child in ast.walk(function):
        if isinstance(child, ast.arg):
            found.add(child.arg)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            found.add(child.id)
        elif isinstance(child, ast.ExceptHandler):
            found.add(child.name or "")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and child is not function:
            found.add(child.name)
    return frozenset(found - {""})
