"""Listeners that report runs and the champion to MLflow and TensorBoard.

They run in the process that watches a run: the one that trains has neither secrets nor the network. A tracker that
fails is logged, and the run continues without it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.evaluation.results import RESULTS, read_results
from mens_pipeline.jobs.protocol import ExitCode
from mens_pipeline.models.adapter import MANIFEST, TrainingManifest
from mens_pipeline.storage.store import Artifact, ArtifactStore

if TYPE_CHECKING:
    from mlflow import MlflowClient

NAME: Final = "mens"
"""Name of the experiment and of the registered model in MLflow."""

_CHAMPION: Final = "champion"
_CONTRACT: Final = "mens.contract_digest"
_KEY: Final = "mens.key"
_STEP: Final = ("loss", "grad_norm", "learning_rate", "tokens_per_second")
_RESULT: Final = ("train_loss", "validation_loss", "seconds", "trained_tokens", "num_steps")
_FIGURES: Final = ("parse_rate", "resolve_rate", "pass_at_1", "test_rate")
_STATUS: Final[Mapping[int, str]] = {ExitCode.DONE: "FINISHED", ExitCode.INTERRUPTED: "KILLED"}

LogLine = Callable[[str], None]


class MlflowTracker:
    """A run of MLflow, found again by its contract when training resumes."""

    def __init__(self, uri: str, contract_digest: str, recipe: Mapping[str, Any]) -> None:
        """Begin or resume a run at a server or `sqlite:///FILE`."""
        self._client = _open_mlflow(uri)
        self._id = _find_run(self._client, contract_digest)
        self._client.update_run(self._id, status="RUNNING")
        for name, value in recipe.items():
            self._client.log_param(self._id, name, json.dumps(value))

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Log figures of a step."""
        for name, value in figures.items():
            self._client.log_metric(self._id, name, value, step=step)

    def end(self, code: int) -> None:
        """Log the exit code of training."""
        self._client.set_terminated(self._id, _STATUS.get(code, "FAILED"))


class TensorBoardTracker:
    """Event files, one folder for each contract."""

    def __init__(self, folder: str, contract_digest: str, recipe: Mapping[str, Any]) -> None:
        """Begin or extend the files of a run, below the folder for `tensorboard --logdir`."""
        from tensorboardX import SummaryWriter  # noqa: PLC0415 - of an extra

        self._writer = SummaryWriter(str(Path(folder) / contract_digest[:12]))
        self._writer.add_text("recipe", json.dumps(recipe, indent=2))

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Log figures of a step."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def end(self, code: int) -> None:
        """Log the exit code of training."""
        self._writer.add_text("exit code", str(code))
        self._writer.close()


Tracker = MlflowTracker | TensorBoardTracker


def parse_trackers(text: str) -> tuple[tuple[str, str], ...]:
    """Parse a setting `mlflow=URI,tensorboard=FOLDER` into pairs of tracker and place.

    Raises:
        ConfigurationError: A tracker is unknown, or has no place.
    """
    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    for number, (name, _, place) in enumerate(pairs, start=1):
        if name not in {"mlflow", "tensorboard"} or not place:  # not shown: it may hold a password
            raise ConfigurationError(f"MENS_TRACKERS: part {number} is neither mlflow=URI nor tensorboard=FOLDER.")
    return tuple((name, place) for name, _, place in pairs)


