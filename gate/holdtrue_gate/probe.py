"""The probe: one stand-alone pytest plugin that writes a journal of what really happened. PYTEST_DONT_REWRITE

It is copied out of this package under a name of its own for every replay and loaded with `-p`, so that a replay of the
gate's own repository never loads the replayed tree's probe. It therefore imports the standard library and pytest only,
and runs on every Python that pytest runs on.

The journal is a file of JSON lines. Each line is one `os.write` to an `O_APPEND` descriptor: what was written before a
SIGKILL is there after it. Events, in the order a healthy run writes them:

    start      {"python", "pytest"}                     the plugin was imported
    session    {"rootdir"}                              pytest accepted its options
    collect-error {"id", "raised"}                      a file, folder or conftest could not be imported
    collected  {"ids"}                                  the chosen node ids (several lines when there are many)
    begin      {"id", "line"}
    phase-begin {"id", "when"}                          before setup, call, teardown
    phase      {"id", "when", "outcome", "seconds", "raised", "skip", "xfail", "detail", "output"}
    read       {"id", "file", "by"}                     code of the tree, `by`, opened a source of the tree
    end        {"id"}
    foreign    {"module", "file"}                       first-party code that does not come from the replayed tree
    finish     {"exit"}                                 the session came to its end

`raised` is an exception with its causes, contexts and group members: see `_describe`.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import random
import re
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

MESSAGE_CHARS = 2000
OUTPUT_CHARS = 4000
FRAMES_HEAD = 20
FRAMES_TAIL = 60
CHAIN_LIMIT = 60
IDS_A_LINE = 400

with open(os.environ["HOLDTRUE_GATE_PROBE"], encoding="utf-8") as _file:  # noqa: PTH123 - pathlib is not needed here
    _SETTINGS: dict[str, Any] = json.load(_file)

_PID = os.getpid()
_ROOT: str = os.path.realpath(_SETTINGS["tree"])
_REPOSITORY: str = os.path.realpath(_SETTINGS["repository"])
_TEMPORARY: str = _SETTINGS.get("temporary", "")
_FIRST_PARTY = frozenset(_SETTINGS["first_party"])
_GUARDED: str = os.path.realpath(_SETTINGS["guarded"])
_JOURNAL: str = _SETTINGS["journal"]
_STANDARD = frozenset(getattr(sys, "stdlib_module_names", ()))
_FORMATTERS = (os.sep + "traceback.py", os.sep + "warnings.py")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_BARE_ROOT = re.compile(re.escape(_ROOT) + r"(?![\w.-])")
_REMOTE_FRAME = re.compile(r'^\s*File "(?P<file>.+?)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE)
_state: dict[str, Any] = {"fd": -1, "node": None, "phase": None, "modules": 0, "told": set()}

# Descriptors to be told by and to answer on, when this process is to collect once and fork a child for each run.
_CHANNEL: tuple[int, ...] = tuple(_SETTINGS.get("channel") or ())
for _descriptor in _CHANNEL:
    os.set_inheritable(_descriptor, False)
# Libraries that keep a random state, threads or event loops which a forked child would share or lose.
_UNFORKABLE = ("numpy.random", "torch", "tensorflow", "jax", "gevent", "eventlet", "grpc")
_RANDOM = random.getstate()
# Where the process writes what nobody captures; faulthandler keeps a second descriptor of it.
_OUTPUT = os.path.realpath("/proc/self/fd/2")


# --- journal


def _open_journal() -> int:
    descriptor = os.open(_JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        import fcntl

        # A high number: one that a test closed would be given to the next file it opens, and be written into.
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 700)
    except (ImportError, OSError):
        return descriptor
    os.close(descriptor)
    return high


def _emit(**event: Any) -> None:
    # A forked child of a test inherits this plugin; its words are not the session's.
    if os.getpid() != _PID:
        return
    line = json.dumps(event, default=repr).encode("ascii") + b"\n"
    try:
        os.write(_state["fd"], line)
    except OSError:
        # A test may close every descriptor it finds.
        _state["fd"] = _open_journal()
        os.write(_state["fd"], line)


def _inside(path: str) -> str | None:
    """The path relative to the replayed tree with forward slashes, or None when it lies elsewhere."""
    if not path or path.startswith("<"):
        return None
    real = os.path.realpath(path)
    # Compiled extensions add frames of sources that are not here, by a relative name.
    if real.startswith(_ROOT + os.sep) and (os.path.isabs(path) or os.path.exists(real)):  # noqa: PTH110, PTH117 - one file, no imports to spare
        return real[len(_ROOT) + 1 :].replace(os.sep, "/")
    return None


# --- exceptions


def _frame(file: str, line: int, function: str, hidden: bool) -> dict[str, Any]:
    inside = _inside(file)
    return {
        "file": file if inside is None else inside,
        "in": inside is not None,
        "line": line,
        "function": function,
        "hidden": hidden,
    }


def _safely(thing: Any, name: str) -> Any:
    """An attribute of what the code under test made, or None: a property of it may raise."""
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - it belongs to the code under test
        return None


def _example_frame(exception: Any) -> dict[str, Any] | None:
    """Where a doctest's example is: the file and line of the docstring, not of the runner."""
    test, example = _safely(exception, "test"), _safely(exception, "example")
    file = _safely(test, "filename")
    if not isinstance(file, str):
        return None
    line = (_safely(test, "lineno") or 0) + (_safely(example, "lineno") or 0) + 1
    return dict(_frame(file, line, str(_safely(test, "name")), False), doctest=True)


