"""The tests of one file as far as strictness goes: their demands, skips, parameters and search settings, by node id.

Read from the syntax tree; nothing is imported. What pytest would collect is told by its default rules and the
`python_files`, `python_classes`, `python_functions` of the project's settings.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import fnmatchcase

from holdtrue_gate.demands import Check, checks_of
from holdtrue_gate.strictness import unittest_expression
from holdtrue_gate.syntax import FunctionNode, Source, dotted, locals_of, snippet, tail, text_of, words_of


class Degree(IntEnum):
    """How often a test is left out."""

    NEVER = 0
    SOMETIMES = 1
    ALWAYS = 2


@dataclass(frozen=True)
class Skip:
    """Why a test may not run or may fail. `scope`: the function, class or file ("") that says so."""

    degree: Degree
    xfail: bool
    scope: str
    source: str
    line: int
    doubtful: bool = True


@dataclass(frozen=True)
class Parameters:
    """One parametrisation: argument names (None: not written as text), rows (None: not written as a list)."""

    names: tuple[str, ...] | None
    rows: tuple[str, ...] | None
    skipped: frozenset[str]
    sources: Mapping[str, str]
    source: str
    line: int


@dataclass(frozen=True)
class Search:
    """Hypothesis' settings of a test. `examples` are the explicit ones, `strategy` the arguments of `given`."""

    given: bool = False
    max_examples: int | None = None
    suppressed: frozenset[str] = frozenset()
    examples: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    line: int = 1


@dataclass(frozen=True)
class TestCode:
    """One test, helper or fixture. `qualname` as in a node id.

    `exact` is the digest of its whole source, `body` of its statements without names of variables. `words`: what it is
    about. `loops`: whether it has a loop. `calls`: names that it calls.
    """

    __test__ = False

    qualname: str
    line: int
    source: str
    exact: str
    body: str
    checks: tuple[Check, ...]
    skips: tuple[Skip, ...]
    parameters: tuple[Parameters, ...]
    search: Search
    words: frozenset[str]
    loops: bool
    calls: frozenset[str]

    @property
    def name(self) -> str:
        """Its bare name."""
        return self.qualname.rpartition("::")[2]

    @property
    def degree(self) -> Degree:
        """How often it is left out or may fail."""
        return max((skip.degree for skip in self.skips), default=Degree.NEVER)


@dataclass(frozen=True)
class TestModule:
    """What a file holds. `readable`: whether it is valid Python. `tests` by qualname are collected, `helpers` are the
    other functions, `fixtures` those that pytest calls. `bases`: base names of each class. `imports`: dotted names.
    `values`: literals of assignments at the top. `ignored`: what a conftest keeps from collection."""

    __test__ = False

    readable: bool = True
    tests: Mapping[str, TestCode] = field(default_factory=dict)
    helpers: Mapping[str, TestCode] = field(default_factory=dict)
    fixtures: Mapping[str, TestCode] = field(default_factory=dict)
    bases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    imports: frozenset[str] = frozenset()
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Collection:
    """Which files, classes and functions pytest collects: prefixes or globs, as its settings have them."""

    files: tuple[str, ...] = ("test_*.py", "*_test.py")
    classes: tuple[str, ...] = ("Test",)
    functions: tuple[str, ...] = ("test",)

    def takes_file(self, path: str) -> bool:
        """Whether tests of this file are collected."""
        return any(fnmatchcase(path.rpartition("/")[2], pattern) for pattern in self.files)

    def takes_function(self, name: str) -> bool:
        """Whether a function or method of this name is a test."""
        return any(name.startswith(p) or (_is_glob(p) and fnmatchcase(name, p)) for p in self.functions)

    def takes_class(self, name: str) -> bool:
        """Whether a class of this name is collected for its name."""
        return any(name.startswith(p) or (_is_glob(p) and fnmatchcase(name, p)) for p in self.classes)


def _is_glob(pattern: str) -> bool:
    return any(character in pattern for character in "*?[")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


# --- skips

_SKIP_MARKS = {"skip": Degree.ALWAYS, "skipif": Degree.SOMETIMES, "xfail": Degree.ALWAYS}
_UNITTEST_SKIPS = {
    "unittest.skip": Degree.ALWAYS,
    "unittest.skipIf": Degree.SOMETIMES,
    "unittest.skipUnless": Degree.SOMETIMES,
    "unittest.expectedFailure": Degree.ALWAYS,
    "skipIf": Degree.SOMETIMES,
    "skipUnless": Degree.SOMETIMES,
    "expectedFailure": Degree.ALWAYS,
}
_ENVIRONMENT = re.compile(r"environ|getenv|\bCI\b")


