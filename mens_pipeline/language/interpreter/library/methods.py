"""The methods of every kind of value."""

from typing import Final

from mens_pipeline.language.interpreter.database import Table
from mens_pipeline.language.interpreter.library.lists import LIST_METHODS
from mens_pipeline.language.interpreter.library.numbers import FLOAT_METHODS, INT_METHODS, TEXTS
from mens_pipeline.language.interpreter.library.records import RECORD_METHODS, VARIANT_METHODS
from mens_pipeline.language.interpreter.library.regexes import MATCH_METHODS, REGEX_METHODS, Match, Regex
from mens_pipeline.language.interpreter.library.tables import TABLE_METHODS
from mens_pipeline.language.interpreter.library.texts import TEXT_METHODS
from mens_pipeline.language.interpreter.values import Native, Variant

METHODS: Final[dict[type, dict[str, Native]]] = {
    int: INT_METHODS,
    float: FLOAT_METHODS,
    bool: TEXTS,
    str: TEXT_METHODS,
    list: LIST_METHODS,
    dict: RECORD_METHODS,
    Variant: VARIANT_METHODS,
    Regex: REGEX_METHODS,
    Match: MATCH_METHODS,
    Table: TABLE_METHODS,
}
"""Python type of a value -> its methods; a method that is not here does not exist (J5)."""
