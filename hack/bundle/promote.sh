#!/usr/bin/env bash
# promote.sh VERSION KIND... - puts a release into more channels (stable), and makes the catalog.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
version=${1:-}
[ -d "releases/v$version" ] || die "v$version has not been released (releases/ has: $(released | paste -sd' '))"
shift
for kind; do enter "$version" "$(channel_of "$version" "$kind")"; done
make -s catalog catalog-validate
go test -count=1 -run Catalog ./internal/testing/packaging/ >&2
say "v$version is in ${*}; look at it (git diff) and commit it"
