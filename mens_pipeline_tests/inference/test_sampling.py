"""Sampling of tokens, also with extreme parameters."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: TID253 - scores are tensors
from transformers import AutoTokenizer  # noqa: TID253 - tokens of a constraint

from mens_pipeline.inference.constraint import Constraint
from mens_pipeline.inference.engine import take_tokens
from mens_pipeline.inference.generate import new_slot
from mens_pipeline.inference.generation import Decoding, Syntax
from mens_pipeline.inference.sampling import Sampler, log_probabilities
from mens_pipeline.language import Mode


@pytest.mark.parametrize(
    ("temperature", "top_p"), [(1e-38, 1.0), (1e-45, 1.0), (9e-6, 0.5), (1.0, 1e-46), (2.0, 5e-324), (1e-5, 1e-46)]
)
def test_tiny_parameters_draw_the_likeliest_token(temperature: float, top_p: float) -> None:
    """As float32 it is 0 or would turn scores into NaN."""
    scores = torch.tensor([-30.0, 4.0, 40.0, 39.0])

    assert Sampler(temperature, top_p, "0:0").choose(scores) == 2


def test_log_probabilities_do_not_depend_on_the_sampler() -> None:
    """It is the same for one row as for many."""
    scores = torch.tensor([1.0, 2.0, 5.0]).log() + 7
    found = log_probabilities(scores.expand(3, -1), range(3))
    assert [round(math.exp(value), 4) for value in found] == [0.125, 0.25, 0.625]
    scores, tokens = 4 * torch.randn((5, 3_000), generator=torch.Generator().manual_seed(4)), [0, 7, 2_999, 5, 5]

    one_by_one = [log_probabilities(row[None], [token])[0] for row, token in zip(scores, tokens, strict=True)]
    assert log_probabilities(scores, tokens) == one_by_one


def _compute_shares(scores: torch.Tensor, temperature: float, top_p: float) -> torch.Tensor:
    """Compute the shares of tokens by a full sort."""
    shares = torch.softmax(scores.double() / temperature, -1)
    ordered, ids = shares.sort(descending=True)
    kept = ordered[ordered.cumsum(-1) - ordered < top_p]
    return torch.zeros_like(shares).scatter(0, ids[: len(kept)], kept / kept.sum())


@pytest.mark.parametrize("spread", [6.0, 3.0, 0.01], ids=["peaked", "broad", "flat"])
def test_tokens_are_drawn_in_proportion_to_their_shares(spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4,000 tokens, with temperature and top_p: as often as expected, and no others.

    Flat scores need more tokens than are sorted first.
    """
    scores = spread * torch.randn(4_000, generator=torch.Generator().manual_seed(0))
    expected = _compute_shares(scores, 0.8, 0.9)
    drawn: list[torch.Tensor] = []
    sample = torch.multinomial

    def record_and_sample(shares: torch.Tensor, *arguments: Any, **named: Any) -> torch.Tensor:
        drawn.append(shares)
        return sample(shares, *arguments, **named)

    monkeypatch.setattr(torch, "multinomial", record_and_sample)
    counts = torch.zeros(4_000, dtype=torch.float64)
    number = 2_000
    for start in range(number):
        counts[Sampler(0.8, 0.9, str(start)).choose(scores)] += 1
    shares = drawn[0].double() / drawn[0].double().sum()
    probable = expected * number >= 5
    square = ((counts - number * expected)[probable] ** 2 / (number * expected)[probable]).sum()

    torch.testing.assert_close(
        shares.sort(descending=True).values[: int((expected > 0).sum())],
        expected.sort(descending=True).values[: int((expected > 0).sum())],
        rtol=1e-4,
        atol=1e-7,
    )
    assert not counts[expected == 0].any()
    assert square < int(probable.sum()) + 5 * (2 * int(probable.sum())) ** 0.5 + 1


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_tokens_of_many_rows_are_drawn_like_those_of_one(temperature: float) -> None:
    scores = 4 * torch.randn((5, 3_000), generator=torch.Generator().manual_seed(1))

    def samplers() -> list[Sampler]:
        return [Sampler(temperature, 0.95, f"0:{row}") for row in range(5)]

    alone = [sampler.choose(row) for sampler, row in zip(samplers(), scores, strict=True)]

    assert Sampler.choose_each(samplers(), scores) == alone


