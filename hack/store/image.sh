#!/usr/bin/env bash
# image.sh - makes an image of an S3 server for tests of backups, pushes it to REGISTRY and writes S3_IMAGE to bin/images.env.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../env.sh
. "$(dirname "$0")/../env.sh"
# shellcheck source-path=SCRIPTDIR source=../../images/lib.sh
. "$ROOT/images/lib.sh"
ARCH=${ARCH:-amd64}
tools
"$ROOT/hack/tools/build.sh" s3
program=$(readlink -f "$BIN/versitygw")
dir=$STORE/s3
mkdir -p "$dir"
tag=$(short_hash <"$program")
tarball=$dir/$tag.tar
if [ ! -s "$tarball" ]; then
  say "assembling the image of the S3 server"
  rm -f "$dir"/*.tar
  "$BIN/mkimage" -arch "$ARCH" -user 65532:65532 -workdir / -entrypoint /versitygw -add "$program=/versitygw" \
    -tag "pgsteward-s3:$tag" -o "$tarball.partial" >/dev/null
  mv "$tarball.partial" "$tarball"
fi
push_once "$REGISTRY/pgsteward-s3:$tag" "$tarball"
record "S3_IMAGE=$REGISTRY/pgsteward-s3:$tag"
