"""Count evaluations by eval suite: each further attempt needs more confidence.

With a key, every line is signed together with the line before it, and a last line seals the end, so removed, changed,
forged or cut-off lines are detected. An older copy of the whole ledger still passes.

Every line names the store that wrote it. This distinguishes an evaluation in a copy of the store from one that an older
ledger has lost. A ledger that lacks an evaluation of its own store is refused; with a key, so is one of another store.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pydantic import Field, ValidationError

from mens_pipeline.errors import ConfigurationError, RefusedError
from mens_pipeline.evaluation.results import RESULTS, read_json
from mens_pipeline.inference.generation import Decoding
from mens_pipeline.promotion.history import find_withdrawn, is_copy, read_history, store_id_after
from mens_pipeline.storage.jsonl import model_in
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.signing import PRIVATE, Signing
from mens_pipeline.storage.store import ArtifactStore, key_of
from mens_pipeline.storage.validation import Strict, Versioned

FOLDER: Final = Kind.EVAL_RESULTS
LEDGER: Final = "ledger.jsonl"

_SIGNED: Final = (
    "Restore it from a backup: only this file records how often adapters were evaluated. If the key is new, `mens "
    "promote --sign-history` prints the ledger and signs it as it is."
)
_SAME_SHARE: Final = 0.5
"""Two eval suites count as the same if they share this part of the rows, or of the files, of the smaller one. So
counting does not restart when a workspace grows, files are renamed, or a suite has only some of the rows."""
_ROW: Final = 16
"""Hexadecimal digits of a text's hash in the ledger."""


class EvaluationTry(Versioned):
    """An adapter on the held-out rows of an eval suite, with everything that determines its completions."""

    adapter_sha256: str = Field(min_length=64, max_length=64)
    decoding: Decoding
    first_heldout_tasks: int = Field(ge=1, description="Held-out prompts of the first round.")
    max_rounds: int = Field(ge=1)
    files: tuple[str, ...] = Field(description="The source files of all held-out prompts, sorted.")
    rows_sha256: str = Field(
        description="SHA-256 of all held-out prompts, references and hidden tests, without names of files."
    )
    rows: tuple[str, ...] = Field(
        default=(), description="Hashes of the held-out prompts and of their references; empty in older lines."
    )
    benchmark_sha256: str | None = Field(default=None, description="SHA-256 of the benchmark; null in older lines.")
    device: str = Field(description="Device, compute dtype and storage of the weights: `cuda bfloat16 dense`.")

    def is_of_same_eval_suite(self, other: "EvaluationTry") -> bool:
        """Return whether the eval suites of two tries share half of the rows or files of the smaller one."""
        pairs = ((self.rows, other.rows), (self.files, other.files), ((self.rows_sha256,), (other.rows_sha256,)))
        return any(
            len({*own} & {*theirs}) >= _SAME_SHARE * min(len({*own}), len({*theirs}))
            for own, theirs in pairs
            if own and theirs
        )

    @property
    def sha256(self) -> str:
        """SHA-256 over everything that determines the completions; equal tries give equal completions.

        On a CPU it leaves out the batch size, which changes no completion.
        """
        left_out = {"format_version", "files", "rows"}
        content = self.model_dump(mode="json", include={*EvaluationTry.model_fields} - left_out, exclude_none=True)
        if self.device.startswith("cpu"):
            del content["decoding"]["batch_tokens"]
        return key_of(content)


def hash_texts(texts: Iterable[str]) -> tuple[str, ...]:
    """Hash texts for `rows`, ignoring white space; return the hashes sorted and without duplicates."""
    plain = {"".join(text.split()).encode("utf-8", "surrogatepass") for text in texts}
    return tuple(sorted(hashlib.sha256(text).hexdigest()[:_ROW] for text in plain))


class LedgerEntry(EvaluationTry):
    """A line of `ledger.jsonl`."""

    store_id: str = Field(description="Id of the store: 16 digits that its copies share, and 16 of its location.")
    timestamp_unix: int = Field(ge=0)
    attempt: int = Field(
        ge=1, description="Tries on this eval suite since it last promoted an adapter, this one included."
    )
    signature: str | None = Field(default=None, description="Over other fields and previous line, if a key is set.")


class _Seal(Strict):
    signature: str = Field(description="Signature of the last line.")


