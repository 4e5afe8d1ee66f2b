#!/usr/bin/env bash
# up.sh - installs the Operator Lifecycle Manager in the cluster of KUBECONFIG (default: the local one), or mends it, and waits until
# it works. TIMEOUT is the bound in seconds for each part. A cluster that brings its own OLM is left as it is.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
. "$(dirname "$0")/lib.sh"
TIMEOUT=${TIMEOUT:-240}

explain() {
  {
    kubectl -n olm get deployments,pods -o wide
    kubectl -n olm get events --sort-by=.lastTimestamp | tail -n 20
    for d in olm-operator catalog-operator packageserver; do echo "--- log of $d"; kubectl -n olm logs "deployment/$d" --tail=20; done
  } >&2 || true
  die "$1"
}

# A busy API server may need more than one attempt: OLM's CRDs are large.
apply() { retry 3 kubectl apply --server-side --force-conflicts --field-manager=pgsteward-olm "$@" >/dev/null; }

# apply_manifest NAME: with the images that were pushed
apply_manifest() {
  sed "s#@OLM@#$OLM_IMAGE#g; s#@OPM@#$OPM_IMAGE#g" "$MANIFESTS/$1.yaml" >"$work/$1.yaml"
  apply -f "$work/$1.yaml"
}

apply_crds() {
  local files=() f
  for f in $(crds); do files+=(-f "$f"); done
  apply "${files[@]}"
  REQUEST_TIMEOUT=0 kubectl wait --for=condition=Established --timeout=120s "${files[@]}" >/dev/null || die "OLM's CRDs were not established"
}

# wait_deployment NAME: until it is there and rolled out
wait_deployment() {
  REQUEST_TIMEOUT=0 kubectl -n olm wait --for=create "deployment/$1" --timeout="${TIMEOUT}s" >/dev/null || explain "there is no deployment $1 after $TIMEOUT s"
  REQUEST_TIMEOUT=0 kubectl -n olm rollout status "deployment/$1" --timeout="${TIMEOUT}s" >/dev/null || explain "$1 is not ready after $TIMEOUT s"
}

wait_packageserver() {
  wait_deployment packageserver
  REQUEST_TIMEOUT=0 kubectl -n olm wait "csv/packageserver" --for="jsonpath={.status.phase}=Succeeded" --timeout="${TIMEOUT}s" >/dev/null ||
    explain "the package server's CSV is not Succeeded after $TIMEOUT s"
  REQUEST_TIMEOUT=0 kubectl wait apiservice/v1.packages.operators.coreos.com --for=condition=Available --timeout="${TIMEOUT}s" >/dev/null ||
    explain "the API of package manifests is not available after $TIMEOUT s"
}

main() {
  use_cluster
  if installed && ! ours; then
    say "the cluster has an OLM of its own: it is used"
    return
  fi
  "$ROOT/hack/olm/images.sh"
  . "$OLM_IMAGES"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  say "installing OLM"
  apply_crds
  apply_manifest olm
  kubectl label namespace olm pgsteward-olm=yes --overwrite >/dev/null
  wait_deployment olm-operator
  wait_deployment catalog-operator
  apply_manifest packageserver
  wait_packageserver
  say "OLM runs: $OLM_IMAGE"
}

main
