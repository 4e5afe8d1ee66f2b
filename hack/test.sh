#!/usr/bin/env bash
# test.sh all|packages|unit|e2e|groups|olm - runs tests; all runs "make chaos-short" too.
#   all       everything, from a machine with nothing but Go, make and git; goes on after a failure, where that makes sense, so that
#             one run shows all of them. Its last line is "N passed, N failed", over all parts. In CI (CI=true), or with KEEP=0,
#             it stops the local cluster at the end.
#   packages  installs what agent tests need
#   unit      unit tests, envtest, and the agent's tests with real PostgreSQL
#   e2e       the end-to-end tests whose names match FOCUS, on a cluster with the operator deployed: groups, then olm; without FOCUS also
#             those that all leaves out (LONG)
#   groups    those that need no OLM
#   olm       those of the Operator Lifecycle Manager, which they bring and remove again (E2E_KEEP=1 keeps it)
# Each part has a limit after which it is stopped and counts as failed. What computes runs beside what waits; its output is shown in
# one piece, when both have ended. E2E_PARALLEL is how many groups run at the same time (3).
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$ROOT"
NODES=${NODES:-3}
LOGS=$BIN/test # where parts leave their records
# What all leaves out, so that it ends in time: variations of other groups, up to ten minutes each. `make e2e` has them.
LONG='^(TestBackupS3|TestBackupDeletion|TestBackupVerify|TestBackupInPlace|TestUpgradeManual|TestUpgradeSingle|TestUpgradeInPlace|TestUpgradeBackup|TestUpgradeCrash|TestUpgradeSynchronous|TestBenchBackup)$'

# --- parts ---------------------------------------------------------------------------------------------------------------
# install_packages: PostgreSQL and pgBackRest for the agent's tests, without the cluster that Debian's package would start; shellcheck for verify
install_packages() {
  local missing=()
  compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
  command -v pgbackrest >/dev/null || missing+=(pgbackrest)
  command -v shellcheck >/dev/null || missing+=(shellcheck)
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    die "missing: ${missing[*]}; install them (where there is apt-get, this script does, as root)"
  fi
  say "installing ${missing[*]}"
  if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
    mkdir -p /etc/postgresql-common
    echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
  fi
  export DEBIAN_FRONTEND=noninteractive
  retry 3 apt-get update -qq
  retry 3 apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold "${missing[@]}" >/dev/null
}

unit() {
  bin/gotestsum --format pkgname --format-hide-empty-pkg --jsonfile "$LOGS/unit.json" -- -count 1 -timeout 25m ./...
}

e2e() {
  local focus=${FOCUS:-} rc=0
  [ -n "$focus" ] || export E2E_TIMEOUT=90m
  [ "${focus,,}" = olm ] || groups || rc=$?
  case ${focus,,} in '' | *olm*) olm || rc=$? ;; esac
  return "$rc"
}

olm() {
  local rc=0
  export KUBECONFIG REGISTRY
  KUBECONFIG=$(make -s kubeconfig)
  REGISTRY=$(sed -n 's#^OPERATOR_IMAGE=\([^/]*\)/.*#\1#p' "$BIN/images.env")
  { make -s olm "REGISTRY=$REGISTRY" && hack/olm/catalogs.sh; } || return
  bin/gotestsum --format "${E2E_FORMAT:-testname}" --jsonfile "$LOGS/olm.json" -- \
    -tags e2e -count 1 -timeout 30m -run '^TestOLM$' ./test/e2e || rc=$?
  measured "$LOGS/olm.json"
  [ -n "${E2E_KEEP:-}" ] || hack/olm/down.sh || rc=$?
  return "$rc"
}

groups() {
  local focus=()
  [ -z "${FOCUS:-}" ] || focus=(-run "$FOCUS")
  local rc=0
  bin/gotestsum --format "${E2E_FORMAT:-testname}" --jsonfile "$LOGS/e2e.json" -- \
    -tags e2e -count 1 -timeout "${E2E_TIMEOUT:-48m}" -parallel "${E2E_PARALLEL:-3}" -skip "^TestOLM$|${SKIP:-^$}" "${focus[@]}" ./test/e2e || rc=$?
  measured "$LOGS/e2e.json"
  return "$rc"
}

# measured JSON: what tests measured, which a test that passes does not show
measured() { sed -n 's/.*"Output":".*MEASURED: \(.*\)\\n".*/measured: \1/p' "$1"; }

# --- counting ------------------------------------------------------------------------------------------------------------
passed=0 failed=0 broken=()

# count step|tests NAME RC: a step is one check; of tests gotestsum's record says how many there were. A run that failed without a
# failed test (it did not compile, or was stopped) counts as one failure.
count() {
  local p=1 f=0
  if [ "$1" = tests ]; then
    p=$(grep -c '"Action":"pass".*"Test":' "$LOGS/$2.json" 2>/dev/null) || true
    f=$(grep -c '"Action":"fail".*"Test":' "$LOGS/$2.json" 2>/dev/null) || true
  elif [ "$3" != 0 ]; then
    p=0
  fi
  [ "$3" = 0 ] || [ "${f:-0}" -gt 0 ] || f=1
  [ "$3" = 0 ] || broken+=("$2")
  passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0}))
}