def record_try(store: ArtifactStore, tried: EvaluationTry, *, now: int) -> LedgerEntry:
    """Count a try in the ledger, and return its line; `now` is in seconds since 1970.

    Number the tries on an eval suite from 1, and again from 1 after a promotion that was not withdrawn. A repeated try
    returns its first line. `RefusedError` if a line is malformed, or the ledger belongs to another store or was changed
    since it was signed.
    """
    made_here = _find_made_here(store)
    trusted = {e.adapter_sha256 for e in read_history(store) if e.action == "promote"} - find_withdrawn(store)

    def add_try(content: bytes) -> bytes:
        lines, entries = _lines(content, store)
        _refuse_foreign(entries, made_here, store)
        if _find_same(entries, tried) is not None:
            return content
        attempt = _attempt([entry for entry in entries if tried.is_of_same_eval_suite(entry)], trusted)
        store_id = store_id_after(entries[-1].store_id if entries else None, store)
        entry = LedgerEntry(**tried.model_dump(), timestamp_unix=now, attempt=attempt, store_id=store_id)
        return _document([*lines, _line(entry, lines, store.signing)], store.signing)

    if store.signing is not None and not store.documents.read(FOLDER, LEDGER) and _was_evaluated(store):
        message = "it is missing, but the store has evaluations or champions"
        raise RefusedError(f"{store.documents.place(FOLDER, LEDGER)}: {message}. {_SIGNED}")
    store.documents.amend(FOLDER, LEDGER, add_try)
    entry = _find_same(_lines(store.documents.read(FOLDER, LEDGER), store)[1], tried)
    assert entry is not None, "it was just counted"  # noqa: S101 - an internal invariant
    return entry


def _find_same(entries: Iterable[LedgerEntry], tried: EvaluationTry) -> LedgerEntry | None:
    older = tried.model_copy(update={"benchmark_sha256": None}).sha256  # lines without rows also lack the benchmark
    return next((e for e in entries if e.sha256 == tried.sha256 or (not e.rows and e.sha256 == older)), None)


def _find_made_here(store: ArtifactStore) -> dict[str, str]:
    """Return the evaluations that were made in this store and still exist: SHA-256 of the try -> folder.

    Call this before reading the ledger, since a try is counted before its evaluation is written.
    """
    found = {}
    for path in sorted((store.root / FOLDER).glob(f"*/{RESULTS}")):
        match (read_json(path)[0] or {}).get("progress"):
            case {"store_id": str(made_in), "try_sha256": str(sha256)} if made_in == store_id_after(made_in, store):
                found[sha256] = str(path.parent)
    return found


def _refuse_foreign(entries: Sequence[LedgerEntry], made_here: Mapping[str, str], store: ArtifactStore) -> None:
    """Refuse a ledger that lacks evaluations of its store, or, with a key, was last written in another place."""
    place = store.documents.place(FOLDER, LEDGER)
    if store.signing is not None and entries and entries[-1].store_id != store_id_after(entries[-1].store_id, store):
        advice = "If the store was moved or restored, `mens promote --sign-history` prints and signs the ledger."
        raise RefusedError(f"{place}: its last line was written in a copy of this store or elsewhere. {advice}")
    counted = {entry.sha256 for entry in entries}
    if lost := [folder for sha256, folder in made_here.items() if sha256 not in counted]:
        found = f"it lacks evaluations that were made here ({len(lost)}, such as {lost[0]})"
        advice = "Restore the newest ledger; without one, remove the folders of these evaluations, and evaluate again."
        raise RefusedError(f"{place}: {found}: an older ledger, or the ledger of a copy, was restored. {advice}")


def explain_lost(evaluated_in: str | None, store_id: str | None) -> str:
    """Explain why an evaluation is missing from the ledger of a store, with advice."""
    if evaluated_in is not None and evaluated_in == store_id:
        return "has lost this evaluation: an older ledger replaced it; restore the newest one, or evaluate again here"
    where = "a copy of this store" if is_copy(evaluated_in, store_id) else "another store"
    return f"does not contain this evaluation: it was made in {where}; evaluate again here"


