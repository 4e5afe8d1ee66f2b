#!/usr/bin/env bash
# check.sh [workloads|volumes|nodes]... - does the cluster do what a cluster does? All three parts when none is named.
# "nodes" kills node2 and cuts node3 off. Ends with "N passed, N failed".
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=env.sh
. "$(dirname "$0")/env.sh"
IMAGE=127.0.0.1:5000/busybox:1
passed=0 failed=0 NS=check

# check WHAT CMD...: one line with its result; of a failure the end of its output
check() {
  local what=$1 begin out; shift; begin=$(date +%s.%N)
  if out=$("$@" 2>&1); then passed=$((passed+1)) result=ok; else failed=$((failed+1)) result=FAIL; fi
  printf '%-4s %s (%.1f s)\n' "$result" "$what" "$(echo "$(date +%s.%N) $begin" | awk '{print $1-$2}')"
  [ "$result" = ok ] || tail -5 <<< "$out" | sed 's/^/       /'
}
k() { kubectl -n "$NS" "$@"; }
# within SECONDS CMD...: until it succeeds
within() { local end=$((SECONDS+$1)); shift; until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || { "$@"; return; }; sleep 0.5; done; }
not() { ! "$@"; }
new_namespace() {
  NS=$1; kubectl delete ns "$NS" --ignore-not-found --timeout=120s >/dev/null 2>&1; kubectl create ns "$NS" >/dev/null
  within 30 k get serviceaccount default >/dev/null   # before that Pods are refused
}
field() { k get "$1" -o "jsonpath=$2"; }               # field OBJECT PATH
http() { printf 'GET / HTTP/1.0\r\n\r\n' | nc_on "$1" "$2" "$3"; }
nc_on() { k exec -i "$1" -- nc -w 2 "$2" "$3" | tail -1 | grep .; }   # nc_on POD HOST PORT, a request on standard input
restarts() { field "pod/$1" '{.status.containerStatuses[0].restartCount}'; }
restarted() { [ "$(restarts "$1")" -gt "$2" ]; }        # restarted POD COUNT
pod_ip() { field "pod/$1" '{.status.podIP}'; }

