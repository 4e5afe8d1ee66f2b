#!/usr/bin/env bash
# deploy.sh - installs or updates the operator in the cluster of KUBECONFIG (default: the local one), with the images that
# `make images` wrote to bin/images.env, and waits until it runs. TIMEOUT is the bound in seconds. CLIENT_SIDE=1 applies as kubectl apply -k
# does, which removes what a release that was applied so had and the tree has not.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
. "$(dirname "$0")/lib.sh"
TIMEOUT=${TIMEOUT:-180}
IMAGES=$BIN/images.env

load_images() {
  [ -f "$IMAGES" ] || die "no images: bin/images.env does not exist; run make images"
  set -a
  . "$IMAGES"
  set +a
}

# missing_majors: those that were not built
missing_majors() {
  local major name
  for major in 15 16 17 18; do
    name=POSTGRES_${major}_IMAGE
    [ -n "${!name:-}" ] || printf ' %s' "$major"
  done
}

# apply_manifests: CRDs first, since what follows may need them
apply_manifests() {
  local manifests=$1 how=(--server-side --force-conflicts --field-manager=pgsteward-deploy)
  [ -z "${CLIENT_SIDE:-}" ] || how=()
  kubectl apply "${how[@]}" -f "$manifests" >"$manifests.log" ||
    die "the cluster refused the manifests"
  say "$(grep -c . "$manifests.log") objects applied"
  kubectl wait --for=condition=Established --timeout=30s crd/postgresclusters.pgsteward.io >/dev/null ||
    die "the CRD postgresclusters.pgsteward.io was not established"
}

wait_for_rollout() {
  REQUEST_TIMEOUT=0 kubectl -n "$NAMESPACE" rollout status "deployment/$DEPLOYMENT" --timeout="${TIMEOUT}s" >/dev/null && return
  explain
  die "the operator does not run after $TIMEOUT s; see above"
}

# explain: what a person would look at next
explain() {
  {
    kubectl -n "$NAMESPACE" get deployment,replicaset,pod -o wide
    echo "--- conditions"
    kubectl -n "$NAMESPACE" get deployment "$DEPLOYMENT" \
      -o jsonpath='{range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}'
    echo "--- events"
    kubectl -n "$NAMESPACE" get events --sort-by=.lastTimestamp | tail -n 20
    echo "--- logs"
    kubectl -n "$NAMESPACE" logs "deployment/$DEPLOYMENT" --tail=30 || true
  } >&2
}

main() {
  load_images
  use_cluster
  local missing; missing=$(missing_majors)
  [ -z "$missing" ] || say "no image of PostgreSQL$missing: clusters of that version must name one (make images builds all)"
  manifests=$(mktemp)
  trap 'rm -f "$manifests" "$manifests.log"' EXIT
  "$ROOT/hack/deploy/render.sh" default >"$manifests"
  say "deploying $OPERATOR_IMAGE"
  apply_manifests "$manifests"
  wait_for_rollout
  say "the operator runs: $(kubectl -n "$NAMESPACE" get deployment "$DEPLOYMENT" -o jsonpath='{.status.readyReplicas}') replicas ready in namespace $NAMESPACE"
}

main "$@"
