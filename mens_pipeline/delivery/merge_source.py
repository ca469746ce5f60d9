"""The adapter to merge: that of a run, or the champion; refused where it cannot be merged."""

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mens_pipeline.corpus.curate.heldout_split import HELDOUT
from mens_pipeline.corpus.curate.heldout_split import KIND as SPLIT
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.delivery.agreement import spread
from mens_pipeline.errors import RefusedError
from mens_pipeline.evaluation.results import RESULTS, EvalResults, read_results
from mens_pipeline.evaluation.tasks import Suite, Task, heldout_tasks
from mens_pipeline.models.adapter import MANIFEST, Adapter, read_adapter_config
from mens_pipeline.models.base import Shape, find_recorded_base, shapes_in
from mens_pipeline.models.card import Form, Score, Standing, data_sources, model_card
from mens_pipeline.promotion.history import KIND as PROMOTED
from mens_pipeline.promotion.history import find_champion, find_withdrawn, read_history
from mens_pipeline.promotion.receipt import RECEIPT, Receipt, receipt_in
from mens_pipeline.storage.store import MANIFEST as STORE_MANIFEST
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of

if TYPE_CHECKING:
    from mens_pipeline.evaluation.statistics import Rate


_MATRIX: Final = re.compile(r"base_model\.model\.(?P<layer>.+)\.lora_(?P<half>[AB])\.weight")
_SHOWN: Final = 3
_ADVICE: Final = "Name the run that it was trained in."


def refuse_misfit(adapter: Adapter) -> None:
    """Check that an adapter can be merged into its base.

    Raises:
        RefusedError: The base is gone, another one or leads to one, or the adapter is not what training writes, or
            does not fit it.
    """
    base = adapter.manifest.base_model
    path = find_recorded_base(base)
    config = read_adapter_config(adapter.folder)
    weights = adapter.weights
    shapes = {name: shape for file in sorted(path.glob("*.safetensors")) for name, shape in shapes_in(file).items()}
    reasons = list(_find_reasons(shapes_in(weights), shapes, config.r))
    if reasons:
        shown = "; ".join(reasons[:_SHOWN])
        more = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
        raise RefusedError(f"{weights}: does not fit {base.name}: {shown}{more}. {_ADVICE}")


def _find_reasons(adapter: dict[str, Shape], base: dict[str, Shape], rank: int) -> Iterator[str]:
    """Yield a reason for everything that does not fit, a phrase each."""
    halves: dict[str, dict[str, Shape]] = {}
    for name, shape in adapter.items():
        found = _MATRIX.fullmatch(name)
        if found is None:
            yield f"{name} is no LoRA matrix"
        else:
            halves.setdefault(found["layer"], {})[found["half"]] = shape
    if not halves:
        yield "it holds no LoRA matrix at all"
    for layer, pair in halves.items():
        targets = [base[weight] for weight in find_weights(layer, base)]
        if not targets:
            yield f"the base has no {layer}"
        elif set(pair) != {"A", "B"}:
            yield f"{layer} has one matrix of two"
        elif not any(pair == {"A": (rank, target[1]), "B": (target[0], rank)} for target in targets):
            yield f"{layer} is {targets[0]}, the adapter has {pair['B']} by {pair['A']}, of rank {rank}"


def find_weights(layer: str, names: Collection[str]) -> list[str]:
    """Return the tensors that may be the weight of a layer: some families put other words before `layers.`."""
    if f"{layer}.weight" in names:
        return [f"{layer}.weight"]
    tail = layer[layer.find("layers.") :] if "layers." in layer else layer
    return [name for name in names if name.endswith(f".{tail}.weight")]


SCRATCH: Final = "scratch"
_SCRATCH_KIND: Final = "scratch_model"


@dataclass(frozen=True, slots=True)
class MergeSource:
    """An adapter that can be merged.

    Attributes:
        promoted: The same adapter in its promoted state; None when it was not promoted, or was taken out of use since.
        receipt: The verdict on this very adapter; None without one.
        verdict_sha256: Of its file, hexadecimal; likewise.
    """

    adapter: Adapter
    promoted: Artifact | None
    receipt: Receipt | None
    verdict_sha256: str | None


def merge_source(run: Path | None, store: ArtifactStore) -> MergeSource:
    """Return the adapter of a run, or the champion when no run is named.

    Raises:
        RefusedError: There is no champion; the run is not complete, or of the scratch lane; the adapter is no LoRA
            adapter, or of another base; the base is gone.
    """
    champion = find_champion(store) if run is None else None
    if run is None and champion is None:
        raise RefusedError(f"{store.root / PROMOTED}: no champion. Promote an adapter, or name one with --run-dir DIR.")
    folder = champion.path if champion is not None else run
    assert folder is not None, "one of the two is there"  # noqa: S101 - our own impossibility
    if lane_of(folder) == SCRATCH:
        mean = f"The mean of its checkpoints: mens merge-weights {folder} --output-dir DIR"
        advice = f"It is whole as it is, in {folder / 'model'}. {mean}"
        raise RefusedError(f"{folder}: a model of the scratch lane. {advice}")
    adapter = Adapter.open(folder)
    refuse_misfit(adapter)
    promoted = promoted_of(store, adapter.digest)
    where = promoted.path if promoted is not None else folder
    receipt = _verdict_on(adapter.digest, where)
    verdict_sha256 = digest_of(where / RECEIPT) if receipt is not None else None
    return MergeSource(adapter=adapter, promoted=promoted, receipt=receipt, verdict_sha256=verdict_sha256)