def _example_frames(exception: Any, inner: Any) -> list[dict[str, Any]]:
    """The frames of an exception that an example raised, with the example in place of doctest's own machinery."""
    found, example = _frames(inner.__traceback__), _example_frame(exception)
    at = [index for index, frame in enumerate(found) if frame["file"].startswith("<doctest ")]
    if example is None or not at:
        return found
    return [example, *found[at[-1] + 1 :]]


def _frames(traceback: Any) -> list[dict[str, Any]]:
    found = []
    while traceback is not None:
        frame = traceback.tb_frame
        hidden = frame.f_locals.get("__tracebackhide__", False) or frame.f_globals.get("__tracebackhide__", False)
        found.append(_frame(frame.f_code.co_filename, traceback.tb_lineno, frame.f_code.co_name, bool(hidden)))
        traceback = traceback.tb_next
    if len(found) > FRAMES_HEAD + FRAMES_TAIL:
        found = found[:FRAMES_HEAD] + found[-FRAMES_TAIL:]
    return found


def _name_of(kind: Any) -> str:
    return "{}.{}".format(getattr(kind, "__module__", "?"), getattr(kind, "__qualname__", "?"))


def _steady(text: str) -> str:
    """Text without the accidents of this run, so that a failure reads the same each time: the places of the tree and of
    the temporary folder, and addresses."""
    text = _BARE_ROOT.sub(".", text.replace(_ROOT + os.sep, ""))
    if _TEMPORARY:
        text = text.replace(_TEMPORARY, "<tmp>")
    return _ADDRESS.sub(" at 0x...", text)


def _text(value: Any) -> str | None:
    try:
        # Masked before it is cut: half a path at the cut would not be known again.
        return None if value is None else _steady(str(value)[: 20 * MESSAGE_CHARS])[:MESSAGE_CHARS]
    except Exception as error:  # noqa: BLE001 - the message belongs to the code under test
        return "<no message: {}>".format(type(error).__name__)  # noqa: UP032


