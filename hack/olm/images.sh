#!/usr/bin/env bash
# images.sh - makes the images that OLM consists of and works with, without a container engine, pushes them to REGISTRY (the local
# cluster's), and writes their references to bin/olm.env. What is in the cache, made of the same programs, is not made again.
#   OLM_IMAGE        OLM's operators and the package server, with what a bundle's unpacking needs
#   OPM_IMAGE        opm, which serves catalogs
#   TOOLS_IMAGE      a shell, tar and gzip, not as root: for operator-sdk run bundle and for the scorecard's Pods
# and, under names that others have chosen, the scorecard's tests (the bundle's scorecard configuration), and what unpacks the
# catalog of operator-sdk run bundle-upgrade.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
. "$(dirname "$0")/lib.sh"
SCORECARD=$(sed -n 's#^ *image: quay.io/\(operator-framework/scorecard-test:.*\)#\1#p' "$ROOT/bundle/tests/scorecard/config.yaml" | sort -u)
DECOMPRESSION=$("$BIN/operator-sdk" run bundle --help | sed -n 's#.*--decompression-image.*(default "[^/]*/\(.*\)").*#\1#p')

# base: the local cluster's busybox, as a tarball
base() {
  local out=$work/busybox.tar
  [ -f "$out" ] || "$BIN/crane" pull "$REGISTRY/busybox:1" "$out" >/dev/null 2>&1 || die "no busybox in $REGISTRY: make cluster pushes it"
  echo "$out"
}

# image NAME FILE... -- FLAG...: makes NAME of these files in /bin, unless the cache has it; prints the folder with image.tar and digest
image() {
  local name=$1 dir files=() flags=(); shift
  while [ "$1" != -- ]; do files+=("$1"); flags+=(-add "$(readlink -f "$1")=/bin/$(basename "$1")"); shift; done
  shift
  dir=$OLM_STORE/$name-$({ cat "$0" "${files[@]}"; "$BIN/crane" digest "$REGISTRY/busybox:1"; } | short_hash)
  if [ ! -d "$dir" ]; then
    say "assembling the image of $name"
    rm -rf "$OLM_STORE/$name-"*
    mkdir -p "$dir.partial"
    "$BIN/mkimage" -base "$(base)" "${flags[@]}" -user 1001:1001 -env PATH=/bin "$@" -tag "$name:latest" -o "$dir.partial/image.tar" >"$dir.partial/digest"
    mv "$dir.partial" "$dir"
  fi
  echo "$dir"
}

# reference NAME DIR: what it is called in the registry, by its content
reference() { local digest; digest=$(cat "$2/digest"); echo "$REGISTRY/$1:${digest:7:12}"; }

# publish NAME DIR: pushes it, and prints its reference
publish() {
  local ref; ref=$(reference "$1" "$2")
  push_once "$ref" "$2/image.tar"
  echo "$ref"
}

# push_as NAME DIR: under a tag that is not ours to choose, so what it names may have changed
push_as() {
  [ "$("$BIN/crane" digest "$REGISTRY/$1" 2>/dev/null)" = "$(cat "$2/digest")" ] ||
    retry 3 "$BIN/crane" push "$2/image.tar" "$REGISTRY/$1" >/dev/null 2>&1 || die "cannot push $REGISTRY/$1"
}

main() {
  local olm opm tools scorecard
  tools
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  olm=$(image olm "$BIN"/{olm,catalog,package-server,copy-content,cpb} -- -entrypoint /bin/olm)
  # OLM calls it by this name
  ln -sfn "$(readlink -f "$BIN/grpc-health-probe")" "$work/grpc_health_probe"
  opm=$(image opm "$BIN/opm" "$work/grpc_health_probe" -- -entrypoint /bin/opm \
    -label operators.operatorframework.io.index.configs.v1=/configs -mkdir configs)
  tools=$(image shell -- -cmd sh)
  scorecard=$(image scorecard-test "$BIN/scorecard-test" -- -entrypoint /bin/scorecard-test)
  {
    echo "OLM_IMAGE=$(publish olm "$olm")"
    echo "OPM_IMAGE=$(publish opm "$opm")"
    echo "TOOLS_IMAGE=$(publish olm-tools "$tools")"
  } >"$OLM_IMAGES.partial"
  mv "$OLM_IMAGES.partial" "$OLM_IMAGES"
  push_as "$SCORECARD" "$scorecard"
  push_as "$DECOMPRESSION" "$tools"
}

main
