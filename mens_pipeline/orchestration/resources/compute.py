"""The device that models train on, as a resource."""

from typing import Literal

import dagster as dg

from mens_pipeline.settings import load_settings
from mens_pipeline.training.devices import Device, DeviceChoice, resolve_device


class Compute(dg.ConfigurableResource[None]):
    """The device of training.

    Attributes:
        device: `cuda`, `cpu`, `mps`, or `best` for what there is; an absent one is a refusal.
    """

    device: Literal["cuda", "cpu", "mps", "best"] = "best"

    def resolve(self) -> Device:
        """Return the device that models train on.

        Raises:
            RefusedError: It is not there, or VOX_BACKEND forbids it.
        """
        return resolve_device(DeviceChoice(self.device), force_cpu=load_settings().backend == "cpu")
