#!/usr/bin/env bash
# publish.sh REGISTRY - pushes the images of every release that this machine has made, and of the catalog, to a registry, under the
# names that the bundles have for them. Images are pushed by content: what is there already is left alone. To the registry of the
# local cluster (127.0.0.1:5000) it needs no credentials, and the cluster finds ghcr.io's images there.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
[ -n "${1:-}" ] || die "usage: publish.sh REGISTRY"
to=$1/${IMAGE_BASE#*/}

# push REFERENCE TAG: the kept image that the reference names, and a name for people
push() {
  local digest=${1#*@} name=${1%@*}
  local target=$to/${name##*/} tarball=$KEPT/${digest#sha256:}.tar
  if ! "$BIN/crane" digest "$target@$digest" >/dev/null 2>&1; then
    [ -f "$tarball" ] || die "$1 is not on this machine: it was made, and is to be published, on another (docs/releasing.md)"
    say "pushing $target:$2"
    retry 3 "$BIN/crane" push "$tarball" "$target:$2" >/dev/null 2>&1 || die "cannot push to $1 (is it up, have you logged in?)"
    [ "$("$BIN/crane" digest "$target:$2")" = "$digest" ] || die "$target:$2 is not $digest after the push"
  fi
}

[ -x "$BIN/crane" ] || hack/tools/build.sh image
for version in $(released); do
  while IFS='=' read -r name reference; do
    case $name in
    BUNDLE_IMAGE | OPERATOR_IMAGE) push "$reference" "v$version" ;;
    POSTGRES_*) push "$reference" "$(tr -dc '0-9' <<<"$name")-v$version" ;;
    esac
  done <"releases/v$version/release.env"
done
catalog=$(hack/bundle/image.sh catalog catalog)
push "$catalog" latest
echo "$catalog"
