"""Hard places for a store: a disk that fills up, a mount and a folder that cannot be written.

Real mounts where this user may mount. Elsewhere (a container, a CI runner) the nearest thing that needs no right: a VFS
that refuses to grow the files beyond a budget, a folder without write permission for a user who is not root. A place says
what its processes must do to stand in it, so the same test runs in both.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from properties.kit import ledger
from properties.kit.processes import Crew

NOBODY = 65534


@dataclass(frozen=True)
class Place:
    """`folder` is the store as a process there sees it. `user` and `budget_bytes` are for `place_workers.stand_in`."""

    folder: Path
    user: int | None = None
    budget_bytes: int | None = None


@contextlib.contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Place]:
    """An empty disk of this size, mounted at a new folder below `folder`."""
    disk = folder / "disk"
    disk.mkdir()
    if mount("-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "tmpfs", disk):
        with mounted(disk):
            yield Place(disk / "store")
    else:
        yield Place(disk / "store", budget_bytes=size_bytes)


@contextlib.contextmanager
def read_only_mount(store: Path) -> Iterator[Place]:
    """The same store at another path that cannot be written; at its own path it can, as in a container's `:ro` mount."""
    view = Path(tempfile.mkdtemp(prefix="holdtrue-view-", dir="/tmp" if os.access("/tmp", os.W_OK) else None))
    try:
        if mount("--bind", store, view):
            with mounted(view):
                assert mount("-o", "remount,ro,bind", view), "a bind mount was made and could not be made read-only"
                yield Place(view)
        else:
            with foreign_folder(store) as place:
                yield place
    finally:
        with contextlib.suppress(OSError):
            view.rmdir()


@contextlib.contextmanager
def foreign_folder(store: Path) -> Iterator[Place]:
    """The same store, readable and not writable for the user who stands there; its owner root can write on."""
    if os.geteuid() != 0:
        modes = {path: path.stat().st_mode & 0o777 for path in (store, *store.iterdir())}
        for path, mode in modes.items():
            path.chmod(mode & 0o555)
        try:
            yield Place(store)
        finally:
            for path, mode in modes.items():
                if path.exists():
                    path.chmod(mode)
        return
    # The folders of pytest are closed to others, so what a stranger is to see must lie elsewhere.
    public = Path(tempfile.mkdtemp(prefix="holdtrue-public-", dir="/tmp" if os.access("/tmp", os.W_OK) else None))
    try:
        public.chmod(0o755)
        moved = Path(shutil.move(store, public / "store"))
        store.symlink_to(moved)
        moved.chmod(0o555)
        for path in moved.iterdir():
            path.chmod(0o444)
        yield Place(moved, user=NOBODY)
    finally:
        shutil.rmtree(public, ignore_errors=True)


def carried_out(
    place: Place,
    path: Path,
    steps: Sequence[dict[str, Any]],
    target: Callable[..., None] | None = None,
    variables: Mapping[str, str] | None = None,
) -> list[ledger.Call]:
    """What a process of its own, standing in the place, was answered to each step. It must end well, within 40 s."""
    from properties.kit import place_workers

    with Crew() as crew:
        crew.start(target or place_workers.perform, place, path, steps, variables=variables)
        (code,) = crew.wait(40)
    assert code == 0, f"the process ended with {code}"
    return ledger.read([path])


def fill(disk: Path, leave_bytes: int = 0) -> Path:
    """Write a ballast file until the disk takes no more, then give `leave_bytes` back. Returns the file."""
    ballast = disk / "ballast"
    descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for block in (b"\0" * 65_536, b"\0" * 512):
            with contextlib.suppress(OSError):
                while True:
                    os.write(descriptor, block)
        os.ftruncate(descriptor, max(0, os.fstat(descriptor).st_size - leave_bytes))
    finally:
        os.close(descriptor)
    return ballast


def mount(*arguments: str | Path) -> bool:
    """Run `mount`. False where this user may not, or where there is none."""
    try:
        done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, timeout=20, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


@contextlib.contextmanager
def mounted(point: Path) -> Iterator[None]:
    """Unmount at the end, whatever happens."""
    try:
        yield
    finally:
        # Lazily: a process that a test has killed may hold a file there for a moment more.
        subprocess.run(["umount", "-l", str(point)], capture_output=True, timeout=20, check=True)
