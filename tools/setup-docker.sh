#!/usr/bin/env bash
# Gives this machine a Docker Engine with Compose >= 2.24 and buildx, if it has none that answers.
# An engine that answers is left alone. Only the distribution's own package indexes are used.
#   tools/setup-docker.sh            install what is missing and start the engine
#   tools/setup-docker.sh --stop     stop the engine that this script started
#   tools/setup-docker.sh --undo     stop it and take away what this script unpacked
# DOCKER=no refuses to install or start anything.
set -euo pipefail

PREFIX=/opt/flashbox-docker            # packages of a newer suite are unpacked here, not installed
PLUGINS=/usr/local/lib/docker/cli-plugins
STATE=/var/lib/flashbox-docker         # what this script made: one path a line
PIDFILE=/run/flashbox-dockerd.pid
LOG=/var/log/flashbox-dockerd.log
MIN_COMPOSE=2.24

say() { printf 'docker   %s\n' "$*" >&2; }
die() { printf 'error: %s\n  why: %s\n  fix: %s\n' "$1" "$2" "$3" >&2; exit 3; }
daemon_error() { docker version --format '{{.Server.Version}}' 2>&1 >/dev/null | tail -n 1; }
daemon_answers() { command -v docker >/dev/null && timeout 20 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }
compose_version() { docker compose version --short 2>/dev/null | sed 's/^v//'; }
plugins_fit() {
  local have; have=$(compose_version) || return 1
  [ -n "$have" ] && at_least "$have" "$MIN_COMPOSE" && docker buildx version >/dev/null 2>&1
}

need_root() {
  [ "$(id -u)" = 0 ] || die "$1" "this needs root, and you are $(id -un)" "run it with sudo, or install Docker Engine, Compose >= $MIN_COMPOSE and buildx yourself"
}

# ---- packages -------------------------------------------------------------------------------------

candidate_of() { apt-cache policy "$1" 2>/dev/null | awk '/Candidate:/ {print $2}' | sed 's/^[0-9]*://; s/(none)//'; }

# The release's own packages are enough when its Compose is new enough (Debian 13, Ubuntu 22.04 and later).
own_compose_package() {
  local name version
  for name in docker-compose-v2 docker-compose; do
    version=$(candidate_of "$name")
    if [ -n "$version" ] && at_least "${version%%[-+]*}" "$MIN_COMPOSE" && [ -n "$(candidate_of docker-buildx)" ]; then
      echo "$name"; return 0
    fi
  done
  return 1
}

apt_quiet() { DEBIAN_FRONTEND=noninteractive apt-get -y -q --no-install-recommends "$@" >>"$LOG.apt" 2>&1 || {
  tail -n 5 "$LOG.apt" >&2; die "apt-get $1 failed" "the lines above; whole log: $LOG.apt" "mend the package sources, then run this again"; }; }

install_own() {
  local compose=$1 client=""
  [ -n "$(candidate_of docker-cli)" ] && client=docker-cli
  say "installing from this release: docker.io $client $compose docker-buildx (undo: apt-get remove those)"
  apt_quiet install docker.io $client "$compose" docker-buildx iptables
}

# apt with the lists of one other suite in a folder of its own: the machine's sources stay as they are.
apt_of_suite() {
  local suite=$1; shift
  local dir=$PREFIX/apt-$suite
  mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
  local mirror; mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep -m 1 '/debian/\?$') ||
    die "no Debian mirror in this machine's package sources" "a newer Docker comes from the same mirror as the release" "install Docker Engine, Compose >= $MIN_COMPOSE and buildx yourself"
  printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" "$suite" >"$dir/sources.list"
  "$@" -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$dir/lists" \
    -o Dir::Cache="$dir/cache" -o APT::Sandbox::User=root
}
apt_suite() { local suite=$1 tool=$2; shift 2; apt_of_suite "$suite" "$tool" "$@"; }

