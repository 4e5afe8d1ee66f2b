#!/usr/bin/env bash
# image.sh - builds the client of test/chaos, makes an image of it, pushes it to REGISTRY and writes CHAOS_IMAGE to bin/images.env.
# Nothing is done if the client has not changed.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../env.sh
. "$(dirname "$0")/../env.sh"
# shellcheck source-path=SCRIPTDIR source=../../images/lib.sh
. "$ROOT/images/lib.sh"
ARCH=${ARCH:-amd64}
dir=$STORE/chaos
mkdir -p "$dir"
(cd "$ROOT" && CGO_ENABLED=0 GOOS=linux GOARCH=$ARCH go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$dir/client" ./test/chaos/client) ||
  die "the client of test/chaos does not build"
tag=$(short_hash <"$dir/client")
tools
tarball=$dir/$tag.tar
if [ ! -s "$tarball" ]; then
  say "assembling the image of the chaos client"
  rm -f "$dir"/*.tar
  "$BIN/mkimage" -arch "$ARCH" -user 65532:65532 -workdir / -entrypoint /client -add "$dir/client=/client" \
    -tag "pgsteward-chaos:$tag" -o "$tarball.partial" >/dev/null
  mv "$tarball.partial" "$tarball"
fi
push_once "$REGISTRY/pgsteward-chaos:$tag" "$tarball"
record "CHAOS_IMAGE=$REGISTRY/pgsteward-chaos:$tag"
