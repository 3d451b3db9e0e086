"""The default embedder: what it promises about its vectors, its files, its start and its threads."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdtrue.errors import InvalidInput, ModelUnavailable, TierUnknown
from holdtrue.models import Embedder, StaticEmbedder, default_embedder, load_embedder
from holdtrue.models.embedder import normalised
from holdtrue.models.static import BLOCK_ROWS, MAX_CHARACTERS, MODEL_DIRECTORY

SHIPPED_BYTES = 8 * 1024 * 1024
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=300)  # lone surrogates and NUL among them

# (text, says the same in other words, is about something else)
TRIPLES = [
    ("My sister adopted a puppy", "Her family has a new dog", "Interest rates went up again"),
    ("We ship the release on Friday", "The deployment is planned for the end of the week", "He plays violin at night"),
    ("The doctor prescribed antibiotics", "The physician gave her medicine", "The stadium was full of fans"),
    ("I am allergic to peanuts", "Nuts make me ill, so keep them out of my food", "The train was late by an hour"),
    ("They moved to a flat in Berlin", "Their new apartment is in Germany", "The printer is out of ink"),
    ("Use PostgreSQL for the billing service", "The invoices live in a SQL database", "She painted a sunset"),
    ("He ran a marathon in May", "He finished a long race in spring", "The soup needs more salt"),
    ("The password is rotated every month", "Credentials change each thirty days", "Penguins live in the south"),
    ("She teaches chemistry at a school", "She is a science teacher", "The car needs a new tyre"),
    ("Our cat sleeps on the sofa", "The kitten naps on the couch", "The court rejected the appeal"),
]


def child(code: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[1]
    environment = {k: v for k, v in os.environ.items() if k != "TOKENIZERS_PARALLELISM"} | {"PYTHONPATH": str(root)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, env=environment
    )


@settings(max_examples=200, deadline=None)
@given(st.lists(ANY_TEXT, max_size=5))
def test_any_text_gives_a_finite_unit_vector_or_is_masked_out(texts: list[str]) -> None:
    found = default_embedder().embed(texts)
    assert found.vectors.shape == (len(texts), 256)
    assert found.vectors.dtype == np.float32
    assert found.usable.shape == (len(texts),)
    assert found.usable.dtype == np.bool_
    assert np.isfinite(found.vectors).all()
    lengths = np.sqrt((found.vectors.astype(np.float64) ** 2).sum(axis=1))
    assert np.allclose(lengths[found.usable], 1.0, atol=1e-6)
    assert (lengths[~found.usable] == 0.0).all()


@settings(max_examples=100, deadline=None)
@given(ANY_TEXT, st.lists(ANY_TEXT, max_size=4), st.lists(ANY_TEXT, max_size=4))
def test_a_vector_does_not_depend_on_the_texts_beside_it(text: str, before: list[str], after: list[str]) -> None:
    alone = default_embedder().embed([text])
    among = default_embedder().embed([*before, text, *after])
    assert np.array_equal(alone.vectors[0], among.vectors[len(before)])
    assert alone.usable[0] == among.usable[len(before)]


ASCII_TEXT = st.one_of(
    st.text(st.characters(codec="ascii"), max_size=200),
    st.lists(st.text("abcdeinorst0159'-_.\x01\x0b\t", min_size=1, max_size=12), max_size=20).map(" ".join),
    st.text("ab", min_size=90, max_size=120),  # around the longest word that has pieces
)


@settings(max_examples=300, deadline=None)
@given(ASCII_TEXT)
def test_the_pieces_of_ascii_are_those_of_the_tokeniser(text: str) -> None:
    model = default_embedder()._load()
    for _ in range(2):  # from nothing, and from what is remembered
        assert model.pieces(text) == model.tokenizer.encode(text, add_special_tokens=False).ids


def test_a_vector_does_not_depend_on_the_process() -> None:
    code = (
        "from holdtrue.models import default_embedder as d;"
        "print(d().embed(['The same in every process', 'naïve 日本語 snake_case()']).vectors.tobytes().hex())"
    )
    here = default_embedder().embed(["The same in every process", "naïve 日本語 snake_case()"]).vectors.tobytes().hex()
    assert child(code).stdout.strip() == here


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\x00", "\u200b", "\ud800", "🙂🙃", "\x00" * 50_000, "x" * 50_000])
def test_a_text_without_known_pieces_has_no_vector(text: str) -> None:
    found = default_embedder().embed([text])
    assert not found.usable[0]
    assert not found.vectors.any()
    assert found.blobs() == [None]


@pytest.mark.parametrize(
    "text",
    ["hello \ud800\udfff", "a\x00b", "🙂 happy", "[UNK]", "[PAD] [CLS]", "שלום", "日本", "!", "e\u0301"],
)
def test_a_text_with_a_known_piece_has_a_vector(text: str) -> None:
    assert default_embedder().embed([text]).usable.all()


def test_a_lone_surrogate_counts_as_the_replacement_character() -> None:
    broken, replaced = default_embedder().embed(["one \udc80 two", "one \ufffd two"]).vectors
    assert np.array_equal(broken, replaced)


@pytest.mark.parametrize("text", ["word " * 10_000, "日本語" * 20_000, "a\u0301 " * 2_000_000, "." * 1_000_000])
def test_a_huge_text_is_embedded_from_its_beginning(text: str) -> None:
    whole, beginning = default_embedder().embed([text, text[:MAX_CHARACTERS]]).vectors
    assert np.array_equal(whole, beginning)
    assert whole.any()


def test_a_text_longer_than_a_block_counts_every_piece() -> None:
    one, many = default_embedder().embed(["cat dog", "cat dog " * BLOCK_ROWS]).vectors
    assert float((one * many).sum()) == pytest.approx(1.0, abs=1e-5)


def test_no_texts_give_no_rows() -> None:
    found = default_embedder().embed([])
    assert found.vectors.shape == (0, 256)
    assert len(found) == 0


@pytest.mark.parametrize("texts", ["a bare string", [b"bytes"], [None], ["fine", 3]])
def test_anything_but_texts_is_refused(texts: object) -> None:
    with pytest.raises(InvalidInput):
        default_embedder().embed(texts)  # type: ignore[arg-type]


def test_vectors_that_are_not_finite_or_are_zero_are_masked_out() -> None:
    raw = np.array([[3.0, 4.0], [0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0], [1e-300, 0.0], [1e300, 1e300]])
    found = normalised(raw)
    assert found.usable.tolist() == [True, False, False, False, False, False]
    assert found.vectors[0].tolist() == pytest.approx([0.6, 0.8])
    assert not found.vectors[1:].any()


def test_a_blob_is_little_endian_float32() -> None:
    found = default_embedder().embed(["a text"])
    (blob,) = found.blobs()
    assert blob is not None
    assert np.array_equal(np.frombuffer(blob, dtype="<f4"), found.vectors[0])


@pytest.mark.parametrize(("text", "same", "other"), TRIPLES)
def test_a_paraphrase_is_nearer_than_another_subject(text: str, same: str, other: str) -> None:
    a, b, c = default_embedder().embed([text, same, other]).vectors
    assert float((a * b).sum()) > float((a * c).sum())


def test_words_that_carry_no_meaning_hardly_move_a_vector() -> None:
    a, b, c = default_embedder().embed(["violin lesson", "it was the violin lesson", "guitar lesson"]).vectors
    assert float((a * b).sum()) > float((a * c).sum())


def test_the_shipped_files_fit_their_budget() -> None:
    assert sum(path.stat().st_size for path in MODEL_DIRECTORY.iterdir()) <= SHIPPED_BYTES


def test_the_revision_is_that_of_the_shipped_content() -> None:
    described = json.loads((MODEL_DIRECTORY / "identity.json").read_text(encoding="utf-8"))
    digests = {}
    for name, recorded in described["files"].items():
        content = (MODEL_DIRECTORY / name).read_bytes()
        digests[name] = hashlib.sha256(content).hexdigest()
        assert recorded == {"bytes": len(content), "sha256": digests[name]}
    shipped = {path.name for path in MODEL_DIRECTORY.iterdir()}
    assert shipped == {*digests, "identity.json", "NOTICE"}
    text = json.dumps({"files": digests, "tokeniser": described["tokeniser"]}, sort_keys=True)
    assert described["revision"] == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert default_embedder().identity.key == f"static-minilm-256@{described['revision']}/256"
    default_embedder().verify()


def copy_of_the_model(folder: Path) -> Path:
    for path in MODEL_DIRECTORY.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def test_a_changed_file_fails_the_verification(tmp_path: Path) -> None:
    copy = copy_of_the_model(tmp_path)
    content = bytearray((copy / "vectors.npy").read_bytes())
    content[-1] ^= 1
    (copy / "vectors.npy").write_bytes(content)
    with pytest.raises(ModelUnavailable, match=r"vectors\.npy"):
        StaticEmbedder(copy).verify()


@pytest.mark.parametrize("name", ["identity.json", "vectors.npy", "scales.npy", "vocabulary.txt"])
@pytest.mark.parametrize("harm", ["missing", "empty", "half", "another file"])
def test_a_damaged_model_is_a_clear_error_and_loads_once_it_is_whole(tmp_path: Path, name: str, harm: str) -> None:
    victim = copy_of_the_model(tmp_path) / name
    content = victim.read_bytes()
    victim.unlink()
    if harm != "missing":
        victim.write_bytes({"half": content[: len(content) // 2], "empty": b"", "another file": b"{}"}[harm])
    embedder = StaticEmbedder(tmp_path)
    with pytest.raises(ModelUnavailable, match="Reinstall"):
        embedder.embed(["text"])
    victim.write_bytes(content)
    assert embedder.embed(["text"]).usable.all()


def test_an_import_loads_neither_numpy_nor_a_model() -> None:
    code = (
        "import sys, holdtrue.models, holdtrue.models.static, holdtrue.models.embedder, holdtrue.models.transformer;"
        "key = holdtrue.models.default_embedder().identity.key;"
        "print([m for m in ('numpy', 'tokenizers', 'torch', 'transformers', 'sklearn', 'sentence_transformers')"
        " if m in sys.modules])"
    )
    assert child(code).stdout.strip() == "[]"


def test_embedding_loads_nothing_but_numpy_and_tokenizers() -> None:
    code = (
        "import sys; from holdtrue.models import default_embedder; default_embedder().embed(['text']);"
        "print([m for m in ('torch', 'transformers', 'sklearn', 'scipy', 'model2vec', 'huggingface_hub')"
        " if m in sys.modules])"
    )
    assert child(code).stdout.strip() == "[]"


def test_eight_threads_at_first_use_load_once() -> None:
    embedder = StaticEmbedder()
    start = threading.Barrier(8)
    found: list[bytes] = []

    def use() -> None:
        start.wait(timeout=10)
        found.append(embedder.embed(["the same text"]).vectors.tobytes())

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(found) == 8
    assert len(set(found)) == 1
    assert embedder.loads == 1


FORK = """
import os, threading, time
from holdtrue.models import default_embedder
embedder = default_embedder()
{before}
child = os.fork()
if child == 0:
    os._exit(0 if embedder.embed(['in the child'] * 50).usable.all() else 3)
