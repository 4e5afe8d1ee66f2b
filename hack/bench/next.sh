#!/usr/bin/env bash
# next.sh VERSION - builds the operator once more, as if it were the next version, pushes it to REGISTRY, and writes it to
# bin/images.env as CHAOS_NEXT_OPERATOR_IMAGE: something to upgrade to. OPERATOR_IMAGE stays as it is.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../env.sh
. "$(dirname "$0")/../env.sh"
# shellcheck source-path=SCRIPTDIR source=../../images/lib.sh
. "$ROOT/images/lib.sh"
image() { sed -n 's/^OPERATOR_IMAGE=//p' "$RESULTS"; }
present=$(image)
[ -n "$present" ] || die "bin/images.env names no OPERATOR_IMAGE: run make images"
"$ROOT/images/operator.sh" build "$1-next"
REGISTRY=$REGISTRY "$ROOT/images/operator.sh" push "$1-next"
record "CHAOS_NEXT_OPERATOR_IMAGE=$(image)" "OPERATOR_IMAGE=$present"
