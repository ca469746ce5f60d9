"""`mens merge`: from an adapter to a model that anybody can serve."""

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mens_pipeline.cli.progress import run_and_show, show_answers
from mens_pipeline.cli.terminal import INTERRUPTED, say, tell
from mens_pipeline.training.devices import DeviceChoice

if TYPE_CHECKING:
    from mens_pipeline.delivery.merge_source import MergeSource
    from mens_pipeline.delivery.merged_model import PreparedMerge
    from mens_pipeline.settings import Settings
    from mens_pipeline.storage.store import Artifact, ArtifactStore


class Dtype(StrEnum):
    """Data types for merged weights."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class Gguf(StrEnum):
    """Data types for the matrices of a GGUF file."""

    F32 = "f32"
    F16 = "f16"
    Q8_0 = "q8_0"


def merge(  # noqa: PLR0913 - one parameter an option
    *,
    run_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder of a run of `mens train` [default: the champion].")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="A folder that stands alone, to copy.")
    ] = None,
    dtype: Annotated[
        Dtype | None, typer.Option(help="Of the weights [default: what it was judged in, which keeps every token].")
    ] = None,
    gguf: Annotated[Gguf | None, typer.Option(help="Write it for llama.cpp and Ollama as well.")] = None,
    prompts: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Held-out prompts that are compared [default: 12].")
    ] = None,
    heldout: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Held-out pairs [default: those that it was judged by].")
    ] = None,
    device: Annotated[DeviceChoice, typer.Option(help="Never another one in its place.")] = DeviceChoice.BEST,
    as_json: Annotated[bool, typer.Option("--json", help="Print external_serving_handoff_v1.json.")] = False,
) -> None:
    """Merge an adapter into its base, and prove that what comes out is the model that was judged.

    The adapter is added to the four-bit weights restored, on which it was trained and judged. The folder is loaded anew
    as any program would, and must write the same tokens to held-out prompts (99.9 %) with the same share of Vox (0.2
    points); otherwise nothing is handed on. Writes a folder of Hugging Face with card, merge_report.json and
    external_serving_handoff_v1.json; with --gguf a GGUF file and a Modelfile for Ollama. What was merged before is not
    merged again.

    Exit code 0: merged. 1: refused, or another model came out. 2: the command was misused. 130: interrupted.
    """
    from mens_pipeline.configured import open_store
    from mens_pipeline.delivery.gguf_model import build_gguf_model
    from mens_pipeline.delivery.gguf_support import refuse_unsupported
    from mens_pipeline.delivery.handoff import HANDOFF
    from mens_pipeline.delivery.merge_source import merge_source
    from mens_pipeline.delivery.merged_model import build_merged_model, refuse_difference
    from mens_pipeline.delivery.serving_handoff import (
        Delivery,
        build_serving_handoff,
        refuse_foreign,
        write_folder,
    )
    from mens_pipeline.settings import load_settings

    settings = load_settings()
    store = open_store(settings)
    if output is not None:
        refuse_foreign(output)
    source = merge_source(run_dir, store)
    prepared = _prepare(source, store, settings, device, dtype, heldout, prompts)
    if gguf is not None:
        refuse_unsupported(prepared.job.reference.base_path)  # before the minutes that a merge takes
    gguf_model: Artifact | None = None
    try:
        merged, reused = build_merged_model(prepared, store, _launch)
        tell("nothing has changed since this was merged before" if reused else f"merged into {merged.path}")
        report = refuse_difference(merged.path)
        tell(report.summary)
        if gguf is not None:
            gguf_model, _ = build_gguf_model(merged, prepared, gguf.value, store, _launch)
    except KeyboardInterrupt:
        tell("interrupted; run the same command again")
        raise typer.Exit(INTERRUPTED) from None
    delivery = Delivery(source, merged, gguf_model, settings.data_licence)
    handoff = build_serving_handoff(delivery, store)[0].path / HANDOFF
    if output is not None:
        handoff = write_folder(delivery, output)
    if as_json:
        typer.echo(handoff.read_text(encoding="utf-8"), nl=False)
        return
    verdict = "promoted" if source.promoted is not None else "not promoted"
    say(f"{prepared.source.manifest['name']}, {verdict}: {report.summary}")
    say(f"model    {output or merged.path}")
    if gguf_model is not None:
        say(f"gguf     {_gguf_file(output or gguf_model.path)}")
    say(f"hand-off {handoff}")


def _prepare(  # noqa: PLR0913, PLR0917 - what the command was told
    source: "MergeSource",
    store: "ArtifactStore",
    settings: "Settings",
    device: DeviceChoice,
    dtype: Dtype | None,
    heldout: Path | None,
    num_prompts: int | None,
) -> "PreparedMerge":
    from mens_pipeline.delivery.agreement import NUM_PROMPTS
    from mens_pipeline.delivery.merge_prompts import prompts_of
    from mens_pipeline.delivery.merged_model import KIND, prepare_merge
    from mens_pipeline.inference.generation import EvaluationConfig
    from mens_pipeline.inference.prepare import Conditions, answer_fits
    from mens_pipeline.settings import EVALUATION
    from mens_pipeline.storage.yaml_file import load_model
    from mens_pipeline.training.devices import resolve_device

    chosen = resolve_device(device, force_cpu=settings.backend == "cpu")
    tell(f"device {chosen.kind}: {chosen.name}")
    decoding = load_model(EVALUATION, EvaluationConfig).decoding
    asked = prompts_of(source, heldout, store, answer_fits(source.manifest, decoding), num_prompts or NUM_PROMPTS)
    tell(f"adapter {source.adapter_sha256[:12]} of {source.run}, {len(asked.tasks)} prompts to compare by")
    conditions = Conditions(decoding, chosen, settings.cache_root / f"{chosen.kind}.lock")
    work = store.root / KIND / f".work-{time.time_ns()}"
    return prepare_merge(source, asked, conditions, dtype.value if dtype is not None else None, work)


def _launch(job_path: Path) -> int:
    from mens_pipeline.delivery.merge_job import MODULE, PROGRESS

    return run_and_show(MODULE, job_path, PROGRESS, show_answers())


def _gguf_file(folder: Path) -> Path:
    return next(folder.glob("*.gguf"))
