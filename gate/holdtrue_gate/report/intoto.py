"""An unsigned in-toto Statement about a release, predicate test-result: for cosign to sign and policy engines to read.

Formats: Statement v1 and DigestSet (https://github.com/in-toto/attestation/tree/main/spec/v1), test-result v0.1
(https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md). The bytes are the same for the same
release: no time, no machine, no path of this one is in them.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from holdtrue_gate import decision
from holdtrue_gate.release import WARN, Release

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
REPORT_NAME = "gate-release.json"


def result(release: Release) -> str:
    """PASSED, WARNED or FAILED. The format has no word for a doubt, and a doubt is no pass: FAILED."""
    if release.result != decision.PASS:
        return "FAILED"
    return "WARNED" if any(reason.outcome == WARN for reason in release.reasons) else "PASSED"


def statement(release: Release, report: bytes, url: str | None = None) -> dict[str, Any]:
    """The statement. `report` is the JSON report as it is written to a file; `url` names the run, if it has one."""
    subject: list[dict[str, Any]] = [{"name": release.project or "_", "digest": {"gitCommit": release.commit}}]
    if release.wheel is not None:
        subject.append({"name": release.wheel.file, "digest": {"sha256": release.wheel.sha256}})
    configuration: list[dict[str, Any]] = [
        {
            "name": REPORT_NAME,
            "digest": {"sha256": hashlib.sha256(report).hexdigest()},
            "mediaType": "application/json",
        }
    ]
    configuration += [
        {"name": evidence.name, "digest": {"sha256": evidence.sha256}}
        for evidence in (release.settings, release.sabotage_report)
        if evidence is not None
    ]
    outcomes = {check: release.outcome_of(check) for check in release.checks}
    predicate: dict[str, Any] = {
        "result": result(release),
        "configuration": configuration,
        "passedTests": [check for check, outcome in outcomes.items() if outcome == decision.PASS],
        "warnedTests": [check for check, outcome in outcomes.items() if outcome == WARN],
        "failedTests": [check for check, outcome in outcomes.items() if outcome not in (decision.PASS, WARN)],
    }
    if url:
        predicate["url"] = url
    return {"_type": STATEMENT_TYPE, "subject": subject, "predicateType": PREDICATE_TYPE, "predicate": predicate}


def render(release: Release, report: bytes, url: str | None = None) -> bytes:
    """The statement as a file: UTF-8, sorted keys, a newline at the end."""
    text = json.dumps(statement(release, report, url), ensure_ascii=False, indent=2, sort_keys=True)
    return (text + "\n").encode("utf-8", "backslashreplace")
