"""Settings of the pipeline from environment variables; no other module reads them."""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from platformdirs import user_data_path
from pydantic import AliasChoices, Field, Json, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from mens_pipeline.errors import ConfigurationError, RefusedError, how_to_install
from mens_pipeline.jobs.device import UNCOUNTED, Device, DeviceChoice, resolve_device
from mens_pipeline.jobs.environment import num_processors
from mens_pipeline.models.base import look_in
from mens_pipeline.storage.validation import errors_in

if TYPE_CHECKING:
    from mens_pipeline.promotion.policy import Thresholds
    from mens_pipeline.promotion.verdict_basis import Terms
    from mens_pipeline.storage.store import Artifact, ArtifactStore

_PACKAGE: Final = Path(__file__).resolve().parent
_PACKAGED: Final = _PACKAGE / "packaged"  # only a wheel has this folder; see [tool.hatch.build] in pyproject.toml
PROJECT_ROOT: Final = _PACKAGED if _PACKAGED.is_dir() else _PACKAGE.parent
"""Folder of `config/`, the seed data in `data/`, and `dagster.yaml`, in a checkout or an installed wheel."""
_OUTPUTS: Final = user_data_path("mens-pipeline") if PROJECT_ROOT == _PACKAGED else PROJECT_ROOT / "data"
# Read once, when a process starts: the same variable as `Settings.config_root`.
_CONFIG: Final = Path(os.environ.get("MENS_CONFIG_ROOT", PROJECT_ROOT / "config"))
PRESETS: Final = _CONFIG / "presets.yaml"
DOMAINS: Final = _CONFIG / "domains.yaml"
RECIPES: Final = _CONFIG / "recipes.yaml"
PIPELINE_CONFIG: Final = _CONFIG / "pipeline.yaml"
MIX_CONFIG: Final = _CONFIG / "mix.yaml"
GATE_POLICY: Final = _CONFIG / "gates.yaml"
EVALUATION: Final = _CONFIG / "evaluation.yaml"
FEW_SHOT: Final = _CONFIG / "few_shot.md"
RETENTION: Final = _CONFIG / "retention.yaml"
KUBERAY: Final = _CONFIG / "kuberay.yaml"


_RECIPE: Final = "MENS_TRAIN_"
_SHORTEST_SECRET: Final = 16
_KEY: Final = re.compile("[0-9a-f]{64}")


