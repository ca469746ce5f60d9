"""Known forms of secrets, masked in all texts. The values are invented, and composed here."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from string import ascii_letters, ascii_uppercase, digits
from typing import Final

import pytest

from mens_pipeline.corpus.extract.extractors import PageExtraction, extract_docs
from mens_pipeline.corpus.schema.records import ExtractedRecord, SourceFile, TrainingPair
from mens_pipeline.corpus.telemetry.redaction import RedactionPolicy, redact, redact_row
from mens_pipeline.corpus.telemetry.table import TelemetryAccount, TelemetryRow, telemetry_pairs
from mens_pipeline_tests.corpus.rows import records_of
from mens_pipeline_tests.every import every

_ANY: Final = ascii_letters + digits
_BIG: Final = ascii_uppercase + digits
_HEX: Final = "0123456789abcdef"


def _draw_text(length: int, alphabet: str = _ANY) -> str:
    blocks = (hashlib.sha512(bytes([length, number])).digest() for number in range(1 + length // 64))
    return "".join(alphabet[byte % len(alphabet)] for byte in b"".join(blocks))[:length]


FORMS: Final = {
    "AWS id": "AKIA" + _draw_text(16, _BIG),
    "AWS id of letters": "AKIA" + _draw_text(16, ascii_uppercase),
    "AWS id in series": "ASIA" + "12345" + _draw_text(11, ascii_uppercase),
    "AWS bearer": "ABIA" + _draw_text(16, _BIG),
    "AWS secret": "aws_secret_access_key = " + _draw_text(40),
    "Azure storage": f"AccountName=acme;AccountKey={_draw_text(86)}==;EndpointSuffix=core.windows.net",
    "Azure bus": f"Endpoint=sb://acme.servicebus.windows.net/;SharedAccessKey={_draw_text(43)}=",
    "Azure signature": f"https://acme.blob.core.windows.net/c?sv=2022-11-02&sig={_draw_text(43)}%3D",
    "Azure client": _draw_text(3) + "8Q~" + _draw_text(34),
    "Azure SQL": f"Server=tcp:db.firm.de;User ID=ada;Password={_draw_text(16)};",
    "Google key": "AIza" + _draw_text(35),
    "Google access": "ya29." + _draw_text(60),
    "Google client": "GOCSPX-" + _draw_text(28),
    "Slack": "xoxb-" + f"{_draw_text(12, digits)}-{_draw_text(13, digits)}-{_draw_text(24)}",
    "Slack app": "xapp-" + f"1-{_draw_text(11, _BIG)}-{_draw_text(13, digits)}-{_draw_text(64, _HEX)}",
    "Slack hook": f"https://hooks.slack.com/services/T{_draw_text(10, _BIG)}/B{_draw_text(9, _BIG)}/{_draw_text(24)}",
    "Stripe": "sk_" + "live_" + _draw_text(24),
    "Stripe restricted": "rk_" + "live_" + _draw_text(24),
    "Stripe hook": "whsec_" + _draw_text(32),
    "GitHub": "ghp_" + _draw_text(36),
    "GitHub fine-grained": "github_pat_" + f"{_draw_text(22)}_{_draw_text(59)}",
    "GitLab": "glpat-" + _draw_text(20),
    "npm": "npm_" + _draw_text(36),
    "PyPI": "pypi-" + "AgEIcHlwaS5vcmc" + _draw_text(80),
    "OpenAI": "sk-" + f"{_draw_text(20)}T3BlbkFJ{_draw_text(20)}",
    "OpenAI project": "sk-proj-" + _draw_text(74),
    "Anthropic": "sk-ant-" + "api03-" + _draw_text(93),
    "Hugging Face": "hf_" + _draw_text(34, ascii_letters),
    "Groq": "gsk_" + _draw_text(52),
    "xAI": "xai-" + _draw_text(80),
    "Perplexity": "pplx-" + _draw_text(48),
    "Replicate": "r8_" + _draw_text(37),
    "JWT": "eyJhbGciOiJIUzI1NiJ9." + b64encode(b'{"sub": 1234567890}').decode().rstrip("=") + "." + _draw_text(43),
    "private key": f"-----BEGIN RSA PRIVATE KEY-----\\n{_draw_text(64)}\\n-----END RSA PRIVATE KEY-----",
    "PostgreSQL": f"postgres://ada:{_draw_text(12)}@db.firm.de:5432/x",
    "MongoDB": f"mongodb+srv://ada:{_draw_text(12)}@cluster.firm.de",
    "URL": f"https://ada:{_draw_text(12)}@firm.de/x",
    "basic": "Authorization: Basic " + b64encode(_draw_text(21).encode()).decode(),
    "bearer": "Authorization: Bearer " + _draw_text(32),
    "Twilio": "SK" + _draw_text(32, _HEX),
    "SendGrid": "SG." + f"{_draw_text(22)}.{_draw_text(43)}",
    "Mailgun": "key-" + _draw_text(32, _HEX),
    "Mailchimp": _draw_text(32, _HEX) + "-us12",
    "Telegram": "123456789:AA" + _draw_text(33),
    "Discord": "M" + f"{_draw_text(23)}.{_draw_text(6)}.{_draw_text(27)}",
    "Discord hook": f"https://discord.com/api/webhooks/{_draw_text(18, digits)}/{_draw_text(68)}",
    "DigitalOcean": "dop_v1_" + _draw_text(64, _HEX),
    "Docker": "dckr_pat_" + _draw_text(27),
    "Shopify": "shpat_" + _draw_text(32, _HEX),
    "Square": "sq0atp-" + _draw_text(22),
    "Databricks": "dapi" + _draw_text(32, _HEX),
    "Linear": "lin_api_" + _draw_text(40),
    "Notion": "ntn_" + _draw_text(46),
    "Grafana": "glsa_" + f"{_draw_text(32)}_{_draw_text(8, _HEX)}",
    "Vault": "hvs." + _draw_text(95),
    "Atlassian": "ATATT3" + _draw_text(180) + "=" + _draw_text(8, _HEX),
    "Postman": "PMAK-" + f"{_draw_text(24, _HEX)}-{_draw_text(34, _HEX)}",
    "Terraform": f"{_draw_text(14)}.atlasv1.{_draw_text(64)}",
    "Pulumi": "pul-" + _draw_text(40, _HEX),
    "age": "AGE-SECRET-KEY-1" + _draw_text(58, _BIG),
    "New Relic": "NRAK-" + _draw_text(27, _BIG),
    "Sentry": "sntrys_" + "eyJpYXQiO" + _draw_text(60),
    "Figma": "figd_" + _draw_text(40),
    "RubyGems": "rubygems_" + _draw_text(48, _HEX),
    "Supabase": "sbp_" + _draw_text(40, _HEX),
    "Doppler": "dp.pt." + _draw_text(43),
    "PlanetScale": "pscale_pw_" + _draw_text(43),
    "Fly": "fo1_" + _draw_text(43),
    "Artifactory": "AKCp8" + _draw_text(68),
    "Alibaba": "LTAI" + _draw_text(20),
    "a token": f"token = '{_draw_text(24)}'",
    "a key": f"encryption_key = '{_draw_text(32)}'",
    "a key of JSON": f"{{'signing-key': '{_draw_text(32, _HEX)}'}}",
    "a secret": f"client_secret: '{_draw_text(32)}'",
    "a password": "password = 'hunter2hunter'",
}


def _rows(form: str) -> Iterator[ExtractedRecord | TrainingPair | None]:
    program = f'// Calls {form} once.\nfn f() to str {{\n    return "{form}"\n}}\n'
    prose = f"Whoever wants to call the service of this page has to send it {form} with each of the requests. " * 2
    page = f"---\ntraining_eligible: true\n---\n\n# Keys\n\n## How\n\n{prose}\n\n```vox\n{program}```\n"
    found = extract_docs(SourceFile("page.md", page.encode(), None), Path())
    assert isinstance(found, PageExtraction)
    for record in (*records_of(program), *found.records):
        yield redact_row(record, RedactionPolicy.MASK).row
    yield from telemetry_pairs([TelemetryRow(f"Call {form}.", program)], TelemetryAccount(), "AgentTelemetry")


@pytest.mark.threat("R6")
@every("name", FORMS)
def test_a_known_form_is_masked_everywhere(name: str) -> None:
    form = FORMS[name]
    secret = max(re.findall(r"\w{8,}", form.replace("\\n", " ")), key=len)
    rows = list(_rows(form))

    assert len(rows) == 4
    for row in rows:
        assert row is not None
        assert secret not in row.model_dump_json()
        assert "REDACTED_" in row.model_dump_json()


@every(
    "text",
    [
        f'let id = "{_draw_text(64, _HEX)}"',
        f"commit {_draw_text(40, _HEX)}, image@sha256:{_draw_text(64, _HEX)}",
        'let key = "user:12345:profile"; let key = "ArrowUp2ArrowDown4"; { "key": "first_name_of_the_2nd_user" }',
        "let key = 'aabbccddeeff00112233445566778899aabbccddeeff00112233445566778899'; cache_key = \"\"",
        "npm_config_registry_of_the_2nd_kind(), hf_load_the_model_from_the_hub, gsk_is_a_function_with_a_name",
        "OPENAI_API_KEY=sk-... VAULT_TOKEN=hvs.short-lived-token MESH_TOKEN=a3f7c2...",
        "AKIA" + "IOSFODNN7EXAMPLE and sk-" + "shortishbutnotenough12345",
        "ASIA" + "PACIFICREGIONS_OF_2024, ASIA" + "PACIFICSOUTHEASTREGIONS, ACCA" + "REDITEDINSTITUTES",
        'run("-Pstore.password=" + pass + " now")',
    ],
)
def test_harmless_random_text_is_unchanged(text: str) -> None:
    assert redact(text).text == text
