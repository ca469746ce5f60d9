"""How a token is drawn where the figures are at their ends."""

import pytest
import torch  # noqa: TID253 - scores are tensors

from mens_pipeline.evaluation.sampling import Sampler


@pytest.mark.parametrize(
    ("temperature", "top_p"),
    [(1e-38, 1.0), (1e-45, 1.0), (9e-6, 0.5), (1.0, 1e-46), (2.0, 5e-324), (1e-5, 1e-46)],
)
def test_a_tiny_figure_draws_the_most_likely_token(temperature: float, top_p: float) -> None:
    """As float32 it is 0 or makes no numbers of the scores; an answer is drawn all the same."""
    scores = torch.tensor([-30.0, 4.0, 40.0, 39.0])

    assert Sampler(temperature, top_p, "0:0").choose(scores) == 2
