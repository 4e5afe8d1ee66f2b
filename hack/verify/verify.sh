#!/usr/bin/env bash
# verify.sh [STEP...] - checks everything that can be checked without running the product; all steps by default. It goes on
# after a failure, so that one run shows all of them, and fails at the end. `verify.sh --list` names the steps.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
cd "$ROOT"

# name and what it says about the tree
STEPS=(
  "generated  deep copies, CRDs, RBAC and docs/api*.md are what their markers give"
  "gofmt      Go files are formatted"
  "vet        go vet finds nothing"
  "lint       golangci-lint finds nothing"
  "arch       imports go one way; what decides is pure"
  "modules    go.mod and go.sum are tidy"
  "scripts    shellcheck finds nothing"
  "packaging  bundle, catalog and releases are what OLM and people want; upgrades and permissions are safe"
  "bundle     bundle/ and catalog/ are generated from config/, and valid"
)

# go_files, shell_files: those of the work tree, committed or not
go_files()    { git ls-files -co --exclude-standard -- '*.go' | existing; }
shell_files() { { git ls-files -co --exclude-standard -- '*.sh'; echo .ci/run; } | existing; }
existing()    { local f; while read -r f; do [ ! -f "$f" ] || echo "$f"; done; }

# sums PATH...: name and checksum of every file below
sums() { find "$@" -type f -exec sha256sum {} + 2>/dev/null | sort -k2; }

# fresh "PATH..." TARGET...: make TARGET... changes nothing below the paths. Compares before and after instead of asking git, so that
# uncommitted work does not count. It works on a copy of the tree, since others may read the tree meanwhile; what is stale is mended
# there: look at it and commit it.
fresh() {
  local paths copy rc=0; read -ra paths <<<"$1"; shift
  copy=$(mktemp -d)
  copy_tree "$copy" && generate_in "$copy" "$@" || rc=1
  rm -rf "$copy"
  return "$rc"
}

# generate_in COPY TARGET...: what fresh does, with its paths
generate_in() {
  local copy=$1 before after stale f; shift
  before=$(cd "$copy" && sums "${paths[@]}")
  make -s -C "$copy" "$@" || return 1
  after=$(cd "$copy" && sums "${paths[@]}")
  [ "$before" != "$after" ] || return 0
  stale=$(diff <(echo "$before") <(echo "$after") | awk '/^[<>]/ {print $3}' | sort -u) || true
  echo "were stale and have been generated anew; commit them:"
  while read -r f; do
    echo "  $f"
    if [ -e "$copy/$f" ]; then mkdir -p "$(dirname "$f")" && cp "$copy/$f" "$f"; else rm -f "$f"; fi
  done <<<"$stale"
  return 1
}

step_generated() { fresh "apis config/crd/bases config/rbac config/webhook docs" generate manifests; }

step_gofmt() {
  local bad; bad=$(go_files | xargs -r gofmt -l)
  [ -z "$bad" ] || { echo "not formatted (make fmt):"; echo "$bad"; return 1; }
}

step_vet()     { go vet -tags e2e ./...; }
step_lint()    { make -s lint; }
step_arch()    { go test -count=1 ./internal/testing/arch/; }
step_modules() { go mod tidy -diff; }

# Sourced files cannot be followed (SC1090, SC1091), nor can the use of what they set (SC2034).
step_scripts() {
  command -v shellcheck >/dev/null || { echo "shellcheck is not installed (apt-get install shellcheck); skipped"; return 0; }
  shell_files | xargs -r shellcheck --shell=bash --severity=warning --exclude=SC1090,SC1091,SC2034
}

# Before what is stale is generated anew: a catalog that was broken by hand is to be told what is wrong with it.
step_packaging() {
  local out; out=$(mktemp -d)
  go test -count=1 ./internal/testing/packaging/ &&
    hack/bundle/source.sh --check &&
    { [ ! -d releases ] || make -s operatorhub OUT="$out"; }
}

step_bundle() {
  fresh "bundle bundle.Dockerfile catalog config/manifests" bundle catalog &&
    make -s bundle-validate catalog-validate scorecard
}

# run NAME WHAT: one step with its time; its output is shown when it fails
run() {
  local start=$SECONDS log rc=0; log=$(mktemp)
  "step_$1" >"$log" 2>&1 </dev/null || rc=$?
  if [ "$rc" = 0 ]; then
    printf '  ok    %-9s %s (%d s)\n' "$1" "$2" $((SECONDS - start))
    grep skipped "$log" | sed 's/^/        /' || true
  else
    printf '  FAIL  %-9s %s (%d s)\n' "$1" "$2" $((SECONDS - start))
    sed 's/^/        /' "$log"
  fi
  rm -f "$log"
  return "$rc"
}

main() {
  local wanted=" $* " failed=() known="" line name what start=$SECONDS
  for line in "${STEPS[@]}"; do
    read -r name what <<<"$line"
    known+=" $name"
    [ "$wanted" != " --list " ] || { echo "$line"; continue; }
    [[ "$wanted" = "  " || "$wanted" = *" $name "* ]] || continue
    run "$name" "$what" || failed+=("$name")
  done
  [ "$wanted" != " --list " ] || return 0
  for name in "$@"; do [[ "$known " = *" $name "* ]] || die "no step $name; there are:$known"; done
  if [ ${#failed[@]} -gt 0 ]; then
    echo "verify: FAILED: ${failed[*]} ($((SECONDS - start)) s)"
    return 1
  fi
  echo "verify: all is well ($((SECONDS - start)) s)"
}

main "$@"
