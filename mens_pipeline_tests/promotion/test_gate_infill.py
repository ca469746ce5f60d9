"""The gates of pieces at a cursor, on both sides of their thresholds."""

from mens_pipeline.evaluation.infill import infill_results
from mens_pipeline.evaluation.results import InfillModel, InfillResults, InsertScore
from mens_pipeline.promotion.policy import GateName, GateOutcome, Thresholds
from mens_pipeline_tests.evaluation.scored import WRONG_PIECE
from mens_pipeline_tests.promotion.verdicts import RESULTS, STRICT, inputs, outcome_of


def _scores(num_exact: int, num_broken: int = 0, total: int = 60) -> list[InsertScore]:
    return [
        WRONG_PIECE.model_copy(
            update={
                "task": f"infill/{number:04}",
                "file": f"{number}.vox",
                "exact": number < num_exact,
                "parses": number >= num_broken,
            }
        )
        for number in range(total)
    ]


def _results(served: list[InsertScore], **exact: int) -> InfillResults:
    models: dict[InfillModel, list[InsertScore]] = {"adapter": _scores(exact.pop("adapter")), "served": served}
    names: tuple[InfillModel, ...] = ("base", "ngram", "champion")
    return infill_results(models | {name: _scores(exact[name]) for name in names if name in exact}, 192, "c" * 64)


def _outcome(name: GateName, infill: InfillResults | None, thresholds: Thresholds = STRICT) -> GateOutcome:
    return outcome_of(name, inputs(RESULTS.model_copy(update={"infill": infill})), thresholds)


def test_an_adapter_that_was_never_shown_a_hole_passes() -> None:
    for name in (GateName.INFILL_PARSES, GateName.INFILL_GAIN, GateName.INFILL_REGRESSION):
        outcome = _outcome(name, None)
        assert outcome.passed
        assert "not trained to complete at a cursor" in outcome.message


def test_all_served_pieces_must_parse() -> None:
    """One that does not parse is a defect. Without served pieces the gate fails, unless the policy requires none."""
    good = _outcome(GateName.INFILL_PARSES, _results(_scores(20), adapter=20, base=0, ngram=0))
    bad = _outcome(GateName.INFILL_PARSES, _results(_scores(20, num_broken=1), adapter=20, base=0, ngram=0))
    none = _outcome(GateName.INFILL_PARSES, _results([], adapter=20, base=0, ngram=0))
    free = STRICT.model_copy(update={"min_infill_parse_rate": 0.0})

    assert good.passed
    assert "60/60 (100.0 %) of the served pieces parse in place" in good.message
    assert not bad.passed
    assert not none.passed
    assert _outcome(GateName.INFILL_PARSES, _results([], adapter=20, base=0, ngram=0), free).passed


def test_an_adapter_must_write_more_lines_than_base_and_n_gram() -> None:
    clear = _outcome(GateName.INFILL_GAIN, _results(_scores(20), adapter=20, base=2, ngram=4))
    luck = _outcome(GateName.INFILL_GAIN, _results(_scores(20), adapter=20, base=2, ngram=18))
    unasked = _outcome(GateName.INFILL_GAIN, _results(_scores(20), adapter=20))
    free = STRICT.model_copy(update={"needs_infill_gain": False})

    assert clear.passed
    assert "16 of 60 lines exactly that the n-gram misses, misses 0" in clear.message
    assert not luck.passed
    assert not unasked.passed
    assert _outcome(GateName.INFILL_GAIN, _results(_scores(20), adapter=20, base=2, ngram=18), free).passed


def test_an_adapter_must_not_be_worse_than_the_champion() -> None:
    worse = _outcome(GateName.INFILL_REGRESSION, _results(_scores(8), adapter=8, base=0, ngram=0, champion=30))
    equal = _outcome(GateName.INFILL_REGRESSION, _results(_scores(8), adapter=28, base=0, ngram=0, champion=30))
    first = _outcome(GateName.INFILL_REGRESSION, _results(_scores(8), adapter=8, base=0, ngram=0))

    assert not worse.passed
    assert "-36.7 points of exact pieces against the champion in 60 holes" in worse.message
    assert equal.passed
    assert first.passed
    assert first.message == "there is no champion yet"
