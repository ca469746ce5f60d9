"""Pieces at a cursor that are withheld below the threshold of the evaluation."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import RESULTS, Abstention, InfillResults
from mens_pipeline.evaluation.statistics import rate_of
from mens_pipeline.inference.generation import Syntax
from mens_pipeline.models.adapter import Adapter, adapter_digest
from mens_pipeline.serving.queue import ServerLimits
from mens_pipeline.serving.served_model import ServedModel, adapter_model, champion_model
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.promotion.verdicts import RESULTS as DOCUMENT
from mens_pipeline_tests.serving.running import CPU, Running, running
from mens_pipeline_tests.serving.talkative import make_champion

_LIMITS = ServerLimits(2, 20_000, 60.0, 400)
_CURSOR = {"input_prefix": "let x = ", "input_suffix": "\n", "n_predict": 8, "temperature": 1.2}
_SURE = 0.0
"""Above every mean log-probability."""
_NEVER = -1e9


def _evaluate(run: Path, folder: Path, threshold: float | None, adapter_sha256: str | None = None) -> Path:
    copy = Path(shutil.copytree(run, folder))
    rate = rate_of([True, False])
    abstention = (
        None
        if threshold is None
        else Abstention(threshold=threshold, coverage=0.5, exact_shown=rate, exact_all=rate, calibration_error=0.1)
    )
    infill = InfillResults(window=192, shown=rate, models={}, champion=None, exact_difference={}, abstention=abstention)
    subject = DOCUMENT.subject.model_copy(update={"adapter_sha256": adapter_sha256 or adapter_digest(run)})
    results = DOCUMENT.model_copy(update={"infill": infill, "subject": subject})
    (copy / RESULTS).write_text(results.model_dump_json(by_alias=True))
    return copy


def _ask(server: Running, **fields: Any) -> Any:
    return server.post("/infill", **(_CURSOR | fields))


def _request_pieces(server: Running) -> list[str]:
    return [_ask(server, seed=seed).json()["content"] for seed in range(8)]


def _read_log(server: Running) -> list[str]:
    return [line for line in server.lines if line.startswith("at a cursor: ")]


@pytest.mark.slow
def test_a_threshold_above_every_score_withholds_every_piece(infill_run: Path, tmp_path: Path) -> None:
    evaluated = _evaluate(infill_run, tmp_path / "run", _SURE)
    with running(infill_run, _LIMITS, syntax=Syntax.FALLBACK) as server:
        default_log = _read_log(server)
    with running(infill_run, _LIMITS, syntax=Syntax.FALLBACK, show_all=True) as server:
        shown = _request_pieces(server)
    with running(evaluated, _LIMITS, syntax=Syntax.FALLBACK, show_all=True) as server:
        assert _request_pieces(server) == shown
        (line,) = _read_log(server)
        assert line.endswith("(--show-all)")
    with running(evaluated, _LIMITS, syntax=Syntax.FALLBACK) as server:
        whole = [_ask(server, seed=seed) for seed in range(8)]
        streams = [server.events("/infill", **_CURSOR, seed=seed, stream=True) for seed in range(8)]
        (line,) = _read_log(server)

    assert any(shown)
    assert len(default_log) == 1
    assert default_log[0].startswith("at a cursor: no evaluation gives a threshold ")
    assert "below a mean log-probability of 0.00 are withheld" in line
    for piece, reply, events in zip(shown, whole, streams, strict=True):
        assert "".join(event["content"] for event in events) == reply.json()["content"] == ""
        why = reply.json()["withheld"]
        assert events[-1]["withheld"] == why
        assert not piece or why in {"unsure", "wrong_name"}
        assert "; mens serve --show-all sends it" in reply.headers["X-Mens-Warning"] or not piece


@pytest.mark.slow
@pytest.mark.parametrize("syntax", [Syntax.FREE, Syntax.CONSTRAINED])
def test_the_threshold_holds_for_every_decoding(infill_run: Path, tmp_path: Path, syntax: Syntax) -> None:
    with running(_evaluate(infill_run, tmp_path / "run", _SURE), _LIMITS, syntax=syntax) as server:
        assert not any(_request_pieces(server))
        assert '"content": "", "stop": false' in _ask(server, seed=0, stream=True).text
    with running(_evaluate(infill_run, tmp_path / "low", _NEVER), _LIMITS, syntax=syntax) as server:
        replies = [_ask(server, seed=seed).json() for seed in range(8)]
        reasons = {reply.get("withheld") for reply in replies}
        assert "unsure" not in reasons
        assert any(reply["content"] for reply in replies) or "wrong_name" in reasons


def test_the_threshold_comes_with_the_champion(infill_run: Path, tmp_path: Path) -> None:
    evaluated, store = _evaluate(infill_run, tmp_path / "run", -0.75), ArtifactStore(tmp_path / "store")
    champion = make_champion(store, evaluated)
    assert champion_model(store, CPU).infill_threshold == -0.75

    (champion.path / RESULTS).write_text((evaluated / RESULTS).read_text().replace("-0.75", "-9.75"))
    with pytest.raises(RefusedError, match="changed since it was promoted"):
        champion_model(store, CPU)


def test_ignores_the_evaluation_of_another_adapter(infill_run: Path, tmp_path: Path) -> None:
    def load_served(folder: Path) -> ServedModel:
        return adapter_model(Adapter.open(folder), CPU)

    assert load_served(_evaluate(infill_run, tmp_path / "this", -0.75)).infill_threshold == -0.75
    assert load_served(_evaluate(infill_run, tmp_path / "other", -0.75, "ab" * 32)).infill_threshold is None
    assert load_served(_evaluate(infill_run, tmp_path / "few", None)).infill_threshold is None
    assert load_served(infill_run).infill_threshold is None