class _Marks:
    """Marks of a file, with the names that it gives to them at its top."""

    def __init__(self, source: Source, constants: Mapping[str, ast.expr]) -> None:
        self.source, self.constants = source, constants

    def _resolved(self, node: ast.expr) -> ast.expr:
        seen = 0
        while isinstance(node, ast.Name) and node.id in self.constants and seen < 10:
            node, seen = self.constants[node.id], seen + 1
        return node

    def each(self, node: ast.expr) -> Iterator[ast.expr]:
        """The single marks in a mark, a name of one, or a list of them."""
        found = self._resolved(node)
        if isinstance(found, ast.List | ast.Tuple):
            for element in found.elts:
                yield from self.each(element)
        else:
            yield found

    def skip(self, node: ast.expr, scope: str) -> Skip | None:
        """The skip or xfail that a mark means."""
        name, word = dotted(node), tail(node)
        call = node if isinstance(node, ast.Call) else None
        if "mark." in name and word in _SKIP_MARKS:
            degree, xfail = _SKIP_MARKS[word], word == "xfail"
            condition = call.args[0] if call is not None and call.args and word != "skip" else None
            for keyword in call.keywords if call is not None else []:
                if keyword.arg == "condition":
                    condition = keyword.value
                if keyword.arg == "run" and xfail:
                    xfail = True
            if condition is not None:
                degree = Degree.SOMETIMES
        elif name in _UNITTEST_SKIPS:
            degree, xfail = _UNITTEST_SKIPS[name], word == "expectedFailure"
            condition = call.args[0] if call is not None and call.args and degree is Degree.SOMETIMES else None
            if word == "skipUnless" and condition is not None:
                condition = ast.copy_location(ast.UnaryOp(ast.Not(), condition), condition)
        else:
            return None
        source = self.source.of(node) or name
        return _skip(degree, xfail, condition, scope, source, getattr(node, "lineno", 1))


def _constant_truth(node: ast.expr) -> bool | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _constant_truth(node.operand)
        return None if inner is None else not inner
    if isinstance(node, ast.Constant):
        # A text is an expression for pytest, not a truth.
        return _text_truth(node.value) if isinstance(node.value, str) else bool(node.value)
    return None


def _text_truth(value: str) -> bool | None:
    return {"True": True, "1": True, "False": False, "0": False}.get(value.strip())


def _skip(degree: Degree, xfail: bool, condition: ast.expr | None, scope: str, source: str, line: int) -> Skip | None:
    doubtful = degree is Degree.SOMETIMES
    if condition is not None:
        truth = _constant_truth(condition)
        if truth is False:
            return None
        if truth is True:
            degree, doubtful = Degree.ALWAYS, False
        elif _ENVIRONMENT.search(ast.unparse(condition)):
            # Not what the machine cannot do, but what somebody chose.
            doubtful = False
    return Skip(degree, xfail, scope, snippet(source), line, doubtful)


def _skips_in(body: Sequence[ast.stmt], code: Source, scope: str, degree: Degree = Degree.ALWAYS) -> Iterator[Skip]:
    """pytest.skip(), pytest.xfail(), importorskip and unittest's in the statements of a function or file."""
    for statement in body:
        if isinstance(statement, ast.If):
            truth = _constant_truth(statement.test)
            if truth is not False:
                inner = degree if truth else Degree.SOMETIMES
                for skip in _skips_in(statement.body, code, scope, inner):
                    chosen = bool(_ENVIRONMENT.search(ast.unparse(statement.test)))
                    yield Skip(skip.degree, skip.xfail, scope, skip.source, skip.line, skip.doubtful and not chosen)
            yield from _skips_in(statement.orelse, code, scope, Degree.SOMETIMES)
        elif isinstance(statement, ast.Try):
            yield from _skips_in(statement.body, code, scope, degree)
            for handler in statement.handlers:
                yield from _skips_in(handler.body, code, scope, Degree.SOMETIMES)
            yield from _skips_in(statement.orelse, code, scope, Degree.SOMETIMES)
        elif isinstance(statement, ast.With | ast.AsyncWith):
            yield from _skips_in(statement.body, code, scope, degree)
        elif isinstance(statement, ast.For | ast.AsyncFor | ast.While):
            yield from _skips_in(statement.body, code, scope, Degree.SOMETIMES)
        elif isinstance(statement, ast.Expr | ast.Assign | ast.Raise):
            value = statement.exc if isinstance(statement, ast.Raise) else statement.value
            if value is None:
                continue
            name = dotted(value)
            source = code.of(statement)
            if name in ("pytest.skip", "self.skipTest", "pytest.xfail") or tail(value) == "SkipTest":
                doubt = degree is Degree.SOMETIMES
                yield Skip(degree, name == "pytest.xfail", scope, source, statement.lineno, doubt)
            elif name.endswith("importorskip"):
                yield Skip(Degree.SOMETIMES, False, scope, source, statement.lineno)


