#!/usr/bin/env bash
# publish.sh REGISTRY - pushes the images of every release, and of the catalog, to a registry, under the names that the bundles have
# for them. Images are pushed by content: what is there already is left alone. What this machine has not kept is made again, but for
# PostgreSQL's images, which have what Debian had that day: without those it fails. LACKING=skip, which is for tests on a local
# cluster, goes on without, and says in bin/releases.env what to run instead (POSTGRES_17_IMAGE=...): what this tree builds.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
[ -n "${1:-}" ] || die "usage: publish.sh REGISTRY"
TO=$1
LACKING=${LACKING:-fail}
INSTEAD=$BIN/releases.env

# remake VERSION NAME: an image of a release, among those that are kept
remake() {
  case $2 in
  OPERATOR_IMAGE | BUNDLE_IMAGE) hack/bundle/remake.sh "$1" >&2 ;;
  POSTGRES_*) own_postgres "$(major_of "$2")" >/dev/null ;;
  esac
}

major_of() { tr -dc '0-9' <<<"${1%_IMAGE}"; }

# own_postgres MAJOR: what this tree makes of it, which may be the same; prints its reference
own_postgres() {
  images/operand.sh build "$1"
  keep postgres "$(images/operand.sh path "$1")"
}

# lacking VERSION NAME REFERENCE: it cannot be had any more
lacking() {
  local major own
  [ "$LACKING" = skip ] ||
    die "v$1's $2, $3, is not on this machine, and cannot be made again: it has the Debian packages of its day. Publish from the machine that made it"
  major=$(major_of "$2")
  say "v$1's image of PostgreSQL $major is lost (Debian has other packages now); ${INSTEAD#"$ROOT"/} names another"
  own=$(own_postgres "$major")
  in_registry "$own" || push_kept "$own" "$major"
  echo "POSTGRES_${major}_IMAGE=$own" >>"$INSTEAD"
}

# publish VERSION NAME REFERENCE TAG
publish() {
  ! in_registry "$3" || return 0
  is_kept "$3" || remake "$1" "$2"
  if is_kept "$3"; then push_kept "$3" "$4"; else lacking "$1" "$2" "$3"; fi
}

[ -x "$BIN/crane" ] || hack/tools/build.sh image
mkdir -p "$BIN"
: >"$INSTEAD"
for version in $(released); do
  while IFS='=' read -r name reference; do
    case $name in
    BUNDLE_IMAGE | OPERATOR_IMAGE) publish "$version" "$name" "$reference" "v$version" ;;
    POSTGRES_*_IMAGE) publish "$version" "$name" "$reference" "$(major_of "$name")-v$version" ;;
    esac
  done <"releases/v$version/release.env"
done
sort -u -o "$INSTEAD" "$INSTEAD"
catalog=$(hack/bundle/image.sh catalog catalog)
in_registry "$catalog" || push_kept "$catalog" latest
"$BIN/crane" tag "$(at "$catalog")" latest 2>/dev/null
echo "$catalog"
