#!/usr/bin/env bash
# demo.sh - from nothing to a three-instance PostgreSQL in a Kubernetes: the cluster, the images, the operator, one custom
# resource in the namespace demo; then a row written and read, and how to connect. Run again, it uses what is there.
set -euo pipefail
. "$(dirname "$0")/env.sh"
. "$(dirname "$0")/deploy/lib.sh" # kubectl, use_cluster
cd "$ROOT"
DEMO=demo            # the namespace
NAME=prod-db         # of the PostgresCluster
READY_WITHIN=${READY_WITHIN:-300} # seconds until the PostgresCluster must be ready
ROW_WITHIN=30        # seconds until a row must be seen on a standby

custom_resource() {
  cat <<'END'
apiVersion: pgsteward.io/v1
kind: PostgresCluster
metadata: {name: prod-db}
spec: {replicas: 3, version: "16"}
END
}

heading() { printf '\n\033[1m%s\033[0m\n' "$*"; }
# in colour on a terminal only
[ -t 1 ] || heading() { printf '\n%s\n' "$*"; }

# ready: whether the PostgresCluster is ready for its present spec
ready() {
  kubectl -n $DEMO get pgc $NAME -o jsonpath='{.metadata.generation} {.status.observedGeneration} {.status.conditions[?(@.type=="Ready")].status}' 2>/dev/null |
    awk '{exit !($1 == $2 && $3 == "True")}'
}

# progress: what is waited for, and how the Pods are, in one line
progress() {
  local message pods
  message=$(kubectl -n $DEMO get pgc $NAME -o jsonpath='{.status.conditions[?(@.type=="Ready")].message}') || message="the API server does not answer"
  pods=$(kubectl -n $DEMO get pods -l "pgsteward.io/cluster=$NAME" --no-headers 2>/dev/null | awk '{printf "%s%s %s %s", (NR > 1 ? ", " : ""), $1, $2, $3}') || pods=
  echo "${message:-waiting for the operator}${pods:+ [$pods]}"
}

wait_ready() {
  local start=$SECONDS last='' now
  until ready; do
    now=$(progress)
    [ "$now" = "$last" ] || { say "$now"; last=$now; }
    [ $((SECONDS - start)) -lt "$READY_WITHIN" ] || { explain; die "$NAME is not ready after $READY_WITHIN s; see above"; }
    sleep 1
  done
  say "$NAME is ready ($((SECONDS - start)) s)"
}

# explain: what a person would look at next
explain() {
  {
    kubectl -n $DEMO get pgc $NAME -o yaml
    kubectl -n $DEMO get pods,pvc,statefulsets -o wide
    echo "--- events"
    kubectl -n $DEMO get events --sort-by=.lastTimestamp | tail -n 30
    for pod in $(kubectl -n $DEMO get pods -l "pgsteward.io/cluster=$NAME" -o name); do
      echo "--- $pod"
      kubectl -n $DEMO logs "$pod" --all-containers --tail=20
    done
    echo "--- the operator"
    kubectl -n "$NAMESPACE" logs "deployment/$DEPLOYMENT" --tail=30
  } >&2 || true
}

# sql SERVICE SQL: runs SQL as the application through the Service, from one of the Pods. The password goes from the Secret through
# standard input, so that no list of processes shows it.
sql() {
  local primary
  primary=$(kubectl -n $DEMO get pgc $NAME -o jsonpath='{.status.currentPrimary}')
  # shellcheck disable=SC2016 # the Pod's shell expands it
  kubectl -n $DEMO get secret $NAME-app -o jsonpath='{.data.password}' | base64 -d |
    kubectl -n $DEMO exec -i "$primary-0" -c postgres -- sh -c \
      'PGPASSWORD=$(cat) exec psql -X -q -v ON_ERROR_STOP=1 -At -d "host=$1 user=app dbname=app sslmode=require connect_timeout=5" -c "$2"' psql "$1" "$2"
}

# try_sql: again for a while, for what becomes true a moment later
try_sql() {
  local start=$SECONDS out
  until out=$(sql "$@" 2>&1) && [ -n "$out" ]; do
    [ $((SECONDS - start)) -lt "$ROW_WITHIN" ] || { explain; die "$1 does not answer after $ROW_WITHIN s: $out"; }
    sleep 1
  done
  echo "$out"
}

use_it() {
  local note
  note="written by make demo, $(date +%T)"
  heading "A row, written through $NAME-rw:"
  try_sql $NAME-rw "SET client_min_messages = error; CREATE TABLE IF NOT EXISTS notes (id int GENERATED ALWAYS AS IDENTITY, note text);
    INSERT INTO notes (note) VALUES ('$note') RETURNING id, note" | tail -n 1
  heading "A query through $NAME-rw, answered by the primary:"
  try_sql $NAME-rw "SELECT 'PostgreSQL ' || current_setting('server_version') || ', recovering: ' || pg_is_in_recovery() || ', rows: ' || (SELECT count(*) FROM notes)"
  heading "The same row, read through $NAME-ro from a standby:"
  try_sql $NAME-ro "SELECT note || ', recovering: ' || pg_is_in_recovery() FROM notes WHERE note = '$note'"
}

how_to_connect() {
  heading "Connect"
  cat <<END
export KUBECONFIG=$KUBECONFIG
  from inside:  kubectl -n $DEMO exec -it $1-0 -c postgres -- psql -U postgres app
  an application gets everything from the Secret $NAME-app: keys uri, jdbc-uri, host, port, dbname, user, password, pgpass
  from outside: kubectl -n $DEMO port-forward service/$NAME-rw 15432:5432 &
                PGPASSWORD=\$(kubectl -n $DEMO get secret $NAME-app -o jsonpath='{.data.password}' | base64 -d) \\
                  psql "host=127.0.0.1 port=15432 user=app dbname=app sslmode=require"
Clean up: kubectl delete namespace $DEMO; make undeploy; make cluster-down
END
  [ -x "$(type -P kubectl)" ] || echo "(kubectl is $BIN/kubectl)"
}

main() {
  heading "1. A Kubernetes"
  make -s --no-print-directory cluster
  heading "2. Images"
  make -s --no-print-directory images
  heading "3. The operator"
  make -s --no-print-directory deploy
  use_cluster
  heading "4. A PostgresCluster in the namespace $DEMO"
  custom_resource
  kubectl get namespace $DEMO >/dev/null 2>&1 || kubectl create namespace $DEMO
  custom_resource | kubectl -n $DEMO apply -f -
  wait_ready
  heading "kubectl get pgc,pods -n $DEMO"
  kubectl get pgc,pods -n $DEMO
  use_it
  how_to_connect "$(kubectl -n $DEMO get pgc $NAME -o jsonpath='{.status.currentPrimary}')"
}

main "$@"