class Trackers:
    """All trackers of one run; one that fails is dropped with a warning."""

    def __init__(self, setting: str, job_path: Path, log_line: LogLine) -> None:
        """Begin with the trackers of a setting, or raise ConfigurationError if it is wrong."""
        self._log_line = log_line
        self._trackers: dict[str, Tracker] = {}
        for name, place in parse_trackers(setting):
            _succeeds(name, log_line, partial(self._begin, name, place, job_path))

    def _begin(self, name: str, place: str, job_path: Path) -> None:
        job = json.loads(job_path.read_text(encoding="utf-8"))
        kind = MlflowTracker if name == "mlflow" else TensorBoardTracker
        self._trackers[name] = kind(place, job["contract_digest"], job["recipe"])

    def take(self, event: Mapping[str, Any]) -> None:
        """Report an event of the telemetry of training."""
        payload = event["payload"]
        if event["event"] == "step":
            self._each(lambda tracker: tracker.log(_select("train", payload, _STEP), payload["step"]))
        elif event["event"] == "train_complete":
            self._each(lambda tracker: tracker.log(_select("result", payload, _RESULT), payload["num_steps"]))

    def end(self, code: int) -> None:
        """Log the exit code of training."""
        self._each(lambda tracker: tracker.end(code))

    def _each(self, act: Callable[[Tracker], None]) -> None:
        self._trackers = {
            name: tracker
            for name, tracker in self._trackers.items()
            if _succeeds(name, self._log_line, partial(act, tracker))
        }


def _succeeds(name: str, log_line: LogLine, act: Callable[[], object]) -> bool:
    """Call a tracker, and log a failure."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - of any library; the run goes on without the tracker
        words = (str(error).strip().splitlines() or [""])[0][:300]
        log_line(f"warning: {name} is left out: {type(error).__name__}: {words}. See MENS_TRACKERS")
        return False
    return True


def _select(group: str, payload: Mapping[str, Any], names: Iterable[str]) -> dict[str, float]:
    return {f"{group}/{name}": float(payload[name]) for name in names if payload.get(name) is not None}


def track_champion(setting: str, champion: Artifact, store: ArtifactStore, log_line: LogLine) -> None:
    """Register the champion with its figures in MLflow, if one is set.

    Raises:
        ConfigurationError: The setting is wrong.
    """
    for name, place in parse_trackers(setting):
        if name == "mlflow":
            shared = f"{store.remote.url}/{champion.kind}/{champion.key}" if store.remote is not None else None
            source = shared or champion.path.resolve().as_uri()
            _succeeds(name, log_line, partial(_register, place, champion, source))


def _register(uri: str, champion: Artifact, source: str) -> None:
    from mlflow.exceptions import MlflowException  # noqa: PLC0415 - of an extra

    client, manifest = _open_mlflow(uri), TrainingManifest.read(champion.file(MANIFEST))
    run_id = _find_run(client, manifest.contract_digest)
    for name, value in _list_figures(champion.file(RESULTS)):
        client.log_metric(run_id, name, value)
    try:
        client.get_registered_model(NAME)
    except MlflowException:
        client.create_registered_model(NAME)
    found: Sequence[Any] = client.search_model_versions(f"name = '{NAME}' and tags.`{_KEY}` = '{champion.key}'")
    version = (
        found[0]
        if found
        else client.create_model_version(NAME, source, run_id, tags={_KEY: champion.key}, description=manifest.name)
    )
    client.set_registered_model_alias(NAME, _CHAMPION, version.version)


def _list_figures(path: Path) -> Iterator[tuple[str, float]]:
    results = read_results(path)
    for suite, scores in results.adapter.suites.items() if results is not None else ():
        for name in _FIGURES:
            value = getattr(scores, name).value
            if value is not None:
                yield f"eval/{suite}/{name}", value


def _open_mlflow(uri: str) -> "MlflowClient":
    from mlflow import MlflowClient  # noqa: PLC0415 - of an extra

    return MlflowClient(uri, registry_uri=uri)


def _find_run(client: "MlflowClient", contract_digest: str) -> str:
    """Return the id of the run of a contract, which is begun if there is none."""
    experiment = client.get_experiment_by_name(NAME)
    number = experiment.experiment_id if experiment is not None else client.create_experiment(NAME)
    found = client.search_runs([number], f"tags.`{_CONTRACT}` = '{contract_digest}'", max_results=1)
    if found:
        return str(found[0].info.run_id)
    return str(client.create_run(number, tags={_CONTRACT: contract_digest}, run_name=contract_digest[:12]).info.run_id)
