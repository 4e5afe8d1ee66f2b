#!/usr/bin/env bash
# rootfs.sh SUITE MAJOR DIR - makes the layers of a PostgreSQL image from Debian's packages, without a container engine:
#   DIR/base.tar.gz    the system below PostgreSQL: libraries, ICU, locales, time zones, certificates, pgBackRest
#   DIR/client.tar.gz  the programs of /usr/lib/postgresql/MAJOR/bin that a server of another major can use too
#   DIR/server.tar.gz  the rest of /usr/lib/postgresql/MAJOR and /usr/share/postgresql/MAJOR
#   DIR/version        PostgreSQL's exact version
# The same packages give the same bytes. Needs root and mmdebstrap.
set -euo pipefail
suite=$1 major=$2 out=$3
security_suites='bookworm trixie' # sid has none
here=$(cd "$(dirname "$0")" && pwd)

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
export TZ=UTC LC_ALL=C SOURCE_DATE_EPOCH=0

# mirror: this machine's, if it is a Debian
mirror() { awk '$1 == "URIs:" && $2 ~ /debian\/?$/ {print $2; exit}' /etc/apt/sources.list.d/debian.sources 2>/dev/null; }

apt_sources() {
  local mirror=${DEBIAN_MIRROR:-$(mirror)}
  mirror=${mirror:-http://deb.debian.org/debian}
  mirror=${mirror%/}
  echo "deb $mirror $suite main"
  [[ " $security_suites " == *" $suite "* ]] || return 0
  echo "deb $mirror $suite-updates main"
  echo "deb ${DEBIAN_SECURITY_MIRROR:-$mirror-security} $suite-security main"
}

# What this machine's apt was told about fetching (proxy, clock) holds for the new system's packages as well.
apt_options() { apt-config dump | grep -E '^Acquire::(http|https|Check|Retries)' || true; }

bootstrap() {
  local exclude=(
    '/usr/share/man/*' '/usr/share/info/*' '/usr/share/locale/*' '/usr/share/lintian/*' '/usr/share/doc/*'
    # JIT: LLVM would be two thirds of the image. PostgreSQL does without if the library is not there.
    '/usr/lib/*/libLLVM*' '/usr/lib/llvm*' '/usr/lib/*/libz3.*' '/usr/lib/postgresql/*/lib/llvmjit*' '/usr/lib/postgresql/*/lib/bitcode/*'
    '/usr/lib/postgresql/*/lib/pgxs/*' '*.a'
  )
  apt_options >"$work/apt.conf"
  apt_sources >"$work/sources.list"
  # The user gets its number before a package makes one up; no data directory is made; postgresql-common's Perl is not kept.
  # shellcheck disable=SC2016 # the hooks are expanded by mmdebstrap
  mmdebstrap --mode=root --variant=essential --format=directory \
    --include="postgresql-$major,postgresql-client-$major,pgbackrest,locales,tzdata,ca-certificates" \
    --aptopt='APT::Install-Recommends "false"' --aptopt="$work/apt.conf" \
    "${exclude[@]/#/--dpkgopt=path-exclude=}" --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --essential-hook='echo postgres:x:999: >>"$1/etc/group"' \
    --essential-hook='echo postgres:x:999:999:PostgreSQL:/var/lib/postgresql:/bin/bash >>"$1/etc/passwd"' \
    --essential-hook='mkdir -p "$1/etc/postgresql-common"' \
    --essential-hook='echo create_main_cluster=false >"$1/etc/postgresql-common/createcluster.conf"' \
    "$suite" "$root" "$work/sources.list" 2>"$work/log" || { tail -n 40 "$work/log" >&2; return 1; }
}

# locales: C.UTF-8 is built in; en_US.UTF-8 is what databases from elsewhere most often have. Others: use ICU.
add_locale() { chroot "$root" localedef -i en_US -f UTF-8 en_US.UTF-8; }

# trim removes what only a package manager, a person at a terminal or Debian's Perl wrappers would need.
trim() (
  shopt -s nullglob dotglob
  cd "$root"
  # The lists say which file belongs to which package: needed below, then gone.
  cp "var/lib/dpkg/info/postgresql-client-$major.list" "$work/client.list"
  rm -rf usr/share/postgresql/*/man usr/bin/perl* usr/share/perl* usr/share/perl5 usr/lib/*/perl* usr/lib/*/libperl.so* \
    usr/share/i18n usr/share/bash-completion usr/share/gcc usr/share/gdb usr/share/debconf usr/share/postgresql-common \
    usr/lib/systemd usr/lib/tmpfiles.d usr/lib/sysusers.d usr/lib/init \
    usr/bin/pg_* usr/bin/psql usr/bin/createdb usr/bin/dropdb usr/bin/createuser usr/bin/dropuser usr/bin/clusterdb \
    usr/bin/reindexdb usr/bin/vacuumdb usr/bin/vacuumlo usr/bin/oid2name usr/bin/pgbench \
    etc/postgresql etc/postgresql-common etc/pgbackrest.conf etc/init.d etc/rc?.d etc/cron.* etc/logrotate.d etc/apt etc/systemd \
    etc/shadow* etc/gshadow* etc/passwd- etc/group- etc/subuid* etc/subgid* etc/.pwd.lock etc/machine-id etc/hostname etc/resolv.conf \
    etc/ssl/private etc/ssl/certs/ssl-cert-snakeoil.pem \
    var/cache/* var/log/* var/lib/apt var/lib/postgresql/* var/lib/systemd var/lib/dpkg/info var/lib/dpkg/*-old var/lib/dpkg/lock* \
    var/lib/dpkg/triggers tmp/* run/* root dev/* boot home media mnt opt srv
  find etc/ssl/certs -xtype l -delete
  sed -i '/^ssl-cert:/d' etc/group
  # Nothing here needs to become root, and everything must be readable by any user.
  find . -xdev -type f -perm /6000 -exec chmod ug-s {} +
  find . -xdev ! -type l ! -perm -o=r -exec chmod a+rX {} +
  # The user is not known before the container runs; these are usually volumes.
  mkdir -p run/postgresql var/lib/postgresql var/lib/pgbackrest var/log/pgbackrest var/spool/pgbackrest etc/pgbackrest
  chmod 1777 tmp var/tmp run/postgresql var/lib/postgresql var/lib/pgbackrest var/log/pgbackrest var/spool/pgbackrest
  chroot . ldconfig -X && rm -rf var/cache/ldconfig
)

# pack FILE PATH...: paths of the new system as a layer; sorted and with fixed times, so that nothing but content counts
pack() {
  local file=$1; shift
  tar -C "$root" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --no-recursion --null --files-from=<(
    cd "$root" && find "$@" -print0 | sort -z
  ) -c | gzip -n -6 >"$file"
}

# split: first the client's files, then the other ones of this major, then all the rest
split() {
  local server=("usr/lib/postgresql/$major" "usr/share/postgresql/$major") client=()
  mapfile -t client < <(
    cd "$root"
    { sed 's#^/##' "$work/client.list"; sed '/^#/d; /^$/d; s#^#usr/lib/postgresql/'"$major"'/bin/#' "$here/foreign-tools"; } |
      grep -E "^usr/(lib|share)/postgresql/$major/." | sort -u |
      while read -r path; do [ -d "$path" ] || [ ! -e "$path" ] || echo "$path"; done
  )
  pack "$out/client.tar.gz" "${client[@]}"
  (cd "$root" && rm -f "${client[@]}")
  pack "$out/server.tar.gz" "${server[@]}"
  rm -rf "$root/usr/lib/postgresql" "$root/usr/share/postgresql"
  pack "$out/base.tar.gz" .
}

bootstrap
add_locale
trim
mkdir -p "$out"
chroot "$root" "/usr/lib/postgresql/$major/bin/postgres" --version | grep -oE '[0-9]+(\.[0-9]+|[a-z]+[0-9]+)' | head -1 >"$out/version"
split
