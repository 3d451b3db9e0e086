"""Passwords in addresses: `scheme://user:password@host` (RFC 3986, section 3.2.1), and what people write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdtrue.credentials.found import ADDRESS, Credential
from holdtrue.credentials.looks import is_placeholder

_AUTHORITY = re.compile(r"://([^\s/?#@:\"'<>`]{0,256}+):(?=[^\s\"<>`@]{0,512}+@)")
_REACH = re.compile(r"[^\s\"<>`]{1,1024}+")
_HOST = re.compile(r"@(?=[A-Za-z0-9\[])")
_PORT = re.compile(r"[0-9]{1,5}[/?#),;\]]")
_OF_DATABASES = re.compile(r"(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?|mssql|ldaps?|s?ftps?)(?:\+\w+)?$")
_CURL_USER = re.compile(r"(?:\s-u\s{0,2}|--user[ =])[\"']?[^\s:\"']{1,128}+:([^\s\"']{1,256}+)")


def find(text: str) -> Iterator[Credential]:
    for found in _AUTHORITY.finditer(text):
        start = found.end()
        reach = _REACH.match(text, start)
        end = None if reach is None else _end_of_password(reach[0], text[max(0, found.start() - 16) : found.start()])
        if end and not is_placeholder(text[start : start + end]):
            yield Credential(start, start + end, ADDRESS, "password")
    if "curl" in text:
        for found in _CURL_USER.finditer(text):
            if not is_placeholder(found[1]) and not found[1].startswith("/"):
                yield Credential(*found.span(1), ADDRESS, "password")


def _end_of_password(reach: str, scheme: str) -> int | None:
    """Where the password ends in what follows the colon: at the last @ before a host."""
    hosts = [found.start() for found in _HOST.finditer(reach)]
    authority = re.search(r"[/?#]", reach)
    within = [at for at in hosts if authority is None or at < authority.start()]
    if within and not _OF_DATABASES.search(scheme):
        return within[-1]
    # An unescaped slash in a password is wrong and common. But the digits before a slash are a port, and an @ in a path
    # belongs to it.
    query = re.search(r"[?#]", reach)
    beyond = [at for at in hosts if query is None or at < query.start()]
    if beyond and not _PORT.match(reach):
        return beyond[-1]
    return within[-1] if within else None
