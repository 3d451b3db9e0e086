"""Git, read only: commits, listings, and trees written out of the object database.

The user's tree, index, stash, refs and `.git/worktrees` are never touched, because nothing here writes into the
repository: a tree is made from
`git ls-tree` and `git cat-file --batch` into a folder of the gate's own. No hook, filter, LFS or textconv of anybody
runs on that way, and an interrupted gate leaves nothing behind in the repository.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from holdtrue_gate.errors import CannotJudgeError, GateError, UsageError

GIT_LIMIT_S = 120.0
EMPTY_MODES = {"160000"}
LINK_MODE = "120000"
EXECUTABLE_MODE = "100755"
_SUBMODULE = re.compile(r'\[submodule "(.+)"\]')

# Answers must not depend on the user's settings, and no program of theirs may run.
_NEUTRAL = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.quotePath=false",
    "core.attributesFile=/dev/null",
    "core.commitGraph=false",
    "diff.external=",
    "log.showSignature=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
)


@dataclass(frozen=True)
class Commit:
    """A commit: its ids, whole message and subject."""

    sha: str
    tree: str
    parents: tuple[str, ...]
    message: str

    @property
    def subject(self) -> str:
        """The first line of the message that is not blank."""
        return next((line.strip() for line in self.message.splitlines() if line.strip()), "")

    @property
    def trailers(self) -> tuple[tuple[str, str], ...]:
        """`Key: value` lines of the last paragraph, as git reads trailers."""
        paragraphs = [p for p in self.message.replace("\r\n", "\n").strip().split("\n\n") if p.strip()]
        if len(paragraphs) < 2:
            return ()
        pairs = [line.partition(":") for line in paragraphs[-1].splitlines()]
        return tuple(
            (key.strip().lower(), value.strip())
            for key, colon, value in pairs
            if colon and key.strip() and " " not in key.strip()
        )


@dataclass(frozen=True)
class Entry:
    """One file of a tree: git's mode and the blob's id."""

    mode: str
    sha: str


Listing = Mapping[str, Entry]


def clean_environment() -> dict[str, str]:
    """The caller's environment without any GIT_*: in a hook these point at another repository or index."""
    environment = {key: value for key, value in os.environ.items() if not key.upper().startswith("GIT_")}
    environment |= {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        # A graft would give a commit other parents than it names.
        "GIT_GRAFT_FILE": os.devnull,
        "GIT_PAGER": "cat",
        "LC_ALL": "C",
    }
    return environment


