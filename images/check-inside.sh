# shellcheck shell=bash disable=SC2317,SC2086,SC2046 # the functions are called by try; our paths have no spaces
# check-inside.sh MAJOR - run by check.sh in an image: a primary and a standby by the agent's own steps.
set -u
major=$1
data=/tmp/data standby=/tmp/standby tls=/tmp/tls
export PGHOST=localhost PGUSER=postgres PGDATABASE=postgres PGPASSWORD=secret PGSSLMODE=verify-full PGSSLROOTCERT=$tls/ca.crt
export PGCONNECT_TIMEOUT=5

# try NAME CMD...: one check; what the command said is shown if it fails
try() {
  local name=$1 said; shift
  if said=$("$@" 2>&1 </dev/null); then
    echo "ok $major $name"
  else
    echo "not ok $major $name"
    printf '%s\n' "$said" | tail -n 15 | sed 's/^/    /'
  fi
}

# equals WANT CMD...
equals() {
  local want=$1 got; shift
  got=$("$@") || return
  [ "$got" = "$want" ] || { echo "got '$got', want '$want'"; return 1; }
}

is_read_only() { ! touch /usr/x 2>/dev/null && ! touch /etc/x 2>/dev/null; }
all_readable() { local f; f=$(find / -xdev ! -type l \( ! -readable -o -perm /6000 -type f \) 2>/dev/null | head -5); [ -z "$f" ] || { echo "$f"; return 1; }; }
libraries_found() {
  local f bad=0
  for f in /usr/lib/postgresql/*/bin/* $(find /usr/lib/postgresql -name '*.so') "$(command -v pgbackrest)"; do
    if ldd "$f" 2>/dev/null | grep -q 'not found'; then echo "$f: $(ldd "$f" | grep 'not found' | head -3)"; bad=1; fi
  done
  return $bad
}
first_on_path() { case $(command -v postgres) in /usr/lib/postgresql/"$major"/bin/postgres) ;; *) command -v postgres; return 1 ;; esac; }
programs() {
  local p missing=
  for p in initdb pg_ctl postgres psql pg_basebackup pg_dump pg_dumpall pg_restore pg_isready pg_controldata \
    pg_receivewal pgbench vacuumdb reindexdb createdb; do
    command -v "$p" >/dev/null && "$p" --version >/dev/null || missing+=" $p"
  done
  # PostgreSQL 16 here is built from a package that lacks them
  [ "$major" = 16 ] || for p in pg_rewind pg_upgrade pg_resetwal pg_waldump pg_checksums; do command -v "$p" >/dev/null || missing+=" $p"; done
  [ -z "$missing" ] || { echo "missing:$missing"; return 1; }
}
version_is_major() { postgres --version | grep -E "^postgres \(PostgreSQL\) ${major}[.]"; }

make_certificates() {
  mkdir -p $tls && cd $tls &&
    openssl req -new -x509 -days 2 -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -subj /CN=ca -keyout ca.key -out ca.crt &&
    openssl req -new -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -subj /CN=localhost -keyout server.key -out server.csr &&
    openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -out server.crt \
      -extfile <(echo subjectAltName=DNS:localhost) && chmod 600 server.key
}
init() { initdb -D $data --data-checksums -E UTF8 --locale=C.UTF-8 -U postgres --auth=scram-sha-256 --pwfile=<(echo secret); }
init_icu() { initdb -D /tmp/icu -E UTF8 --locale=C.UTF-8 --locale-provider=icu --icu-locale=de -U postgres --auth=trust && rm -r /tmp/icu; }
init_locale() { initdb -D /tmp/loc --locale=en_US.UTF-8 -U postgres --auth=trust && rm -r /tmp/loc; }
configure() {
  cat >>$data/postgresql.conf <<-CONF &&
	listen_addresses = 'localhost'
	unix_socket_directories = '/run'
	wal_level = logical
	ssl = on
	ssl_cert_file = '$tls/server.crt'
	ssl_key_file = '$tls/server.key'
	ssl_min_protocol_version = 'TLSv1.3'
	password_encryption = 'scram-sha-256'
	shared_preload_libraries = 'pg_stat_statements'
	timezone = 'Europe/Berlin'
	fsync = off
	CONF
    printf 'hostssl all all all scram-sha-256\nhostssl replication all all scram-sha-256\nlocal all all peer\n' >$data/pg_hba.conf
}
start() { pg_ctl -D "$1" -l "$1.log" -w -t 60 start >/dev/null || { cat "$1.log"; return 1; }; }
query() { psql -X -A -t -v ON_ERROR_STOP=1 -c "$1" "${@:2}"; }
tls_in_use() { equals "t|TLSv1.3" query "select ssl, version from pg_stat_ssl where pid = pg_backend_pid()"; }
scram_refuses() { ! PGPASSWORD=wrong query 'select 1' 2>/dev/null; }
plain_refuses() { ! PGSSLMODE=disable query 'select 1' 2>/dev/null; }
extensions() {
  local e
  for e in pg_stat_statements pgcrypto postgres_fdw pg_trgm hstore citext btree_gist uuid-ossp unaccent amcheck pg_buffercache pageinspect xml2; do
    query "create extension \"$e\"" >/dev/null || return
  done
  query "select gen_random_uuid(), digest('x', 'sha256'), uuid_generate_v4(), xml_valid('<a/>')" && query 'select count(*) from pg_stat_statements'
}
icu_collation() { equals t query "select 'a' < 'B' collate \"de-x-icu\""; }
time_zones() { equals t query "select '2026-07-01 12:00 America/New_York'::timestamptz = '2026-07-01 16:00Z'::timestamptz"; }
bench() { pgbench -i -q -s 1 && pgbench -T 2 -c 2 -n; }
logical_slot() { query "select pg_create_logical_replication_slot('s', 'pgoutput')" && query "select pg_drop_replication_slot('s')"; }
clone() {
  pg_basebackup -D $standby -X stream -R -C -S one --checkpoint=fast &&
    printf "port = 5433\n" >>$standby/postgresql.auto.conf && start $standby
}
standby_streams() {
  for _ in $(seq 50); do [ "$(query "select count(*) from pg_stat_replication where state = 'streaming'")" = 1 ] && break; sleep 0.2; done
  equals t query "select pg_is_in_recovery() and (select count(*) > 0 from pgbench_accounts)" -p 5433 && PGPORT=5433 tls_in_use
}
promote() { query checkpoint && sleep 1 && pg_ctl -D $standby -w -t 30 promote && equals f query 'select pg_is_in_recovery()' -p 5433 && query 'create table t (n int)' -p 5433; }
dump() { pg_dump -d postgres | grep -q pgbench_accounts && pg_dumpall --globals-only | grep -q SCRAM; }
control() { ! pg_controldata -D $data | grep -i warning && pg_controldata -D $data | grep -E "wal_level setting: +logical"; }
rewind() { pg_ctl -D $standby -m fast -w stop && pg_rewind --dry-run --target-pgdata=$standby --source-server="host=localhost user=postgres dbname=postgres sslmode=verify-full sslrootcert=$tls/ca.crt"; }
stop() { pg_ctl -D $data -m fast -w -t 30 stop; }
checksums() { pg_checksums -D $data --check; }
pgbackrest_runs() {
  printf '%s\n' '[global]' repo1-path=/tmp/repo repo1-retention-full=1 lock-path=/tmp spool-path=/tmp log-level-file=off \
    log-level-console=warn start-fast=y '[s]' pg1-path=$data pg1-socket-path=/run pg1-user=postgres >/tmp/pgbackrest.conf
  printf '%s\n' 'archive_mode = on' "archive_command = '$(backrest_command) archive-push %p'" >>$data/postgresql.conf
  mkdir -p /tmp/repo && start $data &&
    backrest stanza-create && backrest check && backrest --type=full backup && backrest info | grep 'full backup'
}
backrest_command() { echo "pgbackrest --config=/tmp/pgbackrest.conf --stanza=s"; }
backrest() { env -u PGHOST -u PGPASSWORD -u PGSSLMODE -u PGSSLROOTCERT $(backrest_command) "$@"; }

try "is version $(postgres --version)" version_is_major
try "is first on PATH" first_on_path
try "root file system is read-only" is_read_only
try "everything is readable, nothing setuid" all_readable
try "no library is missing" libraries_found
try "has the programs" programs
try "has CA certificates" test -s /etc/ssl/certs/ca-certificates.crt
try "makes certificates" make_certificates
try "initdb with checksums, UTF8, C.UTF-8" init
try "initdb with ICU" init_icu
try "initdb with en_US.UTF-8" init_locale
try "configures" configure
try "starts with TLS and wal_level=logical" start $data
try "psql over TLS 1.3 with SCRAM" tls_in_use
try "refuses a wrong password" scram_refuses
try "refuses without TLS" plain_refuses
try "wal_level" equals logical query 'show wal_level'
try "data_checksums" equals on query 'show data_checksums'
try "extensions" extensions
try "ICU collation" icu_collation
try "time zones" time_zones
try "pgbench" bench
try "logical slot" logical_slot
try "pg_basebackup over TLS, standby starts" clone
try "standby streams over TLS" standby_streams
try "pg_dump, pg_dumpall" dump
try "pg_controldata" control
try "promotes" promote
[ "$major" = 16 ] || try "pg_rewind" rewind
[ "$major" != 16 ] || try "stops the standby" pg_ctl -D $standby -m fast -w stop
try "stops" stop
[ "$major" = 16 ] || try "pg_checksums" checksums
try "$(pgbackrest version): archives, backs up" pgbackrest_runs
pg_ctl -D $data -m immediate stop >/dev/null 2>&1
exit 0
