# hack/env.sh - where things lie; sourced by the scripts under hack/ and images/.
# Whatever is built or downloaded is kept in CACHE, outside the work tree, in folders named by a hash of what it was made from.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${PGSTEWARD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pgsteward}
BIN=$ROOT/bin
export CACHE
say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }
die() { say "error: $*"; exit 1; }
# content_key PATH...: a hash of the files below (names and contents) and of the Go toolchain
content_key() {
  { go env GOVERSION; find "$@" -type f -print0 | sort -z | xargs -0 sha256sum | sed "s#$ROOT/##"; } | sha256sum | cut -c1-16
}
# retry N CMD...: runs CMD until it succeeds, N times at most, with a growing pause (for registries that falter)
retry() {
  local n=$1 i; shift
  for i in $(seq "$n"); do "$@" && return; [ "$i" = "$n" ] || { say "failed, again in $((i*5)) s: $*"; sleep $((i*5)); }; done
  return 1
}
# copy_tree DIR: the work tree, committed or not, without what git ignores, to generate in; its bin/ has links to what ours has
copy_tree() {
  local f
  git -C "$ROOT" ls-files -z -co --exclude-standard | while IFS= read -r -d '' f; do [ ! -e "$ROOT/$f" ] || printf '%s\0' "$f"; done |
    tar -C "$ROOT" -c --null -T - | tar -x -C "$1"
  mkdir -p "$1/bin"
  for f in "$BIN"/*; do [ ! -e "$f" ] || ln -s "$f" "$1/bin/$(basename "$f")"; done
}