@pytest.mark.parametrize("temperatures", [(0.0, 0.0), (0.7, 0.7), (0.0, 0.7)], ids=["likeliest", "drawn", "both"])
def test_chooses_the_same_token_from_likely_ones_as_from_all(temperatures: tuple[float, float]) -> None:
    scores = (4 * torch.randn((4, 3_000), generator=torch.Generator().manual_seed(3))).round()
    scores[1] = 0.0
    order = scores.sort(dim=-1, descending=True, stable=True).indices.tolist()

    def samplers() -> list[Sampler]:
        return [Sampler(temperatures[row % 2], 1.0, f"0:{row}") for row in range(4)]

    for num_refused in (0, 1, 5, 63, 64, 65, 200):
        refused = [ids[:num_refused] for ids in order]
        alone = [s.choose(row, banned) for s, row, banned in zip(samplers(), scores, refused, strict=True)]
        likeliest = Sampler.look(samplers(), scores)
        assert [s.choose(one, banned) for s, one, banned in zip(samplers(), likeliest, refused, strict=True)] == alone


def test_a_token_of_a_large_vocabulary_is_drawn_without_sorting_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The full sort of 248,320 scores took 33 ms of a CPU for each token."""
    scores = 9 * torch.randn((4, 248_320), generator=torch.Generator().manual_seed(2))
    monkeypatch.setattr(torch.Tensor, "sort", lambda *_a, **_n: pytest.fail("sorted all scores"))

    assert len(Sampler.choose_each([Sampler(0.7, 0.95, f"0:{row}") for row in range(4)], scores)) == 4


def test_chooses_a_token_without_a_share_if_all_others_are_refused() -> None:
    """At a low temperature the shares of all others are 0 as float32: the likeliest of them is chosen."""
    scores = torch.full((50,), -1000.0)
    scores[7], scores[3], scores[5] = 0.0, -1.2, -50.0

    assert Sampler(0.1, 1.0, "x").choose(scores) == 7
    assert Sampler(0.1, 1.0, "x").choose(scores, [7, 3]) == 5


class _Watched(torch.Tensor):  # type: ignore[misc]
    """Scores on a device, which count how often some of them are copied from it."""

    num_looks = 0

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__torch_function__(function, types, args, kwargs or {})
        if getattr(function, "__name__", "") in {"cpu", "numpy", "tolist", "item", "__int__", "__float__", "__bool__"}:
            cls.num_looks += 1
            return found.as_subclass(torch.Tensor) if isinstance(found, torch.Tensor) else found
        return found


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_all_completions_share_one_copy_from_the_device(tiny_base: Path, temperature: float) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_base)
    stop = frozenset({tokenizer.eos_token_id})
    numbers = []
    for num_rows in (1, 8):
        decoding = Decoding(temperature=temperature, top_p=1.0, syntax=Syntax.CONSTRAINED)
        rows = [
            new_slot(str(row), 0, [1], decoding, Constraint(tokenizer, stop, Mode.SOURCE, 100))
            for row in range(num_rows)
        ]
        for row in rows:
            row.log_probability = 0.0
        scores = torch.zeros((num_rows, len(tokenizer)))
        for rank, text in enumerate("f})]"):
            scores[:, tokenizer.encode(text)] = 10.0 + rank
        _Watched.num_looks = 0
        take_tokens(rows, scores.as_subclass(_Watched), stop)
        assert [tokenizer.decode(row.tokens) for row in rows] == ["f"] * num_rows
        assert all(row.log_probability != 0.0 for row in rows)
        numbers.append(_Watched.num_looks)

    assert 2 <= numbers[0] == numbers[1] <= 4
