"""`mens serve`: the model in use, over HTTP."""

from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mens_pipeline.cli.options import Options, option, switch, take_options
from mens_pipeline.cli.progress import choose_device
from mens_pipeline.cli.terminal import tell
from mens_pipeline.configured import open_store
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.inference.sampling import Syntax
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

    run_dir: Path | None = option(None, "A run of `mens train` [default: the champion].", metavar="DIR")
    model: Path | None = option(None, "A merged model: safetensors, tokenizer, chat template.", metavar="FOLDER")
    candidate: bool = switch("The adapter that was judged last, promoted or not; every answer says so.")
    host: str = option("127.0.0.1", "Where to listen; others than local ones need a token.")
    port: int = option(8080, "0: any that is free.", ge=0, le=65_535)
    token_env: str = option(_TOKEN, "The variable that holds the token.", metavar="NAME")
    device: DeviceChoice = option(DeviceChoice.BEST, "Never another one in its place.")
    decoding: Syntax = option(
        Syntax.FALLBACK, "fallback: what is no Vox is written once more, by tokens that lead to a program."
    )
    names: bool = option(
        False,
        "Where the parser steers, refuse fields and methods that the type of a value does not have.",
        "--names/--no-names",
    )
    best_of: int = option(1, "Answers that are drawn to a request, of which one is given.", ge=1, le=1_024)
    max_concurrent: int = option(4, "Answers that are written at once.", ge=1, le=1_024)
    max_request_bytes: int = option(1_048_576, "Of the body of a request.", ge=256)
    timeout: float = option(120.0, "Seconds from a request to its last token.", ge=0.1, le=86_400)
    max_new_tokens: int = option(1_024, "Tokens of an answer at most.", ge=1, le=131_072)


@take_options(ServeOptions)
def serve(options: ServeOptions) -> None:
    """Serve a model over HTTP, in the shapes of OpenAI and Ollama.

    Paths: /v1/chat/completions, /v1/completions, /v1/models, /api/generate, /api/chat, /api/tags, /api/show,
    /api/version, and for those who look after it /health and /ready. The model is told what it was told in training,
    unless a request says otherwise, and answers as it was judged, always with the most likely token, unless a request
    asks for a temperature. It is called `mens` whatever its own name is. What a request asks for beyond what there is
    room for, and settings that change nothing here, are named in the header X-Mens-Warning of the answer.

    With --best-of, or `best_of` in a request of OpenAI's shape, the answer is chosen by the parser, the examples that
    the request states, what most answers return, and how likely the model holds it. Requests for several answers or a
    temperature of 0 are answered without a choice.

    With MENS_SIGNING_KEY or MENS_VERIFY_KEY the champion must be signed, as must the verdict on a candidate; a folder
    that is named with --run-dir or --model is served as it is.

    With --candidate every answer has the header X-Mens-Candidate with what the gate said, and /health says it.

    Exit code 0: ended by a signal, after the answers in the making. 1: the model cannot be served. 2: the command was
    misused.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigurationError(f'{", ".join(missing)}: not installed. Run: pip install -e ".[serve,train]"')
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
            f"--best-of {options.best_of}: more than the {options.max_concurrent} answers that are written at once."
        )
        raise ConfigurationError(f"{message} Raise --max-concurrent, or choose of fewer.")

    from mens_pipeline.serving import server
    from mens_pipeline.serving.completions import Defaults
    from mens_pipeline.serving.queue import Limits

    settings = load_settings()
    address = server.address_of(options.host, options.port)
    token = settings.serve_token if options.token_env == _TOKEN else secret_of(options.token_env)
    access = server.access_to(address, token, options.token_env)
    store = open_store(settings)  # with its credentials and keys, which are taken out next
    go_offline()
    chosen = choose_device(options.device, settings)
    served = _choose_model(options, store, chosen)
    tell(f"loading {served.name}, {served.fingerprint}, from {served.judged.adapter_path or served.judged.base_path}")
    limits = Limits(options.max_concurrent, options.max_request_bytes, options.timeout, options.max_new_tokens)
    defaults = Defaults(options.decoding, options.best_of, options.names)
    with _holding(chosen, settings.cache_root, options.port):
        server.ModelServer(served, address, access, limits, defaults, tell).run()


def _holding(device: Device, cache: Path, port: int) -> AbstractContextManager[None]:
    """Hold a GPU, so that no run fills it while its model is served; CPUs are shared."""
    if device.kind == "cpu":
        return nullcontext()
    return exclusive(cache / f"{device.kind}.lock", 0, f"mens serve, port {port}")


def _choose_model(options: ServeOptions, store: ArtifactStore, device: Device) -> "ServedModel":
    from mens_pipeline.serving.served_model import (
        adapter_model,
        candidate_model,
        champion_model,
        merged_model,
    )

    if options.model is not None:
        return merged_model(options.model, device)
    if options.run_dir is not None:
        return adapter_model(Adapter.open(options.run_dir), device)
    return (candidate_model if options.candidate else champion_model)(store, device)
