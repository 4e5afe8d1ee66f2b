#!/usr/bin/env bash
# undeploy.sh - removes the operator and its CRDs from the cluster of KUBECONFIG (default: the local one). Deleting a CRD
# deletes every PostgresCluster, so it refuses while there are any, unless FORCE=1: then they are deleted first, while the
# operator is there to follow their deletion policy.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
. "$(dirname "$0")/lib.sh"
CRD=postgresclusters.pgsteward.io
TIMEOUT=${TIMEOUT:-180}

# clusters: namespace/name of every PostgresCluster; fails when that cannot be said
clusters() {
  local crd; crd=$(kubectl get crd "$CRD" --ignore-not-found -o name) || return 1
  [ -n "$crd" ] || return 0
  kubectl get "$CRD" -A -o jsonpath='{range .items[*]}{.metadata.namespace}/{.metadata.name}{"\n"}{end}'
}

delete_clusters() {
  say "deleting: ${1//$'\n'/ }"
  local namespace name
  while IFS=/ read -r namespace name; do
    REQUEST_TIMEOUT=0 kubectl -n "$namespace" delete "$CRD" "$name" --ignore-not-found --timeout="${TIMEOUT}s" >/dev/null ||
      die "PostgresCluster $namespace/$name is not gone after $TIMEOUT s (is the operator running?)"
  done <<<"$1"
}

main() {
  use_cluster
  local found; found=$(clusters) || die "cannot see whether there are PostgresClusters: nothing was removed"
  if [ -n "$found" ]; then
    [ "${FORCE:-}" = 1 ] ||
      die "there are PostgresClusters, and removing the CRD would delete them: ${found//$'\n'/ }; delete them first, or use FORCE=1"
    delete_clusters "$found"
  fi
  OPERATOR_IMAGE=none "$ROOT/hack/deploy/render.sh" default | REQUEST_TIMEOUT=0 kubectl delete --ignore-not-found --timeout="${TIMEOUT}s" -f - >/dev/null ||
    die "not everything is gone after $TIMEOUT s"
  say "the operator is removed"
}

main "$@"
