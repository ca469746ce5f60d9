"""Completions of a model, many at once, each in its own slot."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mens_pipeline.errors import RefusedError
from mens_pipeline.inference.engine import Engine, Slot
from mens_pipeline.inference.generate import complete_slots, new_slot
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.inference.sampling import Sampler
from mens_pipeline_tests.bench import engine as proof
from mens_pipeline_tests.bench.engine import complete_plainly, complete_staggered, random_prompts, tiny_model
from mens_pipeline_tests.evaluation.hybrid import hybrid_model

_PROMPTS = ("Write a function.", "A type, please, with two fields.", "x", "Why?", "An actor `Printer` with a handler.")
_KINDS = ("llama", "qwen3_5_text", "gemma3_text")
_WAITS = frozenset(("item", "tolist", "cpu", "__bool__", "__int__", "__float__"))


def _rows(decoding: Decoding, prompts: Sequence[str] = _PROMPTS) -> list[Slot]:
    samples = range(decoding.num_samples)
    return [new_slot(text, sample, tuple(text.encode()), decoding) for text in prompts for sample in samples]


def _completions(
    model: Any, prompts: Sequence[str] = _PROMPTS, stop: frozenset[int] = frozenset(), **options: Any
) -> dict[tuple[str, int], tuple[list[int], bool]]:
    decoding, done = Decoding(**options), list[Slot]()
    complete_slots(model, _rows(decoding, prompts), stop, decoding.batch_tokens, done.append)
    return {(row.name, row.sample): (row.tokens, row.stopped) for row in done}


def test_greedy_completions_equal_those_of_the_library(model: Any) -> None:
    """Also if rows leave with linear attention; a tiny top_p gives the greedy completion."""
    import torch

    for one, stop in ((model, frozenset[int]()), (hybrid_model(), frozenset(range(40)))):
        completions = _completions(one, stop=stop, max_new_tokens=12)
        for text in _PROMPTS:
            ids = torch.tensor([list(text.encode())])
            asked: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "do_sample": False, "max_new_tokens": 12}
            output = one.generate(ids, **asked, eos_token_id=sorted(stop) or -1)
            assert completions[text, 0][0] == output[0, ids.shape[1] :].tolist()
        assert (len({len(tokens) for tokens, _ in completions.values()}) > 1) is bool(stop)
        assert any(stopped for _, stopped in completions.values()) is bool(stop)
    sampled = _completions(model, max_new_tokens=8, temperature=1.0, top_p=1e-9)
    assert sampled == _completions(model, max_new_tokens=8)


def test_memory_that_runs_out_ends_a_generation(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def forward(*_arguments: Any, **_named: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(model, "forward", forward)
    with pytest.raises(
        RefusedError, match=r"^\d+ completions of \d+ positions at once: .* 2\.00 GiB\. Use .*--device cpu"
    ):
        _completions(model)


def test_the_likelihood_of_a_completion_is_that_of_its_tokens(model: Any) -> None:
    import torch

    rows = _rows(Decoding(max_new_tokens=8, num_samples=2, temperature=1.0))
    complete_slots(model, rows, frozenset(), 12_288, lambda _row: None)
    for row in rows:
        with torch.inference_mode():
            scores = model(torch.tensor([[*row.prompt, *row.tokens]])).logits[0].float().log_softmax(-1)
        each = [scores[len(row.prompt) - 1 + place, token] for place, token in enumerate(row.tokens)]
        assert row.log_probability == pytest.approx(float(sum(each)), abs=1e-3)
    assert _rows(Decoding())[0].log_probability is None


def test_reusing_a_free_slot_does_not_change_completions(model: Any) -> None:
    prompts = [text + "?" * n for text in _PROMPTS for n in (0, 7, 90)]
    stop = frozenset(range(32, 64))
    settings: dict[str, Any] = {"max_new_tokens": 24, "temperature": 1.0}
    together = _completions(model, prompts, stop, **settings, batch_tokens=256)
    alone: dict[tuple[str, int], tuple[list[int], bool]] = {}
    for prompt in prompts:
        alone |= _completions(model, [prompt], stop, **settings)

    assert together == alone
    assert len({len(tokens) for tokens, _ in together.values()}) > 3


def test_samples_differ_and_are_reproducible(model: Any) -> None:
    settings: dict[str, Any] = {"max_new_tokens": 16, "num_samples": 4, "temperature": 1.0}

    first = _completions(model, **settings)
    alone = _completions(model, _PROMPTS[1:2], **settings)
    other = _completions(model, **settings, seed=7)

    assert len({tuple(first[_PROMPTS[0], sample][0]) for sample in range(4)}) == 4
    assert alone[_PROMPTS[1], 2] == first[_PROMPTS[1], 2]
    assert other != first


@pytest.mark.slow
@pytest.mark.parametrize("is_together", [False, True])
@pytest.mark.parametrize("kind", _KINDS)
def test_staggered_completions_equal_those_of_the_plain_loop(kind: str, *, is_together: bool) -> None:
    model = tiny_model(kind)
    prompts = random_prompts(model)
    ours = complete_staggered(model, prompts, 12, is_together=is_together)

    assert ours == [complete_plainly(model, prompt, 12) for prompt in prompts]
    assert len(set(map(tuple, ours))) == len(prompts)


@pytest.mark.parametrize("kind", _KINDS)
def test_few_passes_read_the_prompts_of_a_step(kind: str) -> None:
    model = tiny_model(kind)
    prompts = random_prompts(model)
    plain = [complete_plainly(model, prompt, 4) for prompt in prompts]
    widths: list[tuple[int, ...]] = []
    model.register_forward_pre_hook(
        lambda _model, _given, named: widths.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    engine = Engine[Slot](model, frozenset(), 6, num_positions=48, num_read=4)
    slots = [Slot(prompt, Sampler(0.0, 1.0, ""), 1 if place == 2 else 4) for place, prompt in enumerate(prompts)]
    for slot in slots:
        engine.admit(slot)
    ended = engine.step()
    while engine.slots:
        engine.step()

    assert ended == [slots[2]]
    assert widths == [(4, 40), (2, 6), (5, 1), (5, 1), (5, 1)]
    assert [slot.tokens for slot in slots] == [
        tokens[:1] if place == 2 else tokens for place, tokens in enumerate(plain)
    ]


def test_a_model_with_other_layers_completes_one_prompt_at_a_time() -> None:
    from transformers import AutoModelForCausalLM, FalconH1Config

    config = FalconH1Config(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1,
        initializer_range=0.2,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    prompts = random_prompts(model)[1:4]

    plain = [complete_plainly(model, prompt, 6) for prompt in prompts]
    assert complete_staggered(model, prompts, 6) == complete_staggered(model, prompts, 6, is_together=True) == plain
    assert Engine[Slot](model, frozenset(), 3).num_slots == 1


def test_late_and_cancelled_slots_leave_and_others_continue(model: Any) -> None:
    class Cancelled(Slot):
        is_cancelled = True

    late = Slot((1, 2), Sampler(0.0, 1.0, ""), 9, deadline=0.0)
    other = Slot((1, 2, 3), Sampler(0.0, 1.0, ""), 9)
    engine = Engine[Slot](model, frozenset(), 3)
    for slot in (late, other, cancelled := Cancelled((5,), Sampler(0.0, 1.0, ""), 9)):
        engine.admit(slot)
    ended = engine.step()
    other.deadline = 0.0

    assert (ended, engine.step(), engine.slots) == ([late, cancelled], [other], ())
    assert (late.end, cancelled.end, other.end, len(other.tokens)) == ("late", "cancelled", "late", 2)


def test_greedy_and_sampled_completions_run_together(model: Any) -> None:
    decodings = [Decoding(max_new_tokens=6, temperature=temperature) for temperature in (0.0, 1.0)]
    alone = [_completions(model, _PROMPTS[:1], max_new_tokens=6, temperature=one.temperature) for one in decodings]
    rows = [_rows(decoding, _PROMPTS[:1])[0] for decoding in decodings]
    complete_slots(model, rows, frozenset(), 12_288, lambda _row: None)

    assert [row.tokens for row in rows] == [one[_PROMPTS[0], 0][0] for one in alone]


def test_the_comparison_runs_as_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tiny_base: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["engine", "--model", str(tiny_base), "--tokens", "5"])
    with pytest.raises(SystemExit) as same:
        proof.main()
    monkeypatch.setattr(proof, "complete_plainly", lambda *_arguments: [0])
    with pytest.raises(SystemExit) as different:
        proof.main()
    lines = capsys.readouterr().out.splitlines()

    assert (same.value.code, different.value.code) == (0, 1)
    assert [line.partition(";")[0] for line in lines] == [f"{tiny_base}: 6/6 the same", f"{tiny_base}: 0/6 the same"]


class _Guessing(Slot):
    """A completion whose first three guesses are right, and whose fourth is wrong."""

    coming: Sequence[int] = ()

    def guess(self, most: int) -> tuple[int, ...]:
        right = tuple(self.coming[len(self.tokens) :][:3])
        return (*right, (right[-1] + 1) % 256)[:most] if right else ()


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("kind", _KINDS)
def test_guessed_tokens_need_fewer_passes(kind: str, temperature: float) -> None:
    model, written, passes = tiny_model(kind), list[list[int]](), list[int]()
    for coming in ((), written):
        slot = _Guessing(tuple(range(3, 40)), Sampler(temperature, 1.0, "x"), 60)
        slot.coming = coming[0] if coming else ()
        engine = Engine[Slot](model, frozenset(), 1, num_positions=slot.num_positions)
        engine.admit(slot)
        passes.append(0)
        while engine.slots:
            engine.step()
            passes[-1] += 1
        written.append(slot.tokens)

    assert written[0] == written[1]
    assert len(written[0]) == 60
    assert passes[0] == 59
    assert passes[1] == 59 if kind == "qwen3_5_text" else 15 <= passes[1] <= 20


def test_a_guess_repeats_the_continuation_of_the_last_tokens() -> None:
    slot = Slot((1, 2, 3, 4, 9, 2, 3, 5, 6, 7), Sampler(0.0, 1.0, ""), 8)
    slot.tokens += [1, 2, 3]
    assert slot.guess(2) == (4, 9)
    slot.tokens = [2, 3]
    assert slot.guess(9) == (5, 6, 7, 2, 3)
    slot.tokens = [4]
    assert slot.guess(9) == ()
    assert Slot((1,), Sampler(0.0, 1.0, ""), 8).guess(3) == ()


@pytest.mark.parametrize("kind", _KINDS)
def test_a_step_waits_for_the_device_twice(kind: str) -> None:
    """Once for the chosen tokens and once for the mask of the library, not once per layer."""
    from torch.overrides import TorchFunctionMode

    waited: list[str] = []

    class Watch(TorchFunctionMode):  # type: ignore[misc]  # the library is untyped
        def __torch_function__(self, function: Any, _types: Any, given: Any = (), named: Any = None) -> Any:
            if (name := getattr(function, "__name__", "")) in _WAITS:
                waited.append(name)
            return function(*given, **(named or {}))

    engine = Engine[Slot](tiny_model(kind), frozenset(), 4, num_positions=64)
    for length in (5, 9, 7, 12):
        engine.admit(Slot(tuple(range(1, length + 1)), Sampler(0.0, 1.0, ""), 9))
    engine.step()
    with Watch():
        engine.step()

    assert sorted(waited) == ["__bool__", "tolist"]
