"""How strict an asserted expression is, read from its syntax tree; nothing is run.

The ladder: equality (3) > order, membership and type (2) > truthiness and `is not None` (1) > what cannot fail (0).
Beside it tolerances and bounds as numbers, and what an assertion speaks about.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from holdtrue_gate.syntax import tail, text_of


class Level(IntEnum):
    """The ladder of strictness."""

    NOTHING = 0
    TRUTH = 1
    ORDER = 2
    EQUALITY = 3


@dataclass(frozen=True)
class Tolerance:
    """How far two numbers may lie apart: relative and absolute; zero on both is exact."""

    relative: float
    absolute: float


# --- unittest's assertions as expressions

_COMPARISONS: Mapping[str, type[ast.cmpop]] = {
    **dict.fromkeys(
        (
            *("assertEqual", "assertEquals", "assertListEqual", "assertDictEqual", "assertTupleEqual"),
            *("assertSetEqual", "assertSequenceEqual", "assertMultiLineEqual", "assertCountEqual"),
        ),
        ast.Eq,
    ),
    "assertNotEqual": ast.NotEq,
    "assertIs": ast.Is,
    "assertIsNot": ast.IsNot,
    "assertIn": ast.In,
    "assertNotIn": ast.NotIn,
    "assertGreater": ast.Gt,
    "assertGreaterEqual": ast.GtE,
    "assertLess": ast.Lt,
    "assertLessEqual": ast.LtE,
}
_TYPE_TESTS = frozenset({"isinstance", "issubclass"})
_TEXT_TESTS = frozenset(
    {"startswith", "endswith", "match", "search", "fullmatch", "issubset", "issuperset", "isdisjoint"}
)
_WRAPPERS = frozenset({"len", "sorted", "set", "str", "repr", "bool", "type", "list", "tuple", "frozenset"})
CLOSE = frozenset({"isclose", "allclose", "assert_allclose", "assertAlmostEqual", "assertAlmostEquals"})


def _compared(left: ast.expr, operator: ast.cmpop, right: ast.expr, at: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Compare(left, [operator], [right]), at)


def unittest_expression(call: ast.Call) -> ast.expr | None:
    """What `self.assertX(...)` demands, as the expression that `assert` would take; None when it has no such form."""
    name, given = tail(call.func), call.args
    if name in _COMPARISONS and len(given) >= 2:
        return _compared(given[0], _COMPARISONS[name](), given[1], call)
    if name in ("assertTrue", "assert_") and given:
        return given[0]
    if name == "assertFalse" and given:
        return ast.copy_location(ast.UnaryOp(ast.Not(), given[0]), call)
    if name in ("assertIsNone", "assertIsNotNone") and given:
        operator = ast.Is() if name == "assertIsNone" else ast.IsNot()
        return _compared(given[0], operator, ast.copy_location(ast.Constant(None), call), call)
    if name in ("assertIsInstance", "assertNotIsInstance") and len(given) >= 2:
        made = ast.copy_location(
            ast.Call(ast.copy_location(ast.Name("isinstance", ast.Load()), call), given[:2], []), call
        )
        return made if name == "assertIsInstance" else ast.copy_location(ast.UnaryOp(ast.Not(), made), call)
    return None


# --- the ladder


def _number(node: ast.expr | None) -> float | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.Pow | ast.Add | ast.Sub):
        left, right = _number(node.left), _number(node.right)
        if left is None or right is None:
            return None
        try:
            operations: dict[type[ast.operator], Callable[[], float]] = {
                ast.Mult: lambda: left * right,
                ast.Div: lambda: left / right,
                ast.Add: lambda: left + right,
                ast.Sub: lambda: left - right,
                ast.Pow: lambda: float(math.pow(left, right)),
            }
            return operations[type(node.op)]()
        except (ArithmeticError, ValueError):
            return None
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        try:
            return float(node.value)
        except OverflowError:
            return None
    return None


def given_to(call: ast.Call, names: Sequence[str], position: int | None) -> ast.expr | None:
    """An argument by one of its names or its position."""
    for keyword in call.keywords:
        if keyword.arg in names:
            return keyword.value
    return call.args[position] if position is not None and len(call.args) > position else None


def _told(node: ast.expr | None, otherwise: float) -> float | None:
    return otherwise if node is None else _number(node)


def tolerance_of(call: ast.Call) -> Tolerance | None:
    """The tolerance of approx, isclose, allclose or assertAlmostEqual with their documented defaults; None when it is not
    written as numbers."""
    name = tail(call.func)
    if name == "approx":
        given_rel, given_abs = given_to(call, ("rel",), 1), given_to(call, ("abs",), 2)
        relative = _told(given_rel, 0.0 if given_abs is not None else 1e-6)
        absolute = _told(given_abs, 1e-12)
    elif name in ("assertAlmostEqual", "assertAlmostEquals"):
        delta = given_to(call, ("delta",), 4)
        places = _told(given_to(call, ("places",), 2), 7.0)
        relative = 0.0
        absolute = _number(delta) if delta is not None else None if places is None else 0.5 * 10.0**-places
    elif name == "assert_allclose":
        relative, absolute = _told(given_to(call, ("rtol",), 2), 1e-7), _told(given_to(call, ("atol",), 3), 0.0)
    elif name == "allclose":
        relative, absolute = _told(given_to(call, ("rtol",), 2), 1e-5), _told(given_to(call, ("atol",), 3), 1e-8)
    elif name == "isclose":
        relative = _told(given_to(call, ("rel_tol", "rtol"), None), 1e-9)
        absolute = _told(given_to(call, ("abs_tol", "atol"), None), 0.0)
    else:
        return None
    return None if relative is None or absolute is None else Tolerance(relative, absolute)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def is_any(node: ast.expr) -> bool:
    """Whether it is `mock.ANY`."""
    return isinstance(node, ast.Name | ast.Attribute) and tail(node) == "ANY"


def _is_length(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"


def is_simple(node: ast.expr) -> bool:
    """Literals to which people prefer `assert x` and `assert not x`."""
    if isinstance(node, ast.Constant):
        return node.value is True or node.value is False or node.value in (0, "", b"")
    return (isinstance(node, ast.List | ast.Tuple | ast.Set) and not node.elts) or (
        isinstance(node, ast.Dict) and not node.keys
    )


def _same_every_time(node: ast.expr) -> bool:
    # Two calls may differ, and then comparing them says something: f() == f() asks for determinism.
    return not any(isinstance(child, ast.Call | ast.Await | ast.Yield | ast.NamedExpr) for child in ast.walk(node))


def _level_of_comparison(node: ast.Compare) -> Level:
    if len(node.ops) > 1:
        return Level.EQUALITY if all(isinstance(op, ast.Eq | ast.Is) for op in node.ops) else Level.ORDER
    left, operator, right = node.left, node.ops[0], node.comparators[0]
    if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
        return Level.NOTHING
    reflexive = isinstance(operator, ast.Eq | ast.Is | ast.LtE | ast.GtE)
    if reflexive and text_of(left) == text_of(right) and not isinstance(left, ast.Constant):
        # `x == x` does test __eq__ of an object, and a call may answer otherwise the second time.
        return Level.NOTHING if _same_every_time(left) else Level.TRUTH
    if isinstance(operator, ast.Eq):
        return Level.NOTHING if is_any(left) or is_any(right) else Level.EQUALITY
    if isinstance(operator, ast.Is):
        return Level.EQUALITY
    none = _is_none(left) or _is_none(right)
    if isinstance(operator, ast.NotEq | ast.IsNot):
        return Level.TRUTH if none or (_is_length(left) and _number(right) == 0) else Level.ORDER
    if _is_length(left) and isinstance(operator, ast.GtE) and _number(right) == 0:
        return Level.NOTHING
    if _is_length(left) and (
        (isinstance(operator, ast.Gt) and _number(right) == 0)
        or (isinstance(operator, ast.GtE) and _number(right) == 1)
    ):
        return Level.TRUTH
    return Level.ORDER


def _level_of_call(node: ast.Call) -> Level:
    name = tail(node.func)
    if name in _TYPE_TESTS or name in _TEXT_TESTS:
        return Level.ORDER
    if name in ("all", "any") and isinstance(node.func, ast.Name) and len(node.args) == 1:
        given = node.args[0]
        if isinstance(given, ast.GeneratorExp | ast.ListComp):
            inner = level_of(given.elt)
            return inner if name == "all" else min(inner, Level.ORDER)
    if name in CLOSE or name in ("array_equal", "equals", "array_equiv"):
        return Level.EQUALITY
    return Level.TRUTH


def level_of(node: ast.expr) -> Level:
    """The rung of an asserted expression."""
    if isinstance(node, ast.Await | ast.NamedExpr):
        return level_of(node.value)
    if isinstance(node, ast.Constant):
        # `assert False` is how a line says that it must not be reached.
        return Level.NOTHING if node.value else Level.EQUALITY
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return Level.NOTHING if node.elts else Level.EQUALITY
    if isinstance(node, ast.Lambda | ast.GeneratorExp | ast.JoinedStr):
        return Level.NOTHING
    if isinstance(node, ast.Compare):
        return _level_of_comparison(node)
    if isinstance(node, ast.BoolOp):
        levels = [level_of(value) for value in node.values]
        if isinstance(node.op, ast.And):
            return max(levels)
        return min(*levels, Level.ORDER)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = node.operand
        if isinstance(inner, ast.Compare) and len(inner.ops) == 1:
            if isinstance(inner.ops[0], ast.NotEq | ast.IsNot):
                return Level.EQUALITY
            if isinstance(inner.ops[0], ast.Is) and _is_none(inner.comparators[0]):
                return Level.TRUTH
            return Level.ORDER
        if isinstance(inner, ast.Constant):
            return Level.EQUALITY if inner.value else Level.NOTHING
        return Level.ORDER if isinstance(inner, ast.Call) and level_of(inner) is Level.ORDER else Level.TRUTH
    if isinstance(node, ast.IfExp):
        return min(level_of(node.body), level_of(node.orelse))
    if isinstance(node, ast.Call):
        return _level_of_call(node)
    return Level.TRUTH


def parts_of(node: ast.expr) -> Iterator[ast.expr]:
    """The assertions that `and` joins."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for value in node.values:
            yield from parts_of(value)
    else:
        yield node