# --- Deployments, Services, DNS, probes, jobs ------------------------------------------------------------------------
web_manifest() { cat <<X
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: $IMAGE
        command: [sh, -c, "mkdir -p /tmp/w && hostname > /tmp/w/index.html && touch /tmp/live && exec httpd -f -p 8080 -h /tmp/w"]
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
        livenessProbe: {exec: {command: [test, -e, /tmp/live]}, periodSeconds: 1, failureThreshold: 2}
        resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "$IMAGE", command: [sh, -c, "echo hello-log; exec sleep 100000"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec:
  restartPolicy: Never
  containers: [{name: c, image: "$IMAGE", command: [tail, /dev/zero], resources: {limits: {memory: 32Mi}}}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "* * * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "$IMAGE", command: [echo, tick]}]}}}}
X
}
logs_arrive() { k logs client | grep -q hello-log; }
exec_works() { k exec client -- cat /proc/1/cmdline | grep -q sleep; }
both_answer() { [ "$(for _ in $(seq 30); do http client web 80; done | sort -u | wc -l)" = 2 ]; }
from_here() { curl -sf -m 5 "http://$(field svc/web '{.spec.clusterIP}')/"; }
kill_main_process() {
  local node id before
  before=$(restarts "$pod") node=$(field "pod/$pod" '{.spec.nodeName}') id=$(field "pod/$pod" '{.status.containerStatuses[0].containerID}')
  "$HERE/node.sh" exec "${node#node}" ctr -n k8s.io task kill -s KILL "${id#containerd://}" && within 30 restarted "$pod" "$before"
}
fail_liveness() { local before; before=$(restarts "$pod"); k exec "$pod" -- rm /tmp/live && within 40 restarted "$pod" "$before"; }
ready_endpoints() { [ "$(k get endpointslices -l kubernetes.io/service-name=web -o 'jsonpath={range .items[*].endpoints[*]}{.conditions.ready}{"\n"}{end}' | grep -c true)" = "$1" ]; }
fail_readiness() { k exec "$pod" -- mv /tmp/w/index.html /tmp/w/x && within 20 ready_endpoints 1 && k exec "$pod" -- mv /tmp/w/x /tmp/w/index.html && within 20 ready_endpoints 2; }
oom_killed() { field pod/greedy '{.status.containerStatuses[0].state.terminated.reason}' | grep -q OOMKilled; }
forwarded() {
  local forwarder ok
  kubectl -n "$NS" port-forward svc/web $((18080+OFF)):80 >/dev/null 2>&1 & forwarder=$!
  within 10 curl -sf "http://127.0.0.1:$((18080+OFF))/"; ok=$?; kill $forwarder; return $ok
}
cron_ran() { k get jobs -o 'jsonpath={.items[*].status.succeeded}' | grep -q 1; }
metrics() { [ "$(kubectl get --raw /metrics | grep -c ^apiserver_request_total)" -gt 0 ]; }
check_workloads() {
  new_namespace check-workloads; web_manifest | k apply -f - >/dev/null
  check "Deployment with 2 pods, pulled from the registry" k rollout status deploy/web --timeout=120s
  check "Pod is Ready" k wait --for=condition=Ready pod/client --timeout=60s
  check "logs" logs_arrive
  check "exec" exec_works
  check "Service by its DNS name" within 20 http client "web.$NS.svc.cluster.local" 80
  check "Service leads to both pods" both_answer
  check "Service from this machine" within 10 from_here
  check "the API server from a pod" k exec client -- sh -c "nc -w 2 kubernetes.default.svc.cluster.local 443 </dev/null"
  check "metrics of the API server" metrics
  check "the API server is not on all addresses" not curl -sk -m 2 "https://127.0.0.1:$APIPORT/"
  pod=$(k get pod -l app=web -o 'jsonpath={.items[0].metadata.name}')
  check "main process killed: container is started again" kill_main_process
  check "it is Ready again" k wait --for=condition=Ready "pod/$pod" --timeout=60s
  check "liveness probe fails: container is started again" fail_liveness
  k wait --for=condition=Ready "pod/$pod" --timeout=60s >/dev/null
  check "readiness probe fails: pod leaves the Service" fail_readiness
  check "memory limit: OOMKilled" within 40 oom_killed
  check "port-forward" forwarded
  check "CronJob ran" within 90 cron_ran
  check "namespace is deleted" kubectl delete ns "$NS" --timeout=120s
}

# --- StatefulSets and volumes ----------------------------------------------------------------------------------------
db_manifest() { cat <<X
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      securityContext: {runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000}
      containers:
      - {name: c, image: "$IMAGE", command: [sh, -c, "date +%s%N >> /data/starts; exec sleep 100000"], volumeMounts: [{name: data, mountPath: /data}]}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: fixed}
spec: {storageClassName: local-fixed, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: fixed}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "$IMAGE", command: [sleep, "100000"], volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: fixed}}]
X
}
group_is_fsgroup() { [ "$(k exec db-0 -- stat -c %g /data)" = 1000 ]; }
starts_are() { [ "$(k exec db-0 -- sh -c 'wc -l < /data/starts')" = "$1" ]; }
recreate_pod() { k delete pod db-0 --wait=true && within 60 k wait --for=condition=Ready pod/db-0 --timeout=60s && starts_are 2; }
fill() { k exec db-0 -- sh -c 'dd if=/dev/zero of=/data/fill bs=1M count=3000 2>&1 || true' | grep -q 'No space left'; }
ask_for() { k patch pvc "$1" -p "{\"spec\":{\"resources\":{\"requests\":{\"storage\":\"$2\"}}}}"; }   # ask_for CLAIM SIZE
has() { [ "$(field "pvc/$1" '{.status.capacity.storage}')" = "$2" ]; }
grow() { ask_for data-db-0 2Gi && within 20 has data-db-0 2Gi && [ "$(k exec db-0 -- df -m /data | awk 'NR == 2 {print $2}')" -gt 1900 ] && k exec db-0 -- sh -c 'echo more > /data/more'; }
volume_removed() {
  local pv
  pv=$(field pvc/data-db-1 '{.spec.volumeName}')
  k delete sts db --wait=true && k delete pvc data-db-1 --timeout=60s && within 30 not kubectl get pv "$pv" && [ -z "$(ls "$NODES"/*/volumes/"$pv".img 2>/dev/null)" ]
}
check_volumes() {
  new_namespace check-volumes; db_manifest | k apply -f - >/dev/null
  check "StatefulSet with volumes" k rollout status sts/db --timeout=120s
  check "headless DNS name of its pod" within 20 k exec db-0 -- nslookup "db-0.db.$NS.svc.cluster.local"
  check "the volume's group is fsGroup" group_is_fsgroup
  check "deleted pod is back with its data" recreate_pod
  check "a volume is full at its size" fill
  check "a full volume in use grows" grow
  check "class local-fixed: volume" k wait --for=condition=Ready pod/fixed --timeout=60s
  check "class local-fixed: does not grow" not ask_for fixed 2Gi
  check "deleted claim: its volume is gone" volume_removed
  check "namespace is deleted" kubectl delete ns "$NS" --timeout=120s
}