# --- parameters


class _Rows:
    """Rows of parametrisations, with the lists that the file names at its top."""

    def __init__(self, marks: _Marks) -> None:
        self._marks, self._source = marks, marks.source

    def _elements(self, node: ast.expr, depth: int = 0) -> list[ast.expr] | None:
        if isinstance(node, ast.Name) and node.id in self._marks.constants and depth < 10:
            return self._elements(self._marks.constants[node.id], depth + 1)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            found: list[ast.expr] = []
            for element in node.elts:
                if isinstance(element, ast.Starred):
                    inner = self._elements(element.value, depth + 1)
                    if inner is None:
                        return None
                    found += inner
                else:
                    found.append(element)
            return found
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self._elements(node.left, depth + 1), self._elements(node.right, depth + 1)
            return None if left is None or right is None else left + right
        if isinstance(node, ast.Call) and dotted(node.func) in ("list", "tuple", "sorted", "set") and node.args:
            return self._elements(node.args[0], depth + 1)
        if isinstance(node, ast.Call) and dotted(node.func) == "range":
            given = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, int)]
            if len(given) == len(node.args) and 1 <= len(given) <= 3 and len(range(*given)) <= 10_000:
                return [ast.copy_location(ast.Constant(number), node) for number in range(*given)]
        return None

    def of(self, names: ast.expr | None, values: ast.expr, at: ast.expr) -> Parameters:
        """One parametrisation; `names` None for the params of a fixture."""
        told: tuple[str, ...] | None = ()
        if isinstance(names, ast.Constant) and isinstance(names.value, str):
            told = tuple(sorted(part.strip() for part in names.value.split(",") if part.strip()))
        elif isinstance(names, ast.List | ast.Tuple):
            told = tuple(sorted(str(e.value) for e in names.elts if isinstance(e, ast.Constant)))
        elif names is not None:
            told = None
        source = self._source.of(at)
        elements = self._elements(values)
        if elements is None:
            return Parameters(told, None, frozenset(), {}, source, at.lineno)
        rows, skipped, sources = [], set[str](), dict[str, str]()
        for element in elements:
            row = element
            left_out = False
            if isinstance(element, ast.Call) and tail(element.func) == "param":
                left_out = any(
                    (skip := self._marks.skip(mark, "")) is not None and skip.degree is Degree.ALWAYS
                    for keyword in element.keywords
                    if keyword.arg == "marks"
                    for mark in self._marks.each(keyword.value)
                )
                row = (
                    element.args[0]
                    if len(element.args) == 1
                    else ast.copy_location(ast.Tuple(element.args, ast.Load()), element)
                )
            told_row = text_of(row).replace("List(", "Tuple(", 1)
            if isinstance(row, ast.Tuple) and len(row.elts) == 1 and told is not None and len(told) == 1:
                told_row = text_of(row.elts[0])
            rows.append(told_row)
            sources.setdefault(told_row, (self._source.of(element) or ast.unparse(element)))
            if left_out:
                skipped.add(told_row)
        return Parameters(told, tuple(rows), frozenset(skipped), sources, source, at.lineno)

    def of_mark(self, node: ast.expr) -> Parameters | None:
        """The parametrisation of a decorator."""
        if not isinstance(node, ast.Call) or not dotted(node.func).endswith("parametrize"):
            return None
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        names = node.args[0] if node.args else given.get("argnames")
        values = node.args[1] if len(node.args) > 1 else given.get("argvalues")
        return self.of(names, values, node) if names is not None and values is not None else None


