#!/usr/bin/env bash
# down.sh - stops the cluster and removes its state, also one that was left half there: processes without pid files,
# network namespaces, interfaces, cgroups. Images (the registry) and programs stay in the cache.
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=env.sh
. "$(dirname "$0")/env.sh"
[ "$(id -u)" = 0 ] || die "root is needed"
lock

# owner: the state folder of the cluster that the bridge belongs to
owner() { ip link show "$BR" 2>/dev/null | sed -n 's/.*alias pgsteward://p'; }
other=$(owner)
[ -z "$other" ] || [ "$other" = "$STATE" ] || [ ! -d "$other" ] || die "the names $PFX* belong to the cluster in $other: set CL, PFX, NET, PODS, SVC and OFF for another"

# everything that was started by keep carries the mark, children too
marked() { grep -lszF "PGSTEWARD_CLUSTER_MARK=$STATE" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }
kill_left() {
  local p
  for _ in 1 2 3 4 5; do
    # grep finds longer paths too: compare the whole word
    for p in $(marked); do
      tr '\0' '\n' < "/proc/$p/environ" 2>/dev/null | grep -qxF "PGSTEWARD_CLUSTER_MARK=$STATE" && kill -KILL "$p" 2>/dev/null
    done
    [ -n "$(marked)" ] || return 0; sleep 0.2
  done
}

for n in $(seq $MAXNODES); do
  if [ -d "$NODES/node$n" ] || [ -e "/run/netns/$PFX-node$n" ] || compgen -G "/sys/fs/cgroup/*/$PFX-node$n" >/dev/null || [ -d "/sys/fs/cgroup/$PFX-node$n" ]; then "$HERE/node.sh" rm "$n" down; fi
done
for c in provisioner coredns kube-scheduler kube-controller-manager kube-apiserver etcd registry; do stop $c KILL; done
kill_left
ip route del unreachable "$PODS.0.0/16" metric 4000 2>/dev/null; ip route del unreachable "$SVC.0.0/16" metric 4000 2>/dev/null
ip link del "$BR" 2>/dev/null
# what is ours, by name: the folder may have been named by mistake
for f in settings boot started run log lib nodes etcd pki kubeconfig admin.kubeconfig bundle registry Corefile audit-policy.yaml; do rm -rf "${STATE:?}/$f"; done
rmdir "$STATE" 2>/dev/null
say "the cluster is down"
