#!/usr/bin/env bash
# release.sh VERSION - makes a release of the tree as it is committed: docs/releasing.md says what that means. On the way it
#   1. builds the images and pins them, by digest, in config/ and the bundle
#   2. makes the bundle, keeps it in releases/, and enters it into CHANNELS (candidate stable)
#   3. makes the catalog, and checks it all
#   4. commits, tags vVERSION, and begins the development of NEXT (the next minor version)
# RELEASED is its date, today if it is not given. It publishes nothing (make publish; git push).
set -euo pipefail
. "$(dirname "$0")/../env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
VERSION=${1:-}
CHANNELS=${CHANNELS:-candidate stable}
RELEASE=releases/v$VERSION
DEFAULTS=config/default/kustomization.yaml MANAGER=config/manager/manager.yaml CONSOLE=config/console/kustomization.yaml

# check: what must be so before anything is changed
check() {
  local last
  is_version "$VERSION" || die "usage: make release VERSION=0.2.0"
  [ -z "$(git status --porcelain)" ] || die "there are changes that are not committed: a release is of a commit"
  ! git rev-parse -q --verify "refs/tags/v$VERSION" >/dev/null || die "v$VERSION has been released: there is such a tag"
  [ ! -d "$RELEASE" ] || die "v$VERSION has been released: there is $RELEASE"
  last=$(released | tail -n 1)
  [ -z "$last" ] || [ "$(printf '%s\n' "$last" "$VERSION" | sort_versions | tail -n 1)" = "$VERSION" ] ||
    die "v$VERSION is older than v$last, the last release"
  [[ "$VERSION" != *-* || "$CHANNELS" != *stable* ]] || die "v$VERSION is a pre-release: CHANNELS=candidate"
}

# pin_images: builds the images and writes what they are, by digest, into what is made of this tree
pin_images() {
  local major
  say "building the images of v$VERSION"
  images/operator.sh build "$VERSION"
  images/operand.sh build "${MAJORS[@]}"
  {
    echo "# The images of v$VERSION, written by make release."
    echo "OPERATOR_IMAGE=$(keep pgsteward "$(images/operator.sh path "$VERSION")")"
    for major in "${MAJORS[@]}"; do
      echo "POSTGRES_${major}_IMAGE=$(keep postgres "$(images/operand.sh path "$major")")"
      echo "POSTGRES_${major}_VERSION=$(cat "$(dirname "$(images/operand.sh path "$major")")/version")"
    done
  } >"$PINS"
  pin_default
}

# pinned NAME: what PINS says
pinned() { sed -n "s/^$1=//p" "$PINS"; }

# pin_default: the same in what kubectl apply -k config/default of the tag installs
pin_default() {
  local major reference version
  reference=$(pinned OPERATOR_IMAGE)
  sed -i "s#^  newName: .*#  newName: ${reference%@*}#; s#^  \(newTag\|digest\): .*#  digest: ${reference#*@}#" "$DEFAULTS" "$CONSOLE"
  sed -i "s#config/\\(default\\|console\\)?ref=v[^']*#config/\\1?ref=v$VERSION#" README.md docs/console.md
  sed -i '/name: POSTGRES_[0-9]*_VERSION$/,+1d' "$MANAGER"
  for major in "${MAJORS[@]}"; do
    reference=$(pinned "POSTGRES_${major}_IMAGE") version=$(pinned "POSTGRES_${major}_VERSION")
    sed -i "/name: RELATED_IMAGE_POSTGRES_$major\$/ {n
      s#value: .*#value: $reference\n        - name: POSTGRES_${major}_VERSION\n          value: \"$version\"#}" "$MANAGER"
  done
  for reference in $(grep -oh '@sha256:.*' "$PINS"); do
    cat "$DEFAULTS" "$MANAGER" | grep -q "${reference#@}" || die "neither $DEFAULTS nor $MANAGER took $reference"
  done
}

# set_version VERSION: in the one place that says it
set_version() {
  sed -i "s/^VERSION ?= .*/VERSION ?= $1/" Makefile
  sed -i "s/^RELEASED   ?= .*/RELEASED   ?= $RELEASED/" hack/make/bundle.mk
}

# keep_bundle: the bundle, and the image that is made of it, in releases/
keep_bundle() {
  mkdir -p "$RELEASE"
  cp -r bundle "$RELEASE/bundle"
  {
    echo "# v$VERSION, as it was released. Nothing here changes."
    echo "GO=$(go env GOVERSION)" # which gives the same images again
    echo "BUNDLE_IMAGE=$(hack/bundle/image.sh bundle "$RELEASE/bundle")"
    grep -v '^#' "$PINS"
  } >"$RELEASE/release.env"
  (cd "$RELEASE" && find . -type f ! -name SHA256SUMS -printf '%P\0' | sort -z | xargs -0 sha256sum >SHA256SUMS)
}

enter_channels() {
  local kind
  # Before the first release the channels name what was being developed.
  [ -d releases ] || sed -i '/^[a-z].*: \[/d' "$CHANNELS_FILE"
  for kind in $CHANNELS; do enter "$VERSION" "$(channel_of "$VERSION" "$kind")"; done
}

# commit MESSAGE: what this script has written, and no more
commit() {
  git add -- Makefile README.md hack/make/bundle.mk config bundle bundle.Dockerfile catalog releases
  git commit --quiet -m "$1"
}

# begin NEXT: from here on it is the next version that is developed, with images by tag
begin() {
  rm "$PINS"
  set_version "$1"
  make -s bundle VERSION="$1"
  commit "Begin v$1"
}

check
RELEASED=${RELEASED:-$(date -u +%Y-%m-%dT00:00:00Z)}
IFS=. read -r major minor _ <<<"$VERSION"
NEXT=${NEXT:-$major.$((minor + 1)).0}
is_version "$NEXT" || die "NEXT=$NEXT is no version"

pin_images
set_version "$VERSION"
make -s bundle VERSION="$VERSION" RELEASED="$RELEASED"
enter_channels
keep_bundle
make -s catalog VERSION="$VERSION"
say "checking bundle and catalog"
make -s bundle-validate catalog-validate scorecard VERSION="$VERSION"
go test -count=1 ./internal/testing/packaging/ >&2
commit "Release v$VERSION"
git tag -a "v$VERSION" -m "v$VERSION"
begin "$NEXT"
say "v$VERSION is made; the tree is that of v$NEXT now. To publish: make publish TO=ghcr.io, git push --follow-tags"
