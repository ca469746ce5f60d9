"""`mens merge`, `mens push` and `mens lineage`: merge an adapter, publish it, and trace its origin."""

import shutil
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from mens_pipeline.cli.options import REQUIRED, argument, declare_options, option, switch
from mens_pipeline.cli.terminal import (
    choose_device,
    interruptible,
    log_line,
    print_json,
    print_line,
    run_and_show,
    show_completions,
)
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.inference.generation import EvaluationConfig
from mens_pipeline.jobs.device import DeviceChoice
from mens_pipeline.settings import PIPELINE_CONFIG, Settings, load_settings, open_store
from mens_pipeline.storage.files import copy_folder, disk_error
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import Artifact, ArtifactStore

if TYPE_CHECKING:
    from mens_pipeline.delivery.agreement import Dtype
    from mens_pipeline.delivery.hub import PushPlan, Target
    from mens_pipeline.delivery.lineage import Link
    from mens_pipeline.delivery.merge import MergeSource, PreparedMerge


@declare_options
def merge(
    *,
    run_dir: Path | None = option(None, "The folder of a run of `mens train` [default: the champion].", metavar="DIR"),
    output: Path | None = option(None, "Also write a self-contained folder.", "--output", "-o", metavar="FOLDER"),
    dtype: Literal["float32", "bfloat16"] | None = option(
        None, "Type of the weights [default: that of the evaluation, which keeps every token]."
    ),
    gguf: Literal["f32", "f16", "q8_0"] | None = option(None, "Also write a GGUF file, for llama.cpp and Ollama."),
    prompts: int | None = option(None, "Number of held-out prompts to compare [default: 12].", ge=1, metavar="N"),
    heldout: Path | None = option(None, "Held-out pairs [default: those of its evaluation].", metavar="FILE"),
    device: DeviceChoice = option(DeviceChoice.BEST, "Device to use; `best` picks the best available one."),
    as_json: bool = switch("Print external_serving_handoff_v1.json.", "--json"),
) -> None:
    """Merge an adapter into its base, and prove that the result is the model that was evaluated.

    The adapter is added to the base dequantized from the four bits that it was trained and evaluated on. The result is
    loaded again like any model. It must write the same tokens for held-out prompts (99.9 %) at the same parse rate
    (0.2 points), or nothing is delivered. Writes a Hugging Face folder with card, merge_report.json and
    external_serving_handoff_v1.json; with --gguf also a GGUF file and a Modelfile for Ollama. An earlier merge of the
    same adapter is reused.

    Exit code 0: merged. 1: refused, or the result differs. 2: the command was misused. 130: interrupted.
    """
    from mens_pipeline.corpus.curate.pipeline_config import load_source_policy
    from mens_pipeline.delivery.gguf import build_gguf_model, refuse_unsupported
    from mens_pipeline.delivery.merge import build_merged_model, merge_source, refuse_difference
    from mens_pipeline.delivery.serving_handoff import (
        HANDOFF,
        Delivery,
        build_serving_handoff,
        refuse_foreign,
        write_folder,
    )

    settings = load_settings()
    store = open_store(settings)
    if output is not None:
        refuse_foreign(output)
    source = merge_source(run_dir, store, load_source_policy(PIPELINE_CONFIG))
    prepared = _prepare(source, store, settings, device, dtype, heldout, prompts)
    if gguf is not None:
        refuse_unsupported(prepared.job.reference.base_path)  # check this before a merge, which takes minutes
    gguf_model: Artifact | None = None
    with interruptible("run the same command again"):
        merged, reused = build_merged_model(prepared, store, _launch)
        log_line("nothing has changed since the last merge" if reused else f"merged into {merged.path}")
        report = refuse_difference(merged.path)
        log_line(report.summary)
        if gguf is not None:
            gguf_model, _ = build_gguf_model(merged, prepared, gguf, store, _launch)
    delivery = Delivery(source=source, merged=merged, gguf=gguf_model, data_licence=settings.data_licence)
    handoff = build_serving_handoff(delivery, store)[0].file(HANDOFF)
    if output is not None:
        handoff = write_folder(delivery, output)
    if as_json:
        typer.echo(handoff.read_text(encoding="utf-8"), nl=False)
        return
    verdict = "promoted" if source.promoted is not None else "not promoted"
    print_line(f"{source.adapter.manifest.name}, {verdict}: {report.summary}")
    print_line(f"model    {output or merged.path}")
    if gguf_model is not None:
        print_line(f"gguf     {next((output or gguf_model.path).glob('*.gguf'))}")
    print_line(f"hand-off {handoff}")


def _prepare(  # noqa: PLR0917 - options of the command
    source: "MergeSource",
    store: ArtifactStore,
    settings: Settings,
    device: DeviceChoice,
    dtype: "Dtype | None",
    heldout: Path | None,
    num_prompts: int | None,
) -> "PreparedMerge":
    from mens_pipeline.delivery.agreement import NUM_PROMPTS
    from mens_pipeline.delivery.merge import choose_prompts, prepare_merge
    from mens_pipeline.inference.prepare import Conditions, completion_fits
    from mens_pipeline.settings import EVALUATION
    from mens_pipeline.storage.yaml_file import load_model

    chosen = choose_device(device, settings)
    decoding = load_model(EVALUATION, EvaluationConfig).decoding
    asked = choose_prompts(
        source,
        heldout,
        store,
        completion_fits(source.adapter.manifest.base_model, decoding),
        num_prompts or NUM_PROMPTS,
    )
    log_line(f"adapter {source.adapter.digest[:12]} of {source.adapter.path}, {len(asked.tasks)} prompts to compare")
    conditions = Conditions(decoding, chosen, chosen.lock_in(settings.cache_root))
    work = store.root / Kind.MERGED_MODEL / f".work-{time.time_ns()}"
    return prepare_merge(source, asked, conditions, dtype, work)


