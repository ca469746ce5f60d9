"""Programs of strangers, run in processes of their own that are kept warm and replaced when they overrun."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from mens_pipeline.language.interpreter.hidden_tests import hidden_module
from mens_pipeline.language.interpreter.limits import Features, Limits
from mens_pipeline.language.interpreter.results import ProgramReport
from mens_pipeline.language.interpreter.running import DEFAULT_LIMITS, NO_FEATURES
from mens_pipeline.language.interpreter.wire import Request
from mens_pipeline.language.interpreter.worker_process import WorkerPool, WorkerStoppedError, worker_command
from mens_pipeline.language.parser.modules import Mode

WORKER_COMMAND: Final = worker_command("mens_pipeline.language.interpreter.worker")


class Sandbox(WorkerPool):
    """A pool of worker processes that run the tests of programs."""

    def __init__(
        self,
        num_workers: int = 2,
        limits: Limits = DEFAULT_LIMITS,
        *,
        features: Features = NO_FEATURES,
        seed: int = 0,
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        """Set limits and environment; nothing is started yet.

        `seed` is for the arguments of properties.
        """
        super().__init__(num_workers, command, limits)
        self._features = features
        self._seed = seed

    def kept_out(self) -> dict[str, str]:
        """Describe what the system keeps from programs here, as a worker found when it was confined.

        Returns:
            What is kept from them -> why it is not kept here; empty where it is.
        """
        with self.worker() as worker:
            try:
                kept: dict[str, str] = worker.exchange(None, self.limits.program_seconds)
            except WorkerStoppedError as error:
                return {"anything": error.message}
            return kept

    def run(self, source: str, *, mode: Mode = Mode.SOURCE) -> ProgramReport:
        """Run the tests of a program.

        Returns:
            As `run_tests`; a program that cannot be stopped from inside is `stopped` from outside.
        """
        return self._answer(Request(source, None, self.limits, self._seed, self._features, mode))

    def run_with_tests(self, candidate: str, tests: str) -> ProgramReport:
        """Run hidden tests against a candidate, as the function of the same name.

        Raises:
            ConfigurationError: The tests themselves are rejected, or there are none.
        """
        hidden_module(tests)
        return self._answer(Request(candidate, tests, self.limits, self._seed, self._features))

    def map(self, sources: Iterable[str]) -> Iterator[ProgramReport]:
        """Run the tests of many programs on all workers."""
        with ThreadPoolExecutor(self.num_workers) as threads:
            yield from threads.map(self.run, sources)

    def map_with_tests(self, pairs: Iterable[tuple[str, str]]) -> Iterator[ProgramReport]:
        """Judge many candidates on all workers.

        Raises:
            ConfigurationError: Some tests are rejected, or there are none.
        """
        with ThreadPoolExecutor(self.num_workers) as threads:
            yield from threads.map(lambda pair: self.run_with_tests(*pair), pairs)

    def _answer(self, request: Request) -> ProgramReport:
        with self.worker() as worker:
            return worker.ask(request)
