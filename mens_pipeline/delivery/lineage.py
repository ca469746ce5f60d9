"""Lineage of an adapter, from manifests: its sources down to files and commits, and the artifacts that depend on it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from mens_pipeline.corpus.curate.mix import MixReport
from mens_pipeline.corpus.curate.mixed_train_set import TRAIN
from mens_pipeline.corpus.schema.records import Source, read_pairs
from mens_pipeline.delivery.retention import Item, read_store
from mens_pipeline.errors import RefusedError
from mens_pipeline.promotion.history import CHAMPION, champion_key
from mens_pipeline.storage.kinds import Kind
from mens_pipeline.storage.store import ArtifactStore

Ref = tuple[str, str]
"""Kind and key of an artifact."""

Edges = Mapping[Ref, AbstractSet[Ref]]


@dataclass(frozen=True, slots=True)
class Link:
    """An artifact of a lineage, its name (may be empty), and whether the store still has it."""

    kind: str
    key: str
    name: str
    is_there: bool


@dataclass(frozen=True, slots=True)
class AdapterLineage:
    """The ancestors of an adapter and its dependents (evaluations, verdicts, promotions, deliveries), nearest first.

    `rows` maps mixed files to their numbers of rows in the train set, and is empty if the train set is gone. `files`
    maps source files to their numbers of distinct rows, and `lines` to the first and last line of each passage in rows.
    `commits` are the workspace commits of the rows.
    """

    adapter: Link
    rests_on: tuple[Link, ...]
    rows: dict[str, int]
    files: dict[str, int]
    lines: dict[str, list[tuple[int, int]]]
    commits: tuple[str, ...]
    used_by: tuple[Link, ...]


def trace_lineage(store: ArtifactStore, name: str) -> AdapterLineage:
    """Trace the lineage of `champion`, or of the adapter, trained or promoted, whose key begins with `name`.

    `RefusedError` if no adapter, or more than one, has that name, or a row of its train set is damaged.
    """
    items = list_artifacts(store)
    start = _find_adapter(store, items, name)
    parents = {ref: item.parents for ref, item in items.items()}
    rests_on = walk(parents, start)
    trained = next((ref for ref in (start, *rests_on) if ref[0] == Kind.QLORA_ADAPTER), start)
    mixed = next((store.get(*ref) for ref in rests_on if ref[0] == Kind.MIXED_TRAIN_SET), None)
    pairs = list(read_pairs(mixed.file(TRAIN))) if mixed is not None else []
    sources = [pair.source for pair in dict.fromkeys(pairs) if pair.source is not None]
    report = MixReport.of(mixed).sources if mixed is not None else ()
    return AdapterLineage(
        adapter=link(items, start),
        rests_on=tuple(link(items, ref) for ref in rests_on),
        rows={source.path: source.emitted_lines for source in report},
        files=dict(sorted(Counter(source.path for source in sources).items())),
        lines=_find_passages(sources),
        commits=tuple(sorted({source.commit for source in sources if source.commit is not None})),
        used_by=tuple(link(items, ref) for ref in walk(reverse_edges(parents), trained)),
    )


def list_artifacts(store: ArtifactStore) -> dict[Ref, Item]:
    """Return the artifacts of a store by kind and key."""
    return {(item.kind, item.key): item for item in read_store(store).items if item.is_artifact}


def _find_passages(sources: Iterable[Source]) -> dict[str, list[tuple[int, int]]]:
    passages: dict[str, list[tuple[int, int]]] = {}
    for path, (first, last) in sorted({(source.path, source.lines) for source in sources}):
        found = passages.setdefault(path, [])
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return passages


def reverse_edges(edges: Edges) -> Edges:
    """Reverse all edges."""
    back: defaultdict[Ref, set[Ref]] = defaultdict(set)
    for start, ends in edges.items():
        for end in ends:
            back[end].add(start)
    return back


def _find_adapter(store: ArtifactStore, items: Mapping[Ref, Item], name: str) -> Ref:
    key = champion_key(store) if name == CHAMPION else name
    if key is None:
        raise RefusedError(f"{store.root}: no adapter was promoted yet. Run `mens run`, or name the key of an adapter.")
    found = [
        ref for ref in items if ref[0] in {Kind.QLORA_ADAPTER, Kind.PROMOTED_ADAPTER} and key and ref[1].startswith(key)
    ]
    if len(found) != 1:
        advice = "Name `champion`, or a longer prefix of the key of an adapter."
        raise RefusedError(f"{name}: {len(found) or 'no'} adapters with this key in {store.root}. {advice}")
    return found[0]


def walk(edges: Edges, start: Ref) -> list[Ref]:
    """Return the artifacts that are reachable from `start`, in breadth-first order."""
    reached = {start: None}
    waiting = [start]
    for ref in waiting:
        new = sorted(edges.get(ref, frozenset()) - reached.keys())
        reached.update(dict.fromkeys(new))
        waiting += new
    return waiting[1:]


def link(items: Mapping[Ref, Item], ref: Ref) -> Link:
    """Describe an artifact, which may be gone."""
    item = items.get(ref)
    return Link(*ref, item.name if item is not None else "", item is not None)
