#!/usr/bin/env bash
# volume.sh STATE create NODE NAME BYTES   makes a volume, and mounts it if the node runs
#           STATE grow NODE NAME BYTES     makes it bigger while it is in use
#           STATE remove NODE NAME
#           STATE mount-all NODE           mounts all of the node's volumes (called on the node when it starts)
# A volume is a sparse file with an XFS of its own, loop-mounted in the node's mount namespace at /var/lib/pv/NAME: a full
# one is full, whatever the disk has left. When the node is killed its mounts go with it; the files stay.
# XFS and not ext4, because growing a mounted ext4 takes CAP_SYS_RESOURCE, which root of a sandbox may not have.
# up.sh copies this file to STATE/lib: it must stand alone.
set -euo pipefail
state=$1 cmd=$2 node=$3 name=${4:-} bytes=${5:-0}
dir=$state/nodes/$node/volumes image=$state/nodes/$node/volumes/$name.img target=/var/lib/pv/$name
least=$((320 << 20))   # mkfs.xfs makes nothing smaller than 300 MB

# init_pid: the node's PID 1 as this machine sees it; fails when the node does not run
init_pid() {
  local p s now
  read -r p s < "$state/run/$node.pid" 2>/dev/null || return 1
  now=$(sed 's/.*) //' "/proc/$p/stat" 2>/dev/null | awk '$1 != "Z" {print $20}')
  [ "$now" = "$s" ] || return 1
  tr -d ' ' < "/proc/$p/task/$p/children"
}
# a PID namespace too: mount and umount read /proc/self
on_node() { local p; p=$(init_pid) && [ -n "$p" ] && nsenter -t "$p" -m -p -- "$@"; }
# mount_one IMAGE TARGET, in the node's mount namespace
mount_one() {
  mkdir -p "$2"
  mountpoint -q "$2" && return
  # after a kill the old mount may live on for a moment; two of one file would destroy it
  for _ in $(seq 100); do [ -n "$(losetup -j "$1")" ] || break; sleep 0.1; done
  mount -t xfs -o loop,discard,noatime "$1" "$2"
  chmod 0777 "$2"
}
grow_mounted() { # the loop device takes the file's new size, the file system the device's
  local dev
  dev=$(losetup -nO NAME -j "$image" | head -1)
  [ -n "$dev" ] || { echo "volume $name is not mounted" >&2; return 1; }
  losetup -c "$dev"
  on_node xfs_growfs -d "$target" > /dev/null
}
case $cmd in
  create)
    mkdir -p "$dir"
    if [ ! -e "$image" ]; then
      truncate -s "$((bytes > least ? bytes : least))" "$image.new"; mkfs.xfs -q -K "$image.new"; mv "$image.new" "$image"
    fi
    ! init_pid > /dev/null || on_node bash "$0" "$state" mount "$node" "$name" ;;
  mount) mount_one "$image" "$target" ;;
  mount-all)
    mkdir -p "$dir"
    for image in "$dir"/*.img; do
      [ -e "$image" ] || continue
      target=/var/lib/pv/$(basename "$image" .img)
      # a volume that grew while its node was down takes its size now
      mount_one "$image" "$target" && xfs_growfs -d "$target" > /dev/null || echo "cannot mount $image" >&2
    done ;;
  grow)
    init_pid > /dev/null || { echo "$node does not run" >&2; exit 1; }
    [ "$(stat -c %s "$image")" -ge "$bytes" ] || truncate -s "$bytes" "$image"
    grow_mounted ;;
  remove)
    if init_pid > /dev/null; then
      ! on_node mountpoint -q "$target" || on_node umount "$target"
      ! on_node test -d "$target" || on_node rmdir "$target"
    else rmdir "$state/nodes/$node/var/lib/pv/$name" 2>/dev/null || true; fi
    rm -f "$image" "$image.new" ;;
  *) echo "volume.sh: no command $cmd" >&2; exit 2 ;;
esac
