"""Invalid requirements are refused when they are read."""

from typing import Any

import pytest
from pydantic import ValidationError

from mens_pipeline.evaluation.requirements import Requirement


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        ({"construct": "tabel"}, "construct: found `tabel`, expected a known construct. Did you mean `table`?"),
        ({"construct": "xyz"}, "expected a known construct. It is one of: import, const, function"),
        ({"construct": "table", "variants": ["A"]}, "variants: found it with `table`, which has no variants."),
        ({"construct": "table", "params": []}, "It has `name`, `fields`, `contains`."),
        ({"construct": "routes", "name": "x"}, "name: found it with `routes`, which has no name."),
        ({"construct": "function", "label": "x"}, "label: found it with `function`, which has no label."),
        ({"construct": "component", "returns": "x"}, "returns: found it with `component`, which has no returns."),
        ({"construct": "function", "contains": ["Mach"]}, "found `Mach`, expected a known kind of expression or"),
        ({"construct": "function", "contains": ["Mach"]}, "Did you mean `Match`?"),
        ({"construct": "function", "contains": ["cal:f"]}, "expected a known prefix. Did you mean `call`?"),
        ({"construct": "function", "contains": ["call: "]}, "found `call: `, expected a name after the colon"),
        ({"construct": "function", "contains": ["operator:Plus"]}, "expected a known operator. It is one of: Add, And"),
        ({"construct": "function", "contains": ["decorator:@pur"]}, "Did you mean `@pure`?"),
        ({"construct": "function", "count_at_least": 0}, "greater than or equal to 1"),
        ({"construct": "function", "fieldz": []}, "Extra inputs are not permitted"),
    ],
)
def test_mistakes_are_found_when_the_requirement_is_read(requirement: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as error:
        Requirement.model_validate(requirement)

    assert problem in str(error.value)


def test_all_mistakes_of_a_requirement_are_reported_together() -> None:
    with pytest.raises(ValidationError, match=r"variants: found it.*columns: found it.*contains: found `Looop`"):
        Requirement.model_validate({"construct": "table", "variants": [], "columns": [], "contains": ["Looop"]})
