"""What a test file declares, as fingerprints: functions, their parametrisation, the fixtures they reach. By AST, so
layout is no change."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

_XUNIT = frozenset(
    {
        *(
            "setUp",
            "setUpClass",
            "tearDown",
            "tearDownClass",
            "setup_method",
            "teardown_method",
            "setup_class",
            "teardown_class",
        ),
        *("setup", "teardown", "asyncSetUp", "asyncTearDown", "setUpModule", "tearDownModule"),
        *("setup_module", "teardown_module", "setup_function", "teardown_function"),
    }
)
_EXISTENCE_CALLS = frozenset(
    {"hasattr", "getattr", "dir", "vars", "signature", "getfullargspec", "find_spec", "getmembers", "callable"}
)
_EXISTENCE_ATTRIBUTES = frozenset(
    {"__all__", "__dict__", "__annotations__", "parameters", "__dataclass_fields__", "model_fields"}
)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Fixture:
    """A fixture: the fingerprint of its source and the fixtures it asks for."""

    own: str
    requests: frozenset[str]
    autouse: bool = False


@dataclass(frozen=True)
class Function:
    """A function that may be a test. `qualname` is as in a node id (`TestX::test_y`); lines are 1-based and inclusive."""

    qualname: str
    own: str
    parameters: str
    requests: frozenset[str]
    first_line: int
    last_line: int
    existence: frozenset[str] = frozenset()
    assertions: tuple[tuple[int, int, frozenset[str]], ...] = ()
    literals: frozenset[str] = frozenset()


@dataclass(frozen=True)
class TestFile:
    """The functions, classes and fixtures of one file. `foreign_bases` are classes with a base that is defined
    elsewhere."""

    __test__ = False

    functions: Mapping[str, Function] = field(default_factory=dict)
    fixtures: Mapping[str, Fixture] = field(default_factory=dict)
    classes: frozenset[str] = frozenset()
    foreign_bases: frozenset[str] = frozenset()


EMPTY = TestFile()


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return body[1:]
    return body


def _dump(node: ast.AST) -> str:
    return ast.dump(node, annotate_fields=False, include_attributes=False)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _dotted(node.func)
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _is_parametrisation(node: ast.expr) -> bool:
    return _dotted(node).endswith("parametrize")


def _is_fixture(node: FunctionNode) -> bool:
    return any(
        _dotted(decorator).rpartition(".")[2] in ("fixture", "yield_fixture") for decorator in node.decorator_list
    )


def _names(node: ast.AST) -> set[str]:
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def _strings(node: ast.AST) -> frozenset[str]:
    return frozenset(
        child.value for child in ast.walk(node) if isinstance(child, ast.Constant) and isinstance(child.value, str)
    )


def _arguments(node: FunctionNode) -> frozenset[str]:
    arguments = node.args
    return frozenset(a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]) - {"self", "cls"}


def _used_fixtures(decorators: Iterable[ast.expr]) -> frozenset[str]:
    found: set[str] = set()
    for decorator in decorators:
        if _dotted(decorator).endswith("usefixtures"):
            found |= _strings(decorator)
    return frozenset(found)


def _own_source(node: FunctionNode) -> str:
    decorators = [_dump(d) for d in node.decorator_list if not _is_parametrisation(d)]
    return _digest(
        type(node).__name__,
        _dump(node.args),
        *decorators,
        *(_dump(statement) for statement in _without_docstring(node.body)),
    )


def _existence(node: ast.AST) -> frozenset[str]:
    """Names that the code asks for without using them: hasattr(m, "x"), getattr(m, "x", None), "x" in dir(m), "p" in
    signature(f).parameters."""
    found: set[str] = set()
    for child in ast.walk(node):
        if (
            isinstance(child, ast.Call)
            and _dotted(child.func).rpartition(".")[2] in ("hasattr", "getattr")
            and len(child.args) > 1
        ):
            found |= _strings(child.args[1])
        elif isinstance(child, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in child.ops):
            right = child.comparators[-1]
            calls = {_dotted(part.func).rpartition(".")[2] for part in ast.walk(right) if isinstance(part, ast.Call)}
            attributes = {part.attr for part in ast.walk(right) if isinstance(part, ast.Attribute)}
            if calls & _EXISTENCE_CALLS or attributes & _EXISTENCE_ATTRIBUTES:
                found |= _strings(child.left)
    return frozenset(found)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module or class, also those inside `if` and `try`."""
    for statement in body:
        if isinstance(statement, ast.If | ast.Try | ast.With):
            yield from _statements(statement.body)
            yield from _statements(getattr(statement, "orelse", []))
            for handler in getattr(statement, "handlers", []):
                yield from _statements(handler.body)
        else:
            yield statement


