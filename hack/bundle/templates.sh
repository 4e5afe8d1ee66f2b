#!/usr/bin/env bash
# templates.sh TEMPLATES OUT - renders basic.yaml and semver.yaml of a folder as the community catalogs do, with opm, which pulls the
# bundles' images: into OUT/basic/catalog.yaml and OUT/semver/catalog.yaml. It pulls them from a registry that lives as long as this
# script, so that nothing needs to have been published.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
[ $# = 2 ] && [ -d "$1" ] || die "usage: templates.sh TEMPLATES OUT"
templates=$1 out=$2

# serve: starts the registry, on a port of its choice
serve() {
  local port=""
  "$BIN/crane" registry serve --address 127.0.0.1:0 >"$work/registry" 2>&1 &
  registry=$!
  for _ in $(seq 100); do
    port=$(sed -n 's/.*serving on port //p' "$work/registry")
    [ -z "$port" ] || break
    sleep 0.1
  done
  [ -n "$port" ] || die "no registry: $(cat "$work/registry")"
  TO=127.0.0.1:$port
}

# push_bundles: those of releases/, which must be what the templates name
push_bundles() {
  local version reference
  for version in $(released); do
    reference=$(hack/bundle/image.sh bundle "releases/v$version/bundle")
    [ "$reference" = "$(of_release "$version" BUNDLE_IMAGE)" ] || hack/bundle/remake.sh "$version"
    push_kept "$(of_release "$version" BUNDLE_IMAGE)" "v$version" 2>/dev/null
  done
}

# render KIND
render() {
  local host=${IMAGE_BASE%%/*}
  sed "s#\(image: \)$host/#\1$TO/#" "$templates/$1.yaml" >"$work/$1.yaml"
  mkdir -p "$out/$1"
  HOME=$work "$BIN/opm" alpha render-template "$1" "$work/$1.yaml" --use-http --output yaml \
    --migrate-level bundle-object-to-csv-metadata 2>"$work/log" >"$work/rendered" || { cat "$work/log" >&2; die "opm does not render $1.yaml"; }
  sed "s#\(image: \)$TO/#\1$host/#" "$work/rendered" >"$out/$1/catalog.yaml"
}

for program in crane mkimage; do [ -x "$BIN/$program" ] || hack/tools/build.sh image; done
work=$(mktemp -d)
registry=
trap '[ -z "$registry" ] || kill "$registry"; rm -rf "$work"' EXIT
# opm wants to be told by its user that images need no signature.
mkdir -p "$work/.config/containers"
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >"$work/.config/containers/policy.json"
serve
push_bundles
render basic
render semver
