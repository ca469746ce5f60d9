"""The telemetry database as a resource."""

import dagster as dg

from mens_pipeline.corpus.curate.pipeline_config import load_pipeline_config
from mens_pipeline.corpus.telemetry.table import TelemetryQuery
from mens_pipeline.settings import PIPELINE_CONFIG, load_settings


class Telemetry(dg.ConfigurableResource[None]):
    """Telemetry database of accepted answers, as a resource.

    The database is named by `MENS_TELEMETRY_URL` alone, so that its password stands in no configuration.

    Attributes:
        table: The table; empty means the one that config/pipeline.yaml names.
    """

    table: str = ""

    def query(self) -> TelemetryQuery | None:
        """Return the rows to read; None when no database is named.

        Raises:
            ConfigurationError: `config/pipeline.yaml` does not hold together.
        """
        url = load_settings().telemetry_url
        if url is None:
            return None
        policy = load_pipeline_config(PIPELINE_CONFIG).telemetry.model_dump()
        return TelemetryQuery(url=url, **{**policy, **({"table": self.table} if self.table else {})})
