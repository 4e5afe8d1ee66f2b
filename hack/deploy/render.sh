#!/usr/bin/env bash
# render.sh FOLDER - prints the manifests of a kustomize folder under config/ with these images, given by the environment:
#   OPERATOR_IMAGE, POSTGRES_15_IMAGE, POSTGRES_16_IMAGE, POSTGRES_17_IMAGE, POSTGRES_18_IMAGE
# and the version that is in each, if it is known: POSTGRES_16_VERSION, such as 16.14.
# A major without an image can be used only by clusters that name one. What config/ says of the last release's versions is not left.
set -euo pipefail
. "$(dirname "$0")/../env.sh"

MAJORS=(15 16 17 18)

# overlay FOLDER: a kustomization that puts the images into the manager's container and its environment, and, for the bundle,
# into what a catalog shows
overlay() {
  local major image version
  cat <<END
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- ../../config/$1
patches:
- patch: |-
    apiVersion: apps/v1
    kind: Deployment
    metadata:
      name: pgsteward-manager
      namespace: pgsteward-system
    spec:
      template:
        spec:
          containers:
          - name: manager
            image: $OPERATOR_IMAGE
            env:
            - name: OPERATOR_IMAGE
              value: $OPERATOR_IMAGE
END
  for major in "${MAJORS[@]}"; do
    image=POSTGRES_${major}_IMAGE
    version=POSTGRES_${major}_VERSION
    printf '            - name: RELATED_IMAGE_POSTGRES_%s\n              value: "%s"\n' "$major" "${!image:-}"
    printf '            - name: %s\n' "$version"
    if [ -n "${!version:-}" ]; then printf '              value: "%s"\n' "${!version}"; else printf '              $patch: delete\n'; fi
  done
  [ "$1" != manifests ] || container_image
}

# container_image: a patch for the ClusterServiceVersion
container_image() {
  cat <<END
- target:
    kind: ClusterServiceVersion
  patch: |-
    - op: replace
      path: /metadata/annotations/containerImage
      value: $OPERATOR_IMAGE
END
}

main() {
  if [ $# != 1 ] || [ ! -f "$ROOT/config/$1/kustomization.yaml" ]; then die "usage: render.sh default|manifests"; fi
  [ -n "${OPERATOR_IMAGE:-}" ] || die "no image given: OPERATOR_IMAGE is not set (make images writes bin/images.env)"
  [ -x "$BIN/kustomize" ] || "$ROOT/hack/tools/build.sh" kube
  # kustomize takes relative folders only, so the overlay lies in the tree: in bin/, which git ignores.
  work=$(mktemp -d "$BIN/render.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  overlay "$1" >"$work/kustomization.yaml"
  "$BIN/kustomize" build "$work"
}

main "$@"