# --- node loss and network partition ---------------------------------------------------------------------------------
node_manifest() {
  for n in 1 2 3; do cat <<X
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: s$n}
spec:
  serviceName: s
  selector: {matchLabels: {app: s$n}}
  template:
    metadata: {labels: {app: s$n}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {kubernetes.io/hostname: node$n}
      containers:
      - name: c
        image: $IMAGE
        command: [sh, -c, "date +%s >> /d/starts; mkdir /tmp/w; echo s$n > /tmp/w/index.html; exec httpd -f -p 8080 -h /tmp/w"]
        volumeMounts: [{name: d, mountPath: /d}]
  volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
---
X
  done; cat <<X
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  replicas: 1
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec:
      terminationGracePeriodSeconds: 1
      affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, preference: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node2]}]}}]}}
      containers: [{name: c, image: "$IMAGE", command: [sleep, "100000"]}]
X
}
node_is() { [ "$(kubectl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" = "$2" ]; }
node_sh() { "$HERE/node.sh" "$@"; }
elsewhere() { k get pods -l app=d --field-selector=status.phase=Running -o 'jsonpath={range .items[*]}{.spec.nodeName}{"\n"}{end}' | grep -qE 'node[^2]'; }
deployment_ready() { [ "$(field deploy/d '{.status.readyReplicas}')" = 1 ]; }
back_with_data() { [ "$(k exec s2-0 -- sh -c 'wc -l < /d/starts')" -ge 2 ]; }
reach_node3() { http s1-0 "$(pod_ip s3-0)" 8080; }
grown_while_down() { within 30 has d-s2-0 2Gi && [ "$(k exec s2-0 -- df -m /d | awk 'NR == 2 {print $2}')" -gt 1900 ]; }
check_nodes() {
  local ip2 ip3
  kubectl get node node3 >/dev/null 2>&1 || "$HERE/up.sh" 3 || return 1
  new_namespace check-nodes; node_manifest | k apply -f - >/dev/null
  for n in 1 2 3; do check "pod with a volume on node$n" k rollout status sts/s$n --timeout=60s; done
  check "Deployment" k rollout status deploy/d --timeout=60s
  ip2=$(pod_ip s2-0) ip3=$(pod_ip s3-0)
  check "pod on node1 reaches pod on node2" http s1-0 "$ip2" 8080
  check "pod on node1 reaches pod on node3" http s1-0 "$ip3" 8080
  node_sh kill 2; node_sh cut 3
  check "killed node2 is not Ready" within 60 node_is node2 Unknown
  check "cut-off node3 is not Ready" within 60 node_is node3 Unknown
  check "pod on node3 is not reached" not curl -s -m 2 "http://$ip3:8080/"
  check "node3's pod still runs behind the cut" node_sh exec 3 curl -sf -m 2 "http://$ip3:8080/"
  check "names are still resolved" k exec s1-0 -- nslookup kubernetes.default.svc.cluster.local
  check "Deployment's pod comes up on another node" within 90 elsewhere
  check "it is Ready there" within 60 deployment_ready
  ask_for d-s2-0 2Gi >/dev/null
  check "node2 starts again" node_sh start 2
  check "its StatefulSet's pod is back with its data" within 60 back_with_data
  check "its volume, grown meanwhile, has the new size" grown_while_down
  check "node3 is joined again" node_sh join 3
  check "node3 is Ready" within 60 node_is node3 True
  check "node3's pod is reached again" within 60 reach_node3
  node_sh hold 2 kubelet
  check "kubelet of node2 stopped: node not Ready" within 60 node_is node2 Unknown
  node_sh release 2 kubelet
  check "kubelet of node2 again: node Ready" within 60 node_is node2 True
  check "namespace is deleted" kubectl delete ns "$NS" --timeout=120s
}
[ $# -gt 0 ] || set -- workloads volumes nodes
for part in "$@"; do
  case $part in workloads|volumes|nodes) check_"$part" ;; *) die "no part $part: workloads, volumes or nodes" ;; esac
done
echo "$passed passed, $failed failed"; [ $failed = 0 ]
