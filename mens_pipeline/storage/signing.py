"""Ed25519 signatures of artifacts and documents; the key that verifies cannot sign.

An artifact is signed over its kind and the SHA-256 of each file. The signature is a file of the artifact, so it travels
with it.
"""

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import Field, ValidationError

from mens_pipeline.errors import ConfigurationError, how_to_install
from mens_pipeline.storage.store import Artifact, ArtifactStore, digest_of
from mens_pipeline.storage.validation import Strict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNATURE: Final = "signature.json"
PRIVATE: Final = "MENS_SIGNING_KEY"
PUBLIC: Final = "MENS_VERIFY_KEY"


class _Signature(Strict):
    schema_: Literal["mens_signature_v1"] = Field(default="mens_signature_v1", alias="schema")
    public_key: str = Field(pattern="^[0-9a-f]{64}$", description="Only for people; the configured key verifies.")
    signature: str = Field(pattern="^[0-9a-f]{128}$", description="Ed25519 signature, hexadecimal.")


@dataclass(frozen=True, slots=True)
class Signing:
    """The keys in use: `public_key`, hexadecimal, verifies; `private` signs, unless this process only verifies."""

    public_key: str
    private: "Ed25519PrivateKey | None"

    @classmethod
    def of(cls, private: str | None, public: str | None) -> Self | None:
        """Read the keys, 32 bytes each, hexadecimal; None if neither is set.

        The public key follows from the private one; if both are set they must match.
        """
        if private is None:
            return cls(public, None) if public is not None else None
        key = _load_ed25519().Ed25519PrivateKey.from_private_bytes(bytes.fromhex(private))
        own = key.public_key().public_bytes_raw().hex()
        if public not in {None, own}:
            advice = f"Correct one of them, or unset {PUBLIC}."
            raise ConfigurationError(f"{PUBLIC}: {public}, but {PRIVATE} belongs to {own}. {advice}")
        return cls(own, key)

    def sign(self, folder: Path, kind: str) -> None:
        """Write the signature of a draft, after all its other files."""
        files = {path.relative_to(folder).as_posix(): digest_of(path) for path in folder.rglob("*") if path.is_file()}
        document = _Signature(public_key=self.public_key, signature=self.signature_of(kind, files=files))
        (folder / SIGNATURE).write_text(document.model_dump_json(indent=2, by_alias=True) + "\n", encoding="utf-8")

    def signature_of(self, kind: str, **content: object) -> str:
        """Compute the signature of a document of JSON values, hexadecimal."""
        if self.private is None:
            advice = f"Set {PRIVATE} where evaluations, verdicts and champions are made."
            raise ConfigurationError(f"{PUBLIC} requires signatures, but no key to sign with is set. {advice}")
        return self.private.sign(_message(kind, content)).hex()

    def problem_of(self, signature: str | None, kind: str, **content: object) -> str | None:
        """Explain why a signature of JSON values is not valid; None if it is."""
        if signature is None:
            return "it is not signed"
        if self._fits(signature, _message(kind, content)):
            return None
        return f"its signature does not match the key {self.public_key[:12]} or its content"

    def find_reason(self, artifact: Artifact) -> str | None:
        """Explain why the signature of an artifact is not valid; None if it is."""
        try:
            found = _Signature.model_validate_json((artifact.path / SIGNATURE).read_bytes())
        except FileNotFoundError:
            return self.problem_of(None, artifact.kind)
        except (OSError, ValidationError):
            return f"its {SIGNATURE} cannot be read"
        if artifact.find_changed():
            return f"changed since it was signed: {', '.join(artifact.find_changed())}"
        files = {name: sha256 for name, sha256 in artifact.outputs.items() if name != SIGNATURE}
        return self.problem_of(found.signature, artifact.kind, files=files)

    def _fits(self, signature: str, message: bytes) -> bool:
        verifier = _load_ed25519().Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.public_key))
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - optional dependency

        try:
            verifier.verify(bytes.fromhex(signature), message)
        except (InvalidSignature, ValueError):
            return False
        return True


def add_signature(
    store: ArtifactStore, kind: str, inputs: "Mapping[str, Any]", write: "Callable[[Path], dict[str, Any]]"
) -> "tuple[Mapping[str, Any], Callable[[Path], dict[str, Any]]]":
    """Extend inputs and `write` to make a signed artifact; return both unchanged without a key."""
    signing = store.signing
    if signing is None:
        return inputs, write

    def and_sign(folder: Path) -> dict[str, Any]:
        details = write(folder)
        signing.sign(folder, kind)
        return details

    return {**inputs, "signed_by": signing.public_key}, and_sign


def explain_unsigned(artifact: Artifact, store: ArtifactStore) -> str | None:
    """Explain why an artifact is not valid in a store that requires signatures; None if it is."""
    return store.signing.find_reason(artifact) if store.signing is not None else None


def _message(kind: str, content: "Mapping[str, object]") -> bytes:
    document = {"schema": "mens_signature_v1", "kind": kind, **content}
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _load_ed25519() -> Any:
    try:
        return import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{PRIVATE}: {error.name}: not installed. {how_to_install('sign')}") from error
