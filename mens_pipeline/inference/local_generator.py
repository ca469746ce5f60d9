"""A model of this project as a generator of evolved requests and programs: a base, or base and adapter of a run."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from mens_pipeline.corpus.evolution.requests import Reply
from mens_pipeline.corpus.evolution.requests import Request as Asking
from mens_pipeline.inference.generation import ANSWERS, Answer, Request
from mens_pipeline.inference.prepare import (
    Asked,
    Conditions,
    Model,
    PreparedGeneration,
    adapter_digest,
    manifest_of,
    prepare_requests,
)
from mens_pipeline.storage.jsonl import read_models
from mens_pipeline.training.launch import refuse_failure


class TimeIsUpError(Exception):
    """A generation that is at work has to end; never leaves this module."""


@dataclass(frozen=True)
class LocalGenerator:
    """A generator that answers in a process of its own, all requests of a call as one batch.

    What was not answered when its process ended is asked again by the next call.

    Attributes:
        launch: Runs the process of a job and returns its exit code; it calls its second argument a few times a second.
    """

    run: Path
    model: Model
    conditions: Conditions
    work: Path
    launch: Callable[[PreparedGeneration, Callable[[], None]], int]

    @property
    def name(self) -> str:
        """The base model, and whether the adapter is with it."""
        base: str = manifest_of(self.run)["base_model"]["name"]
        return base if self.model == "base" else f"{base} with adapter"

    @property
    def digest(self) -> str:
        """SHA-256 of the weights that make the difference: those of the adapter, or of the base."""
        sha256: str = manifest_of(self.run)["base_model"]["sha256"]
        return sha256 if self.model == "base" else adapter_digest(self.run)

    @property
    def decoding(self) -> Mapping[str, Any]:
        """Decoding options in JSON types."""
        is_batch_felt = self.conditions.device.kind != "cpu"
        return self.conditions.decoding.model_dump(mode="json", exclude=None if is_batch_felt else {"batch_tokens"})

    @property
    def max_new_tokens(self) -> int:
        """Tokens of a reply at most."""
        return self.conditions.decoding.max_new_tokens

    def answer(
        self, requests: Sequence[Asking], record: Callable[[Reply], None], time_left: Callable[[], float]
    ) -> None:
        """Answer requests; those that are told different things first go to different processes.

        Raises:
            RefusedError: The run is not complete, its base is gone, or the process failed.
        """
        for system, group in groupby(requests, key=lambda request: request.system):
            if time_left() > 0:
                with suppress(TimeIsUpError):
                    self._answer(system, list(group), record, time_left)

    def _answer(
        self, system: str, requests: list[Asking], record: Callable[[Reply], None], time_left: Callable[[], float]
    ) -> None:
        def poll() -> None:
            if time_left() <= 0:
                raise TimeIsUpError

        asked = Asked(tuple(Request(task=request.key, prompt=request.prompt) for request in requests), system)
        prepared = prepare_requests(self.model, self.run, asked, self.conditions, self.work)
        refuse_failure(self.work, self.launch(prepared, poll), "generation")
        num_bytes = {request.key: request.num_bytes for request in requests}
        for answer in read_models(self.work / ANSWERS, Answer):
            # The process counts what it writes; of what it was given no more is known than its length.
            num_tokens, num_written = num_bytes[answer.task] + answer.num_tokens, answer.num_tokens
            told = {"text": answer.text, "stopped": answer.stopped, "num_written": num_written}
            record(Reply(key=answer.task, num_tokens=num_tokens, **told))
        shutil.rmtree(self.work, ignore_errors=True)
