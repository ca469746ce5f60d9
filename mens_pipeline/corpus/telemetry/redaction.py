"""Remove secrets and personal data from a text or a row.

Every rule is a pattern without nested repetition, so any text is read in linear time. Names of people are recognised if
a comment marks them: `// Author: ...`, `// written by ...`, `// TODO(...)`. Other names, and places, would need a
language model.

A placeholder such as `REDACTED_EMAIL` is one identifier: an accepted program stays accepted, whether the secret was in
a string, a comment or code. Redacting a second time changes nothing.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from math import log2
from typing import Any, Final, Generic, TypeVar

from pydantic import JsonValue

from mens_pipeline.corpus.schema.records import MAX_TEXT, ExtractedRecord, TrainingPair, parsed_code
from mens_pipeline.language import analyze, structure_of


class SensitiveKind(StrEnum):
    """Kinds of sensitive text that are redacted."""

    PRIVATE_KEY = "private_key"  # a PEM block; one without its end goes as far as its base64
    ACCESS_TOKEN = "access_token"  # noqa: S105 - a name
    """A key whose form shows its service."""
    JWT = "jwt"
    AUTHORIZATION = "authorization"  # the value after `Bearer` or `Authorization: Basic`
    URL_CREDENTIALS = "url_credentials"
    SECRET = "secret"  # noqa: S105 - a name
    """The value of something named password, secret, token or key."""
    EMAIL = "email"  # any address except in reserved domains (`ada@example.org`)
    CARD_NUMBER = "card_number"
    PHONE = "phone"
    IP_ADDRESS = "ip_address"
    """Only globally routable addresses, not loopback, private or documentation ones."""
    HOME_PATH = "home_path"  # the user name in the path of a home folder; it becomes `user`
    AUTHOR = "author"
    """A person whom a comment names as author, reviewer or owner, with the address after the name."""


class RedactionPolicy(StrEnum):
    """Treatment of sensitive rows of a workspace or a mix; telemetry is always masked."""

    MASK = "mask"  # replace secrets with placeholders; drop a program that would become a different one
    DROP = "drop"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text after redaction; `counts` has only kinds that occurred."""

    text: str
    counts: Mapping[SensitiveKind, int]


def redact(text: str) -> Redacted:
    """Replace secrets and personal data, and count them."""
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
"""Strings or a pattern for a first check: every case-folded text with a match contains one of them.

Most texts contain no hint, and searching for hints takes a twentieth of the time of the patterns.
"""


def _fold(text: str) -> str:
    return f"\n{text.casefold()}"


_BEFORE: Final = 160  # characters before its hint in which a match may start


