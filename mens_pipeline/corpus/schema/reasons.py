"""Every reason why something does not train, in the order in which the stages ask.

A new reason stands here, and is given where something is dropped for it; reports list the reasons of a class by
themselves.
"""

from enum import StrEnum
from typing import Final


class DropReason(StrEnum):
    """Why something that was seen does not train."""

    NEGATIVE_ROOT = "negative_root"
    LICENCE = "licence_denied"
    """Its licence is one that `licences` of config/pipeline.yaml denies."""
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
    SENSITIVE = "sensitive"
    """A secret or a person stands in it, and it is to be dropped for that, or would be another program without."""


class LeaveReason(StrEnum):
    """Why a record of another folder does not stay."""

    CHANGED = "changed"
    """Its file has changed."""
    GONE = "gone"
    NEGATIVE_ROOT = "negative_root"
    LICENCE = "licence_denied"
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


class SynthesisDrop(StrEnum):
    """Why a synthetic program is not kept."""

    FAILING_TESTS = "failing_tests"
    """A test of its own does not pass."""
    SEMANTIC_ERROR = "semantic_errors"
    """In its names or types."""


class RejectReason(StrEnum):
    """Why a row is quarantined."""

    TOO_LARGE = "too_large"
    MALFORMED_JSON = "malformed_json"
    NOT_AN_OBJECT = "not_an_object"
    SCHEMA = "schema"
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
    UNKNOWN_CATEGORY = "unknown_category"
    """It names neither a construct of the language nor a task of the table of categories."""


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
    """Why a pair neither trains nor evaluates."""

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


class InfillDrop(StrEnum):
    """Why a program, or a hole in it, gives no infill row."""

    NO_PROGRAM = "no_program"
    """Prose, or code that the front end does not accept."""
    PART_OF_FILE = "part_of_file"
    """A declaration of a file that is there as a whole."""
    SAMPLED_OUT = "sampled_out"
    """A synthetic program; fewer of them are cut than of the workspace."""
    NO_HOLE = "no_hole"
    """Nothing in it can be cut out."""
    HELD_OUT_LINES = "held_out_lines"
    """A line of what was cut out stands in a held-out file."""
    DUPLICATE = "duplicate"
    """The same piece was cut out behind the same text before."""


class ReplayDrop(StrEnum):
    """Why a commit, a file of it, or some lines that it changes, are not replayed as a hole."""

    MERGE = "merge"
    """A commit with several parents, whose changes stand in them."""
    MASS_CHANGE = "mass_change"
    """A commit that changes many programs at once, or a file that it changes in many places: no one writes so."""
    RENAMED = "renamed"
    NEW_FILE = "new_file"
    """There is no file before."""
    GENERATED = "generated"
    """It says so, or lies in a hidden folder or one that builds write into."""
    UNREADABLE = "unreadable"
    """Not in this clone, no UTF-8, or too large."""
    ADDS_NOTHING = "adds_nothing"
    TOO_LONG = "too_long"
    """More lines than a hole has, or more tokens than a piece."""
    WHITE_SPACE = "white_space"
    """Lines that are set otherwise, and say the same."""
    NO_CODE = "no_code"
    """Comments, brackets or empty lines alone; or the beginning of the file."""
    REJECTED = "rejected"
    """The front end does not accept the program with these lines alone."""
    DUPLICATE = "duplicate"
    """The same lines at the same place of the same program came before, in another branch."""
    SAMPLED_OUT = "sampled_out"
    """More holes than are asked for."""


class MixDrop(StrEnum):
    """Why a row of a source is not mixed."""

    UNREADABLE = "unreadable"
    """No row of the source's format."""
    LANE = "lane"
    """Its lane does not train."""
    SAMPLED_OUT = "sampled_out"
    DUPLICATE = "duplicate"
    """The same pair came before, perhaps from another source."""
    SENSITIVE = "sensitive"
    """A secret or a person stands in it, as in `DropReason`."""


class SkippedReason(StrEnum):
    """Why a source gives nothing; upstream's words."""

    MISSING_FILE_OPTIONAL = "missing_file_optional"
    WEIGHT_ZERO = "weight_zero"
    EMPTY_FILE = "empty_file"
    NO_LINES_PASSED_FILTERS = "no_lines_passed_filters"


class NotShown(StrEnum):
    """Why a row of the train set is not shown to a model that is fine-tuned."""

    LOW_RATING = "low_rating"
    OTHER_CATEGORY = "other_category"
    OTHER_DIFFICULTY = "other_difficulty"
    TOO_LONG = "too_long"
    """Cut, it would lose its end; so it is left out as a whole."""

    @property
    def settings(self) -> tuple[str, ...]:
        """The fields of the recipe that leave such rows out."""
        return _SETTINGS[self]


_SETTINGS: Final = {
    NotShown.LOW_RATING: ("min_rating",),
    NotShown.OTHER_CATEGORY: ("category_filter",),
    NotShown.OTHER_DIFFICULTY: ("min_difficulty", "max_difficulty"),
    NotShown.TOO_LONG: ("max_length",),
}


class Skipped(StrEnum):
    """Why a row of the train set is not shown to the model from scratch."""

    NOT_A_PAIR = "not_a_pair"
    AT_A_CURSOR = "at_a_cursor"
    """It completes code at a cursor, which this model is not taught."""
    LOW_RATING = "low_rating"
    NOT_ASCII = "not_ascii"
    """Its completion holds a character that the model could never write."""
    TOO_LONG = "too_long"
    """Cut, it would lose its end; so it is left out as a whole."""


class NoSeed(StrEnum):
    """Why a row is not evolved."""

    PROSE = "prose"
    """Or a lane of its own."""
    OTHER_TASK = "other_task"
    """Its category is no construct."""
    HOLDS_CODE = "holds_code"
    """Its request comes with code, which a rewriting would break."""
    REJECTED = "rejected"
    HELD_OUT = "held_out"
    """Its file is held out."""
    REPEATED = "repeated"
    """The same pair came before."""


class EvolutionDrop(StrEnum):
    """Why an attempt gives no row; its detail says more."""

    BAD_INSTRUCTION = "bad_instruction"
    """The model declined, was cut off, or wrote code, hardly a word, too many, or about the rewriting itself."""
    SAME_INSTRUCTION = "same_instruction"
    """It says nothing that its parent does not."""
    OVER_BUDGET = "over_budget"
    """The budget ended before its completion, or others filled it."""
    BAD_REPLY = "bad_reply"
    """Empty, declined, cut off, too long, or with a comment where code should be."""
    REJECTED = "rejected"
    """By the front end, or nothing is declared."""
    COPIES_INSTRUCTION = "copies_instruction"
    NOT_AS_ASKED = "not_as_asked"
    """Without the construct, the name or the goal that the request or its operator asks for."""
    SEMANTIC_ERROR = "semantic_error"
    """In its names or types."""
    SAME_AS_PARENT = "same_as_parent"
    """Only names, literals and comments differ."""
    REPEATED = "repeated"
    """A seed or an earlier row has the same structure."""
    NEAR_DUPLICATE = "near_duplicate"
    TESTS_FAILED = "tests_failed"
    TESTS_NOT_RUN = "tests_not_run"
    """They touch what lies outside the sandbox, or overrun it."""
    TESTS_EMPTY = "tests_empty"
    """They pass without asserting anything."""
    NEAR_HELD_OUT = "near_held_out"
