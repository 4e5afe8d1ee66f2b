#!/usr/bin/env bash
# node.sh add N [nowait] | rm N        a node comes, or goes with its state
#         up N [nowait]                whatever state it is in, it shall run: added, started, joined, released
#         wait N                       waits until it is Ready
#         kill N | start N             power cut (everything on it SIGKILLed, its disk stays) | power on
#         cut N | join N               its network cable out | in again
#         block N in|out|both WHAT...  drops what comes from, or goes to, WHAT: api, or the number of another node | unblock N
#         hold N SVC | release N SVC   stops containerd, kubelet or kube-proxy on it | starts it again
#         exec N CMD...                runs CMD on the node (its namespaces)
#         load N TAR...                loads image tarballs into its containerd
# A node is a network, mount, PID, UTS and IPC namespace with its own containerd, kubelet and kube-proxy.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=env.sh
. "$(dirname "$0")/env.sh"
# shellcheck source-path=SCRIPTDIR source=pki.sh
. "$HERE/pki.sh"
[ $# -ge 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2; }
cmd=$1 n=$2; shift 2
case $n in [1-9]) ;; *) die "node number 1 to $MAXNODES";; esac
name=node$n ip=$NET.$((10+n)) ns=$PFX-node$n veth=${PFX}v$n D=$NODES/node$n

init_pid() { local p; read -r p _ < "$RUN/$name.pid"; tr -d ' ' < "/proc/$p/task/$p/children"; }
inside() { nsenter -t "$(init_pid)" -m -n -p -u -i "$@"; }
with_cgroups_v1() { [ "$(stat -fc %T /sys/fs/cgroup)" != cgroup2fs ]; }

