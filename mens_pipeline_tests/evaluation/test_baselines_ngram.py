"""The baseline of a completion writes what followed the same tokens before."""

from mens_pipeline.evaluation.baselines import NgramModel

_SEEN = ("fn area(w: int) to int {\n    return w * 2\n}\n", "fn edge(w: int) to str {\n    return w + 1\n}\n")


def test_it_writes_what_it_has_seen() -> None:
    model = NgramModel(_SEEN)

    assert model.complete_line("fn area(w: int) to int {\n    return") == " w * 2"
    assert model.complete_line("fn edge(w: int) to str {\n    return") == " w + 1"
    assert model.complete_line("fn area(") == "w: int) to int {"


def test_a_token_that_was_begun_is_written_to_its_end() -> None:
    model = NgramModel(_SEEN)

    assert model.complete_line("fn area(w: int) to int {\n    ret") == "urn w * 2"
    assert model.complete_line("fn ar") == "ea(w: int) to int {"


def test_it_has_nothing_to_say_of_what_it_never_saw() -> None:
    assert NgramModel(()).complete_line("fn f") == ""
    assert NgramModel(_SEEN).complete_line("qqqq") == ""
    assert len(NgramModel(("a a a a",)).complete_line("a ")) < 200
