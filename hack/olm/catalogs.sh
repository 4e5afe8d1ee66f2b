#!/usr/bin/env bash
# catalogs.sh - what the end-to-end tests of OLM install from: catalogs as a user's cluster sees them one after the other, with the
# releases as they were published and, further on in the same channels, builds of this tree. Pushes all to REGISTRY (the local
# cluster's) and writes to bin/olm-catalogs.env
#   CATALOG_FIRST    has the oldest release only
#   CATALOG_HEAD     has all releases and, in stable too, HEAD_VERSION: this tree; in candidate also NEXT_VERSION, the same a patch on
#   CATALOG_BROKEN   has in candidate also BROKEN_VERSION, whose image does not exist
#   CATALOG_MENDED   has MENDED_VERSION instead, which leads around it
#   CATALOG_*_NEWEST the newest version in each
#   BUNDLE_HEAD, BUNDLE_NEXT   the bundles' images, without the registry
# The edges between them are made by hack/bundle/catalog.sh, as in every catalog.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
. "$(dirname "$0")/lib.sh"
. "$ROOT/hack/bundle/lib.sh"
OUT=$BIN/olm-catalogs.env
cd "$ROOT"

# bump VERSION: the same, a patch on
bump() { local major minor patch; IFS=. read -r major minor patch <<<"${1%%-*}"; echo "$major.$minor.$((patch + 1))"; }

# head_version: the tree's, which on the commit of a release has been released already
head_version() {
  local version; version=$(sed -n 's/^VERSION ?= //p' Makefile)
  if [ -d "releases/v$version" ]; then bump "$version"; else echo "$version"; fi
}

# generate VERSION: the copy's bundle, with the images that make images pushed
generate() {
  rm -f "$copy/$PINS"
  (
    set -a
    . "$BIN/images.env"
    set +a
    make -s -C "$copy" bundle VERSION="$1" BUNDLE_IMAGES=
  )
}

# rendition VERSION [FROM TO]: a release of the copy's bundle, with FROM replaced by TO in it
rendition() {
  local version=$1 to=$copy/releases/v$1 csv
  mkdir -p "$to"
  cp -r "$copy/bundle" "$to/bundle"
  csv=$to/bundle/manifests/pgsteward.clusterserviceversion.yaml
  sed -i "s/^  name: pgsteward\.v.*/  name: pgsteward.v$version/; s/^  version: .*/  version: $version/" "$csv"
  [ $# = 1 ] || sed -i "s#$2#$3#g" "$csv"
  echo "BUNDLE_IMAGE=$(push_image bundle "$to/bundle")" >"$to/release.env"
}

# push_image bundle|catalog FOLDER: makes the image, pushes it, and prints its reference by digest. Nobody keeps it here.
push_image() {
  local reference digest name
  reference=$("$copy/hack/bundle/image.sh" "$1" "$2")
  digest=${reference#*@} name=${reference%@*}
  push_once "$REGISTRY/${IMAGE_BASE#*/}/${name##*/}:${digest:7:12}" "$KEPT/${digest#sha256:}.tar"
  [ -e "$kept/${digest#sha256:}" ] || rm "$KEPT/${digest#sha256:}.tar"
  echo "$reference"
}

# catalog: that of the copy's channels, as an image
catalog() {
  (cd "$copy" && VERSION=0.0.0 BUNDLE_IMAGE=none hack/bundle/catalog.sh)
  "$BIN/opm" validate "$copy/catalog" || die "opm does not like the catalog"
  push_image catalog "$copy/catalog"
}

# in_channels NAME=VERSIONS...: what the copy's channels have
in_channels() { local line; for line; do echo "${line%%=*}: [${line#*=}]"; done >"$copy/$CHANNELS_FILE"; }

# show NAME NEWEST: the copy's catalog, pushed
show() {
  local reference
  reference=$(catalog)
  printf '%s=%s\n' "$1" "$reference" "$1_NEWEST" "$2"
}

main() {
  local past head next broken mended first stable candidate
  copy=$(mktemp -d)
  kept=$(mktemp -d)
  trap 'rm -rf "$copy" "$kept"' EXIT
  [ -n "$(released)" ] || die "nothing has been released: there is nothing to upgrade from"
  LACKING=skip hack/bundle/publish.sh "$REGISTRY" >/dev/null
  for f in "$KEPT"/*.tar; do touch "$kept/$(basename "$f" .tar)"; done
  head=$(head_version) next=$(bump "$head") broken=$(bump "$next") mended=$(bump "$broken")
  past=$(released | paste -sd, | sed 's/,/, /g') first=${past%%,*}
  stable=$(channel_of "$head" stable) candidate=$(channel_of "$head" candidate)

  say "making bundles of this tree: v$head, v$next, v$broken (broken), v$mended"
  copy_tree "$copy"
  generate "$head"
  rendition "$head"
  rendition "$next"
  rendition "$broken" "image: .*/pgsteward[:@].*" "image: $REGISTRY/pgsteward:gone"
  rendition "$mended"
  {
    in_channels "$candidate=$first" "$stable=$first"
    show CATALOG_FIRST "$first"
    in_channels "$candidate=$past, $head, $next" "$stable=$past, $head"
    show CATALOG_HEAD "$next"
    in_channels "$candidate=$past, $head, $next, $broken" "$stable=$past, $head"
    show CATALOG_BROKEN "$broken"
    in_channels "$candidate=$past, $head, $next, $mended" "$stable=$past, $head"
    show CATALOG_MENDED "$mended"
    for f in HEAD NEXT; do
      version=${f,,}
      echo "BUNDLE_$f=$(sed -n "s/^BUNDLE_IMAGE=[^/]*//p" "$copy/releases/v${!version}/release.env")"
    done
    printf '%s=%s\n' RELEASES "${past//,/}" HEAD_VERSION "$head" NEXT_VERSION "$next" BROKEN_VERSION "$broken" MENDED_VERSION "$mended"
    printf '%s=%s\n' STABLE_CHANNEL "$stable" CANDIDATE_CHANNEL "$candidate"
  } >"$OUT.partial"
  mv "$OUT.partial" "$OUT"
}

main
