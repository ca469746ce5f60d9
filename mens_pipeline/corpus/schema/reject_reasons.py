"""Why a row is not kept, and what is said of one that is."""

from enum import StrEnum


class RejectReason(StrEnum):
    """Why a row is quarantined."""

    TOO_LARGE = "too_large"
    MALFORMED_JSON = "malformed_json"
    NOT_AN_OBJECT = "not_an_object"
    SCHEMA = "schema"
    UNKNOWN_CATEGORY = "unknown_category"
    """It names neither a construct of the language nor a task of the table of categories."""
    COMPILER_REJECTED = "compiler_rejected"
    DUPLICATE = "duplicate"
    """Prompt and response, or place and text of a record, were there before."""
    NEAR_DUPLICATE = "near_duplicate"
    """Hardly anything in it is new."""
    SOURCE_CAP = "source_cap"
    """Its source file has given as many rows as one may give."""
    TEMPLATE_CAP = "template_cap"
    """Its template has given as many rows as one may give."""


class WarnReason(StrEnum):
    """A defect of a row that is counted and does not drop it."""

    SEMANTIC_ERROR = "semantic_error"
    """Its code has an error in names or types."""