def _owner(exception: BaseException) -> dict[str, Any] | None:
    """Whose attribute was missing: {"kind": none|module|class|instance, "module", "name", "file"}."""
    if not isinstance(exception, AttributeError) or _safely(exception, "name") is None:
        return None
    thing = _safely(exception, "obj")
    if thing is None:
        return {"kind": "none", "module": "builtins", "name": "None", "file": None}
    # By the type itself: a mock with a specification says of itself what that is.
    if issubclass(type(thing), type(sys)):
        return {
            "kind": "module",
            "module": str(_safely(thing, "__name__")),
            "name": str(_safely(thing, "__name__")),
            "file": _inside(str(_safely(thing, "__file__") or "")),
        }
    is_class = issubclass(type(thing), type)
    kind = thing if is_class else type(thing)
    home = str(_safely(kind, "__module__"))
    return {
        "kind": "class" if is_class else "instance",
        "module": home,
        "name": str(_safely(kind, "__qualname__")),
        "file": _inside(str(_safely(sys.modules.get(home), "__file__") or "")),
    }


def _describe(exception: BaseException | None, seen: dict[int, bool]) -> dict[str, Any] | None:
    """An exception as data; `seen` bounds the walk and cuts cycles.

    `context` is kept even when `raise ... from None` suppressed it: the interpreter still has it, and a missing API
    hidden that way is still a missing API.
    """
    if exception is None or id(exception) in seen or len(seen) >= CHAIN_LIMIT:
        return None
    seen[id(exception)] = True
    kind = _name_of(type(exception))
    if kind == "doctest.UnexpectedException":
        # Only a wrapper around what the example raised.
        inner = exception.exc_info[1]  # type: ignore[attr-defined]
        told = _describe(inner, seen)
        return None if told is None else dict(told, frames=_example_frames(exception, inner))
    message = _safely(exception, "msg") if type(exception).__name__ in ("Failed", "Exit", "Skipped") else exception
    remote: list[dict[str, Any]] = []
    if type(exception).__name__.lstrip("_") == "RemoteTraceback":
        # multiprocessing, its forks and concurrent.futures send the worker's traceback as text only.
        text = str(exception)
        remote = [
            _frame(m.group("file"), int(m.group("line")), m.group("function"), False)
            for m in _REMOTE_FRAME.finditer(text)
        ][-FRAMES_TAIL:]
    members = _safely(exception, "failures" if kind.endswith(".MultipleDoctestFailures") else "exceptions")
    name, name_from = _safely(exception, "name"), _safely(exception, "name_from")
    if isinstance(exception, FileNotFoundError) and isinstance(exception.filename, (str, bytes)):
        # It is not there, so a relative name is taken from here.
        name = _inside(os.path.abspath(os.fsdecode(exception.filename)))  # noqa: PTH100 - the name as it was asked for
    frames = _frames(exception.__traceback__)
    if kind == "doctest.DocTestFailure":
        example = _example_frame(exception)
        frames = frames if example is None else [example]
    described = {
        "type": kind,
        "mro": [_name_of(kind) for kind in type(exception).__mro__],
        "message": _text(message),
        "name": name if isinstance(name, str) else None,
        "name_from": name_from if isinstance(name_from, str) else None,
        "code": exception.code if isinstance(exception, SystemExit) else None,
        "owner": _owner(exception),
        "frames": frames,
        "remote": remote,
        "members": [],
    }
    if isinstance(members, (list, tuple)):
        found = [_describe(member, seen) for member in members if isinstance(member, BaseException)]
        described["members"] = [member for member in found if member is not None]
    described["cause"] = _describe(exception.__cause__, seen)
    described["context"] = _describe(exception.__context__, seen)
    return described


# --- provenance


def _foreign(name: str, file: str) -> bool:
    real = os.path.realpath(file)
    if real.startswith((_ROOT + os.sep, _GUARDED)):
        return False
    parts = real.replace(os.sep, "/").split("/")
    installed = (
        "site-packages" in parts or "dist-packages" in parts or real.startswith(os.path.realpath(sys.prefix) + os.sep)
    )
    if real.startswith(_REPOSITORY + os.sep) and not installed:
        return True
    if name.split(".")[0] in _STANDARD:
        return False
    # Compare whole dotted prefixes: a namespace package may have portions that are rightly installed elsewhere.
    while name:
        if name in _FIRST_PARTY:
            return True
        name = name.rpartition(".")[0]
    return False


