"""The demands of a test function: its assertions, in pytest's and unittest's words, what it expects to be raised or
warned, and whether the failure of a demand would reach anybody. Read from the syntax tree; nothing is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdtrue_gate.strictness import (
    CLOSE,
    Level,
    Tolerance,
    bound_of,
    given_to,
    is_any,
    is_literal,
    is_simple,
    level_of,
    members_of,
    parts_of,
    subjects_of,
    tolerance_in,
    tolerance_of,
    unittest_expression,
)
from holdtrue_gate.syntax import FunctionNode, Source, dotted, locals_of, tail, text_of, words_of

_RAISES = frozenset({"raises", "assertRaises", "assertRaisesRegex", "assertRaisesRegexp", "assertRaisesMessage"})
_WARNS = frozenset({"warns", "assertWarns", "assertWarnsRegex", "deprecated_call", "assertLogs"})
_SUBJECT_FIRST = frozenset({"assertRaisesRegex", "assertRaisesRegexp", "assertRaisesMessage", "assertWarnsRegex"})

# Calls that are demands by themselves, with the rung they stand on.
_CALLS: Mapping[str, Level] = {
    **dict.fromkeys(
        (
            *("assert_called_once_with", "assert_called_with", "assert_awaited_once_with", "assert_awaited_with"),
            *("assert_not_called", "assert_not_awaited", "assert_array_equal", "assert_equal", "assert_frame_equal"),
            *("assert_series_equal", "assert_index_equal", "assert_outcomes"),
        ),
        Level.EQUALITY,
    ),
    **dict.fromkeys(
        (
            *("assert_called_once", "assert_any_call", "assert_has_calls", "assert_awaited_once", "fnmatch_lines"),
            *("re_match_lines", "no_fnmatch_line", "no_re_match_line", "fnmatch_lines_random", "assertRegex"),
            *("assertNotRegex", "assertIsInstance", "assertNotIsInstance", "re_match_lines_random"),
        ),
        Level.ORDER,
    ),
    **dict.fromkeys(("assert_called", "assert_awaited"), Level.TRUTH),
}
_FAILURES = frozenset({"pytest.fail", "self.fail", "fail"})
_HELPER_NAME = re.compile(r"_*(?:assert|check|verify|expect|validate|ensure)(?:[A-Z_].*)?$|.*_(?:equal|equals|match)$")


@dataclass(frozen=True)
class Check:
    """One demand of a test.

    `family`: assert, raises, warns, or helper (a call of a function that checks). `form` is its normal form, `shape` the
    same without the names of local variables, `outline` also without literals. `strong` holds what it speaks about with
    where it comes from, `weak` the same by bare names. `bound` is ("upper" or "lower", number). `types` and `match`
    belong to raises and warns. `guarded`: it runs only under a condition. `swallowed`, `dead`: it cannot make the test
    fail. `words`: names of other code and literals in it.
    """

    family: str
    level: Level
    form: str
    shape: str
    outline: str
    source: str
    line: int
    last_line: int
    strong: frozenset[str] = frozenset()
    weak: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    tolerance: Tolerance | None = None
    bound: tuple[str, float] | None = None
    members: frozenset[str] | None = None
    types: tuple[str, ...] = ()
    match: str | None = None
    idiom: bool = False
    guarded: bool = False
    swallowed: bool = False
    dead: bool = False

    @property
    def effective(self) -> Level:
        """Its level, or nothing when its failure would reach nobody."""
        return Level.NOTHING if self.swallowed or self.dead else self.level


# --- the demands of a function


@dataclass(frozen=True)
class _Place:
    guarded: bool = False
    swallowed: bool = False
    dead: bool = False


@dataclass
class _Reader:
    source: Source
    local: frozenset[str]
    origins: Mapping[str, Sequence[tuple[int, str]]]
    checkers: frozenset[str]
    found: list[Check] = field(default_factory=list)

    # texts

    def _origin(self, name: str, line: int) -> str:
        told = [origin for at, origin in self.origins.get(name, ()) if at <= line]
        return told[-1] if told else "given"

    def _strong(self, node: ast.expr) -> str:
        told = text_of(node)
        bases = sorted({child.id for child in ast.walk(node) if isinstance(child, ast.Name) and child.id in self.local})
        return told + "".join(f"|{name}<-{self._origin(name, node.lineno)}" for name in bases)

    def _source(self, node: ast.AST) -> str:
        return self.source.of(node)

    def _add(self, node: ast.AST, place: _Place, **values: object) -> None:
        line = getattr(node, "lineno", 1)
        self.found.append(
            Check(
                **{  # type: ignore[arg-type]
                    "source": self._source(node),
                    "line": line,
                    "last_line": getattr(node, "end_lineno", line),
                    "guarded": place.guarded,
                    "swallowed": place.swallowed,
                    "dead": place.dead,
                    **values,
                }
            )
        )

    # kinds of demands

    def assertion(self, test: ast.expr, at: ast.AST, place: _Place) -> None:
        for part in parts_of(test):
            subjects = [side for side in subjects_of(part) if not is_literal(side)]
            self._add(
                at,
                place,
                family="assert",
                level=level_of(part),
                form=text_of(part),
                shape=text_of(part, self.local, names=False),
                outline=text_of(part, self.local, names=False, literals=False),
                strong=frozenset(self._strong(side) for side in subjects),
                weak=frozenset(text_of(side) for side in subjects),
                words=words_of(part, self.local),
                tolerance=tolerance_in(part),
                bound=bound_of(part),
                members=members_of(part),
                idiom=isinstance(part, ast.Compare)
                and len(part.ops) == 1
                and (is_simple(part.left) or is_simple(part.comparators[0])),
            )

    def raising(self, call: ast.Call, body: Sequence[ast.AST], place: _Place) -> None:
        name = tail(call.func)
        family = "raises" if name in _RAISES else "warns"
        types: tuple[str, ...] = ()
        given = given_to(call, ("expected_exception", "expected_warning", "exception"), 0)
        if name == "deprecated_call":
            types = ("DeprecationWarning",)
        elif isinstance(given, ast.Tuple):
            types = tuple(sorted(dotted(element) or text_of(element) for element in given.elts))
        elif given is not None:
            types = (dotted(given) or text_of(given),)
        match = given_to(call, ("match", "expected_regex", "expected_message"), 1 if name in _SUBJECT_FIRST else None)
        if isinstance(match, ast.Constant) and match.value in (None, "", ".*"):
            match = None
        run = list(body) or list(call.args[1 + (name in _SUBJECT_FIRST) :])
        what = f"{family}:{','.join(types)}:{'-' if match is None else text_of(match)}:"
        self._add(
            call,
            place,
            family=family,
            level=Level.EQUALITY if family == "raises" else Level.ORDER,
            form=what + "".join(text_of(node) for node in run),
            shape=f"{family}:" + "".join(text_of(node, self.local, names=False) for node in run),
            outline=f"{family}:" + "".join(text_of(node, self.local, names=False, literals=False) for node in run),
            strong=frozenset({f"{family}:" + "".join(text_of(node) for node in run)} if run else ()),
            weak=frozenset({f"{family}:" + text_of(node) for node in run}),
            words=words_of(call, self.local).union(*(words_of(node, self.local) for node in run)),
            types=types,
            match=None
            if match is None
            else str(match.value)
            if isinstance(match, ast.Constant)
            else "expression " + text_of(match, self.local, names=False),
        )

    def call(self, node: ast.Call, at: ast.AST, place: _Place) -> bool:
        """Notes the demand of a call; False when it makes none."""
        name = tail(node.func)
        expression = unittest_expression(node)
        if expression is not None and isinstance(node.func, ast.Attribute):
            self.assertion(expression, at, place)
        elif name in (*_RAISES, *_WARNS) and len(node.args) > 1 + (name in _SUBJECT_FIRST):
            self.raising(node, (), place)
        elif name in _CALLS or name in CLOSE or _is_fail(node):
            level = Level.ORDER if _is_fail(node) else _CALLS.get(name, Level.EQUALITY)
            close = name in CLOSE
            if name in ("allclose", "isclose"):
                return False
            strict = level if not any(is_any(argument) for argument in node.args) else min(level, Level.ORDER)
            subject = node.args[:2] if close else [node.func.value] if isinstance(node.func, ast.Attribute) else []
            self._add(
                at,
                place,
                family="assert",
                level=strict,
                form=text_of(node),
                shape=text_of(node, self.local, names=False),
                outline=text_of(node, self.local, names=False, literals=False),
                strong=frozenset(self._strong(side) for side in subject if not is_literal(side)),
                weak=frozenset(text_of(side) for side in subject if not is_literal(side)),
                words=words_of(node, self.local),
                tolerance=tolerance_of(node),
            )
        elif name in self.checkers or _HELPER_NAME.match(name):
            self._add(
                at,
                place,
                family="helper",
                level=Level.EQUALITY if name in self.checkers or "assert" in name.lower() else Level.TRUTH,
                form=text_of(node),
                shape=text_of(node, self.local, names=False),
                outline=text_of(node, self.local, names=False, literals=False),
                strong=frozenset(),
                weak=frozenset({text_of(node.func)}),
                words=words_of(node, self.local),
            )
        else:
            return False
        return True

    # statements

    def walk(self, body: Iterable[ast.stmt], place: _Place) -> None:
        for statement in body:
            self._statement(statement, place)
            if isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break):
                place = replace(place, dead=True)
            elif isinstance(statement, ast.If):
                ways = [_leaves(branch) for branch in (statement.body, statement.orelse)]
                if _always(statement.test) and ways[0]:
                    place = replace(place, dead=True)
                elif any(ways):
                    place = replace(place, guarded=True)

    def _statement(self, node: ast.stmt, place: _Place) -> None:
        if isinstance(node, ast.Assert):
            self.assertion(node.test, node, place)
        elif isinstance(node, ast.Raise):
            if node.exc is not None and tail(node.exc) in ("AssertionError", "Failed"):
                self._add(
                    node,
                    place,
                    family="assert",
                    level=Level.ORDER,
                    form=text_of(node),
                    shape=text_of(node, self.local, names=False),
                    outline="raise AssertionError",
                    words=words_of(node, self.local),
                )
        elif isinstance(node, ast.With | ast.AsyncWith):
            self._with(node, place)
        elif isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
            self._try(node, place)  # type: ignore[arg-type]
        elif isinstance(node, ast.If):
            never = isinstance(node.test, ast.Constant) and not node.test.value
            inner = place if _always(node.test) else replace(place, guarded=True)
            self.walk(node.body, replace(inner, dead=place.dead or never))
            self.walk(node.orelse, place if never else replace(place, guarded=True))
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            empty = isinstance(node, ast.For) and isinstance(node.iter, ast.List | ast.Tuple) and not node.iter.elts
            if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and not node.test.value:
                empty = True
            self.walk(node.body, replace(place, dead=place.dead or empty))
            self.walk(node.orelse, place)
        elif isinstance(node, ast.Match):
            for case in node.cases:
                self.walk(case.body, replace(place, guarded=True))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.walk(node.body, place)
        else:
            self._expressions(node, place)

    def _expressions(self, node: ast.stmt, place: _Place) -> None:
        for child in ast.walk(node):
            if isinstance(child, ast.Call):
                self.call(child, child, place)

    def _with(self, node: ast.With | ast.AsyncWith, place: _Place) -> None:
        inner = place
        for item in node.items:
            call = item.context_expr
            if not isinstance(call, ast.Call):
                continue
            if tail(call.func) in (*_RAISES, *_WARNS):
                self.raising(call, node.body, place)
            elif tail(call.func) == "suppress" and any(_catches_assertions(a) for a in call.args):
                inner = replace(inner, swallowed=True)
        self.walk(node.body, inner)

    def _try(self, node: ast.Try, place: _Place) -> None:
        swallowing = any(_swallows(handler) for handler in node.handlers)
        self.walk(node.body, replace(place, swallowed=True) if swallowing else place)
        for handler in node.handlers:
            self.walk(handler.body, place)
        self.walk(node.orelse, place)
        # A return in `finally` swallows whatever was raised.
        self.walk(node.finalbody, place)


def _is_fail(node: ast.Call) -> bool:
    return dotted(node.func) in _FAILURES


def _always(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether a branch ends the function without a verdict."""
    return any(isinstance(statement, ast.Return) for statement in body)


