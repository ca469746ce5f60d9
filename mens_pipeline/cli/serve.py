"""`mens serve`: the model in use, over HTTP."""

from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mens_pipeline.cli.options import Options, option, switch, take_options
from mens_pipeline.cli.progress import choose_device
from mens_pipeline.cli.terminal import log_line
from mens_pipeline.configured import open_store
from mens_pipeline.errors import ConfigurationError, how_to_install
from mens_pipeline.inference.generation import Syntax
from mens_pipeline.jobs.device import Device, DeviceChoice, exclusive
from mens_pipeline.jobs.environment import go_offline
from mens_pipeline.models.adapter import Adapter
from mens_pipeline.settings import load_settings, secret_of
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
        None, "A merged model, or one made from scratch: safetensors, tokenizer, chat template.", metavar="FOLDER"
    )
    candidate: bool = switch("The adapter that was evaluated last, promoted or not; every response says so.")
    host: str = option("127.0.0.1", "Where to listen; others than local ones need a token.")
    port: int = option(8080, "0: any that is free.", ge=0, le=65_535)
    token_env: str = option(_TOKEN, "The variable that holds the token.", metavar="NAME")
    device: DeviceChoice = option(DeviceChoice.BEST, "Never another one in its place.")
    decoding: Syntax = option(
        Syntax.CONSTRAINED, "constrained: only tokens that lead to a program are written; fallback means the same here."
    )
    names: bool = option(
        False,
        "Where the parser steers, refuse fields and methods that the type of a value does not have.",
        "--names/--no-names",
    )
    best_of: int = option(1, "Completions that are drawn to a request, of which one is given.", ge=1, le=1_024)
    show_all: bool = switch("At a cursor, also send pieces that the model is unsure of.")
    record_accepted: Path | None = option(
        None,
        "An SQLite file for pieces that clients report as accepted, redacted; a night can train on it.",
        metavar="FILE",
    )
    max_concurrent: int = option(4, "Completions that are written at once.", ge=1, le=1_024)
    max_request_bytes: int = option(1_048_576, "Of the body of a request.", ge=256)
    timeout: float = option(120.0, "Seconds from a request to its last token.", ge=0.1, le=86_400)
    max_new_tokens: int = option(1_024, "Tokens of a completion at most.", ge=1, le=131_072)


@take_options(ServeOptions)
def serve(options: ServeOptions) -> None:
    """Serve a model over HTTP, in the shapes of OpenAI and Ollama.

    Paths: /v1/chat/completions, /v1/completions, /v1/models, /api/generate, /api/chat, /api/tags, /api/show,
    /api/version, at a cursor /infill, /completion and /v1/fim/completions with what clients of llama.cpp (/props) and
    Tabby (/v1/health) ask first, and for those who look after it /health and /ready. The
    model gets the system text of its training, unless a request has another, and completes as in its evaluation,
    always with the most likely token, unless a request asks for a temperature. It is called `mens` whatever its own
    name is. What a request asks for beyond what there is room for, and settings that change nothing here, are named in
    the header X-Mens-Warning of the response.

    With --best-of, or `best_of` in a request of OpenAI's shape, the completion is chosen by the parser, the examples
    that the request states, what most completions return, and how likely the model holds it. Requests for several
    completions or a temperature of 0 are completed without a choice.

    At a cursor, a piece is withheld where the whole is no program with it, or where the model is less sure of it than
    its evaluation asks; --show-all sends the latter. The header says why nothing came.

    /v1/feedback takes what a person accepted of a piece (`id`, `accepted`), and /metrics counts it. With
    --record-accepted it becomes a row, with what stands around the cursor; keys, passwords and addresses are redacted
    before it is written.

    With MENS_SIGNING_KEY or MENS_VERIFY_KEY the champion must be signed, as must the verdict on a candidate; a folder
    that is named with --run-dir or --model is served as it is.

    With --candidate every response has the header X-Mens-Candidate with what the gate said, and /health says it.

    Exit code 0: ended by a signal, after the completions in the making. 1: the model cannot be served. 2: the command
    was misused.
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
        raise ConfigurationError(f"{given}: one model is served. Name one of them.")

    if options.best_of > options.max_concurrent:
        message = (
            f"--best-of {options.best_of}: more than the {options.max_concurrent} completions that are written at once."
        )
        raise ConfigurationError(f"{message} Raise --max-concurrent, or choose of fewer.")

    from mens_pipeline.corpus.telemetry.accepted import AcceptedPieces
    from mens_pipeline.serving import server
    from mens_pipeline.serving.completions import Defaults
    from mens_pipeline.serving.queue import ServerLimits

    settings = load_settings()
    address = server.resolve_address(options.host, options.port)
    token = settings.serve_token if options.token_env == _TOKEN else secret_of(options.token_env)
    access = server.access_to(address, token, options.token_env)
    store = open_store(settings)  # with its credentials and keys, which are taken out next
    go_offline()
    chosen = choose_device(options.device, settings)
    served = _choose_model(options, store, chosen)
    path = served.evaluated.adapter_path or served.evaluated.base_path
    log_line(f"loading {served.name}, {served.fingerprint}, from {path}")
    limits = ServerLimits(options.max_concurrent, options.max_request_bytes, options.timeout, options.max_new_tokens)
    defaults = Defaults(options.decoding, options.best_of, options.names, options.show_all)
    accepted = None if options.record_accepted is None else AcceptedPieces(options.record_accepted)
    with _holding(chosen, settings.cache_root, options.port):
        server.ModelServer(served, address, access, limits, defaults, log_line, accepted).run()


def _holding(device: Device, cache: Path, port: int) -> AbstractContextManager[None]:
    """Hold a GPU, so that no run fills it while its model is served; CPUs are shared."""
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
