"""`mens serve`: serve a model over HTTP."""

from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mens_pipeline.cli.options import Options, option, switch, take_options
from mens_pipeline.cli.terminal import choose_device, log_line
from mens_pipeline.errors import ConfigurationError, how_to_install
from mens_pipeline.inference.generation import Syntax
from mens_pipeline.jobs.device import Device, DeviceChoice, exclusive
from mens_pipeline.jobs.environment import go_offline
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.settings import load_settings, open_store, read_secret
from mens_pipeline.storage.store import ArtifactStore

if TYPE_CHECKING:
    from mens_pipeline.serving.served_model import ServedModel


_NEEDED: Final = ("fastapi", "uvicorn", "torch", "transformers", "peft")
_TOKEN: Final = "MENS_SERVE_TOKEN"  # noqa: S105 - the name of a variable


class ServeOptions(Options):
    """Options of `mens serve`."""

    run_dir: Path | None = option(
        None, "A run of `mens train` or `mens scratch train` [default: the champion].", metavar="DIR"
    )
    model: Path | None = option(
        None, "A merged model or one from scratch: safetensors, tokenizer, chat template.", metavar="FOLDER"
    )
    candidate: bool = switch("Serve the adapter that was evaluated last, promoted or not; every response says so.")
    host: str = option("127.0.0.1", "Address to listen on; a token is required unless it is local.")
    port: int = option(8080, "Port; 0: any free one.", ge=0, le=65_535)
    base_path: str = option("", "Path prefix behind a proxy, such as /vox.", metavar="PATH")
    token_env: str = option(_TOKEN, "Variable that holds the token.", metavar="NAME")
    device: DeviceChoice = option(DeviceChoice.BEST, "Device to use; `best` picks the best available one.")
    decoding: Syntax = option(
        Syntax.CONSTRAINED, "constrained: only tokens that can lead to a program; fallback means the same here."
    )
    best_of: int = option(1, "Draw this many completions per request and return one.", ge=1, le=1_024)
    show_all: bool = switch("At a cursor, return all pieces that parse, even unsure ones or unknown names.")
    record_accepted: Path | None = option(
        None,
        "SQLite file for accepted pieces that clients report, redacted; a nightly run can train on it.",
        metavar="FILE",
    )
    max_concurrent: int = option(4, "Maximum completions at once.", ge=1, le=1_024)
    max_request_bytes: int = option(1_048_576, "Maximum bytes of a request body.", ge=256)
    timeout: float = option(120.0, "Seconds from a request to its last token.", ge=0.1, le=86_400)
    max_new_tokens: int = option(1_024, "Maximum tokens of a completion.", ge=1, le=131_072)


@take_options(ServeOptions)
def serve(options: ServeOptions) -> None:
    """Serve a model over HTTP, with the APIs of OpenAI and Ollama.

    Paths: /v1/chat/completions, /v1/completions, /v1/models, /api/generate, /api/chat, /api/tags, /api/show,
    /api/version; at a cursor /infill, /completion and /v1/fim/completions, with /props for clients of llama.cpp and
    /v1/health for clients of Tabby; for operators /health and /ready.

    The model is called `mens`. It gets the system prompt of its training and always writes the most likely token, as in
    its evaluation, unless a request sets another prompt or a temperature. The header X-Mens-Warning of a response names
    settings that had no effect, and parts of a request that did not fit.

    With --best-of, or `best_of` in an OpenAI request, the completion is chosen by the parser, by the examples in the
    request, by the result that most completions return, and by likelihood. Requests for several completions or with a
    temperature of 0 are excluded.

    At a cursor, a piece is withheld if the program would not parse with it, if it has an error in names or types, or if
    the model is less sure of it than in its evaluation; --show-all returns the latter two. The header and the console
    say why a piece is empty. In a file that does not parse, the declarations with errors are left out.

    /v1/feedback receives the part of a piece that a person accepted (`id`, `accepted`), and /metrics counts it. With
    --record-accepted it becomes a row with the text around the cursor; keys, passwords and addresses are redacted
    before it is written.

    With MENS_SIGNING_KEY or MENS_VERIFY_KEY the champion, or the verdict on a candidate, must be signed; folders named
    with --run-dir or --model need no signature. With --candidate, the header X-Mens-Candidate and /health give the
    verdict of the gate.

    Exit code 0: ended by a signal, after running completions. 1: the model cannot be served. 2: the command was
    misused.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"{', '.join(missing)}: not installed. {how_to_install('serve,train')}")
    named = {
        "--run-dir": options.run_dir is not None,
        "--model": options.model is not None,
        "--candidate": options.candidate,
    }
    if sum(named.values()) > 1:
        given = " and ".join(flag for flag, is_given in named.items() if is_given)
        raise ConfigurationError(f"{given}: only one model is served. Name one of them.")

    if options.best_of > options.max_concurrent:
        message = f"--best-of {options.best_of}: the server runs at most {options.max_concurrent} completions at once."
        raise ConfigurationError(f"{message} Raise --max-concurrent, or lower it.")

    from mens_pipeline.corpus.telemetry.accepted import AcceptedPieces
    from mens_pipeline.serving import server
    from mens_pipeline.serving.completions import Defaults
    from mens_pipeline.serving.queue import ServerLimits

    settings = load_settings()
    address = server.resolve_address(options.host, options.port)
    token = settings.serve_token if options.token_env == _TOKEN else read_secret(options.token_env)
    access = server.access_to(address, token, options.token_env, settings.hosts, options.base_path)
    store = open_store(settings)  # before credentials and keys are removed from the environment
    go_offline()
    chosen = choose_device(options.device, settings)
    served = _choose_model(options, store, chosen)
    path = served.evaluated.adapter_path or served.evaluated.base_path
    log_line(f"loading {served.name}, {served.fingerprint}, from {path}")
    limits = ServerLimits(options.max_concurrent, options.max_request_bytes, options.timeout, options.max_new_tokens)
    defaults = Defaults(options.decoding, options.best_of, options.show_all)
    accepted = None if options.record_accepted is None else AcceptedPieces(options.record_accepted)
    with _hold(chosen, settings.cache_root, options.port):
        server.ModelServer(served, address, access, limits, defaults, log_line, accepted).run()


def _hold(device: Device, cache: Path, port: int) -> AbstractContextManager[None]:
    """Lock a GPU against runs while its model is served; CPUs are shared."""
    if device.kind == "cpu":
        return nullcontext()
    return exclusive(device.lock_in(cache), 0, f"mens serve, port {port}")


def _choose_model(options: ServeOptions, store: ArtifactStore, device: Device) -> "ServedModel":
    from mens_pipeline.delivery.merge import SCRATCH, read_lane
    from mens_pipeline.scratch.run import MODEL
    from mens_pipeline.serving.served_model import adapter_model, candidate_model, champion_model, merged_model

    if options.model is not None:
        return merged_model(options.model, device)
    if options.run_dir is not None and read_lane(options.run_dir) == SCRATCH:
        return merged_model(options.run_dir / MODEL, device)
    if options.run_dir is not None:
        return adapter_model(Adapter.open(options.run_dir), device)
    return (candidate_model if options.candidate else champion_model)(store, device)
