"""Small functions whose results are known: the material of function, test and property families."""

from dataclasses import dataclass
from random import Random

from mens_pipeline.corpus.synthesis.families.draft import block
from mens_pipeline.corpus.synthesis.phrasing import pick


@dataclass(frozen=True, slots=True)
class Kernel:
    """A pure function with its meaning in words and in examples.

    Attributes:
        name: What it is called.
        params: Its parameter list, without parentheses.
        returns: Its return type.
        body: Lines or whole blocks.
        behaviour: What it returns, in whole sentences.
        cases: Argument lists and the expected results, as Vox literals; computed by a Python twin of the body.
    """

    name: str
    params: str
    returns: str
    body: tuple[str, ...]
    behaviour: str
    cases: tuple[tuple[str, str], ...]

    @property
    def signature(self) -> str:
        """Parameters and return type as written."""
        return f"({self.params}) to {self.returns}"

    @property
    def code(self) -> str:
        """The function."""
        return block(f"fn {self.name}{self.signature}", *self.body)

    def check(self, case: int) -> str:
        """An assertion of one case.

        Args:
            case: Its position.
        """
        arguments, expected = self.cases[case]
        call = f"{self.name}({arguments})"
        if expected in ("true", "false"):
            return f"assert({call})" if expected == "true" else f"assert(not {call})"
        return f"assert({call} is {expected})"


def text(value: str) -> str:
    """A Vox string literal.

    Args:
        value: Neither quotes nor backslashes.
    """
    return f'"{value}"'


def numbers(values: list[int]) -> str:
    """A Vox list literal.

    Args:
        values: Its elements.
    """
    return f"[{', '.join(str(value) for value in values)}]"


def words(values: list[str]) -> str:
    """A Vox list literal of strings.

    Args:
        values: Its elements, without quotes and backslashes.
    """
    return f"[{', '.join(text(value) for value in values)}]"


def boolean(value: bool) -> str:  # noqa: FBT001 - the value is the argument
    """A Vox bool.

    Args:
        value: The truth.
    """
    return str(value).lower()


def signature_sentence(random: Random, kernel: Kernel) -> str:
    """A sentence that gives the parameters and the return type.

    Args:
        random: Decides the wording.
        kernel: Whose signature it is.
    """
    return pick(
        random,
        f"Its signature is `{kernel.signature}`.",
        f"It takes `{kernel.params}` and returns `{kernel.returns}`.",
        f"Parameters: `{kernel.params}`; result: `{kernel.returns}`.",
        f"The parameters are `{kernel.params}`, the return type is `{kernel.returns}`.",
    )


def example_sentence(random: Random, kernel: Kernel) -> str:
    """A sentence with one known result.

    Args:
        random: Decides the wording and which result.
        kernel: Whose result it is.
    """
    arguments, expected = random.choice(kernel.cases)
    call = f"{kernel.name}({arguments})"
    return pick(
        random,
        f"For example, `{call}` is `{expected}`.",
        f"`{call}` gives `{expected}`.",
        f"Example: `{call}` returns `{expected}`.",
    )
