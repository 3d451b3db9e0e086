"""The SARIF report (OASIS SARIF 2.1.0): a rule a verdict or problem, a result for each thing to tell beside the proofs.

`partialFingerprints` are made of the rule and the node id, or of the hunk's own bytes, never of a line: an edit above does
not make an old alert a new one. GitHub compares `primaryLocationLineHash`.
"""

from __future__ import annotations

import json
from importlib import metadata
from typing import Any
from urllib.parse import quote

from holdtrue_gate.report import remarks, rules
from holdtrue_gate.report.document import Data
from holdtrue_gate.report.remarks import Level, Remark
from holdtrue_gate.report.rules import Rule

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {Level.NOTE: "note", Level.WARNING: "warning", Level.DOUBT: "warning", Level.BLOCKS: "error"}
# Code scanning refuses a result without a location; a commit that cannot be judged has none in the tree.
NO_FILE = "no-file"


def _version() -> str:
    try:
        return metadata.version("holdtrue")
    except metadata.PackageNotFoundError:
        return "0"


def _catalogue(found: list[Remark]) -> list[Rule]:
    known = [*rules.VERDICTS.values(), *rules.PROBLEMS.values(), rules.UNPINNED, rules.INSEPARABLE, rules.GATE]
    more = {remark.rule.id: remark.rule for remark in found if remark.rule not in known}
    return [*known, *(more[id_] for id_ in sorted(more))]


def _descriptor(rule: Rule) -> dict[str, Any]:
    text = f"{rule.means} {rule.advice}".strip()
    return {
        "id": rule.id,
        "name": "".join(part.capitalize() for part in rule.id.replace("/", "-").split("-")),
        "shortDescription": {"text": f"{rule.title}."},
        "fullDescription": {"text": rule.means},
        "help": {"text": text, "markdown": text},
        "properties": {"tags": ["test", "release-gate"]},
    }


def _location(remark: Remark) -> dict[str, Any]:
    physical: dict[str, Any] = {
        "artifactLocation": {
            # A colon in the first part would be read as a scheme.
            "uri": quote(remark.file.encode("utf-8", "surrogatepass"), safe="/") if remark.file else NO_FILE,
            "uriBaseId": "%SRCROOT%",
        },
        "region": {"startLine": max(remark.line or 1, 1)},
    }
    if remark.last_line is not None and remark.line is not None and remark.last_line > remark.line >= 1:
        physical["region"]["endLine"] = remark.last_line
    return {"physicalLocation": physical}


def _result(remark: Remark, index: int) -> dict[str, Any]:
    return {
        "ruleId": remark.rule.id,
        "ruleIndex": index,
        "level": LEVELS[remark.level],
        "message": {"text": remark.message},
        "locations": [_location(remark)],
        "partialFingerprints": {
            "holdtrueGate/v1": remark.fingerprint,
            "primaryLocationLineHash": f"{remark.fingerprint}:1",
        },
        "properties": {"commit": remark.sha},
    }


def render(document: Data) -> str:
    """A document as a SARIF log with one run, results worst first."""
    found = remarks.worst_first(remarks.of(document))
    catalogue = _catalogue(found)
    index = {rule.id: number for number, rule in enumerate(catalogue)}
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "holdtrue gate",
                        "version": _version(),
                        "rules": [_descriptor(rule) for rule in catalogue],
                    }
                },
                "automationDetails": {"id": "holdtrue-gate/"},
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {"%SRCROOT%": {"description": {"text": "The root of the repository."}}},
                "invocations": [{"executionSuccessful": document["result"] != "cannot-judge"}],
                "results": [_result(remark, index[remark.rule.id]) for remark in found],
            }
        ],
    }
    return json.dumps(log, indent=2, sort_keys=True)
