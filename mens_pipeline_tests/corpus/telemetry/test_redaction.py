"""Sensitive text is replaced; other text is unchanged."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mens_pipeline.corpus.telemetry.redaction import _RULES, SensitiveKind, _find_hint, _fold, redact
from mens_pipeline.language import analyze
from mens_pipeline.settings import PROJECT_ROOT
from mens_pipeline_tests.corpus.telemetry.test_redaction_authors import COMMENTS
from mens_pipeline_tests.corpus.telemetry.test_redaction_secrets import FORMS
from mens_pipeline_tests.every import every, every_row
from mens_pipeline_tests.speed import assert_linear

# Composed here, so that no scanner of repositories reports them as leaked keys.
_LETTERS = "aB3dE6gH9jK2mN5pQ8sT" * 4
_PEM_BODY = f"{_LETTERS[:64]}\n{_LETTERS[:64]}\n{_LETTERS[:20]}=="
_PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{_PEM_BODY}\n-----END RSA PRIVATE KEY-----"
_JWT = f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{_LETTERS[:43]}"
_TOKENS = [
    "gho_" + _LETTERS[:36],
    FORMS["Slack hook"].removeprefix("https://"),
    *(FORMS[name] for name in ("AWS id", "GitHub", "GitHub fine-grained", "GitLab", "Slack", "Google key", "npm")),
    *(FORMS[name] for name in ("OpenAI", "Anthropic", "OpenAI project", "Stripe", "Stripe hook", "Hugging Face")),
]
_SENSITIVE = [
    (SensitiveKind.PRIVATE_KEY, f"my key:\n{_PEM}\nthanks", "my key:\nREDACTED_PRIVATE_KEY\nthanks"),
    (SensitiveKind.PRIVATE_KEY, _PEM.replace("\n", "\\n"), "REDACTED_PRIVATE_KEY"),
    (SensitiveKind.PRIVATE_KEY, f"{_PEM[:140]}\n\nHelp!", "REDACTED_PRIVATE_KEYHelp!"),
    (SensitiveKind.JWT, f"Bearer {_JWT}", "Bearer REDACTED_JWT"),
    *((SensitiveKind.ACCESS_TOKEN, f'use("{token}")', 'use("REDACTED_ACCESS_TOKEN")') for token in _TOKENS),
    (SensitiveKind.AUTHORIZATION, f"-H 'X: bearer {_LETTERS[:30]}'", "-H 'X: bearer REDACTED_AUTHORIZATION'"),
    (
        SensitiveKind.AUTHORIZATION,
        '"Authorization": "Basic YWRhOmxvdmVsYWNl"',
        '"Authorization": "Basic REDACTED_AUTHORIZATION"',
    ),
    (
        SensitiveKind.URL_CREDENTIALS,
        "postgres://ada:l0ve@lace@db.firm.de:5432/x",
        "postgres://REDACTED_URL_CREDENTIALS@db.firm.de:5432/x",
    ),
    (SensitiveKind.URL_CREDENTIALS, "redis://:swordfish@cache/0", "redis://REDACTED_URL_CREDENTIALS@cache/0"),
    (SensitiveKind.SECRET, 'let db_password: str = "swordfish"', 'let db_password: str = "REDACTED_SECRET"'),
    (SensitiveKind.SECRET, "password = 'correct horse battery'", "password = 'REDACTED_SECRET'"),
    (SensitiveKind.SECRET, '{"api_key": "abcd1234"}', '{"api_key": "REDACTED_SECRET"}'),
    (SensitiveKind.SECRET, r'"{\"secret\": \"swordfish\"}"', r'"{\"secret\": \"REDACTED_SECRET\"}"'),
    (SensitiveKind.SECRET, 'token: "9f8e7d6c"', 'token: "REDACTED_SECRET"'),
    (SensitiveKind.SECRET, "export DB_PASSWORD=swordfish", "export DB_PASSWORD=REDACTED_SECRET"),
    (SensitiveKind.SECRET, "run `SECRET_KEY_BASE=abcdef x`", "run `SECRET_KEY_BASE=REDACTED_SECRET x`"),
    (SensitiveKind.SECRET, "my password is hunter2, why?", "my password is REDACTED_SECRET, why?"),
    (
        SensitiveKind.SECRET,
        f"aws_secret_access_key = {_LETTERS[:19]}/{_LETTERS[:20]}",
        "aws_secret_access_key = REDACTED_SECRET",
    ),
    (SensitiveKind.SECRET, "https://api.firm.de/v1?key=abc12345&x=1", "https://api.firm.de/v1?key=REDACTED_SECRET&x=1"),
    (SensitiveKind.SECRET, "https://api.firm.de/v1?q=1&key=abc12345", "https://api.firm.de/v1?q=1&key=REDACTED_SECRET"),
    (SensitiveKind.EMAIL, "Write to ada.l+vox@mail.firm.co.uk.", "Write to REDACTED_EMAIL."),
    (SensitiveKind.EMAIL, "jörg@müller.de", "REDACTED_EMAIL"),
    (SensitiveKind.CARD_NUMBER, "12 4111 1111 1111 1111", "12 REDACTED_CARD_NUMBER"),
    (SensitiveKind.CARD_NUMBER, "2024 5555-5555-5555-4444", "2024 REDACTED_CARD_NUMBER"),
    (SensitiveKind.CARD_NUMBER, "3782 822463 10005", "REDACTED_CARD_NUMBER"),
    (SensitiveKind.CARD_NUMBER, "let card = 4242424242424242", "let card = REDACTED_CARD_NUMBER"),
    (SensitiveKind.PHONE, "call +49 (0) 151 2345-6789 now", "call REDACTED_PHONE now"),
    (SensitiveKind.PHONE, '"+15552345678"', '"REDACTED_PHONE"'),
    (SensitiveKind.PHONE, "(555) 234-5678", "REDACTED_PHONE"),
    (SensitiveKind.PHONE, "1-800-555-0199", "REDACTED_PHONE"),
    (SensitiveKind.PHONE, "030/12345678", "REDACTED_PHONE"),
    (SensitiveKind.PHONE, "Tel. 01 23 45 67 89", "Tel. REDACTED_PHONE"),
    (SensitiveKind.PHONE, "020 7946 0958", "REDACTED_PHONE"),
    (SensitiveKind.IP_ADDRESS, "ping 8.8.4.4!", "ping REDACTED_IP_ADDRESS!"),
    (SensitiveKind.IP_ADDRESS, "2a00:1450:4001:81b::200e", "REDACTED_IP_ADDRESS"),
    (SensitiveKind.HOME_PATH, "/home/ada.l/x.vox", "/home/user/x.vox"),
    (SensitiveKind.HOME_PATH, "in /Users/ada.", "in /Users/user."),
    (SensitiveKind.HOME_PATH, "/mnt/c/Users/ada/x", "/mnt/c/Users/user/x"),
    (SensitiveKind.HOME_PATH, r"C:\Users\Ada Lovelace\x", r"C:\Users\user\x"),
    (SensitiveKind.HOME_PATH, r"c:\\users\\ada", r"c:\\users\\user"),
]
_HARMLESS = [
    "ada@example.org, bob@shop.example, eve@mail.test",
    "git@github.com:firm/x.git",
    "npm i left-pad@1.0.0-beta.rc",
    "127.0.0.1 0.0.0.0 10.1.2.3 192.168.0.1 203.0.113.9 999.1.1.1",
    "v8.8.4.4, version 8.8.4.4, 1.2.3",
    "at 12:30:45, ::1, fe80::1",
    "01.02.2024 12:30, 09.11.2026 14 o'clock, 2026-11-21 07:03:19",
    "1234567890123456, 4111111111111112, 9999 9999 9999 9999, 1700000000000",
    "550e8400-e29b-41d4-a716-446655440000",
    "let x = 1 +2 - 3, 3.14159265358979, 0x5f3759df, 5551234567, 015112345678, 0123-45",
    'secret: "GITHUB_WEBHOOK_SECRET"',
    'password: "Enter your password", token: "comma", token: "identifier", secret: ""',
    'password = "your password", api_key = "<your key>", api_key = "${API_KEY}", secret = "****"',
    "fn login(password: str, token: Token[int]) to bool { }",
    "let password = hash2(secret); password is required; password: string, age2",
    "const MAX_TOKEN = 4096; MAX_TOKENS=4096 ACCESS_TOKEN=load() API_TOKEN==other",
    "/home/user/x ~/x /home/$USER https://firm.de/home/news C:\\Users\\Public\\x",
    "a |> b <| c |> <|im_end|>",
    "https://firm.de:8080/a?b=c@d",
    "sk-learn-is-a-long-hyphenated-name eyJ.a.b bearer of-good-and-other-news",
]
_ADVERSARIAL = [
    *("a", "1", "1 ", "01 ", "01 23 ", "4111-1111-", " 4111 1111", "a@", "a@b.", "a@b.c", "1.1.1.1.", "a:", "\n"),
    *("://", "://a:", 'password="', "password='\"`", 'secret:"A_', "PASSWORD", "\nPASSWORD=(", "bearer a"),
    *("// by A. ", "by A B, ", "\nBy A b@c ", "// Author: ", "(c) A ", "// TODO(a", "by A de la ", "@a.b "),
    *("-sk-a", "-----BEGIN PRIVATE KEY-----", "/home/a..", "C:\\Users\\a b ", "<|a", "?token=", "+1 ", "\\"),
    "eyJaaaaaa.",
]
_ADVERSARIAL_SIZE = 400_000


@every_row(*_SENSITIVE)
def test_sensitive_text_is_replaced_and_counted(kind: SensitiveKind, text: str, expected: str) -> None:
    redacted = redact(text)

    assert redacted.text == expected
    assert redacted.counts == {kind: 1}
    assert redact(expected).counts == {}


@every("text", _HARMLESS)
def test_harmless_text_is_unchanged(text: str) -> None:
    assert redact(text).text == text
    assert redact(text).counts == {}


@every_row(*_SENSITIVE)
def test_a_program_stays_a_program(kind: SensitiveKind, text: str, expected: str) -> None:
    inside = text.replace("\\", "\\\\").replace('"', '\\"').replace("'", "\\'").replace("\n", " ")
    for program in (f'fn f() to str {{ ret "{inside}" }}', f"fn f() to str {{ ret '{inside}' }}"):
        redacted = redact(program)

        assert analyze(program).ok
        assert analyze(redacted.text).ok
        assert kind in redacted.counts, expected


def test_kinds_are_counted_separately() -> None:
    redacted = redact("ada@firm.de and bob@firm.de from 8.8.8.8")

    assert redacted.text == "REDACTED_EMAIL and REDACTED_EMAIL from REDACTED_IP_ADDRESS"
    assert redacted.counts == {SensitiveKind.EMAIL: 2, SensitiveKind.IP_ADDRESS: 1}


@given(st.lists(st.sampled_from([text for _, text, _ in _SENSITIVE] + _HARMLESS), max_size=6))
@settings(deadline=None)
def test_redaction_is_stable(texts: list[str]) -> None:
    once = redact("\n".join(texts)).text

    assert redact(once).text == once
    assert not any(token in once for token in _TOKENS)


def test_the_seed_data_is_unchanged() -> None:
    data = PROJECT_ROOT / "data"
    paths = [*data.glob("golden/**/*.vox*"), *data.glob("docs/**/*.md")]
    changed = [path.name for path in paths if redact(path.read_bytes().decode()).counts]

    assert len(paths) > 300
    assert changed == []


@every("text", [text for _, text, _ in _SENSITIVE] + _HARMLESS + _ADVERSARIAL + COMMENTS)
def test_hints_miss_no_match(text: str) -> None:
    hints = {rule.pattern: [r.hint for r in _RULES if r.pattern is rule.pattern] for rule in _RULES}
    for rule in _RULES:
        for shown in (text, text * 3, f"x {text}"):
            found = any(rule.accepts(match) for match in rule.pattern.finditer(shown))

            assert not found or any(_find_hint(_fold(shown), hint) >= 0 for hint in hints[rule.pattern]), rule


@pytest.mark.slow
@pytest.mark.parametrize("unit", _ADVERSARIAL)
def test_any_long_text_is_read_in_linear_time(unit: str) -> None:
    assert_linear(redact, lambda size: (unit * (size // len(unit) + 1))[:size], _ADVERSARIAL_SIZE)
