"""Merge an adapter, and complete prompts with both models. Only the process of a merge imports this.

An adapter trained on four-bit weights is merged into the dequantised weights, not into the base's own: the difference
between the two is larger than many adapters. The evaluated model is loaded in the precision of its evaluation, with the
adapter merged; the folder is loaded as by any other program.
"""

import gc
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mens_pipeline.delivery.agreement import COMPARISONS, FIGURES, MODEL, MergeJob, PromptComparison, Written
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.inference.model import load_evaluated, save_merged
from mens_pipeline.jobs.progress import TelemetryLog
from mens_pipeline.jobs.protocol import as_document
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.models.chat import control_tokens, cut, encode_cut, encode_prompt
from mens_pipeline.storage.jsonl import write_jsonl

if TYPE_CHECKING:
    from mens_pipeline.inference.engine import Slot

_READABLE = 0o644  # the library lets only the owner read weights; a server runs as another user


def merge(job: MergeJob) -> None:
    """Merge and save, then complete the same prompts with the evaluated model and with the saved folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_flush_denormal(True)
    asking, folder = job.reference, job.run_dir / MODEL
    log = TelemetryLog(job.run_dir / TELEMETRY)
    _save(job)
    gc.collect()

    evaluated = load_evaluated(asking)
    tokenizer = AutoTokenizer.from_pretrained(asking.base_path, trust_remote_code=False)
    asked = {r.task: encode_prompt(tokenizer, asking.system_prompt, r.prompt) for r in asking.requests}
    reference = complete("judged", evaluated, tokenizer, asked, asking.decoding, log)
    del evaluated
    gc.collect()
    if asking.device == "cuda":
        torch.cuda.empty_cache()

    merged = AutoModelForCausalLM.from_pretrained(folder).to(asking.device).eval()
    own_tokenizer = AutoTokenizer.from_pretrained(folder)
    control = control_tokens(tokenizer)
    chats = {r.task: [{"role": "user", "content": cut(r.prompt, control)}] for r in asking.requests}
    render = partial(own_tokenizer.apply_chat_template, add_generation_prompt=True, tokenize=False)
    prompts = {task: tuple(encode_cut(own_tokenizer, render(chat))) for task, chat in chats.items()}
    candidate = complete("merged", merged, own_tokenizer, prompts, asking.decoding, log, along=reference)
    num_parameters = sum(parameter.numel() for parameter in merged.parameters())
    write_comparison(job.run_dir, reference, candidate, num_parameters=num_parameters)


def _save(job: MergeJob) -> None:
    from transformers import AutoTokenizer

    from mens_pipeline.inference.generate import stop_tokens  # noqa: PLC0415 - loads torch

    reference, folder = job.reference, job.run_dir / MODEL
    model = load_evaluated(reference.model_copy(update={"compute_dtype": job.dtype}))
    tokenizer = AutoTokenizer.from_pretrained(reference.adapter_path, trust_remote_code=False)
    stop = sorted(stop_tokens(tokenizer, model))
    model.generation_config.eos_token_id = stop if len(stop) > 1 else stop[0]
    save_merged(model, reference.base_path, folder)
    tokenizer.chat_template = job.chat_template
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(_READABLE)
    _strip(folder / "tokenizer_config.json", "is_local", "local_files_only", "name_or_path")
    _strip(folder / "config.json", "_name_or_path")


def _strip(path: Any, *keys: str) -> None:
    values = json.loads(path.read_text(encoding="utf-8"))
    kept = {key: value for key, value in values.items() if key not in keys}
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class GreedyCompletions:
    """Greedy completions of a model, by task; `prompts` and `written` are token ids.

    `scores` are the logits of the first token, of shape `(vocabulary,)`; `likely` the most likely token at each place,
    teacher-forced along the reference.
    """

    prompts: Mapping[str, tuple[int, ...]]
    written: Mapping[str, Written]
    scores: Mapping[str, Any]
    likely: Mapping[str, tuple[int, ...]]


def complete(  # noqa: PLR0913, PLR0917 - the inputs of a completion
    name: str,
    model: Any,
    tokenizer: Any,
    prompts: Mapping[str, tuple[int, ...]],
    decoding: Decoding,
    log: TelemetryLog,
    *,
    along: GreedyCompletions | None = None,
) -> GreedyCompletions:
    """Complete prompts greedily, then predict tokens teacher-forced `along` a reference, by default the model itself.

    Teacher-forcing distinguishes a single flipped close call from another model; free completions do not. The reference
    is also scored along its own completions: in 16 bits, one pass over all tokens rounds differently from one by one.
    """
    import torch

    from mens_pipeline.inference.generate import (  # noqa: PLC0415 - loads torch
        CompletionCounter,
        complete_slots,
        new_slot,
        stop_tokens,
    )

    slots = [new_slot(task, 0, prompt, decoding) for task, prompt in prompts.items()]
    counter, stop = CompletionCounter(log, name, len(slots)), stop_tokens(tokenizer, model)
    complete_slots(model, slots, stop, decoding.batch_tokens, lambda slot: counter.count(len(slot.tokens)))
    written = read_slots(slots, tokenizer)
    texts = (prompts, written) if along is None else (along.prompts, along.written)
    scores, likely = {}, {}
    with torch.inference_mode():
        for task, ids in prompts.items():
            scores[task] = model(torch.tensor([ids], device=model.device)).logits[0, -1].float().cpu()
        for task, prompt in texts[0].items():
            both = torch.tensor([[*prompt, *texts[1][task].tokens]], device=model.device)
            likely[task] = tuple(model(both).logits[0, len(prompt) - 1 : -1].argmax(-1).tolist())
    return GreedyCompletions(prompts, written, scores, likely)


def read_slots(slots: Sequence["Slot"], tokenizer: Any) -> dict[str, Written]:
    """Decode finished slots, and return their completions by task."""
    return {
        slot.name: Written(
            tokens=tuple(slot.tokens),
            text=tokenizer.decode(slot.tokens[:-1] if slot.stopped else slot.tokens, skip_special_tokens=True),
            stopped=slot.stopped,
        )
        for slot in slots
    }


def write_comparison(run_dir: Path, reference: GreedyCompletions, candidate: GreedyCompletions, **figures: int) -> None:
    """Write the completions of both models, and `figures` with the largest difference of logits."""
    comparisons = [
        PromptComparison(
            task=task,
            same_prompt=prompt == candidate.prompts[task],
            reference=reference.written[task],
            candidate=candidate.written[task],
            num_led=sum(map(int.__eq__, reference.likely[task], candidate.likely[task])),
        )
        for task, prompt in reference.prompts.items()
    ]
    write_jsonl(run_dir / COMPARISONS, comparisons)
    differences = (reference.scores[task] - candidate.scores[task] for task in reference.scores)
    largest = max(float(difference.abs().max()) for difference in differences)
    (run_dir / FIGURES).write_text(as_document({"largest_logit_difference": largest, **figures}), encoding="utf-8")
