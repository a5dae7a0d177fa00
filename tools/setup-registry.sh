#!/usr/bin/env bash
# Gives the tests a real container registry: Debian's package docker-registry, unpacked below .venv and not installed,
# so that no service is started, no user is made and nothing is left when the clone is deleted.
# The tests start it by hand on loopback. DOCKER=no refuses to fetch anything.
set -euo pipefail
cd "$(dirname "$0")/.."

PREFIX=.venv/opt/docker-registry
LOG=.venv/docker-registry.apt.log

say() { printf 'registry %s\n' "$*" >&2; }
die() { printf 'error: %s\n  why: %s\n  fix: %s\n' "$1" "$2" "$3" >&2; exit 3; }

works() { "$1" --version >/dev/null 2>&1; }
# The lists are often empty on a fresh machine; renewing them needs root.
fetch() {
  apt-get download -q docker-registry >>"$1" 2>&1 && return 0
  [ "$(id -u)" = 0 ] && apt-get update -q >>"$1" 2>&1 && apt-get download -q -o APT::Sandbox::User=root docker-registry >>"$1" 2>&1
}

command -v openssl >/dev/null || die "openssl is needed for the tests' certificates" "it is not installed" "apt-get install openssl"
if works "$PREFIX/usr/bin/docker-registry" || { command -v docker-registry >/dev/null && works docker-registry; }; then exit 0; fi
[ "${DOCKER:-}" = no ] && die "the tests of images need docker-registry" "DOCKER=no forbids fetching it" "apt-get install docker-registry, or run again without DOCKER=no"
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
  die "the tests of images need docker-registry" "this machine has no apt-get, so it cannot be fetched for you" "install docker-registry (a program of that name in PATH)"

mkdir -p "$PREFIX"
log=$PWD/$LOG
: >"$log"
say "unpacking Debian's docker-registry into $PREFIX (undo: rm -r $PREFIX)"
(cd "$PREFIX" && rm -f ./*.deb && fetch "$log") || { tail -n 5 "$log" >&2
  die "docker-registry could not be downloaded" "the lines above; whole log: $LOG" "check the package sources (as root: apt-get update), or install docker-registry yourself"; }
for deb in "$PREFIX"/*.deb; do dpkg-deb -x "$deb" "$PREFIX"; done
rm -f "$PREFIX"/*.deb
works "$PREFIX/usr/bin/docker-registry" || die "docker-registry does not run here" "$("$PREFIX/usr/bin/docker-registry" --version 2>&1 | tail -n 1)" "install one that does (a program of that name in PATH)"
