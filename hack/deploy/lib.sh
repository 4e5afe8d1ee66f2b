# lib.sh - sourced by deploy.sh and undeploy.sh, after env.sh: the cluster they talk to.
# shellcheck shell=bash
# shellcheck disable=SC2034 # used by those who source this file
NAMESPACE=pgsteward-system DEPLOYMENT=pgsteward-manager

# kubectl: ours if the local cluster has been built, else the user's. A single request is bounded.
kubectl() {
  local program=$BIN/kubectl
  [ -x "$program" ] || program=$(type -P kubectl) || die "no kubectl: run make cluster, or install it"
  "$program" --request-timeout="${REQUEST_TIMEOUT:-30s}" "$@"
}

# use_cluster: KUBECONFIG if it is set, else the local cluster's; dies when it does not answer
use_cluster() {
  if [ -z "${KUBECONFIG:-}" ]; then
    KUBECONFIG=$(make -s -C "$ROOT" kubeconfig 2>/dev/null) || die "no cluster: run make cluster, or set KUBECONFIG"
    export KUBECONFIG
  fi
  REQUEST_TIMEOUT=10s kubectl get --raw /readyz >/dev/null 2>&1 ||
    die "the cluster of $KUBECONFIG does not answer (make cluster starts the local one)"
}
