"""Measure the speed of a machine: a few real steps of training, and completions of the base.

The probe runs the jobs of training and generation, cut short, so whatever slows these down slows the probe down too.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

from pydantic import Field

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.inference.generation import Decoding, Generation, GenerationJob, Request
from mens_pipeline.inference.prepare import held_on, is_in_eight_bits
from mens_pipeline.jobs.device import Device
from mens_pipeline.jobs.protocol import Job, refuse_failure, write_job
from mens_pipeline.models.adapter import TELEMETRY
from mens_pipeline.models.base import FileTokenizer
from mens_pipeline.models.chat import encode_prompt
from mens_pipeline.storage.validation import Strict
from mens_pipeline.training.prepare import PreparedRun
from mens_pipeline.training.telemetry_log import steps_of

_STEPS: Final = 4
"""Optimizer steps of the probe; the first includes one-time costs and does not count."""

_MINUTES: Final = 0.5  # time limit of these steps; at least two run

AT_ONCE: Final = 16
"""Completions that the probe writes at once, about as many as an evaluation."""

_FEW: Final = 2
_MORE: Final = 10  # tokens per completion; the difference gives the time of writing


class Rates(Strict):
    """Speeds of a machine with a base, in seconds."""

    train_token: float = Field(ge=0, description="Seconds to train on one token of a row.")
    train_start: float = Field(ge=0, description="Seconds of a training process besides its steps: load, hash, save.")
    generate_start: float = Field(ge=0, description="Seconds until a generation process starts to write.")
    read_token: float = Field(ge=0, description="Seconds to read one token of a prompt.")
    write_token: float = Field(ge=0, description="Seconds to write one token of a completion in a batch.")

    def completion(self, read: float, written: float) -> float:
        """Return the seconds of a completion in a batch, from the numbers of tokens read and written."""
        return read * self.read_token + written * self.write_token


@dataclass(frozen=True, slots=True)
class SpeedProbe:
    """A probe in a folder, on a device; `launch` runs the job in a file and returns the exit code of its process."""

    folder: Path
    device: Device
    launch: Callable[[Path], int]
    log_line: Callable[[str], None]

    def measure(self, run: PreparedRun) -> Rates:
        """Train a few steps of a prepared run, complete some prompts with its base, and return the speeds."""
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            self.log_line(f"measuring {_STEPS} steps of training; a minute for both measurements, more under load")
            training = self._training(run)
            self.log_line(f"measuring {AT_ONCE} completions")
            return Rates(**training, **self._completions(run))
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _training(self, run: PreparedRun) -> dict[str, float]:
        short = {"max_steps": _STEPS, "max_minutes": _MINUTES, "save_steps": 10_000, "validation_split_ratio": 0.0}
        recipe, folder = run.job.recipe.model_copy(update=short), self.folder / "train"
        seconds = self._run(run.job.model_copy(update={"recipe": recipe, "run_dir": folder, "continues": None}))
        steps = list(steps_of(folder / TELEMETRY))
        first, last = steps[0], steps[-1]
        counted = steps[1:] or steps
        lap = last["seconds"] - (first["seconds"] if len(steps) > 1 else 0.0)
        token = lap / sum(step["num_tokens"] for step in counted)
        # Every run pays once for compiling kernels in its first step.
        own = token * sum(step["num_tokens"] for step in steps)
        return {"train_token": token, "train_start": max(0.0, seconds - own)}

    def _completions(self, run: PreparedRun) -> dict[str, float]:
        sizes = {"load": _FEW, "read": _FEW, "write": _MORE}  # the first includes one-time costs
        prompts = [pair.prompt for pair, _ in zip(read_pairs(run.job.train_path), range(AT_ONCE), strict=False)]
        generations = {name: self._generation(run, name, prompts, tokens) for name, tokens in sizes.items()}
        job = GenerationJob(generations=generations, run_dir=self.folder / "generate", lock_path=run.job.lock_path)
        seconds = self._run(job)
        ended: dict[str, tuple[float, int]] = {}
        for line in (job.run_dir / TELEMETRY).read_text(encoding="utf-8").splitlines():
            event = json.loads(line)["payload"]
            ended[event["model"]] = (event["seconds"], event["num_tokens"])
        tokenizer = FileTokenizer(run.base.path)
        length = sum(len(encode_prompt(tokenizer, SYSTEM_PROMPT, prompt)) for prompt in prompts)
        (read, few), (written, more) = ended["read"], ended["write"]
        write_token = max(0.0, written - read) / max(1, more - few)
        read_token = max(0.0, read - few * write_token) / length
        # All three read the prompts; the extra time of the first is paid once by every generation.
        start = max(0.0, seconds - written - read - min(read, ended["load"][0]))
        return {"generate_start": start, "read_token": read_token, "write_token": write_token}

    def _generation(self, run: PreparedRun, name: str, prompts: list[str], tokens: int) -> Generation:
        recipe, dtype = run.job.recipe, run.job.dtype
        held, compute_dtype = held_on(self.device, run.base.num_parameters, dtype)
        return Generation(
            base_path=run.job.base_path,
            adapter_path=None,
            base_sha256=run.base.sha256,
            adapter_sha256=None,
            quantization="none" if recipe.quantization == "bf16" else "nf4",
            double_quant=recipe.bnb_4bit_use_double_quant,
            trained_in=dtype,
            device=self.device.kind,
            compute_dtype=compute_dtype,
            in_eight_bits=is_in_eight_bits(self.device, recipe.bnb_4bit_compute_dtype),
            held=held,
            label=name,
            system_prompt=SYSTEM_PROMPT,
            decoding=Decoding(max_new_tokens=tokens),
            requests=tuple(Request(task=f"{name}/{row}", prompt=prompt) for row, prompt in enumerate(prompts)),
        )

    def _run(self, job: Job) -> float:
        path = write_job(job)
        began = perf_counter()
        refuse_failure(job.run_dir, self.launch(path), "probe")
        return perf_counter() - began
