"""The code quality report of GitLab: a JSON array of issues, each with the five fields that a merge request shows."""

from __future__ import annotations

import json
from typing import Any

from holdtrue_gate.report import remarks
from holdtrue_gate.report.document import Data
from holdtrue_gate.report.remarks import Level, Remark

# info, minor, major, critical, blocker
SEVERITIES = {Level.NOTE: "info", Level.WARNING: "minor", Level.DOUBT: "major", Level.BLOCKS: "blocker"}
# An issue without a path is dropped by GitLab; the commit as a whole has none.
NO_FILE = "."


def _issue(remark: Remark) -> dict[str, Any]:
    return {
        "description": remark.message,
        "check_name": f"gate/{remark.rule.id}",
        "fingerprint": remark.fingerprint,
        "severity": SEVERITIES[remark.level],
        "location": {"path": remark.file or NO_FILE, "lines": {"begin": max(remark.line or 1, 1)}},
    }


def render(document: Data) -> str:
    """A document as an array of issues, worst first."""
    issues = [_issue(remark) for remark in remarks.worst_first(remarks.of(document))]
    return json.dumps(issues, indent=2, sort_keys=True)
