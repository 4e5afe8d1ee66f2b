#!/usr/bin/env bash
# image.sh bundle FOLDER | catalog FOLDER - makes the image of a bundle's or catalog's folder, without a container engine, keeps it
# among those of releases, and prints its reference by digest. The same folder gives the same image. It is what bundle.Dockerfile
# says; that of a catalog has, instead of opm, only the files, for those who bring opm (OLM: extractContent, OLM v1).
set -euo pipefail
. "$(dirname "$0")/../env.sh"
. "$(dirname "$0")/lib.sh"

# files FOLDER DST: flags that put every file of a folder below DST
files() {
  local f
  while read -r f; do printf -- '-add\n%s=%s/%s\n' "$1/$f" "$2" "$f"; done < <(cd "$1" && find . -type f -printf '%P\n' | sort)
}

# labels: flags for what annotations.yaml of a bundle says, which is what the Dockerfile's labels are
labels() { sed -n 's/^  \([a-z][^:]*\): \(.*\)$/-label\n\1=\2/p' "$1/metadata/annotations.yaml"; }

# make_image NAME FLAG...
make_image() {
  local name=$1 digest; shift
  [ -x "$BIN/mkimage" ] || "$ROOT/hack/tools/build.sh" image
  mkdir -p "$KEPT"
  digest=$("$BIN/mkimage" "$@" -tag "$name:latest" -o "$KEPT/new.$$.tar")
  mv "$KEPT/new.$$.tar" "$KEPT/${digest#sha256:}.tar"
  echo "$IMAGE_BASE/$name@$digest"
}

[ $# = 2 ] && [ -d "$2" ] || die "usage: image.sh bundle|catalog FOLDER"
# Git keeps of a file's mode only whether it can be run; OLM reads these files as another user.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$2/." "$copy/"
find "$copy" -type f -exec chmod 644 {} +
case $1 in
bundle)
  mapfile -t flags < <(files "$copy/manifests" /manifests; files "$copy/metadata" /metadata
    files "$copy/tests/scorecard" /tests/scorecard; labels "$copy")
  make_image pgsteward-bundle "${flags[@]}"
  ;;
catalog)
  mapfile -t flags < <(files "$copy" /configs)
  make_image pgsteward-catalog "${flags[@]}" -label operators.operatorframework.io.index.configs.v1=/configs
  ;;
*) die "usage: image.sh bundle|catalog FOLDER" ;;
esac
