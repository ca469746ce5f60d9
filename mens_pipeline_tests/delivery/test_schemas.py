"""The schemas of all documents, and no others, are in `config/schemas`."""

import pytest

from mens_pipeline_tests.schemas import DOCUMENTS, SCHEMAS, schema_of


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_file_is_the_schema(name: str) -> None:
    """After a change of a document: `python -m mens_pipeline_tests.reference` writes it anew."""
    assert (SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8") == schema_of(name)


def test_there_is_no_other_file() -> None:
    """A document that is gone leaves no schema."""
    assert {path.name for path in SCHEMAS.iterdir()} == {f"{name}.schema.json" for name in DOCUMENTS}
