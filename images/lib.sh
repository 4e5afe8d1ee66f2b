# shellcheck shell=bash
# lib.sh - what the scripts of this folder share; sourced after hack/env.sh.
REGISTRY=${REGISTRY:-127.0.0.1:5000}
# shellcheck disable=SC2034 # used by those who source this
SOURCE=https://github.com/pgsteward/pgsteward
RESULTS=$BIN/images.env # what deploy scripts and tests read
# shellcheck disable=SC2034
STORE=$CACHE/images # what was built, one folder each

# tools: mkimage and crane, into bin/
tools() { "$ROOT/hack/tools/build.sh" image; }

# add_packages PACKAGE...: Debian packages
add_packages() {
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq)
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then die "install $*, or run as root on Debian or Ubuntu"; fi
  say "installing $*"
  "${apt[@]}" install -y --no-install-recommends "$@" >/dev/null || {
    "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "$@" >/dev/null
  } || die "cannot install $*"
}

# need COMMAND PACKAGE...: installs the packages if the command is missing
need() { command -v "$1" >/dev/null || add_packages "${@:2}"; }

# short_hash: 12 hex digits of what comes in
short_hash() { sha256sum | cut -c1-12; }

# push_once REFERENCE TARBALL: pushes, unless the registry has it. A reference names its content (its tag holds a
# hash), so what is there is right. A registry that lost its manifests gets them again from the cached tarball.
push_once() {
  local ref=$1 tarball=$2 said
  if "$BIN/crane" digest "$ref" >/dev/null 2>&1; then return; fi
  say "pushing $ref"
  said=$(retry 3 "$BIN/crane" push "$tarball" "$ref" 2>&1) && return
  echo "$said" | tail -n 3 >&2
  die "cannot push to $REGISTRY: is the cluster up (make cluster), or is REGISTRY right?"
}

# record NAME=VALUE...: sets these lines in bin/images.env and leaves the others as they are
record() {
  local line
  mkdir -p "$BIN"
  (
    flock 9
    { [ ! -f "$RESULTS" ] || cat "$RESULTS"; for line; do printf '%s\n' "$line"; done; } |
      awk -F= '{line[$1] = $0} END {for (name in line) print line[name]}' | sort >"$RESULTS.partial"
    mv "$RESULTS.partial" "$RESULTS"
  ) 9>"$BIN/.images.lock"
}
