"""The kind of file system a path lies on, and whether it is one that a store must not lie on.

SQLite's WAL keeps its index in memory that the processes of one kernel share. Two machines that open the same database
over a network, or a virtual machine and its host through a shared folder, do not see each other's index, and their locks
may not meet either: the database is damaged without any error. https://www.sqlite.org/wal.html, section 1

The answer comes from the kernel's table of mounts alone. Faults it survives: a table that is missing or not understood
(the kind is "unknown", and unknown is never refused), mount points with blanks, a network that does not answer (the
share itself is not asked).
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from holdtrue.errors import StoreOnNetwork

UNKNOWN = "unknown"
OWN_DISK = "own-disk"

_MOUNTS = Path("/proc/self/mountinfo")

# Other machines may have the same file open. Names as the kernel's table spells them.
_NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "coda", "davfs", "9p"),
        *("ceph", "glusterfs", "lustre", "beegfs", "gpfs", "orangefs", "pvfs2", "panfs", "ocfs2", "gfs2", "mfs"),
        *("fuse.sshfs", "fuse.smbnetfs", "fuse.davfs2", "fuse.curlftpfs", "fuse.gvfsd-fuse", "fuse.hdfs"),
        *("fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.mfs", "fuse.moosefs", "fuse.juicefs"),
        *("fuse.seaweedfs", "fuse.s3fs", "fuse.goofys", "fuse.gcsfuse", "fuse.blobfuse", "fuse.blobfuse2"),
        *("fuse.rclone", "fuse.mount-s3", "fuse.geesefs", "fuse.google-drive-ocamlfuse", "fuse.onedriver"),
    }
)
# A folder of the host, shown to a virtual machine: Docker Desktop, WSL, Lima, VirtualBox, VMware, Parallels. Processes on
# one side agree with each other, but neither their locks nor their shared memory reach the other side, and a store in a
# shared folder is mostly there to be used from both. Counted as a network, since nothing can be seen of the other side.
_GUEST_SHARES = frozenset(
    {
        *("virtiofs", "fuse.virtiofs", "vboxsf", "vmhgfs", "fuse.vmhgfs-fuse", "prl_fs", "fuse.prl_fsd"),
        *("fuse.grpcfuse", "fuse.osxfs", "osxfs", "fakeowner", "drvfs"),
    }
)


def kind(path: Path) -> str:
    """The type of the mount that holds a path, as the kernel names it: "ext4", "nfs4", "fuse.sshfs".

    "own-disk" where the type is one of a share but the mount is the whole machine's root, as Kata and gVisor give it:
    there is no other side. "unknown" where the table of mounts cannot be read, as on every system but Linux. The path
    need not exist. Never raises; asked once for a path and process.
    """
    return _kind(os.fspath(path))


@lru_cache(maxsize=64)
def _kind(path: str) -> str:
    try:
        return _of_table(_MOUNTS.read_bytes(), os.path.realpath(path))
    except (OSError, ValueError, LookupError):
        return UNKNOWN


def free_bytes(path: Path) -> int | None:
    """How many bytes a user without privileges may still write where a path lies; None where that cannot be told."""
    try:
        found = os.statvfs(path)
    except (OSError, AttributeError):
        return None
    return found.f_bavail * found.f_frsize


def is_network(kind: str) -> bool:
    """Whether a store on this kind of file system may be open on another machine."""
    return kind in _NETWORK or kind in _GUEST_SHARES


def refuse_network(folder: Path) -> None:
    """Raise `StoreOnNetwork` when the folder lies where a store must not. Touches nothing in it."""
    found = kind(folder)
    if is_network(found):
        raise StoreOnNetwork(
            f"{folder} lies on a network file system or shared folder ({found}); a store there gets damaged when two"
            " machines use it.",
            kind=found,
        )


def _of_table(table: bytes, path: str) -> str:
    """The kind of the longest mount point above the path; of two at one point the later covers the earlier.

    The format of a line is in proc_pid_mountinfo(5): ids, device, root, mount point, options, optional fields, a hyphen,
    type, source, options of the file system.
    """
    best, found = "", UNKNOWN
    for line in table.splitlines():
        before, hyphen, after = line.partition(b" - ")
        fields, filesystem = before.split(b" "), after.split(b" ")
        if not hyphen or len(fields) < 6:
            continue
        point = os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code[1], 8) & 0xFF]), fields[4]))
        if len(point) >= len(best) and (path == point or path.startswith(point.rstrip("/") + "/")):
            best, found = point, filesystem[0].decode("ascii", "replace")
            # gVisor shows a sandbox its own files as 9p, with an option that no other 9p has.
            own = point == "/" or b"rfdno=" in filesystem[-1]
            if own and (found == "9p" or found in _GUEST_SHARES):
                found = OWN_DISK
    return found


def is_full(folder: Path) -> bool:
    """Whether nothing more can be stored there: no block is free, or no file can be made. False where it cannot be told."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail == 0 or (found.f_files > 0 and found.f_favail == 0)
