"""The schemas of all documents, and no others, are in `config/schemas`."""

from pathlib import Path

import pytest

from mens_pipeline.delivery.schemas import DOCUMENTS, schema_of, write_schemas
from mens_pipeline.settings import PROJECT_ROOT

_FOLDER = PROJECT_ROOT / "config" / "schemas"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_file_is_the_schema(name: str) -> None:
    """After a change of a document: `write_schemas(Path("config/schemas"))` writes them anew."""
    assert (_FOLDER / f"{name}.schema.json").read_text(encoding="utf-8") == schema_of(name)


def test_there_is_no_other_file(tmp_path: Path) -> None:
    """A document that is gone leaves no schema."""
    write_schemas(tmp_path)

    assert {path.name for path in _FOLDER.iterdir()} == {path.name for path in tmp_path.iterdir()}