class Settings(BaseSettings):
    """Environment variables of the pipeline."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    source_root: Path = Field(default=PROJECT_ROOT / "data", validation_alias="MENS_SOURCE_ROOT")
    """The Vox workspace to learn from: any folder that contains .vox files."""
    config_root: Path = Field(default=PROJECT_ROOT / "config", validation_alias="MENS_CONFIG_ROOT")
    """Folder of presets.yaml, gates.yaml and the other configuration: a copy of `config/`, edited."""
    strict_jsonl: bool = Field(default=False, validation_alias="VOX_MENS_TRAIN_JSONL_STRICT")
    """`1`: `mens corpus validate` ends at the first row that it would drop, and writes nothing."""
    store_root: Path = Field(default=_OUTPUTS / "store", validation_alias="MENS_STORE_ROOT")
    """Folder of the artifact store."""
    store_url: str | None = Field(default=None, pattern="^(s3|gs|az)://[^/]+", validation_alias="MENS_STORE_URL")
    """A shared bucket, s3://BUCKET/PREFIX (or gs, az), that MENS_STORE_ROOT then caches."""
    launcher: Literal["local", "ray", "kuberay"] = Field(default="local", validation_alias="MENS_LAUNCHER")
    """Launcher of trainings: local processes, a Ray cluster or, from Dagster, KubeRay."""
    ray_address: str | None = Field(default=None, validation_alias="RAY_ADDRESS")
    """The Ray cluster of this machine; with MENS_LAUNCHER=ray it also extracts and runs programs."""
    worker_device: Json[Device] | None = Field(default=None, validation_alias="MENS_WORKER_DEVICE")
    """Device of each Ray worker, as JSON: kind (cuda or cpu), name, memory_gb, has_bfloat16; for a CPU has_int8."""
    store_pages: str | None = Field(default=None, pattern=r"^https?://[^/\s]", validation_alias="MENS_STORE_PAGES")
    """Address of a web server for the store; the UI then links the pages of verdicts there."""
    commit: str = Field(default="", pattern="^([0-9a-f]{40})?$", validation_alias="MENS_COMMIT")
    """Commit of this package if there is no checkout, as in an image; verdicts and bills name it."""
    executor: str | None = Field(default=None, pattern=r"^[\w.]+:\w+$", validation_alias="MENS_EXECUTOR")
    """A Dagster executor, MODULE:NAME, for the steps of all jobs; it can place them by their tags."""
    cache_root: Path = Field(default=_OUTPUTS / "cache", validation_alias="MENS_CACHE_ROOT")
    """Folder of downloaded base models."""
    backend: Literal["cpu"] | None = Field(default=None, validation_alias="VOX_BACKEND")
    """`cpu`: train adapters and scratch models only on the CPU."""
    vcs_sha: str | None = Field(default=None, validation_alias="VCS_SHA", pattern="^[0-9A-Za-z._-]{4,64}$")
    """Name for adapters; by default the commit of the workspace."""
    num_workers: int = Field(default_factory=num_processors, ge=1, validation_alias="MENS_NUM_WORKERS")
    """Number of processes for the corpus; the result does not depend on it. Default: all CPUs."""
    telemetry_url: SecretStr | None = Field(default=None, validation_alias="MENS_TELEMETRY_URL")
    """A database with a telemetry table: sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE."""
    evol_gate: bool = Field(default=False, validation_alias="EVOL_GATE")
    """`1`: let models write training data."""
    evol_url: str | None = Field(default=None, validation_alias="MENS_EVOL_URL")
    """OpenAI-compatible endpoint of that model."""
    evol_model: str | None = Field(default=None, validation_alias="MENS_EVOL_MODEL")
    """Name of the model at the endpoint."""
    evol_api_key: SecretStr | None = Field(default=None, validation_alias="MENS_EVOL_API_KEY")
    """Key of the endpoint; sent nowhere else."""
    eval_policy: str = Field(default="ci", validation_alias="VOX_EVAL_POLICY")
    """Policy of config/gates.yaml."""
    eval_strict: bool = Field(
        default=False,
        validation_alias="VOX_EVAL_STRICT",
        description="`1`: a failing gate fails the run instead of warning; nothing is promoted either way. "
        "`1`, VOX_BENCHMARK=1 or a pass rate also make `mens train` evaluate and gate its adapter.",
    )
    eval_min_parse_rate: float | None = Field(default=None, ge=0, le=1, validation_alias="VOX_EVAL_MIN_PARSE_RATE")
    """Overrides the threshold of the policy; receipt, report and history record this."""
    eval_min_coverage: float | None = Field(default=None, ge=0, le=1, validation_alias="VOX_EVAL_MIN_COVERAGE")
    """Overrides the threshold of the policy in the same way."""
    benchmark: bool = Field(default=True, validation_alias="VOX_BENCHMARK")
    """Whether gates use the held-out benchmark."""
    benchmark_min_pass_rate: float | None = Field(
        default=None, ge=0, le=1, validation_alias="VOX_BENCHMARK_MIN_PASS_RATE"
    )
    """Minimum pass@1 on the benchmark, instead of the policy's; 0: no minimum."""
    benchmark_dir: Path = Field(default=PROJECT_ROOT / "data" / "heldout_bench", validation_alias="VOX_BENCHMARK_DIR")
    """Folder of the held-out benchmark."""
    side_branches: Literal["", "scratch"] = Field(default="", validation_alias="MENS_SIDE_BRANCHES")
    """`scratch`: add the model trained from scratch and its job to the UI."""
    environment: Literal["dev", "prod"] = Field(default="dev", validation_alias="MENS_ENV")
    """`prod`: schedules and sensors start running; otherwise a person switches them on."""
    override_key: SecretStr | None = Field(default=None, validation_alias="MENS_OVERRIDE_KEY")
    """Secret that signs and checks overrides, which promote against a verdict."""
    signing_key: SecretStr | None = Field(default=None, validation_alias="MENS_SIGNING_KEY")
    """Key from `openssl rand -hex 32`; signs evaluations, verdicts and champions, which must then be signed."""
    verify_key: str | None = Field(default=None, pattern="^[0-9a-f]{64}$", validation_alias="MENS_VERIFY_KEY")
    """Public key of MENS_SIGNING_KEY, for machines that check signatures but do not sign."""
    serve_token: SecretStr | None = Field(
        default=None, min_length=_SHORTEST_SECRET, validation_alias="MENS_SERVE_TOKEN"
    )
    """Token that requests to `mens serve` must carry; required if other machines can reach it."""
    serve_hosts: str = Field(default="", validation_alias="MENS_SERVE_HOSTS")
    """Host names, separated by commas, that a proxy on this machine uses for `mens serve` or the UI."""
    alert_url: SecretStr | None = Field(default=None, validation_alias="MENS_ALERT_URL")
    """Webhook for failed runs, refused adapters and a stale champion, as JSON."""
    data_licence: str | None = Field(default=None, validation_alias="MENS_DATA_LICENCE")
    """Licence of the workspace, for the model card; without it the card says "not stated"."""
    hub_token: SecretStr | None = Field(
        default=None, validation_alias=AliasChoices("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
    )
    """Token for `mens push` and the job `deliver`, also as HUGGING_FACE_HUB_TOKEN; never printed."""
    hub_repo: str | None = Field(default=None, validation_alias="MENS_HUB_REPO")
    """Repository, OWNER/NAME, to which the job `deliver` publishes promoted adapters; unset: it publishes nothing."""
    dagster_home: Path = Field(default=_OUTPUTS / "dagster", validation_alias="DAGSTER_HOME")
    """Folder of Dagster's runs and events, with a link to dagster.yaml."""

    @property
    def hosts(self) -> frozenset[str]:
        """The names of `serve_hosts`, in lower case."""
        return frozenset(host.strip().lower() for host in self.serve_hosts.split(",") if host.strip())

    @property
    def asks_to_evaluate(self) -> bool:
        """Whether the environment asks `mens train` to evaluate its adapter."""
        is_asked = "benchmark" in self.model_fields_set and self.benchmark
        return self.eval_strict or is_asked or bool(self.benchmark_min_pass_rate)

    @field_validator("signing_key")
    @classmethod
    def _is_a_key(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and not _KEY.fullmatch(key.get_secret_value()):
            raise ValueError("not 64 hexadecimal digits, as `openssl rand -hex 32` prints them")
        return key

    @field_validator("cache_root")
    @classmethod
    def _is_a_folder(cls, path: Path) -> Path:
        if path.exists() and not path.is_dir():
            raise ValueError("not a folder")
        return path

    @field_validator("alert_url")
    @classmethod
    def _is_of_the_web(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not url.get_secret_value().startswith(("http://", "https://")):
            raise ValueError("not an http or https address")
        return url


def load_settings() -> Settings:
    """Read the settings of this process, and look for base models in their cache from now on.

    A `ConfigurationError` names all variables with invalid values.
    """
    try:
        settings = Settings()
    except ValidationError as error:
        raise ConfigurationError(f"environment: {errors_in(error)}. Correct or unset these variables.") from error
    look_in(settings.cache_root / "base_models")
    return settings


def link_pages_at(address: str) -> None:
    """Set `MENS_STORE_PAGES` for the program that replaces this process, unless it is set."""
    os.environ.setdefault("MENS_STORE_PAGES", address)


def recipe_variables() -> dict[str, str]:
    """Return recipe fields that the environment sets: MENS_TRAIN_LEARNING_RATE is `learning_rate`."""
    return {name.removeprefix(_RECIPE).lower(): value for name, value in os.environ.items() if name.startswith(_RECIPE)}


def read_secret(variable: str) -> SecretStr:
    """Read a token from a variable of the user's choice; `ConfigurationError` if it is unset or too short."""
    value = os.environ.get(variable, "")
    if len(value) < _SHORTEST_SECRET:
        found = "not set" if not value else f"has {len(value)} characters"
        advice = "Set it to a secret, such as `openssl rand -hex 32` prints."
        raise ConfigurationError(f"{variable}: {found}, a token needs {_SHORTEST_SECRET}. {advice}")
    return SecretStr(value)


def find_device(choice: DeviceChoice, settings: Settings, *, trains: bool = False) -> Device:
    """Return a device of this machine or, for a training, the device of the launcher's workers.

    `RefusedError` if it is missing or forbidden; `ConfigurationError` if the device of the workers is unknown.
    """
    launcher, named, force_cpu = settings.launcher, settings.worker_device, settings.backend == "cpu"
    is_alone = launcher == "ray" and not settings.ray_address and "RAY_API_SERVER_ADDRESS" not in os.environ
    if not trains or launcher == "local" or (is_alone and named is None):
        return resolve_device(choice, force_cpu=force_cpu)
    if named is not None:
        wanted = DeviceChoice.CPU if force_cpu else choice
        if wanted not in {DeviceChoice.BEST, named.kind}:
            raise RefusedError(f"device {wanted}: MENS_WORKER_DEVICE says {named.kind}. Correct or unset one of them.")
        return replace(named, number=UNCOUNTED)
    if launcher == "ray" and settings.ray_address:
        from mens_pipeline.jobs.cluster import ask_cluster  # noqa: PLC0415 - optional dependency

        return ask_cluster(settings.ray_address, choice, force_cpu=force_cpu)
    example = """'{"kind": "cuda", "name": "H100", "memory_gb": 80, "has_bfloat16": true}'"""
    problem = "this machine does not know the device of the workers"
    raise ConfigurationError(f"MENS_LAUNCHER={launcher}: {problem}. Set MENS_WORKER_DEVICE={example}.")


def open_store(settings: Settings, root: str = "") -> "ArtifactStore":
    """Open the store that the settings name, with its keys; `root` replaces its folder.

    `ConfigurationError` if the object storage or the keys cannot be used.
    """
    from mens_pipeline.storage.signing import Signing  # noqa: PLC0415 - most commands open no store
    from mens_pipeline.storage.store import ArtifactStore  # noqa: PLC0415 - likewise

    private = settings.signing_key
    signing = Signing.of(private.get_secret_value() if private is not None else None, settings.verify_key)
    folder = (Path(root) if root else settings.store_root).resolve()
    if settings.store_url is None:
        return ArtifactStore(folder, signing=signing)
    try:
        from mens_pipeline.storage.remote import Remote  # noqa: PLC0415 - optional dependency
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"MENS_STORE_URL: {error.name}: not installed. {how_to_install('cluster')}") from error
    return ArtifactStore(folder, Remote(settings.store_url), signing)


def read_thresholds(settings: Settings) -> "Thresholds":
    """Return the thresholds of the policy, with the overrides of the environment applied."""
    from mens_pipeline.promotion.policy import load_gate_policy  # noqa: PLC0415 - few commands need it

    policy, rate = load_gate_policy(GATE_POLICY).thresholds(settings.eval_policy), settings.eval_min_parse_rate
    coverage, benchmark = settings.eval_min_coverage, settings.benchmark_min_pass_rate
    return policy.replace_values(min_parse_rate=rate, min_coverage=coverage, min_benchmark=benchmark)


def policy_label(settings: Settings) -> str:
    """Name the policy and every value that the environment overrides: `ci (min_parse_rate 0.0 by VOX_...)`.

    A policy other than the default lists all thresholds that differ from it.
    """
    from mens_pipeline.promotion.policy import load_gate_policy  # noqa: PLC0415 - few commands need it

    policies, name = load_gate_policy(GATE_POLICY), settings.eval_policy
    policy, usual = policies.thresholds(name), Settings.model_fields["eval_policy"].default
    changes = (
        ("min_parse_rate", "eval_min_parse_rate"),
        ("min_coverage", "eval_min_coverage"),
        ("min_benchmark", "benchmark_min_pass_rate"),
    )
    details = [
        f"{field} {value} by {Settings.model_fields[setting].validation_alias}"
        for field, setting in changes
        if (value := getattr(settings, setting)) is not None and value != getattr(policy, field)
    ]
    if not settings.benchmark:
        details.append(f"benchmark gate off: {Settings.model_fields['benchmark'].validation_alias}")
    unusual = policy.unlike(policies.policies[usual]) if usual in policies.policies else ()
    if unusual:
        details.append(f"unlike {usual}: {', '.join(unusual)}")
    return f"{name} ({'; '.join(details)})" if details else name


def artifact_commit(settings: Settings) -> str | None:
    """Return the commit for the names of adapters: VCS_SHA, else the commit of the workspace, else None."""
    from mens_pipeline.corpus.extract.git import head_commit  # noqa: PLC0415 - few commands need it

    return settings.vcs_sha or head_commit(settings.source_root)


def pipeline_commit() -> str | None:
    """Return the commit of this package, 40 hexadecimal digits; None without a checkout and without `MENS_COMMIT`."""
    from mens_pipeline.corpus.extract.git import head_commit  # noqa: PLC0415 - few commands need it

    return head_commit(PROJECT_ROOT) if (PROJECT_ROOT / ".git").exists() else load_settings().commit or None


def read_terms(settings: Settings, evaluation: "Artifact", heldout: Path | None, heldout_problem: str = "") -> "Terms":
    """Return the conditions that an adapter must meet now: policy, benchmark, decoding, figures, held-out pairs."""
    from mens_pipeline.evaluation.benchmark import digest_of_benchmark  # noqa: PLC0415 - few commands need it
    from mens_pipeline.evaluation.results import RESULTS  # noqa: PLC0415 - likewise
    from mens_pipeline.inference.generation import EvaluationConfig  # noqa: PLC0415 - likewise
    from mens_pipeline.promotion.verdict_basis import Terms  # noqa: PLC0415 - likewise
    from mens_pipeline.storage.store import digest_of  # noqa: PLC0415 - likewise
    from mens_pipeline.storage.yaml_file import load_model  # noqa: PLC0415 - likewise

    return Terms(
        thresholds=read_thresholds(settings),
        is_benchmark_asked=settings.benchmark,
        benchmark=digest_of_benchmark(settings.benchmark_dir) if settings.benchmark else None,
        decoding=load_model(EVALUATION, EvaluationConfig).decoding,
        heldout=digest_of(heldout) if heldout is not None else None,
        results=evaluation.outputs[RESULTS],
        heldout_problem=heldout_problem,
    )
