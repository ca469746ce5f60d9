"""The bill of materials of a promoted model: base, source files with their licences, synthetic share, versions.

It lies with the model as JSON of CycloneDX 1.6, which other tools read, and as a page with the same facts for people.
"""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mens_pipeline.corpus.extract.extracted_corpus import FILES
from mens_pipeline.corpus.extract.extracted_corpus import KIND as EXTRACTED
from mens_pipeline.corpus.schema.records import SourceKind
from mens_pipeline.corpus.schema.training_pair import TrainingPair, read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.models.adapter import MANIFEST, TrainingManifest, adapter_digest
from mens_pipeline.models.base import find_recorded_base
from mens_pipeline.models.card import base_name, plain
from mens_pipeline.models.tokenizer_file import FileTokenizer
from mens_pipeline.storage.store import ArtifactStore, digest_of

if TYPE_CHECKING:
    from cyclonedx.model import Property
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component

BILL: Final = "bom.cdx.json"
BILL_PAGE: Final = "bill_of_materials.md"

_NOT_ON_RECORD: Final = "not on record"
_NUM_SHOWN: Final = 100
"""Files on the page; the JSON has all of them."""


class Origin(StrEnum):
    """Origin of the rows of a train set."""

    FILES = "files of the workspace"
    TEMPLATES = "templates (synthetic)"
    MODELS = "written by a model (synthetic)"
    TELEMETRY = "telemetry"
    ELSEWHERE = "rows without a source"


_ORIGINS: Final = {
    SourceKind.SYNTHETIC: Origin.TEMPLATES,
    SourceKind.EVOLVED: Origin.MODELS,
    SourceKind.TELEMETRY: Origin.TELEMETRY,
}


@dataclass(frozen=True, slots=True)
class SourceFileShare:
    """A source file, with what the train set holds of it.

    `blob` is its SHA-256, hexadecimal; `commit` that of the workspace. `licence` is an SPDX expression or `unknown`,
    None where it is not on record. `amount` is in the unit of the bill, with repeats.
    """

    path: str
    blob: str
    commit: str | None
    licence: str | None
    amount: int


@dataclass(frozen=True, slots=True)
class Bill:
    """All that a model is made of.

    `unit` is what amounts count: tokens of the base, or characters where the base is not on this machine. Without the
    train set on record there are neither files nor amounts.
    """

    manifest: TrainingManifest
    adapter_sha256: str
    timestamp_unix: int
    unit: str
    num_rows: int
    amounts: Mapping[Origin, int]
    files: tuple[SourceFileShare, ...]

    @property
    def total(self) -> int:
        """Size of the train set, in the unit."""
        return sum(self.amounts.values())

    @property
    def synthetic_share(self) -> float | None:
        """Share of the train set that no person wrote; None without it."""
        synthetic = self.amounts.get(Origin.TEMPLATES, 0) + self.amounts.get(Origin.MODELS, 0)
        return synthetic / self.total if self.total else None

    @property
    def components(self) -> dict[str, str]:
        """The software that made it, with its versions."""
        return {"mens-pipeline": version("mens-pipeline"), **self.manifest.libraries}


def write_bill(folder: Path, store: ArtifactStore, timestamp_unix: int) -> None:
    """Write the bill of materials of the adapter in a folder beside it: the same bytes for the same adapter and time.

    Raises:
        RefusedError: The adapter or its manifest is not complete.
    """
    bill = bill_of(folder, store, timestamp_unix)
    (folder / BILL).write_text(as_cyclonedx(bill), encoding="utf-8")
    (folder / BILL_PAGE).write_text(as_page(bill), encoding="utf-8")


def bill_of(run: Path, store: ArtifactStore, timestamp_unix: int) -> Bill:
    """Gather what the adapter in a folder is made of, from its manifest, its train set, and the corpus behind that."""
    manifest = TrainingManifest.read(run / MANIFEST)
    train_file = store.locate(manifest.train_file)
    is_there = train_file.is_file() and digest_of(train_file) == manifest.train_sha256
    rows = Counter(read_pairs(train_file)) if is_there else Counter[TrainingPair]()
    unit, measure = _measure(manifest)
    licences = _recorded_licences(store, train_file)
    amounts: Counter[Origin] = Counter()
    files: Counter[tuple[str, str, str | None]] = Counter()
    for row, repeats in rows.items():
        amount = repeats * sum(map(measure, _texts(row)))
        origin = Origin.ELSEWHERE if row.source is None else _ORIGINS.get(row.source.kind, Origin.FILES)
        amounts[origin] += amount
        if row.source is not None and origin is Origin.FILES:
            files[row.source.path, row.source.blob, row.source.commit] += amount
    shares = (SourceFileShare(*file, licences.get(file[:2]), amount) for file, amount in files.items())
    return Bill(
        manifest=manifest,
        adapter_sha256=adapter_digest(run),
        timestamp_unix=timestamp_unix,
        unit=unit,
        num_rows=rows.total(),
        amounts=amounts,
        files=tuple(sorted(shares, key=lambda file: (-file.amount, file.path))),
    )