# The system's libc is never replaced, so a suite fits only if its packages are content with it.
libc_fits() {
  local suite=$1 have need; shift
  have=$(dpkg-query -W -f '${Version}' libc6)
  need=$(apt_suite "$suite" apt-cache show --no-all-versions "$@" | grep -o 'libc6 (>= [^)]*)' | sed 's/.*>= //; s/)//' | sort -V | tail -n 1)
  dpkg --compare-versions "$have" ge "${need:-0}"
}

install_unpacked() {
  local names=("$@") suite
  for suite in sid trixie; do
    if ! apt_suite "$suite" apt-get update -q >>"$LOG.apt" 2>&1; then
      say "the package list of $suite cannot be used: $(grep '^E:' "$LOG.apt" | tail -n 1)"
    elif libc_fits "$suite" "${names[@]}"; then
      break
    else
      say "packages of $suite ask for a newer libc6 than this machine has"
    fi
    suite=""
  done
  [ -n "$suite" ] || die "no Docker packages fit this machine" "neither sid nor trixie is content with libc6 $(dpkg-query -W -f '${Version}' libc6)" "install Docker Engine and Compose >= $MIN_COMPOSE yourself"
  say "unpacking from Debian $suite into $PREFIX: ${names[*]} (undo: tools/setup-docker.sh --undo)"
  (cd "$PREFIX" && rm -f ./*.deb && apt_suite "$suite" apt-get download -q "${names[@]}" >>"$LOG.apt" 2>&1) ||
    die "packages could not be downloaded" "see $LOG.apt" "check the network or the Debian mirror"
  for deb in "$PREFIX"/*.deb; do dpkg -x "$deb" "$PREFIX/root"; done
  rm -f "$PREFIX"/*.deb
}

link() { # link TARGET NAME, remembered for --undo; something that is there already stays
  [ -e "$2" ] && [ ! -L "$2" ] && return 0
  mkdir -p "$(dirname "$2")"
  ln -sfn "$1" "$2"
  grep -qxF "$2" "$STATE/made" 2>/dev/null || echo "$2" >>"$STATE/made"
}

link_plugins() {
  for plugin in compose buildx; do link "$PREFIX/root/usr/libexec/docker/cli-plugins/docker-$plugin" "$PLUGINS/docker-$plugin"; done
}

link_engine() {
  for binary in dockerd docker-proxy; do link "$PREFIX/root/usr/sbin/$binary" "/usr/local/bin/$binary"; done
  link "$(command -v tini-static)" /usr/local/bin/docker-init
  command -v docker >/dev/null || link "$PREFIX/root/usr/bin/docker" /usr/local/bin/docker
}

install_engine() {
  command -v apt-get >/dev/null || die "no Docker engine answers" "this machine has no apt-get, so nothing can be installed for you" "install Docker Engine, Compose >= $MIN_COMPOSE and buildx"
  mkdir -p "$STATE" "$PREFIX"
  say "no engine answers ($(daemon_error)); installing one takes a minute"
  apt_quiet update
  local compose
  if compose=$(own_compose_package); then install_own "$compose"; return; fi
  say "this release's Compose is too old; from this release: containerd runc iptables tini"
  apt_quiet install containerd runc iptables tini ca-certificates
  install_unpacked docker.io docker-cli docker-compose docker-buildx
  link_engine
  link_plugins
}

# ---- the daemon -----------------------------------------------------------------------------------

start_engine() {
  if [ -d /run/systemd/system ] && systemctl cat docker.service >/dev/null 2>&1; then
    say "starting docker.service"; systemctl start docker.service
  else
    # A pid file that outlived a killed daemon keeps a new one from starting once another process has its number.
    [ "$(cat "/proc/$(cat "$PIDFILE" 2>/dev/null)/comm" 2>/dev/null)" = dockerd ] || rm -f "$PIDFILE"
    say "starting dockerd by hand, since no init system does it (log: $LOG; stop: tools/setup-docker.sh --stop)"
    setsid nohup dockerd --pidfile "$PIDFILE" >>"$LOG" 2>&1 </dev/null &
  fi
  for _ in $(seq 1 120); do daemon_answers && return 0; sleep 0.5; done
  tail -n 8 "$LOG" >&2 || true
  die "the Docker engine did not answer within 60 s" "the lines above; whole log: $LOG" "mend what they name, then run this again"
}

# A zombie that nobody reaps has ended.
runs() { grep -q '^State:[[:space:]]*[^Z]' "/proc/$1/status" 2>/dev/null; }

stop_engine() {
  [ -s "$PIDFILE" ] || { say "no engine that this script started is running"; return 0; }
  local pid; pid=$(cat "$PIDFILE")
  kill "$pid" 2>/dev/null || true
  for _ in $(seq 1 120); do runs "$pid" || { rm -f "$PIDFILE"; say "stopped"; return 0; }; sleep 0.5; done
  die "dockerd ($pid) did not stop within 60 s" "a container may be slow to stop" "look at $LOG, then try again"
}

undo() {
  need_root "cannot take Docker away"
  stop_engine
  if [ -f "$STATE/made" ]; then while IFS= read -r path; do [ -L "$path" ] && rm -f "$path"; done <"$STATE/made"; fi
  rm -rf "$PREFIX" "$STATE"
  say "taken away; packages installed with apt-get and /var/lib/docker (images, volumes) are left for you to remove"
}

# The base image is made with debootstrap, since no container registry is needed for it.
need_debootstrap() {
  command -v debootstrap >/dev/null || [ -x /usr/sbin/debootstrap ] && return 0
  [ "${DOCKER:-}" = no ] && die "debootstrap is needed to build the base image" "DOCKER=no forbids installing it" "apt-get install debootstrap"
  need_root "debootstrap is needed to build the base image"
  say "installing debootstrap (undo: apt-get remove debootstrap)"
  apt_quiet update; apt_quiet install debootstrap
}

main() {
  need_engine "$@"
  case "${1:-}" in "") need_debootstrap ;; esac
}

need_engine() {
  case "${1:-}" in
    --stop) need_root "cannot stop the engine"; stop_engine; return ;;
    --undo) undo; return ;;
    "") ;;
    *) die "unknown option $1" "this script knows --stop and --undo" "run it without options" ;;
  esac
  if daemon_answers; then
    plugins_fit && { say "engine $(docker version --format '{{.Server.Version}}') answers, Compose $(compose_version): left alone"; return 0; }
    [ "${DOCKER:-}" = no ] && die "Compose >= $MIN_COMPOSE and buildx are needed" "found Compose '$(compose_version || true)'" "install the plugins docker-compose and docker-buildx"
    need_root "cannot install the Compose and buildx plugins"
    mkdir -p "$STATE" "$PREFIX"; apt_quiet update; install_unpacked docker-compose docker-buildx; link_plugins
    plugins_fit || die "the Compose plugin is still too old" "another one stands before $PLUGINS" "remove the old docker-compose plugin"
    return 0
  fi
  case "$(daemon_error)" in *"permission denied"*)
    die "the Docker daemon does not let $(id -un) in" "no permission on its socket" "add yourself to group docker (then log in again), or use sudo" ;; esac
  [ "${DOCKER:-}" = no ] && die "no Docker engine answers" "DOCKER=no forbids installing or starting one" "start an engine, or run again without DOCKER=no"
  need_root "no Docker engine answers"
  command -v dockerd >/dev/null && command -v docker >/dev/null && plugins_fit || install_engine
  start_engine
  plugins_fit || die "Compose >= $MIN_COMPOSE and buildx are needed" "found Compose '$(compose_version || true)'" "install the plugins docker-compose and docker-buildx"
  say "engine $(docker version --format '{{.Server.Version}}') answers, Compose $(compose_version)"
}
main "$@"
