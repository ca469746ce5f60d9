"""Messages of a child process, read while they are written."""

import json
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from mens_pipeline.orchestration.pipes import MessageReader


def test_a_message_that_is_half_written_is_waited_for() -> None:
    """It comes whole, in order, and so do those behind it; one that is never finished does not come."""
    handler = Mock()
    messages: list[dict[str, Any]] = [{"method": "one", "params": {"text": "ü" * 3}}, {"method": "two"}, {"cut": 1}]
    one, two, cut = (json.dumps(message, ensure_ascii=False).encode() for message in messages)
    half = one.index("ü".encode()) + 1  # inside a character

    with MessageReader().read_messages(handler) as params, Path(params["path"]).open("ab", buffering=0) as written:
        written.write(one[:half])
        time.sleep(0.3)
        assert handler.handle_message.call_count == 0
        written.write(one[half:] + b"\n" + two + b"\n" + cut)

    assert [call.args[0] for call in handler.handle_message.call_args_list] == messages[:2]
    assert not Path(params["path"]).exists()
