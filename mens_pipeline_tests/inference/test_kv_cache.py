"""Keys and values in room that is taken once."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mens_pipeline.inference.decode import Row, Vocabulary, decode
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.inference.kv_cache import (
    ReservedLayer,
    Slots,
    reserved_cache,
    sees_everything,
    state_positions,
    without,
)
from mens_pipeline_tests.evaluation.hybrid import hybrid_model


def _states(rows: int, positions: int, start: int) -> Any:
    import torch

    return torch.arange(start, start + rows * 2 * positions * 3, dtype=torch.float32).reshape(rows, 2, positions, 3)


def test_keys_and_values_are_those_of_the_library() -> None:
    """After every step and every choice of rows, like a layer that copies."""
    import torch
    from transformers.cache_utils import DynamicLayer

    ours, plain = ReservedLayer(7), DynamicLayer()
    rows = 4
    for step, (positions, gone) in enumerate([(3, [1]), (1, []), (1, [0, 2]), (2, [])]):
        keys, values = _states(rows, positions, 100 * step), _states(rows, positions, 1000 * step)
        got, wanted = ours.update(keys, values), plain.update(keys, values)
        assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
        assert ours.get_seq_length() == plain.get_seq_length()
        if gone:
            kept = torch.tensor(without(rows, gone))
            ours.reorder_cache(kept)
            plain.reorder_cache(kept)
            rows -= len(gone)
            assert torch.equal(ours.keys, plain.keys)
            assert torch.equal(ours.values, plain.values)


def test_more_than_was_reserved_is_an_error() -> None:
    """It never grows behind the back of who counted on it."""
    layer = ReservedLayer(2)
    layer.update(_states(1, 2, 0), _states(1, 2, 0))

    with pytest.raises(ValueError, match="3 positions, and room was reserved for 2"):
        layer.update(_states(1, 1, 0), _states(1, 1, 0))


def test_layers_that_see_a_window_stay_as_they_are() -> None:
    """Only those that see everything are replaced."""
    from transformers import Gemma3TextConfig
    from transformers.cache_utils import DynamicSlidingWindowLayer

    config = Gemma3TextConfig(
        num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"], sliding_window=4
    )

    assert [type(layer) for layer in reserved_cache(config, 9).layers] == [DynamicSlidingWindowLayer, ReservedLayer]
    assert not sees_everything(config)
    assert sees_everything(Gemma3TextConfig(num_hidden_layers=1, layer_types=["full_attention"]))


def test_rows_come_and_go_each_with_its_own_keys() -> None:
    """A row is read into the first free place, grows by one position at a time, and moves with all that it has."""
    import torch
    from transformers import DynamicCache, Gemma3TextConfig

    config = Gemma3TextConfig(num_hidden_layers=1, layer_types=["full_attention"])
    slots = Slots(config, 6, 3, torch.device("cpu"))
    for number, positions in enumerate((2, 4, 1)):
        read = DynamicCache(config=config)
        read.update(_states(1, positions, 100 * number), _states(1, positions, 1000 * number), 0)
        slots.add(read)
    slots.cache.update(_states(3, 1, 500), _states(3, 1, 5000), 0)
    mask = slots.mask()
    slots.lengths += 1
    slots.keep(without(3, [0]))
    keys, values = slots.cache.update(_states(2, 1, 700), _states(2, 1, 7000), 0)

    assert mask.tolist() == [[1, 1, 1, 0, 0], [1] * 5, [1, 1, 0, 0, 0]]
    assert slots.lengths.tolist() == [2, 5]
    assert slots.cache.get_seq_length() == 5
    for place, (number, positions) in enumerate([(2, 1), (1, 4)]):
        for got, start in ((keys, 1), (values, 10)):
            wanted = [
                _states(1, positions, 100 * start * number)[0],
                _states(3, 1, 500 * start)[number],
                _states(2, 1, 700 * start)[place],
            ]
            assert torch.equal(got[place, :, : positions + 2], torch.cat(wanted, dim=1))


@given(st.integers(1, 9).flatmap(lambda rows: st.tuples(st.just(rows), st.sets(st.integers(0, rows - 1)))))
def test_rows_fill_gaps_from_behind(case: tuple[int, set[int]]) -> None:
    """Each row that stays is there once; none moves to a place behind its own, and few move at all."""
    rows, gone = case

    order = without(rows, sorted(gone))

    assert sorted(order) == [row for row in range(rows) if row not in gone]
    assert all(row >= place for place, row in enumerate(order))
    assert sum(row != place for place, row in enumerate(order)) <= len(gone)


def test_a_state_counts_as_the_positions_that_it_takes_the_room_of(tiny_base: Path) -> None:
    """Three layers keep 4 x 16 x 16 values each, and 128 channels of a convolution four; one keeps 2 x 2 x 16."""
    from transformers import AutoModelForCausalLM

    hybrid = hybrid_model()
    recurrent, convolution, position = 3 * 4 * 16 * 16, 3 * (2 * 2 * 16 + 4 * 16) * 4, 2 * 2 * 16

    assert state_positions(hybrid) == -(-(recurrent + convolution) // position) == 72
    assert state_positions(AutoModelForCausalLM.from_pretrained(tiny_base).eval()) == 0


def test_rows_that_keep_a_state_come_fewer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The room of a batch holds keys, values and states together; short answers do not make it overflow."""
    import torch

    model, sizes = hybrid_model(), []
    read = type(model).forward

    def forward(self: Any, *arguments: Any, **named: Any) -> Any:
        sizes.append(named["input_ids"].shape[0])
        return read(self, *arguments, **named)

    monkeypatch.setattr(type(model), "forward", forward)
    rows = [Row(str(number), 0, (1, 2, 3, 4)) for number in range(9)]
    with torch.inference_mode():
        decode(model, rows, Vocabulary(frozenset(), 0), Decoding(max_new_tokens=4, batch_tokens=256), lambda _row: None)

    assert max(sizes) == 256 // (4 + 4 + 72) == 3
