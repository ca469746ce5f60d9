"""Compare the ratios of `make bench` with the recorded ones, and name those that fell by more than a tenth.

`python -m mens_pipeline_tests.bench.ratios [--record]`

Every bench notes how many times faster this package is than an alternative in the same run; more is better. Ratios
carry over between machines and loads far better than seconds do. `--record` saves the measured ratios as new record.
"""

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Final

_RECORDED: Final = Path(__file__).with_name("recorded.json")
_MEASURED: Final = Path("build") / "bench.json"
_LARGEST_FALL: Final = 0.1


def note(name: str, ratio: float) -> None:
    """Record a ratio of speeds, ours over the other program's, in place of an earlier one."""
    _MEASURED.parent.mkdir(parents=True, exist_ok=True)
    _MEASURED.write_text(json.dumps({**read(_MEASURED), name: round(ratio, 3)}, indent=2) + "\n", encoding="utf-8")


def read(path: Path) -> dict[str, float]:
    """Return name -> ratio; empty without a file."""
    ratios: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return ratios


def fallen(measured: dict[str, float], recorded: dict[str, float]) -> list[str]:
    """Return the names of ratios that are more than a tenth below their record; unmeasured ratios are ignored."""
    limits = {name: ratio * (1 - _LARGEST_FALL) for name, ratio in recorded.items()}
    return [name for name, limit in limits.items() if name in measured and measured[name] < limit]


def main() -> None:
    """Print each ratio beside its record; exit code 1 if one fell."""
    parser = ArgumentParser(description="Compare ratios with the recorded ones.")
    parser.add_argument("--record", action="store_true", help="save the measured ratios as the record")
    record = parser.parse_args().record
    measured, recorded = read(_MEASURED), read(_RECORDED)
    if not measured:
        sys.exit(f"{_MEASURED}: nothing was measured. Run make bench.")
    low = fallen(measured, recorded)
    print(f"{'ratio':<60}{'recorded':>10}{'now':>8}")
    for name in {**recorded, **measured}:
        cells = [f"{ratios[name]:.2f}" if name in ratios else "-" for ratios in (recorded, measured)]
        print(f"{name:<60}{cells[0]:>10}{cells[1]:>8}{'  fell by more than a tenth' if name in low else ''}")
    if record:
        _RECORDED.write_text(json.dumps({**recorded, **measured}, indent=2) + "\n", encoding="utf-8")
    elif low:
        sys.exit(1)


if __name__ == "__main__":
    main()
