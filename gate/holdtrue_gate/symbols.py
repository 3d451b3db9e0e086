"""Names that a product change adds. Kept narrow: what a caller can see, never local variables or the words of messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

_FLAG = re.compile(r"--[a-z][a-z0-9-]+")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_SQL = re.compile(
    r"\b(?:create|alter)\s+(?:virtual\s+|temp\s+|temporary\s+|unique\s+)?(?:table|index|view|trigger)\b", re.IGNORECASE
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")


def _targets(statement: ast.stmt) -> Iterable[str]:
    if isinstance(statement, ast.Assign):
        nodes: list[ast.expr] = list(statement.targets)
    elif isinstance(statement, ast.AnnAssign):
        nodes = [statement.target]
    else:
        return []
    return [child.id for node in nodes for child in ast.walk(node) if isinstance(child, ast.Name)]


def _visible(body: list[ast.stmt]) -> set[str]:
    found: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(statement.name)
            arguments = statement.args
            found |= {a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]} - {"self", "cls"}
            # Attributes set on self are as visible as those of the class.
            for child in ast.walk(statement):
                if (
                    isinstance(child, ast.Attribute)
                    and isinstance(child.ctx, ast.Store)
                    and isinstance(child.value, ast.Name)
                    and child.value.id == "self"
                ):
                    found.add(child.attr)
        elif isinstance(statement, ast.ClassDef):
            found.add(statement.name)
            found |= _visible(statement.body)
        elif isinstance(statement, ast.If | ast.Try):
            found |= _visible(statement.body) | _visible(statement.orelse)
        else:
            found |= set(_targets(statement))
    return found


def names(source: bytes | None) -> frozenset[str]:
    """Module and class level names, parameters, `--flags`, names of variables in strings, identifiers of SQL
    definitions."""
    if source is None:
        return frozenset()
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    found = _visible(module.body)
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if _FLAG.fullmatch(text) or _VARIABLE.fullmatch(text):
                found.add(text)
            elif _SQL.search(text):
                found |= set(_IDENTIFIER.findall(text))
    return frozenset(found)


_VERSION = re.compile(r"(?i)_*(?:[a-z0-9_]*_)?version(?:_info)?_*")


def _values(source: bytes | None) -> dict[str, str] | None:
    """Every statement of a module: constants by their name, the rest under its own text."""
    if source is None:
        return None
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    found: dict[str, str] = {}
    for statement in module.body:
        targets = list(_targets(statement))
        text = ast.dump(statement)
        found[targets[0] if len(targets) == 1 else text] = text
    return found


def versions(pairs: Iterable[tuple[bytes | None, bytes | None]]) -> frozenset[str]:
    """Names of the version constants, when new values of them are all that a product change is; else nothing."""
    changed: set[str] = set()
    for before, after in pairs:
        old, new = _values(before), _values(after)
        if old is None or new is None or old.keys() != new.keys():
            return frozenset()
        changed |= {name for name in old if old[name] != new[name]}
    return frozenset(changed) if all(_VERSION.fullmatch(name) for name in changed) else frozenset()


def added(pairs: Iterable[tuple[bytes | None, bytes | None]]) -> frozenset[str]:
    """Names in the new sources and in none of the old ones; each pair is (old, new) of one changed file."""
    old: set[str] = set()
    new: set[str] = set()
    for before, after in pairs:
        old |= names(before)
        new |= names(after)
    return frozenset(new - old)
