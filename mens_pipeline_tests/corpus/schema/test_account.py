"""Counts that add up."""

import pytest

from mens_pipeline.corpus.schema.account import Account, at_least_one, counts_of, most_frequent
from mens_pipeline.corpus.schema.reasons import LeaveReason
from mens_pipeline.errors import RefusedError


def test_an_account_that_does_not_add_up_is_an_error() -> None:
    account = Account[LeaveReason](seen=3, kept=1)

    with pytest.raises(AssertionError, match="2 of 3 were neither kept nor dropped"):
        account.check()
    account.dropped[LeaveReason.GONE] += 2
    account.check()


def test_counts_in_json_types_are_in_a_fixed_order() -> None:
    counts = {LeaveReason.NEGATIVE_ROOT: 1, LeaveReason.GONE: 2, LeaveReason.CHANGED: 1}

    assert list(counts_of(LeaveReason, counts).items()) == [
        *(("changed", 1), ("gone", 2)),
        *(("negative_root", 1), ("forgotten", 0), ("licence_denied", 0), ("not_own", 0), ("golden_root", 0)),
    ]
    assert list(most_frequent(counts).items()) == [("gone", 2), ("changed", 1), ("negative_root", 1)]


def test_an_input_without_kept_rows_is_refused() -> None:
    account = Account[LeaveReason]()

    with pytest.raises(RefusedError, match=r"^rows: none of 0 rows was kept \(it is empty\)\. Look\.$"):
        list(at_least_one([], account, "rows", "Look."))
    account.seen, account.dropped[LeaveReason.GONE] = 2, 2
    with pytest.raises(RefusedError, match=r"none of 2 rows was kept \(2 gone\)"):
        list(at_least_one([], account, "rows", "Look."))
    account.seen, account.kept = 3, 1
    assert list(at_least_one(["row"], account, "rows", "Look.")) == ["row"]
