"""Documents that are unsigned, changed or forged do not count once a key is set."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.evaluation.results import RESULTS, SCORED_COMPLETIONS
from mens_pipeline.models.adapter import ADAPTER, WEIGHTS, adapter_digest
from mens_pipeline.promotion.history import CHAMPION, HISTORY, champion_key, find_champion, read_history, sign_history
from mens_pipeline.promotion.ledger import sign_ledger
from mens_pipeline.promotion.promote import roll_back
from mens_pipeline.promotion.receipt import RECEIPT
from mens_pipeline.serving.served_model import candidate_model, champion_model
from mens_pipeline.settings import load_settings, open_store
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.signing import SIGNATURE, Signing
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline_tests.evaluation.runs import (
    NOW,
    PRESENT,
    champion_in,
    evaluated,
    promote,
    promoted,
    scored,
    trained,
    verdict_of,
)
from mens_pipeline_tests.promotion.verdicts import assert_refused
from mens_pipeline_tests.serving.running import CPU

_PRIVATE = "5b" * 32
_OTHER = "6c" * 32


def _keys(private: str | None = _PRIVATE, public: str | None = None) -> Signing:
    signing = Signing.of(private, public)
    assert signing is not None
    return signing


_SIGNING = _keys()
_CHECKING = _keys(None, _SIGNING.public_key)


@pytest.fixture
def store(store: ArtifactStore) -> ArtifactStore:
    """An empty store in which everything must be signed."""
    return _open(store, _SIGNING)


def _open(store: ArtifactStore, signing: Signing | None) -> ArtifactStore:
    return ArtifactStore(store.root, signing=signing)


def _overwrite(artifact: Artifact, name: str, text: str) -> None:
    (artifact.path / name).write_text(text)
    artifact.manifest["outputs"][name]["sha256"] = digest_of(artifact.path / name)
    (artifact.path / "manifest.json").write_text(json.dumps(artifact.manifest))


def _remove_signature(gate: Artifact) -> None:
    del gate.manifest["outputs"][SIGNATURE]
    (gate.path / SIGNATURE).unlink()


def _change_verdict(gate: Artifact) -> None:
    receipt = json.loads((gate.path / RECEIPT).read_text())
    _overwrite(gate, RECEIPT, json.dumps({**receipt, "overall_passed": True}))


def _add_file(gate: Artifact) -> None:
    (gate.path / "more.json").write_text("{}")
    gate.manifest["outputs"]["more.json"] = {"sha256": digest_of(gate.path / "more.json"), "bytes": 2}


def _sign_again(gate: Artifact, signing: Signing, kind: str) -> None:
    _remove_signature(gate)
    (gate.path / "manifest.json").unlink()
    signing.sign(gate.path, kind)
    gate.manifest["outputs"][SIGNATURE] = {"sha256": digest_of(gate.path / SIGNATURE), "bytes": 0}


@pytest.mark.threat("M23")
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_remove_signature, "it is not signed"),
        (_change_verdict, "does not match the key"),
        (_add_file, "not match the key"),
        (lambda gate: _sign_again(gate, _keys(_OTHER), gate.kind), "its signature does not match the key"),
        (lambda gate: _sign_again(gate, _SIGNING, "promoted_adapter"), "not match the key"),
        (lambda gate: _overwrite(gate, SIGNATURE, "{}"), "its signature.json cannot be read"),
    ],
)
def test_a_forged_verdict_is_refused(
    run: Path, store: ArtifactStore, spoil: Callable[[Artifact], None], message: str
) -> None:
    gate = verdict_of(run, store, num_good=20)
    spoil(gate)

    assert_refused(f"verdict .* does not count: .*({message}).*run the gate again with MENS_", gate, run, store)


def _write_unsigned(name: str, text: str) -> Callable[[Artifact], None]:
    def spoil(evaluation: Artifact) -> None:
        _remove_signature(evaluation)
        _overwrite(evaluation, name, text)

    return spoil


@pytest.mark.threat("M23")
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda evaluation: _overwrite(evaluation, SCORED_COMPLETIONS, ""), "its signature does not match the key"),
        (lambda evaluation: (evaluation.path / RESULTS).write_text("{}"), f"changed since it was written: {RESULTS}"),
        (_write_unsigned(SCORED_COMPLETIONS, ""), "it is not signed"),
    ],
    ids=["with its digest", "alone", "without the signature"],
)
def test_a_forged_evaluation_is_refused(
    run: Path, store: ArtifactStore, spoil: Callable[[Artifact], None], message: str
) -> None:
    """Nobody can write a better result by hand; the refusal names the folder and a remedy."""
    evaluation = evaluated(run, store, 20)
    spoil(evaluation)

    with pytest.raises(RefusedError, match=f"^{evaluation.path}: {message}.*Evaluate again"):
        scored(run, store, evaluation)


def _read_events(store: ArtifactStore) -> list[dict[str, object]]:
    text = (store.root / Kind.PROMOTED_ADAPTER / HISTORY).read_text()
    return [json.loads(line) for line in text.splitlines()]


def _write(store: ArtifactStore, events: list[dict[str, object]]) -> None:
    folder, lines = store.root / Kind.PROMOTED_ADAPTER, [b""]
    for event in events:
        event["after_sha256"] = hashlib.sha256(lines[-1]).hexdigest()
        lines.append(json.dumps(event).encode())
    (folder / HISTORY).write_bytes(b"".join(line + b"\n" for line in lines[1:]))
    signature = (folder / CHAMPION).read_text().split()[-1]
    (folder / CHAMPION).write_text(f"{events[-1]['key']}\n{hashlib.sha256(lines[-1]).hexdigest()}\n{signature}\n")


def _change_an_entry(store: ArtifactStore) -> None:
    _write(store, [{**event, "reason": "all is well"} for event in _read_events(store)])


def _remove_an_entry(store: ArtifactStore) -> None:
    _write(store, [_read_events(store)[0], _read_events(store)[2]])


def _forge_an_entry(store: ArtifactStore) -> None:
    events = _read_events(store)
    _write(store, [*events, {**events[1], "signature": None}])


def _forge_without_a_pointer(store: ArtifactStore) -> None:
    pointer = (store.root / Kind.PROMOTED_ADAPTER / CHAMPION).read_bytes()
    _forge_an_entry(store)
    (store.root / Kind.PROMOTED_ADAPTER / CHAMPION).write_bytes(pointer)


def _name_the_withdrawn(store: ArtifactStore) -> None:
    folder = store.root / Kind.PROMOTED_ADAPTER
    line = hashlib.sha256((folder / HISTORY).read_bytes().splitlines()[1]).hexdigest()
    signature = (folder / CHAMPION).read_text().split()[-1]
    (folder / CHAMPION).write_text(f"{_read_events(store)[1]['key']}\n{line}\n{signature}\n")


def _write_the_key_alone(store: ArtifactStore) -> None:
    (store.root / Kind.PROMOTED_ADAPTER / CHAMPION).write_text(f"{_read_events(store)[-1]['key']}\n")


def _promote_and_roll_back(folder: Path, store: ArtifactStore) -> Path:
    for name in ("first", "second"):
        promoted(trained(folder / name, name), store)
    roll_back(store, now=NOW, reason="it writes nonsense")
    return folder / "second"


@pytest.mark.threat("M23")
@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (_change_an_entry, "history.jsonl:1: its signature does not match the key"),
        (lambda store: _write(store, _read_events(store)[:-1]), "champion: its signature does not match the key"),
        (_remove_an_entry, "history.jsonl:2: its signature does not match the key"),
        (_forge_an_entry, "history.jsonl:4: it is not signed"),
        (_forge_without_a_pointer, "history.jsonl:4: it is not signed"),
        (_name_the_withdrawn, "champion: it names [0-9a-f]{12}, but the last line of history.jsonl names"),
        (_write_the_key_alone, "champion: it is not signed"),
    ],
)
def test_a_forged_history_is_refused(
    tmp_path: Path, store: ArtifactStore, forge: Callable[[ArtifactStore], None], message: str
) -> None:
    """Even with valid hashes: no withdrawn adapter is promoted again, and nothing is gated or served."""
    run = _promote_and_roll_back(tmp_path, store)
    gate = verdict_of(run, store)
    forge(store)

    for attempt in (
        lambda: promote(gate, run, store, PRESENT, now=NOW),
        lambda: roll_back(store, now=NOW, reason="again"),
        lambda: verdict_of(run, store),
        lambda: champion_model(_open(store, _CHECKING), CPU),
    ):
        with pytest.raises(RefusedError, match=f"{message}.*Restore it from a backup.*--sign-history"):
            attempt()
    assert champion_key(_open(store, None)), "without a key nobody would have noticed"


def test_a_history_from_before_the_key_is_signed_unchanged(tmp_path: Path, store: ArtifactStore) -> None:
    run = _promote_and_roll_back(tmp_path, _open(store, None))
    before = champion_key(_open(store, None))
    with pytest.raises(RefusedError, match=r"history\.jsonl:1: it is not signed"):
        champion_key(store)
    with pytest.raises(ConfigurationError, match="MENS_SIGNING_KEY: not set"):
        sign_history(_open(store, None))
    with pytest.raises(ConfigurationError, match="Set MENS_SIGNING_KEY where"):
        sign_history(_open(store, _CHECKING))

    assert [event.action for event in sign_history(store)] == ["promote", "promote", "rollback"]
    assert [entry.attempt for entry in sign_ledger(store)] == [1, 1]
    assert champion_key(_open(store, _CHECKING)) == before
    with pytest.raises(RefusedError, match="withdrawn by a rollback"):
        promote(verdict_of(run, store), run, store, PRESENT, now=NOW)


def test_an_empty_history_has_nothing_to_sign(store: ArtifactStore) -> None:
    assert sign_history(store) == ()
    assert champion_key(store) is None


@pytest.mark.parametrize("signing", [_SIGNING, _CHECKING], ids=["signs", "checks"])
def test_a_signed_verdict_gives_a_signed_champion(run: Path, store: ArtifactStore, signing: Signing) -> None:
    champion = promote(verdict_of(run, store), run, store, PRESENT, now=NOW).champion

    assert signing.find_reason(champion) is None
    assert find_champion(_open(store, signing)) == champion
    assert json.loads((champion.path / SIGNATURE).read_text())["public_key"] == signing.public_key
    assert not promote(verdict_of(run, store), run, store, PRESENT, now=NOW + 1).changed


def test_without_a_key_nothing_is_signed(run: Path, store: ArtifactStore) -> None:
    plain = _open(store, None)
    champion = promote(verdict_of(run, plain), run, plain, PRESENT, now=NOW).champion

    assert "signed_by" not in champion.manifest["inputs"]
    assert not list(store.root.rglob(SIGNATURE))
    assert "signature" not in _read_events(store)[0]
    assert len((store.root / Kind.PROMOTED_ADAPTER / CHAMPION).read_text().split()) == 2


@pytest.mark.parametrize(
    ("earlier", "reason"),
    [(None, "it is not signed"), (_keys(_OTHER), "its signature does not match the key")],
    ids=["none", "another"],
)
def test_a_new_key_requires_new_verdicts(run: Path, store: ArtifactStore, earlier: Signing | None, reason: str) -> None:
    """If a key is set or changed, the champion is promoted once more with its signature."""
    before = verdict_of(run, _open(store, earlier))
    champion = promote(before, run, _open(store, earlier), PRESENT, now=NOW).champion
    sign_history(store)
    sign_ledger(store)
    assert_refused(f"verdict .* does not count: {reason}", before, run, store)
    with pytest.raises(RefusedError, match=f"{reason}.*Evaluate and promote it again with MENS_SIGNING_KEY"):
        champion_model(store, CPU)
    again = promote(verdict_of(run, store), run, store, PRESENT, now=NOW + 1)

    assert again.changed
    assert again.champion.key != champion.key
    assert _SIGNING.find_reason(again.champion) is None
    assert [event.action for event in read_history(store)] == ["promote", "promote"]


@pytest.mark.threat("M23")
def test_only_a_signed_champion_is_served(run: Path, store: ArtifactStore) -> None:
    """One that was promoted without the key, or overwritten with valid digests, is refused before it loads."""
    checking = _open(store, _CHECKING)
    promoted(run, _open(store, None))
    sign_history(store)
    sign_ledger(store)
    with pytest.raises(RefusedError, match=r"it is not signed. Evaluate and promote it again with MENS_SIGNING_KEY"):
        champion_model(checking, CPU)
    promote(verdict_of(run, store), run, store, PRESENT, now=NOW + 1)
    champion = champion_in(store)
    _overwrite(champion, f"{ADAPTER}/{WEIGHTS}", "other weights")
    champion.manifest["inputs"]["adapter_sha256"] = adapter_digest(champion.path)
    (champion.path / "manifest.json").write_text(json.dumps(champion.manifest))

    assert "not match the key" in str(_CHECKING.find_reason(champion))
    with pytest.raises(RefusedError, match=f"champion {champion.key[:12]} is gone from"):
        champion_model(checking, CPU)


def test_only_a_signed_verdict_lets_a_candidate_be_served(store: ArtifactStore) -> None:
    parent = store.build("qlora_adapter", {}, lambda _folder: {})[0]
    store.build("benchmark_gate", {}, lambda _folder: {}, [parent])

    with pytest.raises(RefusedError, match="it is not signed"):
        candidate_model(_open(store, _CHECKING), CPU)


def test_a_rollback_to_an_unsigned_champion_is_refused(run: Path, store: ArtifactStore, tmp_path: Path) -> None:
    promoted(run, _open(store, None))
    sign_history(store)
    sign_ledger(store)
    second = trained(tmp_path / "second", "other weights")
    promote(verdict_of(second, store), second, store, PRESENT, now=NOW)

    with pytest.raises(RefusedError, match=r"it is not signed. Gate and promote its run again with the key"):
        roll_back(store, now=NOW, reason="a test")
    assert roll_back(_open(store, None), now=NOW, reason="a test").changed


def test_a_machine_without_the_private_key_cannot_gate(run: Path, store: ArtifactStore) -> None:
    with pytest.raises(ConfigurationError, match=r"no key to sign with is set. Set MENS_SIGNING_KEY"):
        verdict_of(run, _open(store, _CHECKING))


def test_keys_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """None, one or both; a mismatch or an invalid key is an error, which shows no secret."""
    for name in ("MENS_SIGNING_KEY", "MENS_VERIFY_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert open_store(load_settings()).signing is None
    monkeypatch.setenv("MENS_SIGNING_KEY", _PRIVATE)
    found = open_store(load_settings()).signing
    assert found is not None
    assert (found.public_key, found.private is None) == (_SIGNING.public_key, False)
    monkeypatch.setenv("MENS_VERIFY_KEY", _keys(_OTHER).public_key)
    with pytest.raises(ConfigurationError, match=r"MENS_VERIFY_KEY: .* but MENS_SIGNING_KEY belongs to") as wrong:
        open_store(load_settings())
    monkeypatch.setenv("MENS_SIGNING_KEY", "Z" * 63)
    with pytest.raises(ConfigurationError, match="not 64 hexadecimal digits, as `openssl rand -hex 32`") as none:
        load_settings()

    assert _PRIVATE not in str(wrong.value)
    assert "ZZZ" not in str(none.value)
