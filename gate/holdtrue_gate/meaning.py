"""What Python source means beside its wording: equality but for comments, docstrings and annotations; what it defines, uses
and leaves undefined. Only parsed, never run; bytes that are no Python have no meaning here, and equal nothing."""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KNOWN_TO_EVERY_MODULE = frozenset(dir(builtins)) | {
    *("__file__", "__name__", "__doc__", "__package__", "__path__", "__spec__", "__loader__", "__builtins__"),
    *("__class__", "__annotations__", "__dict__", "__module__", "__qualname__", "__debug__"),
}
# Decorators that take a function as it is; any other may read its annotations (a web route, a command, a dispatcher).
_PLAIN_DECORATORS = frozenset(
    {"staticmethod", "classmethod", "property", "contextmanager", "override", "cached_property"}
)

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@lru_cache(maxsize=512)
def parsed(data: bytes) -> ast.Module | None:
    """The syntax tree, or None when the bytes are no Python. Shared: never change it."""
    try:
        return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def is_python(path: str) -> bool:
    """Whether a path names Python source."""
    return path.endswith((".py", ".pyi"))


# --- equality


def _dotted_end(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _dotted_end(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


class _Normal(ast.NodeTransformer):
    """Takes away what only a reader or a type checker sees. Class-level annotations stay: they make fields."""

    def __init__(self) -> None:
        self.annotated: set[str] = set()
        self._in_class = False

    def _annotation(self, node: ast.expr | None) -> None:
        if node is not None:
            for child in ast.walk(node):
                if isinstance(child, ast.Name):
                    self.annotated.add(child.id)
                elif isinstance(child, ast.Constant) and isinstance(child.value, str):
                    self.annotated |= set(_WORD.findall(child.value))

    def _body(self, body: list[ast.stmt], *, documented: bool, in_class: bool) -> list[ast.stmt]:
        outer, self._in_class = self._in_class, in_class
        kept: list[ast.stmt] = []
        for statement in body[1:] if documented and body and _is_docstring(body[0]) else body:
            made = self.visit(statement)
            if made is not None:
                kept.append(made)
        self._in_class = outer
        return [s for s in kept if not isinstance(s, ast.Pass)] or [ast.Pass()]

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return ast.Module(self._body(node.body, documented=True, in_class=False), [])

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = self._body(node.body, documented=True, in_class=True)
        return node

    def _function(self, node: FunctionNode) -> ast.AST:
        if all(_dotted_end(decorator) in _PLAIN_DECORATORS for decorator in node.decorator_list):
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            for argument in every:
                if argument is not None:
                    self._annotation(argument.annotation)
                    argument.annotation = None
            self._annotation(node.returns)
            node.returns = None
        node.body = self._body(node.body, documented=True, in_class=False)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if self._in_class:
            return node
        self._annotation(node.annotation)
        return ast.Assign([node.target], node.value) if node.value is not None else None

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if _dotted_end(node.test) == "TYPE_CHECKING" and not node.orelse:
            return None
        node.body = self._body(node.body, documented=False, in_class=self._in_class)
        node.orelse = [s for s in map(self.visit, node.orelse) if s is not None]
        return node


def _bound_name(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _without_idle_imports(module: ast.Module, annotated: set[str]) -> None:
    """Takes away imports that only annotations use, and those of the standard library that nothing uses."""
    used: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Name):
            used.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            used.add(node.value)
    for node in ast.walk(module):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for statement in body:
            if not isinstance(statement, ast.Import | ast.ImportFrom):
                continue
            source = statement.module if isinstance(statement, ast.ImportFrom) and not statement.level else None
            statement.names = [
                alias
                for alias in statement.names
                if _bound_name(alias) in used
                or not (
                    _bound_name(alias) in annotated
                    or (source or (alias.name if isinstance(statement, ast.Import) else "?")).partition(".")[0]
                    in sys.stdlib_module_names - {"__future__"}
                )
            ]
        body[:] = [s for s in body if not (isinstance(s, ast.Import | ast.ImportFrom) and not s.names)]


@lru_cache(maxsize=512)
def _normal(data: bytes) -> str | None:
    # Parsed anew, because the transformer changes what it visits.
    try:
        module = ast.parse(data)
        normal = _Normal()
        module = normal.visit(module)
        _without_idle_imports(module, normal.annotated)
        # The future of annotations is one more word about them.
        module.body = [
            s
            for s in module.body
            if not (
                isinstance(s, ast.ImportFrom)
                and s.module == "__future__"
                and [a.name for a in s.names] == ["annotations"]
            )
        ]
        return ast.dump(module, annotate_fields=False)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def same(first: bytes, second: bytes) -> bool:
    """Whether two sources differ in comments, docstrings, annotations, blank lines and imports for these alone."""
    one = _normal(first)
    return one is not None and one == _normal(second)


# --- names


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a module or class, also those inside `if`, `try`, `with` and loops."""
    for statement in body:
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(statement, part, []))
            for handler in getattr(statement, "handlers", []):
                yield from _statements(handler.body)
            for case in getattr(statement, "cases", []):
                yield from _statements(case.body)


def _targets(statement: ast.stmt) -> list[str]:
    nodes: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        nodes = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
        nodes = [statement.target]
    return [n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


@lru_cache(maxsize=512)
def definitions(data: bytes) -> dict[str, tuple[tuple[int, int], ...]]:
    """Functions, classes and module or class level names by qualified name, with their line ranges (1-based, inclusive)."""
    found: dict[str, list[tuple[int, int]]] = {}

    def collect(body: Iterable[ast.stmt], prefix: str) -> None:
        for statement in _statements(body):
            last = statement.end_lineno or statement.lineno
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([statement.lineno, *(d.lineno for d in statement.decorator_list)])
                found.setdefault(prefix + statement.name, []).append((first, last))
                if isinstance(statement, ast.ClassDef):
                    collect(statement.body, f"{prefix}{statement.name}.")
            else:
                for name in _targets(statement):
                    found.setdefault(prefix + name, []).append((statement.lineno, last))

    module = parsed(data)
    if module is not None:
        collect(module.body, "")
    return {name: tuple(ranges) for name, ranges in found.items()}


@lru_cache(maxsize=512)
def defined(data: bytes) -> frozenset[str]:
    """Every name that others can reach: definitions, parameters, attributes that are set on anything."""
    module = parsed(data)
    if module is None:
        return frozenset()
    found = {name.rpartition(".")[2] for name in definitions(data)}
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
    return frozenset(found)


@lru_cache(maxsize=512)
def imported(data: bytes) -> frozenset[str]:
    """Names that imports bind, anywhere in the source."""
    module = parsed(data)
    nodes = ast.walk(module) if module is not None else ()
    return frozenset(
        _bound_name(alias) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names
    )


@lru_cache(maxsize=512)
def _exported(data: bytes) -> frozenset[str] | None:
    """Names that `from module import name` finds in a module itself; None when it cannot be told."""
    module = parsed(data)
    if module is None:
        return None
    found: set[str] = set()
    for statement in _statements(module.body):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(statement.name)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            if any(alias.name == "*" for alias in statement.names):
                return None
            found |= {_bound_name(alias) for alias in statement.names}
        else:
            found |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if "__getattr__" in found:
        return None
    return frozenset(found)


def exports(data: bytes, name: str) -> bool:
    """Whether a module may give `name` to `from module import name`."""
    known = _exported(data)
    return known is None or name in known


@lru_cache(maxsize=512)
def undefined(data: bytes) -> frozenset[str]:
    """Global names that are used and that neither the module nor Python defines; none when it cannot be told."""
    module = parsed(data)
    if module is None:
        return frozenset()
    if any(isinstance(n, ast.ImportFrom) and any(a.name == "*" for a in n.names) for n in ast.walk(module)):
        return frozenset()
    try:
        top = symtable.symtable(data.decode("utf-8", "replace"), "<source>", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    known = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    used: set[str] = set()
    tables = [top]
    while tables:
        table = tables.pop()
        tables.extend(table.get_children())
        for symbol in table.get_symbols():
            if table is not top and not symbol.is_global():
                continue
            if symbol.is_referenced():
                used.add(symbol.get_name())
            if table is not top and symbol.is_declared_global() and (symbol.is_assigned() or symbol.is_imported()):
                known.add(symbol.get_name())
    return frozenset(used - known - _KNOWN_TO_EVERY_MODULE)


@lru_cache(maxsize=512)
def imports(data: bytes) -> tuple[tuple[int, str, str | None], ...]:
    """What a module imports: (dots of a relative import, module, name or None for a whole module)."""
    module = parsed(data)
    found: list[tuple[int, str, str | None]] = []
    for node in ast.walk(module) if module is not None else ():
        if isinstance(node, ast.Import):
            found += [(0, alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.level, node.module or "", alias.name) for alias in node.names if alias.name != "*"]
    return tuple(found)


@lru_cache(maxsize=512)
def uses(data: bytes) -> Counter[str]:
    """How often each attribute is read, and each keyword given in a call."""
    module = parsed(data)
    found: Counter[str] = Counter()
    for node in ast.walk(module) if module is not None else ():
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found[node.attr] += 1
        elif isinstance(node, ast.keyword) and node.arg is not None:
            found[node.arg] += 1
    return found


def _ends(body: list[ast.stmt]) -> bool:
    """Whether nothing comes after these statements: each way through them returns, raises or goes on for ever."""
    last = body[-1] if body else None
    if isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break):
        return True
    if isinstance(last, ast.If):
        return _ends(last.body) and _ends(last.orelse)
    if isinstance(last, ast.With | ast.AsyncWith):
        return _ends(last.body)
    if isinstance(last, ast.While):
        return isinstance(last.test, ast.Constant) and bool(last.test.value)
    if isinstance(last, ast.Try | ast.TryStar):
        whole = _ends(last.orelse) if last.orelse else _ends(last.body)
        return _ends(last.finalbody) or (whole and all(_ends(handler.body) for handler in last.handlers))
    if isinstance(last, ast.Match):
        return all(_ends(case.body) for case in last.cases)
    return False


@lru_cache(maxsize=512)
def endings(data: bytes) -> dict[str, bool]:
    """Every function by qualified name, and whether it never falls off its end (where it would return None unsaid)."""
    found: dict[str, bool] = {}

    def look(body: Iterable[ast.stmt], prefix: str) -> None:
        for statement in _statements(body):
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if not isinstance(statement, ast.ClassDef):
                    found[prefix + statement.name] = _ends(statement.body)
                look(statement.body, f"{prefix}{statement.name}.")

    module = parsed(data)
    if module is not None:
        look(module.body, "")
    return found


def identifiers(data: bytes) -> list[str]:
    """Every identifier in the text, as often as it stands there."""
    return _WORD.findall(data.decode("utf-8", "replace"))


def words(lines: Iterable[bytes]) -> frozenset[str]:
    """The identifiers in some lines, those of comments and strings too."""
    return frozenset(word for line in lines for word in identifiers(line))


# --- new surface


def _is_new(name: str, before: Iterable[str]) -> bool:
    owner, _, last = name.rpartition(".")
    if name in before:
        return False
    # A special method changes what an old class does without being named by anybody.
    return not (last.startswith("__") and last.endswith("__") and owner in before)


def only_new(first: int, count: int, old: bytes | None, new: bytes) -> bool:
    """Whether the `count` lines of `new` from line `first` hold definitions (and imports) that `old` does not have, and
    nothing else: taking them away takes names away, and changes nothing that was there before."""
    module = parsed(new)
    if module is None:
        return False
    before = definitions(old) if old is not None else {}
    covered: set[int] = set()
    for name, ranges in definitions(new).items():
        if _is_new(name, before):
            for start, end in ranges:
                covered |= set(range(start, end + 1))
    for node in ast.walk(module):
        if isinstance(node, ast.Import | ast.ImportFrom):
            covered |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code = {
        line
        for node in ast.walk(module)
        if isinstance(node, ast.stmt) and not _is_docstring(node)
        for line in _own_lines(node)
    }
    return all(line in covered for line in range(first, first + count) if line in code)


def _own_lines(node: ast.stmt) -> range:
    body = getattr(node, "body", None)
    inner = isinstance(body, list) and bool(body)
    last = body[0].lineno - 1 if inner and body is not None else (node.end_lineno or node.lineno)
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return range(first, max(last, node.lineno) + 1)
