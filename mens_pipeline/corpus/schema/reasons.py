"""Every reason why something of the corpus does not train, in the order in which the stages ask."""

from enum import StrEnum


class DropReason(StrEnum):
    """Why something that was seen does not train."""

    NEGATIVE_ROOT = "negative_root"
    NOT_OPTED_IN = "not_opted_in"
    """A page without `training_eligible: true`."""
    OPTED_OUT = "opted_out"
    """`training_eligible: false`."""
    DEPRECATED = "deprecated"
    SKIP_MARKER = "skip_marker"
    BAD_FRONTMATTER = "bad_frontmatter"
    LINK = "link"
    """A symbolic link, whose file is read where it lies; or a pipe or device, which is no file."""
    TOO_LARGE = "too_large"
    NOT_TEXT = "not_text"
    UNREADABLE = "unreadable"
    REJECTED = "rejected"
    """The front end does not accept it."""
    NO_DECLARATION = "no_declaration"
    TOO_SHORT = "too_short"
    """A section with hardly any prose."""
    BAD_INCLUDE = "bad_include"
    """An include that is missing, lies outside the workspace, or names no anchor of its file."""


class LeaveReason(StrEnum):
    """Why a record of another folder does not stay."""

    CHANGED = "changed"
    """Its file is not as it was."""
    GONE = "gone"
    NEGATIVE_ROOT = "negative_root"
    GOLDEN_ROOT = "golden_root"
    """It was golden and is not any more, or the other way round."""


class TelemetryDrop(StrEnum):
    """Why a row does not train."""

    EMPTY = "empty"
    """NULL or blank."""
    NOT_TEXT = "not_text"
    """A number, bytes, or text that is not UTF-8."""
    TOO_LONG = "too_long"
    DUPLICATE = "duplicate"
    """Redacted, the same prompt and response were there before."""
    BAD_RATING = "bad_rating"
    """Rated, but not with a whole number from 1 to 5."""


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


class NoBehaviour(StrEnum):
    """Why a function gives no behaviour."""

    NOT_PURE = "not_pure"
    """It needs what the interpreter refuses: files, network, a model, another module."""
    NONDETERMINISTIC = "nondeterministic"
    """It asks for the time, or for something random."""
    UNDRAWABLE = "undrawable"
    """A parameter has no type, or one that no values are drawn of."""
    NO_PARAMETERS = "no_parameters"
    NO_BODY = "no_body"
    TOO_LARGE = "too_large"
    DOES_NOT_END = "does_not_end"
    FAILS = "fails"
    """Hardly any call returns."""
    NO_LITERAL = "no_literal"
    """It returns functions, or values too long to write down."""
    CONSTANT = "constant"
    IDENTITY = "identity"
    TOO_FEW_INPUTS = "too_few_inputs"
    """Its parameters have too few values for examples and hidden tests."""
    ENTANGLED = "entangled"
    """The declarations that it needs do not run without it, so that it cannot be tested separately."""
    STOPPED = "stopped"
    """The process that observed it had to be ended."""
    SEVERAL_FUNCTIONS = "several_functions"
    """The record is about more than one."""


class SplitReason(StrEnum):
    """Why a pair neither trains nor judges."""

    DUPLICATE = "duplicate"
    """The same pair came before, perhaps from another source."""
    NEAR_DUPLICATE = "near_duplicate"
    SOURCE_CAP = "source_cap"
    TEMPLATE_CAP = "template_cap"
    DERIVED = "derived_from_heldout"
    """Evolved, from a held-out file."""
    TOO_SMALL = "too_small"
    """Of a held-out file, and so small that others are like it by chance."""
    PROMPT = "same_prompt"
    WORDS = "shared_ngrams"
    STRUCTURE = "same_structure"
    BEHAVIOUR = "same_behaviour"
    """One of its functions passes the hidden tests of a held-out task or of the benchmark."""


class MixDrop(StrEnum):
    """Why a row of a source is not mixed."""

    UNREADABLE = "unreadable"
    """No row of the source's format."""
    LANE = "lane"
    """Its lane does not train."""
    SAMPLED_OUT = "sampled_out"
    DUPLICATE = "duplicate"
    """The same pair came before, perhaps from another source."""


class SkippedReason(StrEnum):
    """Why a source gives nothing; upstream's words."""

    MISSING_FILE_OPTIONAL = "missing_file_optional"
    WEIGHT_ZERO = "weight_zero"
    EMPTY_FILE = "empty_file"
    NO_LINES_PASSED_FILTERS = "no_lines_passed_filters"
