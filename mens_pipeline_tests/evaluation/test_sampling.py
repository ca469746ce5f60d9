"""How a token is drawn where the figures are at their ends."""

import math

import pytest
import torch  # noqa: TID253 - scores are tensors

from mens_pipeline.evaluation.sampling import Sampler, log_probability


@pytest.mark.parametrize(
    ("temperature", "top_p"),
    [(1e-38, 1.0), (1e-45, 1.0), (9e-6, 0.5), (1.0, 1e-46), (2.0, 5e-324), (1e-5, 1e-46)],
)
def test_a_tiny_figure_draws_the_most_likely_token(temperature: float, top_p: float) -> None:
    """As float32 it is 0 or makes no numbers of the scores; an answer is drawn all the same."""
    scores = torch.tensor([-30.0, 4.0, 40.0, 39.0])

    assert Sampler(temperature, top_p, "0:0").choose(scores) == 2


def test_how_likely_a_token_is_does_not_depend_on_how_it_was_drawn() -> None:
    """Its share among all tokens."""
    scores = torch.tensor([1.0, 2.0, 5.0]).log() + 7

    assert [round(math.exp(log_probability(scores, token)), 4) for token in range(3)] == [0.125, 0.25, 0.625]
