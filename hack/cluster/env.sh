# env.sh - names, places and addresses of the local cluster; sourced by its scripts
# shellcheck shell=bash disable=SC2034
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../env.sh
. "$HERE/../env.sh"

# STATE is everything of a running cluster. It lies outside the work tree, so that any clone finds, uses or replaces
# the machine's cluster. CL names another one beside it (with OFF, PFX, NET, PODS and SVC of its own).
STATE=${CL:-${PGSTEWARD_CLUSTER_DIR:-/var/lib/pgsteward-cluster}}
# A cluster that exists keeps the settings it was started with.
# shellcheck source=/dev/null
[ ! -s "$STATE/settings" ] || . "$STATE/settings"
PFX=${PFX:-fc}             # prefix of the names of network namespaces, interfaces and cgroups
NET=${NET:-172.30.0}       # NET.1 is this machine on the bridge, NET.(10+N) is node N
PODS=${PODS:-10.244}       # PODS.N.0/24 is node N's pod network
SVC=${SVC:-10.96}          # SVC.0.0/16: services
OFF=${OFF:-0}              # added to every port of this machine
MAXNODES=9

BUNDLE=$STATE/bundle       # -> the programs and images it runs with, in the cache (see build.sh)
RUN=$STATE/run PKI=$STATE/pki KC=$STATE/kubeconfig LOG=$STATE/log NODES=$STATE/nodes LIB=$STATE/lib
LOCK=$STATE.lock
BR=${PFX}br0
APIPORT=$((6443+OFF)) REGPORT=$((5000+OFF)) ETCDPORT=$((2379+OFF)) PEERPORT=$((2380+OFF)) DNSPORT=$((10053+OFF))
API=https://$NET.1:$APIPORT
DNS=$SVC.0.10
AUDITLOG=$LOG/audit.log
# The registry outlives the cluster: its images need not be pushed again. A second cluster has its own.
if [ "$OFF" = 0 ]; then REGDIR=$CACHE/cluster/registry; else REGDIR=$STATE/registry; fi
export PATH=$BUNDLE/bin:$PATH:/usr/local/go/bin:/usr/local/sbin:/usr/sbin:/sbin
export KUBECONFIG=$STATE/admin.kubeconfig

# link_programs BUNDLE: kubectl for people, etcd and kube-apiserver for tests, in the bin/ of this work tree
link_programs() {
  local p
  mkdir -p "$BIN"
  for p in kubectl etcd kube-apiserver; do ln -sfn "$1/bin/hyperkube" "$BIN/$p"; done
}

# started PID: when it started, in clock ticks since boot: with the pid it names a process for good. Nothing for a zombie.
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" {print $20}'; }
# alive NAME: whether the process kept under that name still runs
alive() { local p s; [ -s "$RUN/$1.pid" ] && read -r p s < "$RUN/$1.pid" && [ -n "$s" ] && [ "$(started "$p")" = "$s" ]; }
# keep NAME CMD...: starts CMD in a session of its own; its output goes to LOG/NAME.log, its pid and start to RUN/NAME.pid.
# The mark in its environment, which its children inherit, lets down.sh find it when the pid file is lost.
keep() {
  local name=$1 p; shift
  PGSTEWARD_CLUSTER_MARK=$STATE setsid "$@" >> "$LOG/$name.log" 2>&1 < /dev/null 9>&- &
  p=$!; echo "$p $(started "$p")" > "$RUN/$name.pid"
}
# stop NAME [SIGNAL]: stops it and waits; SIGKILL after 10 s
stop() {
  local p
  if alive "$1"; then
    read -r p _ < "$RUN/$1.pid"; kill "-${2:-TERM}" "$p" 2>/dev/null || true
    for _ in $(seq 100); do alive "$1" || break; sleep 0.1; done
    if alive "$1"; then kill -KILL "$p" 2>/dev/null || true; sleep 0.2; fi
  fi
  rm -f "$RUN/$1.pid"
}
# lock: one script at a time changes the cluster; the lock ends with the script (daemons do not inherit it, see keep)
lock() {
  [ -z "${PGSTEWARD_CLUSTER_LOCKED:-}" ] || return 0
  mkdir -p "$(dirname "$LOCK")"; exec 9> "$LOCK"
  flock -n 9 || { say "another script is changing this cluster: waiting for it"; flock -w 2400 9 || die "the lock $LOCK is still held"; }
  export PGSTEWARD_CLUSTER_LOCKED=1
}
