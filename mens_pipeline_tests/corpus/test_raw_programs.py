"""Programs without requests, from what trains."""

from mens_pipeline.corpus.curate.mix import SourceRows, mix_sources
from mens_pipeline.corpus.curate.mix_config import MixConfig, MixSource
from mens_pipeline.corpus.curate.raw_programs import RAW, raw_rows
from mens_pipeline.corpus.schema.records import Lane, Source, SourceKind
from mens_pipeline.corpus.schema.training_pair import TrainingPair

_LONG = "fn long() to int {\n" + "    let n = 1\n" * 40 + "    return n\n}\n"


def _pair(
    path: str, start: int, response: str, kind: SourceKind = SourceKind.VOX_DECLARATION, difficulty: int = 2
) -> TrainingPair:
    source = Source(path=path, blob="0", span=(start, start + len(response)), lines=(1, 2), kind=kind)
    return TrainingPair(
        prompt=f"Write {path} {start} {kind}.",
        response=response,
        category="function",
        rating=5,
        difficulty=difficulty,
        source=source,
    )


def test_declarations_of_a_file_stand_in_their_order() -> None:
    """Each once, though there are requests with and without the code around it; the hardest says how hard it is."""
    pairs = [
        _pair("a.vox", 90, "fn second() { }\n", difficulty=7),
        _pair("a.vox", 10, "fn first() { }\n"),
        _pair("a.vox", 10, "fn first() { }\n").model_copy(update={"prompt": "With code."}),
        _pair("b.vox", 0, "fn other() { }\n"),
    ]
    first, other = raw_rows(pairs)

    assert first.response == "fn first() { }\n\nfn second() { }\n"
    assert (first.task_family, first.difficulty, first.rating, first.category) == (RAW, 7, 5, "function")
    assert first.source is not None
    assert first.source.path == "a.vox"
    assert other.response == "fn other() { }\n"


def test_pieces_end_where_a_declaration_ends() -> None:
    """As many in a piece as stay below the limit; one that is longer stands by itself, and is not cut."""
    small = [_pair("a.vox", 1000 + n, f"fn f{n}(n: int) to int {{\n    return n + {n}\n}}\n") for n in range(40)]
    rows = raw_rows([_pair("a.vox", 0, _LONG * 2), *small])

    assert rows[0].response.count("fn long") == 2
    assert all(len(row.response) <= 700 for row in rows[1:])
    assert all(row.response.startswith("fn ") and row.response.endswith("}\n") for row in rows)
    assert "".join(row.response for row in rows).count("fn f") == 40
    assert len(rows) == 4


def test_only_what_people_wrote_comes_in() -> None:
    """No prose, nothing synthetic, changed, evolved or told; whole files only where no declaration of theirs trains."""
    whole = SourceKind.VOX_FILE
    pairs = [
        _pair("a.vox", 0, "fn a() { }\n"),
        _pair("a.vox", 0, "fn a() { }\n\nfn b() { }\n", whole),
        _pair("c.vox", 0, "fn c() { }\n", whole),
        _pair("d.md", 5, "fn d() { }\n", SourceKind.DOC_BLOCK),
        *(_pair("e.vox", 0, "fn e() { }\n", kind) for kind in (SourceKind.DERIVED, SourceKind.EVOLVED)),
        _pair("f.md", 0, "Prose.", SourceKind.DOC_SECTION).model_copy(update={"lane": Lane.DOCS_QA}),
        TrainingPair(prompt="Write g.", response="fn g() { }\n", template="function/sum"),
    ]

    assert [row.response for row in raw_rows(pairs)] == ["fn a() { }\n", "fn c() { }\n", "fn d() { }\n"]


def test_a_mix_may_hold_them_beside_its_sources() -> None:
    """Each once; the sources keep their shares of the rest, and the report adds up."""
    rows = {
        "pairs.jsonl": SourceRows([_pair(f"{n}.vox", 0, f"fn f{n}() {{ }}\n") for n in range(30)]),
        "synthetic.jsonl": SourceRows([TrainingPair(prompt=str(n), response="fn g() { }") for n in range(20)]),
    }
    sources = tuple(
        MixSource(path=path, weight=weight) for path, weight in (("pairs.jsonl", 3), ("synthetic.jsonl", 2))
    )
    without, mixed = (mix_sources(MixConfig(sources=sources, raw_programs=raw), rows) for raw in (False, True))
    report = mixed.as_json()
    raw = report["sources"][-1]

    assert sorted(map(str, without.rows)) == sorted(str(row) for row in mixed.rows if row.task_family != RAW)
    assert (raw["path"], raw["emitted_lines"], raw["requested_share"]) == ("raw_programs", 30, 30 / 80)
    assert [source["share_of_output"] for source in report["sources"]] == [30 / 80, 20 / 80, 30 / 80]
    assert [source["requested_share"] for source in report["sources"][:2]] == [0.6 * 5 / 8, 0.4 * 5 / 8]
    assert report["total_emitted"] == report["total_distinct"] == 80
    assert all(source.adds_up() for source in mixed.sources)
