"""All reasons for keeping something out of training, in the order of the stages.

Add a new reason here, and use it in the code that drops; reports list all reasons of a class automatically.
"""

from enum import StrEnum
from typing import Final


class DropReason(StrEnum):
    """Why an extraction drops a file, or a part of it."""

    NEGATIVE_ROOT = "negative_root"
    FORGOTTEN = "forgotten"  # withdrawn: config/forgotten.yaml lists it
    LICENCE = "licence_denied"  # `licences` of config/pipeline.yaml denies its licence
    IGNORED = "ignored"  # Git ignores it; without git, it is in a folder of builds or environments
    VENDORED = "vendored"  # third-party code, according to its folder or `.gitattributes`
    GENERATED = "generated"  # written by a tool, according to a comment or `.gitattributes`
    NOT_OPTED_IN = "not_opted_in"  # a page without `training_eligible: true`
    OPTED_OUT = "opted_out"  # `training_eligible: false`
    DEPRECATED = "deprecated"
    SKIP_MARKER = "skip_marker"
    BAD_FRONTMATTER = "bad_frontmatter"
    LINK = "link"  # a symbolic link, whose target is read on its own; or a pipe or device
    TOO_LARGE = "too_large"
    TOO_SLOW = "too_slow"  # extraction took more than a minute of processor time
    NOT_TEXT = "not_text"
    NOT_UTF8 = "not_utf8"  # text in another encoding: save it as UTF-8
    UNREADABLE = "unreadable"
    REJECTED = "rejected"  # the front end does not accept it
    NO_DECLARATION = "no_declaration"
    TOO_SHORT = "too_short"  # a section with hardly any prose
    BAD_INCLUDE = "bad_include"
    """An include that is missing, outside the workspace, or names an unknown anchor."""
    SENSITIVE = "sensitive"
    """It contains a secret or names a person, and cannot or must not be masked."""


class LeaveReason(StrEnum):
    """Why a record of another folder is left out."""

    CHANGED = "changed"  # its file has changed
    GONE = "gone"
    NEGATIVE_ROOT = "negative_root"
    FORGOTTEN = "forgotten"
    LICENCE = "licence_denied"
    NOT_OWN = "not_own"  # ignored, vendored or generated
    GOLDEN_ROOT = "golden_root"  # it was golden and no longer is, or the other way round


class TelemetryDrop(StrEnum):
    """Why a telemetry row is dropped."""

    EMPTY = "empty"  # NULL or blank
    NOT_TEXT = "not_text"  # a number, bytes, or text that is not UTF-8
    TOO_LONG = "too_long"
    DUPLICATE = "duplicate"  # after redaction, it equals an earlier row
    BAD_RATING = "bad_rating"  # its rating is not a whole number from 1 to 5


class SynthesisDrop(StrEnum):
    """Why a synthetic program is not kept."""

    FAILING_TESTS = "failing_tests"  # one of its own tests fails
    SEMANTIC_ERROR = "semantic_errors"  # it has an error in names or types


class RejectReason(StrEnum):
    """Why a row is quarantined."""

    TOO_LARGE = "too_large"
    MALFORMED_JSON = "malformed_json"
    NOT_AN_OBJECT = "not_an_object"
    SCHEMA = "schema"
    COMPILER_REJECTED = "compiler_rejected"
    DUPLICATE = "duplicate"  # an earlier row has the same prompt and response, or place and text
    NEAR_DUPLICATE = "near_duplicate"  # hardly anything in it is new
    SOURCE_CAP = "source_cap"  # its source file has reached the limit of rows
    TEMPLATE_CAP = "template_cap"  # its template has reached the limit of rows


class WarnReason(StrEnum):
    """A defect of a row that is counted but does not drop it."""

    SEMANTIC_ERROR = "semantic_error"  # its code has an error in names or types
    UNKNOWN_CATEGORY = "unknown_category"  # its category is neither a construct nor a known task


class NoBehaviour(StrEnum):
    """Why a function has no observable behaviour."""

    NOT_PURE = "not_pure"
    """It needs something that the interpreter refuses: files, network, a model, another module."""
    NONDETERMINISTIC = "nondeterministic"  # it reads the clock or random numbers
    UNDRAWABLE = "undrawable"  # a parameter has no type, or a type without known values
    NO_PARAMETERS = "no_parameters"
    NO_BODY = "no_body"
    TOO_LARGE = "too_large"
    DOES_NOT_END = "does_not_end"
    FAILS = "fails"  # hardly any call returns
    NO_LITERAL = "no_literal"  # it returns functions, or values that are too long to write
    CONSTANT = "constant"
    IDENTITY = "identity"
    TOO_FEW_INPUTS = "too_few_inputs"
    """Its parameters have too few values for examples and hidden tests."""
    ENTANGLED = "entangled"
    """The declarations that it needs do not run without it, so it cannot be tested separately."""
    STOPPED = "stopped"  # the process that observed it was killed
    SEVERAL_FUNCTIONS = "several_functions"  # the record asks for more than one function


class SplitReason(StrEnum):
    """Why a pair is used for neither training nor evaluation."""

    DUPLICATE = "duplicate"  # the same pair came before, perhaps from another source
    NEAR_DUPLICATE = "near_duplicate"
    SOURCE_CAP = "source_cap"
    TEMPLATE_CAP = "template_cap"
    DERIVED = "derived_from_heldout"  # evolved from a held-out file
    TOO_SMALL = "heldout_too_small"  # from a held-out file, and so small that others equal it by chance
    PROMPT = "same_prompt"
    WORDS = "shared_ngrams"
    STRUCTURE = "same_structure"
    BEHAVIOUR = "same_behaviour"
    """One of its functions passes the hidden tests of a held-out task or of the benchmark."""


