"""Licences of source files, and which of them keep a file from training."""

import json
from operator import itemgetter
from pathlib import Path

import pytest
from pydantic import ValidationError

from mens_pipeline.corpus.extract.extracted_corpus import build_extracted_corpus
from mens_pipeline.corpus.extract.forgotten import SourcePolicy
from mens_pipeline.corpus.extract.licences import LicencePolicy, Licences, files_above
from mens_pipeline.corpus.extract.sources import OwnSources, SourceRoots
from mens_pipeline.corpus.extract.workspace import carried_records, extract_workspace, page_records
from mens_pipeline.corpus.schema.account import Unit
from mens_pipeline.corpus.schema.reasons import DropReason, LeaveReason
from mens_pipeline.corpus.schema.records import FILES, UNKNOWN_LICENCE
from mens_pipeline.storage.store import ArtifactStore
from mens_pipeline_tests.every import every, every_row

_MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this software ...

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.
"""
_BSD = "Redistribution and use in source and binary forms, with or without\nmodification, are permitted ...\n"
_TEXTS = {
    "AGPL-3.0": "GNU AFFERO GENERAL PUBLIC LICENSE\n   Version 3, 19 November 2007\n... the GNU GPL ...",
    "Apache-2.0": "                 Apache License\n           Version 2.0, January 2004\n",
    "BSD-2-Clause": _BSD,
    "BSD-3-Clause": f"{_BSD}3. Neither the name of the copyright holder ...\n",
    "GPL-2.0": "\t\t    GNU GENERAL PUBLIC LICENSE\n\t\t       Version 2, June 1991\n",
    "GPL-3.0": "GNU GENERAL PUBLIC LICENSE\n  Version 3, 29 June 2007\n ... the GNU Affero General Public License ...",
    "LGPL-2.1": "GNU LESSER GENERAL PUBLIC LICENSE\n Version 2.1, February 1999\n",
    "LGPL-3.0": "GNU LESSER GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007\n... of the GNU General Public License",
    "MIT": _MIT,
    "MPL-2.0": "Mozilla Public License Version 2.0\n==================================\n",
    "Apache-2.0 AND MIT": f"Licensed under the Apache License, Version 2.0; parts as follows.\n{_MIT}",
    "LicenseRef-House": "SPDX-License-Identifier: LicenseRef-House\n\nAsk us.\n",
    UNKNOWN_LICENCE: "All rights reserved.\n",
}
_STATED = {
    "// SPDX-License-Identifier: MIT\n": "MIT",
    "// ---\n// title: T\n// ---\n// SPDX-License-Identifier: mit or apache-2.0\r\n": "MIT OR Apache-2.0",
    "---\nSPDX-License-Identifier: GPL-2.0+\n---\n": "GPL-2.0+",
    "<!-- SPDX-License-Identifier: MPL-2.0 -->\n": "MPL-2.0",
    "/* SPDX-License-Identifier: GPL-2.0-only WITH Classpath-exception-2.0 */\n": (
        "GPL-2.0-only WITH Classpath-exception-2.0"
    ),
    "// SPDX-License-Identifier: MIT OR ISC\n// SPDX-License-Identifier: Zlib\n": "(MIT OR ISC) AND Zlib",
    "// SPDX-License-Identifier: MIT\n// SPDX-License-Identifier: Ours\n": UNKNOWN_LICENCE,
    "// SPDX-License-Identifier: Ours\n": UNKNOWN_LICENCE,
    "// SPDX-License-Identifier: MIT OR\n": UNKNOWN_LICENCE,
    "// SPDX-License-Identifier: ()\n": UNKNOWN_LICENCE,
    'fn f() to str { return "SPDX-License-Identifier: MIT" }\n': "Apache-2.0",
    "fn f() { }\n": "Apache-2.0",
}


@every("case", _TEXTS.items(), ids=itemgetter(0))
def test_a_licence_file_is_known_by_its_text(case: tuple[str, str], tmp_path: Path) -> None:
    licence, text = case
    (tmp_path / "LICENSE").write_text(text)

    assert Licences(tmp_path).find_licence(tmp_path / "a.vox", b"fn a() { }\n") == licence


@every("case", _STATED.items(), ids=itemgetter(0))
def test_a_file_states_its_licence(case: tuple[str, str], tmp_path: Path) -> None:
    text, licence = case
    (tmp_path / "LICENSE").write_text(_TEXTS["Apache-2.0"])

    assert Licences(tmp_path).find_licence(tmp_path / "a.vox", text.encode()) == licence


def test_the_nearest_licence_file_applies(tmp_path: Path) -> None:
    checkout, workspace = tmp_path / "checkout", tmp_path / "checkout" / "workspace"
    for folder in ("own/below", "both", "choice", "odd", "linked"):
        (workspace / folder).mkdir(parents=True)
    (tmp_path / "LICENSE").write_text(_TEXTS["MPL-2.0"])
    (workspace / "own" / "COPYING.txt").write_text(_TEXTS["GPL-3.0"])
    for folder in ("both/LICENCE", "both/COPYING", "choice/LICENSE-MIT", "choice/LICENSE-APACHE", "odd/LICENSE-MIT"):
        text = _TEXTS["MIT" if folder.endswith(("LICENCE", "LICENSE-MIT")) else "Apache-2.0"]
        (workspace / folder).write_text(text)
    (workspace / "odd" / "LICENSE-APACHE").write_text("See the web page.\n")
    (workspace / "linked" / "LICENSE").symlink_to(workspace / "own" / "COPYING.txt")
    (workspace / "entered").symlink_to("own")

    def find(name: str) -> str:
        return Licences(workspace).find_licence(workspace / name, b"")

    alone = find("a.vox")
    (checkout / ".git").mkdir()
    above_is_empty = find("a.vox")
    (checkout / "LICENSE").write_text(_TEXTS["Apache-2.0"])

    assert (alone, above_is_empty, find("a.vox")) == (UNKNOWN_LICENCE, UNKNOWN_LICENCE, "Apache-2.0")
    assert find("own/below/a.vox") == "GPL-3.0"
    assert find("both/a.vox") == "Apache-2.0 AND MIT"
    assert find("choice/a.vox") == "Apache-2.0 OR MIT"
    assert find("odd/a.vox") == find("linked/a.vox") == find("entered/a.vox") == UNKNOWN_LICENCE
    assert Licences(workspace).find_licence(Path("/elsewhere/a.vox"), b"") == UNKNOWN_LICENCE
    assert list(files_above(workspace)) == [checkout / "LICENSE"]
    assert list(files_above(checkout)) == []


@every_row(
    ((), ()),
    (("GPL-3.0",), ("GPL-3.0", "GPL-3.0-or-later", "MIT AND GPL-3.0-only")),
    (("GPL-3.0-only",), ("GPL-3.0", "GPL-3.0-or-later", "MIT AND GPL-3.0-only")),
    (("gpl-*",), ("GPL-3.0", "GPL-3.0-or-later", "GPL-2.0-only WITH Classpath-exception-2.0", "MIT AND GPL-3.0-only")),
    (("MIT", "Zlib"), ("MIT AND GPL-3.0-only", "MIT OR (Zlib AND ISC)")),
    (("unknown",), (UNKNOWN_LICENCE,)),
)
def test_a_policy_denies_licences(deny: tuple[str, ...], denied: tuple[str, ...]) -> None:
    licences = (
        *("Apache-2.0", "GPL-3.0", "GPL-3.0-or-later", "GPL-2.0-only WITH Classpath-exception-2.0"),
        *("MIT AND GPL-3.0-only", "MIT OR (Zlib AND ISC)", UNKNOWN_LICENCE),
    )
    policy = LicencePolicy(deny=deny)

    assert tuple(licence for licence in licences if policy.denies(licence)) == denied


@every_row(
    ("Apache2.0", "Did you mean `Apache-2.0`"),
    ("House", "Write an SPDX id, or `unknown`"),
    ("GPL", "Did you mean `GPL-2.0`"),
)
def test_a_misspelt_licence_in_a_policy_is_refused(name: str, advice: str) -> None:
    """Files of the intended licence would train."""
    with pytest.raises(ValidationError, match=f"'{name}' is not an SPDX id. {advice}"):
        LicencePolicy(deny=("LicenseRef-House", "mit", name))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Programs of two licences, and a page that includes one of each."""
    root = tmp_path / "workspace"
    (root / "theirs").mkdir(parents=True)
    (root / "LICENSE").write_text(_TEXTS["MIT"])
    (root / "theirs" / "LICENSE").write_text(_TEXTS["GPL-3.0"])
    (root / "a.vox").write_text("fn a() { }\n")
    (root / "b.vox").write_text("// SPDX-License-Identifier: GPL-3.0-or-later\nfn b() { }\n")
    (root / "theirs" / "c.vox").write_text("fn c() { }\n")
    blocks = "".join(f"```vox\n{{{{#include {name}}}}}\n```\n" for name in ("a.vox", "theirs/c.vox"))
    (root / "p.md").write_text(f"---\ntraining_eligible: true\n---\n{blocks}")
    return root


