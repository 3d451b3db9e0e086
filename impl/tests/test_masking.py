"""Secrets out of what is stored and told: every form that must go, every look-alike that must stay, and what it costs.

All values are put together here, so that no text of this file looks like a key to anybody who searches it for one.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import logging
import subprocess
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdtrue
from holdtrue import Memory, logs
from holdtrue.cli import run
from holdtrue.errors import HoldTrueError, InvalidInput, NotFound, TextTooLong
from holdtrue.masking import mask, mask_values
from holdtrue.records import TEXT_LIMIT, Filters, NewMemory, check_id, check_metadata, check_text, text_digest

RunPython = Callable[..., "subprocess.CompletedProcess[str]"]

HEX = "0123456789abcdef"
PASSWORD = "Tr0ub" + "4dor&3xyz"
SHORT = "hunt" + "er2x"
GITHUB = "ghp" + "_" + "a1B2" * 9
GITHUB_JWT = "ghs" + "_" + "a" * 30 + "." + "b" * 60 + "." + "c" * 40
ANTHROPIC = "sk-ant" + "-api03-" + "Zz9_" * 20
AWS_ID = "AKIA" + "ABCDEFGHIJKLMNOP"
AWS_SECRET = "wJalr" + "XUtnFEMI/K7MDENG/bPxRfiCY" + "SAMPLEKEYS"
JWT = ".".join(("eyJ" + "hbGciOiJIUzI1NiJ9", "eyJ" + "zdWIiOiIxIn0", "s1Gn4tur3_x-Y"))
HEAD, TAIL = "-----BEGIN " + "PRIVATE KEY-----", "-----END " + "PRIVATE KEY-----"
KEY_LINES = ("MIIEvQIBADANBgkq" + "x7Qb" * 12, "Zz09" * 16, "AbCdEf12==")
PEM = "\n".join((HEAD, *KEY_LINES, TAIL))
PAIR = base64.b64encode(f"svc:{SHORT}".encode()).decode()

# -- what must go --------------------------------------------------------------------------------------------------------

TOKENS = {
    "aws-access-key": [AWS_ID, "ASIA" + "0123456789ABCDEF"],
    "github-token": [GITHUB, "github" + "_pat_" + "x" * 40, GITHUB_JWT, *("gh" + k + "_" + "a" * 36 for k in "ousr")],
    "gitlab-token": ["glpat" + "-" + "a_B-1" * 4, "glrt" + "-" + "a1" * 10],
    "slack-token": ["xoxb" + "-" + "1" * 12 + "-" + "a" * 24, "xoxp" + "-" + "1" * 12, "xapp" + "-1-A0-1-" + "a" * 20],
    "anthropic-key": [ANTHROPIC],
    "openai-key": ["sk" + "-" + "a1" * 24, "sk-proj" + "-" + "a1_b-" * 20],
    "stripe-key": [f"{kind}_{mode}_" + "b" * 24 for kind in ("sk", "rk") for mode in ("live", "test")],
    "google-key": ["AIza" + "a" * 35, "AQ.Ab" + "c1" * 20],
    "npm-token": ["npm" + "_" + "a1" * 18],
    "pypi-token": ["pypi" + "-AgEIcHlwaS5vcmc" + "a1B2" * 20],
    "huggingface-token": ["hf" + "_" + "a" * 34],
    "sendgrid-key": ["SG" + "." + "a" * 22 + "." + "b" * 43],
    "twilio-key": ["SK" + "0a" * 16],
    "digitalocean-token": ["dop" + "_v1_" + "0a" * 32],
    "jwt": [JWT],
    "telegram-token": [":AA" + "b" * 33],
    "databricks-token": ["dapi" + HEX * 2],
    "vault-token": ["hvs" + "." + "a1" * 20],
    "private-key": [PEM, PEM.replace("\n", "\\n"), PEM.replace("\n", "\r\n"), PEM.replace("PRIVATE", "RSA PRIVATE")],
}


@pytest.mark.parametrize(("label", "token"), [(label, token) for label in TOKENS for token in TOKENS[label]])
@pytest.mark.parametrize(
    "around", ["{}", "use {} for it", "({})", '"{}"', "x={}\ny=2", "密钥{}。", "/srv/{}/x", "{}, then go", "<{}>"]
)
def test_a_token_of_a_published_format_is_replaced_wherever_it_stands(label: str, token: str, around: str) -> None:
    if label == "telegram-token":
        around = around.replace("{}", "123456789{}")
    if label == "private-key" and around == "x={}\ny=2":
        around = "x={}\n\ny=2"
    shown = mask(around.replace("{}", token))
    assert shown in (
        around.replace("{}", f"[masked: {label}]"),
        around.replace("{}", f":[masked: {label}]"),  # the number of a bot and its colon stay
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        # The lines of the reports that this is made from.
        (AWS_ID, "[masked: aws-access-key]"),
        ("postgres://svc:hunt" + "er2%21@db.local:5432/app", "postgres://svc:[masked: password]@db.local:5432/app"),
        ("Authorization: Bearer " + JWT, "Authorization: Bearer [masked: token]"),
        ("export STRIPE_KEY=sk" + "_live_" + "b" * 24, "export STRIPE_KEY=[masked: stripe-key]"),
        (f"password is {PASSWORD}", "password is [masked: password]"),
        # Addresses.
        (f"redis://:{SHORT}@cache:6379/0", "redis://:[masked: password]@cache:6379/0"),
        ("amqp://u:12345678@mq/", "amqp://u:[masked: password]@mq/"),
        (f"see https://u:{SHORT}@h.org/a@b now", "see https://u:[masked: password]@h.org/a@b now"),
        ("postgres://svc:hun/t" + "er2@db/app", "postgres://svc:[masked: password]@db/app"),
        ("postgres://svc:p@ss/w" + "0rd@db/app", "postgres://svc:[masked: password]@db/app"),
        (f"mongodb+srv://u:{SHORT}@a.net,b.net/x", "mongodb+srv://u:[masked: password]@a.net,b.net/x"),
        # Headers.
        (f"Authorization: Basic {PAIR}", "Authorization: Basic [masked: password]"),
        (f"Proxy-Authorization: Basic {PAIR}", "Proxy-Authorization: Basic [masked: password]"),
        (f"Basic {PAIR}", "Basic [masked: password]"),
        ('curl -H "Authorization: Bearer abc123def" x', 'curl -H "Authorization: Bearer [masked: token]" x'),
        ("Bearer " + "abc123DEF456" * 2, "Bearer [masked: token]"),
        (f"curl --user admin:{SHORT} localhost/x", "curl --user admin:[masked: password] localhost/x"),
        ("X-Api-Key: " + HEX, "X-Api-Key: [masked: api-key]"),
        (f"curl -u admin:{SHORT} https://x.org", "curl -u admin:[masked: password] https://x.org"),
        # Assignments.
        ("password=hunt" + "er2", "password=[masked: password]"),
        (f"passwd: {SHORT}", "passwd: [masked: password]"),
        ("api_key = 'abcd1234efgh'", "api_key = '[masked: api-key]'"),
        ('{"client_secret": "q8Zt-abc-91"}', '{"client_secret": "[masked: secret]"}'),
        ("export X_TOKEN=abcdef12", "export X_TOKEN=[masked: token]"),
        ("export X_TOKEN=abcdefgh", "export X_TOKEN=[masked: token]"),
        ("export DB_PASSWORD=swordfish", "export DB_PASSWORD=[masked: password]"),
        ("password=swordfish", "password=[masked: password]"),
        ("connect(password='swordfish', db=3)", "connect(password='[masked: password]', db=3)"),
        (f'password: str = "{SHORT}"', 'password: str = "[masked: password]"'),
        (f'os.environ["DB_PASSWORD"] = "{SHORT}"', 'os.environ["DB_PASSWORD"] = "[masked: password]"'),
        (f'define("DB_PASSWORD", "{SHORT}");', 'define("DB_PASSWORD", "[masked: password]");'),
        (f'password := "{SHORT}"', 'password := "[masked: password]"'),
        (f"<password>{SHORT}</password>", "<password>[masked: password]</password>"),
        (f"| password | {PASSWORD} |", "| password | [masked: password] |"),
        (f"**Password:** `{PASSWORD}`", "**Password:** `[masked: password]`"),
        (f"Server=db;Password={SHORT};Encrypt=true", "Server=db;Password=[masked: password];Encrypt=true"),
        ("https://x.org/in?user=a&password=swordfish&n=/", "https://x.org/in?user=a&password=[masked: password]&n=/"),
        (f"mysql --password {SHORT} -h db", "mysql --password [masked: password] -h db"),
        (f"aws_secret_access_key = {AWS_SECRET}", "aws_secret_access_key = [masked: secret]"),
        (f'"SecretAccessKey": "{AWS_SECRET}"', '"SecretAccessKey": "[masked: secret]"'),
        (f"{AWS_ID},{AWS_SECRET}", "[masked: aws-access-key],[masked: aws-secret-key]"),
        ('PASSWORD="correct horse battery staple"', 'PASSWORD="[masked: password]"'),
        (f'password="{SHORT} and then it was cut', 'password="[masked: password] and then it was cut'),
        # Sentences.
        (f"the password is {PASSWORD}.", "the password is [masked: password]."),
        (
            f"The password for the staging db is {PASSWORD}, ok",
            "The password for the staging db is [masked: password], ok",
        ),
        (f"the login password was changed to {PASSWORD}", "the login password was changed to [masked: password]"),
        (f"use password {PASSWORD} to log in", "use password [masked: password] to log in"),
        ("my token is " + HEX, "my token is [masked: token]"),
        (f"Username: bob\nPassword:\n{PASSWORD}\n", "Username: bob\nPassword:\n[masked: password]\n"),
        (f"das Passwort ist {PASSWORD}", "das Passwort ist [masked: password]"),
        (f"密码是 {PASSWORD}", "密码是 [masked: password]"),
        # Hooks.
        (
            "https://hooks.slack.com/services/" + "T00000000/B00000000/" + "X" * 24,
            "https://hooks.slack.com/services/[masked: slack-webhook]",
        ),
        # Keys that were cut off.
        ("\n".join((HEAD, *KEY_LINES)), "[masked: private-key]"),
        ("\n".join((HEAD, *KEY_LINES, "That was the key.")), "[masked: private-key]\nThat was the key."),
        (" ".join((HEAD, *KEY_LINES[:2])), "[masked: private-key]"),
        ("\n".join((*KEY_LINES, TAIL, "End.")), "[masked: private-key]\nEnd."),
        (HEAD + "\\n" + "\\n".join(KEY_LINES), "[masked: private-key]"),
    ],
)
def test_a_secret_goes_and_what_is_around_it_stays(text: str, shown: str) -> None:
    assert mask(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("token:\\n" + GITHUB, "token:\\n[masked: github-token]"),
        ("\\n" + AWS_ID, "\\n[masked: aws-access-key]"),
        ("\\u0067hp_" + "a1B2" * 9, "[masked: github-token]"),
        ("\\u0067\\u0068\\u0070\\u005f" + "a1B2" * 9 + "\\n", "[masked: github-token]\\n"),
        ("".join(f"\\u{ord(letter):04x}" for letter in GITHUB), "[masked: github-token]"),
        ("\\\\u0067hp_" + "a1B2" * 9, "[masked: github-token]"),
        ("postgres:\\/\\/svc:hun\\/t" + "er2@db\\/app", "postgres:\\/\\/svc:[masked: password]@db\\/app"),
        (json.dumps(json.dumps({"password": SHORT})), '"{\\"password\\": \\"[masked: password]\\"}"'),
        (json.dumps({"password": 'ab"c' + "d1e2"}), '{"password": "[masked: password]"}'),
        ("ghp_a1B2\u200b" + "a1B2" * 8, "[masked: github-token]"),
        ("A\u212aIA" + "ABCDEFGHIJKLMNOP", "[masked: aws-access-key]"),  # NFC would make the Kelvin sign a K
        ("\u0130 " + GITHUB, "\u0130 [masked: github-token]"),  # whose lower case is longer
    ],
)
def test_a_secret_that_is_split_by_an_escape_goes_as_well(text: str, shown: str) -> None:
    assert mask(text) == shown


# -- what must stay ------------------------------------------------------------------------------------------------------

LOOK_ALIKES = [
    "risk-based rollout", "task-12345678901234567890", "commit d0c54df3a1b2c3d4e5f60718293a4b5c6d7e8f90",
    "apiKey: import.meta.env.VITE_KEY", 'api_key=os.environ["X"]', "no API key in this build",
    "0192f1c3-7b1a-7c4e-9d3f-1a2b3c4d5e6f", "sha256:" + HEX * 4, '"integrity": "sha512-' + "aB3/" * 21 + '=="', "sk-learn",
    "sk-learn-contrib-extra-trees-classifier",
    # Placeholders.
    "token: <your token>", "token=$TOKEN", "password=${TOKEN}", "api_key: {{ token }}", "password: xxxx", "password=****",
    "token = process.env.X", "password = getpass()", "password=getpass.getpass('Password: ')", "password=", "token=''",
    "Authorization: Bearer <token>", "Authorization: Bearer $TOKEN", "Authorization: Bearer YOUR_API_KEY",
    "postgres://svc:${PGPASSWORD}@db/app", "postgres://svc:<password>@db/app", "postgres://%s:%s@%s/app",
    "api_key: sk-...abcd", "secret: ${{ secrets.NPM_TOKEN }}", '"api_key": "YOUR_API_KEY"', "--token <TOKEN>",
    # Addresses without a password.
    "https://user@host/", "git@host:repo", "git clone git@github.com:org/repo.git", "mailto:x@y.org",
    "ssh://git@github.com:22/org/repo@v1", "http://localhost:3000/@vite/client", "https://example.com:8080/a@b",
    # Prose.
    "the password is required", "password is wrong", "The token is expired", "password is case-sensitive",
    "the token is base64-encoded", "the password is SHA-256 hashed", "the secret is in 1Password", "the token is OAuth2",
    "password is at least 12 characters long", "the API key is stored in 1Password", "Secret: lunch is on Friday",
    "Password: required", "password: bitwarden", "the password reset link is valid for 24h", "token count: 12345",
    "Bearer authentication is required", "Basic authentication", "authorization: required for all endpoints",
    "compass: north12345", "bypass: x1y2z3x1", "tests pass: 412", "pass max_rounds=12345 to it", "the passport is P1234567",
    "secret santa is on 2024-12-24", "Token bucket limits are at 100/s", "email is a.b+c@x.org and password is unknown",
    f"The file starts with {HEAD} and must stay out of git", "the session token is rotated every 15min",
    # Code.
    "connect(password=password)", "connect(password=pw, host=h)", "api_key=api_key", "password=None",
    "token = request.headers['x']", "secret=settings.SECRET", "password: str = Field(...)", "password: string;",
    "let token = generateToken();", "password=self.password", "whoami(token=token)[\"name\"]", "max_tokens=4096",
    "eos_token: 50256", '"pad_token": "<pad>"', "PRIMARY_KEY=id", "primary_key=True", "sort_keys=True", "key: value",
    "CACHE_KEY=v1:users", "password_file: /run/secrets/db1", "PWD=/root/project1", "token VARCHAR(64) UNIQUE,",
    "if password == '': raise", '{"password": {"type": "string"}}', 'placeholder="Enter your password"',
    "type Props = { token?: string; password: string }", "PasswordHasher(rounds=12)", "C:\\new\\temp\\keys",
    "public_key=ssh-ed25519", "arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod/db-AbCdEf",
]  # fmt: skip


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert mask(text) is text
    assert mask(f"Note: {text}\nand so on") == f"Note: {text}\nand so on"


def test_a_text_without_a_secret_is_the_very_same_text_and_loads_no_rules(run_python: RunPython) -> None:
    program = (
        "import sys\nfrom holdtrue.masking import mask\ntext = 'Maya reviews each of the 12 risk-based migrations.'\n"
    )
    program += "print(mask(text) is text, 'holdtrue.credentials' in sys.modules)"
    assert run_python(program).stdout == "True False\n"


# -- what it costs -------------------------------------------------------------------------------------------------------

HOSTILE = [
    "a", "password is ", "-----BEGIN ", HEAD, HEAD + "\n", "ab12\n" + TAIL, "eyJ", "-eyJ", "eyJaaaaaaaaaaaa.", "password=",
    "password= ", 'password="', "password='", "token: ", "://a:", "://", "x://a:b/", "@/", "\\", "\\n", "\\\\n", "\\u0041",
    "ghp_", "sk-", "sk-ant-", "AKIA", "SG.", "password for a b c ", "bearer ", "Basic QUFB", "authorization:", "curl -u a:",
    "'", "<password>", "\u200b", "pass\u200bword", "password          ", "password is\n", "secret=/a/", "token=a1-", "|",
    "token|", "key ", "api_key=", ":AA", "hooks.slack.com/", "[masked: password]", 'token: f"{', "password: a", "pass(",
    f"password={SHORT} ", GITHUB + " ", "x://a:b1@c ", '{\\"password\\": \\"a1b2c3d4\\"} ', "a.b.", "密码是",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_no_repetition_makes_it_slow_and_what_it_returns_it_returns_again(piece: str) -> None:
    text = (piece * (TEXT_LIMIT // len(piece) + 1))[:TEXT_LIMIT]
    before = time.process_time()
    shown = mask(text)
    took_s = time.process_time() - before
    assert took_s < 1.5  # a rule that is not linear takes minutes
    assert mask(shown) == shown
    assert len(shown) <= 3 * len(text)


def test_ordinary_text_costs_microseconds() -> None:
    text = "We decided on Tuesday that billing keeps its own database, and that Maya reviews every migration before it goes"
    text += " out; the rollout is risk-based and begins with the smallest customers first."
    took_s = min(timeit.repeat(lambda: mask(text), number=500, repeat=7, timer=time.process_time)) / 500
    assert took_s < 50e-6  # about 2 µs on an idle machine


FRAGMENTS = [*LOOK_ALIKES, *(token for tokens in TOKENS.values() for token in tokens), SHORT, PASSWORD, PAIR]
FRAGMENTS += [
    "password",
    "token",
    "secret",
    "api_key",
    "Authorization",
    "Bearer ",
    "=",
    ": ",
    " is ",
    "'",
    '"',
    "\\",
    "\\n",
]
FRAGMENTS += [
    "://",
    "@",
    ":",
    "[masked: token]",
    "[masked: ",
    "]",
    HEAD,
    TAIL,
    "\n",
    " ",
    "<",
    ">",
    "|",
    ",",
    ";",
    "\u200b",
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=5)), max_size=8))
def test_what_was_masked_is_masked_no_further(parts: list[str]) -> None:
    for glue in ("", " "):
        shown = mask(glue.join(parts))
        assert mask(shown) == shown


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([GITHUB, ANTHROPIC, PEM, AWS_ID]), st.text(max_size=30), st.text(max_size=30))
def test_no_text_around_a_token_hides_it(token: str, before: str, after: str) -> None:
    assert token not in mask(f"{before} {token} {after}")


# -- values within values ------------------------------------------------------------------------------------------------


def test_names_and_values_are_masked_at_every_depth_and_a_name_speaks_for_its_value() -> None:
    given_values = {
        "note": [f"it is {GITHUB}", {"deep": ({GITHUB: 1},)}],
        "password": SHORT,
        "api_keys": ["public"],
        "db": {"clientSecret": "abcd-1234-efgh", "port": 5432, "password": 48291375, "token": "page"},
        "empty": {"password": "", "token": None, "secret": True},
        3: "three",
    }
    assert mask_values(given_values) == {
        "note": ["it is [masked: github-token]", {"deep": ({"[masked: github-token]": 1},)}],
        "password": "[masked: password]",
        "api_keys": ["public"],
        "db": {"clientSecret": "[masked: secret]", "port": 5432, "password": "[masked: password]", "token": "page"},
        "empty": {"password": "", "token": None, "secret": True},
        3: "three",
    }


def test_two_names_that_become_one_keep_both_their_values() -> None:
    other = "ghp" + "_" + "c3D4" * 9
    assert mask_values({GITHUB: 1, other: 2}) == {"[masked: github-token]": 1, "[masked: github-token] 2": 2}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([GITHUB, PEM, f'a"{ANTHROPIC}\\', f"password is {PASSWORD}"]), st.text(max_size=10))
def test_metadata_stays_json_whatever_is_masked_in_it(secret: str, name: str) -> None:
    if "\0" in name:
        return
    stored = check_metadata({name: secret, "list": [secret, 1], secret: {"deep": secret}})
    for value in (GITHUB, ANTHROPIC, KEY_LINES[0], PASSWORD):
        assert value not in stored
    assert isinstance(json.loads(stored), dict)


# -- what is stored and looked for ---------------------------------------------------------------------------------------


def test_every_field_of_an_add_is_masked_and_its_identity_is_that_of_the_masked_text() -> None:
    memory = NewMemory.checked(
        f"the token is {GITHUB}",
        user=f"u {GITHUB}",
        project=f"/srv/{GITHUB}/app",
        session=f"s-{GITHUB}",
        speaker=f"{GITHUB}",
        tags=[f"tag-{GITHUB}", f"tag-{'ghp' + '_' + 'z9' * 18}", "plain"],
        metadata={"where": GITHUB, GITHUB: [GITHUB]},
        source=f"https://u:{SHORT}@h/x",
        key="k-1",
    )
    assert "a1B2" not in repr(memory)
    assert SHORT not in repr(memory)
    assert memory.text == "the token is [masked: github-token]"
    assert memory.project == "/srv/[masked: github-token]/app"
    assert memory.tags == ("plain", "tag-[masked: github-token]")
    assert memory.digest == text_digest("the token is [masked: github-token]")
    assert memory.masked
    assert not NewMemory.checked("the token is [masked: github-token]", metadata={"ticket": "POL-1"}).masked


def test_limits_count_what_was_given_and_not_what_is_stored() -> None:
    unit = "pwd=a1b2c3 "
    text = (unit * (TEXT_LIMIT // len(unit)))[:TEXT_LIMIT]
    assert len(check_text(text)) > TEXT_LIMIT
    with pytest.raises(TextTooLong):
        check_text(GITHUB + " " * TEXT_LIMIT)


def test_filters_are_masked_like_what_was_stored(memory: Memory) -> None:
    project = f"/srv/{GITHUB}/app"
    id_ = memory.add("the harbour is east of town", project=project, tags=[f"t-{GITHUB}"], session=ANTHROPIC).id
    assert Filters.checked(project=project).project == "/srv/[masked: github-token]/app"
    assert [hit.id for hit in memory.search("harbour", project=project, tags=[f"t-{GITHUB}"])] == [id_]
    assert [record.id for record in memory.list(project=project, session=ANTHROPIC)] == [id_]
    assert memory.add("the harbour is east of town", project=project).created is False


@pytest.mark.parametrize("key", [GITHUB, f"retry-{ANTHROPIC}", f"password={SHORT}"])
def test_a_key_that_holds_a_secret_is_refused_without_repeating_it(memory: Memory, key: str) -> None:
    with pytest.raises(InvalidInput, match="secret") as refusal:
        memory.add("a text", key=key)
    assert key not in str(refusal.value)
    assert not memory.exists()


def test_the_answer_shows_what_was_stored_and_says_that_something_was_masked(memory: Memory) -> None:
    stored = memory.add(f"deploy with {GITHUB}", metadata={"password": SHORT})
    assert (stored.text, stored.masked) == ("deploy with [masked: github-token]", True)
    assert stored.metadata == {"password": "[masked: password]"}
    again = memory.add(f"deploy with {'ghp' + '_' + 'q7' * 18}")
    assert (again.id, again.created, again.masked) == (stored.id, False, True)
    changed = memory.update(stored.id, f"deploy with {ANTHROPIC}")
    assert (changed.text, changed.masked) == ("deploy with [masked: anthropic-key]", True)
    assert memory.get(stored.id).masked is False
    assert [record.masked for record in memory.add_many(["plain", {"text": GITHUB}])] == [False, True]


# -- errors --------------------------------------------------------------------------------------------------------------


def test_an_error_masks_its_message_its_hint_and_its_details() -> None:
    error = NotFound(f"There is no memory {GITHUB!r}.", hint=f"Try {ANTHROPIC}.", id=GITHUB, near=[GITHUB], number=3)
    told = json.dumps(error.as_dict()) + str(error) + repr(error) + repr(error.args)
    assert GITHUB not in told
    assert ANTHROPIC not in told
    assert error.details == {"id": "[masked: github-token]", "near": ["[masked: github-token]"], "number": 3}
    assert "[masked: github-token]" in error.message


def test_an_unknown_id_or_a_bad_time_is_masked_before_it_is_cut() -> None:
    with pytest.raises(NotFound) as missing:
        check_id("x" * 60 + " " + GITHUB)
    with pytest.raises(InvalidInput) as late:
        NewMemory.checked("a text", at="on " + "x" * 60 + " " + GITHUB)
    for error in (missing.value, late.value):
        assert "ghp_" not in str(error)


def calls_that_fail(secret: str) -> list[list[str]]:
    return [
        ["get", secret],
        ["add", "x", "--at", secret],
        ["add", "x", "--key", secret],
        ["add", "x", "--metadata", f"{{'{secret}'"],
        ["search", "x", "--limit", secret],
        [secret],
        ["get", "a", secret],
        ["list", f"--{secret}"],
        ["update", secret, secret],
        ["forget", secret],
        ["list", "--since", f"on {secret}"],
    ]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("secret", [GITHUB, f"password={PASSWORD}", f"postgres://svc:{SHORT}@db/app"])
def test_no_failure_of_the_command_line_repeats_a_secret(
    store: Path, capfd: pytest.CaptureFixture[str], secret: str, as_json: bool
) -> None:
    with Memory(store) as memory:
        memory.open()
    for arguments in calls_that_fail(secret):
        code = run(["--store", str(store), *(["--json"] if as_json else []), *arguments])
        shown = "".join(capfd.readouterr())
        assert code in (1, 2), (arguments, shown)
        assert shown.strip()
        for value in (GITHUB, PASSWORD, SHORT):
            assert value not in shown


@pytest.mark.parametrize("debug", ["", "1"])
def test_an_unexpected_failure_shows_no_secret_with_or_without_its_traceback(
    store: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, debug: str
) -> None:
    def fail(*_arguments: Any, **_fields: Any) -> None:
        try:
            raise ValueError(f"inner {GITHUB}")
        except ValueError as error:
            raise RuntimeError(f"outer {GITHUB}") from error

    monkeypatch.setenv("HOLDTRUE_DEBUG", debug)
    monkeypatch.setattr(Memory, "add", fail)
    assert run(["--store", str(store), "add", "x"]) == 1
    shown = "".join(capfd.readouterr())
    assert "RuntimeError" in shown
    assert ("ValueError" in shown) is bool(debug)
    assert "a1B2" not in shown


# -- logs ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def logged() -> Any:
    """A clean logger and what a plain handler of it wrote."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    log = logs.logger("holdtrue.of_a_test")
    log.addHandler(handler)
    yield log, stream
    log.removeHandler(handler)