def _tell_foreign() -> None:
    if len(sys.modules) == _state["modules"]:
        return
    _state["modules"] = len(sys.modules)
    for name, module in list(sys.modules.items()):
        if name in _state["told"]:
            continue
        _state["told"].add(name)
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and name not in ("__main__", __name__) and _foreign(name, file):
            _emit(e="foreign", module=name, file=file)


def _drop_foreign_paths() -> None:
    """An editable install of the user's checkout must not lend its modules to a tree that does not have them."""

    def keep(entry: str) -> bool:
        real = os.path.realpath(entry or ".")
        if "site-packages" in real.replace(os.sep, "/").split("/") or real.startswith(
            os.path.realpath(sys.prefix) + os.sep
        ):
            return True
        under = real == _REPOSITORY or real.startswith(_REPOSITORY + os.sep)
        return not under or real == _ROOT or real.startswith(_ROOT + os.sep)

    sys.path[:] = [entry for entry in sys.path if keep(entry)]


def _lent_modules() -> dict[str, str]:
    """First-party names that an interpreter finds without this replay's environment, and where: an installed project."""
    found: dict[str, str] = {}
    tops = {name.partition(".")[0] for name in _FIRST_PARTY}
    dropped = [entry for finder in sys.meta_path for entry in getattr(finder, "dropped", ())]
    for entry in (*sys.path, *dropped):
        real = os.path.realpath(entry or ".")
        if real.startswith((_ROOT + os.sep, _GUARDED)) or real == _ROOT:
            continue
        for top in tops:
            for place in (real + os.sep + top, real + os.sep + top + ".py"):
                if top not in found and os.path.exists(place):  # noqa: PTH110 - one file, no imports to spare
                    found[top] = place
    for name, module in list(sys.modules.items()):
        mapping = getattr(module, "MAPPING", None) if name.startswith("__editable__") else None
        if isinstance(mapping, dict):
            found.update({top: str(place) for top, place in mapping.items() if top in tops})
    return found


def _watch_start(arguments: tuple[Any, ...]) -> None:
    """A child that was given another path than this replay's, or told to ignore it, may run the installed project."""
    executable, given, place_of_work, environment = (*arguments, None, None, None, None)[:4]
    words = [given] if isinstance(given, (str, bytes)) else list(given or ())
    texts = [os.fsdecode(word) for word in words if isinstance(word, (str, bytes, os.PathLike))]
    if not texts or os.getpid() != _PID:
        return
    path = None if environment is None else environment.get("PYTHONPATH", environment.get(b"PYTHONPATH", ""))
    ignores = any(re.match(r"-[A-Za-z]*[IE]", text) for text in texts[1:3])
    if not ignores and (path is None or _GUARDED in os.fsdecode(path)):
        return
    program = os.fsdecode(executable) if executable else texts[0]
    text = "\n".join(texts)
    with contextlib.suppress(OSError), open(program, "rb") as file:  # noqa: PTH123
        start = file.read(4096)
        if start.startswith(b"#!"):
            text += start.decode("utf-8", "replace")
        elif "python" not in program.rpartition("/")[2]:
            return
    # A path that leads into the tree gives the tree's code, whoever wrote it; and so does the folder it begins in.
    entries = [] if ignores or not path else os.fsdecode(path).split(os.pathsep)
    if not ignores and {"-c", "-m"} & set(texts[1:3]):
        entries.insert(0, os.fsdecode(place_of_work) if place_of_work else os.getcwd())  # noqa: PTH109
    for name, place in _LENT.items():
        if re.search(r"(?<![\w/])" + re.escape(name) + r"\b", text) and not _in_tree(name, entries):
            _emit(e="foreign", module=name, file=place)


