# lib.sh - what the scripts of this folder share about releases; sourced after hack/env.sh, in the root of the tree.
# shellcheck shell=bash
# shellcheck disable=SC2034 # used by those who source this
CHANNELS_FILE=config/catalog/channels.yaml
PINS=config/manifests/images.env
IMAGE_BASE=${IMAGE_BASE:-ghcr.io/pgsteward}
MAJORS=(15 16 17 18)
KEPT=$CACHE/releases # the images of releases made on this machine, by their digest
TO=${TO:-}           # the registry that is published to

# sort_versions: oldest first, each once; a pre-release comes before its release, as in SemVer
sort_versions() { sed 's/-/~/' | sort -uV | sed 's/~/-/'; }

# channels: their names, as they stand in the file
channels() { sed -n 's/^\([a-z].*\): \[.*/\1/p' "$CHANNELS_FILE"; }

# versions CHANNEL: the releases in it, one a line, oldest first
versions() { sed -n "s/^$1: \[\(.*\)\]\$/\1/p" "$CHANNELS_FILE" | tr -d ' ' | tr ',' '\n'; }

# enter VERSION CHANNEL: puts it into the channel, which begins with it if there is none
enter() {
  local all
  all=$({ versions "$2"; echo "$1"; } | sort_versions | paste -sd, | sed 's/,/, /g')
  if grep -q "^$2: " "$CHANNELS_FILE"; then
    sed -i "s/^$2: .*/$2: [$all]/" "$CHANNELS_FILE"
  else
    echo "$2: [$all]" >>"$CHANNELS_FILE"
  fi
}

# channel_of VERSION KIND: as in candidate-v0; what may break what is in use begins another major version, and another channel
channel_of() { echo "$2-v${1%%.*}"; }

# released: the versions in releases/, oldest first
released() { [ ! -d releases ] || find releases -mindepth 1 -maxdepth 1 -type d -name 'v*' -printf '%f\n' | sed 's/^v//' | sort_versions; }

is_version() { [[ "$1" =~ ^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$ ]]; }

# of_release VERSION NAME: what its release.env says
of_release() { sed -n "s/^$2=//p" "releases/v$1/release.env"; }

# keep NAME TARBALL: puts an image, whose digest lies beside it, among those of releases; prints its reference by digest
keep() {
  local digest kept
  digest=$(cat "$(dirname "$2")/digest")
  kept=$KEPT/${digest#sha256:}.tar
  mkdir -p "$KEPT"
  [ -e "$kept" ] || ln "$2" "$kept" 2>/dev/null || { cp "$2" "$kept.$$" && mv "$kept.$$" "$kept"; }
  echo "$IMAGE_BASE/$1@$digest"
}

kept() { echo "$KEPT/${1#*@sha256:}.tar"; }
is_kept() { [ -f "$(kept "$1")" ]; }

# at REFERENCE: the same image at the registry that is published to
at() { echo "$TO/${1#*/}"; }
in_registry() { "$BIN/crane" digest "$(at "$1")" >/dev/null 2>&1; }

# push_kept REFERENCE TAG: to that registry, with a name for people
push_kept() {
  local target; target=$(at "$1")
  local tagged=${target%@*}:$2
  say "pushing $tagged"
  retry 3 "$BIN/crane" push "$(kept "$1")" "$tagged" >/dev/null 2>&1 || die "cannot push $tagged (is the registry up, have you logged in?)"
  [ "$("$BIN/crane" digest "$tagged")" = "${1#*@}" ] || die "$tagged is not ${1#*@} after the push"
}
