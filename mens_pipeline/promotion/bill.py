"""The bill of materials of a promoted model, as CycloneDX 1.6: base, source files, licences, synthetic share."""

import json
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mens_pipeline.corpus.schema.records import FILES, UNKNOWN_LICENCE, SourceKind, TrainingPair, read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.models.adapter import Adapter, TrainingManifest
from mens_pipeline.models.base import FileTokenizer, find_recorded_base
from mens_pipeline.models.card import base_name
from mens_pipeline.models.chat import encode_plain
from mens_pipeline.storage.kinds import PromotedFile
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of

if TYPE_CHECKING:
    from cyclonedx.model.license import License

    from mens_pipeline.corpus.extract.forgotten import SourcePolicy

BILL: Final = PromotedFile.BILL

_NOT_ON_RECORD: Final = "not on record"
_SHOWN: Final = 5


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
    """A source file, and its amount in the train set.

    `blob` is its SHA-256, hexadecimal; `commit` and `remote` identify its git checkout. `licence` is an SPDX
    expression or `unknown`; None if it was not recorded. `amount` is in the unit of the bill, with repeats.
    """

    path: str
    blob: str
    commit: str | None
    licence: str | None
    remote: str | None
    amount: int


@dataclass(frozen=True, slots=True)
class Bill:
    """The bill of materials of a model.

    Amounts count `unit`: tokens of the base, or characters if the base is not on this machine. Without the train set,
    files and amounts are empty.
    """

    manifest: TrainingManifest
    adapter_sha256: str
    timestamp_unix: int
    unit: str
    num_rows: int
    amounts: Mapping[Origin, int]
    files: tuple[SourceFileShare, ...]
    git_problems: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Size of the train set, in the unit."""
        return sum(self.amounts.values())

    @property
    def synthetic_share(self) -> float | None:
        """Share of the train set that is synthetic; None without the train set."""
        synthetic = self.amounts.get(Origin.TEMPLATES, 0) + self.amounts.get(Origin.MODELS, 0)
        return synthetic / self.total if self.total else None

    @property
    def libraries(self) -> dict[str, str]:
        """Versions of the libraries that trained it."""
        known = {name: number for name, number in self.manifest.libraries.items() if name.strip()}
        return {"mens-pipeline": version("mens-pipeline"), **known}


def write_bill(adapter: Adapter, store: ArtifactStore, timestamp_unix: int) -> None:
    """Write the bill of materials next to an adapter: the same bytes for the same adapter and time."""
    (adapter.path / BILL).write_text(as_cyclonedx(build_bill(adapter, store, timestamp_unix)), encoding="utf-8")


def copy_bill(promoted: Artifact, folder: Path) -> None:
    """Copy the bill of materials of a promoted adapter."""
    shutil.copy2(promoted.file(BILL), folder / BILL)


class SeenFile(NamedTuple):
    """A source file of a train set: path, SHA-256, and licence; None if it was not recorded."""

    path: str
    sha256: str
    licence: str | None


def files_in_bill(promoted: Artifact) -> Iterator[SeenFile]:
    """Yield the source files in the bill of a promoted adapter; `RefusedError` if the bill is damaged."""
    path = promoted.file(BILL)
    try:
        parts = json.loads(path.read_text(encoding="utf-8"))["components"] if BILL in promoted.outputs else ()
        for file in (file for part in parts for file in part.get("components", ())):
            recorded = {value["name"]: value["value"] for value in file["properties"]}
            licence = recorded.get("mens:licence", _NOT_ON_RECORD)
            yield SeenFile(file["name"], file["hashes"][0]["content"], None if licence == _NOT_ON_RECORD else licence)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RefusedError(f"{path}: damaged ({error}). Restore it, or promote the run again.") from error


def format_refused_files(promoted: Artifact | None, policy: "SourcePolicy") -> str:
    """Format a notice about files that trained a promoted adapter but may no longer train; empty without any."""
    files = files_in_bill(promoted) if promoted is not None else ()
    paths = sorted({file.path for file in files if policy.refuses(*file)})
    if not paths:
        return ""
    shown = ", ".join(paths[:_SHOWN]) + (f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else "")
    return f"It was trained on files that are now excluded: {shown}. Train without them: mens run"


def build_bill(adapter: Adapter, store: ArtifactStore, timestamp_unix: int) -> Bill:
    """List the sources of an adapter, from its manifest, its train set, and the corpus of that train set."""
    manifest = adapter.manifest
    train_file = store.locate(manifest.train_file)
    is_there = train_file.is_file() and digest_of(train_file) == manifest.train_sha256
    rows = Counter(read_pairs(train_file)) if is_there else Counter[TrainingPair]()
    unit, measure = _measure(manifest)
    accounts, problems = read_sources(store, train_file)
    amounts: Counter[Origin] = Counter()
    files: Counter[tuple[str, str, str | None]] = Counter()
    for row, repeats in rows.items():
        amount = repeats * sum(map(measure, _texts(row)))
        origin = Origin.ELSEWHERE if row.source is None else _ORIGINS.get(row.source.kind, Origin.FILES)
        amounts[origin] += amount
        if row.source is not None and origin is Origin.FILES:
            files[row.source.path, row.source.blob, row.source.commit] += amount
    shares = (
        SourceFileShare(*file, found.get("licence"), found.get("remote"), amount)
        for file, amount in files.items()
        for found in [accounts.get(file[:2], {})]
    )
    return Bill(
        manifest=manifest,
        adapter_sha256=adapter.digest,
        timestamp_unix=timestamp_unix,
        unit=unit,
        num_rows=rows.total(),
        amounts=amounts,
        files=tuple(sorted(shares, key=lambda file: (-file.amount, file.path))),
        git_problems=problems,
    )


def _texts(row: TrainingPair) -> tuple[str, ...]:
    return (row.prompt, row.response, *((row.infill.suffix,) if row.infill is not None else ()))


def _measure(manifest: TrainingManifest) -> tuple[str, Callable[[str], int]]:
    try:
        tokenizer = FileTokenizer(find_recorded_base(manifest.base_model))
    except RefusedError:  # the base may be on another machine only; the bill names its unit
        return "characters", len
    return "tokens", lambda text: len(encode_plain(tokenizer, text))


def read_sources(
    store: ArtifactStore, train_file: Path
) -> tuple[dict[tuple[str, str], dict[str, Any]], tuple[str, ...]]:
    """Return accounts of source files by path and SHA-256, and problems of git, from the corpus of a train set."""
    waiting = list(store.holding(train_file))
    seen: set[tuple[str, str]] = set()
    for artifact in waiting:
        if FILES in artifact.outputs:
            with artifact.file(FILES).open(encoding="utf-8") as lines:
                accounts = [json.loads(line) for line in lines]
            checkouts = artifact.inputs.get("checkouts", ())
            problems = tuple(f"{found['folder']}: {found['problem']}" for found in checkouts if found["problem"])
            return {(found["path"], found["blob"]): found for found in accounts}, problems
        refs = [ref for ref in artifact.parents if (ref.kind, ref.key) not in seen]
        seen.update((ref.kind, ref.key) for ref in refs)
        waiting += [parent for ref in refs if (parent := store.get(ref.kind, ref.key)) is not None]
    return {}, ()


def as_cyclonedx(bill: Bill) -> str:
    """Format a bill as CycloneDX 1.6 JSON; properties outside the standard start with `mens:`."""
    from cyclonedx.model import HashAlgorithm, HashType, Property  # noqa: PLC0415 - only promotions need it
    from cyclonedx.model.bom import Bom, BomMetaData  # noqa: PLC0415 - likewise
    from cyclonedx.model.component import Component, ComponentType  # noqa: PLC0415 - likewise
    from cyclonedx.output.json import JsonV1Dot6  # noqa: PLC0415 - likewise
    from packageurl import PackageURL  # noqa: PLC0415 - likewise

    def properties(**values: object) -> list[Property]:
        return [Property(name=f"mens:{name}", value=_format_value(value)) for name, value in values.items()]

    def sha256(digest: str) -> list[HashType]:
        return [HashType(alg=HashAlgorithm.SHA_256, content=digest)]

    manifest, base, unit, licences = bill.manifest, bill.manifest.base_model, bill.unit, _Licensed()
    files = [
        Component(
            type=ComponentType.FILE,
            name=file.path,
            bom_ref=f"file:{file.blob}:{file.path}",
            hashes=sha256(file.blob),
            licenses=licences.of(file.licence),
            properties=properties(
                commit=file.commit,
                remote=file.remote,
                licence=file.licence,
                share=file.amount / bill.total,
                **{unit: file.amount},
            ),
        )
        for file in bill.files
    ]
    origins = {f"{unit} from {origin}": amount for origin, amount in bill.amounts.items()}
    train_set = Component(
        type=ComponentType.DATA,
        name="train set",
        version=manifest.train_sha256[:12],
        bom_ref=f"train-set:{manifest.train_sha256}",
        hashes=sha256(manifest.train_sha256),
        components=files,
        properties=properties(
            rows=bill.num_rows or None, synthetic_share=bill.synthetic_share, **{unit: bill.total or None}, **origins
        )
        + [Property(name="mens:git", value=problem) for problem in bill.git_problems],
    )
    base_model = Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        name=base_name(base),
        version=base.revision or base.sha256[:12],
        bom_ref=f"base-model:{base.sha256}",
        licenses=licences.of(base.licence),
        properties=properties(sha256=base.sha256, architecture=base.architecture, licence=base.licence),
    )
    libraries = [
        Component(name=name, version=number, bom_ref=f"library:{name}", purl=PackageURL("pypi", None, name, number))
        for name, number in bill.libraries.items()
    ]
    adapter = Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        name=manifest.name,
        version=bill.adapter_sha256[:12],
        bom_ref=f"adapter:{bill.adapter_sha256}",
        properties=properties(sha256=bill.adapter_sha256, contract=manifest.contract_digest),
    )
    parts = (base_model, train_set, *libraries)
    bom = Bom(
        components=parts,
        serial_number=uuid.uuid5(uuid.NAMESPACE_OID, f"{bill.adapter_sha256} {bill.timestamp_unix}"),
        metadata=BomMetaData(component=adapter, timestamp=datetime.fromtimestamp(bill.timestamp_unix, UTC)),
    )
    bom.register_dependency(adapter, parts)
    bom.register_dependency(train_set, files)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _format_value(value: object) -> str:
    if value is None:
        return _NOT_ON_RECORD
    return f"{value:.6f}" if isinstance(value, float) else str(value)


class _Licensed:
    def __init__(self) -> None:
        from cyclonedx.contrib.license.factories import LicenseFactory  # noqa: PLC0415 - only promotions need it

        self._make = cache(LicenseFactory().make_from_string)

    def of(self, licence: str | None) -> "tuple[License, ...]":
        return () if licence is None or licence.strip() in {"", UNKNOWN_LICENCE} else (self._make(licence),)
