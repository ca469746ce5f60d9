"""Operators of Evol-Instruct, and the prompts that ask a model to apply one and to complete the new request.

In depth, an operator makes a request harder; in breadth, it changes the subject. Source: Xu et al. (2023), section 3.2;
operators for constructs of Vox are ours.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, Final, Protocol

from pydantic import Field

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT, noun_of
from mens_pipeline.corpus.schema.records import TrainingPair
from mens_pipeline.language import CONSTRUCTS, Mode, construct_of
from mens_pipeline.language.ast import Decorator, Forall, GenericType, Module, Test, Try, walk
from mens_pipeline.storage.validation import Strict


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """System prompt and prompt for a model; `key` identifies its reply: the SHA-256 of everything that affects it."""

    key: str
    system: str
    prompt: str

    @property
    def num_bytes(self) -> int:
        """Bytes of both texts, an upper bound of their tokens."""
        return len(self.system.encode()) + len(self.prompt.encode())


class Reply(Strict):
    """Reply of a model, as kept in a ledger."""

    key: str = Field(description="Key of the request.")
    text: str
    stopped: bool = Field(description="Whether the model ended by itself, before the limit.")
    num_tokens: int = Field(ge=0, description="Tokens of request and reply, as the model counts them.")
    num_written: int | None = Field(
        default=None,
        ge=0,
        exclude_if=lambda number: number is None,
        description="Tokens of the reply alone; null if the model does not count them.",
    )


class TextModel(Protocol):
    """A model that replies to requests.

    `digest` is the SHA-256 of its weights, or the address of an endpoint. `decoding` holds options in JSON types, part
    of the key of a request; `max_new_tokens` limits a reply.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - described by the class, as are the others

    @property
    def digest(self) -> str: ...  # noqa: D102

    @property
    def decoding(self) -> Mapping[str, Any]: ...  # noqa: D102

    @property
    def max_new_tokens(self) -> int: ...  # noqa: D102

    def ask(self, requests: Sequence[ModelRequest], time_left: Callable[[], float]) -> dict[str, Reply]:
        """Return replies by key: kept ones, and as many new ones as time allows, each saved at once.

        `time_left` returns the seconds in which requests may still start. Raises `RefusedError` if the model fails.
        """
        ...


class Operator(StrEnum):
    """Operators on a request."""

    ADD_CONSTRAINTS = "add_constraints"
    DEEPEN = "deepen"
    CONCRETISE = "concretise"
    REASONING = "reasoning"
    ERROR_HANDLING = "error_handling"
    CONTRACTS = "contracts"
    TESTS = "tests"
    HARDER_CONSTRUCT = "harder_construct"
    BREADTH = "breadth"  # another subject for the same construct


@dataclass(frozen=True, slots=True)
class Evolution:
    """One operator, drawn for one request; `goal` is the construct that it adds, if any."""

    operator: Operator
    goal: str | None = None

    @property
    def how(self) -> str:
        """Instruction to the rewriting model, as a sentence."""
        return _HOW[self.operator].format(goal=noun_of(self.goal) if self.goal is not None else "")

    @property
    def demand(self) -> str:
        """Requirement on the program, as a sentence; empty if the operator has none."""
        return _DEMANDS.get(self.operator, "").format(goal=noun_of(self.goal) if self.goal is not None else "")

    def is_shown(self, module: Module) -> bool:
        """Return whether a program meets the requirement of the operator."""
        if self.goal is not None:
            return any(construct_of(declaration).name == self.goal for declaration in module.declarations)
        is_shown = _SHOWN.get(self.operator)
        return is_shown is None or is_shown(module)


def draw_evolution(random: Random, construct: str, mode: Mode, known: Mapping[str, str]) -> Evolution:
    """Draw one of the operators that fit a prompt; `known` has a program for each construct that may be added."""
    least = CONSTRUCTS[construct].difficulty
    harder = tuple(name for name, other in CONSTRUCTS.items() if other.difficulty > least and name in known)
    goals = harder if mode is Mode.SOURCE else ()
    fitting = [operator for operator in Operator if _fits(operator, construct, mode, goals)]
    operator = random.choice(fitting)
    return Evolution(operator, random.choice(goals) if operator is Operator.HARDER_CONSTRUCT else None)


_FAILURES: Final = frozenset(("Result", "Option"))

_WITH_CONTRACTS: Final = frozenset(("function", "query", "mutation", "server", "mcp_tool"))
_ONLY_FOR: Final[Mapping[Operator, frozenset[str]]] = {
    Operator.ERROR_HANDLING: _WITH_CONTRACTS | {"activity", "workflow"},
    Operator.CONTRACTS: _WITH_CONTRACTS,
    Operator.TESTS: frozenset(("function", "type", "test", "forall")),
}


