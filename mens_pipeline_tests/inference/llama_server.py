"""llama.cpp's own server for a merged model: `python -m mens_pipeline_tests.inference.llama_server FOLDER PORT`."""

import signal
import sys
import tempfile
from pathlib import Path

import xllamacpp

from mens_pipeline.delivery.gguf_file import write_gguf

_SLOTS = 4
_CONTEXT = 512


def main(folder: Path, port: int) -> None:
    """Write the model as GGUF in its own precision, and serve it until SIGTERM.

    Args:
        folder: The merged model.
        port: Where to listen.
    """
    with tempfile.TemporaryDirectory(prefix="mens-llama-") as place:
        file = Path(place) / "model.gguf"
        write_gguf(folder, file, "f32", folder.name, None)
        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.hostnames, params.port = ["127.0.0.1"], port
        params.n_parallel, params.n_ctx = _SLOTS, _SLOTS * _CONTEXT
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.warmup = False
        server = xllamacpp.Server(params)
        signal.sigwait({signal.SIGTERM})
        del server


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # before the server has threads of its own
    main(Path(sys.argv[1]), int(sys.argv[2]))
