"""Signatures of artifacts and documents, with keys that match and keys that do not."""

import sys
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.storage.signing import SIGNATURE, Signing, add_signature, explain_unsigned
from mens_pipeline.storage.store import Artifact, ArtifactStore

_PRIVATE = "5b" * 32


def _load_keys(private: str | None, public: str | None = None) -> Signing:
    signing = Signing.of(private, public)
    assert signing is not None
    return signing


def _write(folder: Path) -> dict[str, Any]:
    (folder / "figures.json").write_text("{}")
    return {"name": "of a test"}


def _make_artifact(store: ArtifactStore) -> Artifact:
    return store.build("eval_results", *add_signature(store, "eval_results", {"of": "a test"}, _write))[0]


def test_a_signed_artifact_is_verified(tmp_path: Path) -> None:
    """With the key or its public half; not with another key, a changed file, or an invalid or missing signature."""
    signing = _load_keys(_PRIVATE)
    store = ArtifactStore(tmp_path, signing=signing)
    made = _make_artifact(store)

    assert (made.manifest["inputs"]["signed_by"], made.manifest["name"]) == (signing.public_key, "of a test")
    assert explain_unsigned(made, store) is None
    assert explain_unsigned(made, ArtifactStore(tmp_path, signing=_load_keys(None, signing.public_key))) is None
    assert "not match the key" in str(explain_unsigned(made, ArtifactStore(tmp_path, signing=_load_keys("6c" * 32))))
    (made.path / "figures.json").write_text("[]")
    assert explain_unsigned(made, store) == "changed since it was signed: figures.json"
    (made.path / SIGNATURE).write_text("{}")
    assert explain_unsigned(made, store) == "its signature.json cannot be read"
    (made.path / SIGNATURE).unlink()
    assert explain_unsigned(made, store) == "it is not signed"


def test_without_a_key_no_signature_is_written_or_required(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    made = _make_artifact(store)

    assert Signing.of(None, None) is None
    assert made.manifest["inputs"] == {"of": "a test"}
    assert explain_unsigned(made, store) is None
    assert not (made.path / SIGNATURE).exists()


def test_a_signature_covers_the_kind_and_the_fields_of_a_document() -> None:
    signing = _load_keys(_PRIVATE)
    signature = signing.signature_of("event", key="a")

    assert signing.problem_of(signature, "event", key="a") is None
    assert signing.problem_of(None, "event", key="a") == "it is not signed"
    for found, kind, key in ((signature, "event", "b"), (signature, "other", "a"), ("no number", "event", "a")):
        assert "its signature does not match the key" in str(signing.problem_of(found, kind, key=key))


def test_keys_that_do_not_match_are_refused() -> None:
    own = _load_keys(_PRIVATE).public_key

    assert _load_keys(_PRIVATE, own).public_key == own
    with pytest.raises(ConfigurationError, match=r"MENS_VERIFY_KEY: .* but MENS_SIGNING_KEY belongs to"):
        Signing.of("6c" * 32, own)
    with pytest.raises(ConfigurationError, match=r"no key to sign with is set. Set MENS_SIGNING_KEY"):
        _load_keys(None, own).signature_of("event")


def test_a_missing_library_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    signing = _load_keys(_PRIVATE)
    signature = signing.signature_of("event")
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)

    for use_library in (lambda: Signing.of(_PRIVATE, None), lambda: signing.problem_of(signature, "event")):
        with pytest.raises(ConfigurationError, match=r"cryptography.*: not installed\. Run: pip install .*\[sign\]"):
            use_library()
