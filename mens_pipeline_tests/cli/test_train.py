"""`mens train`: what it says to the flags of earlier toolchains."""

import pytest
from typer.testing import CliRunner

from mens_pipeline.cli.main import app
from mens_pipeline.errors import RefusedError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--provider", "local"),
            "training is local. Run: mens train --backend qlora --data-dir D --output-dir O --preset auto",
        ),
        (("--provider", "together"), "no remote service trains. Train here: mens train --data-dir D --output-dir O"),
        (("--native",), "is made from scratch. Run: mens training native --data-dir D --output-dir O"),
        (("--backend", "lora"), "is not offered. Write --backend qlora, or leave it out"),
        (("--tokenizer", "vox"), "The scratch lane has the other one: mens scratch train"),
        (("--qlora-lm-head-only",), "All targeted layers are always trained"),
    ],
    ids=" ".join,
)
def test_what_is_not_offered_names_what_is(options: tuple[str, ...], message: str) -> None:
    """Each ends before anything is looked at, with the command to write in its place."""
    result = CliRunner().invoke(app, ["train", "--data-dir", "D", "--output-dir", "O", *options])

    assert isinstance(result.exception, RefusedError)
    assert message in str(result.exception)