def subjects_of(node: ast.expr) -> Iterator[ast.expr]:
    """What an assertion speaks about: never the literals on its other side."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            # "text" in out speaks of out, x in (1, 2) of x.
            sides = sides if not isinstance(node.left, ast.Constant) else sides[1:]
        for side in sides:
            if isinstance(side, ast.Call) and tail(side.func) == "approx":
                continue
            yield side
            if isinstance(side, ast.Call) and isinstance(side.func, ast.Name) and side.func.id in _WRAPPERS:
                yield from side.args[:1]
    elif isinstance(node, ast.UnaryOp):
        yield from subjects_of(node.operand)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from subjects_of(value)
    elif isinstance(node, ast.Tuple | ast.List):
        for element in node.elts:
            yield from subjects_of(element)
    elif isinstance(node, ast.Call):
        yield node
        name = tail(node.func)
        if name in _TYPE_TESTS or name in CLOSE or name in _WRAPPERS or name in ("hasattr", "callable"):
            yield from node.args[: 2 if name in CLOSE else 1]
        elif isinstance(node.func, ast.Attribute) and name in _TEXT_TESTS:
            yield node.func.value
        elif name in ("all", "any") and node.args and isinstance(node.args[0], ast.GeneratorExp | ast.ListComp):
            yield from subjects_of(node.args[0].elt)
    elif isinstance(node, ast.NamedExpr | ast.Await):
        yield from subjects_of(node.value)
    else:
        yield node


def is_literal(node: ast.expr) -> bool:
    """Whether it names nothing."""
    return not any(isinstance(child, ast.Name | ast.Call | ast.Attribute) for child in ast.walk(node))


def bound_of(node: ast.expr) -> tuple[str, float] | None:
    """The number that a comparison sets as "upper" or "lower" bound."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return None
    operator, right, left = node.ops[0], _number(node.comparators[0]), _number(node.left)
    if right is not None and left is None:
        if isinstance(operator, ast.Lt | ast.LtE):
            return "upper", right
        if isinstance(operator, ast.Gt | ast.GtE):
            return "lower", right
    if left is not None and right is None:
        if isinstance(operator, ast.Lt | ast.LtE):
            return "lower", left
        if isinstance(operator, ast.Gt | ast.GtE):
            return "upper", left
    return None


def members_of(node: ast.expr) -> frozenset[str] | None:
    """The elements of the display in `x in (a, b)`."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.In):
        right = node.comparators[0]
        if isinstance(right, ast.Tuple | ast.List | ast.Set):
            return frozenset(text_of(element) for element in right.elts)
    return None


def tolerance_in(node: ast.expr) -> Tolerance | None:
    """The tolerance with which an assertion compares: that of the approx in it, zero for a plain `==`."""
    for child in ast.walk(node):
        if isinstance(child, ast.Call) and (tail(child.func) == "approx" or tail(child.func) in CLOSE):
            return tolerance_of(child)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
        return Tolerance(0.0, 0.0)
    return None