def _in_tree(name: str, entries: list[str]) -> bool:
    """Whether the first of the path's entries that holds a module or package lies in the tree."""
    for entry in entries:
        if os.path.exists(entry + os.sep + name) or os.path.exists(entry + os.sep + name + ".py"):  # noqa: PTH110
            return (os.path.realpath(entry) + os.sep).startswith(_ROOT + os.sep)
    return False


# --- source reading


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and _LENT:
        try:
            _watch_start(arguments)
        except Exception as error:  # noqa: BLE001 - whatever a test starts, and however
            _emit(e="note", text="a child could not be looked at: " + repr(error))
        return
    if event != "open" or _state["phase"] is None or not arguments:
        return
    path = arguments[0]
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str) or not path.endswith(".py") or os.getpid() != _PID:
        return
    inside = _inside(path)
    key = (_state["node"], inside)
    if inside is None or key in _state["told"]:
        return
    asked_by = _asked_by(sys._getframe(1))
    if asked_by is not None:
        _state["told"].add(key)
        _emit(e="read", id=_state["node"], file=inside, by=asked_by)


def _asked_by(frame: Any) -> str | None:
    """The file of the tree whose code opened the file: None for the import system, and for a formatter of tracebacks in
    another package."""
    depth = 0
    while frame is not None and depth < 60:
        file = frame.f_code.co_filename
        if ("importlib" in file and "frozen" in file) or file.endswith(_FORMATTERS):
            return None
        if not file.startswith("<"):
            by = _inside(file)
            if by is not None:
                return by
            if "site-packages" in file or "dist-packages" in file:
                return None
        frame, depth = frame.f_back, depth + 1
    return None


# --- options that would stop early, reorder, retry or deselect


def _neutralise(config: Any) -> None:
    wanted: dict[str, Any] = {
        "maxfail": 1 if _SETTINGS.get("stop_at_red") else 0,
        "keyword": "",
        "markexpr": "",
        "deselect": None,
        "lf": False,
        "failedfirst": False,
        "newfirst": False,
        "stepwise": False,
        "stepwise_skip": False,
        "continue_on_collection_errors": True,
        "usepdb": False,
        "trace": False,
        "setuponly": False,
        "setupplan": False,
        "numprocesses": None,  # xdist: one process a replay, or the probe would see only the controller
        "dist": "no",
        "tx": [],
        "reruns": 0,  # a retried failure is a hidden flake
        "flake_finder_enable": False,
        "randomly_reorganize": False,
        "random_order_bucket": "none",
        "timeout_method": "signal",  # pytest-timeout's thread method ends the process and says nothing of its test
    }
    if not _SETTINGS["collect_only"]:
        wanted["collectonly"] = False
    changed = {}
    for name, value in wanted.items():
        if hasattr(config.option, name) and getattr(config.option, name) != value:
            if getattr(config.option, name):
                changed[name] = repr(getattr(config.option, name))
            setattr(config.option, name, value)
    coverage = config.pluginmanager.getplugin("_cov")
    if coverage is not None and getattr(coverage, "options", None) is not None:
        # A coverage threshold would turn one green test into a failed session.
        coverage.options.cov_fail_under = None
    # Nobody reads the printed tracebacks: the journal has its own, and looking up their sources is slow. The style "value"
    # would ask the exception for its words, and those may raise.
    config.option.tbstyle = "line"
    _emit(e="session", rootdir=str(config.rootdir) if hasattr(config, "rootdir") else "", neutralised=changed)


