"""The names that every program knows; what runs is taken from the interpreter, the rest from the reference compiler."""

from typing import Final

from mens_pipeline.language.interpreter.compiler.assertions import ASSERTIONS
from mens_pipeline.language.interpreter.library.builtins import BUILT_INS, PREDEFINED_VARIANTS
from mens_pipeline.language.interpreter.library.methods import METHODS

_REFERENCE_VALUES: Final = ("path", "workflow_wait", "workflow_wait_signal")
"""What the interpreter does not run: a namespace, and what a workflow waits with."""

VALUES: Final = frozenset((*BUILT_INS, *ASSERTIONS, *_REFERENCE_VALUES))
"""Functions, constructors and namespaces (F1, F10)."""

VARIANTS: Final[dict[str, int]] = {**PREDEFINED_VARIANTS, "Err": 1, "null": 0}
"""Variant -> number of its fields, as patterns may write them (V10-V12)."""

PLAIN_TYPES: Final = frozenset(
    (
        *("int", "float", "float64", "dec", "str", "bool", "char", "Unit", "unit", "never", "any", "Json", "Element"),
        *("Regex", "Match", "Request", "Response", "JsonBody", "KeyboardEvent", "Any", "bytes"),
    )
)
"""Types without arguments."""

GENERIC_TYPES: Final[dict[str, int | None]] = {
    **dict.fromkeys(("List", "list", "Option", "Set", "set", "Stream", "Id"), 1),
    **dict.fromkeys(("Map", "map"), 2),
    **dict.fromkeys(("Result", "Vec", "Tensor", "Tuple")),
}
"""Type -> number of its arguments; None where it varies."""

METHOD_NAMES: Final = frozenset(name for methods in METHODS.values() for name in methods)
"""What any value of the library can be asked to do."""
