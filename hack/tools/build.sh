#!/usr/bin/env bash
# build.sh MODULE... - builds the programs of the Go modules hack/tools/MODULE (its "tool" lines and its cmd/ folder)
# into the cache, keyed by content, and links them into bin/. A second call only sets the links.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
for module in "$@"; do
  src=$ROOT/hack/tools/$module
  [ -f "$src/go.mod" ] || die "no module $src"
  out=$CACHE/tools/$module-$(content_key "$src")
  mkdir -p "$CACHE/tools"
  exec {lock}>"$CACHE/tools/$module.lock"
  flock "$lock" # parts of "make test" build at the same time
  if [ ! -e "$out/.complete" ]; then
    say "building tools: $module"
    mkdir -p "$out"
    flags=(-trimpath -ldflags "-s -w $(cat "$src/ldflags" 2>/dev/null || true)")
    [ ! -f "$src/tags" ] || flags+=(-tags "$(cat "$src/tags")")
    pkgs=(); grep -Eq '^tool( |\()' "$src/go.mod" && pkgs+=(tool)
    [ ! -d "$src/cmd" ] || pkgs+=(./cmd/...)
    (cd "$src" && retry 3 go mod download && CGO_ENABLED=0 go build -mod=readonly "${flags[@]}" -o "$out/" "${pkgs[@]}")
    touch "$out/.complete"
  fi
  exec {lock}>&-
  mkdir -p "$BIN"
  for f in "$out"/*; do ln -sfn "$f" "$BIN/$(basename "$f")"; done
done
