"""Verdicts and champions that count only with a signature, and what somebody who may write to the store tries."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mens_pipeline.configured import signing_of
from mens_pipeline.delivery.serving.served_model import candidate_model, champion_model
from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.inference.prepare import WEIGHTS, adapter_digest
from mens_pipeline.promotion.history import champion_key, champion_of, history_of
from mens_pipeline.promotion.promote import roll_back
from mens_pipeline.promotion.receipt import RECEIPT
from mens_pipeline.promotion.signing import SIGNATURE, Signing
from mens_pipeline.settings import load_settings
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline.training.job import ADAPTER
from mens_pipeline_tests.delivery.serving.running import CPU
from mens_pipeline_tests.evaluation.runs import NOW, PRESENT, evaluated, judged, promote, promoted, trained

_PRIVATE = "5b" * 32
_OTHER = "6c" * 32


def _keys(private: str | None = _PRIVATE, public: str | None = None) -> Signing:
    signing = Signing.of(private, public)
    assert signing is not None
    return signing


_SIGNING = _keys()
_SIGNED = replace(PRESENT, signing=_SIGNING)
_CHECKING = _keys(None, _SIGNING.public_key)


def _verdict(run: Path, store: ArtifactStore, num_good: int = 40, signing: Signing | None = _SIGNING) -> Artifact:
    return judged(run, store, evaluated(run, store, num_good), signing=signing)


def _written_over(artifact: Artifact, name: str, text: str) -> None:
    """A file of an artifact, and its digest in the manifest, as who may write to the store can do."""
    (artifact.path / name).write_text(text)
    artifact.manifest["outputs"][name]["sha256"] = digest_of(artifact.path / name)
    (artifact.path / "manifest.json").write_text(json.dumps(artifact.manifest))


def _without_signature(gate: Artifact) -> None:
    del gate.manifest["outputs"][SIGNATURE]
    (gate.path / SIGNATURE).unlink()


def _another_verdict(gate: Artifact) -> None:
    receipt = json.loads((gate.path / RECEIPT).read_text())
    _written_over(gate, RECEIPT, json.dumps({**receipt, "overall_passed": True}))


def _another_file(gate: Artifact) -> None:
    (gate.path / "more.json").write_text("{}")
    gate.manifest["outputs"]["more.json"] = {"sha256": digest_of(gate.path / "more.json"), "bytes": 2}


def _another_key(gate: Artifact) -> None:
    _without_signature(gate)
    _keys(_OTHER).sign(gate.path, gate.kind)
    gate.manifest["outputs"][SIGNATURE] = {"sha256": digest_of(gate.path / SIGNATURE), "bytes": 0}


def _another_kind(gate: Artifact) -> None:
    _without_signature(gate)
    (gate.path / "manifest.json").unlink()
    _SIGNING.sign(gate.path, "promoted_adapter")
    gate.manifest["outputs"][SIGNATURE] = {"sha256": digest_of(gate.path / SIGNATURE), "bytes": 0}


def _no_signature(gate: Artifact) -> None:
    _written_over(gate, SIGNATURE, "{}")


@pytest.mark.threat("M23")
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_without_signature, "it is not signed"),
        (_another_verdict, "not of the key 248acbdb|not of the key|of something else"),
        (_another_file, "of something else"),
        (_another_key, "its signature is not of the key"),
        (_another_kind, "of something else"),
        (_no_signature, "its signature.json cannot be read"),
    ],
)
def test_a_verdict_counts_as_it_was_signed(
    run: Path, store: ArtifactStore, spoil: Callable[[Artifact], None], message: str
) -> None:
    """With the digests of the manifest changed along, which alone would be believed."""
    gate = _verdict(run, store, num_good=20)
    spoil(gate)

    with pytest.raises(RefusedError, match=f"The verdict does not count: .*({message}).*run the gate again with MENS_"):
        promote(gate, run, store, _SIGNED, now=NOW)
    assert champion_key(store) is None


@pytest.mark.parametrize("signing", [_SIGNING, _CHECKING], ids=["signs", "checks"])
def test_what_was_signed_is_promoted_with_a_signature(run: Path, store: ArtifactStore, signing: Signing) -> None:
    """By the key, and where only its public half is known."""
    champion = promote(_verdict(run, store), run, store, _SIGNED, now=NOW).champion

    assert signing.objection(champion) is None
    assert json.loads((champion.path / SIGNATURE).read_text())["public_key"] == signing.public_key
    assert not promote(_verdict(run, store), run, store, _SIGNED, now=NOW + 1).changed


def test_an_unsigned_verdict_is_judged_again(run: Path, store: ArtifactStore) -> None:
    """A key that is set later asks for new verdicts, and the champion is promoted once more with a signature."""
    unsigned = _verdict(run, store, signing=None)
    before = promote(unsigned, run, store, PRESENT, now=NOW).champion
    with pytest.raises(RefusedError, match="The verdict does not count: it is not signed"):
        promote(unsigned, run, store, _SIGNED, now=NOW)
    again = promote(_verdict(run, store), run, store, _SIGNED, now=NOW + 1)

    assert again.changed
    assert again.champion.key != before.key
    assert [event.action for event in history_of(store)] == ["promote", "promote"]


@pytest.mark.threat("M23")
def test_only_a_signed_champion_is_served(run: Path, store: ArtifactStore) -> None:
    """One that was promoted without the key, or written over since with all its digests, is refused before it loads."""
    promoted(run, store)
    with pytest.raises(RefusedError, match=r"it is not signed. Judge and promote it again with MENS_SIGNING_KEY"):
        champion_model(store, CPU, _CHECKING)
    promote(_verdict(run, store), run, store, _SIGNED, now=NOW + 1)
    champion = champion_of(store)
    assert champion is not None
    _written_over(champion, f"{ADAPTER}/{WEIGHTS}", "other weights")
    inputs = {**champion.manifest["inputs"], "adapter_sha256": adapter_digest(champion.path)}
    champion.manifest["inputs"].update(inputs)

    assert "of something else" in str(_CHECKING.objection(champion))


def test_only_a_signed_verdict_lets_a_candidate_be_served(store: ArtifactStore) -> None:
    """Its header would tell what a forged verdict says."""
    parent = store.built("qlora_adapter", {}, lambda _folder: {})[0]
    store.built("benchmark_gate", {}, lambda _folder: {}, [parent])

    with pytest.raises(RefusedError, match="it is not signed"):
        candidate_model(store, CPU, _CHECKING)


def test_a_rollback_leads_to_no_unsigned_champion(run: Path, store: ArtifactStore, tmp_path: Path) -> None:
    """It would not be served."""
    promoted(run, store)
    second = trained(tmp_path / "second")
    (second / ADAPTER / WEIGHTS).write_text("other weights")
    promote(_verdict(second, store), second, store, _SIGNED, now=NOW)

    with pytest.raises(RefusedError, match=r"it is not signed. Judge and promote its run again with the key"):
        roll_back(store, now=NOW, reason="a test", signing=_SIGNING)
    assert roll_back(store, now=NOW, reason="a test").changed


def test_who_can_only_check_makes_nothing(run: Path, store: ArtifactStore) -> None:
    """Neither a verdict nor a champion; the message says what is missing."""
    with pytest.raises(ConfigurationError, match=r"nothing is set to make one with. Set MENS_SIGNING_KEY"):
        _verdict(run, store, signing=_CHECKING)


def test_keys_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """None, one, both; two that do not belong together, and what is no key, are mistakes that tell no secret."""
    for name in ("MENS_SIGNING_KEY", "MENS_VERIFY_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert signing_of(load_settings()) is None
    monkeypatch.setenv("MENS_SIGNING_KEY", _PRIVATE)
    found = signing_of(load_settings())
    assert found is not None
    assert (found.public_key, found.private is None) == (_SIGNING.public_key, False)
    monkeypatch.setenv("MENS_VERIFY_KEY", _keys(_OTHER).public_key)
    with pytest.raises(ConfigurationError, match=r"MENS_VERIFY_KEY: .* but MENS_SIGNING_KEY belongs to") as wrong:
        signing_of(load_settings())
    monkeypatch.setenv("MENS_SIGNING_KEY", "Z" * 63)
    with pytest.raises(ConfigurationError, match="not 64 hexadecimal digits, as `openssl rand -hex 32`") as none:
        load_settings()

    assert _PRIVATE not in str(wrong.value)
    assert "ZZZ" not in str(none.value)


def test_without_the_library_it_says_what_to_install(
    run: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes with an extra."""
    gate = _verdict(run, store)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)

    with pytest.raises(ConfigurationError, match="Install the extra `sign`"):
        Signing.of(_PRIVATE, None)
    with pytest.raises(ConfigurationError, match="Install the extra `sign`"):
        _CHECKING.objection(gate)
