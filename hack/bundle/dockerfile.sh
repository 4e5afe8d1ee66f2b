#!/usr/bin/env bash
# dockerfile.sh - does what catalog.Dockerfile says, without a container engine: runs its RUN line in a root with opm and the catalog,
# and serves the result by its CMD line, as OLM's Pod would. Without root it takes a user namespace.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
cd "$ROOT"
FILE=catalog.Dockerfile
BOUND=60 # seconds to begin to serve

# words INSTRUCTION: those of its JSON form, one a line
words() { sed -n "s/^$1 \[\(.*\)\]\$/\1/p" "$FILE" | tr -d '" ' | tr ',' '\n'; }

# at_root CMD...: runs it where / is the image, with a network of its own: OLM's port may be taken here
at_root() {
  local as=()
  [ "$(id -u)" = 0 ] || as=(--map-root-user)
  # shellcheck disable=SC2016 # expanded by that shell
  unshare "${as[@]}" --mount --net --pid --fork --kill-child sh -c 'ip link set lo up && exec chroot "$@"' sh "$root" "$@"
}

command -v ip >/dev/null || die "ip is missing (apt-get install iproute2)"
mapfile -t build < <(words RUN)
mapfile -t serve < <(words ENTRYPOINT; words CMD)
folder=$(sed -n 's/^ADD \([^ ]*\) \/configs$/\1/p' "$FILE")
[ ${#build[@]} -gt 1 ] && [ ${#serve[@]} -gt 1 ] && [ -d "$folder" ] || die "$FILE has no RUN, ENTRYPOINT and CMD in JSON, or adds no folder as /configs"

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/bin" "$root/etc" "$root/tmp"
echo '127.0.0.1 localhost' >"$root/etc/hosts"
cp -L "$BIN/opm" "$root/bin/opm"
cp -r "$folder" "$root/configs"
at_root "${build[@]}" >"$root/log" 2>&1 || { cat "$root/log" >&2; die "$FILE: RUN fails"; }
at_root "${serve[@]}" >"$root/log" 2>&1 &
server=$!
for _ in $(seq $((BOUND * 5))); do
  grep -q 'serving registry' "$root/log" && break
  kill -0 "$server" 2>/dev/null || break
  sleep 0.2
done
kill "$server" 2>/dev/null || true
wait "$server" 2>/dev/null || true
if ! grep -q 'serving registry' "$root/log" || grep -qi 'rebuild' "$root/log"; then
  cat "$root/log" >&2
  die "$FILE: what CMD starts does not serve the cache that RUN made"
fi
