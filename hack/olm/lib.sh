# lib.sh - what the scripts of this folder share; sourced after hack/env.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034 # used by those who source this
. "$ROOT/hack/deploy/lib.sh"
. "$ROOT/images/lib.sh"
OLM_STORE=$CACHE/olm      # images made here, one folder each
OLM_IMAGES=$BIN/olm.env   # what was pushed, as NAME=reference
API=operators.coreos.com
MANIFESTS=$ROOT/hack/olm/manifests

# installed: whether the cluster has OLM, whoever brought it
installed() { kubectl get "crd/clusterserviceversions.$API" >/dev/null 2>&1; }

# ours: whether it is the one that up.sh brings, which marks its namespace
ours() { kubectl get namespace olm -o "jsonpath={.metadata.labels.pgsteward-olm}" 2>/dev/null | grep -q .; }

# crds: the files that define OLM's kinds, of the module that OLM itself is built with
crds() {
  local folder
  folder=$(cd "$ROOT/hack/tools/olm" && retry 3 go mod download github.com/operator-framework/api && go list -m -f '{{.Dir}}' github.com/operator-framework/api) ||
    die "cannot download OLM's API"
  ls "$folder"/crds/*.yaml
}
