"""Signatures of verdicts and champions: Ed25519, so that who checks need not be able to sign.

A signature is over the kind of an artifact and the SHA-256 of every file in it. It stands in the artifact as a file
like the others, so it goes wherever the artifact goes. The history and the pointer to the champion have none: who may
write to the store can still bring an earlier champion back that was signed.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mens_pipeline.errors import ConfigurationError
from mens_pipeline.storage.store import Artifact, digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNATURE: Final = "signature.json"
PRIVATE: Final = "MENS_SIGNING_KEY"
PUBLIC: Final = "MENS_VERIFY_KEY"


class _Signature(BaseModel):
    """The file beside what is signed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_: Literal["mens_signature_v1"] = Field(default="mens_signature_v1", alias="schema")
    public_key: str = Field(pattern="^[0-9a-f]{64}$", description="For people: checked is by the key that is set.")
    signature: str = Field(pattern="^[0-9a-f]{128}$", description="Ed25519, hexadecimal.")


@dataclass(frozen=True, slots=True)
class Signing:
    """The keys in use.

    Attributes:
        public_key: What signatures are checked with, hexadecimal.
        private: What signs; None where this process only checks.
    """

    public_key: str
    private: "Ed25519PrivateKey | None"

    @classmethod
    def of(cls, private: str | None, public: str | None) -> Self | None:
        """Return the keys; None where neither is set, and nothing is signed or checked.

        Args:
            private: 32 bytes, hexadecimal.
            public: Likewise; follows from the private one.

        Raises:
            ConfigurationError: They do not belong together, or the library is missing.
        """
        if private is None:
            return cls(public, None) if public is not None else None
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - of an extra
                Ed25519PrivateKey,
            )
        except ModuleNotFoundError as error:
            raise _not_installed(error) from error
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(private))
        own = key.public_key().public_bytes_raw().hex()
        if public not in {None, own}:
            advice = f"Correct one of them, or leave {PUBLIC} out."
            raise ConfigurationError(f"{PUBLIC}: {public}, but {PRIVATE} belongs to {own}. {advice}")
        return cls(own, key)

    def sign(self, folder: Path, kind: str) -> None:
        """Write the signature of an artifact in the making, after all its other files.

        Args:
            folder: Where it is made.
            kind: What it is.

        Raises:
            ConfigurationError: There is only a key to check with.
        """
        if self.private is None:
            advice = f"Set {PRIVATE} where verdicts and champions are made."
            raise ConfigurationError(f"{PUBLIC} asks for a signature, and nothing is set to make one with. {advice}")
        files = {path.relative_to(folder).as_posix(): digest_of(path) for path in folder.rglob("*") if path.is_file()}
        signature = self.private.sign(_message(kind, files)).hex()
        document = _Signature(public_key=self.public_key, signature=signature)
        (folder / SIGNATURE).write_text(document.model_dump_json(indent=2, by_alias=True) + "\n", encoding="utf-8")

    def objection(self, artifact: Artifact) -> str | None:
        """Say why an artifact is not as somebody with the key signed it; None when it is.

        Args:
            artifact: A verdict or a champion.
        """
        try:
            found = _Signature.model_validate_json((artifact.path / SIGNATURE).read_bytes())
        except FileNotFoundError:
            return "it is not signed"
        except (OSError, ValidationError):
            return f"its {SIGNATURE} cannot be read"
        if artifact.changed():
            return f"changed since it was signed: {', '.join(artifact.changed())}"
        outputs = artifact.manifest["outputs"]
        files = {name: output["sha256"] for name, output in outputs.items() if name != SIGNATURE}
        if _fits(self._verifier(), found.signature, _message(artifact.kind, files)):
            return None
        return f"its signature is not of the key {self.public_key[:12]}, or of something else"

    def _verifier(self) -> "Ed25519PublicKey":
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - of an extra
                Ed25519PublicKey,
            )
        except ModuleNotFoundError as error:
            raise _not_installed(error) from error
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.public_key))


def unsigned(artifact: Artifact, signing: Signing | None) -> str | None:
    """Say why an artifact does not count where everything must be signed; None when it does.

    Args:
        artifact: A verdict or a champion.
        signing: The keys in use; None: nothing is signed.
    """
    return signing.objection(artifact) if signing is not None else None


def _fits(verifier: "Ed25519PublicKey", signature: str, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - of an extra

    try:
        verifier.verify(bytes.fromhex(signature), message)
    except InvalidSignature:
        return False
    return True


def _message(kind: str, files: "Mapping[str, str]") -> bytes:
    """Return what is signed: canonical JSON."""
    document = {"schema": "mens_signature_v1", "kind": kind, "files": dict(files)}
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _not_installed(error: ModuleNotFoundError) -> ConfigurationError:
    return ConfigurationError(f"{PRIVATE}: no {error.name} here. Install the extra `sign`.")