def _calm_hypothesis(items: list[Any]) -> None:
    """The same examples on both sides: fixed seed, no database, no deadline."""
    hypothesis = sys.modules.get("hypothesis")
    core = sys.modules.get("hypothesis.core")
    if hypothesis is None or core is None:
        return
    try:
        quiet = {"derandomize": True, "database": None, "deadline": None}
        if getattr(core, "global_force_seed", 0) is None:
            core.global_force_seed = 0  # type: ignore[attr-defined]
        settings = hypothesis.settings
        settings.register_profile("holdtrue-gate", parent=settings.default, **quiet)
        settings.load_profile("holdtrue-gate")
        for item in items:
            bound: Any = getattr(item, "obj", None)
            function: Any = getattr(bound, "__func__", bound)
            own = getattr(function, "_hypothesis_internal_use_settings", None)
            if own is not None:
                function._hypothesis_internal_use_settings = settings(parent=own, **quiet)
    except Exception as error:  # noqa: BLE001 - an unknown release of hypothesis must not end the session
        _emit(e="note", text="hypothesis could not be derandomised: " + repr(error))


# --- choice


def _chosen(nodeid: str) -> bool:
    if nodeid in _EXCLUDE:
        return False
    if nodeid in _IDS:
        return True
    return any(nodeid == p or (nodeid.startswith(p) and nodeid[len(p) : len(p) + 1] in ("[", ":")) for p in _PREFIXES)


_IDS = frozenset(_SETTINGS["ids"])
_PREFIXES: list[str] = _SETTINGS["prefixes"]
_EXCLUDE = frozenset(_SETTINGS["exclude"])


# --- runs in forked children


def _say(**answer: Any) -> None:
    os.write(_CHANNEL[1], json.dumps(answer).encode("ascii") + b"\n")