_NO_GPL = SourcePolicy(deny=("GPL-*",))


def test_files_of_a_denied_licence_do_not_train(workspace: Path) -> None:
    outcomes = list(extract_workspace(workspace, policy=_NO_GPL))
    drops = [(drop.unit, drop.path, drop.reason, drop.detail) for outcome in outcomes for drop in outcome.drops]

    assert {o.path: o.licence for o in outcomes if o.lines} == {"a.vox": "MIT", "p.md": "MIT"}
    assert drops == [
        (Unit.VOX_FILE, "b.vox", DropReason.LICENCE, "licence GPL-3.0-or-later"),
        (Unit.VOX_FILE, "theirs/c.vox", DropReason.LICENCE, "licence GPL-3.0"),
        (Unit.BLOCK, "p.md", DropReason.LICENCE, "c.vox: licence GPL-3.0"),
    ]
    assert [len(page_records([workspace], (), policy=policy)) for policy in (None, _NO_GPL)] == [2, 1]


def test_records_of_files_that_may_not_train_are_dropped(workspace: Path, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_text("".join(f"{line}\n" for o in extract_workspace(workspace) for line in o.lines))
    roots, folder, sources = SourceRoots(workspace), workspace / "empty", OwnSources(workspace)
    carried = carried_records(records, folder, sources, roots, _NO_GPL)

    assert carried_records(records, folder, sources, roots).kept == 5
    assert (carried.kept, dict(carried.dropped)) == (3, {LeaveReason.LICENCE: 2})
    (workspace / "a.vox").write_text("// @generated\n")
    assert carried_records(records, folder, sources, roots).dropped.keys() == {LeaveReason.NOT_OWN}


def test_the_key_of_a_corpus_covers_its_licences(workspace: Path, store: ArtifactStore) -> None:
    free, _ = build_extracted_corpus(workspace, store)
    denied, reuse = build_extracted_corpus(workspace, store, licences=_NO_GPL)
    (workspace / "theirs" / "LICENSE").write_text(_TEXTS["Apache-2.0"])
    changed, again = build_extracted_corpus(workspace, store, licences=_NO_GPL)
    accounts = [json.loads(line) for line in (changed.path / FILES).read_text().splitlines()]

    assert "licences" not in free.inputs
    assert denied.inputs["licences"] == {"deny": ["GPL-*"]}
    assert [corpus.manifest["units"]["vox_file"]["dropped"] for corpus in (free, denied, changed)] == [
        *({}, {"licence_denied": 2}, {"licence_denied": 1})
    ]
    assert (reuse.known, again.known, again.extracted) == (0, 1, 2)
    expected = {"a.vox": "MIT", "b.vox": None, "p.md": "MIT", "theirs/c.vox": "Apache-2.0"}
    assert {account["path"]: account["licence"] for account in accounts} == expected
