#!/usr/bin/env bash
# bundle.sh - generates bundle/ and bundle.Dockerfile for VERSION from config/ and the markers in apis/. RELEASED is the release's
# date: the bundle says it, and is the same however often it is generated. Images come as render.sh takes them.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
cd "$ROOT"
: "${VERSION:?}" "${RELEASED:?}"

# The CSV's base takes over what the types' markers say.
update_base() {
  "$BIN/operator-sdk" generate kustomize manifests --quiet --interactive=false --apis-dir apis --package pgsteward
}

generate() {
  rm -rf bundle bundle.Dockerfile
  hack/deploy/render.sh manifests >"$work/manifests.yaml"
  "$BIN/operator-sdk" generate bundle --quiet --overwrite --package pgsteward --version "$VERSION" \
    --channels candidate,stable --default-channel stable <"$work/manifests.yaml"
}

# pin_date: operator-sdk writes the time of the call
pin_date() {
  sed -i "s/^\( *createdAt: \).*/\1\"$RELEASED\"/" bundle/manifests/pgsteward.clusterserviceversion.yaml
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
update_base
generate
pin_date