assert embedder.embed(['in the parent']).usable.all()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize(
    "before",
    [
        pytest.param("", id="before the load"),
        pytest.param("embedder.embed(['some'] * 50)", id="after the load"),
        pytest.param("threading.Thread(target=embedder.embed, args=(['x'],)).start()", id="as a thread begins to load"),
        pytest.param(
            "threading.Thread(target=embedder.embed, args=(['x'],)).start(); time.sleep(0.05)",
            id="while a thread loads",
        ),
    ],
)
def test_a_fork_prints_nothing_and_both_sides_embed(before: str) -> None:
    done = child(FORK.format(before=before))
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_embedding_starts_no_thread() -> None:
    code = (
        "import os, numpy, tokenizers; from holdtrue.models import default_embedder as d;"
        "count = lambda: len(os.listdir('/proc/self/task'));"
        "before = count(); d().embed(['some text'] * 500); print(count() - before)"
    )
    assert child(code).stdout.strip() == "0"


def test_the_tiers_share_the_default_embedder() -> None:
    assert load_embedder(None) is load_embedder("default") is load_embedder("static") is default_embedder()
    assert isinstance(default_embedder(), Embedder)


@pytest.mark.parametrize("tier", ["", "Default", "nonsense", "../base"])
def test_an_unknown_tier_is_a_clear_error(tier: str) -> None:
    with pytest.raises(TierUnknown, match="tier"):
        load_embedder(tier)
