#!/usr/bin/env bash
# catalog.sh - generates catalog/pgsteward/: the package and its channels (from config/catalog/) and the blob of this VERSION's
# bundle, which is at BUNDLE_IMAGE. The blobs of earlier releases stay as they were released.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
cd "$ROOT"
: "${VERSION:?}" "${BUNDLE_IMAGE:?}"
NAME=pgsteward.v$VERSION
OUT=catalog/pgsteward

grep -q "name: $NAME\$" config/catalog/channels.yaml || die "config/catalog/channels.yaml has no entry $NAME"

# package: what the package is called and which channel is the default, then the channels
package() {
  "$BIN/opm" init pgsteward --default-channel stable --description config/catalog/description.md \
    --icon config/catalog/icon.svg --output yaml
  echo ---
  grep -v '^#' config/catalog/channels.yaml
}

# blob: the bundle as the catalog shows it. A bundle in a folder does not know which image it will be; opm shortens only the blobs
# of bundles that do (to their metadata, instead of every object).
blob() {
  "$BIN/opm" render ./bundle --output yaml | sed "s|^image: \"\"\$|image: $BUNDLE_IMAGE|" >"$work/bundle.yaml"
  "$BIN/opm" render "$work" --output yaml --migrate-level bundle-object-to-csv-metadata
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$OUT"
package >"$OUT/catalog.yaml.new"
blob >"$OUT/$NAME.yaml.new"
grep -q "image: $BUNDLE_IMAGE\$" "$OUT/$NAME.yaml.new" || die "the bundle's blob does not name $BUNDLE_IMAGE"
! grep -q olm.bundle.object "$OUT/$NAME.yaml.new" || die "the bundle's blob has whole objects"
for f in catalog "$NAME"; do mv "$OUT/$f.yaml.new" "$OUT/$f.yaml"; done
