#!/usr/bin/env bash
# node-init.sh STATE NAME IP - PID 1 of a node: mounts, then containerd, kubelet and kube-proxy, each started again when it
# ends. up.sh copies this file to STATE/lib (a running shell reads its script as it goes): it must stand alone.
set -u
state=$1 name=$2 ip=$3 D=$1/nodes/$2 bundle=$1/bundle
export PATH=$bundle/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
unset KUBECONFIG
hostname "$name"
ip link show eth0 >/dev/null || exit 1
# /sys of this network namespace, the machine's cgroup trees put back under it
mount -t tmpfs none /mnt; mkdir /mnt/cg; mount --rbind /sys/fs/cgroup /mnt/cg
mount -t sysfs sysfs /sys; mount --rbind /mnt/cg /sys/fs/cgroup; umount -R /mnt
mount -t tmpfs -o mode=755 tmpfs /run; mkdir -p /run/lock /run/netns
for p in var/lib/kubelet var/lib/containerd var/lib/pv var/lib/cni var/log/pods var/log/containers etc/cni etc/containerd etc/kubernetes; do
  mkdir -p "/$p"; mount --bind "$D/$p" "/$p"
done
[ -e /etc/machine-id ] && mount --bind "$D/machine-id" /etc/machine-id
# kubelet wants these kernel settings; they are the whole machine's, so it reads copies with the wanted values
fake() { echo "$2" > "$D/fake/${1//\//_}"; mount --bind "$D/fake/${1//\//_}" "/proc/sys/$1"; }
fake vm/overcommit_memory 1; fake vm/panic_on_oom 0; fake kernel/panic 10; fake kernel/panic_on_oops 1
fake kernel/keys/root_maxkeys 1000000; fake kernel/keys/root_maxbytes 25000000
echo 1 > /proc/sys/net/ipv4/ip_forward
mount --make-rshared /
bash "$state/lib/volume.sh" "$state" mount-all "$name" >> "$D/log/volumes.log" 2>&1
run() { # run SVC CMD...: as a service manager would, with Restart=always
  local s=$1; shift
  while :; do
    while [ -e "$D/hold-$s" ]; do sleep 0.2; done
    "$@" >>"$D/log/$s.log" 2>&1 </dev/null & echo $! > "/run/$s.pid"; wait $!
    echo "$(date +%T) $s ended: $?" >> "$D/log/$s.log"; sleep 1
  done
}
run containerd containerd --config /etc/containerd/config.toml &
for _ in $(seq 400); do [ -S /run/containerd/containerd.sock ] && ctr version >/dev/null 2>&1 && break; sleep 0.05; done
for t in "$bundle"/images/preload/*.tar; do [ -e "$t" ] && ctr -n k8s.io images import "$t" >>"$D/log/import.log" 2>&1; done
run kubelet "$bundle/bin/kubelet" --config /etc/kubernetes/kubelet.yaml --kubeconfig /etc/kubernetes/kubelet.conf --hostname-override "$name" --node-ip "$ip" --v=2 &
run kube-proxy "$bundle/bin/kube-proxy" --config /etc/kubernetes/proxy.yaml --v=2 &
wait
