"""From an adapter to a merged folder, and what it writes beside what was judged. For a process of delivery alone.

The adapter was trained on four-bit weights, and judged on them restored. It is merged into those restored weights, not
into the ones that the base came with: the difference between the two is larger than many adapters are. What was judged
is loaded as it was for judging, in that precision; the folder as any program loads it.
"""

import gc
import json
from collections.abc import Callable
from typing import Any

from mens_pipeline.delivery.merge_job import COMPARISONS, FIGURES, MODEL, PROGRESS, MergeJob
from mens_pipeline.delivery.writing import compared, largest_difference, led, speak
from mens_pipeline.inference.generation import GenerationJob
from mens_pipeline.inference.model import load_judged, save_merged
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.training.chat import control_tokens, encode_prompt, escape
from mens_pipeline.training.job import as_document
from mens_pipeline.training.telemetry_log import TelemetryLog

_READABLE = 0o644
"""The library keeps weights to their owner; a server runs as somebody else."""


def merge(job: MergeJob, listen: Callable[[dict[str, Any]], None]) -> None:
    """Merge, save, load what was saved as anybody would, and let it answer beside the model that was judged.

    Raises:
        RefusedError: The adapter does not fit the base.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_flush_denormal(True)
    reference_job, folder = job.reference, job.run_dir / MODEL
    log = TelemetryLog(job.run_dir / PROGRESS, listen)
    _save(job)
    gc.collect()

    judged = load_judged(reference_job)
    tokenizer = AutoTokenizer.from_pretrained(reference_job.base_path, trust_remote_code=False)
    asked = {r.task: encode_prompt(tokenizer, reference_job.system_prompt, r.prompt) for r in reference_job.requests}
    reference = speak("judged", judged, tokenizer, asked, reference_job, log)
    expected = led(judged, reference)
    del judged
    gc.collect()
    if reference_job.device == "cuda":
        torch.cuda.empty_cache()

    merged = AutoModelForCausalLM.from_pretrained(folder).to(_dense(reference_job).device).eval()
    own_tokenizer = AutoTokenizer.from_pretrained(folder)
    control = control_tokens(tokenizer)
    chats = {r.task: [{"role": "user", "content": escape(r.prompt, control)}] for r in reference_job.requests}
    prompts = {
        task: tuple(own_tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False))
        for task, chat in chats.items()
    }
    candidate = speak("merged", merged, own_tokenizer, prompts, reference_job, log)
    write_jsonl(job.run_dir / COMPARISONS, compared(reference, candidate, expected, led(merged, reference)))
    figures = {
        "largest_logit_difference": largest_difference(reference, candidate),
        "num_values": sum(parameter.numel() for parameter in merged.parameters()),
    }
    (job.run_dir / FIGURES).write_text(as_document(figures), encoding="utf-8")


def _save(job: MergeJob) -> None:
    """Save the merged model as a plain folder: weights, configuration, tokenizer, template."""
    from transformers import AutoTokenizer

    from mens_pipeline.inference.generate import vocabulary_of  # noqa: PLC0415 - loads torch as well

    reference, folder = job.reference, job.run_dir / MODEL
    model = load_judged(_dense(reference).model_copy(update={"compute_dtype": job.dtype}))
    tokenizer = AutoTokenizer.from_pretrained(reference.adapter_path, trust_remote_code=False)
    stop = sorted(vocabulary_of(tokenizer, model).stop)
    model.generation_config.eos_token_id = stop if len(stop) > 1 else stop[0]
    save_merged(model, reference.base_path, folder)
    tokenizer.chat_template = job.chat_template
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(_READABLE)
    _strip(folder / "tokenizer_config.json", "is_local", "local_files_only", "name_or_path")
    _strip(folder / "config.json", "_name_or_path")


def _dense(reference: GenerationJob) -> GenerationJob:
    """Hold what was judged so that it can be merged: on the CPU where the memory of the GPU is too small."""
    if reference.held == "dense":
        return reference
    return reference.model_copy(update={"held": "dense", "device": "cpu"})


def _strip(path: Any, *keys: str) -> None:
    """Take out of a configuration what is about this machine."""
    values = json.loads(path.read_text(encoding="utf-8"))
    kept = {key: value for key, value in values.items() if key not in keys}
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
