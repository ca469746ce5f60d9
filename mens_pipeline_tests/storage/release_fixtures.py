"""A store and a Dagster home of each release, small, as `NAME.tar.xz`: what newer code must read.

`python -m mens_pipeline_tests.storage.release_fixtures NAME` makes them of the present code, once for a release.
"""

import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from mens_pipeline.orchestration.instance import open_instance, report_champion
from mens_pipeline.promotion.promote import Promotion
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.evaluation.runs import champion_in, promoted, trained

FOLDER = Path(__file__).parent / "releases"


def lay_release(folder: Path) -> None:
    """Promote two runs in a new store, and tell a new Dagster home of the second."""
    store, home = ArtifactStore(folder / "store"), folder / "home"
    first, _ = (promoted(trained(folder / name, name), store) for name in ("first", "second"))
    champion = champion_in(store)
    with open_instance(home):
        pass
    problem = report_champion(Promotion(champion, first, changed=True), store, home)
    assert not problem, problem


def main() -> None:
    """Pack them, without the link to the configuration of this checkout."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        lay_release(folder)
        with tarfile.open(FOLDER / f"{sys.argv[1]}.tar.xz", "w:xz") as packed:
            for name in ("store", "home"):
                packed.add(folder / name, name, filter=lambda info: None if info.issym() else info)


if __name__ == "__main__":
    main()
