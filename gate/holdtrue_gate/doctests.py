"""Doctests as the plan sees them: the examples of docstrings and texts, and a module with another one's docstrings.

A docstring lies in the product's own file. To ask what its examples say of the parent's code, the parent's module gets
the docstrings of the commit, wherever it has the same function or class, and nothing else of the commit.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def examples(text: str) -> tuple[str, ...] | None:
    """The examples of a text, each with what it expects; empty without any. None when doctest cannot read them."""
    if ">>>" not in text:
        return ()
    # Imported where there are examples: it brings unittest and pdb along.
    import doctest

    try:
        found = doctest.DocTestParser().get_examples(text)
    except ValueError:
        return None
    return tuple(f"{example.source}\0{example.want}\0{example.exc_msg}" for example in found)


def _documented(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Documented]]:
    for statement in body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + statement.name, statement
            if isinstance(statement, ast.ClassDef):
                yield from _documented(statement.body, f"{prefix}{statement.name}.")


def _nodes(source: bytes | None) -> dict[str, Documented]:
    """The module under "", and its functions, classes and methods by qualified name."""
    if source is None:
        return {}
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    return {"": module, **dict(_documented(module.body, ""))}


def of_module(source: bytes | None) -> dict[str, tuple[str, ...]]:
    """Examples by the qualified name of what they document ("" is the module); only docstrings that have any."""
    found = {}
    for name, node in _nodes(source).items():
        told = examples(ast.get_docstring(node, clean=False) or "")
        if told is None or told:
            found[name] = told or ("unreadable",)
    return found


def names(source: bytes | None) -> frozenset[str]:
    """Everything in a module that can have a docstring, by qualified name."""
    return frozenset(_nodes(source))


def _literal(node: Documented) -> ast.Constant | None:
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return first.value
    return None


def _span(literal: ast.Constant, starts: list[int]) -> tuple[int, int]:
    return (
        starts[literal.lineno - 1] + literal.col_offset,
        starts[(literal.end_lineno or literal.lineno) - 1] + (literal.end_col_offset or 0),
    )


def _starts(source: bytes) -> list[int]:
    found = [0]
    for line in source.splitlines(keepends=True):
        found.append(found[-1] + len(line))
    return found


def spliced(base: bytes, head: bytes) -> bytes:
    """`base` with the docstrings of `head` where both have the same function or class; `base` itself when that cannot be
    done without changing more than docstrings."""
    if b"\f" in base + head or b"\x0b" in base + head:
        return base  # lines are counted differently by bytes and by Python
    old, new = _nodes(base), _nodes(head)
    if not old or not new:
        return base
    old_starts, new_starts = _starts(base), _starts(head)
    changes: list[tuple[int, int, bytes]] = []
    for name in old.keys() & new.keys():
        theirs, ours = _literal(new[name]), _literal(old[name])
        if theirs is None or (ours is not None and ours.value == theirs.value):
            continue
        begin, end = _span(theirs, new_starts)
        text = head[begin:end]
        if ours is not None:
            changes.append((*_span(ours, old_starts), text))
            continue
        first = old[name].body[0] if old[name].body else None
        if first is None:
            changes.append((len(base), len(base), b"\n" + text + b"\n"))
            continue
        lines = [first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))]
        at = old_starts[min(lines) - 1]
        # A body on the line of its `def` leaves no place for a docstring.
        if base[at : at + first.col_offset].strip():
            continue
        changes.append((at, at, b" " * first.col_offset + text + b"\n"))
    made = base
    for begin, end, text in sorted(changes, reverse=True):
        made = made[:begin] + text + made[end:]
    return made if bare(made) is not None and bare(made) == bare(base) else base


def bare(source: bytes | None, *, docstrings: bool = False) -> str | None:
    """What a module does, without layout and comments, and without docstrings unless asked for; None when it is no valid
    Python."""
    nodes = _nodes(source)
    if not nodes:
        return None
    if not docstrings:
        for node in nodes.values():
            if _literal(node) is not None:
                del node.body[0]
    return ast.dump(nodes[""], annotate_fields=False)
