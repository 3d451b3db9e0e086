#!/usr/bin/env bash
# What CI runs for a release: a clean clone of the commit, an environment of its own, and the gate's answer about it.
#
#   ci/release.sh DIST [TAG]
#
# DIST receives the wheel, the report (gate-release.json) and the unsigned in-toto statement (gate-release.intoto.json), the
# report and the statement also when the gate says no. With TAG the clone gets an annotated tag, which is then written into
# this repository; it is not pushed. Who tags is git's to know (user.name, or GIT_COMMITTER_NAME and _EMAIL). GATE_RUN_URL,
# when it is set, goes into the statement; PYTHON names the interpreter. Exit codes are the gate's: 0 pass, 1 no, 2 usage
# or configuration, 3 cannot judge.
set -euo pipefail

if [ "$#" -lt 1 ] || [ "$#" -gt 2 ]; then
  echo "usage: ci/release.sh DIST [TAG]" >&2
  exit 2
fi
tag="${2:-}"
here="$(cd "$(dirname "$0")/.." && pwd)"
mkdir -p "$1"
dist="$(cd "$1" && pwd)"

if [ "$(git -C "$here" rev-parse --is-shallow-repository)" = true ]; then
  echo "ci/release.sh: this clone is shallow, and the proofs lie in the history: git fetch --unshallow" >&2
  exit 3
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# A clone and not this folder: nothing that is not committed can be part of a release. Tags come along, so that a tag that
# is taken is noticed.
commit="$(git -C "$here" rev-parse --verify 'HEAD^{commit}')"
git clone --quiet --no-local --no-checkout "$here" "$work/clone"
git -C "$work/clone" checkout --quiet --detach "$commit"
cd "$work/clone"

# The environment lies outside of the clone, so that the work tree stays what the commit says; the replays put their own
# trees first whatever is installed.
"${PYTHON:-python3}" -m venv "$work/venv"
python="$work/venv/bin/python"
"$python" -m pip install --quiet --disable-pip-version-check -c ci/constraints.txt -e '.[dev,models]' 'hatchling>=1.27,<2'

options=(--python "$python" --build "$dist" --attest "$dist/gate-release.intoto.json")
options+=(--report "json=$dist/gate-release.json")
if [ -n "$tag" ]; then
  options+=(--tag "$tag")
fi
if [ -n "${GATE_RUN_URL:-}" ]; then
  options+=(--url "$GATE_RUN_URL")
fi

status=0
"$work/venv/bin/gate" release "${options[@]}" || status=$?
if [ "$status" -eq 0 ] && [ -n "$tag" ]; then
  # Refused by git when this repository has the tag elsewhere; a tag is never moved.
  git -C "$here" fetch --quiet --no-tags "$work/clone" "refs/tags/$tag:refs/tags/$tag"
fi
exit "$status"
