"""Alerts over HTTP: one request to the address in MENS_ALERT_URL."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Final

from pydantic import SecretStr

_SECONDS: Final = 10.0


def tell_webhook(url: SecretStr | None, event: str, text: str, facts: Mapping[str, str]) -> str | None:
    """Post a message; the field `text` is what chat services show.

    Args:
        url: The address, which may hold a secret; None tells nobody.
        event: `run_failed`, `run_refused` or `adapter_stale`.
        text: For people, in one line.
        facts: For programs.

    Returns:
        Why it could not be told, without the address; None when it was, or nobody wants to know.
    """
    if url is None:
        return None
    body = json.dumps({"text": text, "event": event, **facts}).encode()
    request = urllib.request.Request(  # noqa: S310 - the settings take http and https alone
        url.get_secret_value(), data=body, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS):  # noqa: S310 - likewise
            return None
    except urllib.error.HTTPError as error:
        return f"MENS_ALERT_URL answered {error.code}"
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        return f"MENS_ALERT_URL cannot be reached ({type(reason).__name__})"
