"""The project as it stands on disk: its settings, which files are product and which test-side, and replays of its tests.

For commands about the working tree (trace, book, sabotage). What a commit holds is read elsewhere, out of git.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from holdtrue_gate import config as settings
from holdtrue_gate.config import Config
from holdtrue_gate.marks import Marks, product_modules, read_marks
from holdtrue_gate.replay import ReplayJob, find_python
from holdtrue_gate.replay import run as replay
from holdtrue_gate.verdict import Layout

COLLECT_LIMIT_S = 120.0


@dataclass(frozen=True)
class Collected:
    """What pytest collects.

    `broken` maps what could not be imported to the reason; `failure` says why nothing was collected at all.
    """

    nodes: tuple[str, ...] = ()
    broken: dict[str, str] = field(default_factory=dict)
    failure: str = ""


@dataclass(frozen=True)
class Project:
    """One project folder. Every path that it takes or gives is relative to `root`, with forward slashes.

    `checkout` is the user's own folder: `root` itself, or the one that `root` is a copy of.
    """

    root: Path
    config: Config
    name: str
    checkout: Path

    @classmethod
    def at(cls, directory: Path, checkout: Path | None = None) -> Project:
        """Read the settings of the project in `directory`. Raises ConfigError."""
        root = directory.resolve()
        path = root / "pyproject.toml"
        pyproject = path.read_bytes() if path.is_file() else None
        config = settings.parse(pyproject)
        project = tomllib.loads(pyproject.decode("utf-8")).get("project", {}) if pyproject is not None else {}
        name = project.get("name", "") if isinstance(project, dict) else ""
        return cls(root, config, name if isinstance(name, str) else "", checkout or root)

    @property
    def sources(self) -> tuple[str, ...]:
        """The source roots that exist."""
        wanted = self.config.source
        if wanted is None:
            wanted = ("src",) if (self.root / "src").is_dir() else (".",)
        return tuple(source for source in wanted if (self.root / source).is_dir())

    def is_test_side(self, file: str) -> bool:
        return self.config.test_rules.matches(file)

    def is_product(self, file: str) -> bool:
        """Whether the file is under a source root and neither test-side nor ignored."""
        inside = any(source in ("", ".") or file.startswith(f"{source.rstrip('/')}/") for source in self.sources)
        return inside and not self.is_test_side(file) and not self.config.ignored_rules.matches(file)

    def marks(self) -> Marks:
        """What the product's source says about itself."""
        return read_marks(self.root, self.sources, self.is_test_side)

    @cached_property
    def modules(self) -> frozenset[str]:
        """The dotted names of the product's modules."""
        return frozenset(name for name, _ in product_modules(self.root, self.sources, self.is_test_side))

    @property
    def layout(self) -> Layout:
        """What the verdict rules need to know."""
        return Layout(tests=self.config.test_rules, checkers=self.config.checker_rules, first_party=self.modules)

    def job(self, tree: Path, scratch: Path, entries: Iterable[str]) -> ReplayJob:
        """A replay of test files, classes, tests or cases in `tree`: this folder, or a copy of it."""
        chosen = tuple(dict.fromkeys(entries))
        return ReplayJob(
            tree=tree,
            repository=self.checkout,
            python=find_python(self.checkout, None),
            scratch=scratch,
            files=existing_files(tree, chosen),
            prefixes=chosen,
            source=(*self.sources, "."),
            first_party=tuple(sorted(self.modules)),
            node_limit_s=self.config.timeout_s,
            run_limit_s=self.config.run_timeout_s,
        )


def existing_files(tree: Path, entries: Iterable[str]) -> tuple[str, ...]:
    """The test files of these entries that exist: pytest refuses all of them when one does not."""
    files = dict.fromkeys(entry.partition("::")[0] for entry in entries)
    return tuple(file for file in files if (tree / file).is_file())


def collect(job: ReplayJob) -> Collected:
    """What pytest collects in the job's tests. Runs none of them."""
    if not job.files:
        return Collected()
    record = replay(replace(job, collect_only=True, node_limit_s=COLLECT_LIMIT_S, run_limit_s=COLLECT_LIMIT_S)).record
    broken = {
        id_: raised.message if raised else "could not be collected" for id_, raised in record.collect_errors.items()
    }
    if not record.collection_done and not broken:
        lines = [line for line in record.output.splitlines() if line.strip()]
        why = "did not end within the limit" if record.timed_out else f"ended with exit status {record.returncode}"
        return Collected(failure=f"pytest --collect-only {why}: {lines[-1].strip() if lines else 'it said nothing'}")
    return Collected(tuple(record.collected), broken)
