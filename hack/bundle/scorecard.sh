#!/usr/bin/env bash
# scorecard.sh [BUNDLE] - runs the scorecard's tests on a bundle (bundle/), without a cluster. All must pass, and suggest nothing.
# They read the bundle at /bundle, as in their image; without root, in a user namespace that shows it there.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
BUNDLE=$(realpath "${1:-$ROOT/bundle}")
TESTS=(basic-check-spec olm-bundle-validation olm-crds-have-validation olm-crds-have-resources olm-spec-descriptors olm-status-descriptors)

# at_root CMD...: runs it where / has the bundle as /bundle beside what it has anyway. The machine's own / is not changed.
at_root() {
  local as=()
  [ "$(id -u)" = 0 ] || as=(--map-root-user)
  unshare "${as[@]}" --mount bash -c '
    set -e
    mount -t tmpfs none "$1"
    mkdir "$1/bundle" "$1/bin" "$1/tmp"
    cp -r "$2/." "$1/bundle/"
    cp -L "$3" "$1/bin/scorecard-test"
    exec chroot "$1" /bin/scorecard-test "${@:4}"' - "$work" "$BUNDLE" "$BIN/scorecard-test" "$@"
}

work=$(mktemp -d)
trap 'rmdir "$work"' EXIT
failed=0
for test in "${TESTS[@]}"; do
  said=$(at_root "$test") || die "the scorecard's test $test does not run: $said"
  # the result is JSON; what it must not have is another state than pass, and suggestions
  if ! grep -q '"state": "pass"' <<<"$said" || grep -Eq '"state": "(fail|error)"|"suggestions"' <<<"$said"; then
    echo "$said" >&2
    failed=1
  fi
done
[ "$failed" = 0 ] || die "the scorecard is not content with $BUNDLE"
