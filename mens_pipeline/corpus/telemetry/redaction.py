"""Secrets and personal data taken out of a text, before it is written anywhere.

Every rule is a pattern without nested repetition: a text of any kind is read in linear time. Names of people are
recognised where a comment says what they are: `// Author: ...`, `// written by ...`, `// TODO(...)`. Other names, and
those of places, would need a language model.

A placeholder such as `REDACTED_EMAIL` is one identifier: a program that was accepted stays accepted, whether the
secret stood in a string, in a comment or in running code. Redacting a second time changes nothing.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from typing import Final

from mens_pipeline.corpus.telemetry.authors import AUTHORS


class SensitiveKind(StrEnum):
    """Kinds of sensitive text that are redacted."""

    PRIVATE_KEY = "private_key"
    """A PEM block; one without its end goes as far as its base64."""
    ACCESS_TOKEN = "access_token"  # noqa: S105 - a name
    """A key whose form says which service it opens."""
    JWT = "jwt"
    AUTHORIZATION = "authorization"
    """What follows `Bearer` or `Authorization: Basic`."""
    URL_CREDENTIALS = "url_credentials"
    SECRET = "secret"  # noqa: S105 - a name
    """The value of something that is called a password, secret, token or key."""
    EMAIL = "email"
    """Any address but those of reserved domains (`ada@example.org`), which are nobody's."""
    CARD_NUMBER = "card_number"
    PHONE = "phone"
    IP_ADDRESS = "ip_address"
    """Only a globally routable one: loopback, private and documentation addresses lead to nobody."""
    HOME_PATH = "home_path"
    """The name of the user in the path of a home folder; it becomes `user`."""
    AUTHOR = "author"
    """Who a comment says wrote, reviewed or owns something, with the address behind the name."""
    CHAT_MARKER = "chat_marker"
    """`<|im_start|>` and its like, which would forge a turn; a space behind the `<` makes it plain text."""


class RedactionPolicy(StrEnum):
    """What is done with a row of a workspace or of a mix in which something sensitive stands; telemetry is masked."""

    MASK = "mask"
    """A placeholder takes its place; a program that would be another one is dropped."""
    DROP = "drop"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without what it must not tell; `counts` holds no kind that did not occur."""

    text: str
    counts: Mapping[SensitiveKind, int]


def redact(text: str) -> Redacted:
    """Replace secrets, personal data and chat markers, and count what was replaced."""
    counts: Counter[SensitiveKind] = Counter()
    folded, asked, first = _fold(text), None, -1
    for rule in _RULES:
        if rule.hint is not asked:
            asked, first = rule.hint, _find_hint(folded, rule.hint)
        if first < 0:
            continue
        pieces: list[str] = []
        done, position = 0, max(0, first - _BEFORE) if len(folded) == len(text) + 1 else 0
        keeps = "keep" in rule.pattern.groupindex
        while (match := rule.pattern.search(text, position)) is not None:
            if not rule.accepts(match):
                position = match.start() + 1
                continue
            pieces += text[done : match.end("keep") if keeps else match.start()], rule.replacement
            done = position = match.end()
        if pieces:
            text = "".join((*pieces, text[done:]))
            folded, asked = _fold(text), None
            counts[rule.kind] += len(pieces) // 2
    return Redacted(text, dict(counts))


_Hint = tuple[str, ...] | re.Pattern[str]
"""What a case-folded text holds in which a rule has a match: one of some pieces, or a pattern.

