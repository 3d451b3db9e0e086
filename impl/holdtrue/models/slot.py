"""The place an embedder loads into, so that nobody waits long for one.

Owns: the one load of a `Memory`'s model. The first use starts it in a thread of its own and waits a bounded time; who
comes while it still loads goes on without vectors. Faults it survives: a model that is missing, broken or slow, and a
fork while it loads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdtrue import failpoints, logs
from holdtrue.clock import Deadline
from holdtrue.store.vectors import DIMENSION, NORM_TOLERANCE, Vector

if TYPE_CHECKING:
    from holdtrue.models.embedder import Embedder, Embeddings

logger = logs.logger(__name__)

RETRY_S = 60.0
_MANY = 16  # rows, from which on NumPy tells sooner than a look at each whether they are of unit length


class ModelSlot:
    """`load` makes the embedder; `catch_up` makes the vectors that were put off, and is called in a thread of its own."""

    def __init__(self, load: Callable[[], Embedder], catch_up: Callable[[], object]) -> None:
        self._load = load
        self._catch_up = catch_up
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._embedder: Embedder | None = None
        self._ended: threading.Event | None = None
        self._retry = Deadline.after(0.0)
        self._behind = False  # vectors were put off and nobody has been sent to make them
        self._catching_up = False
        self._thread: threading.Thread | None = None
        self._load_problem = ""
        self._embed_problem = ""

    @property
    def problem(self) -> str:
        """Why there are no vectors now, as a sentence; empty when there are."""
        if self._embedder is not None:
            return self._embed_problem
        loading = self._ended is not None and not self._ended.is_set()
        return "The model is still loading." if loading else self._load_problem

    @property
    def unrelated(self) -> float:
        """The cosine at which the loaded embedder sees no relation between two texts."""
        return 0.0 if self._embedder is None else self._embedder.identity.unrelated_cosine

    def start(self) -> None:
        """Begin to load without waiting: whoever needs the model next finds it ready sooner."""
        if self._embedder is None:
            self._begin()

    def embed(self, texts: Sequence[str], *, wait_s: float) -> list[Vector | None]:
        """One vector a text, in order; None for each where the model is not there within `wait_s` seconds."""
        embedder = self.embedder(wait_s=wait_s)
        if embedder is None or not texts:
            return [None] * len(texts)
        try:
            embeddings = embedder.embed(texts)
        except Exception as error:  # noqa: BLE001 - whatever a model does wrong, the words must not be lost
            self._embed_problem = f"The model failed: {error}"
            logger.warning("%s", self._embed_problem)
            return [None] * len(texts)
        self._embed_problem = ""
        key = embedder.identity.key
        return [Vector(key, *pair) for pair in zip(embeddings.blobs(), _usable(embeddings), strict=True)]

    def put_off(self) -> None:
        """Say that a memory was stored without the vector it should have: it is made as soon as there is a model."""
        with self._lock:
            self._behind = True
        self._send()

    def finish(self, *, wait_s: float) -> None:
        """Wait for the thread that is catching up, if there is one: a short-lived process would cut it off."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(wait_s)

    def embedder(self, *, wait_s: float) -> Embedder | None:
        """The embedder, loaded by whoever asks first; None when it is not there in time or could not be loaded."""
        if self._embedder is None:
            self._begin().wait(wait_s)
        return self._embedder

    def _begin(self) -> threading.Event:
        """The end of the load that is under way, begun here if there is none."""
        if self._pid != os.getpid():  # the thread that was loading did not come along
            self._lock, self._ended, self._pid = threading.Lock(), None, os.getpid()
        with self._lock:
            if self._ended is None or (self._ended.is_set() and self._embedder is None and self._retry.passed()):
                self._ended = threading.Event()
                thread = threading.Thread(target=self._run, args=(self._ended,), name="holdtrue-model", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    self._load_problem = f"The model cannot be loaded now: {error}."
                    self._retry = Deadline.after(RETRY_S)
                    self._ended.set()
            return self._ended

    def _run(self, ended: threading.Event) -> None:
        try:
            failpoints.hit("models.load")
            embedder = self._load()
            embedder.embed(["ready"])  # the files are read at the first use, so that is part of loading
            self._load_problem = ""
            self._embedder = embedder
        except Exception as error:  # noqa: BLE001 - reported in every reply and in status
            self._load_problem = str(error) or type(error).__name__
            logger.warning("The model could not be loaded: %s", error)
            self._retry = Deadline.after(RETRY_S)
        ended.set()
        self._send()

    def _send(self) -> None:
        """Send one thread to catch up, if something was put off, there is a model, and none is on its way."""
        with self._lock:
            if not self._behind or self._embedder is None or self._catching_up:
                return
            self._behind, self._catching_up = False, True
        thread = threading.Thread(target=self._run_catch_up, name="holdtrue-catch-up", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no thread can be had now: what was put off is not forgotten for that
            logger.warning("Pending vectors cannot be made now: %s", error)
            with self._lock:
                self._behind, self._catching_up = True, False
            return
        self._thread = thread  # only now can it be waited for

    def _run_catch_up(self) -> None:
        try:
            self._catch_up()
        except Exception as error:  # noqa: BLE001 - nobody waits for this thread; the vectors stay pending
            logger.warning("Pending vectors could not be made: %s", error)
        with self._lock:
            self._catching_up = False
        self._send()


def _usable(embeddings: Embeddings) -> Sequence[bool | None]:
    """Which rows are finite and of unit length, as `Vector` would find; None for each where it is left to that."""
    rows, dimension = embeddings.vectors.shape
    if rows < _MANY or dimension != DIMENSION:
        return [None] * rows
    import numpy as np

    wide = embeddings.vectors.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt((wide * wide).sum(axis=1))
    usable: list[bool | None] = (np.abs(lengths - 1.0) <= NORM_TOLERANCE).tolist()  # False for what is not finite
    return usable
