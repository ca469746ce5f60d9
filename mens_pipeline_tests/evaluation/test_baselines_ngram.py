"""The n-gram baseline writes the tokens that followed the same context before."""

from mens_pipeline.evaluation.baselines import NgramModel

_SEEN = ("fn area(w: int) to int {\n    return w * 2\n}\n", "fn edge(w: int) to str {\n    return w + 1\n}\n")


def test_it_repeats_a_seen_line() -> None:
    model = NgramModel(_SEEN)

    assert model.complete_line("fn area(w: int) to int {\n    return") == " w * 2"
    assert model.complete_line("fn edge(w: int) to str {\n    return") == " w + 1"
    assert model.complete_line("fn area(") == "w: int) to int {"


def test_it_completes_a_partial_token() -> None:
    model = NgramModel(_SEEN)

    assert model.complete_line("fn area(w: int) to int {\n    ret") == "urn w * 2"
    assert model.complete_line("fn ar") == "ea(w: int) to int {"


def test_it_writes_nothing_after_unseen_tokens() -> None:
    assert NgramModel(()).complete_line("fn f") == ""
    assert NgramModel(_SEEN).complete_line("qqqq") == ""
    assert len(NgramModel(("a a a a",)).complete_line("a ")) < 200
