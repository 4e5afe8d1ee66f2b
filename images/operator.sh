#!/usr/bin/env bash
# operator.sh build|push|path VERSION - the operator's image: one static binary on nothing, with certificate authorities and a user.
# build makes it in the cache if the program changed; push gives it to the registry, unless that has it, and writes the
# reference to bin/images.env; path prints where the image's tarball is. The same sources and the same Go give the same image, on
# whatever machine.
set -euo pipefail
. "$(dirname "$0")/../hack/env.sh"
. "$(dirname "$0")/lib.sh"
MODULE=github.com/pgsteward/pgsteward
ARCH=${ARCH:-amd64}
KEEP=5 # images of earlier programs that stay in the cache
PROGRAM=$BIN/.operator/pgsteward # of this work tree: others build at the same time
CERTIFICATES=$BIN/.operator/ca-certificates.crt

# The same sources give the same program: no paths, no commit, no time in it, and nothing that this machine's Go was told.
compile() {
  (cd "$ROOT" && CGO_ENABLED=0 GOOS=linux GOARCH=$ARCH GOAMD64=v1 GOARM64=v8.0 GOFIPS140=off GOEXPERIMENT='' GOWORK=off GOFLAGS='' \
    go build -trimpath -buildvcs=false -ldflags "-s -w -X $MODULE/internal/cmd.version=$VERSION" -o "$PROGRAM" .) ||
    die "the operator does not build"
  "$BIN/roots" >"$CERTIFICATES"
  chmod 755 "$PROGRAM"
  chmod 644 "$CERTIFICATES"
}

image_dir() { echo "$STORE/operator/$(cat "$PROGRAM" "$CERTIFICATES" "$ROOT/images/operator.sh" | short_hash)"; }

# assemble DIR: other work trees with the same program may be at it, too; who is first has made it
assemble() {
  local dir=$1 partial=$1.partial.$$
  mkdir -p "$partial"
  echo 'nonroot:x:65532:65532:nonroot:/:/sbin/nologin' >"$partial/passwd"
  chmod 644 "$partial/passwd"
  "$BIN/mkimage" -arch "$ARCH" -user 65532:65532 -workdir / -entrypoint /pgsteward \
    -add "$PROGRAM=/pgsteward" -add "$partial/passwd=/etc/passwd" -add "$CERTIFICATES=/etc/ssl/certs/ca-certificates.crt" \
    -label org.opencontainers.image.title=pgsteward \
    -label org.opencontainers.image.version="$VERSION" \
    -label org.opencontainers.image.source="$SOURCE" \
    -label org.opencontainers.image.licenses=Apache-2.0 \
    -label org.opencontainers.image.description="A Kubernetes operator for PostgreSQL" \
    -tag "pgsteward:$VERSION" -o "$partial/image.tar" >"$partial/digest"
  mv -T "$partial" "$dir" 2>/dev/null || rm -rf "$partial"
}

# forget removes the images of all but the last few programs.
forget() {
  local old
  find "$STORE/operator" -mindepth 1 -maxdepth 1 -name '*.partial.*' -mmin +60 -exec rm -rf {} +
  while read -r old; do rm -rf "$old"; done < <(find "$STORE/operator" -mindepth 1 -maxdepth 1 -type d ! -name "*.partial.*" -printf "%T@ %p\n" |
    sort -rn | cut -d" " -f2- | tail -n +$((KEEP + 1)))
}

build() {
  local dir
  mkdir -p "$STORE/operator" "${PROGRAM%/*}"
  tools
  exec 8>"${PROGRAM%/*}/lock"
  flock 8 # one build of a work tree at a time
  compile
  dir=$(image_dir)
  if [ -d "$dir" ]; then touch "$dir"; exec 8>&-; return; fi
  say "assembling the operator's image"
  assemble "$dir"
  forget
  exec 8>&-
}

path() {
  local dir
  dir=$(image_dir 2>/dev/null)
  [ -d "${dir:-}" ] || die "the operator's image is not built: images/operator.sh build $VERSION"
  echo "$dir/image.tar"
}

push() {
  local tarball digest ref
  tarball=$(path)
  digest=$(cat "$(dirname "$tarball")/digest")
  ref=$REGISTRY/pgsteward:$VERSION-${digest:7:12}
  tools
  push_once "$ref" "$tarball"
  record "OPERATOR_IMAGE=$ref"
}

action=${1:-} VERSION=${2:-}
[ -n "$VERSION" ] || die "usage: operator.sh build|push|path VERSION"
case $action in build | push | path) "$action" ;; *) die "usage: operator.sh build|push|path VERSION" ;; esac
