"""Keys and values in memory that is reserved once."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mens_pipeline.inference.generate import complete_slots, new_slot
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.inference.kv_cache import SlotCache, close_gaps, state_positions
from mens_pipeline_tests.evaluation.hybrid import hybrid_model


def _states(rows: int, positions: int, start: int) -> Any:
    import torch

    return torch.arange(start, start + rows * 2 * positions * 3, dtype=torch.float32).reshape(rows, 2, positions, 3)


class _Model:
    """The parts of a model that a cache reads, with one layer of full attention, or with a window."""

    device = "cpu"

    def __init__(self, window: int | None = None) -> None:
        from transformers import Gemma3TextConfig

        kind = "full_attention" if window is None else "sliding_attention"
        self.config = Gemma3TextConfig(num_hidden_layers=1, layer_types=[kind], sliding_window=window or 4)


def _read(model: _Model, number: int, positions: int) -> Any:
    from transformers import DynamicCache

    read = DynamicCache(config=model.config)
    read.update(_states(1, positions, 100 * number), _states(1, positions, 1000 * number), 0)
    return read


@pytest.mark.parametrize("num_positions", [0, 6], ids=["growing", "reserved"])
def test_each_row_keeps_its_own_keys_when_others_leave(num_positions: int) -> None:
    import torch

    model = _Model()
    slots = SlotCache(model, 3 if num_positions else 1, num_positions)
    for number, positions in enumerate((2, 4, 1)):
        slots.add(_read(model, number, positions), [positions])
    mask = slots.mask()
    slots.past.update(_states(3, 1, 500), _states(3, 1, 5000), 0)
    slots.advance()
    assert slots.release([0]) == [2, 1]
    keys, values = slots.past.update(_states(2, 1, 700), _states(2, 1, 7000), 0)

    assert mask is not None
    assert mask.tolist() == [[0, 0, 1, 1, 1], [1] * 5, [0, 0, 0, 1, 1]]
    assert slots.positions().tolist() == [[2], [5]]
    assert slots.past.get_seq_length() == 5
    for place, (number, positions) in enumerate([(2, 1), (1, 4)]):
        for found, start in ((keys, 1), (values, 10)):
            expected = [
                _states(1, positions, 100 * start * number)[0],
                _states(3, 1, 500 * start)[number],
                _states(2, 1, 700 * start)[place],
            ]
            assert torch.equal(found[place, :, -positions - 2 :], torch.cat(expected, dim=1))


def test_unused_columns_are_reused() -> None:
    import torch

    model, written = _Model(), []
    slots = SlotCache(model, 2, 6)
    slots.add(_read(model, 0, 2), [2])
    size = slots.num_columns
    for step in range(40):
        slots.past.update(_states(1, 1, step), _states(1, 1, step), 0)
        slots.advance()
        written.append(step)
        if slots.longest == 6:
            slots.add(_read(model, step, 2), [2])
            slots.release([0])
            written = []
    keys, _ = slots.past.update(_states(1, 1, 40), _states(1, 1, 40), 0)

    expected = [_states(1, 1, step)[0] for step in (*written, 40)]
    assert slots.num_columns == size
    assert torch.equal(keys[0, :, -len(expected) :], torch.cat(expected, dim=1))


def test_the_longest_row_releases_its_columns() -> None:
    model = _Model()
    slots = SlotCache(model)
    slots.add(_read(model, 0, 30), [30])
    slots.add(_read(model, 1, 3), [3])
    slots.release([0])
    keys, _ = slots.past.update(_states(1, 1, 0), _states(1, 1, 0), 0)
    grown = slots.num_columns
    slots.release([0])

    assert keys.shape[-2] == 4
    assert slots.num_columns < grown


def test_a_window_keeps_its_last_positions() -> None:
    import torch
    from transformers import FalconH1Config

    model = _Model(window=4)
    slots = SlotCache(model)
    slots.add(_read(model, 0, 9), [9])
    slots.add(_read(model, 1, 2), [2])
    keys, _ = slots.past.update(_states(2, 1, 0), _states(2, 1, 0), 0)

    assert slots.takes_many
    model.config = FalconH1Config(num_hidden_layers=2)
    assert not SlotCache(model, 8, 16).takes_many, "layers of other kinds have one row"
    assert torch.equal(keys[0, :, 6:9], _states(1, 9, 0)[0, :, 6:])
    assert torch.equal(keys[1, :, 7:9], _states(1, 2, 100)[0])


def test_prompts_share_their_prefix() -> None:
    import torch
    from transformers import DynamicCache

    for window, is_shared in ((None, True), (4, False)):
        model = _Model(window)
        read, fresh = _read(model, 1, 5), DynamicCache(config=model.config)
        assert SlotCache.share_prefix(fresh, read, 3) is is_shared
        if is_shared:
            fresh.update(_states(1, 1, 900), _states(1, 1, 9000), 0)
            assert torch.equal(
                fresh.layers[0].keys, torch.cat([_states(1, 5, 100)[:, :, :3], _states(1, 1, 900)], dim=2)
            )
            assert torch.equal(read.layers[0].keys, _states(1, 5, 100))


@given(st.integers(1, 9).flatmap(lambda rows: st.tuples(st.just(rows), st.sets(st.integers(0, rows - 1)))))
def test_last_rows_fill_gaps(case: tuple[int, set[int]]) -> None:
    rows, removed = case

    order = close_gaps(rows, sorted(removed))

    assert sorted(order) == [row for row in range(rows) if row not in removed]
    assert all(row >= place for place, row in enumerate(order))
    assert sum(row != place for place, row in enumerate(order)) <= len(removed)


def test_a_state_counts_as_positions_of_the_same_size(tiny_base: Path) -> None:
    """Three layers keep 4 x 16 x 16 values each, and 128 channels of a convolution four; one keeps 2 x 2 x 16."""
    from transformers import AutoModelForCausalLM

    hybrid = hybrid_model()
    recurrent, convolution, position = 3 * 4 * 16 * 16, 3 * (2 * 2 * 16 + 4 * 16) * 4, 2 * 2 * 16

    assert state_positions(hybrid) == -(-(recurrent + convolution) // position) == 72
    assert state_positions(AutoModelForCausalLM.from_pretrained(tiny_base).eval()) == 0


def test_a_batch_has_fewer_rows_with_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sizes = hybrid_model(), []
    read = type(model).forward

    def forward(self: Any, *arguments: Any, **named: Any) -> Any:
        sizes.append(named["input_ids"].shape[0])
        return read(self, *arguments, **named)

    monkeypatch.setattr(type(model), "forward", forward)
    rows = [new_slot(str(number), 0, (1, 2, 3, 4), Decoding(max_new_tokens=4)) for number in range(9)]
    complete_slots(model, rows, frozenset(), 256, lambda _row: None)

    assert max(sizes) == 256 // (4 + 4 + 72) == 3