# cgroup_folders: the node's folder in each hierarchy
cgroup_folders() {
  if with_cgroups_v1; then for g in /sys/fs/cgroup/*/; do case $g in */unified/) ;; *) echo "$g$PFX-$name";; esac; done
  else echo "/sys/fs/cgroup/$PFX-$name"; fi
}
cgroups_add() {
  local d up
  with_cgroups_v1 || for c in cpuset cpu io memory pids hugetlb; do echo "+$c" > /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || true; done
  for d in $(cgroup_folders); do
    up=$(dirname "$d"); mkdir -p "$d"
    # v1's cpuset needs its first values
    if with_cgroups_v1 && [ -e "$d/cpuset.cpus" ]; then cat "$up/cpuset.cpus" > "$d/cpuset.cpus"; cat "$up/cpuset.mems" > "$d/cpuset.mems"; fi
  done
}
cgroups_rm() { # deepest first; kills what is left in them (the node's own containers only)
  local d p
  # runc makes one in the unified hierarchy too, where v1 and v2 are both mounted
  for d in $(cgroup_folders) /sys/fs/cgroup/unified/"$PFX-$name"; do
    for _ in 1 2 3 4 5 6 7 8 9 10; do
      [ -d "$d" ] || break
      for p in $(find "$d" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u); do kill -KILL "$p" 2>/dev/null || true; done
      find "$d" -depth -type d -exec rmdir {} + 2>/dev/null || true
      [ ! -d "$d" ] || sleep 0.2
    done
  done
}
network_add() {
  local m
  ip netns add "$ns" 2>/dev/null || true
  ip link show "$veth" >/dev/null 2>&1 && return
  ip link add "$veth" type veth peer name eth0 netns "$ns"; ip link set "$veth" master "$BR" up
  ip -n "$ns" link set lo up; ip -n "$ns" addr add "$ip/24" dev eth0; ip -n "$ns" link set eth0 up
  ip -n "$ns" route add "$SVC.0.0/16" dev eth0     # so that kube-proxy sees it; nothing answers on the wire
  for m in $(seq $MAXNODES); do [ "$m" = "$n" ] || ip -n "$ns" route add "$PODS.$m.0/24" via "$NET.$((10+m))"; done
}
network_rm() {
  ip route del "$PODS.$n.0/24" 2>/dev/null || true
  ip link del "$veth" 2>/dev/null || true; ip netns del "$ns" 2>/dev/null || true
}
connected() { ip link show "${PFX}v$1" 2>/dev/null | grep -q '[<,]UP[,>]'; }
# route_services: this machine reaches Services through the first node that runs and is connected
route_services() {
  local m
  for m in $(seq $MAXNODES); do
    if alive "node$m" && connected "$m"; then ip route replace "$SVC.0.0/16" via "$NET.$((10+m))"; return; fi
  done
  ip route del "$SVC.0.0/16" dev "$BR" 2>/dev/null || true
}
# block_rules WAY WHAT...: an nft table; what comes is dropped before, what goes after kube-proxy has had it
block_rules() {
  local way=$1 what chain; shift
  for chain in in out; do
    if [ $chain = in ]; then echo "add chain inet block in { type filter hook prerouting priority -350; }"
    else echo "add chain inet block out { type filter hook postrouting priority 350; }"; fi
    [ "$way" = both ] || [ "$way" = $chain ] || continue
    for what in "$@"; do
      case $chain$what in
        inapi) echo "add rule inet block in ip saddr $NET.1 tcp sport $APIPORT drop" ;;
        outapi) echo "add rule inet block out ip daddr $NET.1 tcp dport $APIPORT drop" ;;
        in[1-9]) echo "add rule inet block in ip saddr { $NET.$((10+what)), $PODS.$what.0/24 } drop" ;;
        out[1-9]) echo "add rule inet block out ip daddr { $NET.$((10+what)), $PODS.$what.0/24 } drop" ;;
        *) die "block what? api, or a node's number, not $what" ;;
      esac
    done
  done
}
block() {
  case ${1:-} in in|out|both) ;; *) die "block in, out or both" ;; esac
  unblock; { echo "add table inet block"; block_rules "$@"; } | ip netns exec "$ns" nft -f -
}
unblock() { ip netns exec "$ns" nft delete table inet block 2>/dev/null || true; }
containerd_config() {
  # every registry's name leads to the local one
  local hosts
  hosts=$(printf 'server = "http://%s"\n[host."http://%s"]\n  capabilities = ["pull", "resolve"]\n' "$NET.1:$REGPORT" "$NET.1:$REGPORT")
  for h in _default "127.0.0.1:$REGPORT" 127.0.0.1:5000; do
    mkdir -p "$D/etc/containerd/certs.d/$h"; echo "$hosts" > "$D/etc/containerd/certs.d/$h/hosts.toml"
  done
  cat > "$D/etc/containerd/config.toml" <<X
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "127.0.0.1:5000/pause:1"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "/etc/containerd/certs.d"
[plugins."io.containerd.cri.v1.runtime"]
  # without CAP_SYS_RESOURCE an oom_score_adj cannot be lowered
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "$(command -v runc)"
      SystemdCgroup = false
X
}
cni_config() {
  cat > "$D/etc/cni/net.d/10-bridge.conflist" <<X
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipMasq": false,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$PODS.$n.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
X
}
kubelet_config() {
  # an image is never collected and a pod never evicted because the disk of the machine is nearly full;
  # a crashing container is started again after 10 s at most (300 s is usual), for tests' sake
  cat > "$D/etc/kubernetes/kubelet.yaml" <<X
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: "$ip"
healthzBindAddress: 127.0.0.1
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: /etc/kubernetes/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: /etc/kubernetes/$name.crt
tlsPrivateKeyFile: /etc/kubernetes/$name.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$PFX-$name
failCgroupV1: false
failSwapOn: false
clusterDNS: ["$DNS"]
clusterDomain: cluster.local
resolvConf: /etc/kubernetes/resolv.conf
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%, imagefs.inodesFree: 1%}
nodeStatusUpdateFrequency: 4s
nodeLeaseDurationSeconds: 10
maxPods: 110
serializeImagePulls: false
shutdownGracePeriod: 0s
runtimeRequestTimeout: 2m
crashLoopBackOff: {maxContainerRestartPeriod: ${CRASHMAX:-10s}}
X
}
proxy_config() {
  cat > "$D/etc/kubernetes/proxy.yaml" <<X
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: /etc/kubernetes/proxy.conf}
hostnameOverride: $name
mode: nftables
clusterCIDR: $PODS.0.0/16
bindAddress: $ip
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
X
}
start() {
  ! alive "$name" || die "$name runs already"
  mkdir -p "$D"/{var/lib/kubelet,var/lib/containerd,var/lib/pv,var/lib/cni,var/log/pods,var/log/containers,etc/cni/net.d,etc/containerd,etc/kubernetes,log,fake,volumes}
  network_add; cgroups_add
  cert "$name" ca "/O=system:nodes/CN=system:node:$name" "DNS:$name,IP:$ip,IP:127.0.0.1"
  kubeconfig "$D/etc/kubernetes/kubelet.conf" "$name" "$API"
  cp "$KC/proxy" "$D/etc/kubernetes/proxy.conf"; cp "$PKI/ca.crt" "$PKI/$name.crt" "$PKI/$name.key" "$D/etc/kubernetes/"
  echo "nameserver $DNS" > "$D/etc/kubernetes/resolv.conf"
  [ -s "$D/machine-id" ] || tr -d - < /proc/sys/kernel/random/uuid > "$D/machine-id"
  containerd_config; cni_config; kubelet_config; proxy_config
  date +%s > "$RUN/$name.since"
  keep "$name" nsenter --net="/run/netns/$ns" unshare --mount --pid --uts --ipc --propagation private --fork --kill-child=KILL --mount-proc \
    bash "$LIB/node-init.sh" "$STATE" "$name" "$ip"
  ip route replace "$PODS.$n.0/24" via "$ip"; route_services
}
power_off() { stop "$name" KILL; cgroups_rm; route_services; }
# ready: Ready, and said so since the node was started or joined (until then the API server shows what was before)
ready() {
  local status heartbeat
  read -r status heartbeat < <(kubectl --request-timeout=5s get node "$name" -o 'jsonpath={range .status.conditions[?(@.type=="Ready")]}{.status} {.lastHeartbeatTime}{end}' 2>/dev/null) || [ -n "$status" ] || return 1
  [ "$status" = True ] && [ "$(date -d "$heartbeat" +%s)" -ge "$(cat "$RUN/$name.since" 2>/dev/null || echo 0)" ]
}
wait_ready() {
  for i in $(seq 480); do
    if ready; then
      kubectl patch node "$name" -p "{\"spec\":{\"podCIDR\":\"$PODS.$n.0/24\",\"podCIDRs\":[\"$PODS.$n.0/24\"]}}" >/dev/null; return
    fi
    alive "$name" || die "$name ended: see $LOG/$name.log"
    [ $((i % 60)) != 0 ] || say "waiting for $name to be Ready"
    sleep 0.25
  done
  die "$name is not Ready: see $D/log"
}
case $cmd in
  add|start) start; [ "${1:-}" = nowait ] || wait_ready ;;
  up) rm -f "$D"/hold-*; unblock; alive "$name" || { cgroups_rm; start; }
    connected "$n" || { ip link set "$veth" up; date +%s > "$RUN/$name.since"; route_services; }
    [ "${1:-}" = nowait ] || wait_ready ;;
  wait) wait_ready ;;
  kill) power_off ;;
  rm) power_off; [ "${1:-}" = down ] || timeout 10 kubectl delete node "$name" --wait=false >/dev/null 2>&1 || true
    network_rm; rm -rf "$D" ;;
  cut) ip link set "$veth" down; route_services ;;
  join) ip link set "$veth" up; date +%s > "$RUN/$name.since"; route_services ;;
  block) block "$@" ;;
  unblock) unblock ;;
  hold) touch "$D/hold-${1:?which service}"; inside bash -c "kill -KILL \$(cat /run/$1.pid)" ;;
  release) rm -f "$D/hold-${1:?which service}" ;;
  exec) inside "$@" ;;
  load) for t in "$@"; do inside ctr -a /run/containerd/containerd.sock -n k8s.io images import "$(realpath "$t")"; done ;;
  *) die "no command $cmd" ;;
esac
