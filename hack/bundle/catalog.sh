#!/usr/bin/env bash
# catalog.sh - generates catalog/pgsteward/ from config/catalog/ (the package, the channels and, if there are any, deprecations.yaml)
# and from the released bundles in releases/. As long as nothing has been released, the only entry is bundle/ of VERSION, which is
# to be at BUNDLE_IMAGE.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
: "${VERSION:?}" "${BUNDLE_IMAGE:?}"
OUT=catalog/pgsteward

all_versions() { local c; for c in $(channels); do versions "$c"; done | sort_versions; }

# package: what the package is called and which channel is the default, the stable one of the newest major version
package() {
  "$BIN/opm" init pgsteward --default-channel "$(channels | grep '^stable-' | sort -V | tail -n 1)" \
    --description config/catalog/description.md --icon config/catalog/icon.svg --output yaml
}

minor() { cut -d. -f1,2 <<<"$1"; }

# from VERSION...: the oldest version that goes to the last of these, which are in order, in one step: the first of the minor version
# before its own. Agents are not restarted with the operator, and it understands those of one minor version before, no older ones.
from() {
  local own before="" version
  own=$(minor "${!#}")
  for version; do [ "$(minor "$version")" = "$own" ] || before=$(minor "$version"); done
  for version; do [ "$(minor "$version")" != "${before:-$own}" ] || { echo "$version"; return; }; done
}

# channel NAME: its entries, newest first
channel() {
  local all=() i
  mapfile -t all < <(versions "$1")
  [ ${#all[@]} -gt 0 ] || die "$CHANNELS_FILE: channel $1 is empty"
  printf -- '---\nschema: olm.channel\npackage: pgsteward\nname: %s\nentries:\n' "$1"
  for ((i = ${#all[@]} - 1; i > 0; i--)); do
    printf -- '- name: pgsteward.v%s\n  replaces: pgsteward.v%s\n  skipRange: ">=%s <%s"\n' \
      "${all[i]}" "${all[i - 1]}" "$(from "${all[@]:0:i + 1}")" "${all[i]}"
  done
  printf -- '- name: pgsteward.v%s\n' "${all[0]}"
}

# blob BUNDLE IMAGE: the bundle as the catalog shows it. A bundle in a folder does not know which image it will be; opm shortens
# only the blobs of bundles that do (to their metadata, instead of every object).
blob() {
  local folder=$work/blob
  rm -rf "$folder"
  mkdir "$folder"
  "$BIN/opm" render "$1" --output yaml | sed "s|^image: \"\"\$|image: $2|" >"$folder/bundle.yaml"
  grep -qxF "image: $2" "$folder/bundle.yaml" || die "the blob of $1 does not name $2"
  "$BIN/opm" render "$folder" --output yaml --migrate-level bundle-object-to-csv-metadata
}

# blob_of VERSION: that of a release, or of bundle/ where nothing has been released
blob_of() {
  local release=releases/v$1
  if [ -d "$release" ]; then
    blob "$release/bundle" "$(sed -n 's/^BUNDLE_IMAGE=//p' "$release/release.env")"
  elif [ "$1" = "$VERSION" ] && [ ! -d releases ]; then
    blob bundle "$BUNDLE_IMAGE"
  else
    die "$CHANNELS_FILE names $1, and there is no $release"
  fi
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/out"
{
  package
  for name in $(channels); do channel "$name"; done
  [ ! -f config/catalog/deprecations.yaml ] || { echo ---; grep -v '^#' config/catalog/deprecations.yaml; }
} >"$work/out/catalog.yaml"
for version in $(all_versions); do blob_of "$version" >"$work/out/pgsteward.v$version.yaml"; done
! grep -rq olm.bundle.object "$work/out" || die "a bundle's blob has whole objects"
rm -rf "$OUT"
mkdir -p "$OUT"
cp "$work"/out/* "$OUT/"