def _wait_and_fork(session: Any) -> None:
    """Forks a child for each run that the gate asks for; returns in the children, and where there is to be no fork."""
    why_not = _why_not_fork(session)
    if why_not:
        _emit(e="note", text="not forked: " + why_not)
    _say(ready=not why_not)
    buffered = b""
    while True:
        while b"\n" not in buffered:
            data = os.read(_CHANNEL[0], 65536)
            if not data:
                # Nothing more to run. What there is to tidy up was tidied up by the runs.
                os._exit(0)
            buffered += data
        line, _, buffered = buffered.partition(b"\n")
        command = json.loads(line)
        if "run" not in command:
            for descriptor in _CHANNEL:
                os.close(descriptor)
            return
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            with contextlib.suppress(Exception):
                stream.flush()  # type: ignore[union-attr]
        pid = os.fork()
        if pid == 0:
            _become_run(session, command)
            return
        with contextlib.suppress(OSError):
            # Here too, or the gate could be told of a group that is not there yet.
            os.setpgid(pid, pid)
        _say(forked=pid)
        status = os.waitpid(pid, 0)[1]
        _say(ended=-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def _become_run(session: Any, command: dict[str, Any]) -> None:
    """In the child: a journal, an output, a process group and a temporary folder of its own."""
    global _PID, _JOURNAL
    _PID, _JOURNAL = os.getpid(), command["journal"]
    os.environ["HOLDTRUE_GATE_JOURNAL"] = _JOURNAL
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    for descriptor in _CHANNEL:
        os.close(descriptor)
    with contextlib.suppress(OSError):
        os.close(_state["fd"])
    _state["fd"] = _open_journal()
    _state["status"] = 70  # where pytest does not say how the session ended
    capture = session.config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        # The file behind a captured descriptor has one position for all who inherited it.
        capture.stop_global_capturing()
    output = os.open(command["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    if capture is not None:
        capture.start_global_capturing()
        capture.suspend_global_capture()
    folders: Any = getattr(session.config, "_tmp_path_factory", None)
    if getattr(folders, "_given_basetemp", None) is None and hasattr(folders, "_basetemp"):
        folders._basetemp = None
    if command["ids"] is not None:
        wanted = frozenset(command["ids"])
        session.items[:] = [item for item in session.items if item.nodeid in wanted]
        session.testscollected = len(session.items)
    ids = [item.nodeid for item in session.items]
    for start in range(0, max(len(ids), 1), IDS_A_LINE):
        _emit(e="collected", ids=ids[start : start + IDS_A_LINE])


def _why_not_fork(session: Any) -> str:
    """What a child would share with the others or lose; "" when there is no such thing."""
    if not session.items:
        return "there is nothing to run"
    if threading.active_count() > 1 or len(_listed("/proc/self/task")) > 1:
        return "threads are running after collecting"
    for name in _UNFORKABLE:
        if name in sys.modules:
            return name + " is loaded"
    if random.getstate() != _RANDOM:
        # Python gives a child a new random state: a seed that was set while collecting would be lost.
        return "the random state was used or set while collecting"
    return _open_descriptor(session)


def _open_descriptor(session: Any) -> str:
    """A file opened for writing, a socket or a pipe that collecting left open: its position or its other end is shared."""
    ours = {0, 1, 2, _state["fd"], *_CHANNEL}
    capture = getattr(session.config.pluginmanager.getplugin("capturemanager"), "_global_capturing", None)
    for stream in (getattr(capture, "in_", None), getattr(capture, "out", None), getattr(capture, "err", None)):
        ours.add(getattr(stream, "targetfd_save", -1))
        with contextlib.suppress(Exception):
            ours.add(stream.tmpfile.fileno())  # type: ignore[union-attr]
    for name in _listed("/proc/self/fd"):
        try:
            descriptor = int(name)
            place = os.readlink("/proc/self/fd/" + name)  # noqa: PTH115
        except (OSError, ValueError):
            continue
        if descriptor in ours or place.startswith("/dev/") or place == _OUTPUT:
            continue
        if not place.startswith("/"):
            return place + " is open after collecting"
        try:
            import fcntl

            writable = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
        except (ImportError, OSError):
            continue
        if writable:
            return place + " is open for writing after collecting"
    return ""


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - one file, no imports to spare
    except OSError:
        return []


# --- hooks


class _NoTests(pytest.File):
    def collect(self) -> list[Any]:
        return []


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: Any) -> Iterator[None]:
    outcome: Any = yield
    error = outcome.excinfo
    if error is not None:
        path = getattr(error[1], "path", None)
        where = _inside(str(path)) if path is not None else None
        _emit(e="collect-error", id=where or "conftest.py", raised=_describe(error[1], {}))
    _calm_hypothesis([])


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_cmdline_main(config: Any) -> Iterator[None]:
    _neutralise(config)
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_collect_file(file_path: Any, parent: Any) -> Iterator[None]:
    # Files named on the command line skip `python_files`; a helper that pytest would not collect by itself is no test
    # file here either.
    outcome: Any = yield
    path = str(file_path)
    if not path.endswith(".py") or getattr(parent.config.option, "doctestmodules", False):
        return
    patterns = parent.config.getini("python_files")
    name, slashed = path.replace(os.sep, "/").rpartition("/")[2], path.replace(os.sep, "/")
    if not any(
        fnmatch.fnmatch(name, p) or ("/" in p and fnmatch.fnmatch(slashed, "*/" + p.lstrip("/"))) for p in patterns
    ):
        # Not an empty answer: for a file named on the command line pytest takes that as a wrong argument.
        outcome.force_result([_NoTests.from_parent(parent, path=file_path)])


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: Any) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if report.outcome == "failed":
        call = getattr(report, "call", None)
        exception = call.excinfo.value if call is not None and call.excinfo is not None else None
        _emit(e="collect-error", id=collector.nodeid, raised=_describe(exception, {}), text=_text(report.longrepr))
    elif report.outcome == "skipped":
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        _emit(e="collect-skip", id=collector.nodeid, skip=_text(why))


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_collection_modifyitems(session: Any, config: Any, items: list[Any]) -> Iterator[None]:
    everything = list(items)
    yield
    # Another plugin may have deselected or reordered: the plan's choice in file order is what runs.
    items[:] = [item for item in everything if _chosen(item.nodeid)]
    ids = [item.nodeid for item in items]
    for start in range(0, max(len(ids), 1), IDS_A_LINE):
        _emit(e="collected", ids=ids[start : start + IDS_A_LINE])
    _calm_hypothesis(items)
    _tell_foreign()


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtestloop(session: Any) -> Iterator[None]:
    if _CHANNEL:
        _wait_and_fork(session)
    yield


def pytest_runtest_logstart(nodeid: str, location: Any) -> None:
    _state["node"] = nodeid
    line = location[1]
    _emit(e="begin", id=nodeid, line=line + 1 if isinstance(line, int) else None)


def _output(report: Any) -> str | None:
    """The end of what pytest captured for a report: each stream under its name."""
    try:
        parts = ["[{}]\n{}".format(str(name), str(text).rstrip("\n")) for name, text in report.sections if text]
        return _steady("\n".join(parts)[-20 * OUTPUT_CHARS :])[-OUTPUT_CHARS:] or None
    except Exception as error:  # noqa: BLE001 - a plugin may put anything there
        return "<no output: {}>".format(type(error).__name__)  # noqa: UP032


def _watched(item: Any, when: str) -> Iterator[None]:
    _emit(e="phase-begin", id=item.nodeid, when=when)
    _state["phase"] = when
    try:
        yield
    finally:
        _state["phase"] = None


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_setup(item: Any) -> Iterator[None]:
    yield from _watched(item, "setup")


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    yield from _watched(item, "call")


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: Any) -> Iterator[None]:
    yield from _watched(item, "teardown")


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    raised = None if call.excinfo is None or report.outcome == "passed" else _describe(call.excinfo.value, {})
    longrepr = report.longrepr
    _emit(
        e="phase",
        id=item.nodeid,
        when=report.when,
        outcome=report.outcome,
        seconds=round(getattr(report, "duration", 0.0), 4),
        raised=raised if report.outcome == "failed" else None,
        skip=_text(longrepr[2] if isinstance(longrepr, tuple) else longrepr) if report.outcome == "skipped" else None,
        xfail=_text(getattr(report, "wasxfail", None)),
        detail=_text(longrepr) if report.outcome == "failed" and call.excinfo is None else None,
        output=_output(report) if report.outcome == "failed" else None,
    )


