#!/usr/bin/env bash
# operand.sh build|push|path MAJOR... - the PostgreSQL images (see README.md). build makes what is missing in the cache, which
# needs root; push gives it to the registry, unless that has it, and writes the references to bin/images.env; path prints
# where the image's tarball is.
set -euo pipefail
. "$(dirname "$0")/../hack/env.sh"
. "$(dirname "$0")/lib.sh"
HERE=$ROOT/images/postgres

# row MAJOR: its line in the table of sources
row() {
  awk -v major="$1" '$1 == major' "$HERE/sources" | grep . || die "no PostgreSQL $1 in images/postgres/sources"
}

# deb_major SUITE: the major that Debian has in a suite
deb_major() { awk -v suite="$1" '$2 == suite && $3 == "deb" {print $1}' "$HERE/sources"; }

# The folders of the cache are named by what makes their content: words of the table, and scripts. What Debian has in a
# suite today is not part of that: REFRESH=yes looks again. Images are tagged by their digest, so nothing changes unseen.
key() { { echo "$1"; shift; cat "$@"; } | short_hash; }
rootfs_dir() { echo "$STORE/rootfs-$1-$(key "$1 $(deb_major "$1")" "$HERE/rootfs.sh" "$HERE/foreign-tools")"; }
npm_dir() { echo "$STORE/npm-$1-$(key "$(row "$1") $(rootfs_dir "$2")" "$HERE/npm.sh")"; }
image_dir() { echo "$STORE/postgres-$1-$(key "$(layers "$1" | sed "s:$STORE::g")" "$ROOT/images/operand.sh")"; }

# server_dir MAJOR: the folder with its server.tar.gz and version
server_dir() {
  local suite kind
  read -r _ suite kind _ < <(row "$1")
  if [ "$kind" = npm ]; then npm_dir "$1" "$suite"; else rootfs_dir "$suite"; fi
}

# layers MAJOR: the tar files its image is made of, lowest first; images of one suite share the first two
layers() {
  local suite
  read -r _ suite _ < <(row "$1")
  echo "$(rootfs_dir "$suite")/base.tar.gz $(rootfs_dir "$suite")/client.tar.gz $(server_dir "$1")/server.tar.gz"
}

# once DIR CMD...: runs CMD, which makes DIR.partial, unless DIR is there
once() {
  local dir=$1; shift
  [ ! -d "$dir" ] || return 0
  rm -rf "$dir.partial"
  mkdir -p "$dir.partial"
  "$@"
  mv "$dir.partial" "$dir"
}

make_rootfs() {
  local suite=$1
  [ "$(id -u)" = 0 ] || die "PostgreSQL images are made as root (a chroot); with a container engine use images/postgres/Dockerfile"
  need mmdebstrap mmdebstrap debian-archive-keyring
  say "making the $suite system with PostgreSQL $(deb_major "$suite") (about a minute)"
  retry 2 "$HERE/rootfs.sh" "$suite" "$(deb_major "$suite")" "$(rootfs_dir "$suite").partial"
}

make_npm() {
  local major=$1 suite=$2 package=$3 sha512=$4 dir
  need npm npm
  dir=$(npm_dir "$major" "$suite")
  say "fetching PostgreSQL $major from npm"
  retry 3 "$HERE/npm.sh" "$package" "$sha512" "$major" "$dir.partial" "$(deb_major "$suite")" "$(rootfs_dir "$suite")/client.tar.gz"
}

make_image() {
  local major=$1 dir version path layer flags=()
  dir=$(image_dir "$major").partial
  version=$(cat "$(server_dir "$major")/version")
  path=/usr/lib/postgresql/$major/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  for layer in $(layers "$major"); do flags+=(-tar "$layer"); done
  say "assembling the image of PostgreSQL $version"
  "$BIN/mkimage" "${flags[@]}" -user 999:999 -workdir / -cmd postgres -cmd --version \
    -env "PATH=$path" -env LANG=C.UTF-8 -env "PG_MAJOR=$major" -env "PG_VERSION=$version" \
    -label org.opencontainers.image.title="pgsteward-postgres" \
    -label org.opencontainers.image.version="$version" \
    -label org.opencontainers.image.source="$SOURCE" \
    -label org.opencontainers.image.licenses="PostgreSQL" \
    -label org.opencontainers.image.description="PostgreSQL $version with client tools, contrib and pgBackRest, for pgsteward" \
    -tag "pgsteward-postgres:$major" -o "$dir/image.tar" >"$dir/digest"
  echo "$version" >"$dir/version"
}

# missing MAJOR...: those whose image is not in the cache
missing() {
  local major dir
  for major; do
    dir=$(image_dir "$major")
    [ -d "$dir" ] || echo "$major"
  done
}

build() {
  local major suite kind package sha512
  [ -n "${REFRESH:-}$(missing "$@")" ] || return 0
  tools
  mkdir -p "$STORE"
  exec 8>"$STORE/.operand.lock"
  flock 8 # one build at a time; the second one finds everything made
  [ -z "${REFRESH:-}" ] || rm -rf "$STORE"/{rootfs,npm,postgres}-*
  for major in $(missing "$@"); do
    read -r _ suite kind package sha512 < <(row "$major")
    once "$(rootfs_dir "$suite")" make_rootfs "$suite"
    [ "$kind" = deb ] || once "$(npm_dir "$major" "$suite")" make_npm "$major" "$suite" "$package" "$sha512"
    once "$(image_dir "$major")" make_image "$major"
  done
  exec 8>&-
}

path() {
  local major dir
  for major; do
    dir=$(image_dir "$major")
    [ -d "$dir" ] || die "the image of PostgreSQL $major is not built: images/operand.sh build $major"
    echo "$dir/image.tar"
  done
}

push() {
  local major dir digest ref
  tools
  for major; do
    dir=$(dirname "$(path "$major")")
    digest=$(cat "$dir/digest")
    ref=$REGISTRY/pgsteward-postgres:$major-${digest:7:12}
    push_once "$ref" "$dir/image.tar"
    record "POSTGRES_${major}_IMAGE=$ref" "POSTGRES_${major}_VERSION=$(cat "$dir/version")"
  done
}

action=${1:-}
case $action in build | push | path) shift ;; *) die "usage: operand.sh build|push|path MAJOR..." ;; esac
[ $# -gt 0 ] || die "which majors?"
for major; do row "$major" >/dev/null; done
"$action" "$@"
