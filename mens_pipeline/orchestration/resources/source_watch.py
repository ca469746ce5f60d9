"""Fingerprints of the workspace for sensors, as a resource."""

import dagster as dg


class SourceWatch(dg.ConfigurableResource[None]):
    """When a change of the workspace is taken for one.

    Attributes:
        settle_seconds: How long no file may have been touched, so that half a checkout starts nothing.
        most_files: Files from which on a sensor gives up: a tick must end within a minute; 50,000 take half a second.
    """

    settle_seconds: float = 30.0
    most_files: int = 50_000
