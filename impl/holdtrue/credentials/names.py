"""Values that a name before them calls secret: `password=`, `"api_key": `, `export X_TOKEN=`, `the password is`.

How sure a value must look depends on the name and on what joins the two. `"client_secret": "..."` is one in nearly any
case. `token: ` is as often followed by prose or code, and `the password is ` even more so; there the value itself has to
look like a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from holdtrue.credentials import looks
from holdtrue.credentials.found import NAME, Credential
from holdtrue.credentials.looks import SAMPLE

# All patterns of names are matched against text in lower case.
_WORD = (
    r"(?:pass(?:word|wd|phrase|code|wort|e)?|pwd|secret(?:[_ -]?(?:access[_ -]?)?key)?|token|key"
    r"|contraseña|密码|密碼|口令|パスワード|비밀번호|пароль)"
    r"(?:[_-]?(?:value|val|string|str|text|production|prod|development|dev|test|live|staging|stage|base64|b64|base|old"
    r"|new|current|[0-9]{1,3}))?"
)
_CLOSE = r"(?:(?P<quote>\\?[\"'`”’])\]?)?[*`]{0,2}"
# What may follow where prose is as likely: a quote, a word with a digit or a sign, or a word too long to be one.
_PLAUSIBLE = r"(?=[\"'`“‘*]|[a-z_.,:;/()\[\]<>|-]{0,64}+[^\sa-z_.,:;/()\[\]<>|-]|[a-z]{16})"
_TYPE = r"(?:[a-z_][\w.\[\],]{0,30}+(?:\s?\|\s?)?){1,3}+\s?=(?=\s{0,4}[\"'])"
_ABOUT = r"(?:\s{0,2}\([^()\n]{1,32}+\)|\s{1,4}(?:for|of|to|on|in|at|from|used)(?:\s[^\s.:;=|]{1,24}+){1,5}?)?"
_IS = (
    r"(?:is|was|are|will be|should be|has been|set to|changed to|reset to|became|equals|ist|est|es|lautet)"
    r"(?:\s(?:now|still|just|currently|actually|called|set to|changed to|reset to))?\s{0,4}[:=]?\s{1,4}"
)
_SIGN = rf"\s{{0,4}}(?>:\s{{0,4}}{_TYPE}|:=|=>|->|→|!==?|={{1,3}}|[:：](?:\*{{1,3}}(?=\s))?)"
_RELATION = (
    rf"(?P<joined>{_SIGN}(?=\S))|(?P<assigned>{_SIGN}\s{{1,4}}{_PLAUSIBLE})"
    r"|(?P<element>>\s{0,4}(?=[^\s<]))|(?P<call>\(\s{0,4}(?=[\"']))|(?P<listed>\s{0,4},\s{0,4}(?=[\"']))"
    rf"|(?P<cell>\s{{0,12}}\|\s{{0,12}}{_PLAUSIBLE})"
    rf"|{_ABOUT}(?:\s{{1,4}}(?P<said>{_IS}{_PLAUSIBLE})|(?P<noted>\s{{0,4}}[:=]\s{{1,4}}{_PLAUSIBLE}))"
    rf"|(?P<copula>\s{{0,4}}(?:是|为|為|は|는|은)\s{{0,4}}[:：]?\s{{0,4}}{_PLAUSIBLE})"
    rf"|(?P<beside>\s{{1,4}}{_PLAUSIBLE})"
)
_NAME = re.compile(f"(?P<word>{_WORD}){_CLOSE}(?:{_RELATION})")
_ONLY_NAME = re.compile(_WORD)

# The words before `key`, `token` and `secret` that leave no doubt.
_KEY_OF = (
    "api", "access", "secret", "private", "encryption", "signing", "account", "auth", "master", "service", "storage",
    "shared", "license", "webhook", "client", "consumer", "oauth", "deploy", "admin", "github", "gitlab", "openai",
    "anthropic", "stripe", "aws", "registry", "subscription",
)  # fmt: skip
_TOKEN_OF = (
    *_KEY_OF,
    "refresh", "bearer", "id", "session", "bot", "personal", "app", "jwt", "user", "x", "npm", "pypi", "slack", "hf",
    "function",
)  # fmt: skip
# Words of a tokenizer, of a limit, of paging.
_OTHER_TOKENS = (
    "eos", "bos", "pad", "unk", "sep", "cls", "mask", "special", "stop", "image", "max", "per", "next", "page",
)  # fmt: skip
_SIGNS = ("pass", "pwd", "token", "key", "secret")
_KINDS_OF_PASSWORD = ("pass", "pwd", "contraseña", "密", "口令", "パス", "비밀", "пароль")


class _Name(NamedTuple):
    """A name as it is used: `strong` when it leaves no doubt, `constant` when written as `API_KEY` is, `leads` when
    nothing but blanks and such words as `export` stand before it on its line.
    """

    written: str
    label: str
    strong: bool
    password: bool
    constant: bool
    leads: bool


def are_mentioned(lowered: str) -> bool:
    return any(sign in lowered for sign in _SIGNS) or (
        not lowered.isascii() and any(sign in lowered for sign in _KINDS_OF_PASSWORD)
    )


def find(text: str, lowered: str) -> Iterator[Credential]:
    done = 0
    for found in _NAME.finditer(lowered):
        if found.start() < done:
            continue
        relation = found.lastgroup or ""
        name = _name(text, lowered, found["word"], found.start(), relation)
        if name is None or (relation == "listed" and found["quote"] is None):
            continue
        if relation == "beside" and _FLAG.search(lowered, max(0, found.start() - 40), found.start()):
            relation = "flag"
        span = _element(text, found.end(), name) if relation == "element" else _value(text, found.end(), name, relation)
        if span is not None:
            done = span[1]
            yield Credential(*span, NAME, name.label)


def label_of(name: str, value: str) -> str | None:
    """The label of a value that stands under a name, as in a JSON object; None when it is no secret."""
    lowered = name.lower()
    words = list(_ONLY_NAME.finditer(lowered))
    if not words or words[-1].end() != len(lowered) or len(lowered) != len(name):
        return None
    found = words[-1]  # the last word tells what it is: `token_secret`
    known = _name(name, lowered, found[0], found.start(), "joined")
    return known.label if known is not None and _is_quoted_secret(value, known, "joined") else None


_IDENTIFIER = re.compile(r"[\w.-]*$")
_LEADING = re.compile(r"(?:^|\n)[ \t]*(?:export |set |env |- |[\"'])?[ \t]*[\w.-]*$")
_FLAG = re.compile(r"(?:^|\s)--?[\w-]*$")
_ELEMENT_OPENS = re.compile(r"<[\w.:-]*$")


def _name(text: str, lowered: str, word: str, start: int, relation: str) -> _Name | None:
    """What a word means where it stands; None when it names no secret there."""
    low = max(0, start - 48)
    before = lowered[low:start]
    stem = before.rstrip("_- .")
    joined = stem != before or before[-1:].isalpha()
    if relation == "element" and _ELEMENT_OPENS.search(before) is None:
        return None
    if word.startswith("key"):
        strong, label, password = joined and stem.endswith(_KEY_OF), "api-key", False
        if stem.endswith("public") or not (strong or (text.startswith("KEY", start) and before.endswith("_"))):
            return None
    elif word.startswith("token"):
        strong, label, password = joined and stem.endswith(_TOKEN_OF), "token", False
        if joined and stem.endswith(_OTHER_TOKENS):
            return None
    elif word.startswith("secret"):
        strong, label, password = "key" in word or (joined and stem.endswith(_TOKEN_OF)), "secret", False
    else:
        strong, label, password = True, "password", word not in ("pass", "passe")
        if not password and (before[-1:].isalpha() or relation not in ("joined", "assigned")):
            return None  # bypass, compass; and the verb
    written = _IDENTIFIER.search(text, low, start + len(word))
    identifier = "" if written is None else written[0]
    constant = identifier.isupper() and ("_" in identifier or relation == "joined")
    leads = _LEADING.search(text, low, start) is not None and (low == 0 or "\n" in before)
    return _Name(identifier.lower(), label, strong, password, constant, leads)


# -- values ------------------------------------------------------------------------------------------------------------

_INSIDE = {
    '"': re.compile(r"[^\"\\\n]{0,2048}+(?:\\.[^\"\\\n]{0,2048}+){0,256}+"),
    "'": re.compile(r"[^'\\\n]{0,2048}+(?:\\.[^'\\\n]{0,2048}+){0,256}+"),
    "`": re.compile(r"[^`\\\n]{0,2048}+(?:\\.[^`\\\n]{0,2048}+){0,256}+"),
    "“": re.compile(r"[^”\n]{0,2048}+"),
    "‘": re.compile(r"[^’\n]{0,2048}+"),
}
_CLOSING = {"“": "”", "‘": "’"}
_BEFORE_LITERAL = re.compile(r"[bBrRuUfF]{1,2}(?=[\"'])|\*{1,3}(?=\S)|(?:\\{1,8}[nrt\"'])+")
_CONTENT = re.compile(r"[^<\n]{1,512}+(?=</)")
_RUN = re.compile(r"\S{1,512}+")
_BARE = re.compile(r"(?:[^\s\"'`<>|]|[\"'](?=[A-Za-z0-9])){1,512}+")
_CUT = re.compile(r";|&(?=[\w.-]{1,64}+=)|,(?=$|[\"'{\[]|[\w.-]{1,64}+\s?[=:])")
_CUT_BLANK = re.compile(r",(?=$|[\"'{\[])")
_TRAILING = ".,;:)]}>\"'`”’*?\\"


def _element(text: str, position: int, name: _Name) -> tuple[int, int] | None:
    """`<password>...</password>`."""
    inside = _CONTENT.match(text, position)
    return inside.span() if inside is not None and _is_quoted_secret(inside[0], name, "joined") else None


def _value(text: str, position: int, name: _Name, relation: str) -> tuple[int, int] | None:
    """The span of the secret that begins here, if one does."""
    prefix = _BEFORE_LITERAL.match(text, position)
    if prefix is not None:
        position = prefix.end()
    quote = text[position : position + 1]
    if quote in _INSIDE:
        if text.startswith(quote * 3, position):
            position += 2
        inside = _INSIDE[quote].match(text, position + 1)
        if inside is not None and text.startswith(_CLOSING.get(quote, quote), inside.end()):
            template = prefix is not None and "f" in prefix[0].lower() and "{" in inside[0][:SAMPLE]
            return inside.span() if not template and _is_quoted_secret(inside[0], name, relation) else None
        position += 1  # cut off before the closing quote
    assigned = relation in ("joined", "assigned")
    run = (_BARE if assigned or relation == "cell" else _RUN).match(text, position)
    if run is None:
        return None
    value = run[0]
    if assigned and (cut := (_CUT if relation == "joined" else _CUT_BLANK).search(value)) is not None:
        value = value[: cut.start()]
    whole = len(value) == 512
    value = value.rstrip(_TRAILING)
    if not value or looks.is_code(text, position, value) or not _is_bare_secret(text, position, value, name, relation):
        return None
    end = position + len(value)
    while whole and (run := _RUN.match(text, end)) is not None:
        end = run.end()
    return position, end


_STATES = frozenset(
    """
    required optional none null nil undefined true false yes no on off wrong right incorrect correct invalid valid expired
    missing empty blank unset set string str text hidden redacted masked removed changed unchanged unknown encrypted hashed
    stored rotated revoked disabled enabled forgotten reset same todo tbd see ask bytes any object number integer int char
    varchar boolean bool basic bearer type name field input default prompt file env secretstr refresh access password
    passwd secret token key apikey api_key needed necessary given here there prohibited denied failed accepted
    """.split()  # noqa: SIM905 - a paragraph reads better than eighty quoted words
)
_TELLS_NOTHING = frozenset(("password", "passwd", "pass", "pwd", "passphrase", "newpassword", "oldpassword"))
_SPOKEN = frozenset(("is", "are", "be", "must", "should", "the", "your", "a", "an", "not", "for", "to", "or", "of"))
_OTHER_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$")
_IN_QUERY = re.compile(r"[?&;][\w.-]{1,64}=$")


def _is_quoted_secret(value: str, name: _Name, relation: str) -> bool:
    """In quotes it is a literal, so under a name that leaves no doubt nearly anything is a secret."""
    value = value.strip()[:SAMPLE]
    if len(value) < 4 or looks.is_placeholder(value) or looks.is_path(value) or "://" in value:
        return False
    if " " in value:
        return _is_phrase(value.split(), name, relation)
    if not name.strong:
        return looks.is_random(value)
    if relation not in ("joined", "assigned", "said", "copula"):
        return looks.is_mixed(value)
    lowered = value.lower()
    if lowered in _STATES or lowered.replace("-", "_") == name.written.replace("-", "_"):
        return False
    if name.password:
        return re.sub("[_-]", "", lowered) not in _TELLS_NOTHING
    if value.isalpha():
        return len(value) >= 12
    return looks.has_digit(value) or not looks.is_wordy(value)


def _is_phrase(words: list[str], name: _Name, relation: str) -> bool:
    """Whether words in quotes are a passphrase, or hold a password: `"correct horse battery staple"`."""
    small = all(word.isalpha() and word.islower() for word in words)
    if small and len(words) >= 3 and name.password and relation in ("joined", "assigned", "said"):
        return not _SPOKEN.intersection(words)
    if len(words) > 8:
        return False
    judge = looks.is_mixed if name.strong else looks.is_random
    return any(judge(word.strip(_TRAILING)) for word in words)


def _is_bare_secret(text: str, position: int, value: str, name: _Name, relation: str) -> bool:
    """Without quotes it may also be prose or code, so it has to look like a secret or be a line of settings."""
    shown = value[:SAMPLE]
    if looks.is_placeholder(shown) or looks.is_path(shown) or "://" in shown:
        return False
    if relation == "beside":
        return name.password and looks.is_mixed(shown) and looks.classes(shown) >= 3 and looks.has_sign(shown)
    if (looks.is_mixed if name.strong else looks.is_random)(shown):
        return True
    if name.password and looks.is_knotted(shown):
        return True
    if relation == "joined" and text[position - 1] == "=" and len(shown) >= 10 and looks.is_mixed(shown):
        return True
    if name.password and shown.isdigit():
        return relation in ("joined", "assigned", "flag") and len(shown) >= 6
    if relation != "joined" or len(value) < 4 or not (name.strong or name.constant):
        return False
    lowered = shown.lower()
    if lowered in _STATES or lowered == name.written or _OTHER_VARIABLE.match(shown):
        return False
    if name.constant:
        return name.strong or name.label == "token"
    ends = text[position + len(value) : position + len(value) + 1] in ("", "\n", "\r", "&", ";")
    if not ends or text[position - 1] != "=" or not (name.password or len(value) >= 12):
        return False
    return name.leads or _IN_QUERY.search(text, max(0, position - 66), position) is not None
