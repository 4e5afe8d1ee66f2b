#!/usr/bin/env bash
# source.sh VERSION - prints a folder with the tree that a release was made from, as its commit has it: unpacked into the cache, so
# that old code can be built and run. source.sh --check compares every release in releases/ with its commit, and misses those that are gone.
# A release's commit is the one that brought releases/vVERSION: that is known without tags, which a clone need not have.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

need_history() {
  git rev-parse -q --verify HEAD >/dev/null 2>&1 || die "$ROOT is not a clone of the repository, and releases are built from its history"
  [ "$(git rev-parse --is-shallow-repository)" = false ] ||
    die "the history is cut off (a shallow clone), and releases are built from it: git fetch --unshallow"
}

# commit_of VERSION: the release's commit
commit_of() {
  local commit
  [ -d "releases/v$1" ] || die "v$1 has not been released (releases/ has: $(released | paste -sd' '))"
  commit=$(git log --diff-filter=A --format=%H -- "releases/v$1/release.env" | tail -n 1)
  [ -n "$commit" ] || die "no commit of this branch's history brought releases/v$1 (has it been committed?)"
  git show "$commit:Makefile" | grep -qxF "VERSION ?= $1" || die "commit $commit brought releases/v$1, and its Makefile says another VERSION"
  echo "$commit"
}

# brought: the versions that any commit of the history brought
brought() { git log --diff-filter=A --name-only --format= -- 'releases/*/release.env' | sed -n 's#^releases/v\([^/]*\)/.*#\1#p' | sort_versions; }

check() {
  local version commit
  for version in $(brought); do
    [ -d "releases/v$version" ] || die "releases/v$version is gone; what was released stays in the catalog (clusters that run it upgrade from it)"
  done
  for version in $(released); do
    commit=$(commit_of "$version")
    git diff --quiet "$commit" -- "releases/v$version" ||
      die "releases/v$version is not what commit $commit released: $(git diff --name-only "$commit" -- "releases/v$version" | paste -sd' ')"
  done
}

# unpack VERSION: the commit's tree, once
unpack() {
  local commit dir
  commit=$(commit_of "$1")
  dir=$KEPT/source-${commit:0:12}
  if [ ! -d "$dir" ]; then
    mkdir -p "$dir.$$"
    git archive "$commit" | tar -x -C "$dir.$$"
    mv -T "$dir.$$" "$dir" 2>/dev/null || rm -rf "$dir.$$" # another was faster
  fi
  echo "$dir"
}

[ $# = 1 ] || die "usage: source.sh VERSION|--check"
need_history
if [ "$1" = --check ]; then check; else unpack "$1"; fi
