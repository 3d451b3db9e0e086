"""Tokens that are known by how they are written, as their vendors publish it.

Lengths are kept below the published ones, for they grow: GitHub asks integrators to expect up to 255 characters and, for
installation tokens, a JWT behind the prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdtrue.credentials.found import FORMAT, Credential

_N = "[A-Za-z0-9]"
_W = "[A-Za-z0-9_-]"
_OF_GITLAB = ("pat", "dt", "rt", "rtr", "cbt", "ptt", "ft", "imt", "agent", "oas", "soat", "ffct", "wt")

# Label; prefixes; the rest. In the rest a group marks the secret itself, where that is not all of it.
_LONG: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("github-token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), rf"{_W}{{20,}}+(?:\.{_W}{{8,}}+)*+"),
    ("github-token", ("github_pat_",), "[A-Za-z0-9_]{20,}+"),
    (
        "gitlab-token",
        ("GR1348941", *(f"gl{kind}-" for kind in _OF_GITLAB)),
        rf"{_W}{{16,}}+(?:\.{_N}{{2,}}+)*+",
    ),
    ("slack-token", tuple(f"xox{kind}-" for kind in "abceoprs"), f"{_W}{{10,}}+"),
    ("slack-token", ("xoxe.xoxp-", "xoxe.xoxb-", "xapp-", "xwfp-"), f"{_W}{{10,}}+"),
    ("slack-webhook", ("hooks.slack.com/",), "[a-z-]{4,12}/([A-Za-z0-9/_+-]{16,}+)"),
    ("discord-webhook", ("discord.com/api/webhooks/", "discordapp.com/api/webhooks/"), f"[0-9]{{5,24}}/({_W}{{20,}}+)"),
    ("teams-webhook", (".webhook.office.com/",), r"[a-z0-9]{4,16}/([^\s\"'<>]{20,}+)"),
    ("stripe-key", ("sk_live_", "sk_test_", "rk_live_", "rk_test_", "sk_org_"), f"{_W}{{10,}}+"),
    ("stripe-webhook-secret", ("whsec_",), "[A-Za-z0-9+/=]{20,}+"),
    ("npm-token", ("npm_",), f"{_N}{{30,}}+"),
    ("pypi-token", ("pypi-AgE",), f"{_W}{{16,}}+"),
    ("pypi-token", ("pypi-",), "[A-Za-z0-9_]{40,}+"),
    ("digitalocean-token", ("dop_v1_", "doo_v1_", "dor_v1_"), "[0-9a-f]{40,}+"),
    ("shopify-token", ("shpat_", "shpca_", "shppa_", "shpss_"), "[0-9A-Fa-f]{32,}+"),
    ("docker-token", ("dckr_pat_", "dckr_oat_"), f"{_W}{{20,}}+"),
    ("linear-key", ("lin_api_", "lin_oauth_"), f"{_N}{{30,}}+"),
    ("langsmith-key", ("lsv2_pt_", "lsv2_sk_"), "[0-9a-f_]{30,}+"),
    ("supabase-key", ("sb_secret_",), f"{_W}{{20,}}+"),
    ("planetscale-token", ("pscale_tkn_", "pscale_pw_", "pscale_oauth_"), "[A-Za-z0-9_.=-]{30,}+"),
    ("sentry-token", ("sntrys_", "sntryu_"), "[A-Za-z0-9_=+/-]{40,}+"),
    ("rubygems-key", ("rubygems_",), "[0-9a-f]{40,}+"),
    ("brevo-key", ("xkeysib-", "xsmtpsib-"), f"{_W}{{40,}}+"),
    ("circleci-token", ("CCIPAT_", "CCIPRJ_"), f"{_W}{{30,}}+"),
    ("age-key", ("AGE-SECRET-KEY-1",), "[0-9A-Z]{40,}+"),
    # The token of a bot is its number, a colon and this.
    ("telegram-token", (":AA",), f"(?<=[0-9]{{8}}:AA){_W}{{32,}}+"),
)

# Prefixes so short that a longer word may end with them: `risk-`, `task-`. A letter or digit before makes it that word.
_SHORT: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("aws-access-key", ("AKIA", "ASIA", "ABIA", "ACCA"), "[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("aws-bedrock-key", ("ABSK",), "[A-Za-z0-9+/=]{100,}+"),
    ("anthropic-key", ("sk-ant-",), f"{_W}{{16,}}+"),
    ("openrouter-key", ("sk-or-",), f"{_W}{{20,}}+"),
    ("langfuse-key", ("sk-lf-",), f"{_W}{{20,}}+"),
    ("openai-key", ("sk-proj-", "sk-svcacct-", "sk-admin-", "sk-service-", "sk-None-"), f"{_W}{{16,}}+"),
    ("openai-key", ("sk-",), f"{_N}{{20,}}+"),
    ("google-key", ("AIza",), f"{_W}{{30,}}+"),
    ("google-key", ("AQ.Ab",), f"{_W}{{20,}}+"),
    ("google-secret", ("GOCSPX-",), f"{_W}{{20,}}+"),
    ("google-token", ("ya29.",), rf"{_W}{{20,}}+(?:\.{_W}{{8,}}+)*+"),
    ("google-token", ("1//0",), f"{_W}{{28,}}+"),
    ("huggingface-token", ("hf_", "api_org_"), f"{_N}{{30,}}+"),
    ("sendgrid-key", ("SG.",), rf"{_W}{{16,}}+\.{_W}{{16,}}+"),
    ("twilio-key", ("SK",), "[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("databricks-token", ("dapi",), "[0-9a-f]{32}(?:-[0-9])?"),
    ("vault-token", ("hvs.", "hvb."), f"{_W}{{24,}}+"),
    ("doppler-token", ("dp.pt.", "dp.st.", "dp.ct.", "dp.sa."), rf"(?:{_W}{{2,35}}\.)?{_N}{{40,}}+"),
    ("atlassian-token", ("ATATT3", "ATCTT3"), "[A-Za-z0-9_=-]{60,}+"),
    ("notion-token", ("ntn_",), f"{_N}{{40,}}+"),
    ("notion-token", ("secret_",), f"{_N}{{43}}(?![A-Za-z0-9])"),
    ("figma-token", ("figd_",), f"{_W}{{30,}}+"),
    ("groq-key", ("gsk_",), f"{_N}{{40,}}+"),
    ("xai-key", ("xai-",), f"{_N}{{60,}}+"),
    ("perplexity-key", ("pplx-",), f"{_N}{{40,}}+"),
    ("replicate-token", ("r8_",), f"{_N}{{30,}}+"),
    ("tavily-key", ("tvly-",), f"{_W}{{20,}}+"),
    ("supabase-token", ("sbp_",), "[0-9a-f]{40,}+"),
    ("grafana-token", ("glsa_", "glc_"), "[A-Za-z0-9_=+/]{30,}+"),
    ("newrelic-key", ("NRAK-",), "[A-Z0-9]{24,}+"),
    ("postman-key", ("PMAK-",), "[0-9a-f]{24}-[0-9a-f]{32,}+"),
    ("posthog-key", ("phx_",), f"{_W}{{30,}}+"),
    ("heroku-key", ("HRKU-",), f"{_W}{{30,}}+"),
    ("square-token", ("sq0atp-", "sq0csp-"), f"{_W}{{20,}}+"),
    ("mailgun-key", ("key-",), "[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("buildkite-token", ("bkua_",), "[0-9a-f]{40}"),
    ("fly-token", ("fo1_", "fm2_"), "[A-Za-z0-9+/_=-]{40,}+"),
    ("facebook-token", ("EAA",), f"{_N}{{80,}}+"),
    ("1password-token", ("ops_eyJ",), "[A-Za-z0-9+/=_-]{40,}+"),
    # RFC 7515: header, payload, signature in base64url. The header is a JSON object, so it begins with `{"`.
    ("jwt", ("eyJ",), rf"{_W}{{13,1024}}+\.{_W}{{8,}}+(?:\.{_W}*+)*+"),
)

_LABELS = {prefix: label for label, prefixes, _ in (*_LONG, *_SHORT) for prefix in prefixes}
_LONGEST_FIRST = sorted(_LABELS, key=lambda prefix: -len(prefix))  # `sk-ant-` is no `sk-`


def _pattern() -> re.Pattern[str]:
    """One pattern for all: first by the first letter, so that a letter which begins no token costs next to nothing."""
    patterns = {prefix: re.escape(prefix) + rest for _, prefixes, rest in _LONG for prefix in prefixes}
    for _, prefixes, rest in _SHORT:
        for prefix in prefixes:
            literal = re.escape(prefix)
            patterns[prefix] = f"{literal}(?<!{_N}{literal}){rest}"
    by_letter: dict[str, list[str]] = {}
    for prefix in _LONGEST_FIRST:
        by_letter.setdefault(prefix[0], []).append(patterns[prefix].removeprefix(re.escape(prefix[0])))
    return re.compile("|".join(f"{re.escape(letter)}(?:{'|'.join(rest)})" for letter, rest in by_letter.items()))


_TOKEN = _pattern()
# Every token holds a run of 16 such letters, at most so far from its beginning, and consists of the wider set.
_RUN = re.compile(f"{_W}{{16,}}+")
_BEFORE_RUN = max(map(len, _LONGEST_FIRST)) + 26
_REACH = re.compile(r"[^\s\"'<>]*+")
_AWS_SECRET = re.compile(r"[^A-Za-z0-9/+=]{1,24}([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])")


def find(text: str) -> Iterator[Credential]:
    done = 0
    for run in _RUN.finditer(text):
        if run.start() < done:
            continue
        reach = _REACH.match(text, run.end())
        end = run.end() if reach is None else reach.end()
        for found in _TOKEN.finditer(text, max(done, run.start() - _BEFORE_RUN), end):
            yield from _found(text, found)
        done = end


def _found(text: str, found: re.Match[str]) -> Iterator[Credential]:
    token = found[0]
    label = next(_LABELS[prefix] for prefix in _LONGEST_FIRST if token.startswith(prefix))
    start, end = found.span(found.lastindex or 0)
    yield Credential(start + (label == "telegram-token"), end, FORMAT, label)
    if label == "aws-access-key":
        beside = _AWS_SECRET.match(text, end)
        if beside is not None and not beside[1].isalpha():
            yield Credential(*beside.span(1), FORMAT, "aws-secret-key")