class InfillDrop(StrEnum):
    """Why a program, or a hole in it, gives no infill row."""

    NO_PROGRAM = "no_program"  # prose, or code that the front end does not accept
    PART_OF_FILE = "part_of_file"  # a declaration of a file that is present as a whole
    SAMPLED_OUT = "sampled_out"  # a synthetic program that was not drawn
    NO_HOLE = "no_hole"  # nothing in it can be cut out
    HELD_OUT_LINES = "held_out_lines"  # a held-out file contains a line of the piece
    DUPLICATE = "duplicate"  # an earlier row has the same piece after the same text


class ReplayDrop(StrEnum):
    """Why a commit, a file or a changed place is not replayed as a hole."""

    MERGE = "merge"  # a commit with several parents, which contain its changes
    MASS_CHANGE = "mass_change"
    """A commit that changes many programs, or a file in many places, as no person types."""
    RENAMED = "renamed"
    NEW_FILE = "new_file"  # the file did not exist before
    GENERATED = "generated"  # it says so, or is in a hidden, vendored or benchmark folder
    UNREADABLE = "unreadable"  # not in this clone, not UTF-8, or too large
    ADDS_NOTHING = "adds_nothing"
    TOO_LONG = "too_long"  # more lines than a hole has, or more tokens than a piece
    WHITE_SPACE = "white_space"  # only white space changes
    NO_CODE = "no_code"  # only comments, brackets or empty lines; or the start of the file
    REJECTED = "rejected"  # the front end rejects the program with only these lines added
    DUPLICATE = "duplicate"  # the same lines at the same place of the program, in another branch
    SAMPLED_OUT = "sampled_out"  # beyond the requested number of holes


class MixDrop(StrEnum):
    """Why a row of a source is not in the mix."""

    UNREADABLE = "unreadable"  # it does not fit the source's format
    LANE = "lane_not_trained"
    SAMPLED_OUT = "sampled_out"
    DUPLICATE = "duplicate"  # the same pair came before, perhaps from another source
    SENSITIVE = "sensitive"  # as in `DropReason`
    FORGOTTEN = "forgotten"  # likewise


class SkippedReason(StrEnum):
    """Why a source gives no rows; upstream's values."""

    MISSING_FILE_OPTIONAL = "missing_file_optional"
    WEIGHT_ZERO = "weight_zero"
    EMPTY_FILE = "empty_file"
    NO_LINES_PASSED_FILTERS = "no_lines_passed_filters"


class NotShown(StrEnum):
    """Why fine-tuning leaves out a row of the train set."""

    LOW_RATING = "low_rating"
    OTHER_CATEGORY = "other_category"
    OTHER_DIFFICULTY = "other_difficulty"
    TOO_LONG = "too_long"  # truncated, it would lose its end

    @property
    def settings(self) -> tuple[str, ...]:
        """The fields of the recipe that drop such rows."""
        return _SETTINGS[self]


_SETTINGS: Final = {
    NotShown.LOW_RATING: ("min_rating",),
    NotShown.OTHER_CATEGORY: ("category_filter",),
    NotShown.OTHER_DIFFICULTY: ("min_difficulty", "max_difficulty"),
    NotShown.TOO_LONG: ("max_length",),
}


class Skipped(StrEnum):
    """Why training from scratch leaves out a row of the train set."""

    NOT_A_PAIR = "not_a_pair"
    AT_A_CURSOR = "at_a_cursor"  # it completes code at a cursor, which this model does not learn
    LOW_RATING = "low_rating"
    NOT_ASCII = "not_ascii"  # its completion contains a character that the model cannot write
    TOO_LONG = "too_long"  # truncated, it would lose its end


class NoSeed(StrEnum):
    """Why a row is not evolved."""

    PROSE = "prose"  # prose, or a row of another lane
    OTHER_TASK = "other_task"  # its category is not a construct
    HOLDS_CODE = "holds_code"  # its request contains code, which rewriting would break
    REJECTED = "rejected"
    HELD_OUT = "held_out"  # its file is held out
    REPEATED = "repeated"  # the same pair came before


class EvolutionDrop(StrEnum):
    """Why an attempt gives no row; its detail says more."""

    BAD_INSTRUCTION = "bad_instruction"
    """The model declined, was cut off, or wrote code, too little, too much, nothing new, or about the rewriting."""
    OVER_BUDGET = "over_budget"  # the budget ended before its completion, or others filled it
    BAD_REPLY = "bad_reply"
    """Empty, declined, cut off, too long, or with a comment in place of code."""
    REJECTED = "rejected"  # the front end rejects it, or it declares nothing
    NOT_AS_ASKED = "not_as_asked"
    """It lacks the construct, the name or the operator's goal, or repeats the request."""
    SEMANTIC_ERROR = "semantic_error"  # it has an error in names or types
    REPEATED = "repeated"
    """Its parent, a seed or an earlier row has the same structure or nearly the same text."""
    TESTS_FAILED = "tests_failed"  # its tests fail, do not run in the sandbox, or assert nothing
    NEAR_HELD_OUT = "near_held_out"
