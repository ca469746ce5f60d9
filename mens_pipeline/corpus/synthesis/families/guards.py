"""Decorators that protect an endpoint, each with the sentence that asks for it."""

from random import Random

from mens_pipeline.corpus.synthesis.phrasing import one_in


def guard(random: Random) -> tuple[tuple[str, ...], str]:
    """Draw decorator lines that protect an endpoint, or none.

    Args:
        random: Decides whether there is one, and which.

    Returns:
        The lines that follow the endpoint decorator, and a sentence; both are empty more often than not.
    """
    if not one_in(random, 3):
        return (), ""
    return random.choice((_auth, _rate_limit, _cors))(random)


def _auth(_: Random) -> tuple[tuple[str, ...], str]:
    return (
        "@auth(scheme: bearer)",
    ), "Callers must authenticate with a bearer token (`@auth` with the scheme `bearer`)."


def _rate_limit(random: Random) -> tuple[tuple[str, ...], str]:
    by = random.choice(("ip", "user_id", "api_key"))
    window, most = random.choice((10, 60, 600, 3600)), random.choice((3, 5, 10, 20, 50, 120))
    line = f"@rate_limit(by: {by}, window_secs: {window}, max_requests: {most})"
    return (line,), f"It is rate-limited by `{by}` to {most} requests in {window} seconds."


def _cors(random: Random) -> tuple[tuple[str, ...], str]:
    origin = random.choice(("https://app.example", "https://widgets.example", "https://partner.example"))
    return (f'@cors(origins: ["{origin}"], allow_credentials: false)',), (
        f'Cross-origin calls are allowed from "{origin}", without credentials.'
    )


def endpoint(kind: str, lines: tuple[str, ...], signature: str) -> str:
    """Format the head of an endpoint.

    Args:
        kind: `query`, `mutation` or `server`.
        lines: Decorators that follow.
        signature: From the name to the return type.
    """
    return "\n".join([f"@endpoint(kind: {kind})", *lines, f"fn {signature}"])
