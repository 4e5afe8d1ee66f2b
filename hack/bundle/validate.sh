#!/usr/bin/env bash
# validate.sh bundle|catalog [FOLDER] - asks operator-sdk or opm. What they warn of is an error to us.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
cd "$ROOT"

# CRONJOBS is the one warning that says nothing: a rule of RBAC has no version, so that operator-sdk takes every one about CronJobs for one about
# batch/v1beta1.
CRONJOBS='APIs which were deprecated and removed in v1.25.*Migrate the API(s) for cronjobs: (\[\\"ClusterServiceVersion\.Spec\.InstallStrategy\.StrategySpec\.[A-Za-z]*\[[0-9]*\]\.Rules\[[0-9]*\]\\"\])"'

# quietly CMD...: what it says is shown only when it fails
quietly() { local said; said=$("$@" 2>&1) || { echo "$said" >&2; return 1; }; }

bundle() {
  local said
  quietly "$BIN/operator-sdk" bundle validate "$1"
  said=$("$BIN/operator-sdk" bundle validate "$1" --select-optional suite=operatorframework \
    --optional-values=k8s-version=1.34 -o json-alpha1 2>/dev/null) || true
  if ! grep -q '"passed": true' <<<"$said" || grep '"message":' <<<"$said" | grep -vq "$CRONJOBS"; then
    echo "$said" >&2
    die "operator-sdk is not content with $1"
  fi
}

# catalog FOLDER: as a whole, each package by itself, and the cache that is made of it
catalog() {
  local package cache
  quietly "$BIN/opm" validate "$1"
  for package in "$1"/*/; do quietly "$BIN/opm" validate "$package"; done
  cache=$(mktemp -d)
  # shellcheck disable=SC2064 # this folder, now
  trap "rm -rf '$cache'" EXIT
  quietly "$BIN/opm" serve "$1" --cache-dir="$cache" --cache-only -t /dev/null
}

what=${1:-}
case $what in bundle | catalog) "$what" "${2:-$what}" ;; *) die "usage: validate.sh bundle|catalog [FOLDER]" ;; esac
