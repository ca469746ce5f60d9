"""Store, thresholds and keys that the settings ask for."""

from pathlib import Path
from typing import TYPE_CHECKING

from mens_pipeline.errors import ConfigurationError, how_to_install
from mens_pipeline.settings import EVALUATION, GATE_POLICY, PROJECT_ROOT, Settings, load_settings

if TYPE_CHECKING:
    from mens_pipeline.promotion.conditions import Conditions
    from mens_pipeline.promotion.policy import Thresholds
    from mens_pipeline.storage.signing import Signing
    from mens_pipeline.storage.store import Artifact, ArtifactStore


def open_store(settings: Settings, root: str = "") -> "ArtifactStore":
    """Open the store of this process.

    Raises:
        ConfigurationError: The object storage or the keys that are asked for cannot be used.
    """
    from mens_pipeline.storage.store import ArtifactStore  # noqa: PLC0415 - most commands open no store

    folder, signing = (Path(root) if root else settings.store_root).resolve(), signing_of(settings)
    if settings.store_url is None:
        return ArtifactStore(folder, signing=signing)
    try:
        from mens_pipeline.storage.remote import Remote  # noqa: PLC0415 - of an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"MENS_STORE_URL: {error.name}: not installed. {how_to_install('cluster')}") from error
    return ArtifactStore(folder, Remote(settings.store_url), signing)


def thresholds_of(settings: Settings) -> "Thresholds":
    """Return the thresholds that a model must meet: the policy, and what the environment changes of it.

    Raises:
        ConfigurationError: There is no such policy.
    """
    from mens_pipeline.promotion.policy import load_gate_policy  # noqa: PLC0415 - most commands judge nothing

    policy, rate = load_gate_policy(GATE_POLICY).thresholds(settings.eval_policy), settings.eval_min_parse_rate
    coverage, benchmark = settings.eval_min_coverage, settings.benchmark_min_pass_rate
    return policy.replace_values(min_parse_rate=rate, min_coverage=coverage, min_benchmark=benchmark)


def policy_label(settings: Settings) -> str:
    """Name the policy, with all that the environment changes of it: `ci (min_parse_rate 0.0 by VOX_...)`.

    Of another policy than the default one, all is named that it demands otherwise.

    Raises:
        ConfigurationError: There is no such policy.
    """
    from mens_pipeline.promotion.policy import load_gate_policy  # noqa: PLC0415 - most commands judge nothing

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
        details.append(f"the benchmark has no say by {Settings.model_fields['benchmark'].validation_alias}")
    unusual = policy.unlike(policies.policies[usual]) if usual in policies.policies else ()
    if unusual:
        details.append(f"unlike {usual}: {', '.join(unusual)}")
    return f"{name} ({'; '.join(details)})" if details else name


def present_of(
    settings: Settings, evaluation: "Artifact", heldout: Path | None, heldout_problem: str = ""
) -> "Conditions":
    """Return what holds now, as far as it is of no one adapter, to find out whether a verdict is out of date.

    Raises:
        ConfigurationError: There is no such policy, or the benchmark cannot be read.
    """
    from mens_pipeline.evaluation.benchmark import digest_of_benchmark  # noqa: PLC0415 - likewise
    from mens_pipeline.evaluation.config import EvaluationConfig  # noqa: PLC0415 - likewise
    from mens_pipeline.evaluation.results import RESULTS  # noqa: PLC0415 - likewise
    from mens_pipeline.promotion.conditions import Conditions  # noqa: PLC0415 - likewise
    from mens_pipeline.storage.store import digest_of  # noqa: PLC0415 - most commands judge nothing
    from mens_pipeline.storage.yaml_file import load_model  # noqa: PLC0415 - likewise

    return Conditions(
        thresholds=thresholds_of(settings),
        results=evaluation.outputs[RESULTS],
        heldout=digest_of(heldout) if heldout is not None else None,
        heldout_problem=heldout_problem,
        benchmark=digest_of_benchmark(settings.benchmark_dir) if settings.benchmark else None,
        is_benchmark_asked=settings.benchmark,
        decoding=load_model(EVALUATION, EvaluationConfig).decoding,
    )


def signing_of(settings: Settings) -> "Signing | None":
    """Return the keys by which what counts is signed; None where none are set.

    Raises:
        ConfigurationError: They do not belong together, or the library is missing.
    """
    from mens_pipeline.storage.signing import Signing  # noqa: PLC0415 - likewise

    private = settings.signing_key
    return Signing.of(private.get_secret_value() if private is not None else None, settings.verify_key)


def artifact_commit(settings: Settings) -> str | None:
    """Return the commit that adapters are named after: VCS_SHA, else that of the workspace; None without either."""
    from mens_pipeline.corpus.extract.sources import head_commit  # noqa: PLC0415 - most commands name nothing

    return settings.vcs_sha or head_commit(settings.source_root)


def pipeline_commit() -> str | None:
    """Return the commit of this package, 40 hexadecimal digits; None where neither checkout nor `MENS_COMMIT` says."""
    from mens_pipeline.corpus.extract.sources import head_commit  # noqa: PLC0415 - most commands name nothing

    return head_commit(PROJECT_ROOT) if (PROJECT_ROOT / ".git").exists() else load_settings().commit or None