def _launch(job_path: Path) -> int:
    return run_and_show(job_path, show_completions())


What = Literal["adapter", "train-set", "benchmark"]
"""Content of a repository on the Hub."""


@declare_options
def push(
    *,
    repo: str = option(REQUIRED, "The repository; if missing, it is created as private.", metavar="OWNER/NAME"),
    run_dir: Path | None = option(None, "The folder of a promoted run [default: the champion].", metavar="DIR"),
    revision: str = option("main", "The branch; if missing, it is created.", metavar="BRANCH"),
    what: What = option("adapter", "Content to send; train set and benchmark go to a dataset repository."),
    into: Path | None = option(None, "A new folder for a copy of the files.", metavar="DIR"),
    yes: bool = switch("Send the files; without it, only list them."),
) -> None:
    """Send a promoted adapter with card and figures to the Hub in one commit; a dry run without --yes.

    --what train-set sends its train set instead, --what benchmark the held-out benchmark with solutions and hidden
    tests; both need a licence in MENS_DATA_LICENCE. `datasets` loads them, also from --into.

    The files are those that were promoted, byte for byte, except that the name of the base replaces its folder.
    Nothing that names this machine is sent. The token is read from HF_TOKEN and never shown.

    Exit code 0: sent, or listed. 1: not promoted, or the Hub refuses it. 2: the command was misused.
    """
    from mens_pipeline.delivery import hub

    settings = load_settings()
    if into is not None and into.exists():
        raise ConfigurationError(f"--into {into}: already exists. Name a new folder.")
    target = hub.Target(repo, revision, "model" if what == "adapter" else "dataset")
    with tempfile.TemporaryDirectory(prefix="mens-push-") as staging:
        plan = _plan_push(what, run_dir, target, settings, Path(staging))
        if into is not None:
            try:
                copy_folder(Path(staging), into)
            except OSError as error:
                shutil.rmtree(into, ignore_errors=True)
                raise disk_error(error, f"--into {into}", "Name another folder.", is_named=True) from error
        files = [f"{file.num_bytes:>12,}  {file.sha256[:12]}  {file.name}" for file in plan.files]
        total = sum(file.num_bytes for file in plan.files)
        head = f"{plan.target.repo} at {plan.target.revision}: {plan.message}"
        print_line("\n".join([head, *files, f"{total:>12,}  bytes in {len(files)} files"]))
        if not yes:
            print_line("dry run: nothing was sent. Add --yes to send the files.", err=True)
            return
        pushed = hub.push(plan, settings.hub_token)
    print_line(f"commit {pushed.commit}\n{pushed.url}")


def _plan_push(what: What, run_dir: Path | None, target: "Target", settings: Settings, staging: Path) -> "PushPlan":
    from mens_pipeline.corpus.curate.pipeline_config import load_source_policy
    from mens_pipeline.delivery import hub
    from mens_pipeline.delivery.merge import merge_source

    if what == "benchmark":
        return hub.plan_benchmark(settings.benchmark_dir, target, settings.data_licence, staging)
    store = open_store(settings)
    source = merge_source(run_dir, store, load_source_policy(PIPELINE_CONFIG))
    if what == "train-set":
        return hub.plan_train_set(source, store, target, settings.data_licence, staging)
    return hub.plan_push(source, target, settings.data_licence, staging)


_SHOWN = 10


@declare_options
def lineage(
    *,
    adapter: str = argument("`champion`, or the start of the key of an adapter.", metavar="ADAPTER"),
    as_json: bool = switch("Print everything as one JSON document.", "--json"),
) -> None:
    """Print the origin of an adapter, down to files, lines and commits, and everything made from it.

    Exit code 0: printed. 1: there is no such adapter. 2: the command was misused.
    """
    from mens_pipeline.delivery.lineage import trace_lineage

    found = trace_lineage(open_store(load_settings()), adapter)
    if as_json:
        print_json(asdict(found))
        return
    print_line(f"adapter    {_format_link(found.adapter)}")
    for link in found.rests_on:
        print_line(f"made from  {_format_link(link)}")
    for name, count in found.rows.items():
        print_line(f"rows       {count:>7}  {name}")
    most = sorted(found.files.items(), key=lambda item: -item[1])
    for name, count in most[:_SHOWN]:
        lines = ", ".join(f"{first}-{last}" for first, last in found.lines[name])
        print_line(f"file       {count:>7}  {name}  lines {lines}")
    if len(most) > _SHOWN:
        print_line(f"           and {len(most) - _SHOWN} more files; --json lists them")
    print_line(f"commits    {', '.join(found.commits) or 'none on record'}")
    for link in found.used_by:
        print_line(f"used by    {_format_link(link)}")


def _format_link(link: "Link") -> str:
    gone = "" if link.is_there else "  (no longer in the store)"
    return f"{link.kind:<16}  {link.key[:12]}  {link.name}".rstrip() + gone
