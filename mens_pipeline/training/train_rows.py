"""A train set encoded once into Arrow shards in a cache, which are memory-mapped.

A shard holds the rows of a range of bytes of the train set, so that several processes can make shards independently,
and only a damaged shard is made again. Each shard has a file with its SHA-256.
"""

import os
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

import numpy as np

from mens_pipeline.corpus.curate.heldout_split import group_of
from mens_pipeline.corpus.extract.batches import Pool, in_batches
from mens_pipeline.corpus.schema.records import TrainingPair, parse_pairs, read_pairs
from mens_pipeline.errors import RefusedError
from mens_pipeline.models.base import FileTokenizer, template_in
from mens_pipeline.models.chat import Encoded, Tokenizer, encode, format_for
from mens_pipeline.models.infill import Order, encode_infill, order_of_row
from mens_pipeline.storage.code_version import code_version
from mens_pipeline.storage.jsonl import open_part, replacing, write_digest
from mens_pipeline.storage.store import digest_of, key_of

FOLDER: Final = "train_rows"
"""Folder of the cache, with a folder for each encoded train set."""

SHARD_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the train set in one shard: about 50,000 rows, which take about 300 MB of memory to encode."""

OBSERVED: Final = "observed"
"""The kind of rows that ask for a function of the workspace, with examples of its observed behaviour."""

_KEPT_SECONDS: Final = 30 * 86_400
"""Time until an unused encoded train set is removed."""

_AT_ONCE: Final = 256
"""Shards to keep open: a process may open 1,024 files."""

_SMALL_ID: Final = 2**16
_WORDS: Final = ("category", "lane", "task_family", "kind", "group")


@dataclass(frozen=True, slots=True)
class Encoding:
    """Inputs that decide the ids of a train set.

    `infill_window` is the number of tokens around a cursor, `infill_order` the side that comes first, `shard_bytes` the
    number of bytes of the train set in a shard.
    """

    train_path: Path
    base_path: Path
    system: str
    infill_window: int
    infill_order: Order
    shard_bytes: int = SHARD_BYTES

    def key(self, train_sha256: str) -> str:
        """Hash everything that decides the shards, including the SHA-256 of the train set."""
        return key_of(
            {
                "train_sha256": train_sha256,
                "tokenizer_sha256": digest_of(self.base_path / "tokenizer.json"),
                "template": template_in(self.base_path),
                "system": self.system,
                "infill_window": self.infill_window,
                "infill_order": self.infill_order,
                "shard_bytes": self.shard_bytes,
                "code": code_version("mens_pipeline.training.train_rows:encode_pairs"),
            }
        )

    def paths(self, folder: Path) -> list[Path]:
        """List the paths of all shards in a folder."""
        number = max(1, -(-self.train_path.stat().st_size // self.shard_bytes))
        return [folder / f"{shard:05d}.arrow" for shard in range(number)]


def encode_train_set(
    encoding: Encoding,
    train_sha256: str,
    cache: Path,
    log_line: Callable[[str], None] = lambda _line: None,
    workers: int | None = None,
) -> Path:
    """Make the missing and damaged shards of a train set, and return their folder.

    `cache` holds encoded train sets; those unused for a month are removed. By default, there are as many `workers` as
    processors. `RefusedError` if a line is not a pair, or a row does not end its turn exactly once, at its end.
    """
    folder = cache / FOLDER / encoding.key(train_sha256)
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    for other in folder.parent.iterdir():
        with suppress(FileNotFoundError):  # another run may remove it first
            if other.stat().st_mtime < time.time() - _KEPT_SECONDS:
                rmtree(other, ignore_errors=True)
    paths = encoding.paths(folder)
    with ThreadPoolExecutor() as threads:  # hashing releases the GIL
        found = list(threads.map(why_not_whole, paths))
    for path, why in zip(paths, found, strict=True):
        if why is not None and path.exists():
            log_line(f"{path}: {why}. Encoding it again.")
    jobs = [(encoding, path, number) for number, path in enumerate(paths) if found[number] is not None]
    done = in_batches(
        ((job, None, 1) for job in jobs), _write_shards, Pool(workers or os.cpu_count() or 1), batch_bytes=1
    )
    for count, _ in enumerate(done, start=1):
        if len(jobs) > 1:
            log_line(f"{count} of {len(jobs)} shards of the train set encoded")
    return folder


def why_not_whole(path: Path) -> str | None:
    """Describe the damage of a shard; None if it is whole."""
    digest = path.with_name(f"{path.name}.sha256")
    if not path.is_file() or not digest.is_file():
        return "a shard without its SHA-256"
    expected, found = digest.read_text("utf-8").partition(" ")[0], digest_of(path)
    return None if found == expected else f"a damaged shard (SHA-256 {found[:12]}, expected {expected[:12]})"


def _write_shards(jobs: list[tuple[Encoding, Path, int]]) -> list[None]:
    for encoding, path, number in jobs:
        _write_shard(encoding, path, number)
    return [None] * len(jobs)


def _write_shard(encoding: Encoding, path: Path, number: int) -> None:
    import pyarrow as pa  # noqa: PLC0415 - commands that do not encode do not need it

    start = number * encoding.shard_bytes
    with open_part(encoding.train_path, start, start + encoding.shard_bytes) as lines:
        try:
            batch = encode_pairs(
                parse_pairs(lines, encoding.train_path),
                _tokenizer(encoding.base_path),
                encoding.system,
                encoding.infill_window,
                encoding.infill_order,
            )
        except RefusedError:
            for _ in read_pairs(encoding.train_path):  # fails with the line number, which a part does not know
                pass
            raise
    with replacing(path) as target, pa.ipc.new_file(target, batch.schema) as writer:
        writer.write_batch(batch)
    write_digest(path)


@lru_cache(maxsize=1)
def _tokenizer(folder: Path) -> FileTokenizer:
    return FileTokenizer(folder)


def encode_pairs(
    pairs: Iterable[TrainingPair], tokenizer: Tokenizer, system: str, infill_window: int, infill_order: Order
) -> Any:
    """Encode rows as a record batch of Arrow.

    Its columns are the ids of `prompt` and `completion`, `rating`, `difficulty`, and dictionary-encoded `category`,
    `lane`, `task_family`, `kind`, and `group`, the source file, which may be null. `RefusedError` if a row does not end
    its turn exactly once, at its end.
    """
    import pyarrow as pa  # noqa: PLC0415 - commands that do not encode do not need it

    (end,) = tokenizer.encode(format_for(tokenizer).end, add_special_tokens=False)
    prompts, completions, numbers = _Ids(), _Ids(), (array("B"), array("B"))
    words: dict[str, list[str | None]] = {name: [] for name in _WORDS}
    for pair in pairs:
        encoded = _encode(pair, tokenizer, system, infill_window, infill_order)
        if encoded.completion[-1] != end or end in encoded.completion[:-1]:
            expected = "each row must end with the token that ends a turn, and contain it nowhere else"
            raise RefusedError(f"{expected}. Report this with the train set.")
        prompts.append(encoded.prompt)
        completions.append(encoded.completion)
        numbers[0].append(pair.rating)
        numbers[1].append(pair.difficulty)
        family = pair.task_family
        kind = OBSERVED if family == "vox_codegen" and pair.tests is not None else family  # `token_shares` name it
        values = (pair.category, str(pair.lane), family, kind, group_of(pair))
        for name, value in zip(_WORDS, values, strict=True):
            words[name].append(value)
    columns = {
        "prompt": prompts.column(),
        "completion": completions.column(),
        "rating": pa.array(np.asarray(numbers[0])),
        "difficulty": pa.array(np.asarray(numbers[1])),
        **{name: pa.array(values, pa.string()).dictionary_encode() for name, values in words.items()},
    }
    return pa.record_batch(columns)


def _encode(pair: TrainingPair, tokenizer: Tokenizer, system: str, infill_window: int, infill_order: Order) -> Encoded:
    if pair.infill is None:
        return encode(tokenizer, system, pair.prompt, pair.response)
    order = order_of_row(infill_order, pair.prompt, pair.response)
    return encode_infill(tokenizer, pair.prompt, pair.infill.suffix, pair.response, infill_window, order)


class _Ids:
    """Concatenated lists of ids; two bytes an id if the vocabulary is small enough."""

    def __init__(self) -> None:
        self._ids = array("I")
        self._ends = array("i", [0])

    def append(self, ids: Sequence[int]) -> None:
        self._ids.extend(ids)
        self._ends.append(len(self._ids))

    def column(self) -> Any:
        import pyarrow as pa  # noqa: PLC0415 - likewise

        ids = np.asarray(self._ids)
        if not len(ids) or ids.max() < _SMALL_ID:
            ids = ids.astype(np.uint16)
        return pa.ListArray.from_arrays(pa.array(np.asarray(self._ends)), pa.array(ids))


class Shards(Sequence[Any]):
    """The shards of a train set in order, each a memory-mapped record batch of Arrow."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Read the shards at `paths`; they open on access, and only the latest ones stay open."""
        self._paths = paths
        self._opened = lru_cache(maxsize=_AT_ONCE)(self._open)

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: Any) -> Any:
        """Return a shard; raise RefusedError for an unreadable file."""
        return self._opened(number)

    def __iter__(self) -> Iterator[Any]:
        return map(self._open, range(len(self)))

    def _open(self, number: int) -> Any:
        import pyarrow as pa  # noqa: PLC0415 - likewise

        path = self._paths[number]
        try:
            return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
        except (OSError, pa.ArrowInvalid) as error:
            raise RefusedError(f"{path}: incomplete shard. Run the command again to encode it again.") from error
