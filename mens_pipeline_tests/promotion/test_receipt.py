"""The receipt of a verdict, and the documents that it is bound to."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.evaluation.results import RESULTS, read_results
from mens_pipeline.models.adapter import MANIFEST, TrainingManifest
from mens_pipeline.promotion.policy import GateName, GateOutcome, GateStatus, Thresholds, load_gate_policy
from mens_pipeline.promotion.receipt import (
    FAILED,
    OVERRIDE,
    RECEIPT,
    GateFailed,
    Override,
    Receipt,
    Remedy,
    build_receipt,
    digest_of_thresholds,
    find_cause,
    find_gate,
    hash_documents,
    ordinal,
    read_inputs,
    read_override,
    receipt_in,
    write_receipt,
)
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.evaluation.scored import GOOD, SUBJECT, evaluation
from mens_pipeline_tests.every import every
from mens_pipeline_tests.training.manifests import manifest_about
from mens_pipeline_tests.training.small_folder import described_base

_BOOTSTRAP = load_gate_policy(PROJECT_ROOT / "config" / "gates.yaml").thresholds("bootstrap")
_LENIENT = _BOOTSTRAP.model_copy(
    update={
        "min_coverage": 0.0,
        "min_gain_over_base": 0.0,
        "min_heldout_tasks": 1,
        "min_heldout_files": 2,
        "needs_test_gain": False,
        "max_stub_rate": 1.0,
        "min_stop_rate": 0.0,
    }
)


def _evaluate(folder: Path, **changes: Any) -> Path:
    (folder / RESULTS).write_text(evaluation(adapter=(GOOD,) * 3, second=(None,)).results.model_dump_json())
    manifest = manifest_about(described_base())
    manifest["result"] |= {"trained_tokens": 5, "seconds": 10.0, **changes}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return folder


def _verdict(folder: Path, thresholds: Thresholds = _LENIENT, champion_key: str | None = None) -> Receipt:
    documents = (folder / RESULTS, folder / MANIFEST)
    return build_receipt(
        read_inputs(*documents, champion_key, is_benchmark_asked=True),
        hash_documents(*documents),
        thresholds,
        policy="mine",
        strict=True,
        now=1_700_000_000,
        run_dir=Path("runs/one"),
    )


@pytest.mark.seed_row(32)
def test_a_receipt_names_its_subject_and_sources(tmp_path: Path) -> None:
    _evaluate(tmp_path)
    receipt = _verdict(tmp_path)

    assert (receipt.overall_passed, receipt.policy, receipt.run_dir) == (True, "mine", "runs/one")
    assert (receipt.subject, receipt.thresholds, receipt.timestamp_unix) == (SUBJECT, _LENIENT, 1_700_000_000)
    assert receipt.strict
    assert receipt.sources == {
        RESULTS: hashlib.sha256((tmp_path / RESULTS).read_bytes()).hexdigest(),
        MANIFEST: hashlib.sha256((tmp_path / MANIFEST).read_bytes()).hexdigest(),
    }


def test_reasons_are_the_blocking_gates(tmp_path: Path) -> None:
    receipt = _verdict(_evaluate(tmp_path), _LENIENT.model_copy(update={"min_coverage": 0.5}))

    assert not receipt.overall_passed
    (reason,), (warning,) = receipt.reasons, receipt.warnings
    assert reason.startswith("coverage: ")
    assert reason.endswith("1/30 constructs, required 50.0 %")
    assert warning.startswith("throughput: ")
    assert warning.endswith("0.5 tokens/s on cpu, required 1")


def test_missing_documents_have_no_digest_and_no_figures(tmp_path: Path) -> None:
    receipt = _verdict(tmp_path)
    write_receipt(tmp_path, receipt, None)
    failed = json.loads((tmp_path / FAILED).read_text())

    assert (receipt.overall_passed, receipt.subject) == (False, None)
    assert receipt.sources == {RESULTS: None, MANIFEST: None}
    assert "parse_rate: eval_results.json: missing" in receipt.reasons
    assert (failed["vox_parse_rate"], failed["construct_coverage_pct"]) == (None, None)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "malformed (Expecting property name"),
        ("[1]", "malformed (not an object)"),
        ("{}", "malformed (run_id: Field required"),
        ("[" * 100_000, "malformed (maximum recursion depth exceeded"),
        ("\x80", "malformed ('utf-8' codec can't decode"),
        ('{"run_id": "\\ud800"}', "malformed (the document: Invalid JSON"),
        ('{"total_samples": NaN}', "total_samples: Input should be a finite number"),
    ],
    ids=["no JSON", "no object", "no keys", "deep", "no UTF-8", "surrogate", "NaN"],
)
def test_a_malformed_document_fails_its_gates(tmp_path: Path, content: str, problem: str) -> None:
    _evaluate(tmp_path)
    (tmp_path / RESULTS).write_bytes(content.encode("latin-1"))
    outcome = find_gate(_verdict(tmp_path), GateName.PARSE_RATE)

    assert not outcome.passed
    assert problem in outcome.message
    assert read_results(tmp_path / RESULTS) is None


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"num_tokens": None}, "result.num_tokens: Input should be a valid integer"),
        ({"num_tokens": True}, "result.num_tokens: Input should be a valid integer"),
        ({"num_supervised_tokens": -1}, "result.num_supervised_tokens: Input should be greater than or equal to 0"),
        ({"trained_tokens": 10**400}, "result.trained_tokens: Input should be less than 9223372036854775808"),
        ({"seconds": float("inf")}, "result.seconds: Input should be a finite number"),
        ({"num_rows": float("nan")}, "result.num_rows: Input should be a valid integer"),
        ({"not_shown": 3}, "result.not_shown: Input should be a valid dictionary or instance of RowsNotShown"),
        ({"not_shown": {}}, "result.not_shown.too_long: Field required"),
        ({"device": ""}, "result.device: String should have at least 1 character"),
    ],
)
def test_a_manifest_without_figures_fails_the_gates_of_training(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    receipt = _verdict(_evaluate(tmp_path, **changes))

    for name in (GateName.SUPERVISED_RATIO, GateName.TRUNCATION, GateName.THROUGHPUT):
        outcome = find_gate(receipt, name)
        assert (outcome.passed, outcome.measured) == (False, None)
        assert outcome.message.startswith(f"training_manifest.json: {problem}")


def test_a_folder_in_place_of_a_document_cannot_be_read(tmp_path: Path) -> None:
    _evaluate(tmp_path)
    (tmp_path / RESULTS).unlink()
    (tmp_path / RESULTS).mkdir()
    receipt = _verdict(tmp_path)

    assert find_gate(receipt, GateName.PARSE_RATE).message == "eval_results.json: unreadable (Is a directory)"
    assert receipt.sources[RESULTS] is None


@pytest.mark.seed_row(40)
def test_a_failure_is_written_with_upstreams_keys_and_removed_later(tmp_path: Path) -> None:
    _evaluate(tmp_path)
    results = read_results(tmp_path / RESULTS)
    for min_coverage in (0.0, 0.5, 0.0):
        receipt = _verdict(tmp_path, _LENIENT.model_copy(update={"min_coverage": min_coverage}))
        write_receipt(tmp_path, receipt, results)

        assert receipt.overall_passed is (min_coverage == 0)
        assert (tmp_path / FAILED).exists() is not receipt.overall_passed
        if not receipt.overall_passed:
            failed = GateFailed.model_validate_json((tmp_path / FAILED).read_text())
            assert (failed.vox_parse_rate, failed.min_parse_rate, failed.gate_passed) == (1.0, 0.25, False)
            assert failed.construct_coverage_pct == pytest.approx(100 / 30)
            assert (failed.reasons, failed.timestamp) == (receipt.reasons, receipt.timestamp_unix)


def test_an_invalid_receipt_is_refused(tmp_path: Path) -> None:
    for content in (None, b"{}", b"\xff\xfe"):
        if content is not None:
            (tmp_path / RECEIPT).write_bytes(content)
        with pytest.raises(RefusedError, match=r"gate_receipt.json: .*\. Run `mens gate` again\.$"):
            receipt_in(tmp_path)


def test_a_receipt_survives_serialization(tmp_path: Path) -> None:
    receipt = _verdict(_evaluate(tmp_path))
    write_receipt(tmp_path, receipt, None)
    text = (tmp_path / RECEIPT).read_text()

    assert Receipt.model_validate_json(text) == receipt
    assert json.loads(text)["schema"] == "vox_mens_gate_receipt_v1"


def test_other_thresholds_have_another_digest() -> None:
    digests = {digest_of_thresholds(t) for t in (_LENIENT, _BOOTSTRAP, _LENIENT.model_copy())}

    assert len(digests) == 2


def test_a_receipt_counts_the_evaluations_on_its_suite(tmp_path: Path) -> None:
    _evaluate(tmp_path)
    results = read_results(tmp_path / RESULTS)
    assert results is not None
    third = results.model_copy(update={"progress": results.progress.model_copy(update={"attempt": 3})})
    (tmp_path / RESULTS).write_text(third.model_dump_json())
    details = _verdict(tmp_path)
    (tmp_path / RESULTS).unlink()
    unknown = _verdict(tmp_path)

    assert (details.attempt, details.tried) == (3, "third evaluation on this eval suite")
    assert (unknown.attempt, unknown.tried, unknown.status) == (None, "", GateStatus.FAILED)


def test_ordinals_are_words_up_to_ten() -> None:
    numbers = (1, 10, 11, 13, 21, 42, 103)

    assert [ordinal(number) for number in numbers] == ["first", "tenth", "11th", "13th", "21st", "42nd", "103rd"]


def _gate(name: GateName, measured: float | None, required: float | None, **fields: Any) -> GateOutcome:
    values = {"status": GateStatus.FAILED, "passed": False, "block": True, **fields}
    return GateOutcome(name=name, measured=measured, required=required, message=f"about {name}", source="s", **values)


def _manifest(done: int = 300, planned: int = 300, minutes: float | None = 20) -> TrainingManifest:
    manifest = manifest_about(described_base())
    manifest["result"] |= {"num_steps": done, "planned_steps": planned, "seconds": 600.0}
    manifest["recipe"] |= {"max_minutes": minutes}
    return TrainingManifest.model_validate(manifest)


_FAR = _gate(GateName.PARSE_RATE, 0.2, 0.7)
_NEAR = _gate(GateName.PARSE_RATE, 0.65, 0.7)


_SMALL = _gate(GateName.SUITE_SIZE, 9, 50)
_CUT = _gate(GateName.COMPLETED_SHARE, 0.2, 0.7)
_ALMOST = _gate(GateName.TEST_GAIN, 0.01, 0.0, status=GateStatus.UNDECIDED)


@every(
    "case",
    [
        ([_FAR], _manifest(142), "the time budget of 20 min ended training after 142 of 300 steps", Remedy.MORE),
        ([_FAR], _manifest(), "training was too short for the thresholds: 300 steps in 10.0 min", Remedy.MORE),
        ([_FAR], _manifest(142, minutes=None), "training was too short", Remedy.MORE),
        ([_NEAR], _manifest(), "near the thresholds: parse rate 65.0 % measured, 70.0 % required", Remedy.MORE),
        ([_NEAR, _gate(GateName.ANTI_STUB, 0.4, 0.08)], _manifest(), "training was too short", Remedy.MORE),
        ([_gate(GateName.ANTI_STUB, 0.1, 0.08)], _manifest(), "near the thresholds", Remedy.MORE),
        ([_gate(GateName.REGRESSION, 0.001, 0.01)], _manifest(), "training was too short", Remedy.MORE),
        ([_ALMOST], _manifest(), "near the thresholds", Remedy.MORE),
        ([_FAR, _gate(GateName.TRUNCATION, 0.9, 0.5)], _manifest(142), "about truncation", Remedy.PRESET),
        ([_FAR, _SMALL], _manifest(), "about suite_size", Remedy.DATA),
        ([_SMALL, _CUT], _manifest(), "about completed_share", Remedy.SETTING),
        ([_CUT], _manifest(), "about completed_share", Remedy.SETTING),
        ([_gate(GateName.BENCHMARK, None, None)], _manifest(), "about benchmark", Remedy.SETTING),
    ],
)
def test_a_refusal_has_a_cause(case: tuple[list[GateOutcome], TrainingManifest, str, Remedy]) -> None:
    """Causes that more training cannot fix come first, then the end of training, then the distance to thresholds."""
    gates, manifest, text, remedy = case
    cause = find_cause(gates, manifest)

    assert cause is not None
    assert text in cause.text
    assert cause.remedy is remedy


def test_a_passing_verdict_has_no_cause() -> None:
    passed = _gate(GateName.COVERAGE, 0.9, 0.5, status=GateStatus.PASSED, passed=True)
    warned = _gate(GateName.THROUGHPUT, 0.1, 1.0, block=False)

    assert find_cause([passed, warned], _manifest()) is None


_OF_MAINTAINERS = "a secret of maintainers"
_RECORD = Override(adapter_sha256="a" * 64, receipt_sha256="b" * 64, by="me", reason="A good reason.", timestamp_unix=1)


def test_an_override_of_a_newer_version_asks_for_an_upgrade(tmp_path: Path) -> None:
    path = tmp_path / OVERRIDE
    path.write_text(json.dumps(json.loads(_RECORD.model_dump_json()) | {"format_version": 2}))

    with pytest.raises(ConfigurationError, match=r"written by a newer version .*Upgrade it\.$"):
        read_override(path, _OF_MAINTAINERS)