class Repository:
    """A repository seen from one folder of it. `root` is the top of the user's tree; `prefix` the project's folder in
    it ("" or "a/b/")."""

    def __init__(self, directory: Path) -> None:
        """Raises UsageError when `directory` is in no git work tree or git is missing."""
        self._environment = clean_environment()
        self._directory = directory
        try:
            answer = self._git(
                *("rev-parse", "--show-toplevel", "--show-prefix", "--absolute-git-dir", "--is-shallow-repository"),
                "--git-common-dir",
            ).decode()
        except GateError as error:
            raise UsageError(
                "no-repository",
                f"{directory} is not inside a git work tree: {error.message}",
                "Run in a clone, or give its folder with -C.",
            ) from error
        top, here, git_directory, shallow, common = [*answer.split("\n"), "", "", "", "", ""][:5]
        self.root = Path(top)
        self.git_directory = Path(git_directory)
        self.is_shallow = shallow == "true"
        # Relative to where git ran; of a linked work tree it is that of the main one.
        self._common_directory = Path(directory, common)
        self._parts: dict[Path, Repository] = {}
        self.prefix = self._project_prefix(here)
        self._batch: subprocess.Popen[bytes] | None = None
        self._held: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def _project_prefix(self, here: str) -> str:
        # A folder with a pyproject of its own is a project of its own; any other folder means the repository.
        if here and (self.root / here / "pyproject.toml").is_file():
            return here
        return ""

    # --- plumbing

    def _command(self, *arguments: str) -> list[str]:
        settings = [part for setting in _NEUTRAL for part in ("-c", setting)]
        return ["git", "--no-pager", *settings, "-C", str(self._directory), *arguments]

    def _git(self, *arguments: str, variables: Mapping[str, str] | None = None) -> bytes:
        try:
            done = subprocess.run(
                self._command(*arguments),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=self._environment | dict(variables or {}),
                timeout=GIT_LIMIT_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise UsageError("no-git", "the program `git` was not found", "Install git, or put it on PATH.") from error
        except subprocess.TimeoutExpired as error:
            raise CannotJudgeError(
                "git-slow", f"git {arguments[0]} did not answer within {GIT_LIMIT_S:.0f} s"
            ) from error
        if done.returncode != 0:
            text = done.stderr.decode("utf-8", "replace").strip()
            raise CannotJudgeError("git-failed", f"git {arguments[0]}: {text or f'exit {done.returncode}'}")
        return done.stdout

    def ask(self, *arguments: str) -> bytes:
        """What a git command that only reads prints, under neutral settings. Raises CannotJudgeError when it fails."""
        return self._git(*arguments)

    def index(self, file: Path | None = None) -> bytes:
        """The rows of `git ls-files --stage -z` for the whole index, or for another index file. Raises CannotJudgeError."""
        arguments = ("ls-files", "--stage", "-z", "--full-name", "--", ":/")
        if file is None:
            return self._git(*arguments)
        return self._git(*arguments, variables={"GIT_INDEX_FILE": os.fspath(file)})

    def close(self) -> None:
        """Ends the reader of objects."""
        for part in self._parts.values():
            part.close()
        with self._lock:
            batch, self._batch = self._batch, None
        if batch is not None:
            for stream in (batch.stdin, batch.stdout):
                if stream is not None:
                    stream.close()
            try:
                batch.wait(timeout=5)
            except subprocess.TimeoutExpired:
                batch.kill()
                batch.wait()

    def __enter__(self) -> Repository:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _object(self, name: str) -> tuple[str, bytes] | None:
        """Type and bytes of an object, or None when this clone does not have it."""
        with self._lock:
            if self._batch is None:
                self._batch = subprocess.Popen(
                    self._command("cat-file", "--batch"),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=self._environment,
                )
            assert self._batch.stdin is not None
            assert self._batch.stdout is not None
            try:
                self._batch.stdin.write(name.encode() + b"\n")
                self._batch.stdin.flush()
                header = self._batch.stdout.readline().split()
                if len(header) != 3:
                    return None
                size = int(header[2])
                body = self._batch.stdout.read(size + 1)
            except (OSError, ValueError) as error:
                raise CannotJudgeError("git-failed", f"git cat-file ended while reading {name}") from error
            if len(body) != size + 1:
                raise CannotJudgeError("git-failed", f"git cat-file ended while reading {name}")
            return header[1].decode(), body[:-1]

    # --- commits

    def resolve(self, revision: str) -> str:
        """The id of the commit that `revision` names. Raises UsageError when it names none."""
        if not revision or revision.startswith("-"):
            raise UsageError("bad-revision", f"{revision!r} is not a revision")
        try:
            return (
                self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
                .decode()
                .strip()
            )
        except CannotJudgeError as error:
            if error.code == "git-slow":
                raise
            empty = not self._has_head()
            hint = (
                "The repository has no commit yet."
                if empty
                else "`git log --oneline` lists what there is; in a shallow clone, fetch more."
            )
            raise UsageError("bad-revision", f"{revision!r} names no commit of this repository", hint) from error

    def _has_head(self) -> bool:
        try:
            self._git("rev-parse", "--verify", "--quiet", "HEAD")
        except CannotJudgeError:
            return False
        return True

    def commits(self, revision: str) -> list[str]:
        """The commits that a revision or a range A..B means, oldest first, merges among them. Raises UsageError."""
        if ".." not in revision:
            return [self.resolve(revision)]
        if "..." in revision:
            raise UsageError("bad-revision", f"{revision!r}: symmetric ranges are not judged", "Use A..B.")
        low, _, high = revision.partition("..")
        low_sha, high_sha = self.resolve(low or "HEAD"), self.resolve(high or "HEAD")
        found = self._git("rev-list", "--reverse", "--topo-order", high_sha, f"^{low_sha}").decode().split()
        if not found and self._git("rev-list", "--max-count=1", low_sha, f"^{high_sha}").strip():
            # Swapped ends would otherwise be a pass that nobody meant.
            raise UsageError(
                "empty-range", f"{revision} is empty: {low or 'HEAD'} comes after {high or 'HEAD'}", "Swap them."
            )
        return found

    def commit(self, sha: str) -> Commit:
        """Reads a commit as it is stored: a shallow clone's boundary still names its parents here. Raises
        CannotJudgeError."""
        found = self._object(sha)
        if found is None or found[0] != "commit":
            raise CannotJudgeError("history-missing", f"commit {sha[:12]} is not in this clone")
        head, _, message = found[1].partition(b"\n\n")
        tree, parents, encoding = "", [], "utf-8"
        for line in head.split(b"\n"):
            key, _, value = line.partition(b" ")
            if key == b"tree":
                tree = value.decode()
            elif key == b"parent":
                parents.append(value.decode())
            elif key == b"encoding":
                encoding = value.decode("ascii", "replace")
        try:
            text = message.decode(encoding, "replace")
        except LookupError:
            text = message.decode("utf-8", "replace")
        return Commit(sha, tree, tuple(parents), text)

    def has_commit(self, sha: str) -> bool:
        """Whether this clone holds the commit and its tree."""
        found = self._object(sha)
        return found is not None and found[0] == "commit" and self._object(self.commit(sha).tree) is not None

    def merge_base(self, one: str, other: str) -> str | None:
        """A best common ancestor of two commits, None without one."""
        try:
            found = self._git("merge-base", "--end-of-options", one, other).decode().split()
        except CannotJudgeError as error:
            if error.code != "git-failed":
                raise
            return None  # git says so by its exit status alone
        return found[0] if found else None

    def merged(self, base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
        """The three-way merge that git makes of a text; None where it has a conflict. Nothing is written into the
        repository."""
        with tempfile.TemporaryDirectory(prefix="gate-merge-") as folder:
            files = [Path(folder) / name for name in ("ours", "base", "theirs")]
            for file, data in zip(files, (ours, base, theirs), strict=True):
                file.write_bytes(data)
            try:
                return self._git("merge-file", "-p", *map(str, files))
            except CannotJudgeError as error:
                if error.code != "git-failed":
                    raise
                return None

    # --- contents

    def listing(self, sha: str) -> dict[str, Entry]:
        """Every file of a commit by its path relative to the repository root. Raises CannotJudgeError."""
        found: dict[str, Entry] = {}
        for line in self._git("ls-tree", "-r", "-z", "--full-tree", sha).split(b"\0"):
            if line:
                meta, _, path = line.partition(b"\t")
                mode, _kind, blob = meta.decode().split(" ")
                found[os.fsdecode(path)] = Entry(mode, blob)
        return found

    def hold(self, data: bytes) -> str:
        """Gives bytes that no commit has the id that git would give them, for a listing of the gate's own.

        They stay in memory: nothing is written into the repository.
        """
        # 64 digits: a repository with SHA-256 ids.
        digest = hashlib.sha256 if self._long_ids else hashlib.sha1
        sha = digest(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        self._held[sha] = data
        return sha

    @cached_property
    def _long_ids(self) -> bool:
        return len(self._git("rev-parse", "HEAD").strip()) == 64

    def blob(self, sha: str) -> bytes:
        """The bytes of a file. Raises CannotJudgeError when this clone does not have them (a partial clone)."""
        if sha in self._held:
            return self._held[sha]
        found = self._object(sha)
        if found is None or found[0] != "blob":
            raise CannotJudgeError(
                "history-missing",
                f"object {sha[:12]} is not in this clone",
                "This is a partial clone: fetch the objects, then check again.",
            )
        return found[1]

    def text(self, listing: Listing, path: str) -> bytes | None:
        """The bytes of `path` in a listing, or None when it is not a regular file there."""
        entry = listing.get(path)
        if entry is None or entry.mode == LINK_MODE or entry.mode in EMPTY_MODES:
            return None
        return self.blob(entry.sha)

    # --- submodules

    @classmethod
    def _inner(cls, git_directory: Path) -> Repository:
        """The objects of a submodule, wherever git keeps them: no work tree is looked at."""
        made = cls.__new__(cls)
        made._environment = clean_environment() | {"GIT_DIR": str(git_directory)}
        made._directory = made.root = git_directory
        made.git_directory = made._common_directory = git_directory
        made.is_shallow, made.prefix = False, ""
        made._parts, made._held, made._batch, made._lock = {}, {}, None, threading.Lock()
        return made

    def _submodule(self, listing: Listing, path: str, sha: str) -> Repository:
        """The repository of a submodule, as far as this clone holds it. Raises CannotJudgeError (`overlay-failed`)."""
        name = _submodule_names(self.text(listing, ".gitmodules")).get(path, path)
        homes = [folder / "modules" / name for folder in (self.git_directory, self._common_directory)]
        # A submodule of an old git, or one that was added by hand, keeps its objects in its own folder.
        own = self.root / path / ".git"
        for home in [*homes, own]:
            safe = ".." not in home.parts and (home / "objects").is_dir()
            if not safe:
                continue
            part = self._parts.get(home) or self._inner(home)
            self._parts[home] = part
            if part.has_commit(sha):
                return part
        raise CannotJudgeError(
            "overlay-failed",
            f"the submodule {path!r} at {sha[:12]} is not in this clone",
            "Fetch it (`git submodule update --init`), then check again; or name its folder in `ignored` of "
            "[tool.gate] when no test needs it.",
        )

    def write_tree(self, listing: Listing, target: Path, spare: Callable[[str], bool] = lambda _path: False) -> None:
        """Writes a listing as files into the new folder `target`.

        Byte-code caches that someone committed are left out: they could answer for other source. A submodule is filled
        from the objects that this clone holds of it; it may stay empty where `spare` says that its path cannot matter.
        Raises CannotJudgeError with `overlay-failed` when it cannot be filled, when two paths cannot both exist, or when a
        path would leave `target`.
        """
        check_paths(listing)
        target.mkdir(parents=True)
        base = os.fspath(target)
        made: set[str] = set()
        links: list[tuple[str, str]] = []
        for path, entry in listing.items():
            if "__pycache__" in path.split("/"):
                continue
            full = f"{base}/{path}"
            folder = full.rpartition("/")[0]
            if folder not in made:
                Path(folder).mkdir(parents=True, exist_ok=True)
                made.add(folder)
            if entry.mode in EMPTY_MODES:
                self._write_submodule(listing, path, entry.sha, Path(full), spare)
            elif entry.mode == LINK_MODE:
                links.append((full, os.fsdecode(self.blob(entry.sha))))
            else:
                mode = 0o755 if entry.mode == EXECUTABLE_MODE else 0o644
                # O_EXCL and O_NOFOLLOW: nothing that is there already is written through.
                descriptor = os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), mode)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(self.blob(entry.sha))
        # Links come last, so that no file was ever written through one.
        for full, points_to in links:
            Path(full).symlink_to(points_to)

    def _write_submodule(
        self, listing: Listing, path: str, sha: str, target: Path, spare: Callable[[str], bool]
    ) -> None:
        try:
            part = self._submodule(listing, path, sha)
        except CannotJudgeError:
            if not spare(path):
                raise
            target.mkdir(exist_ok=True)
            return
        if target.is_dir():
            target.rmdir()
        part.write_tree(part.listing(sha), target, lambda inner: spare(f"{path}/{inner}"))


def _submodule_names(source: bytes | None) -> dict[str, str]:
    """The names of submodules by path, as `.gitmodules` tells them."""
    found: dict[str, str] = {}
    name = ""
    for line in (source or b"").decode("utf-8", "replace").splitlines():
        section = _SUBMODULE.fullmatch(line.strip())
        if section is not None:
            name = section.group(1)
        key, equals, value = line.partition("=")
        if equals and key.strip() == "path" and name:
            found[value.strip().strip('"')] = name
    return found


def check_paths(listing: Iterable[str]) -> None:
    """Raises CannotJudgeError (`overlay-failed`) when a path is unsafe, or is a file here and a folder there."""
    paths = set(listing)
    for path in paths:
        parts = path.split("/")
        if any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
            raise CannotJudgeError("overlay-failed", f"the tree holds an unsafe path: {path!r}")
        for depth in range(1, len(parts)):
            above = "/".join(parts[:depth])
            if above in paths:
                raise CannotJudgeError(
                    "overlay-failed",
                    f"{above!r} is a file at the parent and a folder in the commit's tests",
                    "Move the test files in one commit and fix in the next.",
                )


def remove_tree(path: Path) -> None:
    """Removes a folder that tests have worked in, also when they took its write permission away."""

    def retry(_function: object, name: str, _error: object) -> None:
        try:
            Path(name).parent.chmod(stat.S_IRWXU)
            if Path(name).is_dir() and not Path(name).is_symlink():
                Path(name).chmod(stat.S_IRWXU)
                shutil.rmtree(name, ignore_errors=True)
            else:
                Path(name).unlink()
        except OSError:
            return

    shutil.rmtree(path, onerror=retry)
