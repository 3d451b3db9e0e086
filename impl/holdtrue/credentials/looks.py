"""What a literal secret looks like, and what only looks like one: placeholders, code, words, paths.

Every judgement looks at the first 128 characters at most: a secret shows itself in them, and text made to cost time does
not get more.
"""

from __future__ import annotations

import re

SAMPLE = 128

_LETTER = re.compile(r"[^\W\d_]")
_DIGIT = re.compile(r"\d")
# The signs of a password that words and technical names do not have.
_SIGN = re.compile(r"[^\w\s./:,'()-]")
_CAPITAL_WITHIN = re.compile("[a-z](?=[A-Z])")
_SPLIT = re.compile(r"[-_./:+,()]+")

_PLACEHOLDER = re.compile(
    r"\[masked|[<{\[(]|\$(?:[A-Za-z_]\w*$|[({])|%[A-Za-z_(][\w()]*%?s?$|(?:%[sdrif][:@/, -]?)+$|:[a-z_]+$|\?+$"
    r"|@[A-Za-z_]+$|![A-Za-z/:]+$|[xX*•·._#?=…0-]+$"
)
_REDACTED = re.compile(r"\*{3}|•{2}|\.{3}|…|[xX]{6}|\[masked")
_PLACE_WORD = re.compile(
    r"(?:^|[-_. ])(?:your?|example|placeholder|change[-_]?me|dummy|redacted|replace|insert|here|sample|todo|fake)"
    r"(?:$|[-_. ])"
    r"|^(?:changeme|replaceme|your[a-z]*|my[-_](?:token|key|secret|password|api[-_]key))$",
    re.IGNORECASE,
)


def is_placeholder(value: str) -> bool:
    """Whether a value only marks the place of a secret: `<your token>`, `$TOKEN`, `{{ token }}`, `xxxx`, `sk-...`."""
    value = value[:SAMPLE]
    if not value or _PLACEHOLDER.match(value) or _REDACTED.search(value):
        return True
    return _DIGIT.search(value) is None and _PLACE_WORD.search(value) is not None


_EXPRESSION = re.compile(r"[A-Za-z_$][\w$]*+(?:(?:\.|::|->|\?\.)[A-Za-z_$][\w$]*+)*+")
_JOINT = re.compile(r"\.|::|->|\?\.")
_IDENTIFIER = re.compile(r"(?:[A-Za-z]{1,24}[0-9]{0,4})(?:_+[A-Za-z0-9]{0,24})*+$|[A-Z_0-9]+$|_+\w*$")


def is_code(text: str, position: int, value: str) -> bool:
    """Whether a word without quotes is code that fetches a secret: `process.env.X`, `getpass()`, `os.environ[...]`."""
    found = _EXPRESSION.match(text, position, position + SAMPLE)
    if found is None:
        return False
    end = found.end()
    called = text[end : end + 1] in ("(", "[")
    if text[end : end + 1] == ")" and end < position + len(value):
        called = _DIGIT.search(found[0]) is None  # the last argument of a call, and what is done with its result
    segments = _JOINT.split(found[0])
    if not called and (len(segments) == 1 or len(found[0]) < len(value)):
        return False
    return all(_IDENTIFIER.match(segment) for segment in segments)


_TECHNICAL = re.compile(
    r"[a-z]+|[0-9]{1,6}[a-z]{0,12}|v[0-9]+[a-z]{0,3}|(?:[a-z]{1,3}|http|ipv|oauth|base|crc|blake|rfc|iso|pkcs|log|web|win)"
    r"[0-9]{1,5}[a-z]{0,6}|(?:bcrypt|scrypt|argon|pbkdf|secp|chacha|poly)[0-9a-z]{0,8}|sha[0-9]+with[a-z]+|1password",
    re.IGNORECASE,
)
_TECHNICAL_ALONE = re.compile(
    r"[a-z]+|[0-9]{1,6}[a-z]{0,12}|(?:sha|md|base|utf|aes|rsa|hs|rs|es|ps|http|ipv|oauth|pkcs|rfc|k|s|ec|v|x)[0-9]{1,5}[a-z]?"
    r"|(?:bcrypt|scrypt|argon|pbkdf|secp|chacha|poly)[0-9a-z]{0,8}|sha[0-9]+with[a-z]+|1password|k[0-9]s",
    re.IGNORECASE,
)
_IN_WORDS = re.compile(r"[a-z]+[0-9]{0,3}", re.IGNORECASE)