def _catches_assertions(node: ast.expr | None) -> bool:
    if node is None:
        return True
    if isinstance(node, ast.Tuple):
        return any(_catches_assertions(element) for element in node.elts)
    return tail(node) in ("AssertionError", "Exception", "BaseException")


def _swallows(handler: ast.ExceptHandler) -> bool:
    if not _catches_assertions(handler.type):
        return False
    for child in ast.walk(handler):
        if isinstance(child, ast.Raise | ast.Assert):
            return False
        if isinstance(child, ast.Call) and (_is_fail(child) or _HELPER_NAME.match(tail(child.func))):
            return False
        # What was raised is kept and looked at later.
        if isinstance(child, ast.Name) and handler.name and child.id == handler.name:
            return False
    return True


def _origins(function: FunctionNode) -> dict[str, list[tuple[int, str]]]:
    """What each local name was last bound to, by line."""
    found: dict[str, list[tuple[int, str]]] = {}

    def bind(target: ast.expr, value: ast.AST) -> None:
        for child in ast.walk(target):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                found.setdefault(child.id, []).append((child.lineno, text_of(value)))

    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                bind(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
            bind(node.target, node.value)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            bind(node.target, node.iter)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                if item.optional_vars is not None:
                    bind(item.optional_vars, item.context_expr)
    return {name: sorted(bound) for name, bound in found.items()}


def checks_of(function: FunctionNode, source: Source, checkers: frozenset[str] = frozenset()) -> tuple[Check, ...]:
    """The demands of a function of a file, in its order. `checkers`: functions of the file that check."""
    reader = _Reader(source, locals_of(function), _origins(function), checkers)
    reader.walk(function.body, _Place())
    return tuple(reader.found)