def _fits(operator: Operator, construct: str, mode: Mode, goals: tuple[str, ...]) -> bool:
    if operator is Operator.HARDER_CONSTRUCT:
        return bool(goals)
    only_for = _ONLY_FOR.get(operator)
    return only_for is None or (mode is Mode.SOURCE and construct in only_for)


_SHOWN: Final[Mapping[Operator, Callable[[Module], bool]]] = {
    Operator.ERROR_HANDLING: lambda module: any(
        isinstance(node, Try) or (isinstance(node, GenericType) and node.name in _FAILURES) for node in walk(module)
    ),
    Operator.CONTRACTS: lambda module: any(
        isinstance(node, Decorator) and node.name in {"@require", "@ensure", "@invariant"} for node in walk(module)
    ),
    Operator.TESTS: lambda module: any(isinstance(found, Test | Forall) for found in module.declarations),
}

_HOW: Final[Mapping[Operator, str]] = {
    Operator.ADD_CONSTRAINTS: "Add one more constraint or requirement.",
    Operator.DEEPEN: "Ask for more depth: cover what the request leaves open, such as limits, empty input, or order.",
    Operator.CONCRETISE: "Replace general notions by specific ones: named fields, real units, exact rules.",
    Operator.REASONING: "Ask for something that takes several steps of reasoning instead of one.",
    Operator.ERROR_HANDLING: "Ask that failure is handled: say what may fail, and what is returned then.",
    Operator.CONTRACTS: "Ask for contracts: what must hold of the arguments, and what holds of the result.",
    Operator.TESTS: "Ask for tests of the behaviour as well, and name the cases that they must cover.",
    Operator.HARDER_CONSTRUCT: "Ask for {goal} as well, which works together with the rest.",
    Operator.BREADTH: "Choose another subject from the same field, a rarer one, and ask for something about as hard.",
}

_DEMANDS: Final[Mapping[Operator, str]] = {
    Operator.ERROR_HANDLING: "Return a `Result` or an `Option` where something may fail.",
    Operator.CONTRACTS: "Write the contracts as `@require(...)` and `@ensure(...)` above the function.",
    Operator.TESTS: "Write the tests as `@test` functions with assertions in the same program.",
    Operator.HARDER_CONSTRUCT: "The program declares {goal} too.",
}

REWRITER: Final = (
    "You write requests for programs in the programming language Vox. Answer with one request alone: "
    "no program, no title, no explanation."
)
"""System prompt of a generator that rewrites a request."""


class EvolutionPrompts:
    """Builds the prompts for one model."""

    def __init__(self, generator: TextModel, seed: int, examples: Mapping[str, str]) -> None:
        """Set the model; another seed gives other keys; `examples` maps a construct to a program that shows it."""
        self._decides = [generator.name, generator.digest, dict(generator.decoding), seed]
        self._examples = examples

    def ask_to_rewrite(self, parent: TrainingPair, evolution: Evolution) -> ModelRequest:
        """Build the prompt for a new request."""
        noun = noun_of(parent.category)
        if evolution.operator is Operator.BREADTH:
            task = f"Write a new request, inspired by the one below. It asks for {noun} in Vox as well."
        else:
            task = f"Make the request below harder, by 10 to 20 words. It stays a request for {noun} in Vox."
        rules = "One self-contained program must be able to answer it. Keep names in backticks."
        return self._request(REWRITER, f"{task} {evolution.how} {rules}\n\nThe request:\n{parent.prompt.strip()}")

    def ask_to_complete(self, parent: TrainingPair, evolution: Evolution, instruction: str) -> ModelRequest:
        """Build the prompt for the program that completes a new request."""
        parts = [instruction, evolution.demand]
        parts.append("This program shows the syntax of Vox. It is for another request: do not repeat it.")
        parts.append(_fence(parent.response))
        if evolution.goal is not None:
            parts += [f"And this shows {noun_of(evolution.goal)}:", _fence(self._examples[evolution.goal])]
        parts.append("Answer with one complete program in a fenced block.")
        return self._request(SYSTEM_PROMPT, "\n\n".join(part for part in parts if part))

    def _request(self, system: str, prompt: str) -> ModelRequest:
        content = json.dumps([*self._decides, system, prompt], sort_keys=True)
        return ModelRequest(hashlib.sha256(content.encode()).hexdigest(), system, prompt)


def _fence(program: str) -> str:
    return f"```vox\n{program.rstrip()}\n```"