def _search(decorators: Sequence[ast.expr], code: Source) -> Search:
    given, maximum, suppressed, examples = False, None, set[str](), list[str]()
    sources: dict[str, str] = {}
    line = 1
    for node in decorators:
        word = tail(node)
        source = code.of(node)
        if word == "given":
            given, line = True, node.lineno
        elif word == "settings" and isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "max_examples" and isinstance(keyword.value, ast.Constant):
                    value = keyword.value.value
                    maximum = value if isinstance(value, int) else maximum
                    sources["max_examples"], line = source, node.lineno
                elif keyword.arg == "suppress_health_check":
                    suppressed |= {child.attr for child in ast.walk(keyword.value) if isinstance(child, ast.Attribute)}
                    sources["suppressed"] = source
        elif word == "example" and isinstance(node, ast.Call):
            told = text_of(node)
            examples.append(told)
            sources[told] = source
    return Search(given, maximum, frozenset(suppressed), tuple(examples), sources, line)


# --- files


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, ast.If | ast.Try | ast.With):
            yield from _statements(statement.body)
            yield from _statements(getattr(statement, "orelse", []))
            for handler in getattr(statement, "handlers", []):
                yield from _statements(handler.body)
        else:
            yield statement


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return body[1:]
    return body


def _is_fixture(node: FunctionNode) -> bool:
    return any(tail(decorator) in ("fixture", "yield_fixture") for decorator in node.decorator_list)


def _calls(node: ast.AST) -> frozenset[str]:
    return frozenset(tail(child.func) for child in ast.walk(node) if isinstance(child, ast.Call))


