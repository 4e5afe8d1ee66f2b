#!/usr/bin/env bash
# release.sh [VERSION] - installs a release (the last one, if none is named) in the cluster of KUBECONFIG (default: the local one), as
# its users do: kubectl apply -k config/default of its commit. What is installed is to be removed before (undeploy.sh): this does not
# lead back from a newer version. TIMEOUT is the bound in seconds.
# A registry on this machine, REGISTRY, is given the release's images first. Those of PostgreSQL that cannot be made again are
# replaced by the tree's.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
TIMEOUT=${TIMEOUT:-180}
REGISTRY=${REGISTRY:-127.0.0.1:5000}
INSTEAD=$BIN/releases.env

version=${1:-$(. hack/bundle/lib.sh && released | tail -n 1)}
[ -n "$version" ] || die "nothing has been released"
use_cluster
tree=$(hack/bundle/source.sh "$version")
rm -f "$INSTEAD"
[[ "$REGISTRY" != 127.0.0.1:* ]] || LACKING=skip hack/bundle/publish.sh "$REGISTRY" >/dev/null
say "deploying v$version"
kubectl apply -k "$tree/config/default" >/dev/null || die "the cluster refused the manifests of v$version"
if [ -s "$INSTEAD" ]; then
  mapfile -t images < <(sed 's/^\(POSTGRES_[0-9]*\)_IMAGE=/RELATED_IMAGE_\1=/' "$INSTEAD")
  kubectl -n "$NAMESPACE" set env "deployment/$DEPLOYMENT" "${images[@]}" >/dev/null
fi
REQUEST_TIMEOUT=0 kubectl -n "$NAMESPACE" rollout status "deployment/$DEPLOYMENT" --timeout="${TIMEOUT}s" >/dev/null ||
  die "v$version does not run after $TIMEOUT s: kubectl -n $NAMESPACE describe pods"
say "v$version runs"