def test_a_record_is_masked_and_one_line_whatever_is_in_its_arguments(logged: Any) -> None:
    log, stream = logged
    log.warning("%s and %r", f"{GITHUB}\n2026-01-01 ERROR forged\r\x1b[31mred\x07\u2028", {"k": GITHUB})
    log.warning(f"told {GITHUB}")  # noqa: G004 - a message that was put together before
    log.warning("does not fit: %d %s", GITHUB)
    log.warning("not a format: 100%")
    lines = stream.getvalue().split("\n")
    assert len(lines) == 5
    assert lines[0].startswith("[masked: github-token]\\n2026-01-01 ERROR forged\\r\\x1b[31mred\\x07\\u2028 and {'k':")
    assert lines[3] == "not a format: 100%"
    assert "a1B2" not in stream.getvalue()


def test_a_traceback_keeps_its_lines_and_its_messages_get_none(logged: Any) -> None:
    log, stream = logged
    try:
        try:
            raise KeyError(f"in {GITHUB}\nTraceback: forged")
        except KeyError as inner:
            inner.add_note(f"note {GITHUB}\nforged")
            group = ExceptionGroup(f"many {GITHUB}", [ValueError(f"one {GITHUB}\nforged\x1b[2J"), OSError(GITHUB)])
            raise RuntimeError(f"out {GITHUB}") from group
    except RuntimeError:
        log.exception("It failed with %s", GITHUB)
    shown = stream.getvalue()
    assert "a1B2" not in shown
    assert "\x1b" not in shown
    assert "RuntimeError: out [masked: github-token]" in shown
    assert "ValueError: one [masked: github-token]\\nforged\\x1b[2J" in shown
    assert not [line for line in shown.splitlines() if line.startswith(("forged", "Traceback: forged"))]
    assert "test_masking.py" in shown