Most texts hold none, and to look for hints takes a twentieth of the time that the patterns take.
"""


def _fold(text: str) -> str:
    """Fold the case of a text, behind the end of a line: so that its first line begins as others do."""
    return f"\n{text.casefold()}"


_BEFORE: Final = 160
"""Characters in front of its hint in which a match may begin."""


def _find_hint(folded: str, hint: _Hint) -> int:
    """Return where a hint stands for the first time, or -1."""
    if isinstance(hint, re.Pattern):
        match = hint.search(folded)
        return match.start() if match is not None else -1
    first = -1
    for piece in hint:
        place = folded.find(piece)
        if place >= 0:
            first = place if first < 0 else min(first, place)
    return first


@dataclass(frozen=True, slots=True)
class _Rule:
    """Pattern of one kind of sensitive text.

    `pattern` finds candidates; each match is bounded, or ends where the next can start. Its group `keep`, if any, stays
    in front of the replacement. `accepts` says whether a candidate is one.
    """

    kind: SensitiveKind
    pattern: re.Pattern[str]
    replacement: str
    hint: _Hint
    accepts: Callable[[re.Match[str]], bool] = bool


_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    # The body holds no five hyphens, so that many headings without an end are not read again and again.
    r"(?:(?:(?!-----)[\s\S])*+-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"|(?:\s|\\[nr]|[A-Za-z0-9+/=]{24,}+)*+)"
)
_JWT: Final = re.compile(r"(?<![\w.-])eyJ[\w-]{6,}+\.[\w-]{6,}+\.[\w-]*+")
_KEY_ID: Final = re.compile(  # AWS, Google
    r"(?:AKIA|ASIA)(?<![A-Za-z0-9]....)[0-9A-Z]{16}(?![0-9A-Z])|AIza(?<![A-Za-z0-9]....)[\w-]{35}"
)
_ACCESS_TOKEN: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"gh[oprsu]_[0-9A-Za-z]{36,255}|github_pat_\w{22,255}"  # GitHub
    r"|gl(?:pat|dt|rt|ptt|soat|cbt)-[\w-]{20,255}"  # GitLab
    r"|(?:xox[abeoprs]|xapp)-[0-9A-Za-z-]{10,255}|hooks\.slack\.com/services/[\w/]{20,100}"  # Slack
    r"|ya29\.[\w-]{20,255}|GOCSPX-[\w-]{20,60}"  # Google
    r"|(?<![\w-])sk-(?=[A-Za-z_-]{0,80}[0-9])[\w-]{20,255}"  # OpenAI, Anthropic
    r"|[rs]k_(?:live|test)_[0-9A-Za-z]{10,255}|whsec_[0-9A-Za-z+/]{20,255}"  # Stripe
    r"|npm_[0-9A-Za-z]{36}|pypi-[\w-]{50,255}"  # Registries
    r"|hf_[0-9A-Za-z]{30,255}|gsk_[0-9A-Za-z]{40,255}"  # Hugging Face, Groq
    r"|SG\.[\w-]{16,64}\.[\w-]{16,64}|dop_v1_[0-9a-f]{64}|dckr_pat_[\w-]{20,64}"  # SendGrid, DigitalOcean, Docker
    r")"
)
_AUTHORIZATION: Final = re.compile(
    r"(?P<keep>bearer\s{1,8}(?=[A-Za-z._~+/-]{0,80}[0-9])|authorization\\{0,3}[\"']?\s{0,8}[:=]\s{0,8}\\{0,3}[\"']?(?:basic|token)\s{1,8})"
    r"(?P<value>[\w.~+/-]{12,4096}+=*+)",
    re.IGNORECASE,
)
_URL_CREDENTIALS: Final = re.compile(r"(?P<keep>://)[^\s/?#:@\"'`<>]*+:[^\s/?#\"'`<>]*(?=@)")

_KEY: Final = r"(?:pass(?:word|wd|phrase)|pwd|secret(?:[_-]?key)?|(?:api|access|private)[_-]?key|token|credentials?)"
_QUOTED_SECRET: Final = re.compile(
    rf"(?P<keep>(?P<key>{_KEY})(?:_?hash)?\\{{0,3}}[\"'`]?\s{{0,8}}(?::\s{{0,4}}str(?:ing)?\s{{0,4}})?"
    r"(?P<sign>=>|:=|=|:)\s{0,8}(?P<quote>\\{0,3}[\"'`]))"
    r"(?P<value>(?:(?!(?P=quote))(?:[^\n\\]|\\.)){4,512}+)(?=(?P=quote))",
    re.IGNORECASE,
)
_VARIABLE: Final = re.compile(
    r"(?<!\w)(?P<keep>[A-Z0-9_]{0,60}"
    r"(?:PASSWORD|PASSWD|SECRET(?:_KEY(?:_BASE)?)?|TOKEN|API_?KEY|ACCESS_KEY|PRIVATE_KEY)=(?!=))"
    r"(?P<value>[^\s\"'`(){}]{4,512}+)(?!\()"
)
_UNQUOTED_SECRET: Final = re.compile(
    r"(?P<keep>(?<![^\W_])(?:pass(?:word|wd|phrase)|pwd|aws_secret_access_key|aws_session_token)"
    r"(?: is\b|\s?[:=])\s{0,4})"
    r"(?=[^\s\"'`(){}\[\],;0-9]{0,60}[0-9])(?P<value>[^\s\"'`(){}\[\],;]{6,512}+)(?![(\[{])",
    re.IGNORECASE,
)
_PARAMETER: Final = re.compile(
    r"(?P<keep>[?&](?:(?:access_|auth_)?token|api_?key|key|sig(?:nature)?|password|secret)=)"
    r"(?=[^\s&#\"'`<>{}]{0,60}[0-9])(?P<value>[^\s&#\"'`<>{}]{8,2048}+)",
    re.IGNORECASE,
)
_NO_SECRET: Final = re.compile(
    r"[A-Z][A-Z0-9]*+(?:_[A-Z0-9]++)++"  # the name of a variable, or a placeholder of ours
    r"|<[^>]*>|\$\{?[\w.]+\}?|\{+[\w. ]*\}+|\*+|\.{3,}|[xX]{3,}|(?i:your)[ _-][\w -]*"
)


def _is_secret(match: re.Match[str]) -> bool:
    return _NO_SECRET.fullmatch(match["value"]) is None


def _is_quoted_secret(match: re.Match[str]) -> bool:
    """Return whether a quoted value is a secret; behind a colon none may have blanks, and a `token` must be random."""
    value = match["value"]
    if not _is_secret(match) or (match["sign"] == ":" and re.search(r"\s", value)):
        return False
    return match["key"].lower() != "token" or re.fullmatch(r"\S{20,}|(?=\D*[0-9])\S{8,}", value) is not None


_EMAIL: Final = re.compile(r"(?<![\w.%+-])(?P<who>[\w.%+-]++)@(?!\d+\.\d)(?P<domain>(?:[\w-]++\.)+[^\W\d_]{2,})")
_RESERVED_DOMAIN: Final = re.compile(
    r"(?:.*\.)?(?:example(?:\.(?:com|net|org|edu))?|test|invalid|localhost)", re.IGNORECASE
)
_NOBODY: Final = frozenset(("git", "REDACTED_URL_CREDENTIALS"))


def _is_somebody(match: re.Match[str]) -> bool:
    return match["who"] not in _NOBODY and _RESERVED_DOMAIN.fullmatch(match["domain"]) is None


_CARD_NUMBER: Final = re.compile(
    r"(?<![\w.])(?:[0-9]{4}(?P<gap>[ -])[0-9]{4}(?P=gap)[0-9]{4}(?P=gap)[0-9]{1,4}(?:(?P=gap)[0-9]{1,3})?"
    r"|[0-9]{4}[ -][0-9]{6}[ -][0-9]{4,5}|[0-9]{13,19})(?!\w)"
)
_ISSUED: Final = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:(?:2[2-9]|[3-6]\d|7[01])\d|720)\d{12}|3[47]\d{13}"
    r"|6(?:011|4[4-9]\d|5\d\d)\d{12}|3(?:0[0-5]|[68]\d)\d{11}|35\d{14}|62\d{14,17}"
)

_DOUBLED: Final = str.maketrans("0123456789", "0246813579")
"""Digit -> the sum of the digits of its double."""


_EXAMPLES: Final = frozenset(("4539578763621486",))
"""Numbers that texts about Luhn's formula print: nobody's card."""


def _is_card_number(match: re.Match[str]) -> bool:
    """Return whether a number has the prefix of an issuer and the right check digit (Luhn)."""
    digits = match[0].replace(" ", "").replace("-", "")
    if digits in _EXAMPLES or _ISSUED.fullmatch(digits) is None:
        return False
    values = (digits[::-2] + digits[-2::-2].translate(_DOUBLED)).encode()
    return (sum(values) - ord("0") * len(values)) % 10 == 0


_INTERNATIONAL_PHONE: Final = re.compile(r"(?<![\w+.])\+[1-9](?:[ ./-]?\(?[0-9]\)?){7,14}(?!\w)")
_AMERICAN_PHONE: Final = re.compile(
    r"(?<![\w.+-])(?:1[ .-])?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[ .-])[2-9][0-9]{2}[ .-][0-9]{4}(?![\w-]|\.[0-9])"
)
_TRUNK_PHONE: Final = re.compile(
    r"(?<![\w.+-])(?![0-9]{2}[./-][0-9]{2}[./-][0-9]{4})"  # a date is none
    r"\(?00?[1-9][0-9]{0,4}\)?(?:[ ./-][0-9]{2,8}){1,5}(?![\w:])"
)
_FEWEST_DIGITS: Final = 9
_MOST_DIGITS: Final = 15


def _has_digits_of_a_phone(match: re.Match[str]) -> bool:
    return _FEWEST_DIGITS <= sum(map(str.isdigit, match[0])) <= _MOST_DIGITS


_IPV4: Final = re.compile(r"(?<![\w.-])(?<![Vv]ersion )[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![\w-]|\.[0-9])")
_IPV6: Final = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{1,4}(?:::?[0-9A-Fa-f]{1,4}){1,7}(?:::)?(?![\w:])")


def _is_global(match: re.Match[str]) -> bool:
    try:
        return ip_address(match[0]).is_global
    except ValueError:
        return False


_NAME: Final = r"(?P<name>\w(?:[\w.-]*\w)?)"
_UNIX_HOME: Final = re.compile(rf"(?<![\w.~-])(?P<keep>(?:(?:/mnt)?/[a-z]|/var|/export|/usr)?/(?:home|Users)/){_NAME}")
_WINDOWS_HOME: Final = re.compile(
    rf"(?P<keep>[A-Za-z]:(?P<slash>\\{{1,4}}|/)(?i:users)(?P=slash))"
    rf"(?:(?P<full>\w[\w.-]{{0,40}}(?: [\w.-]{{1,40}}){{1,3}})(?=[\\/])|{_NAME})"
)
_NOBODYS_HOME: Final = frozenset(("user", "username", "shared", "public", "default"))


def _is_somebodys_home(match: re.Match[str]) -> bool:
    return (match["name"] or "").lower() not in _NOBODYS_HOME


_CHAT_MARKER: Final = re.compile(r"(?P<keep><)(?=\|[\w-]{1,64}\|>)")

_NAMED: Final = ("passw", "passphrase", "pwd", "secret", "credential")
# More frequent, and so only in front of a value.
_VALUED: Final = r"(?=(?:_?hash)?\\{0,3}[\"'`]?\s{0,8}(?::\s{0,4}str(?:ing)?\s{0,4})?[:=])"
_KEY_NAMED: Final = re.compile(rf"key(?:(?<=[ise]key)|(?<=[ise][_-]key)){_VALUED}")
_TOKEN_NAMED: Final = re.compile(rf"token{_VALUED}")
_ASSIGNED: Final = re.compile(r"=(?<=(?:word|sswd|cret|oken|_key|ikey|base)=)")
_ASKED: Final = (re.compile(r"\?(?=[a-z_]{3,12}=)"), re.compile(r"&(?=[a-z_]{3,12}=)"))
# By what stands in front of the random part; a pattern that begins with one sign is found at once.
_SERVICES: Final = (
    re.compile(
        r"_(?=\w{10})(?:(?<=[^a-z0-9]hf_)|(?<=gh[oprsu]_|npm_|gsk_|pat_)|(?<=whsec_|op_v1_)|(?<=[rs]k_(?:live|test)_))"
    ),
    re.compile(
        r"-(?=[\w-]{10})(?:(?<=[^a-z0-9]sk-)|(?<=gl[dr]t-|xapp-|xox[abeoprs]-|pypi-)|(?<=glpat-|glptt-|glcbt-)"
        r"|(?<=glsoat-|gocspx-))"
    ),
    re.compile(r"\.(?:(?<=[^a-z0-9]sg\.)(?=[\w-]{16})|(?<=ya29\.)|(?<=hooks\.)(?=slack))"),
)
_EIGHT_DIGITS: Final = re.compile(r"[0-9](?:[ ()./-]{0,3}[0-9]){7}")
_DOTTED: Final = re.compile(r"\.(?<=[0-9]\.)[0-9]{1,3}\.[0-9]{1,3}\.[0-9]")
_COLONS: Final = re.compile(r":(?::|[0-9a-f]{1,4}:)")
_AT_DOMAIN: Final = re.compile(r"@(?<=[\w.%+-]@)(?:[\w-]++\.)+[^\W\d_]")
_HOMES: Final = ("/home/", "/users/", "\\users\\")

# What has a clear form goes first: what is left of it does not look like a secret to the general rules behind it.
_RULES: Final = (
    _Rule(SensitiveKind.PRIVATE_KEY, _PRIVATE_KEY, "REDACTED_PRIVATE_KEY", ("private key",)),
    _Rule(SensitiveKind.JWT, _JWT, "REDACTED_JWT", ("eyj",)),
    _Rule(SensitiveKind.ACCESS_TOKEN, _KEY_ID, "REDACTED_ACCESS_TOKEN", ("akia", "asia", "aiza")),
    *(_Rule(SensitiveKind.ACCESS_TOKEN, _ACCESS_TOKEN, "REDACTED_ACCESS_TOKEN", hint) for hint in _SERVICES),
    _Rule(
        SensitiveKind.AUTHORIZATION,
        _AUTHORIZATION,
        "REDACTED_AUTHORIZATION",
        ("bearer", "authorization"),
        _is_secret,
    ),
    _Rule(SensitiveKind.URL_CREDENTIALS, _URL_CREDENTIALS, "REDACTED_URL_CREDENTIALS", ("://",)),
    _Rule(SensitiveKind.SECRET, _QUOTED_SECRET, "REDACTED_SECRET", _NAMED, _is_quoted_secret),
    _Rule(SensitiveKind.SECRET, _QUOTED_SECRET, "REDACTED_SECRET", _KEY_NAMED, _is_quoted_secret),
    _Rule(SensitiveKind.SECRET, _QUOTED_SECRET, "REDACTED_SECRET", _TOKEN_NAMED, _is_quoted_secret),
    _Rule(
        SensitiveKind.SECRET,
        _VARIABLE,
        "REDACTED_SECRET",
        _ASSIGNED,
        _is_secret,
    ),
    _Rule(
        SensitiveKind.SECRET, _UNQUOTED_SECRET, "REDACTED_SECRET", ("passw", "passphrase", "pwd", "aws_se"), _is_secret
    ),
    *(_Rule(SensitiveKind.SECRET, _PARAMETER, "REDACTED_SECRET", hint, _is_secret) for hint in _ASKED),
    # Before the addresses: one behind a name belongs to it.
    *(_Rule(SensitiveKind.AUTHOR, pattern, "REDACTED_AUTHOR", hint, accepts) for pattern, hint, accepts in AUTHORS),
    _Rule(SensitiveKind.EMAIL, _EMAIL, "REDACTED_EMAIL", _AT_DOMAIN, _is_somebody),
    _Rule(SensitiveKind.CARD_NUMBER, _CARD_NUMBER, "REDACTED_CARD_NUMBER", _EIGHT_DIGITS, _is_card_number),
    _Rule(SensitiveKind.PHONE, _INTERNATIONAL_PHONE, "REDACTED_PHONE", _EIGHT_DIGITS),
    _Rule(SensitiveKind.PHONE, _AMERICAN_PHONE, "REDACTED_PHONE", _EIGHT_DIGITS),
    _Rule(SensitiveKind.PHONE, _TRUNK_PHONE, "REDACTED_PHONE", _EIGHT_DIGITS, _has_digits_of_a_phone),
    _Rule(SensitiveKind.IP_ADDRESS, _IPV4, "REDACTED_IP_ADDRESS", _DOTTED, _is_global),
    _Rule(SensitiveKind.IP_ADDRESS, _IPV6, "REDACTED_IP_ADDRESS", _COLONS, _is_global),
    _Rule(SensitiveKind.HOME_PATH, _UNIX_HOME, "user", _HOMES, _is_somebodys_home),
    _Rule(SensitiveKind.HOME_PATH, _WINDOWS_HOME, "user", _HOMES, _is_somebodys_home),
    _Rule(SensitiveKind.CHAT_MARKER, _CHAT_MARKER, " ", ("<|",)),
)
