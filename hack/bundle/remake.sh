#!/usr/bin/env bash
# remake.sh VERSION - makes the images of a release again, the operator's and the bundle's, from its commit and by the Go that made
# it, and keeps them among those of releases. They must come out as the release has them.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
version=${1:-}
[ -n "$version" ] || die "usage: remake.sh VERSION"

# same NAME REFERENCE: it is what the release has
same() {
  local wanted; wanted=$(of_release "$version" "$1")
  [ "$2" = "$wanted" ] ||
    die "v$version's $1, made again from its commit, is $2, and the release has $wanted (another Go? is hack/tools/image the same?)"
}

source=$(hack/bundle/source.sh "$version")
GOTOOLCHAIN=$(of_release "$version" GO)
export GOTOOLCHAIN # Go fetches it, if it is another
[ "$(cd "$source" && go env GOVERSION)" = "$GOTOOLCHAIN" ] ||
  die "v$version was made by $GOTOOLCHAIN; this machine has $(GOTOOLCHAIN=local go env GOVERSION), and cannot fetch that"
say "making v$version's operator and bundle from its commit, by $GOTOOLCHAIN"
"$source/images/operator.sh" build "$version"
same OPERATOR_IMAGE "$(keep pgsteward "$("$source/images/operator.sh" path "$version")")"
same BUNDLE_IMAGE "$("$source/hack/bundle/image.sh" bundle "$source/releases/v$version/bundle")"