class _Reader:
    def __init__(self, source: Source, module: ast.Module, collection: Collection) -> None:
        self.source, self.collection = source, collection
        self.tests: dict[str, TestCode] = {}
        self.helpers: dict[str, TestCode] = {}
        self.fixtures: dict[str, TestCode] = {}
        self.bases: dict[str, tuple[str, ...]] = {}
        self.top = list(_statements(module.body))
        self.constants = {
            target.id: statement.value
            for statement in self.top
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None
            for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
            if isinstance(target, ast.Name)
        }
        self.marks = _Marks(source, self.constants)
        self.rows = _Rows(self.marks)
        self.checkers = self._checkers(module)
        outer = [self.constants["pytestmark"]] if "pytestmark" in self.constants else []
        skips = [*_skips_in(module.body, source, "", Degree.ALWAYS)]
        skips += self._mark_skips(outer, "") + self._test_false(module.body, "")
        self._body(self.top, "", outer, skips, inside=True)

    def _checkers(self, module: ast.Module) -> frozenset[str]:
        """Functions of this file that demand something, by themselves or by what they call."""
        functions = {
            node.name: node
            for node in ast.walk(module)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and not self.collection.takes_function(node.name)
        }
        known: set[str] = set()
        for name, node in functions.items():
            if any(isinstance(child, ast.Assert) for child in ast.walk(node)) or any(
                unittest_expression(child) is not None for child in ast.walk(node) if isinstance(child, ast.Call)
            ):
                known.add(name)
        grown = True
        while grown:
            more = {name for name, node in functions.items() if name not in known and _calls(node) & known}
            known |= more
            grown = bool(more)
        return frozenset(known)

    def _mark_skips(self, decorators: Iterable[ast.expr], scope: str) -> list[Skip]:
        found = (self.marks.skip(mark, scope) for node in decorators for mark in self.marks.each(node))
        return [skip for skip in found if skip is not None]

    def _test_false(self, body: Sequence[ast.stmt], scope: str) -> list[Skip]:
        return [
            Skip(Degree.ALWAYS, False, scope, "__test__ = False", statement.lineno, doubtful=False)
            for statement in body
            if isinstance(statement, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == "__test__" for target in statement.targets)
            and isinstance(statement.value, ast.Constant)
            and not statement.value.value
        ]

    def _body(
        self,
        statements: Iterable[ast.stmt],
        prefix: str,
        outer: Sequence[ast.expr],
        skips: Sequence[Skip],
        *,
        inside: bool,
        rules: bool = False,
    ) -> None:
        """`inside`: functions here are collected. `rules`: this is a state machine, whose invariants are tests."""
        for statement in statements:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self._function(statement, prefix, outer, skips, inside=inside, rules=rules)
            elif isinstance(statement, ast.ClassDef):
                self._class(statement, prefix, outer, skips)

    def _class(self, node: ast.ClassDef, prefix: str, outer: Sequence[ast.expr], skips: Sequence[Skip]) -> None:
        qualname = prefix + node.name
        self.bases[node.name] = tuple(dotted(base) for base in node.bases)
        own = [*node.decorator_list]
        own += [
            statement.value
            for statement in node.body
            if isinstance(statement, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in statement.targets)
        ]
        mine = [*skips, *self._mark_skips(own, qualname), *self._test_false(node.body, qualname)]
        based = any(dotted(base) not in ("object", "") for base in node.bases)
        self._body(
            _statements(node.body),
            qualname + "::",
            [*outer, *own],
            mine,
            inside=self.collection.takes_class(node.name) or based,
            rules=any("StateMachine" in dotted(base) for base in node.bases),
        )

    def _function(
        self,
        node: FunctionNode,
        prefix: str,
        outer: Sequence[ast.expr],
        skips: Sequence[Skip],
        *,
        inside: bool,
        rules: bool,
    ) -> None:
        qualname = prefix + node.name
        local = locals_of(node)
        body = _without_docstring(node.body)
        decorators = [mark for d in (*outer, *node.decorator_list) for mark in self.marks.each(d)]
        parameters = [p for d in decorators if (p := self.rows.of_mark(d)) is not None]
        words = set[str]().union(*(words_of(part, local) for part in (*body, *node.decorator_list)))
        # The rows may stand in a list that has a name.
        for decorator in node.decorator_list:
            for child in ast.walk(decorator):
                if isinstance(child, ast.Name) and child.id in self.constants:
                    words |= words_of(self.constants[child.id], local)
        is_fixture = _is_fixture(node)
        if is_fixture:
            parameters = [
                self.rows.of(None, keyword.value, decorator)
                for decorator in node.decorator_list
                if isinstance(decorator, ast.Call) and tail(decorator) == "fixture"
                for keyword in decorator.keywords
                if keyword.arg == "params"
            ]
        code = TestCode(
            qualname=qualname,
            line=node.lineno,
            source=f"def {node.name}({ast.unparse(node.args)})",
            exact=_digest(text_of(node.args), *(text_of(d) for d in decorators), *(text_of(s) for s in body)),
            body=_digest(*(text_of(s, local, names=False) for s in body)),
            checks=checks_of(node, self.source, self.checkers),
            skips=(*skips, *self._mark_skips(node.decorator_list, qualname), *_skips_in(body, self.source, qualname)),
            parameters=tuple(parameters),
            search=_search(decorators, self.source),
            words=frozenset(words),
            loops=any(isinstance(child, ast.For | ast.AsyncFor | ast.While) for child in ast.walk(node)),
            calls=_calls(node),
        )
        invariant = rules and any(tail(decorator) == "invariant" for decorator in node.decorator_list)
        if is_fixture:
            self.fixtures[qualname] = code
        elif (inside and self.collection.takes_function(node.name)) or invariant:
            self.tests[qualname] = code
        else:
            self.helpers[qualname] = code

    def imports(self, module: ast.Module) -> frozenset[str]:
        found: set[str] = set()
        for node in ast.walk(module):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        return frozenset(found)

    def ignored(self) -> tuple[str, ...]:
        """Literal entries of `collect_ignore` and `collect_ignore_glob`."""
        found: list[str] = []
        for name in ("collect_ignore", "collect_ignore_glob"):
            value = self.constants.get(name)
            if isinstance(value, ast.List | ast.Tuple):
                found += [e.value for e in value.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
        return tuple(found)


EMPTY = TestModule()


def parse(source: bytes | None, collection: Collection) -> TestModule:
    """The tests of a file; an empty module when it is missing, an unreadable one when it is no valid Python."""
    if source is None:
        return EMPTY
    try:
        text = source.decode("utf-8-sig", "surrogateescape")
        module = ast.parse(text)
        reader = _Reader(Source(text), module, collection)
    except (SyntaxError, ValueError, RecursionError):
        return TestModule(readable=False)
    return TestModule(
        tests=reader.tests,
        helpers=reader.helpers,
        fixtures=reader.fixtures,
        bases=reader.bases,
        imports=reader.imports(module),
        ignored=reader.ignored(),
    )
