"""Dagster's web server for this machine alone: `python -m mens_pipeline.orchestration.web_server`.

It has the options of `dagster-webserver`, or after `dev` those of `dagster dev`, which also starts the daemon.
As with `mens serve`, its own pages and other programs may send requests; other pages in a browser may not.
"""

import logging
import sys
from typing import Any

from dagster import DagsterEventType, DagsterInstance
from dagster._cli import dev
from dagster_shared.ipc import open_ipc_subprocess
from dagster_shared.utils.warnings import disable_dagster_warnings
from dagster_webserver import app, cli
from dagster_webserver.webserver import DagsterWebserver
from starlette.datastructures import Headers
from starlette.middleware import Middleware

from mens_pipeline.serving.access import LOCAL_NAMES, Access, AccessControl
from mens_pipeline.serving.http import RequestRefusedError
from mens_pipeline.settings import load_settings

_JSON = "application/json"


def _check_method(method: str, path: str, headers: Headers) -> None:
    """Refuse requests that may change something and that a page of any origin can make a browser send.

    Dagster executes GraphQL from the query of a GET, and from a POST of any type. Only JSON makes a browser ask first.
    """
    is_json = headers.get("content-type", "").partition(";")[0].strip().lower() == _JSON
    is_read = method in {"GET", "HEAD", "OPTIONS"} and not path.rstrip("/").endswith("/graphql")
    # Dagster then returns the page of its playground, and executes no query.
    is_playground = method == "GET" and "text/html" in headers.get("accept", "")
    if not (is_read or is_playground or (method == "POST" and is_json)):
        message = f"{method} {path[:100]}: send it as POST with Content-Type: {_JSON}."
        raise RequestRefusedError(403, message, code="method_not_allowed")


class Webserver(DagsterWebserver[Any, Any]):
    """The web server with our checks in front of its routes."""

    def build_middleware(self) -> list[Middleware]:
        """Return the checks of host, origin and method, and the middleware of Dagster."""
        access = Access(None, LOCAL_NAMES | load_settings().hosts)
        return [Middleware(AccessControl, access=access, check_method=_check_method), *super().build_middleware()]


def _write_cursors() -> None:
    """Set missing cursors of the event consumer to the newest event; the daemon warns about each missing cursor."""
    kinds = (DagsterEventType.RUN_FAILURE, DagsterEventType.RUN_SUCCESS)
    keys = {f"EVENT_LOG_CONSUMER_CURSOR-{kind.value}" for kind in kinds}
    with DagsterInstance.get() as instance:
        newest = str(instance.event_log_storage.get_maximum_record_id() or 0)
        missing = keys - instance.daemon_cursor_storage.get_cursor_values(keys).keys()
        instance.daemon_cursor_storage.set_cursor_values(dict.fromkeys(missing, newest))


def main(arguments: list[str]) -> None:
    """Start the web server, or with a leading `dev` also the daemon."""
    if arguments[:1] != ["dev"]:
        app.DagsterWebserver = Webserver  # type: ignore[attr-defined]
        cli.main()  # type: ignore[no-untyped-call]
        return
    own = {"dagster_webserver": "mens_pipeline.orchestration.web_server"}
    dev.open_ipc_subprocess = lambda parts, **options: open_ipc_subprocess(  # type: ignore[attr-defined]
        [own.get(part, part) for part in parts], **options
    )
    # Drop the warning that the dagster.yaml here is not read: it appears even if DAGSTER_HOME links to it (`make ui`).
    logging.getLogger("dagster").addFilter(lambda record: "instance configuration value" not in record.getMessage())
    if "dagster_home" in load_settings().model_fields_set:
        _write_cursors()
    with disable_dagster_warnings():  # one advises `dg dev`, which is for a checkout
        dev.dev_command(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
