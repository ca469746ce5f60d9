"""Signatures of artifacts and documents, by keys that belong together and keys that do not."""

import sys
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.storage.signing import SIGNATURE, Signing, add_signature, explain_unsigned
from mens_pipeline.storage.store import Artifact, ArtifactStore

_PRIVATE = "5b" * 32


def _keys(private: str | None, public: str | None = None) -> Signing:
    signing = Signing.of(private, public)
    assert signing is not None
    return signing


def _write(folder: Path) -> dict[str, Any]:
    (folder / "figures.json").write_text("{}")
    return {"name": "of a test"}


def _make_artifact(store: ArtifactStore) -> Artifact:
    return store.build("eval_results", *add_signature(store, "eval_results", {"of": "a test"}, _write))[0]


def test_an_artifact_is_what_was_signed(tmp_path: Path) -> None:
    """By the key, by its public half; not by another key, nor when a file is another one or its signature is none."""
    signing = _keys(_PRIVATE)
    store = ArtifactStore(tmp_path, signing=signing)
    made = _make_artifact(store)

    assert (made.manifest["inputs"]["signed_by"], made.manifest["name"]) == (signing.public_key, "of a test")
    assert explain_unsigned(made, store) is None
    assert explain_unsigned(made, ArtifactStore(tmp_path, signing=_keys(None, signing.public_key))) is None
    assert "not match the key" in str(explain_unsigned(made, ArtifactStore(tmp_path, signing=_keys("6c" * 32))))
    (made.path / "figures.json").write_text("[]")
    assert explain_unsigned(made, store) == "changed since it was signed: figures.json"
    (made.path / SIGNATURE).write_text("{}")
    assert explain_unsigned(made, store) == "its signature.json cannot be read"
    (made.path / SIGNATURE).unlink()
    assert explain_unsigned(made, store) == "it is not signed"


def test_without_a_key_nothing_is_signed_or_asked_for(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    made = _make_artifact(store)

    assert Signing.of(None, None) is None
    assert made.manifest["inputs"] == {"of": "a test"}
    assert explain_unsigned(made, store) is None
    assert not (made.path / SIGNATURE).exists()


def test_a_document_is_what_was_signed() -> None:
    signing = _keys(_PRIVATE)
    signature = signing.signature_of("event", key="a")

    assert signing.problem_of(signature, "event", key="a") is None
    assert signing.problem_of(None, "event", key="a") == "it is not signed"
    for found, kind, key in ((signature, "event", "b"), (signature, "other", "a"), ("no number", "event", "a")):
        assert "its signature does not match the key" in str(signing.problem_of(found, kind, key=key))


def test_keys_that_do_not_belong_together_are_refused() -> None:
    own = _keys(_PRIVATE).public_key

    assert _keys(_PRIVATE, own).public_key == own
    with pytest.raises(ConfigurationError, match=r"MENS_VERIFY_KEY: .* but MENS_SIGNING_KEY belongs to"):
        Signing.of("6c" * 32, own)
    with pytest.raises(ConfigurationError, match=r"no key to sign with is set. Set MENS_SIGNING_KEY"):
        _keys(None, own).signature_of("event")


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    signing = _keys(_PRIVATE)
    signature = signing.signature_of("event")
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)

    for ask in (lambda: Signing.of(_PRIVATE, None), lambda: signing.problem_of(signature, "event")):
        with pytest.raises(ConfigurationError, match=r"cryptography.*: not installed\. Run: pip install .*\[sign\]"):
            ask()
