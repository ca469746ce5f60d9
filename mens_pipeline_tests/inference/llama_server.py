"""llama.cpp's own server for a merged model: `python -m mens_pipeline_tests.inference.llama_server FOLDER PORT`."""

import signal
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import xllamacpp

from mens_pipeline.delivery.agreement import GgufType
from mens_pipeline.delivery.gguf import write_gguf


@contextmanager
def llama_server(  # noqa: PLR0913 - the options of a server
    folder: Path, file_type: GgufType = "f32", *, port: int = 0, threads: int = 1, slots: int = 1, context: int = 512
) -> Iterator[str]:
    """Write the model as GGUF, serve it in this process until the block ends, and yield the address."""
    with tempfile.TemporaryDirectory(prefix="mens-llama-") as place:
        file = Path(place) / "model.gguf"
        write_gguf(folder, file, file_type, folder.name, None)
        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.hostnames, params.port = ["127.0.0.1"], port
        params.n_parallel, params.n_ctx = slots, slots * context
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.warmup = False
        server = xllamacpp.Server(params)
        yield server.listening_address
        del server


def _options() -> Namespace:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the merged model")
    parser.add_argument("port", type=int)
    parser.add_argument("--type", default="f32", choices=("f32", "f16", "q8_0"), help="of its own file")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--slots", type=int, default=4, help="completions at once")
    parser.add_argument("--context", type=int, default=512, help="tokens of each")
    return parser.parse_args()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # before the server has threads of its own
    options = _options()
    settings = {name: getattr(options, name) for name in ("port", "threads", "slots", "context")}
    with llama_server(options.folder, options.type, **settings):
        signal.sigwait({signal.SIGTERM})
