"""From a merged folder to a GGUF file, and what both write to the same requests. For a process of delivery alone."""

import gc
from collections.abc import Callable
from typing import Any

from mens_pipeline.delivery.gguf_file import write_gguf
from mens_pipeline.delivery.merge_job import COMPARISONS, FIGURES, MODEL, PROGRESS, GgufJob
from mens_pipeline.delivery.writing import compared, largest_difference, led, speak
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline.training.chat import encode_prompt
from mens_pipeline.training.job import as_document
from mens_pipeline.training.telemetry_log import TelemetryLog


def export(job: GgufJob, listen: Callable[[dict[str, Any]], None]) -> None:
    """Write the file, read it back with another program's reader, and let both models answer.

    Args:
        job: What to write.
        listen: Takes one event for each answer.

    Raises:
        RefusedError: A tensor has no place in the layout.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_flush_denormal(True)
    reference, folder = job.reference, job.run_dir / MODEL
    folder.mkdir()
    write_gguf(job.merged_path, folder / job.file_name, job.file_type, job.model_name, job.licence)
    gc.collect()

    log = TelemetryLog(job.run_dir / PROGRESS, listen)
    tokenizer = AutoTokenizer.from_pretrained(job.merged_path)
    read_back = AutoTokenizer.from_pretrained(folder, gguf_file=job.file_name)
    asked = {r.task: encode_prompt(tokenizer, reference.system_prompt, r.prompt) for r in reference.requests}
    merged = AutoModelForCausalLM.from_pretrained(job.merged_path, dtype=torch.float32).to(reference.device).eval()
    before = speak("merged", merged, tokenizer, asked, reference, log)
    expected = led(merged, before)
    del merged
    gc.collect()

    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=job.file_name, dtype=torch.float32)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    after = speak("gguf", model.to(reference.device).eval(), tokenizer, asked, reference, log)
    write_jsonl(job.run_dir / COMPARISONS, compared(before, after, expected, led(model, before)))
    figures = {
        "largest_logit_difference": largest_difference(before, after),
        "num_tokens_changed": _num_changed(tokenizer, read_back),
    }
    (job.run_dir / FIGURES).write_text(as_document(figures), encoding="utf-8")


def _num_changed(tokenizer: Any, read_back: Any) -> int:
    """Tokens that have another number in what was read back, or none; what a reader adds of its own is its affair."""
    return len(set(tokenizer.get_vocab().items()) - set(read_back.get_vocab().items()))
