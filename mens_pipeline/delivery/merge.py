"""From an adapter to a merged folder, and what it writes beside what was evaluated. For a process of delivery alone.

An adapter that was trained on four-bit weights is merged into these restored, not into the ones that the base came
with: the difference between the two is larger than many adapters are. What was evaluated is loaded in the precision of
its evaluation, with the adapter merged; the folder as any program loads it.
"""

import gc
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mens_pipeline.delivery.merge_job import COMPARISONS, FIGURES, MODEL, Comparison, MergeJob, Written
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.inference.model import load_evaluated, save_merged
from mens_pipeline.jobs.progress import TelemetryLog
from mens_pipeline.jobs.protocol import as_document
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.models.chat import control_tokens, encode_prompt, escape
from mens_pipeline.storage.jsonl import write_jsonl

if TYPE_CHECKING:
    from mens_pipeline.inference.engine import Slot

_READABLE = 0o644
"""The library keeps weights to their owner; a server runs as somebody else."""


def merge(job: MergeJob) -> None:
    """Merge, save, load what was saved as anybody would, and let it write beside the model that was evaluated.

    Raises:
        RefusedError: The adapter does not fit the base.
    """
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
    chats = {r.task: [{"role": "user", "content": escape(r.prompt, control)}] for r in asking.requests}
    prompts = {
        task: tuple(own_tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False))
        for task, chat in chats.items()
    }
    candidate = complete("merged", merged, own_tokenizer, prompts, asking.decoding, log, along=reference)
    num_parameters = sum(parameter.numel() for parameter in merged.parameters())
    write_comparison(job.run_dir, reference, candidate, num_parameters=num_parameters)


def _save(job: MergeJob) -> None:
    """Save the merged model as a plain folder: weights, configuration, tokenizer, template."""
    from transformers import AutoTokenizer

    from mens_pipeline.inference.generate import stop_tokens  # noqa: PLC0415 - loads torch as well

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
    """Take out of a configuration what is about this machine."""
    values = json.loads(path.read_text(encoding="utf-8"))
    kept = {key: value for key, value in values.items() if key not in keys}
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Completions:
    """Greedy completions of a model.

    Attributes:
        prompts: Ids by request.
        written: What it wrote to each.
        scores: Of the first token of each completion.
        likely: The most likely token at each place of the reference, teacher-forced along it.
    """

    prompts: Mapping[str, tuple[int, ...]]
    written: Mapping[str, Written]
    scores: Mapping[str, Any]
    likely: Mapping[str, tuple[int, ...]]


def complete(  # noqa: PLR0913, PLR0917 - all that a completion rests on
    name: str,
    model: Any,
    tokenizer: Any,
    prompts: Mapping[str, tuple[int, ...]],
    decoding: Decoding,
    log: TelemetryLog,
    *,
    along: Completions | None = None,
) -> Completions:
    """Let a model complete some prompts, and read the completions of a reference, or its own.

    Unlike free writing, teacher-forcing tells a single close call that turned from a model that is another one. The
    reference is read along its own completions as well: in 16 bits, reading all tokens at once rounds otherwise than
    writing one by one.
    """
    import torch

    from mens_pipeline.inference.generate import (  # noqa: PLC0415 - loads torch as well
        CompletionCounter,
        complete_slots,
        new_slot,
        stop_tokens,
    )

    slots = [new_slot(task, 0, prompt, decoding) for task, prompt in prompts.items()]
    counter, stop = CompletionCounter(log, name, len(slots)), stop_tokens(tokenizer, model)
    complete_slots(model, slots, stop, decoding.batch_tokens, lambda slot: counter.count(len(slot.tokens)))
    written = written_by(slots, tokenizer)
    texts = (prompts, written) if along is None else (along.prompts, along.written)
    scores, likely = {}, {}
    with torch.inference_mode():
        for task, ids in prompts.items():
            scores[task] = model(torch.tensor([ids], device=model.device)).logits[0, -1].float().cpu()
        for task, prompt in texts[0].items():
            both = torch.tensor([[*prompt, *texts[1][task].tokens]], device=model.device)
            likely[task] = tuple(model(both).logits[0, len(prompt) - 1 : -1].argmax(-1).tolist())
    return Completions(prompts, written, scores, likely)


def written_by(slots: Sequence["Slot"], tokenizer: Any) -> dict[str, Written]:
    """Return completions that have ended, by the names of their slots."""
    return {
        slot.name: Written(
            tokens=tuple(slot.tokens),
            text=tokenizer.decode(slot.tokens[:-1] if slot.stopped else slot.tokens, skip_special_tokens=True),
            stopped=slot.stopped,
        )
        for slot in slots
    }


def write_comparison(run_dir: Path, reference: Completions, candidate: Completions, **figures: int) -> None:
    """Write both models request by request, and the largest difference of a logit beside other figures."""
    comparisons = [
        Comparison(
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
