"""What is evolved, and the checks on what comes of it: can the request be completed, does the program do it."""

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from mens_pipeline.corpus.curate.heldout_split import group_of, is_held_out
from mens_pipeline.corpus.curate.near_duplicates import NearDuplicates, ngrams_of, words_of
from mens_pipeline.corpus.curate.overlap import HeldoutTasks
from mens_pipeline.corpus.curate.pipeline_config import SplitPolicy
from mens_pipeline.corpus.curate.validate import parsed_code
from mens_pipeline.corpus.evolution.operators import Evolution, Request
from mens_pipeline.corpus.schema.account import Account
from mens_pipeline.corpus.schema.prompts import noun_of
from mens_pipeline.corpus.schema.reasons import EvolutionDrop, NoSeed
from mens_pipeline.corpus.schema.records import MAX_TEXT, Lane, TrainingPair
from mens_pipeline.language import CONSTRUCTS, Mode, analyze, construct_of, name_of, structure_of
from mens_pipeline.language.ast import Module, Node
from mens_pipeline.language.interpreter import Outcome, ProgramReport, ProgramStatus

MAX_INSTRUCTION: Final = 2_000
"""Characters; a request that long is no request any more."""

_SAME: Final = 0.9
"""Share of common words from which a request says what its parent said."""

_COPIED: Final = 0.5
"""Share of the five-word runs of a request that a program may repeat."""

_RUN: Final = 5

_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_FEWEST_WORDS: Final = 3
"""A request says at least `Write ... Vox`; less is punctuation and noise."""

_LABEL: Final = re.compile(r"^[\s*]*(?:(?:the|new|rewritten|harder) )*request\b(?:\*\*:|:\*\*|:)\s*", re.IGNORECASE)
"""Such as `New request:` or `**Request:**`."""
_QUOTES: Final = ("“”", '""', "''")
_LEAK: Final = re.compile(
    r"\b(?:rewritten|rewrit(?:e|ing)|harder version|original request|given request|request (?:above|below)"
    r"|self-contained program must)\b",
    re.IGNORECASE,
)


Refusal = tuple[EvolutionDrop, str]


