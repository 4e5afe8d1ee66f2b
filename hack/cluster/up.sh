#!/usr/bin/env bash
# up.sh [NODES] - a healthy cluster with at least NODES nodes (3): the one that runs, mended if need be, or a new one.
# AUDIT=1 switches the API server's audit log on. Installs, builds and cleans up what it has to.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=env.sh
. "$(dirname "$0")/env.sh"
# shellcheck source-path=SCRIPTDIR source=pki.sh
. "$HERE/pki.sh"
nodes=${1:-3} AUDIT=${AUDIT:-0} t0=$(date +%s.%N)
since() { echo "$(date +%s.%N) $t0" | awk '{printf "%.1f s", $1-$2}'; }
now_ok() { [ "$(kubectl --request-timeout=5s get --raw /readyz 2>/dev/null || true)" = ok ]; }

# --- what it needs -------------------------------------------------------------------------------------------------
free_gib() { mkdir -p "$1"; df --output=avail -B1G "$1" | tail -1 | tr -d ' '; }
check_machine() {
  [ "$(uname -s)" = Linux ] || die "the local cluster needs Linux; on another system set KUBECONFIG to a cluster (kind, cloud)"
  case $(uname -m) in x86_64|aarch64) ;; *) die "the local cluster needs amd64 or arm64, this is $(uname -m)";; esac
  [ "$(id -u)" = 0 ] || die "root is needed for the local cluster (namespaces, cgroups, mounts): run it as root, or set KUBECONFIG to another cluster"
  case $nodes in [1-9]) ;; *) die "NODES=$nodes: 1 to $MAXNODES";; esac
}
check_room() { # before something is built or started, not before something is used
  local dir least
  for dir in "$CACHE" "$(dirname "$STATE")"; do
    least=10; [ -z "$(ls -d "$CACHE"/cluster/bundle-*/.complete 2>/dev/null)" ] || least=5
    [ "$(free_gib "$dir")" -ge $least ] || die "not enough disk: $least GB must be free in $dir"
  done
  [ "$(awk '/^MemAvailable/ {print int($2/1024)}' /proc/meminfo)" -ge $((1000 + 350*nodes)) ] || die "not enough memory: $((1000 + 350*nodes)) MB must be available for $nodes nodes"
}
# package COMMAND: nothing to do where a command is there already (another package may bring it: docker's runc)
install_packages() {
  local missing=() c
  declare -A package=([iptables]=iptables [nft]=nftables [conntrack]=conntrack [runc]=runc [openssl]=openssl [ip]=iproute2 [nsenter]=util-linux
    [mkfs.xfs]=xfsprogs [mount]=mount [curl]=curl [ss]=iproute2 [/usr/lib/cni/bridge]=containernetworking-plugins [/etc/ssl/certs/ca-certificates.crt]=ca-certificates)
  for c in "${!package[@]}"; do command -v "$c" >/dev/null || [ -e "$c" ] || missing+=("${package[$c]}"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || die "missing: ${missing[*]}. Install them (only Debian and Ubuntu are handled by this script)"
  say "installing ${missing[*]}"
  retry 3 apt-get update -qq
  DEBIAN_FRONTEND=noninteractive retry 3 apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
}
check_kernel() {
  modprobe -qa loop xfs overlay br_netfilter 2>/dev/null || true
  for fs in xfs overlay; do grep -qw $fs /proc/filesystems || die "the kernel has no $fs"; done
  [ -e /dev/loop-control ] || die "the kernel has no loop devices (/dev/loop-control)"
  # a few nodes use more than the usual 128
  [ "$(sysctl -n fs.inotify.max_user_instances)" -ge 1024 ] || sysctl -qw fs.inotify.max_user_instances=1024 || true
}
check_ports() {
  local a
  for a in 127.0.0.1:$REGPORT 127.0.0.1:$ETCDPORT 127.0.0.1:$PEERPORT 127.0.0.1:$((10257+OFF)) 127.0.0.1:$((10259+OFF)); do
    [ -z "$(ss -Hltn "src = $a or src = 0.0.0.0:${a#*:} or src = [::]:${a#*:}")" ] || die "port ${a#*:} is taken: $(ss -Hltnp "sport = :${a#*:}" | head -1 | tr -s ' ')"
  done
}

# --- the control plane ---------------------------------------------------------------------------------------------
make_bridge() {
  # between this machine and the nodes; pod and service addresses never leave by another way
  ip link show "$BR" >/dev/null 2>&1 || ip link add "$BR" type bridge
  ip link set "$BR" alias "pgsteward:$STATE"
  ip addr replace "$NET.1/24" dev "$BR"; ip link set "$BR" up
  ip route replace unreachable "$PODS.0.0/16" metric 4000
  ip route replace unreachable "$SVC.0.0/16" metric 4000
}
start_etcd() {
  keep etcd etcd --name e0 --data-dir "$STATE/etcd" --unsafe-no-fsync \
    --listen-client-urls "https://127.0.0.1:$ETCDPORT" --advertise-client-urls "https://127.0.0.1:$ETCDPORT" \
    --listen-peer-urls "http://127.0.0.1:$PEERPORT" --initial-advertise-peer-urls "http://127.0.0.1:$PEERPORT" --initial-cluster "e0=http://127.0.0.1:$PEERPORT" \
    --client-cert-auth --trusted-ca-file "$PKI/ca.crt" --cert-file "$PKI/etcd.crt" --key-file "$PKI/etcd.key" --logger zap --log-level warn
}
start_apiserver() { # on the bridge only: from other machines it is not reached
  local audit=()
  rm -f "$RUN/audit"
  if [ "$AUDIT" = 1 ]; then
    printf 'apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n' > "$STATE/audit-policy.yaml"
    audit=(--audit-policy-file "$STATE/audit-policy.yaml" --audit-log-path "$AUDITLOG" --audit-log-maxsize 500 --audit-log-maxbackup 2)
    touch "$RUN/audit"
  fi
  keep kube-apiserver kube-apiserver --bind-address "$NET.1" --secure-port "$APIPORT" --advertise-address "$NET.1" \
    --etcd-servers "https://127.0.0.1:$ETCDPORT" --etcd-cafile "$PKI/ca.crt" --etcd-certfile "$PKI/etcd-client.crt" --etcd-keyfile "$PKI/etcd-client.key" \
    --client-ca-file "$PKI/ca.crt" --tls-cert-file "$PKI/apiserver.crt" --tls-private-key-file "$PKI/apiserver.key" \
    --kubelet-certificate-authority "$PKI/ca.crt" --kubelet-client-certificate "$PKI/kubelet-client.crt" --kubelet-client-key "$PKI/kubelet-client.key" \
    --kubelet-preferred-address-types InternalIP \
    --service-account-issuer https://kubernetes.default.svc.cluster.local --service-account-key-file "$PKI/sa.pub" --service-account-signing-key-file "$PKI/sa.key" \
    --requestheader-client-ca-file "$PKI/front-ca.crt" --requestheader-allowed-names front-proxy-client --requestheader-username-headers X-Remote-User \
    --requestheader-group-headers X-Remote-Group --requestheader-extra-headers-prefix X-Remote-Extra- \
    --proxy-client-cert-file "$PKI/front-client.crt" --proxy-client-key-file "$PKI/front-client.key" --enable-aggregator-routing \
    --service-cluster-ip-range "$SVC.0.0/16" --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged \
    --default-not-ready-toleration-seconds "${TOLERATION:-30}" --default-unreachable-toleration-seconds "${TOLERATION:-30}" "${audit[@]}"
}
wait_apiserver() {
  local i
  for i in $(seq 480); do
    ! now_ok || return 0
    alive kube-apiserver || die "kube-apiserver ended: see $LOG/kube-apiserver.log"
    alive etcd || die "etcd ended: see $LOG/etcd.log"
    [ $((i % 80)) != 0 ] || say "waiting for kube-apiserver"
    sleep 0.25
  done
  die "kube-apiserver is not ready: see $LOG/kube-apiserver.log"
}
start_kcm() {
  keep kube-controller-manager kube-controller-manager --kubeconfig "$KC/kcm" --authentication-kubeconfig "$KC/kcm" --authorization-kubeconfig "$KC/kcm" \
    --bind-address 127.0.0.1 --secure-port $((10257+OFF)) --tls-cert-file "$PKI/kcm.crt" --tls-private-key-file "$PKI/kcm.key" --leader-elect=false --use-service-account-credentials \
    --root-ca-file "$PKI/ca.crt" --service-account-private-key-file "$PKI/sa.key" --cluster-signing-cert-file "$PKI/ca.crt" --cluster-signing-key-file "$PKI/ca.key" \
    --requestheader-client-ca-file "$PKI/front-ca.crt" --client-ca-file "$PKI/ca.crt" \
    --allocate-node-cidrs=false --node-monitor-grace-period "${NODE_GRACE:-20s}" --node-monitor-period 2s
}
start_scheduler() {
  keep kube-scheduler kube-scheduler --kubeconfig "$KC/scheduler" --authentication-kubeconfig "$KC/scheduler" --authorization-kubeconfig "$KC/scheduler" \
    --bind-address 127.0.0.1 --secure-port $((10259+OFF)) --tls-cert-file "$PKI/scheduler.crt" --tls-private-key-file "$PKI/scheduler.key" --leader-elect=false \
    --requestheader-client-ca-file "$PKI/front-ca.crt" --client-ca-file "$PKI/ca.crt"
}
start_registry() {
  mkdir -p "$REGDIR"
  keep registry registry -listen "127.0.0.1:$REGPORT,$NET.1:$REGPORT" -dir "$REGDIR"
}
push_images() { # those of the bundle; a tag that is there already costs a moment
  local t
  for t in "$BUNDLE"/images/push/*.tar; do
    retry 3 "$BIN/crane" push --insecure "$t" "127.0.0.1:$REGPORT/$(basename "$t" .tar):1" >/dev/null 2>> "$LOG/push.log" || die "cannot push $t: see $LOG/push.log"
  done
}
apply_addons() {
  sed "s/@DNS@/$DNS/; s/@HOST@/$NET.1/; s/@PORT@/$DNSPORT/g" "$HERE/addons.yaml" | retry 5 kubectl apply --server-side -f - >/dev/null
}
start_coredns() {
  # DNS runs beside the nodes, so that names are resolved whichever node is killed
  sed "s/@PORT@/$DNSPORT/g; s#@BIND@#$NET.1#; s#@READY@#$((8181+OFF))#; s#@KUBECONFIG@#$KC/coredns#" "$HERE/Corefile" > "$STATE/Corefile"
  keep coredns coredns -conf "$STATE/Corefile"
}
start_provisioner() {
  keep provisioner provisioner -kubeconfig "$KC/provisioner" -script "$LIB/volume.sh" -state "$STATE"
}
wait_dns() {
  for _ in $(seq 120); do ! curl -sf -m 2 "http://$NET.1:$((8181+OFF))/ready" >/dev/null || return 0; sleep 0.25; done
  die "CoreDNS is not ready: see $LOG/coredns.log"
}
wait_controllers() { # they have begun their work: Pods can be made
  for _ in $(seq 120); do
    if curl -skf -m 2 "https://127.0.0.1:$((10257+OFF))/healthz" >/dev/null && kubectl get serviceaccount default >/dev/null 2>&1; then return 0; fi
    alive kube-controller-manager || break
    sleep 0.25
  done
  die "the controller manager does not work: see $LOG/kube-controller-manager.log"
}
save_settings() {
  printf '%s=%s\n' PFX "$PFX" NET "$NET" PODS "$PODS" SVC "$SVC" OFF "$OFF" > "$STATE/settings"
  cp "$HERE/node-init.sh" "$HERE/volume.sh" "$LIB/"
}

# --- from what is there to what shall be ---------------------------------------------------------------------------
COMPONENTS="registry etcd apiserver kcm scheduler coredns provisioner"
# kept COMPONENT: the name that keep knows it by
kept() { case $1 in kcm) echo kube-controller-manager;; apiserver|scheduler) echo kube-"$1";; *) echo "$1";; esac; }
# mend: starts what does not run of a cluster that exists
mend() {
  local c
  [ ! -e "$RUN/audit" ] || AUDIT=1
  for c in $COMPONENTS; do
    alive "$(kept "$c")" || { say "$(kept "$c") does not run: starting it"; start_"$c"; }
    [ "$c" != apiserver ] || wait_apiserver # what comes after it gives up if it has to wait for long
  done
  wait_dns; wait_controllers; switch_audit
  nodes_up
}
nodes_up() { # NODES nodes run and are Ready, whatever tests did to them
  local n
  for n in $(seq "$nodes"); do "$HERE/node.sh" up "$n" nowait || return 1; done
  for n in $(seq "$nodes"); do "$HERE/node.sh" wait "$n" || return 1; done
}
ready_nodes() { kubectl get nodes --no-headers 2>/dev/null | awk '$2 == "Ready"' | wc -l; }
switch_audit() {
  if [ "$AUDIT" = 1 ] && [ ! -e "$RUN/audit" ]; then
    say "restarting the API server with the audit log"
    stop kube-apiserver KILL; start_apiserver; wait_apiserver
  fi
}
# whole: a cluster of this machine's present boot, with all its files
whole() {
  [ -s "$STATE/settings" ] && [ -s "$KUBECONFIG" ] && [ -x "$BUNDLE/bin/hyperkube" ] && [ -e "$BUNDLE/images/.complete" ] &&
    [ -s "$STATE/started" ] && [ "$(cat "$STATE/boot")" = "$(cat /proc/sys/kernel/random/boot_id)" ] && ip link show "$BR" >/dev/null 2>&1
}
use_existing() {
  whole || return 1
  (mend) || { say "the cluster in $STATE cannot be mended"; return 1; }
  link_programs "$(readlink -f "$BUNDLE")" # another work tree may have started it
  say "a healthy cluster runs already (in $STATE)"
}
start_new() {
  local bundle n
  check_room; install_packages; check_kernel
  bundle=$("$HERE/build.sh")
  say "programs and images are there ($(since)); starting $nodes nodes"
  t0=$(date +%s.%N)
  check_ports
  mkdir -p "$RUN" "$LOG" "$NODES" "$LIB"; ln -sfn "$bundle" "$BUNDLE"; hash -r
  save_settings; cat /proc/sys/kernel/random/boot_id > "$STATE/boot"; make_pki; install -m 600 "$KC/admin" "$KUBECONFIG"
  make_bridge
  start_registry; start_etcd; start_apiserver
  wait_apiserver; say "the API server is ready ($(since))"
  start_kcm; start_scheduler
  for n in $(seq "$nodes"); do "$HERE/node.sh" add "$n" nowait; done
  apply_addons; start_coredns; start_provisioner; push_images
  for n in $(seq "$nodes"); do "$HERE/node.sh" wait "$n"; say "node$n is Ready ($(since))"; done
  wait_dns; wait_controllers
  date > "$STATE/started"
}
check_machine
lock
if ! use_existing; then
  if [ -e "$STATE" ] || ip link show "$BR" >/dev/null 2>&1; then say "removing what is left of an earlier cluster"; fi
  cleaning=$("$HERE/down.sh" 2>&1) || die "cannot clean up: $cleaning"
  start_new
fi
say "the cluster is ready ($(since)): $(ready_nodes) nodes, registry 127.0.0.1:$REGPORT"
[ ! -e "$RUN/audit" ] || say "audit log: $AUDITLOG"
say "to use it: export KUBECONFIG=$KUBECONFIG; kubectl is $BIN/kubectl"
