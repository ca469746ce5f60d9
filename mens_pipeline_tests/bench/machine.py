"""The machine a figure was measured on."""

import platform
from pathlib import Path


def machine_name() -> str:
    """Processor as the system names it, and interpreter."""
    return f"{_processor()}, {platform.python_implementation()} {platform.python_version()}"


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
