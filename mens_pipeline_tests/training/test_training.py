"""Training on a tiny base: changed and unchanged weights, and the arithmetic."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: TID253 - these tests train
from torch.nn.functional import cross_entropy  # noqa: TID253 - likewise

from mens_pipeline.errors import RefusedError
from mens_pipeline.jobs.protocol import newest_checkpoint
from mens_pipeline.models.adapter import ADAPTER, TELEMETRY
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.telemetry_log import steps_of
from mens_pipeline_tests.training.runs import CONTRARY, contrary_pairs, prepare_fast, train_here, trainer_of
from mens_pipeline_tests.training.tiny_base import HEADS, LAYERS

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries warn about their own future changes


def _adapter(run: PreparedRun) -> dict[str, Any]:
    from safetensors.torch import load_file  # noqa: PLC0415 - comes with the deep learning stack

    tensors: dict[str, Any] = load_file(run.job.run_dir / ADAPTER / "adapter_model.safetensors")
    return tensors


@pytest.mark.seed_row(12, 57)
def test_one_update_changes_every_matrix_of_the_adapter_and_nothing_else(tiny_base: Path, tmp_path: Path) -> None:
    """Seven linear layers in each of two blocks, two matrices each; the quantised base stays the same, bit for bit."""
    result = train_here(prepare_fast(tiny_base, tmp_path, max_steps=1))

    assert result["num_adapter_matrices"] == result["num_changed_matrices"] == 7 * LAYERS * 2
    assert (result["n_layers"], result["n_heads"], result["num_steps"]) == (LAYERS, HEADS, 1)


@pytest.mark.seed_row(12)
def test_a_run_whose_base_changes_is_refused(tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bit of one weight, in the only step."""
    from mens_pipeline.training.sft import PlannedTrainer  # noqa: PLC0415 - loads the deep learning stack

    step = PlannedTrainer.training_step

    def spoil(trainer: Any, model: Any, *arguments: Any, **named: Any) -> Any:
        _flip_a_bit(next(each for each in model.parameters() if not each.requires_grad).data)
        return step(trainer, model, *arguments, **named)

    monkeypatch.setattr(PlannedTrainer, "training_step", spoil)
    with pytest.raises(RefusedError, match="the base model changed while its adapter was trained"):
        train_here(prepare_fast(tiny_base, tmp_path, max_steps=1))


def _flip_a_bit(tensor: torch.Tensor) -> None:
    tensor.view(-1).view(torch.uint8)[3] ^= 1


@pytest.mark.seed_row(12)
def test_the_hash_of_a_base_depends_on_every_bit_and_the_order(tiny_base: Path, tmp_path: Path) -> None:
    """Of weights in four bits, of their scales, and of others."""
    from mens_pipeline.training.qlora import checksums  # noqa: PLC0415 - loads the deep learning stack

    trainer, _ = trainer_of(prepare_fast(tiny_base, tmp_path, max_steps=1))
    frozen = [parameter for parameter in trainer.model.parameters() if not parameter.requires_grad]
    packed = max((each for each in frozen if hasattr(each, "quant_state")), key=torch.numel)
    whole = max((each for each in frozen if not hasattr(each, "quant_state")), key=torch.numel)
    before = checksums(trainer.model)
    found = {before.frozen_sha256}
    for tensor in (packed.data, packed.quant_state.absmax, whole.data):
        kept = tensor.clone()
        _flip_a_bit(tensor)
        found.add(checksums(trainer.model).frozen_sha256)
        tensor.copy_(kept.view(-1).flip(0).view(kept.shape))
        found.add(checksums(trainer.model).frozen_sha256)
        tensor.copy_(kept)

    assert len(found) == 7
    assert checksums(trainer.model) == before


def test_the_rate_of_b_matrices_is_the_ratio_times_that_of_a_matrices(tiny_base: Path, tmp_path: Path) -> None:
    """Both groups hold all matrices; the first step of AdamW is as large as the rate (LoRA+)."""
    trainer, _ = trainer_of(prepare_fast(tiny_base, tmp_path / "groups", learning_rate=1e-3, lora_plus_ratio=4.0))
    groups = {group["lr"]: len(group["params"]) for group in trainer.create_optimizer().param_groups if group["params"]}
    run = prepare_fast(
        tiny_base, tmp_path / "run", learning_rate=1e-3, lora_plus_ratio=4.0, warmup_steps=0, max_steps=1
    )
    train_here(run)
    largest = max(tensor.abs().max().item() for name, tensor in _adapter(run).items() if "lora_B" in name)

    assert groups == {1e-3: 7 * LAYERS, 4e-3: 7 * LAYERS}
    assert largest == pytest.approx(4e-3, rel=1e-3)


