"""Infill rows are cut only from rows that train."""

from pathlib import Path

from mens_pipeline.corpus.curate.mix import MixConfig, MixSource, SourceRows, mix_sources
from mens_pipeline.corpus.curate.mixed_train_set import add_infill_rows
from mens_pipeline.corpus.infill import INFILL
from mens_pipeline.corpus.infill.rows import ROWS, InfillPolicy, cut_rows
from mens_pipeline.corpus.schema.reasons import InfillDrop
from mens_pipeline.corpus.schema.records import SourceKind, TrainingPair, read_pairs
from mens_pipeline.storage.jsonl import write_jsonl
from mens_pipeline_tests.corpus.rows import pair_at

_FILE = """\
fn area(width: int, height: int) to int {
    let product_of_sides = width * height
    return product_of_sides
}

fn edge(width: int, height: int) to int {
    return 2 * (width + height)
}
"""
_PART = "fn edge(width: int, height: int) to int {\n    return 2 * (width + height)\n}\n"


def _file(path: str = "a.vox", text: str = _FILE) -> TrainingPair:
    return pair_at(path, "Write it.", text)


def test_a_row_is_a_piece_between_two_others() -> None:
    cut = cut_rows([_file()], (), InfillPolicy(view_share=0))

    assert len(cut.rows) == cut.kept == 6
    for row in cut.rows:
        assert row.infill is not None
        assert row.prompt + row.response + row.infill.suffix == _FILE
        assert row.task_family == INFILL
        assert row.source == _file().source


def test_some_rows_show_a_window_of_an_editor() -> None:
    long = "".join(_FILE.replace("fn ", f"fn n{number}_") for number in range(60))
    whole, seen = (cut_rows([_file(text=long)], (), InfillPolicy(view_share=share, per_file=60)) for share in (0, 0.5))

    changed = [row for row, other in zip(seen.rows, whole.rows, strict=True) if row.prompt != other.prompt]
    assert [row.response for row in seen.rows] == [row.response for row in whole.rows]
    assert 15 < len(changed) < 45
    assert cut_rows([_file(text=long)], (), InfillPolicy(view_share=0.5, per_file=60)).rows == seen.rows


def test_a_file_is_cut_once() -> None:
    part = pair_at("a.vox", "Write edge.", _PART, SourceKind.VOX_DECLARATION)
    again = _file().model_copy(update={"prompt": "Write a program."})

    cut = cut_rows([part, _file(), again], (), InfillPolicy(view_share=0))
    alone = cut_rows([part], (), InfillPolicy())

    assert {row.prompt[:8] for row in cut.rows} == {"fn area("}
    assert cut_rows(cut.rows, (), InfillPolicy()).seen == 0
    assert cut.dropped == {InfillDrop.PART_OF_FILE: 1}
    assert alone.kept > 0


def test_held_out_lines_are_not_completed() -> None:
    planted = "fn other(a: int) to int {\n    let  product_of_sides  =  width * height\n    return a\n}\n"
    heldout = [pair_at("held.vox", "Write it.", planted)]
    free, kept = (cut_rows([_file()], some, InfillPolicy(per_file=60)) for some in ((), heldout))

    def count_lines(rows: list[TrainingPair]) -> int:
        return sum("product_of_sides =" in row.prompt[-60:] + row.response for row in rows if "width" in row.response)

    assert count_lines(free.rows) > 0
    assert kept.dropped[InfillDrop.HELD_OUT_LINES] > 0
    assert not any("= width * height" in row.response for row in kept.rows)
    assert any(row.response.endswith("{") for row in kept.rows)


def test_programs_that_cannot_be_cut_are_counted() -> None:
    prose = pair_at("q.md", "What?", "Prose.").model_copy(update={"response_mode": "prose_only"})
    wrong, idle = _file("w.vox", "fn {"), _file("x.vox", "// Nothing.\n")
    synthetic = [
        pair_at(f"s{n}", "Write.", f"fn f{n}() to int {{ return {n} }}\n", SourceKind.SYNTHETIC) for n in range(80)
    ]

    cut = cut_rows([prose, wrong, idle, *synthetic], (), InfillPolicy(synthetic_share=0.25))

    assert cut.dropped[InfillDrop.NO_PROGRAM] == 2
    assert cut.dropped[InfillDrop.NO_HOLE] == 1
    assert 8 <= cut.kept <= 36
    assert cut.dropped[InfillDrop.SAMPLED_OUT] + cut.kept + cut.dropped[InfillDrop.DUPLICATE] == 80
    assert cut.report().num_rows == sum(cut.report().kinds.values()) == cut.kept


def test_the_share_of_infill_rows_is_met_and_zero_changes_nothing(tmp_path: Path) -> None:
    files = [_file(f"{n}.vox", _FILE.replace("product", f"product_{n}")) for n in range(30)]

    def mix_rows(share: float) -> list[TrainingPair]:
        config = MixConfig(sources=(MixSource(path="pairs.jsonl"),)).with_infill_share(share).with_infill_share(None)
        sources = {"pairs.jsonl": SourceRows(list(files)), "missing.jsonl": SourceRows(None)}
        report = add_infill_rows(sources, (), config)
        assert sources["missing.jsonl"].pairs is None
        assert (report is None) == (ROWS not in sources) == (share == 0)
        mix = mix_sources(config, sources)
        assert mix.report().num_pairs == len(files)
        return mix.rows

    without, some = mix_rows(0), mix_rows(0.25)
    write_jsonl(tmp_path / "without", without)
    write_jsonl(
        tmp_path / "before",
        mix_sources(MixConfig(sources=(MixSource(path="pairs.jsonl"),)), {"pairs.jsonl": SourceRows(list(files))}).rows,
    )

    assert (tmp_path / "without").read_bytes() == (tmp_path / "before").read_bytes()
    assert sum(row.infill is not None for row in some) == round(len(some) * 0.25)
    assert {row.digest for row in some if row.infill is None} == {row.digest for row in without}
    write_jsonl(tmp_path / "some", some)
    assert list(read_pairs(tmp_path / "some")) == some
