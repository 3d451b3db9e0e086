"""The guard of a replay's imports: one stand-alone file, laid into the replay's first path entry as `sitecustomize.py`.

So every interpreter that the replay starts runs it: pytest, and a console script or `python -m` that a test starts. A
first-party module that would come from the user's own checkout (an editable install by a path file or by a finder) does not
exist for the replay; one that is installed is told in the journal, and voids the verdicts. It imports nothing that the
interpreter has not loaded by then, and then runs the `sitecustomize` that it stands before.
"""

from __future__ import annotations

import os
import sys

JOURNAL_VARIABLE = "HOLDTRUE_GATE_JOURNAL"


class Guard:
    """The first finder on `sys.meta_path`: asks the others about first-party names, and looks at what they found."""

    def __init__(self, tree: str, repository: str, first_party: tuple[str, ...], journal: str) -> None:
        self._tree, self._repository = os.path.realpath(tree), os.path.realpath(repository)
        self._first_party = frozenset(first_party)
        self._tops = frozenset(name.partition(".")[0] for name in first_party)
        self._journal = journal
        self._prefix = os.path.realpath(sys.prefix) + os.sep
        # Entries of the path that an interpreter without this replay's environment would have: the probe asks for them.
        self.dropped: list[str] = []

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def] # the interpreter's protocol
        """As `importlib.abc.MetaPathFinder`. Raises ModuleNotFoundError for what only the checkout has."""
        if name.partition(".")[0] not in self._tops:
            return None
        lent = False
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            # Two guards that ask each other would never end.
            if find is None or (type(finder).__name__ == "Guard" and hasattr(finder, "dropped")):
                continue
            spec = find(name, path, target)
            if spec is not None and self._is_ours(name, spec):
                return spec
            lent = lent or spec is not None
        if lent:
            raise ModuleNotFoundError("No module named {!r}".format(name), name=name)  # noqa: UP032
        return None

    def _is_ours(self, name: str, spec: object) -> bool:
        """False for what lies in the checkout; what is installed is told, and taken."""
        place = getattr(spec, "origin", None)
        if not isinstance(place, str) or not os.path.isabs(place):  # noqa: PTH117 - no imports
            place = next(iter(getattr(spec, "submodule_search_locations", None) or ()), None)
        if not isinstance(place, str):
            return True
        real = os.path.realpath(place)
        if real.startswith(self._tree + os.sep):
            return True
        parts = real.replace(os.sep, "/").split("/")
        installed = "site-packages" in parts or "dist-packages" in parts or real.startswith(self._prefix)
        if not installed and (real + os.sep).startswith(self._repository + os.sep):
            return False
        above = name
        while above:
            if above in self._first_party:
                self._tell(name, real)
                break
            above = above.rpartition(".")[0]
        return True

    def _tell(self, name: str, file: str) -> None:
        # ASCII and escaped by hand: json is not loaded, and loading it would slow every interpreter.
        texts = tuple(
            "".join(c if " " <= c < "\x7f" and c not in '"\\' else "\\u{:04x}".format(ord(c) & 0xFFFF) for c in text)  # noqa: UP032
            for text in (name, file)
        )
        line = '{{"e": "foreign", "module": "{}", "file": "{}"}}\n'.format(*texts)
        try:
            descriptor = os.open(
                os.environ.get(JOURNAL_VARIABLE) or self._journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
            )
            os.write(descriptor, line.encode("ascii"))
            os.close(descriptor)
        except OSError:
            pass


def install(tree: str, repository: str, first_party: tuple[str, ...], journal: str, here: str) -> None:
    """Puts the guard first, takes the checkout off the path, and runs the next `sitecustomize`."""
    guard = Guard(tree, repository, first_party, journal)
    sys.meta_path.insert(0, guard)
    checkout, root = os.path.realpath(repository), os.path.realpath(tree)
    prefix = os.path.realpath(sys.prefix) + os.sep

    def keep(entry: str) -> bool:
        real = os.path.realpath(entry or ".")
        if "site-packages" in real.replace(os.sep, "/").split("/") or real.startswith(prefix):
            return True
        inside = (real + os.sep).startswith(checkout + os.sep)
        return not inside or (real + os.sep).startswith(root + os.sep)

    guard.dropped = [entry for entry in sys.path if not keep(entry)]
    sys.path[:] = [entry for entry in sys.path if keep(entry)]
    rest = [entry for entry in sys.path if os.path.realpath(entry or ".") != os.path.realpath(here)]
    for finder in sys.meta_path:
        if finder is guard or getattr(finder, "__name__", "") != "PathFinder":
            continue
        spec = finder.find_spec("sitecustomize", rest)
        if spec is not None and spec.loader is not None:
            module = type(sys)("sitecustomize")
            module.__spec__, module.__file__, module.__loader__ = spec, spec.origin, spec.loader
            spec.loader.exec_module(module)
