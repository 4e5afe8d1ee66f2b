#!/usr/bin/env bash
# other.sh - "make cluster" when KUBECONFIG names a cluster that is not ours: uses it, if it answers
set -euo pipefail
given=${KUBECONFIG:?}
# shellcheck source-path=SCRIPTDIR source=env.sh
. "$(dirname "$0")/env.sh"
export KUBECONFIG=$given
kubectl=$(PATH=$PATH:$BIN command -v kubectl) || die "kubectl is missing"
server=$("$kubectl" config view --minify -o 'jsonpath={.clusters[0].cluster.server}' 2>/dev/null) || die "KUBECONFIG=$given is no kubeconfig: mend it, or unset it for the local cluster"
"$kubectl" --request-timeout=10s get --raw /readyz >/dev/null 2>&1 || die "KUBECONFIG=$given: $server does not answer; unset KUBECONFIG for the local cluster"
say "using the cluster that KUBECONFIG names, $server: nothing is built or started"