def lane_of(folder: Path) -> str | None:
    """Return the lane in the manifest of a run; None without a manifest or a lane."""
    for name in (MANIFEST, STORE_MANIFEST):
        path = folder / name
        if path.is_file():
            try:
                found = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError, RecursionError):
                return None  # the reader of the manifest refuses it with the place
            if not isinstance(found, dict):
                return None  # likewise
            if found.get("kind") == _SCRATCH_KIND:
                return SCRATCH
            if "lane" in found:
                return str(found["lane"])
    return None


def promoted_of(store: ArtifactStore, adapter_sha256: str) -> Artifact | None:
    """Return an adapter in its promoted state; None when it was not promoted, or a rollback took it out of use."""
    if adapter_sha256 in find_withdrawn(store):
        return None
    events = (event for event in reversed(read_history(store)) if event.adapter_sha256 == adapter_sha256)
    return next((found for event in events if (found := store.get(PROMOTED, event.key)) is not None), None)


def _verdict_on(adapter_sha256: str, folder: Path) -> Receipt | None:
    """Return the verdict in a folder; None when there is none, or when it is about another adapter."""
    if not (folder / RECEIPT).is_file():
        return None
    receipt = receipt_in(folder)
    is_about_it = receipt.subject is not None and receipt.subject.adapter_sha256 == adapter_sha256
    return receipt if is_about_it else None


@dataclass(frozen=True, slots=True)
class Prompts:
    """Held-out prompts that two models complete, and the digest of their file."""

    tasks: tuple[Task, ...]
    heldout_sha256: str


def prompts_of(
    source: MergeSource, named: Path | None, store: ArtifactStore, fits: Callable[[str], bool], number: int
) -> Prompts:
    """Return held-out prompts of a run whose completion fits, evenly spread; of a named file, or of that of the run.

    Raises:
        RefusedError: The held-out pairs are not to be found, or hold nothing to ask.
    """
    path = named if named is not None else _heldout_of(source, store)
    tasks = tuple(task for task in heldout_tasks(read_pairs(path)) if fits(task.reference))
    if not tasks:
        raise RefusedError(f"{path}: no held-out code whose completion fits. Name another file with --heldout FILE.")
    return Prompts(spread(tasks, number), digest_of(path))


def _heldout_of(source: MergeSource, store: ArtifactStore) -> Path:
    """Find the held-out pairs that the run was evaluated by; of one that was not, those beside its train set."""
    beside = store.locate(source.adapter.manifest.train_file).with_name(HELDOUT)
    subject = source.receipt.subject if source.receipt is not None else None
    if subject is None:
        if beside.is_file():
            return beside
        raise RefusedError(f"{beside}: no held-out pairs beside the train set. Name them with --heldout FILE.")
    splits = sorted((store.root / SPLIT).glob(f"*/{HELDOUT}"))
    for path in (beside, *splits):
        if path.is_file() and digest_of(path) == subject.heldout_sha256:
            return path
    found = f"no {HELDOUT} with SHA-256 {subject.heldout_sha256[:12]}, which it was evaluated by"
    raise RefusedError(f"{beside.parent}, {store.root / SPLIT}: {found}. Name the file with --heldout FILE.")


_SUITES: Final = {Suite.HELDOUT: "held-out prompts of the workspace", Suite.BENCHMARK: "benchmark"}
_METRICS: Final = (("parse_rate", "parse rate"), ("pass_at_1", "pass@1"))


def card_of_source(source: MergeSource, form: Form, data_licence: str | None) -> str:
    """Write the model card of an adapter, or of what it was merged into."""
    return model_card(
        source.adapter.manifest,
        form,
        sources=data_sources(source.adapter.manifest),
        standing=_standing(source),
        data_licence=data_licence,
        tokenizer_in=source.adapter.folder,
    )


def _standing(source: MergeSource) -> Standing | None:
    """Return the evaluation results of this very adapter; None without them."""
    folder = source.promoted.path if source.promoted is not None else source.adapter.path
    results = read_results(folder / RESULTS)
    if results is None or results.subject.adapter_sha256 != source.adapter.digest:
        return None
    receipt, decoding = source.receipt, results.decoding
    at_random = f"at temperature {decoding.temperature:g}, {decoding.num_samples} times"
    return Standing(
        scores=tuple(_scores(results)),
        how="greedily" if decoding.temperature == 0 else at_random,
        missing=results.adapter.overall.coverage.missing,
        policy=receipt.policy if receipt is not None else None,
        passed=receipt.overall_passed if receipt is not None else None,
        verdict_sha256=source.verdict_sha256,
    )


def _scores(results: EvalResults) -> Iterator[Score]:
    for suite, name in _SUITES.items():
        if suite in results.adapter.suites:
            base, adapter = results.base.suites[suite], results.adapter.suites[suite]
            for field, metric in _METRICS:
                of_base: Rate = getattr(base, field)
                of_adapter: Rate = getattr(adapter, field)
                yield Score(name, metric, str(of_base), str(of_adapter), of_adapter.value)
