"""What the product's source says about itself: `@enforces` marks and failpoints, read from the syntax tree.

Nothing is imported and nothing runs, so a half-broken tree can be read too. A mark counts only where the tree proves
what it is: `enforces` and `failpoints` are followed through the file's imports, and names must be literals.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

# What lies in a project folder without belonging to it, where a source root is the project folder itself.
_NOT_PRODUCT = frozenset({"__pycache__", "site-packages", "node_modules"})
_BUILT = frozenset({"build", "dist"})


@dataclass(frozen=True)
class Place:
    """A line of a file; the path is relative to the project."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Function:
    """A function or method of the product: `name` is `module:qualname`."""

    name: str
    place: Place
    enforces: tuple[str, ...]


@dataclass
class Marks:
    """Everything that was read. `problems` are places where a mark stands that cannot be read."""

    functions: dict[str, Function] = field(default_factory=dict)
    failpoints: dict[str, list[Place]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_marks(root: Path, sources: Iterable[str], is_test_side: Callable[[str], bool]) -> Marks:
    """Read every product file below the source roots, in a fixed order. Test-side files are no part of the product."""
    marks = Marks()
    for module, path in product_modules(root, sources, is_test_side):
        file = path.relative_to(root).as_posix()
        try:
            tree = ast.parse(path.read_bytes(), filename=file)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            marks.problems.append(f"{file}:{line}: is not Python that can be read: {error}.")
            continue
        _Reader(marks, module, file).visit(tree)
    return marks


def product_modules(
    root: Path, sources: Iterable[str], is_test_side: Callable[[str], bool]
) -> Iterator[tuple[str, Path]]:
    """Dotted module name and path of each product file."""
    for source in sources:
        base = root / source
        for path in sorted(base.rglob("*.py")):
            relative = path.relative_to(base)
            if any(part.startswith(".") or part in _NOT_PRODUCT for part in relative.parts):
                continue
            if relative.parts[0] in _BUILT:
                continue
            if is_test_side(path.relative_to(root).as_posix()):
                continue
            parts = list(relative.with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            if parts:
                yield ".".join(parts), path


class _Reader(ast.NodeVisitor):
    """Walks one file, following what its imports call `enforces`, `failpoints` and `hit`."""

    def __init__(self, marks: Marks, module: str, file: str) -> None:
        self._marks = marks
        self._module = module
        self._file = file
        self._scope: list[str] = []
        # Local name -> the dotted name it stands for.
        self._imported: dict[str, str] = {}

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.asname:
                self._imported[alias.asname] = alias.name
            else:
                top = alias.name.partition(".")[0]
                self._imported[top] = top

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        # How far up a relative import reaches does not matter: a mark is known by the last parts of its name.
        base = node.module
        for alias in node.names:
            self._imported[alias.asname or alias.name] = f"{base}.{alias.name}" if base else alias.name

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def visit_Call(self, node: ast.Call) -> None:
        if self._dotted(node.func).split(".")[-2:] == ["failpoints", "hit"]:
            place = Place(self._file, node.lineno)
            names = _literals(node)
            if names is None or len(names) != 1:
                self._marks.problems.append(
                    f'{place}: a failpoint without a literal name cannot be traced; write hit("room.point").'
                )
            else:
                self._marks.failpoints.setdefault(names[0], []).append(place)
        self.generic_visit(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        name = f"{self._module}:{'.'.join([*self._scope, node.name])}"
        place = Place(self._file, node.lineno)
        enforced: list[str] = []
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if self._dotted(called).split(".")[-1] != "enforces":
                continue
            ids = _literals(decorator) if isinstance(decorator, ast.Call) else None
            if not ids:
                self._marks.problems.append(
                    f'{place}: the mark on {name} cannot be read; write @enforces("INV-001") with literal ids.'
                )
            else:
                enforced += ids
        # Of a name that is defined twice (an overload, a property setter) the marked one is the one that is meant.
        before = self._marks.functions.get(name)
        if before is None or enforced:
            already = before.enforces if before else ()
            self._marks.functions[name] = Function(name, place, tuple(dict.fromkeys([*already, *enforced])))
        self._inside(node)

    def _inside(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._scope.append(node.name)
        for child in node.body:
            self.visit(child)
        self._scope.pop()

    def _dotted(self, node: ast.expr) -> str:
        """The dotted name behind an expression, imports resolved; "" when it is no name or a local one."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._imported:
            return ""
        return ".".join([self._imported[node.id], *reversed(parts)])


def _literals(call: ast.Call) -> list[str] | None:
    """The positional arguments when all of them are literal texts and nothing else is given, else None."""
    if call.keywords:
        return None
    names = [
        argument.value
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]
    return names if len(names) == len(call.args) else None