@pytest.mark.seed_row(57)
def test_only_named_layers_get_an_adapter(tiny_base: Path, tmp_path: Path) -> None:
    """As in the preset `journey`: query and value projections."""
    run = prepare_fast(tiny_base, tmp_path, max_steps=1, target_modules="q_proj,v_proj")

    assert train_here(run)["num_adapter_matrices"] == 2 * LAYERS * 2
    assert {name.split(".")[-3] for name in _adapter(run)} == {"q_proj", "v_proj"}


def test_rejects_unknown_layers(tiny_base: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("c_attn", "lm_head")):
        run = prepare_fast(tiny_base, tmp_path / str(number), max_steps=1, target_modules=name)
        with pytest.raises(
            RefusedError, match=f'{name} cannot get an adapter. Write "all-linear", or some of down_proj'
        ):
            train_here(run)


def test_accumulated_micro_batches_equal_one_batch(tiny_base: Path, tmp_path: Path) -> None:
    at_once = prepare_fast(tiny_base, tmp_path / "a", number=4, per_device_train_batch_size=4)
    one_by_one = prepare_fast(
        tiny_base, tmp_path / "b", number=4, per_device_train_batch_size=1, gradient_accumulation_steps=4
    )
    first, second = train_here(at_once), train_here(one_by_one)
    left, right = _adapter(at_once), _adapter(one_by_one)

    assert first["num_steps"] == second["num_steps"] == 1
    assert first["train_loss"] == pytest.approx(second["train_loss"], rel=1e-5)
    for name, tensor in left.items():
        torch.testing.assert_close(tensor, right[name], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("early", [0, 3])
def test_the_loss_is_that_of_the_labelled_positions(tiny_base: Path, tmp_path: Path, early: int) -> None:
    """Scoring only these gives the loss of all logits; prompt and padding do not count, and rows have weights.

    Also if labels are among the tokens that all rows begin with.
    """
    trainer, batch = trainer_of(prepare_fast(tiny_base, tmp_path))
    batch["labels"][0, 2 : 2 + early] = batch["input_ids"][0, 2 : 2 + early]
    batch["counts"] = (batch["counts"][0], batch["counts"][1] + early)
    trainer.model.eval()
    batch["weights"] = torch.tensor([1.0, 2.0, 0.5, 1.0])
    with torch.no_grad():
        loss = trainer.compute_loss(trainer.model, batch)
        logits = trainer.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    labels = batch["labels"][:, 1:]
    single = cross_entropy(logits.transpose(1, 2), labels, reduction="none", ignore_index=-100)
    expected = (single * batch["weights"][:, None]).sum() / (labels != -100).sum()

    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.seed_row(56)
def test_the_base_is_in_four_bits_and_the_adapter_in_float32(tiny_base: Path, tmp_path: Path) -> None:
    """NF4 with quantised scales in every linear layer except the head; float32 in every matrix that trains."""
    from bitsandbytes.nn import Linear4bit

    trainer, _ = trainer_of(prepare_fast(tiny_base, tmp_path))
    layers = [module for module in trainer.model.modules() if isinstance(module, Linear4bit)]

    assert len(layers) == 7 * LAYERS
    for layer in layers:
        assert layer.weight.dtype is torch.uint8
        assert layer.weight.quant_state.quant_type == "nf4"
        assert layer.weight.quant_state.nested
        assert layer.weight.numel() * 2 == layer.in_features * layer.out_features
    assert {p.dtype for p in trainer.model.parameters() if p.requires_grad} == {torch.float32}
    assert not isinstance(trainer.model.get_output_embeddings(), Linear4bit)


def test_gradients_are_clipped_to_the_norm(tiny_base: Path, tmp_path: Path) -> None:
    trainer, batch = trainer_of(prepare_fast(tiny_base, tmp_path, max_grad_norm=0.01))
    trainer.create_optimizer()
    trainer.compute_loss(trainer.model, batch).backward()
    before = float(trainer._clip_grad_norm(trainer.model))  # noqa: SLF001 - the function under test
    gradients = [p.grad.flatten() for p in trainer.model.parameters() if p.requires_grad]

    assert before > 0.01
    assert float(torch.cat(gradients).norm()) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_zero_and_nonfinite_gradients_end_the_run(tiny_base: Path, tmp_path: Path, value: float) -> None:
    trainer, batch = trainer_of(prepare_fast(tiny_base, tmp_path))
    trainer.compute_loss(trainer.model, batch).backward()
    for parameter in trainer.model.parameters():
        if parameter.requires_grad:
            parameter.grad.fill_(value)

    with pytest.raises(RefusedError, match=r"step 1: the gradient norm is .*\. Lower learning_rate"):
        trainer._clip_grad_norm(trainer.model)  # noqa: SLF001 - the function under test


def test_a_run_logs_every_step(tiny_base: Path, tmp_path: Path) -> None:
    """With all figures of each step; the loss falls, and padding is not counted."""
    run = prepare_fast(tiny_base, tmp_path, num_train_epochs=8, save_steps=1000)
    result = train_here(run)
    steps = list(steps_of(run.job.run_dir / TELEMETRY))
    events = [json.loads(line)["event"] for line in (run.job.run_dir / TELEMETRY).read_text().splitlines()]

    assert [step["step"] for step in steps] == list(range(1, 33))
    assert events == ["train_start", *["step"] * 4, "plan", *["step"] * 28, "train_complete"]
    assert steps[-1]["loss"] < steps[0]["loss"] - 0.3
    assert sum(step["num_tokens"] for step in steps) == result["trained_tokens"] == 8 * result["num_tokens"]
    assert all(step["grad_norm"] > 0 and step["tokens_per_second"] > 0 for step in steps)
    assert {step["supervised_ratio"] < 1 for step in steps} == {True}


def test_the_checkpoint_with_the_lowest_loss_becomes_the_adapter(tiny_base: Path, tmp_path: Path) -> None:
    """By rows that do not train: here of other characters, whose loss a longer training raises."""
    from safetensors.torch import load_file  # noqa: PLC0415 - comes with the deep learning stack

    fields: dict[str, Any] = {"validation_split_ratio": CONTRARY, "max_steps": 11, "save_steps": 4}
    run = prepare_fast(tiny_base, tmp_path, rows=contrary_pairs(48), **fields)
    result = train_here(run)
    lines = [json.loads(line) for line in (run.job.run_dir / TELEMETRY).read_text().splitlines()]
    losses = {line["payload"]["step"]: line["payload"]["loss"] for line in lines if line["event"] == "validation"}
    best = min(losses, key=losses.__getitem__)
    folders = [run.job.run_dir / "checkpoints" / f"checkpoint-{step}" for step in (best, 11)]
    kept, last = (load_file(folder / "adapter_model.safetensors") for folder in folders)

    assert ([*losses], best < 11) == ([3, 6, 9, 11], True)
    assert (result["kept_step"], result["validation_loss"], result["num_steps"]) == (best, losses[best], 11)
    assert all(matrix.equal(kept[name]) for name, matrix in _adapter(run).items())
    assert not any(matrix.equal(last[name]) for name, matrix in kept.items())


def test_fewer_log_lines_cover_all_updates(tiny_base: Path, tmp_path: Path) -> None:
    """Tokens and time of each update count, also of those after the last whole line; the adapter is the same."""
    often, seldom = (prepare_fast(tiny_base, tmp_path / str(n), max_steps=4, logging_steps=n) for n in (1, 3))
    each, total = train_here(often), train_here(seldom)
    lines = list(steps_of(seldom.job.run_dir / TELEMETRY))
    weights = [(run.job.run_dir / ADAPTER / "adapter_model.safetensors").read_bytes() for run in (often, seldom)]

    assert [(step["step"], step["num_updates"]) for step in lines] == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert total["trained_tokens"] == each["trained_tokens"]
    assert weights[0] == weights[1]

    rare = prepare_fast(tiny_base, tmp_path / "rare", max_steps=4, logging_steps=3, save_steps=100)
    result = train_here(rare)
    lines = list(steps_of(rare.job.run_dir / TELEMETRY))
    assert [(step["step"], step["num_updates"]) for step in lines] == [(3, 3), (4, 1)]
    assert result["trained_tokens"] == each["trained_tokens"]
    assert result["train_loss"] == pytest.approx(each["train_loss"], rel=1e-3)
    assert result["seconds"] == pytest.approx(lines[-1]["seconds"])


def test_a_base_without_a_padding_token_trains(tiny_base: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_base, base)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (base / name).is_file():
            values = json.loads((base / name).read_text())
            values.pop("pad_token", None)
            (base / name).write_text(json.dumps(values))
    from transformers import AutoTokenizer

    assert AutoTokenizer.from_pretrained(base).pad_token_id is None

    assert train_here(prepare_fast(base, tmp_path, max_steps=1))["num_steps"] == 1


def test_two_runs_give_the_same_adapter(tiny_base: Path, tmp_path: Path) -> None:
    runs = [prepare_fast(tiny_base, tmp_path / str(n), max_steps=3, seed=seed) for n, seed in enumerate((1, 1, 2))]
    for run in runs:
        train_here(run)
    first, again, other = ((run.job.run_dir / ADAPTER / "adapter_model.safetensors").read_bytes() for run in runs)

    assert first == again
    assert first != other
    assert runs[0].job.contract_digest == runs[1].job.contract_digest != runs[2].job.contract_digest
    assert newest_checkpoint(runs[0].job.run_dir) is not None
