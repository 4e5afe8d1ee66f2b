#!/usr/bin/env bash
# down.sh - removes the OLM that up.sh brought, with everything it installed, its kinds and its namespaces, from the cluster of
# KUBECONFIG (default: the local one). Operators' own kinds, and what users made of them, are left, as OLM leaves them. TIMEOUT is
# the bound in seconds for each part; what does not go by itself then is made to.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
. "$(dirname "$0")/lib.sh"
TIMEOUT=${TIMEOUT:-60}

# delete ARG...: and waits, in vain if need be
delete() { REQUEST_TIMEOUT=0 timeout $((TIMEOUT + 10)) "$BIN/kubectl" delete --ignore-not-found --timeout="${TIMEOUT}s" "$@" >/dev/null; }

# release KIND: takes the finalizers off all that is left of it: who looked after them is gone
release() {
  local namespace name
  while read -r namespace name; do
    kubectl -n "$namespace" patch "$1" "$name" --type=merge -p '{"metadata":{"finalizers":null}}' >/dev/null || true
  done < <(kubectl get "$1" -A -o jsonpath='{range .items[*]}{.metadata.namespace} {.metadata.name}{"\n"}{end}')
}

# drop KIND: deletes all of it, in every namespace
drop() {
  kubectl get "crd/$1" >/dev/null 2>&1 || return 0
  delete "$1" --all -A || { say "$1 do not go by themselves"; release "$1"; }
}

main() {
  local kind file
  use_cluster
  installed || kubectl get namespace olm >/dev/null 2>&1 || return 0
  ours || { say "the cluster has an OLM of its own: it is not removed"; return; }
  # As long as OLM runs it cleans up after its operators. The API that the package server serves goes first: while it is registered
  # and not served, no namespace can be deleted.
  for kind in subscriptions catalogsources installplans clusterserviceversions operatorgroups; do drop "$kind.$API"; done
  delete apiservice v1.packages.operators.coreos.com
  delete namespace operators olm || die "the namespaces operators and olm are not gone after $TIMEOUT s"
  for kind in operatorconditions operators olmconfigs; do drop "$kind.$API"; done
  for file in $(crds); do delete -f "$file" || die "$(basename "$file") is not gone after $TIMEOUT s"; done
  delete clusterrolebinding olm-operator-binding-olm
  delete clusterrole,clusterrolebinding,mutatingwebhookconfiguration,validatingwebhookconfiguration -l olm.managed=true
  say "OLM is removed"
}

main