def _find_hint(folded: str, hint: _Hint) -> int:
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

    Matches of `pattern` are candidates; each is bounded, or ends where the next can start. Its group `keep`, if any,
    stays in front of the replacement. `accepts` filters candidates.
    """

    kind: SensitiveKind
    pattern: re.Pattern[str]
    hint: _Hint
    accepts: Callable[[re.Match[str]], bool] = bool

    @property
    def replacement(self) -> str:
        return "user" if self.kind is SensitiveKind.HOME_PATH else f"REDACTED_{self.kind.name}"


_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    # The body has no five hyphens, so that many headings without an end are not read repeatedly.
    r"(?:(?:(?!-----)[\s\S])*+-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"|(?:\s|\\[nr]|[A-Za-z0-9+/=]{24,}+)*+)"
)
_JWT: Final = re.compile(r"(?<![\w.-])eyJ[\w-]{6,}+\.[\w-]{6,}+\.[\w-]*+")
_AWS_ID: Final = r"A(?:[KS]IA|BIA|CCA|3T[A-Z0-9])(?![A-Z0-9]{0,9}EXAMPLE)[A-Z0-9]{16}(?![A-Za-z0-9])"
_ACCESS_TOKEN: Final = re.compile(
    r"(?<![A-Za-z0-9])(?=[\w.~/:-]{20})(?:(?:"
    r"(?:gh[oprsu]|github_pat|npm|hf|api_org|gsk|r8|[rs]k_(?:live|test)|whsec|dop_v1|dckr_pat|shp(?:at|ca|pa|ss)|lin_api"
    r"|ntn|gl(?:sa|c)|sntry[su]|figd|rubygems|sbp|pscale_(?:pw|tkn|oauth)|fo1|tfp)_"
    r"|(?:gl(?:pat|dt|rt|ptt|soat|cbt)|xox[abeoprs]|xapp|(?<![\w-])sk|pypi|pul|xai|pplx|PMAK|NRAK|sq0[a-z]{3}|GOCSPX)-"
    r"|AGE-SECRET-KEY-|(?:SG|ya29|hv[bs]|dp\.[a-z]{2,5}|\w{14}\.atlasv1)\.|AIza|LTAI|AKCp|AT[AC]TT3"
    r")[\w-]{16,400}(?:[.~+/=]{1,2}[\w-]{6,400}){0,3}=*"
    r"|(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/[\w/-]{20,120}"
    r"|[0-9]{8,10}:AA[\w-]{33}|[MNO][\w-]{23,25}\.[\w-]{6,7}\.[\w-]{27,40}"  # Telegram, Discord
    r"|[\w.~-]{3}[0-9]Q~[\w.~-]{31,34}"  # Azure
    rf"|{_AWS_ID}"
    r"|(?:AC|SK|dapi|key-)[0-9a-f]{32}(?!\w)|[0-9a-f]{32}-us[0-9]{1,2}(?!\w)"  # Twilio, Databricks, Mailgun, Mailchimp
    r")"
)
_RANDOM: Final = re.compile(
    r"(?=[A-Za-z]{0,20}(?:[0-9]|(?<=[a-z])[A-Z]))(?![A-Za-z0-9]{0,24}(?:12345|abcdef|ABCDEF|EXAMPLE))[A-Za-z0-9]{12}"
    rf"|{_AWS_ID}"
)
"""A run that is neither a word nor an example, or has a form that no word has."""


_AUTHORIZATION: Final = re.compile(
    r"(?P<keep>bearer\s{1,8}(?=[A-Za-z._~+/-]{0,80}[0-9])|authorization\\{0,3}[\"']?\s{0,8}[:=]\s{0,8}\\{0,3}[\"']?(?:basic|token)\s{1,8})"
    r"(?P<value>[\w.~+/-]{12,4096}+=*+)",
    re.IGNORECASE,
)
_URL_CREDENTIALS: Final = re.compile(r"(?P<keep>://)[^\s/?#:@\"'`<>]*+:[^\s/?#\"'`<>]*(?=@)")

_KEY: Final = (
    r"(?:pass(?:word|wd|phrase)|pwd|secret(?:[_-]?key)?|(?:api|access|private)[_-]?key|token|credentials?|key)"
)
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
    r"(?P<keep>(?<![^\W_])(?:pass(?:word|wd|phrase)|pwd|aws_secret_access_key|aws_session_token|(?:account|shared_?access)_?key)"
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
    r"|<[^>]*>|\$\{?[\w.]+\}?|\{+[\w. ]*\}+|\*+|[xX]{3,}|(?i:your)[ _-][\w -]*"
    r"|\S{0,12}\.{3,}|(?:[a-z]+[.-])+(?:token|key|secret|password)| \+ .*"  # cut short, a description, joined strings
)


def _is_secret(match: re.Match[str]) -> bool:
    return _NO_SECRET.fullmatch(match["value"]) is None


def _is_quoted_secret(match: re.Match[str]) -> bool:
    """Reject values with blanks after a colon, and values of a `token` or another `key` that are not random."""
    value = match["value"]
    if not _is_secret(match) or (match["sign"] == ":" and re.search(r"\s", value)):
        return False
    if match["key"].lower() == "key":
        is_whole = re.fullmatch(r"(?!(.{1,32})\1+$)[\w+/=.~-]{16,}", value) is not None
        shares = [number / len(value) for number in Counter(value).values()]
        return is_whole and _RANDOM.search(value) is not None and -sum(p * log2(p) for p in shares) > _BITS
    return match["key"].lower() != "token" or re.fullmatch(r"\S{20,}|(?=\D*[0-9])\S{8,}", value) is not None


_BITS: Final = 3.5
"""Bits of entropy per character above which the value of a key is random; hexadecimal digits have at most 4."""


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


def _is_card_number(match: re.Match[str]) -> bool:
    digits = match[0].replace(" ", "").replace("-", "")
    # This one is an example in texts about Luhn's formula.
    if digits == "4539578763621486" or _ISSUED.fullmatch(digits) is None:
        return False
    values = (digits[::-2] + digits[-2::-2].translate(_DOUBLED)).encode()
    return (sum(values) - ord("0") * len(values)) % 10 == 0


_INTERNATIONAL_PHONE: Final = re.compile(r"(?<![\w+.])\+[1-9](?:[ ./-]?\(?[0-9]\)?){7,14}(?!\w)")
_AMERICAN_PHONE: Final = re.compile(
    r"(?<![\w.+-])(?:1[ .-])?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[ .-])[2-9][0-9]{2}[ .-][0-9]{4}(?![\w-]|\.[0-9])"
)
_TRUNK_PHONE: Final = re.compile(
    r"(?<![\w.+-])(?![0-9]{2}[./-][0-9]{2}[./-][0-9]{4})"  # not a date
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


def _is_somebodys_home(match: re.Match[str]) -> bool:
    return (match["name"] or "").lower() not in {"user", "username", "shared", "public", "default"}


_MARK: Final = re.compile(r"//|#|/\*|<!--|^[ \t]*(?:\*|--)")  # starts a comment
_BLANK_BEFORE: Final = re.compile(r"(?:\A|\n)[ \t>*_]*\Z")
_MOST_BEFORE: Final = 160  # characters before a match that are searched for the start of a comment

# A capital of Latin, Greek or Cyrillic, or a letter of a script without capitals.
_CAPITAL: Final = r"[A-ZÀ-ÖØ-ÞŁŚŠŽČŽİĆΑ-ΫА-Я\u0590-\u06FF\u0900-\u097F\u3040-\u30FF\u4E00-\u9FFF\uAC00-\uD7AF]"
_PART: Final = rf"{_CAPITAL}(?:[\w'\u2019-]{{0,40}}\w|\.(?=[ A-Z]))?"
_PARTICLE: Final = r"(?:(?:van|von|der|den|de|da|di|du|dos|la|le|bin|al|el|zu|ter)[ ]){0,2}"
_ADDRESS: Final = r"(?:[<(][^\n<>()]{1,80}[>)]|@[\w-]{2,39}|[\w.%+-]{1,64}@[\w.-]{1,64}\w)"
_PERSON: Final = rf"(?:{_PART}(?:[ ]{_PARTICLE}{_PART}){{0,4}}(?:,?[ ]{_ADDRESS})?|{_ADDRESS})"
_DEEDS: Final = (
    *("written", "authored", "created", "coded", "developed", "implemented", "maintained", "contributed", "designed"),
    *("owned", "signed-off", "reviewed", "acked", "tested", "reported", "ported", "adapted", "fixed", "added"),
    *("modified", "edited", "done", "made"),
)
_PERSONS: Final = rf"(?P<who>{_PERSON}(?:(?:,|,? and|,? &)[ ]{_PERSON}){{0,4}})"
_BYLINE: Final = re.compile(
    rf"(?P<keep>(?<![\w-])(?i:(?P<role>(?:co-)?(?:{'|'.join(_DEEDS)})[ -]by|by)):?[ ]){_PERSONS}"
)
_CREDIT: Final = re.compile(
    r"(?P<keep>(?<![\w-])(?i:(?P<role>courtesy of|thanks to|credits? to|copyright(?:[ ](?:\(c\)|©))?|\(c\)|©)):?[ ]"
    rf"(?:[0-9]{{4}}(?:[ ]?[-\u2013,][ ]?[0-9]{{4}})?,?[ ](?i:by[ ])?)?){_PERSONS}"
)
_LABEL: Final = re.compile(
    r"(?P<keep>(?<![\w-])(?:@author:?|(?P<role>(?:co-?)?authors?|maintainers?|contributors?|(?:code ?)?owners?|"
    r"reviewers?|contact|writer|developer):)[ \t]{1,8})"
    r"(?P<who>[^\s*][^\n*]{0,158}?)(?=[ \t]{0,8}(?:\*/|-->|\r?$))",
    re.IGNORECASE | re.MULTILINE,
)
_ASSIGNEE: Final = re.compile(r"(?P<keep>(?<!\w)(?:TODO|FIXME|XXX)\()(?P<who>@?[A-Za-z][\w.@-]{1,60})(?=\))")
_NO_NAME: Final = frozenset(
    ("the", "this", "that", "these", "each", "every", "all", "any", "one", "its", "it", "if", "for", "when", "vox")
)

_TYPES: Final = frozenset(("str", "string", "text", "int", "bool", "id", "none", "null", "unknown", "optional", "user"))


def _comment_before(match: re.Match[str]) -> str | None:
    begin = match.start()
    line = match.string[max(0, begin - _MOST_BEFORE) : begin].rpartition("\n")[2]
    mark = _MARK.search(line)
    return None if mark is None else line[mark.start() :]


def _is_byline(match: re.Match[str]) -> bool:
    who = match["who"]
    if who.startswith("REDACTED_") or who.partition(" ")[0].lower() in _NO_NAME:
        return False
    is_full = " " in who or "@" in who
    comment = _comment_before(match)
    begins = _BLANK_BEFORE.search(match.string, max(0, match.start() - 8), match.start()) is not None
    if comment is None:
        return is_full and begins
    return match["role"].lower() != "by" or (is_full and re.search(r"\w", comment) is None)


def _is_labelled(match: re.Match[str]) -> bool:
    who = match["who"]
    if who.startswith(("REDACTED_", "`", '"')) or _comment_before(match) is None:
        return False
    role, first = (match["role"] or "author").lower(), who.lstrip("<@")
    is_handle = " " not in who and role.startswith(("author", "maintainer")) and who.lower() not in _TYPES
    return not first[:1].islower() or "@" in who or is_handle


def _is_assignee(match: re.Match[str]) -> bool:
    return _comment_before(match) is not None and not match["who"].startswith("REDACTED_")


# Endings of the verbs in `_DEEDS`; "sorted by" and "separated by" are much more frequent.
_BY: Final = re.compile(
    r"by[: ](?:(?<=(?:tten|ored|oded|oped|nted|gned|wned|-off|ewed|cked|sted|pted|ixed|dded|fied|ited|done|"
    r"made)[ -]by.)|(?<=(?:created|ntained|ributed|eported|\Wported)[ -]by.)|(?<=[/#*-] by.)|(?<=\nby.))"
)
_CREDITS: Final = ("courtesy of", "thanks to", "credit", "copyright", "(c)", "©")
_LABELS: Final = re.compile(r":(?<=(?:thor|hors|iner|ners|utor|tors|wner|ewer|wers|tact|iter|oper):)")

_AUTHORS: Final = (
    (_BYLINE, _BY, _is_byline),
    (_CREDIT, _CREDITS, _is_byline),
    (_LABEL, _LABELS, _is_labelled),
    (_LABEL, ("@author",), _is_labelled),
    (_ASSIGNEE, ("todo(", "fixme(", "xxx("), _is_assignee),
)
"""Pattern, hint and check of each way to name a person."""


_NAMED: Final = ("passw", "passphrase", "pwd", "secret", "credential")
# These are more frequent, so they count only in front of a value.
_VALUED: Final = r"(?=(?:_?hash)?\\{0,3}[\"'`]?\s{0,8}(?::\s{0,4}str(?:ing)?\s{0,4})?[:=][=>]?\s{0,8}\\{0,3}[\"'`])"
_SECRETS: Final[tuple[_Hint, ...]] = (_NAMED, *(re.compile(f"{word}{_VALUED}") for word in ("key", "token")))
_ASSIGNED: Final = re.compile(r"=(?<=(?:word|sswd|cret|oken|_key|ikey|base)=)")
_ASKED: Final = (re.compile(r"\?(?=[a-z_]{3,12}=)"), re.compile(r"&(?=[a-z_]{3,12}=)"))
_RUN: Final = re.compile(r"[0-9](?:(?=[a-z0-9]{6})|(?<=[a-z0-9]{7}))")
"""A digit in a run of twelve letters and digits."""
_EIGHT_DIGITS: Final = re.compile(r"[0-9](?:[ ()./-]{0,3}[0-9]){7}")
_DOTTED: Final = re.compile(r"\.(?<=[0-9]\.)[0-9]{1,3}\.[0-9]{1,3}\.[0-9]")
_COLONS: Final = re.compile(r":(?::|[0-9a-f]{1,4}:)")
_AT_DOMAIN: Final = re.compile(r"@(?<=[\w.%+-]@)(?:[\w-]++\.)+[^\W\d_]")
_HOMES: Final = ("/home/", "/users/", "\\users\\")

# Specific forms come first, so that the general rules after them do not match parts of them.
_RULES: Final = (
    _Rule(SensitiveKind.PRIVATE_KEY, _PRIVATE_KEY, ("private key",)),
    _Rule(SensitiveKind.JWT, _JWT, ("eyj",)),
    *(
        _Rule(SensitiveKind.ACCESS_TOKEN, _ACCESS_TOKEN, hint, lambda match: _RANDOM.search(match[0]) is not None)
        for hint in (_RUN, ("hf_", "api_org_", "akia", "asia", "abia", "acca"))  # these may have no digit
    ),
    _Rule(SensitiveKind.AUTHORIZATION, _AUTHORIZATION, ("bearer", "authorization"), _is_secret),
    _Rule(SensitiveKind.URL_CREDENTIALS, _URL_CREDENTIALS, ("://",)),
    *(_Rule(SensitiveKind.SECRET, _QUOTED_SECRET, hint, _is_quoted_secret) for hint in _SECRETS),
    _Rule(SensitiveKind.SECRET, _VARIABLE, _ASSIGNED, _is_secret),
    _Rule(
        SensitiveKind.SECRET,
        _UNQUOTED_SECRET,
        ("passw", "passphrase", "pwd", "aws_se", "accountkey", "account_key", "accesskey", "access_key"),
        _is_secret,
    ),
    *(_Rule(SensitiveKind.SECRET, _PARAMETER, hint, _is_secret) for hint in _ASKED),
    # Before the addresses, because an address after a name belongs to it.
    *(_Rule(SensitiveKind.AUTHOR, pattern, hint, accepts) for pattern, hint, accepts in _AUTHORS),
    _Rule(SensitiveKind.EMAIL, _EMAIL, _AT_DOMAIN, _is_somebody),
    _Rule(SensitiveKind.CARD_NUMBER, _CARD_NUMBER, _EIGHT_DIGITS, _is_card_number),
    _Rule(SensitiveKind.PHONE, _INTERNATIONAL_PHONE, _EIGHT_DIGITS),
    _Rule(SensitiveKind.PHONE, _AMERICAN_PHONE, _EIGHT_DIGITS),
    _Rule(SensitiveKind.PHONE, _TRUNK_PHONE, _EIGHT_DIGITS, _has_digits_of_a_phone),
    _Rule(SensitiveKind.IP_ADDRESS, _IPV4, _DOTTED, _is_global),
    _Rule(SensitiveKind.IP_ADDRESS, _IPV6, _COLONS, _is_global),
    _Rule(SensitiveKind.HOME_PATH, _UNIX_HOME, _HOMES, _is_somebodys_home),
    _Rule(SensitiveKind.HOME_PATH, _WINDOWS_HOME, _HOMES, _is_somebodys_home),
)


Row = TypeVar("Row", ExtractedRecord, TrainingPair)

_TEXTS: Final = ("text", "prompt", "response", "context", "name", "tests")
_DRAWN: Final = frozenset((SensitiveKind.CARD_NUMBER, SensitiveKind.PHONE, SensitiveKind.IP_ADDRESS))
"""Kinds that random inputs of hidden tests resemble by chance."""


@dataclass(frozen=True, slots=True)
class RedactedRow(Generic[Row]):
    """A row after redaction, None if it is dropped, and the number of secrets of each kind."""

    row: Row | None
    counts: Counter[SensitiveKind]

    @property
    def detail(self) -> str:
        """Format the counts for a person: `2 email, 1 phone`."""
        return ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))


def redact_row(row: Row, policy: RedactionPolicy) -> RedactedRow[Row]:
    """Mask or drop a row that contains a secret or names a person, according to the policy.

    A program is masked only if its syntax tree stays the same except for literals and comments, and is dropped
    otherwise: a number that becomes a name would be another program. An infill row is always dropped.
    """
    counts: Counter[SensitiveKind] = Counter()
    changes: dict[str, Any] = {}
    if policy is RedactionPolicy.OFF:
        return RedactedRow(row, counts)
    if isinstance(row, TrainingPair) and row.infill is not None:
        # An address cut at a cursor is recognised only as a whole, and cannot be masked in pieces.
        found = Counter(redact(f"{row.prompt}{row.response}{row.infill.suffix}").counts)
        return RedactedRow(None if found else row, found)
    for name in _TEXTS:
        # A context may be a comment without its mark.
        mark = "// " if name == "context" else ""
        redacted = redact(f"{mark}{getattr(row, name, None) or ''}")
        if redacted.counts and (name != "tests" or not _DRAWN.issuperset(redacted.counts)):
            counts.update(redacted.counts)
            changes[name] = redacted.text.removeprefix(mark)
    if isinstance(row, ExtractedRecord) and row.metadata != (cleaned := _without_secrets(row.metadata, counts)):
        changes["metadata"] = cleaned
    if not changes:
        return RedactedRow(row, counts)
    if "text" in changes:
        changes["text_sha256"] = hashlib.sha256(changes["text"].encode()).hexdigest()
    masked = row.model_copy(update=changes)
    is_too_long = any(len(str(changes.get(name, ""))) > MAX_TEXT for name in _TEXTS)
    stays = policy is RedactionPolicy.MASK and not is_too_long and _find_structure(row) == _find_structure(masked)
    return RedactedRow(masked if stays else None, counts)


def _without_secrets(metadata: Mapping[str, JsonValue], counts: Counter[SensitiveKind]) -> dict[str, JsonValue]:
    """Mask the sensitive values of a header, each read as a comment, so that `author: ...` counts as one."""
    cleaned: dict[str, JsonValue] = {}
    for key, value in metadata.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        found = redact(f"// {key}: {text}").counts
        counts.update(found)
        cleaned[key] = "REDACTED" if found else value
    return cleaned


def _find_structure(row: ExtractedRecord | TrainingPair) -> str | None:
    code = parsed_code(row)
    module = analyze(*code).module if code is not None else None
    return structure_of(module).digest if module is not None else None
