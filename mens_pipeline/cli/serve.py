"""`mens serve`: the model in use, over HTTP."""

from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mens_pipeline.cli.terminal import tell
from mens_pipeline.errors import ConfigurationError
from mens_pipeline.inference.sampling import Syntax
from mens_pipeline.training.devices import DeviceChoice

if TYPE_CHECKING:
    from mens_pipeline.delivery.serving.served_model import ServedModel
    from mens_pipeline.storage.store import ArtifactStore
    from mens_pipeline.training.devices import Device

_NEEDED: Final = ("fastapi", "uvicorn", "torch", "transformers", "peft")
_TOKEN: Final = "MENS_SERVE_TOKEN"  # noqa: S105 - the name of a variable


def serve(  # noqa: PLR0913 - one parameter an option
    *,
    run_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A run of `mens train` [default: the champion].")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A merged model: safetensors, tokenizer, chat template.")
    ] = None,
    candidate: Annotated[
        bool,
        typer.Option("--candidate", help="The adapter that was judged last, promoted or not; every answer says so."),
    ] = False,
    host: Annotated[str, typer.Option(help="Where to listen; others than local ones need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any that is free.")] = 8080,
    token_env: Annotated[str, typer.Option(metavar="NAME", help="The variable that holds the token.")] = _TOKEN,
    device: Annotated[DeviceChoice, typer.Option(help="Never another one in its place.")] = DeviceChoice.BEST,
    decoding: Annotated[
        Syntax, typer.Option(help="fallback: what is no Vox is written once more, by tokens that lead to a program.")
    ] = Syntax.FALLBACK,
    names: Annotated[
        bool,
        typer.Option(help="Where the parser steers, refuse fields and methods that the type of a value does not have."),
    ] = False,
    best_of: Annotated[
        int, typer.Option(min=1, max=1_024, help="Answers that are drawn to a request, of which one is given.")
    ] = 1,
    max_concurrent: Annotated[int, typer.Option(min=1, max=1_024, help="Answers that are written at once.")] = 4,
    max_request_bytes: Annotated[int, typer.Option(min=256, help="Of the body of a request.")] = 1_048_576,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds from a request to its last token.")
    ] = 120.0,
    max_new_tokens: Annotated[int, typer.Option(min=1, max=131_072, help="Tokens of an answer at most.")] = 1_024,
) -> None:
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
    named = {"--run-dir": run_dir is not None, "--model": model is not None, "--candidate": candidate}
    if sum(named.values()) > 1:
        given = " and ".join(flag for flag, is_given in named.items() if is_given)
        raise ConfigurationError(f"{given}: one model is served. Name one of them.")

    if best_of > max_concurrent:
        message = f"--best-of {best_of}: more than the {max_concurrent} answers that are written at once."
        raise ConfigurationError(f"{message} Raise --max-concurrent, or choose of fewer.")

    from mens_pipeline.configured import open_store
    from mens_pipeline.delivery.serving import server
    from mens_pipeline.delivery.serving.asking import Defaults
    from mens_pipeline.delivery.serving.engine import Limits
    from mens_pipeline.settings import load_settings, secret_of
    from mens_pipeline.training.devices import resolve_device
    from mens_pipeline.training.environment import go_offline

    settings = load_settings()
    address = server.address_of(host, port)
    token = settings.serve_token if token_env == _TOKEN else secret_of(token_env)
    access = server.access_to(address, token, token_env)
    store = open_store(settings)  # with its credentials and keys, which are taken out next
    go_offline()
    chosen = resolve_device(device, force_cpu=settings.backend == "cpu")
    tell(f"device {chosen.kind}: {chosen.name}")
    served = _served(run_dir, model, store, chosen, is_candidate=candidate)
    tell(f"loading {served.name}, {served.fingerprint}, from {served.judged.adapter_path or served.judged.base_path}")
    limits = Limits(max_concurrent, max_request_bytes, timeout, max_new_tokens)
    with _holding(chosen, settings.cache_root, port):
        server.ModelServer(served, address, access, limits, Defaults(decoding, best_of, names), tell).run()


def _holding(device: "Device", cache: Path, port: int) -> AbstractContextManager[None]:
    """Hold a GPU, so that no run fills it while its model is served; CPUs are shared."""
    from mens_pipeline.training.guards import exclusive

    if device.kind == "cpu":
        return nullcontext()
    return exclusive(cache / f"{device.kind}.lock", 0, f"mens serve, port {port}")


def _served(
    run_dir: Path | None,
    folder: Path | None,
    store: "ArtifactStore",
    device: "Device",
    *,
    is_candidate: bool,
) -> "ServedModel":
    from mens_pipeline.delivery.serving.served_model import (
        candidate_model,
        champion_model,
        merged_model,
        run_model,
    )

    if folder is not None:
        return merged_model(folder, device)
    if run_dir is not None:
        return run_model(run_dir, device)
    return (candidate_model if is_candidate else champion_model)(store, device)
