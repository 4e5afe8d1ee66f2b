# Tests, from the fastest to the whole. hack/test.sh says what each part is.

# PACKAGES for test-unit, FOCUS (a regular expression over the groups, such as "Basic|Scale") for e2e
PACKAGES ?= ./...
FOCUS    ?=
export KUBEBUILDER_ASSETS ?= $(CURDIR)/bin

.PHONY: test
test: ## Everything from cold: packages, tools, cluster, images, unit and agent tests, verify, deploy, e2e (KEEP=0 stops the cluster)
	@NODES=$(NODES) KEEP=$(KEEP) hack/test.sh all

.PHONY: test-unit
test-unit: | $(GOTESTSUM) ## Unit tests and envtest of PACKAGES=./... (envtest needs the programs of make cluster)
	@$(GOTESTSUM) --format pkgname -- -timeout 10m $(PACKAGES)

.PHONY: test-agent
test-agent: | $(GOTESTSUM) ## Tests of the agent with real PostgreSQL, which is installed if it is missing
	@hack/test.sh packages
	@$(GOTESTSUM) --format testname -- -timeout 10m -count 1 ./internal/agent/...

.PHONY: test-race
test-race: | $(GOTESTSUM) ## Unit tests with the race detector, of the packages with goroutines (needs gcc)
	@CGO_ENABLED=1 $(GOTESTSUM) --format pkgname -- -race -timeout 15m ./internal/agent/... ./internal/observe/... ./internal/apply/...

.PHONY: e2e
e2e: | $(GOTESTSUM) ## End-to-end tests on the cluster, FOCUS="Basic|Scale" for some; deploys what they need first
	@$(MAKE) --no-print-directory cluster images olm-down deploy
	@REGISTRY=$(REGISTRY) hack/store/image.sh
	@FOCUS='$(FOCUS)' hack/test.sh e2e

.PHONY: demo
demo: ## A Kubernetes, the operator and a three-instance PostgreSQL in it, from nothing
	@hack/demo.sh

.PHONY: bench-upgrade
bench-upgrade: | $(GOTESTSUM) ## Major upgrades under writes, RUNS=3 there and back with SIZES="1 2 10": how long each takes, how long writes pause
	@REGISTRY=$(REGISTRY) hack/bench/image.sh
	@RUNS='$(RUNS)' SIZES='$(SIZES)' VERSIONS='$(VERSIONS)' $(CHAOS_TEST) -run TestUpgrades ./test/chaos

.PHONY: bench-backup
bench-backup: | $(GOTESTSUM) ## What backups and recoveries cost, against pg_basebackup of the same data in the same run
	@FOCUS='^TestBenchBackup$$' hack/test.sh groups