def is_wordy(value: str) -> bool:
    """Whether a value is made of words, numbers and technical names: `base64-encoded`, `us-east-1`, `POL-358`."""
    parts = [part for part in _SPLIT.split(value) if part]
    if len(parts) == 1:
        return _TECHNICAL_ALONE.fullmatch(parts[0]) is not None and not is_long_run(parts[0])
    return all(
        len(part) <= 24 and (_TECHNICAL.fullmatch(part) or _IN_WORDS.fullmatch(part)) and not _has_odd_case(part)
        for part in parts
    )


def is_knotted(value: str) -> bool:
    """Whether something that `is_wordy` would still do for a password: `hunter2-Zz9x`, `correct-Horse7`, `Winter-2026`.

    One of its parts mixes letters and digits as no technical name does, or a capitalised word stands beside a number.
    """
    parts = [part for part in _SPLIT.split(value) if part]
    if len(value) < 6 or len(parts) < 2:
        return False
    if any(_LETTER.search(part) and _DIGIT.search(part) and not _TECHNICAL_ALONE.fullmatch(part) for part in parts):
        return True
    titled = any(len(part) >= 3 and part[0].isupper() and part[1:].islower() for part in parts)
    return titled and any(part.isdigit() for part in parts)


def _has_odd_case(part: str) -> bool:
    """Whether capitals stand within a word more often than in `CamelCase`."""
    return len(part) >= 8 and 5 * len(_CAPITAL_WITHIN.findall(part)) >= len(part)


def is_long_run(value: str) -> bool:
    """Whether letters and digits form a run that no word is: letters of one case, 24 and more; or with odd capitals."""
    if len(value) < 16 or not value.isalnum():
        return False
    if len(value) >= 24 and (value.islower() or value.isupper()):
        return True
    return 6 * len(_CAPITAL_WITHIN.findall(value)) >= len(value)


def is_random(value: str) -> bool:
    """For names that often mean something else: letters and digits, long enough, and not made of words."""
    if is_long_run(value):
        return True
    if len(value) < 8 or not _DIGIT.search(value) or not _LETTER.search(value) or is_wordy(value) or is_mail(value):
        return False
    return len(value) >= 16 or classes(value) >= 3


def is_mixed(value: str) -> bool:
    """Letters mixed with digits or signs, and not made of words: what people take for a password."""
    if len(value) < 6 or not _LETTER.search(value) or is_mail(value):
        return False
    if is_wordy(value):
        return is_long_run(value)
    if _DIGIT.search(value):
        return True
    inner = value.strip("!.,;:=")
    return len(inner) >= 6 and _SIGN.search(inner[1:]) is not None and inner[0] not in "=-&|"


def classes(value: str) -> int:
    """How many of these it has: small letters, capitals, digits, signs."""
    upper, lower = value.upper(), value.lower()
    return (value != upper) + (value != lower) + (_DIGIT.search(value) is not None) + has_sign(value)


def has_sign(value: str) -> bool:
    return _SIGN.search(value) is not None


def has_digit(value: str) -> bool:
    return _DIGIT.search(value) is not None


_MAIL = re.compile(r"[\w.+-]{1,64}+@[\w-]+\.[\w.-]+$")


def is_mail(value: str) -> bool:
    return "@" in value and _MAIL.match(value) is not None


_FROM_A_FOLDER = re.compile(r"[A-Za-z]:[\\/]|~/|\.{1,2}/")


def is_path(value: str) -> bool:
    """`/run/secrets/db`, `~/.ssh/key`, `C:\\keys`: where a secret is, not what it is."""
    if _FROM_A_FOLDER.match(value):
        return True
    return value.startswith("/") and all(_IDENTIFIER.match(part) or is_wordy(part) for part in value.split("/") if part)
