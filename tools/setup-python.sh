#!/usr/bin/env bash
# Makes .venv with exactly the packages of a lock file, hashes checked; a second run takes no time.
#   tools/setup-python.sh        what ctl.py needs (requirements.lock)
#   tools/setup-python.sh dev    and what the tests need (requirements-dev.lock)
# PYTHON=/path/to/python3.12 chooses the interpreter (3.10 to 3.13).
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'python   %s\n' "$*" >&2; }
die() { printf 'error: %s\n  why: %s\n  fix: %s\n' "$1" "$2" "$3" >&2; exit 3; }

lock=requirements.lock
[ "${1:-}" = dev ] && lock=requirements-dev.lock
stamp=.venv/flashbox-$lock.sha256

fits() { "$1" -c 'import sys; raise SystemExit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null; }
find_python() {
  local name
  for name in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.10; do
    if command -v "$name" >/dev/null && fits "$name"; then command -v "$name"; return 0; fi
    [ "$name" = "${PYTHON:-}" ] && die "$PYTHON cannot be used" "it is not Python 3.10 to 3.13" "set PYTHON to one that is, or leave it unset"
  done
  die "no Python 3.10 to 3.13 found" "looked for python3 and python3.10 to python3.13" "install one (Debian, Ubuntu: apt-get install python3 python3-venv)"
}

has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }
need_venv_module() {
  has_venv "$1" && return 0
  local package=python3-venv
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || die "$1 has no venv module" "Debian and Ubuntu keep it in a package of its own" "apt-get install $package"
  say "installing $package with apt-get (undo: apt-get remove $package)"
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$package"; } >/dev/null 2>&1 || true
  has_venv "$1" || die "$1 still has no venv module" "apt-get install $package did not help" "install the venv module that belongs to $1"
}

if [ -x .venv/bin/python ] && fits .venv/bin/python && [ "$(cat "$stamp" 2>/dev/null)" = "$(sha256sum <"$lock")" ]; then exit 0; fi

python=$(find_python)
need_venv_module "$python"
say "packages of $lock into .venv with $("$python" --version)"
[ -x .venv/bin/python ] && fits .venv/bin/python || { rm -rf .venv; "$python" -m venv .venv; }
.venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r "$lock" ||
  die "the packages of $lock could not be installed" "pip's words are above" "check the package index, PIP_INDEX_URL, HTTPS_PROXY and PIP_CERT"
sha256sum <"$lock" >"$stamp"
