"""The parts of the scale bench run at small sizes and grow no worse than linearly."""

from pathlib import Path

import pytest

from mens_pipeline_tests.bench import scale, sizes

_SIZES = {
    "store": 200,
    "table": 20_000,
    "log": 20_000,
    "eval_suite": 40,
    "champions": 50,
    "rows": 400,
    "mix": 400,
    "duplicates": 400,
}
_QUICK = {"store", "log"}
"""Parts that a push tests; nightly tests cover all."""

_SLACK = 3
_MOMENT = 0.5
"""Seconds that a first call may take for imports."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", [part if part in _QUICK else pytest.param(part, marks=pytest.mark.nightly) for part in scale.PARTS]
)
def test_the_time_of_a_part_is_linear(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENS_STORE_ROOT", "")  # restored at the end, whatever the bench sets
    measure, _ = scale.PARTS[part]
    found = []
    for size in (_SIZES[part] // 10, _SIZES[part]):
        folder = tmp_path / str(size)
        folder.mkdir()
        found.append(measure(folder, size))
    small, large = found
    timed = [what for what in small if "bytes" not in what and not what.endswith("MB")]
    slow = {what: (small[what], large[what]) for what in timed if large[what] > 10 * _SLACK * small[what] + _MOMENT}

    assert small.keys() == large.keys()
    assert timed
    assert slow == {}


def test_each_size_has_its_own_peak_memory() -> None:
    found = sizes.apart(scale.store_of, 10)

    assert found["peak memory, MB"] > 1
    assert found["write all artifacts"] > 0
