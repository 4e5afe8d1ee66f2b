# pgsteward. `make help` lists the targets; they are defined by topic in hack/make/.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= 0.5.0

# The same flags for every build and test, since Go's build cache is split by them.
export CGO_ENABLED ?= 0
export GOFLAGS ?= -trimpath -buildvcs=false
CACHE := $(or $(PGSTEWARD_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pgsteward)

include hack/make/*.mk

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-zA-Z0-9_-]+:.*## / {printf "  \033[36m%-16s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST) | sort
