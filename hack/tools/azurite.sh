#!/usr/bin/env bash
# azurite.sh - gets Azurite, a server of Azure Blob Storage for tests of backups, from npm into the cache, and links it into bin/.
# It needs node; without it, or without this, those tests are skipped.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
VERSION=3.37.0
out=$CACHE/tools/azurite-$VERSION
if [ ! -e "$out/.complete" ]; then
  say "getting azurite $VERSION"
  mkdir -p "$out"
  npm install --prefix "$out" --ignore-scripts --no-audit --no-fund --silent "azurite@$VERSION"
  touch "$out/.complete"
fi
mkdir -p "$BIN"
ln -sfn "$out/node_modules/.bin/azurite-blob" "$BIN/azurite-blob"
