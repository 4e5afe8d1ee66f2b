#!/usr/bin/env bash
# bundle.sh - generates bundle/ and bundle.Dockerfile for VERSION from config/ and the markers in apis/. RELEASED is the release's
# date: the bundle says it, and is the same however often it is generated. Images come as render.sh takes them.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
cd "$ROOT"
: "${VERSION:?}" "${RELEASED:?}" "${OPERATOR_IMAGE:?}"
CSV=bundle/manifests/pgsteward.clusterserviceversion.yaml
GENERATION=v${VERSION%%.*} # as in the channels' names: what may break what is in use begins another

# quietly CMD...: what it says is shown only when it fails
quietly() { "$@" 2>"$work/log" || { cat "$work/log" >&2; return 1; }; }

# The CSV's base takes over what the types say of themselves.
update_base() {
  quietly "$BIN/operator-sdk" generate kustomize manifests --quiet --interactive=false --apis-dir apis --package pgsteward
}

generate() {
  rm -rf bundle bundle.Dockerfile
  hack/deploy/render.sh manifests >"$work/manifests.yaml"
  # It reads from a pipe, not from a file.
  # shellcheck disable=SC2002
  cat "$work/manifests.yaml" | quietly "$BIN/operator-sdk" generate bundle --quiet --overwrite --package pgsteward --version "$VERSION" \
    --channels "candidate-$GENERATION,stable-$GENERATION" --default-channel "stable-$GENERATION"
}

# finish: what operator-sdk cannot be told (hack/bundle/csv says what and why)
finish() { go run ./hack/bundle/csv "$CSV"; }

# relate_operator: operator-sdk lists the images of RELATED_IMAGE_* as what a mirror must copy; the operator's own belongs to them
relate_operator() {
  sed -i "s|^  relatedImages:\$|&\n  - image: $OPERATOR_IMAGE\n    name: pgsteward|" "$CSV"
  grep -A1 '^  relatedImages:' "$CSV" | grep -qF "$OPERATOR_IMAGE" || die "no related images in $CSV"
}

# leave_webhook_to_olm: OLM makes the webhook's Service and certificate, and writes the CRD's conversion, from webhookdefinitions; a
# conversion that is in the bundle already would break upgrades
leave_webhook_to_olm() {
  rm bundle/manifests/pgsteward-webhook_v1_service.yaml
  sed -i '/^  conversion:/,/^  [a-z]/ {/^  conversion:/d; /^   /d}' bundle/manifests/pgsteward.io_postgresclusters.yaml
  grep -q 'type: ConversionWebhook' "$CSV" || die "no conversion webhook in $CSV"
  ! grep -q '^  conversion:' bundle/manifests/pgsteward.io_postgresclusters.yaml || die "the bundle's CRD has a conversion"
}

# pin_date: operator-sdk writes the time of the call
pin_date() {
  sed -i "s/^\( *createdAt: \).*/\1\"$RELEASED\"/" "$CSV"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
update_base
generate
finish
relate_operator
leave_webhook_to_olm
pin_date
