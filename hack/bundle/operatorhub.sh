#!/usr/bin/env bash
# operatorhub.sh OUT - lays out what the community catalogs (k8s-operatorhub/community-operators and its sibling for OpenShift) take
# in a pull request: operators/pgsteward/ with ci.yaml, catalog templates, and a folder for each release with its bundle and
# release-config.yaml. They render the templates, pulling the bundles' images; so does this, and the edges must be those of our catalog.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
[ -n "${1:-}" ] || die "usage: operatorhub.sh OUT"
out=$1/operators/pgsteward
CATALOG=catalog/pgsteward/catalog.yaml
REVIEWERS=${REVIEWERS:-pgsteward}
CATALOGS=${CATALOGS:-v4.19 v4.20 v4.21} # folders of the catalogs' repository

ci() {
  printf -- '---\nreviewers:\n'
  printf -- '- %s\n' $REVIEWERS
  # basic.yaml is what is rendered; semver.yaml says the same, for catalogs that are ordered by version alone
  printf 'fbc:\n  enabled: true\n  catalog_mapping:\n  - template_name: basic.yaml\n    type: olm.template.basic\n    catalog_names:\n'
  printf -- '    - %s\n' $CATALOGS
}

# basic: the catalog without what can be had from the bundles' images
basic() {
  printf -- '---\nschema: olm.template.basic\nentries:\n'
  split "$CATALOG"
  for version in $(released); do printf -- '- schema: olm.bundle\n  image: %s\n' "$(image_of "$version")"; done
}

# split FILE: its documents as elements of a list
split() { awk '/^---$/ {first = 1; next} {print (first ? "- " : "  ") $0; first = 0}' "$1"; }

image_of() { sed -n 's/^BUNDLE_IMAGE=//p' "releases/v$1/release.env"; }

# semver: which release is how stable
semver() {
  local kind version channel
  printf -- '---\nschema: olm.semver\ngenerateMajorChannels: true\ngenerateMinorChannels: false\n'
  for kind in candidate stable; do
    printf '%s:\n  bundles:\n' "${kind^}"
    for channel in $(channels | grep "^$kind-"); do
      for version in $(versions "$channel"); do printf -- '  - image: %s\n' "$(image_of "$version")"; done
    done
  done
}

# edge VERSION CHANNEL FIELD: what the catalog's entry has there
edge() {
  awk -v name="pgsteward.v$1" -v channel="$2" -v field="$3:" '
    $1 == "name:" {here = $2 == channel} $1 == "-" && $2 == "name:" {entry = here && $3 == name}
    entry && $1 == field {sub(/^ *[A-Za-z]+: */, ""); print; exit}' "$CATALOG"
}

# release_config VERSION: where the pipeline enters the bundle
release_config() {
  local channel replaces range
  printf -- '---\ndefaultChannel: %s\ncatalog_templates:\n' "$(sed -n 's/^defaultChannel: //p' "$CATALOG")"
  for channel in $(channels); do
    versions "$channel" | grep -qxF "$1" || continue
    replaces=$(edge "$1" "$channel" replaces) range=$(edge "$1" "$channel" skipRange)
    printf -- '- template_name: basic.yaml\n  channels: [%s]\n' "$channel"
    [ -z "$replaces" ] || printf '  replaces: %s\n  skipRange: %s\n' "$replaces" "$range"
  done
}

[ -n "$(released)" ] || die "nothing has been released (make release VERSION=…)"
rm -rf "$out"
mkdir -p "$out/catalog-templates"
ci >"$out/ci.yaml"
basic >"$out/catalog-templates/basic.yaml"
semver >"$out/catalog-templates/semver.yaml"
for version in $(released); do
  cp -r "releases/v$version/bundle" "$out/$version"
  release_config "$version" >"$out/$version/release-config.yaml"
done
rendered=$(mktemp -d)
trap 'rm -rf "$rendered"' EXIT
hack/bundle/templates.sh "$out/catalog-templates" "$rendered"
OPERATORHUB=$(realpath "$out") RENDERED=$rendered go test -count=1 -run OperatorHub ./internal/testing/packaging/ >&2
say "$out is ready; copy it into a fork of the catalogs' repository, one pull request for each release"
