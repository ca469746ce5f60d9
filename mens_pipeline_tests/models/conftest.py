"""A machine without a network."""

from pathlib import Path

import pytest
from huggingface_hub import constants

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the Hub and the package index unreachable, and return the empty cache of the Hub."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "users"))
    monkeypatch.setattr(constants, "ENDPOINT", NOWHERE)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name, value in {"PIP_INDEX_URL": NOWHERE, "PIP_RETRIES": "0", "PIP_NO_INDEX": "1"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "users"
