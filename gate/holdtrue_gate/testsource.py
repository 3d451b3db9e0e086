"""What a test file declares, as fingerprints: functions, their parametrisation, the fixtures they reach. By AST, so
layout is no change."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

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
class Closure:
    """What some code stands on: its own fingerprint and that of every definition of the same file that it reaches.

    `outside` holds the imported names that are reached, as `name` or `name.attribute`. `words` are the names of methods
    that are called; they tell whether a folder is listed.
    """

    digest: str = ""
    outside: frozenset[str] = frozenset()
    literals: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    existence: frozenset[str] = frozenset()
    assertions: tuple[tuple[int, int, frozenset[str]], ...] = ()


@dataclass(frozen=True)
class Fixture:
    """A fixture: what its source stands on, its parameters, and the fixtures it asks for."""

    own: Closure
    requests: frozenset[str]
    autouse: bool = False
    parameters: Closure = field(default_factory=Closure)


@dataclass(frozen=True)
class Function:
    """A function that may be a test. `qualname` is as in a node id (`TestX::test_y`)."""

    qualname: str
    code: Closure
    parametrisation: Closure
    requests: frozenset[str]

    @property
    def own(self) -> str:
        """Fingerprint of the function and of what it reaches in its file."""
        return self.code.digest

    @property
    def parameters(self) -> str:
        """Fingerprint of its parametrisation; empty without one."""
        return self.parametrisation.digest

    @property
    def existence(self) -> frozenset[str]:
        """Names that the function asks for without using them."""
        return self.code.existence

    @property
    def assertions(self) -> tuple[tuple[int, int, frozenset[str]], ...]:
        """Its assertions: first and last line (1-based), their literals, and with a dot their names and attributes."""
        return self.code.assertions

    @property
    def literals(self) -> frozenset[str]:
        """Every text in it."""
        return self.code.literals


@dataclass(frozen=True)
class Import:
    """Where an imported name comes from: `from module import name`, or `import module` (name None); `level` counts the
    dots."""

    module: str
    name: str | None
    level: int = 0


@dataclass(frozen=True)
class Definition:
    """A name of a module: the fingerprint of its source, and what that uses."""

    digest: str
    uses: frozenset[str]
    literals: frozenset[str]
    words: frozenset[str]
    existence: frozenset[str]
    assertions: tuple[tuple[int, int, frozenset[str]], ...]


@dataclass(frozen=True)
class TestFile:
    """The functions, classes and fixtures of one file, and the names that other files may take from it.

    `foreign_bases` holds, by class with bases that are defined elsewhere, what its inherited tests stand on here.
    `plugins` are the modules of `pytest_plugins`.
    `generator` stands for `pytest_generate_tests`. `broken`: it is there and no valid Python.
    """

    __test__ = False

    functions: Mapping[str, Function] = field(default_factory=dict)
    fixtures: Mapping[str, Fixture] = field(default_factory=dict)
    classes: frozenset[str] = frozenset()
    foreign_bases: Mapping[str, Closure] = field(default_factory=dict)
    definitions: Mapping[str, Definition] = field(default_factory=dict)
    imports: Mapping[str, Import] = field(default_factory=dict)
    stars: tuple[Import, ...] = ()
    plugins: tuple[str, ...] = ()
    generator: Closure = field(default_factory=Closure)
    broken: bool = False

    def closure(self, names: Iterable[str]) -> Closure:
        """What the definitions named stand on; a name of no definition here is `outside` when it is imported."""
        return _closure(self.definitions, self.imports, self.stars, [], names)


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


def _uses(*nodes: ast.AST) -> frozenset[str]:
    """Names that code reads: `name`, or `name.attribute` where only an attribute of it is used."""
    found: set[str] = set()
    inner: set[int] = set()
    for node in nodes:
        for child in ast.walk(node):
            if isinstance(child, ast.Attribute) and isinstance(child.value, ast.Name):
                found.add(f"{child.value.id}.{child.attr}")
                inner.add(id(child.value))
            elif isinstance(child, ast.Name) and id(child) not in inner:
                found.add(child.id)
    return frozenset(found)


def _assertion(node: ast.Assert) -> tuple[int, int, frozenset[str]]:
    names = {"." + part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    names |= {"." + part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return node.lineno, node.end_lineno or node.lineno, _strings(node) | names


def _define(digest: str, *nodes: ast.AST) -> Definition:
    # Every test file of a project may come by here: one walk, and further ones only where they can find something.
    children = [child for node in nodes for child in ast.walk(node)]
    inner = {id(c.value) for c in children if isinstance(c, ast.Attribute) and isinstance(c.value, ast.Name)}
    uses = {c.id for c in children if isinstance(c, ast.Name) and id(c) not in inner}
    uses |= {
        f"{c.value.id}.{c.attr}" for c in children if isinstance(c, ast.Attribute) and isinstance(c.value, ast.Name)
    }
    looking = [c for c in children if isinstance(c, ast.Call | ast.Compare)]
    existence: frozenset[str] = frozenset().union(*(_looked_for(child) for child in looking))
    return Definition(
        digest,
        frozenset(uses),
        frozenset(c.value for c in children if isinstance(c, ast.Constant) and isinstance(c.value, str)),
        frozenset(c.attr for c in children if isinstance(c, ast.Attribute)),
        existence,
        tuple(_assertion(child) for child in children if isinstance(child, ast.Assert)),
    )


class _Definitions(Mapping[str, Definition]):
    """The definitions of a module, read when they are asked for: few of them are."""

    def __init__(self, sources: Mapping[str, list[ast.stmt]]) -> None:
        self._sources = sources
        self._read: dict[str, Definition] = {}

    def __getitem__(self, name: str) -> Definition:
        if name not in self._read:
            statements = self._sources[name]
            self._read[name] = _define(_digest(*map(_source, statements)), *statements)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, name: object) -> bool:
        return name in self._sources


def _closure(
    definitions: Mapping[str, Definition],
    imports: Mapping[str, Import],
    stars: tuple[Import, ...],
    roots: Iterable[Definition],
    names: Iterable[str] = (),
    members: Mapping[str, Definition] | None = None,
) -> Closure:
    """Walks from `roots` and `names` through the definitions of one file; `members` are those of the class around."""
    members = members or {}
    waiting = list(roots)
    parts = [root.digest for root in waiting]
    asked = [*names]
    seen: set[str] = set()
    outside: set[str] = set()
    literals: set[str] = set()
    words: set[str] = set()
    existence: set[str] = set()
    assertions: list[tuple[int, int, frozenset[str]]] = []
    reached: list[str] = []
    while waiting or asked:
        while waiting:
            one = waiting.pop()
            literals |= one.literals
            words |= one.words
            existence |= one.existence
            assertions.extend(one.assertions)
            asked.extend(one.uses)
        if not asked:
            break
        name = asked.pop()
        if name in seen:
            continue
        seen.add(name)
        head, _, attribute = name.partition(".")
        if head in ("self", "cls") and attribute in members:
            reached.append(f"{name}={members[attribute].digest}")
            waiting.append(members[attribute])
        elif head in definitions:
            if head not in seen or name == head:
                seen.add(head)
                reached.append(f"{head}={definitions[head].digest}")
                waiting.append(definitions[head])
        elif head in imports or stars:
            outside.add(name)
    return Closure(
        _digest(*parts, *sorted(reached)),
        frozenset(outside),
        frozenset(literals),
        frozenset(words),
        frozenset(existence),
        tuple(sorted(set(assertions), key=lambda found: found[:2])),
    )


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


def _own_source(node: FunctionNode, *, plain: bool = False) -> str:
    """Fingerprint of a function without its parametrisation; `plain`: without its decorators."""
    decorators = [_dump(d) for d in node.decorator_list if not (plain or _is_parametrisation(d))]
    return _digest(
        type(node).__name__,
        _dump(node.args),
        *decorators,
        *(_dump(statement) for statement in _without_docstring(node.body)),
    )


def _looked_for(node: ast.Call | ast.Compare) -> frozenset[str]:
    """Names that the code asks for without using them: hasattr(m, "x"), getattr(m, "x", None), "x" in dir(m), "p" in
    signature(f).parameters."""
    if isinstance(node, ast.Call):
        asks = len(node.args) > 1 and _dotted(node.func).rpartition(".")[2] in ("hasattr", "getattr")
        return _strings(node.args[1]) if asks else frozenset()
    if not any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
        return frozenset()
    parts = list(ast.walk(node.comparators[-1]))
    calls = {_dotted(part.func).rpartition(".")[2] for part in parts if isinstance(part, ast.Call)}
    attributes = {part.attr for part in parts if isinstance(part, ast.Attribute)}
    return _strings(node.left) if calls & _EXISTENCE_CALLS or attributes & _EXISTENCE_ATTRIBUTES else frozenset()


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


_FRAMEWORK_BASES = frozenset(
    {"object", "TestCase", "unittest.TestCase", "IsolatedAsyncioTestCase", "unittest.IsolatedAsyncioTestCase"}
)


def _targets(statement: ast.stmt) -> list[str]:
    """Names that a statement of a module gives a value, or whose value it changes."""
    if isinstance(statement, ast.Assign):
        nodes: list[ast.expr] = list(statement.targets)
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
        nodes = [statement.target]
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        nodes = [statement.value.func]  # CASES.append(...)
        if isinstance(nodes[0], ast.Name):
            return []
    else:
        return []
    found = []
    for node in nodes:
        parts = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
        for part in parts:
            inner: ast.AST = part
            while isinstance(inner, ast.Attribute | ast.Subscript | ast.Starred):
                inner = inner.value
            if isinstance(inner, ast.Name):
                found.append(inner.id)
    return found


class _Reader:
    def __init__(self, module: ast.Module) -> None:
        self.functions: dict[str, Function] = {}
        self.fixtures: dict[str, Fixture] = {}
        self.class_nodes: dict[str, ast.ClassDef] = {}
        self.foreign: dict[str, Closure] = {}
        self.imports: dict[str, Import] = {}
        self.stars: list[Import] = []
        self.plugins: list[str] = []
        top = list(_statements(module.body))
        sources: dict[str, list[ast.stmt]] = {}
        for statement in top:
            self._import(statement)
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                sources.setdefault(statement.name, []).append(statement)
            for target in _targets(statement):
                sources.setdefault(target, []).append(statement)
        for name in [name for name in sources if name in self.imports]:
            if not any(isinstance(s, ast.Assign | ast.FunctionDef | ast.ClassDef) for s in sources[name]):
                del sources[name]  # os.environ["X"] = ...: still the imported module
        self.definitions = _Definitions(sources)
        self.helpers = {s.name: s for s in top if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef)}
        values = [s.value for s in sources.get("pytestmark", []) if isinstance(s, ast.Assign | ast.AnnAssign)]
        self.marks = [value for value in values if value is not None]
        for statement in sources.get("pytest_plugins", []):
            self.plugins.extend(sorted(_strings(statement)))
        generator = self.definitions.get("pytest_generate_tests")
        self.generator = self._closed([generator]) if generator is not None else Closure()
        self.module_setup = [self.definitions[name] for name in sorted(self.helpers) if name in _XUNIT]
        self._body(top, "", [])

    def _import(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                bound = alias.asname or alias.name.partition(".")[0]
                self.imports[bound] = Import(alias.name if alias.asname else bound, None)
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if alias.name == "*":
                    self.stars.append(Import(statement.module or "", None, statement.level))
                else:
                    self.imports[alias.asname or alias.name] = Import(
                        statement.module or "", alias.name, statement.level
                    )

    def _closed(
        self,
        roots: Iterable[Definition],
        names: Iterable[str] = (),
        members: Mapping[str, Definition] | None = None,
    ) -> Closure:
        return _closure(self.definitions, self.imports, tuple(self.stars), roots, names, members)

    def _body(self, statements: Iterable[ast.stmt], prefix: str, decorators: list[ast.expr]) -> None:
        for statement in statements:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self._function(statement, prefix, decorators, self.module_setup, {}, frozenset())
            elif isinstance(statement, ast.ClassDef):
                self._class(statement, prefix, decorators)

    def _class(self, node: ast.ClassDef, prefix: str, outer: list[ast.expr]) -> None:
        qualname = prefix + node.name
        self.class_nodes[qualname] = node
        methods, values, foreign = self._members(node, 0)
        known = {name: _define(_own_source(m), m) for name, m in methods.items()}
        known |= {name: _define(_digest(*map(_source, found)), *found) for name, found in values.items()}
        setup = [*self.module_setup, *(known[name] for name in sorted(known) if name in _XUNIT)]
        if foreign:
            self.foreign[qualname] = self._closed([*setup, *(known[name] for name in sorted(values))], foreign)
        decorators = [*outer, *node.decorator_list]
        marks = [s.value for s in values.get("pytestmark", []) if isinstance(s, ast.Assign)]
        for method in methods.values():
            self._function(method, qualname + "::", [*decorators, *marks], setup, known, foreign)
        for statement in _statements(node.body):
            if isinstance(statement, ast.ClassDef):
                self._class(statement, qualname + "::", decorators)

    def _members(
        self, node: ast.ClassDef, depth: int
    ) -> tuple[dict[str, FunctionNode], dict[str, list[ast.stmt]], frozenset[str]]:
        """Methods and values by name, with those of bases in the same file; and the bases that lie elsewhere."""
        methods: dict[str, FunctionNode] = {}
        values: dict[str, list[ast.stmt]] = {}
        foreign: frozenset[str] = frozenset()
        for base in reversed(node.bases):
            name = _dotted(base)
            if name in self.class_nodes and depth < 20 and self.class_nodes[name] is not node:
                inherited, given, further = self._members(self.class_nodes[name], depth + 1)
                methods |= inherited
                values |= given
                foreign |= further
            elif name not in _FRAMEWORK_BASES:
                foreign |= _uses(base)
        for statement in _statements(node.body):
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                methods[statement.name] = statement
            else:
                for target in _targets(statement):
                    values.setdefault(target, []).append(statement)
        return methods, values, foreign

    def _function(
        self,
        node: FunctionNode,
        prefix: str,
        outer: list[ast.expr],
        setup: list[Definition],
        members: Mapping[str, Definition],
        foreign: frozenset[str],
    ) -> None:
        own = _define(_own_source(node), *_without_parametrisation(node))
        # An argument is a fixture's value, whatever else of the file has its name.
        arguments = _arguments(node)
        own = replace(own, uses=frozenset(name for name in own.uses if name.partition(".")[0] not in arguments))
        if _is_fixture(node):
            own = _define(_own_source(node, plain=True), node.args, *_without_docstring(node.body))
            own = replace(own, uses=frozenset(name for name in own.uses if name.partition(".")[0] not in arguments))
            given = [k for d in node.decorator_list if isinstance(d, ast.Call) for k in d.keywords]
            varied = [_define(_dump(k.value), k.value) for k in given if k.arg in ("params", "ids")]
            rest = [_define(_dump(k), k.value) for k in given if k.arg not in ("params", "ids")]
            autouse = any(
                k.arg == "autouse" and not (isinstance(k.value, ast.Constant) and not k.value.value) for k in given
            )
            self.fixtures[node.name] = Fixture(
                self._closed([own, *rest], members=members),
                _arguments(node),
                autouse,
                self._closed(varied) if varied else Closure(),
            )
            return
        decorators = [*self.marks, *outer, *node.decorator_list]
        shared = [_define(_dump(d), d) for d in [*self.marks, *outer] if not _is_parametrisation(d)]
        varied = [_define(_dump(d), d) for d in decorators if _is_parametrisation(d)]
        if self.generator.digest:
            varied.append(self.definitions["pytest_generate_tests"])
        self.functions[prefix + node.name] = Function(
            qualname=prefix + node.name,
            code=self._closed([own, *setup, *shared], foreign, members),
            parametrisation=self._closed(varied) if varied else Closure(),
            requests=_arguments(node) | _used_fixtures(decorators),
        )


def _without_parametrisation(node: FunctionNode) -> list[ast.AST]:
    """The parts of a function that say what it does: its parametrisation only says how often."""
    return [
        node.args,
        *(d for d in node.decorator_list if not _is_parametrisation(d)),
        *_without_docstring(node.body),
    ]


def _source(statement: ast.stmt) -> str:
    """Fingerprint of a definition, without docstrings."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return _own_source(statement)
    if isinstance(statement, ast.ClassDef):
        return _digest(
            statement.name,
            *(_dump(part) for part in [*statement.bases, *statement.keywords, *statement.decorator_list]),
            *(_source(inner) for inner in _without_docstring(statement.body)),
        )
    return _dump(statement)


def parse(source: bytes | None) -> TestFile:
    """The declarations of a file; an empty one when it is missing or no valid Python (then pytest has the word)."""
    if source is None:
        return EMPTY
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return TestFile(broken=True)
    reader = _Reader(module)
    return TestFile(
        reader.functions,
        reader.fixtures,
        frozenset(reader.class_nodes),
        reader.foreign,
        reader.definitions,
        reader.imports,
        tuple(reader.stars),
        tuple(reader.plugins),
        reader.generator,
    )