def find_try(store: ArtifactStore, try_sha256: str | None) -> tuple[LedgerEntry | None, str | None]:
    """Return the line of a try, if any, and the store id of the newest line; errors as in `record_try`."""
    made_here = _find_made_here(store)
    entries = _lines(store.documents.read(FOLDER, LEDGER), store)[1]
    _refuse_foreign(entries, made_here, store)
    found = next((entry for entry in entries if entry.sha256 == try_sha256), None)
    return found, entries[-1].store_id if entries else None


def _was_evaluated(store: ArtifactStore) -> bool:
    shared = store.remote.list_artifacts() if store.remote is not None else []
    return (
        bool(read_history(store))
        or any((store.root / FOLDER).glob("*/manifest.json"))
        or any(artifact.kind == FOLDER for artifact in shared)
    )


def sign_ledger(store: ArtifactStore) -> tuple[LedgerEntry, ...]:
    """Sign all lines of a ledger, the last one for this store, and return them; the caller vouches for every line.

    `RefusedError` if a line is malformed, `ConfigurationError` if no key signs.
    """
    signing = store.signing
    if signing is None:
        raise ConfigurationError(f"{PRIVATE}: not set. Set the key that signs evaluations.")

    def sign_lines(content: bytes) -> bytes:
        lines: list[bytes] = []
        entries = _lines(content, store, is_signed=False)[1]
        if entries:
            entries[-1] = entries[-1].model_copy(update={"store_id": store_id_after(entries[-1].store_id, store)})
        for entry in entries:
            lines.append(_line(entry, lines, signing))
        return _document(lines, signing)

    store.documents.amend(FOLDER, LEDGER, sign_lines)
    return tuple(_lines(store.documents.read(FOLDER, LEDGER), store)[1])


def _attempt(entries: Iterable[LedgerEntry], promoted: set[str]) -> int:
    """Count attempts; counting restarts after the first attempt of a promoted adapter."""
    attempt, seen = 1, set()
    for entry in entries:
        is_first = entry.adapter_sha256 not in seen
        attempt = 1 if is_first and entry.adapter_sha256 in promoted else attempt + 1
        seen.add(entry.adapter_sha256)
    return attempt


def _line(entry: LedgerEntry, before: Sequence[bytes], signing: Signing | None) -> bytes:
    content = entry.model_dump(mode="json", exclude={"signature"})
    if signing is not None:
        content["signature"] = signing.signature_of(LEDGER, entry=content, after=_last(before))
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _document(lines: Sequence[bytes], signing: Signing | None) -> bytes:
    seals = [] if signing is None else [_Seal(signature=signing.signature_of(LEDGER, end=_last(lines)))]
    return b"".join(line + b"\n" for line in (*lines, *(seal.model_dump_json().encode() for seal in seals)))


def _lines(content: bytes, store: ArtifactStore, *, is_signed: bool = True) -> tuple[list[bytes], list[LedgerEntry]]:
    """Read the lines without the seal, and without a last line that a full disk or a killed process cut off."""
    place = store.documents.place(FOLDER, LEDGER)
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    seal = _read_seal(lines)
    if seal is not None:
        lines.pop()
    advice = "Restore the file from a backup: only it records how often adapters were evaluated."
    placed = enumerate(lines, start=1)
    entries = [model_in(line, f"{place}:{number}", LedgerEntry, "entry", advice) for number, line in placed]
    if store.signing is not None and is_signed and content:
        for number in range(len(lines)):
            written = json.loads(lines[number])
            signature = written.pop("signature", None)
            if problem := store.signing.problem_of(signature, LEDGER, entry=written, after=_last(lines[:number])):
                cause = "it, or the line before it, was changed, removed or added"
                raise RefusedError(f"{place}:{number + 1}: {problem}: {cause}. {_SIGNED}")
        signature = seal.signature if seal is not None else None
        if problem := store.signing.problem_of(signature, LEDGER, end=_last(lines)):
            cause = "the lines after this one were cut off"
            raise RefusedError(f"{place}:{max(len(lines), 1)}: the end: {problem}: {cause}. {_SIGNED}")
    return lines, entries


def _read_seal(lines: Sequence[bytes]) -> _Seal | None:
    try:
        return _Seal.model_validate_json(lines[-1]) if lines else None
    except ValidationError:
        return None


def _last(lines: Sequence[bytes]) -> str:
    return hashlib.sha256(lines[-1] if lines else b"").hexdigest()
