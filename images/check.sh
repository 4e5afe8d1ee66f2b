#!/usr/bin/env bash
# check.sh MAJOR... - tries the PostgreSQL images of the cache (images/operand.sh build) as our agent will use them: any user,
# nothing prepared but /etc/passwd, a read-only root file system. Needs root, but no cluster. Ends with 'N passed, N failed'.
set -euo pipefail
. "$(dirname "$0")/../hack/env.sh"
. "$(dirname "$0")/lib.sh"
LIMIT=240 # seconds for one image

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

# in_container ROOT PATH CMD...: in namespaces of its own, without a network, as user 12345, only /tmp and /run writable
in_container() {
  # shellcheck disable=SC2016 # expanded inside
  timeout -k 5 "$LIMIT" unshare --mount --pid --fork --kill-child --ipc --uts --net bash -euc '
    root=$1 path=$2; shift 2
    mount --make-rprivate /
    mount --bind "$root" "$root"
    mount --bind "$root.passwd" "$root/etc/passwd"
    mount -o remount,bind,ro "$root"
    mount -t proc proc "$root/proc"
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    for device in null zero random urandom; do
      touch "$root/dev/$device"
      mount --bind "/dev/$device" "$root/dev/$device"
    done
    mkdir -m 1777 "$root/dev/shm"
    ln -s /proc/self/fd "$root/dev/fd"
    for dir in tmp run; do mount -t tmpfs -o mode=1777 tmpfs "$root/$dir"; done
    ip link set lo up
    exec env -i PATH="$path" LANG=C.UTF-8 HOME=/tmp /usr/sbin/chroot --userspec=12345:12345 --groups= "$root" "$@" </dev/null
  ' - "$@"
}

# image_path TARBALL: the PATH that the image sets
image_path() {
  tar -xOf "$1" --wildcards 'sha256:*' | grep -aoE '"PATH=[^"]+"' | head -1 | sed 's/^"PATH=//; s/"$//'
}

check() {
  local major=$1 tarball root=$work/$1 report
  tarball=$("$ROOT/images/operand.sh" path "$major")
  mkdir -p "$root"
  "$BIN/crane" export - - <"$tarball" | tar -x -C "$root"
  echo 'postgres:x:12345:12345::/tmp:/bin/sh' >"$root.passwd"
  report=$(in_container "$root" "$(image_path "$tarball")" bash -c "$(cat "$ROOT/images/check-inside.sh")" inside "$major" 2>&1) ||
    report+=$'\n'"not ok $major ended early"
  printf '%s\n' "$report"
  passed=$((passed + $(grep -c '^ok ' <<<"$report" || true)))
  failed=$((failed + $(grep -c '^not ok ' <<<"$report" || true)))
  rm -rf --one-file-system "$root"
}

[ "$(id -u)" = 0 ] || die "check.sh needs root (a chroot)"
[ $# -gt 0 ] || set -- 15 16 17 18
passed=0 failed=0
for major; do check "$major"; done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