running= # the process of the present part

# part NAME LIMIT COMMAND...: runs a part of the whole, with its heading, time and limit. It runs beside this script, in a process
# group of its own, so that a signal to the script can end it.
part() {
  local name=$1 limit=$2 start=$SECONDS rc=0; shift 2
  printf '\n=== %s (since the start: %d s)\n' "$name" "$start"
  timeout --kill-after=60s "$limit" "$@" </dev/null &
  running=$!
  wait "$running" || rc=$?
  running=
  case $rc in
  0) printf '=== %s: done in %d s\n' "$name" $((SECONDS - start)) ;;
  124 | 137) printf '=== %s: FAILED: not done after %s\n' "$name" "$limit" ;;
  *) printf '=== %s: FAILED with exit code %d after %d s\n' "$name" "$rc" $((SECONDS - start)) ;;
  esac
  return "$rc"
}

# step, tests: a part that is one check, or many
step() { counted step "$@"; }
tests() { counted tests "$@"; }
counted() {
  local kind=$1 name=$2 rc=0; shift
  part "$@" || rc=$?
  count "$kind" "$name" "$rc"
  return "$rc"
}

declare -A besides=() # parts that run in the background: process and kind, by name

# beside step|tests NAME LIMIT COMMAND...: starts a part that computes, while others run that rather wait. What it prints is shown
# when it is joined.
beside() {
  local kind=$1 name=$2; shift
  printf '\n=== %s is begun beside what follows (since the start: %d s)\n' "$name" "$SECONDS"
  (
    besides=()
    trap interrupted TERM
    part "$@"
  ) >"$LOGS/$name.log" 2>&1 &
  besides[$name]="$! $kind"
}

# join NAME: waits for a part that was begun beside others, shows what it printed, and counts it
join() {
  local name=$1 pid kind rc=0
  read -r pid kind <<<"${besides[$name]}"
  wait "$pid" || rc=$?
  unset "besides[$name]"
  cat "$LOGS/$name.log"
  count "$kind" "$name" "$rc"
}

# --- the whole -----------------------------------------------------------------------------------------------------------
end() {
  local rc=$?
  trap - EXIT
  # the API server of an envtest that was killed, in this session only
  pkill -s 0 -f k8s_test_framework || true
  if [ "${KEEP:-}" = 0 ] || { [ -n "${CI:-}" ] && [ "${KEEP:-}" != 1 ]; }; then
    part cluster-down 5m make -s cluster-down || { rc=1; broken+=(cluster-down); }
  fi
  [ "$failed" = 0 ] || rc=1
  [ "$rc" = 0 ] || [ "$failed" -gt 0 ] || failed=1
  printf '\n'
  [ ${#broken[@]} = 0 ] || printf 'FAIL: %s\n' "${broken[*]}"
  printf '%d s in all\n%d passed, %d failed\n' "$SECONDS" "$passed" "$failed"
  exit "$rc"
}

interrupted() {
  local name pid
  trap '' INT TERM
  printf '\ninterrupted\n'
  for name in "${!besides[@]}"; do
    read -r pid _ <<<"${besides[$name]}"
    kill "$pid" 2>/dev/null || true
  done
  if [ "$running" ]; then kill "$running" 2>/dev/null; wait "$running" || true; fi
  for name in "${!besides[@]}"; do join "$name"; done
  exit 130
}

all() {
  rm -rf "$LOGS"; mkdir -p "$LOGS"
  trap end EXIT
  trap interrupted INT TERM
  local ground=yes
  step packages 10m hack/test.sh packages || true
  step tools 20m make -s bin/gotestsum bin/controller-gen || true
  step cluster 45m make -s cluster "NODES=$NODES" || ground=
  step images 30m make -s images || ground=
  step store 20m hack/store/image.sh || true
  # The agent's tests and the faults are by themselves, since they are about time: a server has to stop within a lease.
  tests unit 26m hack/test.sh unit || true
  if [ "$ground" ] && step deploy 6m make -s olm-down deploy; then
    # The groups wait for most of the time: the tools that they do not need are built meanwhile.
    beside step verify 70m nice -n 19 make -s tools bin/olm verify
    SKIP=$LONG tests e2e 49m hack/test.sh groups || true
    join verify
    tests chaos 12m make -s chaos-short || true
    tests olm 35m hack/test.sh olm || true
  else
    step verify 30m make -s verify || true
  fi
}

case ${1:-} in
all) all ;;
packages) install_packages ;;
unit | e2e | groups | olm) mkdir -p "$LOGS"; "$1" ;;
*) die "usage: test.sh all|packages|unit|e2e|groups|olm" ;;
esac