def pytest_runtest_logfinish(nodeid: str) -> None:
    _emit(e="end", id=nodeid)
    _state["node"] = None
    _tell_foreign()


def _skip_summaries(config: Any) -> None:
    """Nobody reads what plugins print at the end; hypothesis' summary alone imports all of hypothesis, in every session."""
    try:
        hook = config.hook.pytest_terminal_summary
        reporter = config.pluginmanager.getplugin("terminalreporter")
        for implementation in list(hook.get_hookimpls()):
            if implementation.plugin is not reporter or "status" in _state:
                hook._remove_plugin(implementation.plugin)
    except Exception as error:  # noqa: BLE001 - another release of pluggy: slower, not wrong
        _emit(e="note", text="summaries were not skipped: " + repr(error))


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_sessionfinish(session: Any, exitstatus: Any) -> Iterator[None]:
    _tell_foreign()
    _emit(e="finish", exit=int(exitstatus))
    if "status" in _state:
        _state["status"] = int(exitstatus)
    _skip_summaries(session.config)
    yield
    if "status" in _state:
        # A forked run ends here: what pytest and the interpreter do on the way out (five collections of garbage, say) is
        # for the process that collected.
        with contextlib.suppress(Exception):
            session.config.hook.pytest_unconfigure(config=session.config)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(_state["status"])


_LENT = _lent_modules()
_drop_foreign_paths()
_emit(e="start", python=sys.version.split()[0], pytest=pytest.__version__, time=time.time())
sys.addaudithook(_audit)