class _Reader:
    def __init__(self, module: ast.Module) -> None:
        self.functions: dict[str, Function] = {}
        self.fixtures: dict[str, Fixture] = {}
        self.class_nodes: dict[str, ast.ClassDef] = {}
        self.foreign: set[str] = set()
        top = list(_statements(module.body))
        self.constants = {
            target.id: statement
            for statement in top
            if isinstance(statement, ast.Assign | ast.AnnAssign)
            for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
            if isinstance(target, ast.Name)
        }
        self.helpers = {s.name: s for s in top if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef)}
        mark = self.constants["pytestmark"].value if "pytestmark" in self.constants else None
        self.marks = [mark] if mark is not None else []
        generator = self.helpers.get("pytest_generate_tests")
        self.generator = _dump(generator) if generator is not None else ""
        xunit = [node for name, node in self.helpers.items() if name in _XUNIT]
        self.module_setup = _digest(*(_own_source(node) for node in xunit))
        self._body(top, "", [], self.module_setup)

    def _body(self, statements: Iterable[ast.stmt], prefix: str, decorators: list[ast.expr], setup: str) -> None:
        for statement in statements:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self._function(statement, prefix, decorators, setup)
            elif isinstance(statement, ast.ClassDef):
                self._class(statement, prefix, decorators)

    def _class(self, node: ast.ClassDef, prefix: str, outer: list[ast.expr]) -> None:
        qualname = prefix + node.name
        self.class_nodes[qualname] = node
        methods, bases_known = self._methods(node, 0)
        if not bases_known:
            self.foreign.add(qualname)
        setup = _digest(self.module_setup, *(_own_source(m) for m in methods.values() if m.name in _XUNIT))
        decorators = [*outer, *node.decorator_list]
        for method in methods.values():
            self._function(method, qualname + "::", decorators, setup)
        self._body(
            [s for s in _statements(node.body) if isinstance(s, ast.ClassDef)], qualname + "::", decorators, setup
        )

    def _methods(self, node: ast.ClassDef, depth: int) -> tuple[dict[str, FunctionNode], bool]:
        """Methods by name, with those of bases in the same file; and whether every base is in it."""
        found: dict[str, FunctionNode] = {}
        known = True
        for base in reversed(node.bases):
            name = _dotted(base)
            if name in self.class_nodes and depth < 20 and self.class_nodes[name] is not node:
                inherited, base_known = self._methods(self.class_nodes[name], depth + 1)
                found |= inherited
                known = known and base_known
            elif name not in (
                "object",
                "TestCase",
                "unittest.TestCase",
                "IsolatedAsyncioTestCase",
                "unittest.IsolatedAsyncioTestCase",
            ):
                known = False
        found |= {s.name: s for s in _statements(node.body) if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef)}
        return found, known

    def _function(self, node: FunctionNode, prefix: str, outer: list[ast.expr], setup: str) -> None:
        if _is_fixture(node):
            text = " ".join(_dump(decorator) for decorator in node.decorator_list)
            self.fixtures[node.name] = Fixture(_digest(text, _own_source(node)), _arguments(node), "autouse" in text)
            return
        decorators = [*self.marks, *outer, *node.decorator_list]
        shared = [_dump(d) for d in outer if not _is_parametrisation(d)]
        self.functions[prefix + node.name] = Function(
            qualname=prefix + node.name,
            own=_digest(_own_source(node), setup, *shared),
            parameters=self._parameters([d for d in decorators if _is_parametrisation(d)]),
            requests=_arguments(node) | _used_fixtures(decorators),
            first_line=min([node.lineno, *(d.lineno for d in node.decorator_list)]),
            last_line=node.end_lineno or node.lineno,
            existence=_existence(node),
            assertions=tuple(
                (s.lineno, s.end_lineno or s.lineno, _strings(s)) for s in ast.walk(node) if isinstance(s, ast.Assert)
            ),
            literals=_strings(node),
        )

    def _parameters(self, decorators: list[ast.expr]) -> str:
        """Fingerprint of the parametrisation, with the constants and helpers of this file that it names, and theirs."""
        parts = [_dump(decorator) for decorator in decorators]
        waiting = [name for decorator in decorators for name in sorted(_names(decorator))]
        seen: set[str] = set()
        while waiting:
            name = waiting.pop(0)
            source = self.constants.get(name) or self.helpers.get(name)
            if name not in seen and source is not None:
                seen.add(name)
                parts.append(_dump(source))
                waiting.extend(sorted(_names(source)))
        return _digest(self.generator, *parts) if parts or self.generator else ""


def parse(source: bytes | None) -> TestFile:
    """The declarations of a file; an empty one when it is missing or no valid Python (then pytest has the word)."""
    if source is None:
        return EMPTY
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return EMPTY
    reader = _Reader(module)
    return TestFile(reader.functions, reader.fixtures, frozenset(reader.class_nodes), frozenset(reader.foreign))


def reach(requests: Iterable[str], fixtures: Mapping[str, Fixture]) -> str:
    """Fingerprint of every fixture that is reached from `requests`; names defined elsewhere do not count."""
    waiting, seen = sorted({*requests, *(name for name, fixture in fixtures.items() if fixture.autouse)}), set[str]()
    parts = []
    while waiting:
        name = waiting.pop(0)
        if name not in seen and name in fixtures:
            seen.add(name)
            parts.append(f"{name}={fixtures[name].own}")
            waiting.extend(sorted(fixtures[name].requests))
    return _digest(*sorted(parts))