def _texts(row: TrainingPair) -> tuple[str, ...]:
    return (row.prompt, row.response, *((row.infill.suffix,) if row.infill is not None else ()))


def _measure(manifest: TrainingManifest) -> tuple[str, Callable[[str], int]]:
    try:
        tokenizer = FileTokenizer(find_recorded_base(manifest.base_model))
    except RefusedError:  # an adapter may be promoted where its base is not; the bill then says what it counts
        return "characters", len
    return "tokens", lambda text: len(tokenizer.encode(text, add_special_tokens=False))


def _recorded_licences(store: ArtifactStore, train_file: Path) -> dict[tuple[str, str], str]:
    """Return the licences of files by path and SHA-256, as the corpus behind a train set has them."""
    waiting, seen = list(store.holding(train_file)), set()
    for artifact in waiting:
        if artifact.kind == EXTRACTED:
            with (artifact.path / FILES).open(encoding="utf-8") as lines:
                accounts = [json.loads(line) for line in lines]
            return {(found["path"], found["blob"]): found["licence"] for found in accounts if "licence" in found}
        refs = [ref for ref in artifact.parents if (ref.kind, ref.key) not in seen]
        seen.update((ref.kind, ref.key) for ref in refs)
        waiting += [parent for ref in refs if (parent := store.get(ref.kind, ref.key)) is not None]
    return {}


def as_cyclonedx(bill: Bill) -> str:
    """Format a bill as JSON of CycloneDX 1.6."""
    from cyclonedx.output.json import JsonV1Dot6  # noqa: PLC0415 - a promotion alone needs it

    return JsonV1Dot6(_document(bill)).output_as_string(indent=2) + "\n"


def _document(bill: Bill) -> "Bom":
    """Return a bill as the library has it: the adapter, and all that it depends on."""
    from cyclonedx.model import HashAlgorithm, HashType  # noqa: PLC0415 - a promotion alone needs it
    from cyclonedx.model.bom import Bom, BomMetaData  # noqa: PLC0415 - likewise
    from cyclonedx.model.component import Component, ComponentType  # noqa: PLC0415 - likewise
    from packageurl import PackageURL  # noqa: PLC0415 - likewise

    manifest, base = bill.manifest, bill.manifest.base_model
    files = [
        Component(
            type=ComponentType.FILE,
            name=file.path,
            bom_ref=f"file:{file.blob}:{file.path}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=file.blob)],
            properties=_properties(bill, commit=file.commit, licence=file.licence, amount=file.amount),
        )
        for file in bill.files
    ]
    for component, file in zip(files, bill.files, strict=True):
        _licence(component, file.licence)
    train_set = Component(
        type=ComponentType.DATA,
        name="train set",
        version=manifest.train_sha256[:12],
        bom_ref=f"train-set:{manifest.train_sha256}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=manifest.train_sha256)],
        components=files,
        properties=[
            *_properties(bill, amount=bill.total, rows=bill.num_rows, synthetic_share=bill.synthetic_share),
            *_properties(bill, **{f"from {origin}": amount for origin, amount in bill.amounts.items()}),
        ],
    )
    of_base = Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        name=base_name(base),
        version=base.revision or base.sha256[:12],
        bom_ref=f"base-model:{base.sha256}",
        properties=_properties(bill, sha256=base.sha256, architecture=base.architecture, parameters=base.num_parameters),
    )
    _licence(of_base, base.licence)
    libraries = [
        Component(name=name, version=number, bom_ref=f"library:{name}", purl=PackageURL("pypi", None, name, number))
        for name, number in bill.components.items()
    ]
    adapter = Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        name=manifest.name,
        version=bill.adapter_sha256[:12],
        bom_ref=f"adapter:{bill.adapter_sha256}",
        properties=_properties(bill, sha256=bill.adapter_sha256, contract=manifest.contract_digest, commit=manifest.vcs_sha),
    )
    parts = (of_base, train_set, *libraries)
    bom = Bom(
        components=parts,
        serial_number=uuid.uuid5(uuid.NAMESPACE_OID, f"{bill.adapter_sha256} {bill.timestamp_unix}"),
        metadata=BomMetaData(component=adapter, timestamp=datetime.fromtimestamp(bill.timestamp_unix, UTC)),
    )
    bom.register_dependency(adapter, parts)
    bom.register_dependency(train_set, files)
    return bom


def _properties(bill: Bill, **values: str | float | None) -> "Iterator[Property]":
    """Yield what CycloneDX has no field for, under our own names; an amount with its unit and share."""
    from cyclonedx.model import Property  # noqa: PLC0415 - a promotion alone needs it

    for name, value in values.items():
        is_amount = name == "amount" or name.startswith("from ")
        if is_amount and bill.total:
            yield Property(name=f"mens:{name.replace('amount', 'share')} of {bill.unit}", value=f"{float(value or 0) / bill.total:.6f}")
        shown = _NOT_ON_RECORD if value is None else f"{value:.6f}" if isinstance(value, float) else str(value)
        yield Property(name=f"mens:{name.replace('amount', bill.unit)}", value=shown)


def _licence(component: "Component", licence: str | None) -> None:
    from cyclonedx.contrib.license.factories import LicenseFactory