@dataclass(frozen=True, slots=True)
class Reading:
    """A reply, read as an evaluation reads completions.

    The program is the fenced block in it, or all of it; a stub has a comment where code should stand.
    """

    program: str
    is_refusal: bool
    is_stub: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request on its way to a row.

    `parent` is the pair that is evolved, `generation` 1 where nobody evolved it; `request` is what the model is asked
    next, `instruction` the new request, once it is there, and `program` its completion.
    """

    parent: TrainingPair
    evolution: Evolution
    generation: int
    request: Request
    instruction: str = ""
    program: str = ""

    @property
    def construct(self) -> str:
        """Construct that the row is an example of: that of the operator, else that of its parent."""
        return self.evolution.goal or self.parent.category

    @property
    def mode(self) -> Mode:
        """Grammar mode of the program: that of its parent."""
        return code_of(self.parent)[1]


def instruction_in(text: str) -> str:
    """Extract the instruction from a reply, without a label before it and quotes around it."""
    bare = _LABEL.sub("", text.strip()).strip()
    quoted = any(bare.startswith(pair[0]) and bare.endswith(pair[1]) and len(bare) > 1 for pair in _QUOTES)
    return bare[1:-1].strip() if quoted else bare


def instruction_refusal(instruction: str, parent: TrainingPair, reading: Reading, *, stopped: bool) -> Refusal | None:
    """Return why a new request is not worth completing; None for one that is.

    `stopped` tells whether the model ended by itself.
    """
    fault = _find_fault(instruction, parent, reading, stopped=stopped)
    if fault is not None:
        return EvolutionDrop.BAD_INSTRUCTION, fault
    before, after = (frozenset(words_of(text.lower())) for text in (parent.prompt, instruction))
    if after <= before or len(before & after) >= _SAME * len(before | after):
        return EvolutionDrop.SAME_INSTRUCTION, ""
    return None


def _find_fault(instruction: str, parent: TrainingPair, reading: Reading, *, stopped: bool) -> str | None:
    if reading.is_refusal:
        return "a refusal"
    if not stopped:
        return "cut off"
    if len(instruction) > MAX_INSTRUCTION:
        return f"{len(instruction)} characters"
    module = analyze(instruction).module
    if "```" in instruction or (module is not None and module.declarations):
        return "holds code"
    if len(_WORD.findall(instruction)) < _FEWEST_WORDS:
        return "hardly a word"
    leak = _LEAK.search(instruction)
    return f"says `{leak[0]}`" if leak is not None and leak[0].lower() not in parent.prompt.lower() else None


def form_refusal(attempt: Attempt, reading: Reading, *, stopped: bool) -> Refusal | None:
    """Return why a completion is no program to look at; None for one that may be."""
    program = attempt.program
    analysis = analyze(program, attempt.mode)
    is_program = analysis.module is not None and bool(analysis.module.declarations)
    faults = {
        "empty": not program.strip(),
        "a refusal": reading.is_refusal and not is_program,
        "cut off": not stopped,
        f"{len(program)} characters": len(program) > MAX_TEXT,
    }
    fault = next((fault for fault, is_found in faults.items() if is_found), None)
    if fault is not None:
        return EvolutionDrop.BAD_REPLY, fault
    if analysis.errors:
        first = analysis.errors[0]
        return EvolutionDrop.REJECTED, f"{first.start.line}:{first.start.column + 1}: {first.code}: {first.message}"
    if not is_program:
        return EvolutionDrop.REJECTED, "it declares nothing"
    return (EvolutionDrop.BAD_REPLY, "a comment stands where code should") if reading.is_stub else None


def content_refusal(attempt: Attempt, module: Module) -> Refusal | None:
    """Return why an accepted program is not what was asked for, or not new; None for one that is both."""
    runs = ngrams_of(words_of(attempt.instruction.lower()), _RUN)
    if len(runs & ngrams_of(words_of(attempt.program.lower()), _RUN)) > _COPIED * len(runs):
        return EvolutionDrop.COPIES_INSTRUCTION, ""
    constructs = {construct_of(declaration).name for declaration in module.declarations}
    missing = {attempt.construct, attempt.parent.category} - constructs
    if missing:
        return EvolutionDrop.NOT_AS_ASKED, f"no {', '.join(sorted(missing))}"
    asked = names_in(attempt.instruction, attempt.construct)
    declared = {name_of(d) for d in module.declarations if construct_of(d).name == attempt.construct}
    if asked and not asked & declared:
        return EvolutionDrop.NOT_AS_ASKED, f"not called {' or '.join(sorted(asked))}"
    if not attempt.evolution.is_shown(module):
        return EvolutionDrop.NOT_AS_ASKED, f"does not show {attempt.evolution.operator}"
    parent = _tree_of(attempt.parent)
    if structure_of(module).digest == structure_of(parent).digest:
        return EvolutionDrop.SAME_AS_PARENT, ""
    return None


def names_in(instruction: str, construct: str) -> set[str]:
    """Return the names that an instruction gives to what it asks for: those in backticks behind its noun."""
    noun = noun_of(construct).split(" ", 1)[1].replace("`", "")
    return set(re.findall(rf"\b{re.escape(noun)}(?: named| called)? `([A-Za-z_][\w.]*)(?:\([^`]*\))?`", instruction))


def refusal_of_tests(program: str, mode: Mode, run: Callable[[str, Mode], ProgramReport]) -> Refusal | bool:
    """Return why the tests of a program speak against it; otherwise whether there are any."""
    report = run(program, mode)
    if report.status is ProgramStatus.NO_TESTS:
        return False
    if report.status is not ProgramStatus.RAN:
        return EvolutionDrop.TESTS_NOT_RUN, report.message
    for case in report.tests:
        if not case.passed:
            not_run = case.outcome in {Outcome.UNSUPPORTED, Outcome.LIMIT}
            reason = EvolutionDrop.TESTS_NOT_RUN if not_run else EvolutionDrop.TESTS_FAILED
            return reason, f"{case.name}: {case.message}"
    idle = [case.name for case in report.tests if not case.num_assertions]
    return (EvolutionDrop.TESTS_EMPTY, ", ".join(idle)) if idle else True


def structures_of(pairs: Iterable[TrainingPair], min_nodes: int) -> set[str]:
    """Return the structure digests of the programs of some pairs.

    Programs with fewer than `min_nodes` nodes are alike by chance and left out.
    """
    structures = (structure_of(_tree_of(pair)) for pair in pairs)
    return {structure.digest for structure in structures if structure.num_nodes >= min_nodes}


def code_of(pair: TrainingPair) -> tuple[str, Mode]:
    """Return the code of a seed, or of what comes of one, and the mode to parse it in."""
    code = parsed_code(pair)
    assert code is not None, "seeds and rows are code"  # noqa: S101 - our own impossibility
    return code


def _tree_of(pair: TrainingPair) -> Node:
    module = analyze(*code_of(pair)).module
    assert module is not None, "seeds and rows are accepted code"  # noqa: S101 - our own impossibility
    return module


@dataclass(kw_only=True)
class Seeds(Account[NoSeed]):
    """The rows of a file, sorted by what they are good for.

    Nothing may be near to `heldout`; the rows that are dropped are not evolved; `examples` maps a construct to
    the shortest program of a seed that shows it.
    """

    pairs: list[TrainingPair] = field(default_factory=list)
    heldout: list[TrainingPair] = field(default_factory=list)
    examples: dict[str, str] = field(default_factory=dict)


def sort_seeds(pairs: Iterable[TrainingPair], policy: SplitPolicy, seed: int) -> Seeds:
    """Sort rows into seeds, held-out ones, and others; every row is in `pairs` or counted in `dropped`.

    The seed decides the order; the same rows in another order give the same.
    """
    seeds = Seeds()
    seen: set[bytes] = set()
    for pair in pairs:
        seeds.seen += 1
        reason = NoSeed.REPEATED if pair.digest in seen else _find_reason(pair, policy)
        seen.add(pair.digest)
        if reason is NoSeed.HELD_OUT:
            seeds.heldout.append(pair)
        if reason is None:
            seeds.pairs.append(pair)
            seeds.kept += 1
        else:
            seeds.dropped[reason] += 1
    seeds.check()
    seeds.pairs.sort(key=lambda pair: hashlib.sha256(f"{seed}:{pair.digest.hex()}".encode()).digest())
    for pair in sorted(seeds.pairs, key=lambda pair: (len(pair.response), pair.response)):
        seeds.examples.setdefault(pair.category, pair.response)
    return seeds


def _find_reason(pair: TrainingPair, policy: SplitPolicy) -> NoSeed | None:
    code = parsed_code(pair)
    if code is None or pair.lane is not Lane.CODEGEN:
        return NoSeed.PROSE
    group = group_of(pair)
    if group is not None and is_held_out(group, policy):
        return NoSeed.HELD_OUT
    if pair.category not in CONSTRUCTS:
        return NoSeed.OTHER_TASK
    if "\n\n" in pair.prompt.strip():
        return NoSeed.HOLDS_CODE
    return None if analyze(*code).module is not None else NoSeed.REJECTED


class Neighbours:
    """Rows that are there already; those that are kept join them."""

    def __init__(
        self, seeds: Seeds, protected: Iterable[TrainingPair], near_duplicate_threshold: float, policy: SplitPolicy
    ) -> None:
        """Take up what is there."""
        self._heldout = HeldoutTasks([*seeds.heldout, *protected], policy.max_overlap, policy.min_nodes)
        self._min_nodes = policy.min_nodes
        self._structures = structures_of(seeds.pairs, policy.min_nodes)
        self._texts = NearDuplicates(near_duplicate_threshold)
        self._num_rows = 0
        for number, pair in enumerate(seeds.pairs):
            self._texts.earlier(f"seed {number}", _text(pair))

    def refusal(self, row: TrainingPair, module: Module) -> Refusal | None:
        """Return the reason to drop a row, with a detail; None for a row that is kept and joins the others."""
        overlap = self._heldout.overlap(row)
        if overlap is not None:
            return EvolutionDrop.NEAR_HELD_OUT, f"{overlap[0]}: {overlap[1]}"
        structure = structure_of(module)
        if structure.digest in self._structures:
            return EvolutionDrop.REPEATED, ""
        near = self._texts.earlier(f"row {self._num_rows}", _text(row))
        if near is not None:
            return EvolutionDrop.NEAR_DUPLICATE, near
        self._num_rows += 1
        if structure.num_nodes >= self._min_nodes:
            self._structures.add(structure.digest)
        return None


def _text(pair: TrainingPair) -> str:
    return f"{pair.prompt}\n{pair.response}"
