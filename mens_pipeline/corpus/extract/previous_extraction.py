"""What the corpus before this one knows about files that have not changed since."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from mens_pipeline.corpus.extract.file_outcome import FileOutcome, outcome_of, with_commit
from mens_pipeline.corpus.extract.source_file import SourceFile


@dataclass
class PreviousExtraction:
    """The records of an earlier corpus, by file.

    Attributes:
        accounts: Path -> the account of the file, with `start` and `end`, where its records lie in bytes.
        records: The records, open for reading.
        commit: The commit that they name.
    """

    accounts: dict[str, dict[str, Any]]
    records: BinaryIO
    commit: str | None

    def outcome(self, file: SourceFile) -> FileOutcome | None:
        """Return what the file gave, if its content is the same now and nothing else decided it; None otherwise.

        Args:
            file: The file as it is now.
        """
        account = self.accounts.get(file.path)
        if account is None or account["blob"] != file.blob or not account["stands_alone"]:
            return None
        self.records.seek(account["start"])
        text = self.records.read(account["end"] - account["start"]).decode()
        lines = tuple(with_commit(line, self.commit, file.commit) for line in text.split("\n")[:-1])
        return outcome_of(account, lines)


def read_accounts(path: Path) -> dict[str, dict[str, Any]]:
    """Read the index of a corpus: path -> account of the file.

    Args:
        path: Its `files.jsonl`.
    """
    with path.open(encoding="utf-8") as lines:
        return {account["path"]: account for account in map(json.loads, lines)}
