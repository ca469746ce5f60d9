"""Add tasks that call two verified functions one after the other to a train set.

`python -m mens_pipeline_tests.bench.composed_tasks TRAIN OUT [--number 600]`

A task asks for `h`, which returns `g` of the result of `f`, and for both of them. Its examples are observed by running
it. Tasks with the same observed behaviour are dropped.
"""

import argparse
import hashlib
import json
import random
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from mens_pipeline.corpus.behaviour.arguments import type_key
from mens_pipeline.corpus.behaviour.examples import examples_sentence
from mens_pipeline.corpus.behaviour.observe import Behaviour, observe_behaviour
from mens_pipeline.language import analyze
from mens_pipeline.language.ast import Function

_DESCRIPTION = re.compile(
    r"`[^`]*`(?: in Vox)?(?:,? with the signature `[^`]*`)?(?: in Vox)?[,.]?\s*(?:which|that|It|it)?\s*"
    r"(?P<told>[^`].*)",
    re.DOTALL,
)
_LISTED = """In Vox, write {all}.

- `{f}` {f_told}
- `{g}` {g_told}
- `{h}` returns `{g}` of the result of `{f}`.

{examples}"""
_TOLD = (
    "Write `{signature}` in Vox, with two functions that it calls. `{f_signature}` {f_told} `{g_signature}` {g_told} "
    "`{h}` returns `{g}` of the result of `{f}`. {examples}"
)
_ASKED = (_LISTED, _TOLD)


class Known(NamedTuple):
    """A verified function with its description."""

    name: str
    row: dict[str, Any]
    params: tuple[tuple[str, str], ...]
    result: str
    signature: str
    told: str


def _read(row: dict[str, Any]) -> Known | None:
    if not row.get("tests") or row["task_family"] not in {"task", "vox_codegen"}:
        return None
    module = analyze(row["response"]).module
    if module is None or len(module.declarations) != 1 or not isinstance(module.declarations[0], Function):
        return None
    function: Any = module.declarations[0]
    if not function.params or function.decorators or function.generics or "{" in row["tests"].split("@test")[0]:
        return None
    signature = re.search(r"fn (\w+\(.*?\) to .*?) \{", row["response"])
    prompt = re.split(r" For example,| Example:| `\w+\([^`]*\)` (?:returns|gives|is) ", row["prompt"])[0]
    told = _DESCRIPTION.search(prompt)
    if signature is None or told is None or len(told["told"]) < 15:
        return None
    text = told["told"].strip()
    text = text if text.endswith(".") else f"{text}."
    params = tuple((each.name, type_key(each.type)) for each in function.params)
    return Known(function.name, row, params, type_key(function.return_type), signature[1], text[0].lower() + text[1:])


def compose(rows: list[dict[str, Any]], number: int) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Return new rows, and the number of attempts by outcome."""
    found: Counter[str] = Counter()
    known = [each for row in rows if (each := _read(row)) is not None]
    by_type: dict[str, list[Known]] = defaultdict(list)
    for each in known:
        if len(each.params) == 1:
            by_type[each.params[0][1]].append(each)
    new: list[dict[str, Any]] = []
    seen: set[str] = set()
    for _ in range(20 * number):
        if len(new) == number:
            break
        first = random.choice(known)  # noqa: S311 - decides nothing that is secret
        seconds = by_type.get(first.result)
        if not seconds:
            found["no second function"] += 1
            continue
        second = random.choice(seconds)  # noqa: S311 - likewise
        name = f"{second.name}_of_{first.name}"
        if first.name == second.name or len(name) > 32:
            found["name"] += 1
            continue
        inside = first.signature[len(first.name) :].rsplit(" to ", 1)[0]
        result = second.signature.rsplit(" to ", 1)[1]
        arguments = ", ".join(each for each, _ in first.params)
        final = f"fn {name}{inside} to {result} {{\n    return {second.name}({first.name}({arguments}))\n}}\n"
        program = f"{first.row['response'].strip()}\n\n{second.row['response'].strip()}\n\n{final}"
        behaviour = observe_behaviour(program, name, seed=name)
        if not isinstance(behaviour, Behaviour):
            found[str(behaviour)] += 1
            continue
        normal = behaviour.tests.replace(name, "h")
        if normal in seen:
            found["same behaviour"] += 1
            continue
        seen.add(normal)
        parts = {
            "all": f"the functions `{first.signature}`, `{second.signature}` and `{name}{inside} to {result}`",
            "f": first.name, "g": second.name, "h": name, "f_told": first.told, "g_told": second.told,
            "signature": f"{name}{inside} to {result}", "f_signature": first.signature, "g_signature": second.signature,
            "examples": examples_sentence(behaviour.examples),
        }  # fmt: skip
        source = {
            "path": f"synthetic/task/composed/{len(new)}.vox",
            "blob": hashlib.sha256(program.encode()).hexdigest(),
            "span": [0, len(program)], "lines": [1, program.count("\n")], "commit": None, "kind": "synthetic",
        }  # fmt: skip
        prompt = random.choice(_ASKED).format(**parts).strip()  # noqa: S311 - likewise
        new.append(
            first.row
            | {"prompt": prompt, "response": program, "category": "function", "task_family": "task", "difficulty": 3}
            | {"template": "task/composed", "source": source, "tests": behaviour.tests, "rating": 4}
        )
        found["composed"] += 1
    return new, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--number", type=int, default=600)
    options = parser.parse_args()
    random.seed(0)
    rows = [json.loads(line) for line in options.train.read_text(encoding="utf-8").splitlines()]
    new, found = compose(rows, options.number)
    with options.out.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(each) + "\n" for each in (*rows, *new))
    print(found.most_common())


if __name__ == "__main__":
    main()
