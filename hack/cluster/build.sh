#!/usr/bin/env bash
# build.sh - makes the programs and images of the local cluster in the cache, and links kubectl, etcd and kube-apiserver
# into bin/. What is there already, made from the same sources, is used as it is. Prints the folder (the bundle).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=env.sh
. "$(dirname "$0")/env.sh"
PLACE=$CACHE/cluster
export CGO_ENABLED=0
command -v go >/dev/null || die "Go is missing: install 1.26 or newer, see https://go.dev/dl"

# cached NAME KEY FUNCTION: the folder PLACE/NAME-KEY, which FUNCTION fills (its argument) unless it is complete
cached() {
  local dir=$PLACE/$1-$2
  if [ ! -e "$dir/.complete" ]; then
    rm -rf "$dir"; mkdir -p "$dir"
    "$3" "$dir" >&2
    touch "$dir/.complete"
  fi
  echo "$dir"
}
# quietly MESSAGE CMD...: runs CMD, and says every minute that it still runs
quietly() {
  local what=$1 t0=$SECONDS teller; shift
  say "$what"
  while sleep 60; do say "$what: $(((SECONDS-t0)/60)) min"; done & teller=$!
  "$@" || { kill $teller; die "failed: $what"; }
  kill $teller; wait $teller 2>/dev/null || true
}
# Kubernetes' components, kubectl and etcd in one program
build_hyperkube() {
  local version info date flags="-s -w"
  cd "$HERE/src/hyperkube"
  version=$(awk '$1 == "require" && $2 == "k8s.io/kubernetes" {print $3}' go.mod)
  quietly "downloading Kubernetes $version" retry 5 go mod download k8s.io/kubernetes
  info=$(go mod download -json k8s.io/kubernetes | sed -n 's/.*"Info": "\(.*\)",/\1/p')
  date=$(sed -n 's/.*"Time":"\([^"]*\)".*/\1/p' "$info")
  for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $p.gitVersion=$version -X $p.gitMajor=1 -X $p.gitMinor=$(cut -d. -f2 <<< "$version") -X $p.gitTreeState=clean -X $p.buildDate=$date"
  done
  quietly "building Kubernetes $version (10 minutes on two cores the first time)" \
    retry 3 go build -mod=readonly -buildvcs=false -trimpath -ldflags "$flags" -o "$1/hyperkube" .
}
# containerd, CoreDNS, crictl and our own small programs
build_tools() {
  local version variable=github.com/containerd/containerd/v2/version
  cd "$HERE/src/tools"
  version=$(awk '$1 == "github.com/containerd/containerd/v2" {print $2}' go.mod)
  quietly "building containerd $version, CoreDNS and tools" retry 3 go build -mod=readonly -buildvcs=false -trimpath \
    -tags "urfave_cli_no_docs osusergo netgo static_build no_btrfs no_zfs no_devmapper" \
    -ldflags "-s -w -X $variable.Version=$version -X $variable.Package=github.com/containerd/containerd/v2" -o "$1/" ./cmd/... tool
}
# pause, which every pod needs, and busybox, a small image with a shell for checks
mkimage() { "$BIN/mkimage" -arch "$(go env GOARCH)" "$@" >/dev/null; }
build_images() {
  local dir=$1 work lib applet bb
  work=$(mktemp -d); mkdir -p "$dir/preload" "$dir/push"
  mkimage -tag 127.0.0.1:5000/pause:1 -o "$dir/preload/pause.tar" -add "$TOOLS/pause=/pause" -entrypoint /pause -user 65535:65535
  # Debian's busybox with the C library of this machine (the static one crashes on host names)
  chmod 755 "$work"; (cd "$work" && retry 3 apt-get download -qq busybox 2>/dev/null && dpkg -x busybox_*.deb .)
  bb=$(find "$work" -path '*bin/busybox' -type f)
  printf 'passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n' > "$work/nsswitch.conf"
  printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n' > "$work/passwd"
  local args=(-add "$bb=/bin/busybox" -add "$work/passwd=/etc/passwd" -add "$work/nsswitch.conf=/etc/nsswitch.conf" -mkdir tmp=1777 -mkdir root)
  for lib in $(ldd "$bb" | grep -o '/[^ ]*'); do args+=(-add "$(realpath "$lib")=$lib"); done
  for applet in $("$bb" --list); do [ "$applet" = busybox ] || args+=(-link "bin/$applet=busybox"); done
  mkimage -tag 127.0.0.1:5000/busybox:1 -o "$dir/push/busybox.tar" "${args[@]}" -cmd sh -env PATH=/bin
  rm -rf "$work"
}
# the bundle: links to all of it under the names they are called by
build_bundle() {
  mkdir -p "$1/bin"
  ln -s "$KUBE/hyperkube" "$1/bin/hyperkube"
  for p in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do ln -s hyperkube "$1/bin/$p"; done
  for p in "$TOOLS"/*; do ln -s "$p" "$1/bin/$(basename "$p")"; done
  ln -s "$IMAGES" "$1/images"
}

KUBE=$(cached hyperkube "$(content_key "$HERE/src/hyperkube")" build_hyperkube)
TOOLS=$(cached tools "$(content_key "$HERE/src/tools")" build_tools)
"$ROOT/hack/tools/build.sh" image
IMAGES=$(cached images "$(content_key "$HERE/src/tools/cmd/pause" "$HERE/build.sh" "$ROOT/hack/tools/image")" build_images)
bundle=$(cached bundle "$(echo "$KUBE $TOOLS $IMAGES" | sha256sum | cut -c1-16)" build_bundle)
link_programs "$bundle"
echo "$bundle"