def test_a_record_is_clean_before_the_first_handler_sees_it(logged: Any) -> None:
    seen: list[logging.LogRecord] = []

    class Greedy(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)

    log, _ = logged
    greedy = Greedy()
    log.addHandler(greedy)
    try:
        raise ValueError(GITHUB)
    except ValueError:
        log.exception("with %s", GITHUB)
    finally:
        log.removeHandler(greedy)
    (record,) = seen
    assert "a1B2" not in repr(record.__dict__)


def test_every_module_takes_its_logger_from_where_records_are_made_clean() -> None:
    source = Path(holdtrue.__file__).parent
    makers, users = [], []
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                called = ast.unparse(node.value.func)
                if called == "logging.getLogger":
                    makers.append(path.name)
                elif called == "logs.logger":
                    users.append(path.name)
    assert makers == ["logs.py"]
    assert {"config.py", "slot.py", "writer.py"} <= set(users)


SERVER_LOG = """
import asyncio, logging, sys, threading
from holdtrue.mcp_server import log_to_stderr, logger
secret = sys.argv[1]
log_to_stderr()
logging.getLogger("somebody.elses").warning("Failed to validate request: %s", {"text": secret + "\\nforged"})
def fail():
    raise ValueError(secret + "\\nforged")
thread = threading.Thread(target=fail)
thread.start()
thread.join()
try:
    fail()
except ValueError:
    logger.exception("%s failed", secret)
"""


def test_a_servers_log_is_clean_whoever_writes_to_it(run_python: RunPython) -> None:
    done = run_python(SERVER_LOG, GITHUB)
    assert done.returncode == 0, done.stderr
    assert "a1B2" not in done.stderr
    assert done.stderr.count("[masked: github-token]") == 4
    assert not [line for line in done.stderr.splitlines() if line.startswith("forged")]


def test_no_deliberate_error_can_be_made_with_a_secret_in_it() -> None:
    def kinds(kind: type[HoldTrueError]) -> set[type[HoldTrueError]]:
        return {kind}.union(*(kinds(below) for below in kind.__subclasses__()))

    for kind in kinds(HoldTrueError):
        assert GITHUB not in str(kind(f"It was {GITHUB}."))
