"""An index in files finds the same near duplicates as an index in memory."""

import pytest

from mens_pipeline.corpus.curate.near_duplicates import NearDuplicates
from mens_pipeline_tests.bench.duplicates import PlainIndex, texts_with_repeats


@pytest.mark.parametrize(("threshold", "recent"), [(0.9, 1), (0.9, 500), (0.6, 2_000), (0.9, 1 << 19)])
def test_an_index_in_files_agrees_with_one_in_memory(threshold: float, recent: int) -> None:
    plain, near = PlainIndex(threshold), NearDuplicates(threshold, recent)
    texts = list(texts_with_repeats(300))
    expected = [plain.earlier(f"text {number}", text) for number, text in enumerate(texts)]
    found = [near.earlier(f"text {number}", text) for number, text in enumerate(texts)]

    assert found == expected
    assert 10 < sum(label is not None for label in found) < 290


def test_labels_are_returned_unchanged() -> None:
    near = NearDuplicates(0.9)
    texts = {label: f"{label} a text of its own {number}" for number, label in enumerate(("größe", "", "世界"))}

    assert [near.earlier(label, text) for label, text in texts.items()] == [None] * 3
    assert [near.earlier("later", text) for text in texts.values()] == list(texts)
