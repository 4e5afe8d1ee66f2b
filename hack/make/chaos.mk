# Chaos: faults under writes on the local cluster, and how long writes pause (package test/chaos). Both need the operator deployed.
# They break the cluster's nodes, API server and operator, and mend them: nothing else should use it meanwhile.
CHAOS_TEST = mkdir -p bin/test && $(GOTESTSUM) --format standard-verbose --jsonfile bin/test/chaos.json -- -tags e2e -count 1 -timeout 0

.PHONY: chaos
chaos: | $(GOTESTSUM) ## Random faults under writes: SEED=, ROUNDS=20, KINDS="17-sync 17-async", FAULTS=(a regular expression)
	@REGISTRY=$(REGISTRY) hack/bench/image.sh
	@SEED='$(SEED)' ROUNDS='$(ROUNDS)' KINDS='$(KINDS)' FAULTS='$(FAULTS)' $(CHAOS_TEST) -run TestRandom ./test/chaos

.PHONY: chaos-each
chaos-each: | $(GOTESTSUM) ## Each fault once, or those of FAULTS; KINDS="17-sync"
	@REGISTRY=$(REGISTRY) hack/bench/image.sh
	@SEED='$(SEED)' KINDS='$(KINDS)' FAULTS='$(FAULTS)' $(CHAOS_TEST) -run TestEach ./test/chaos

.PHONY: chaos-short
chaos-short: | $(GOTESTSUM) ## The fixed faults that CI does, under 8 minutes
	@REGISTRY=$(REGISTRY) hack/bench/image.sh
	@$(CHAOS_TEST) -run TestShort ./test/chaos

.PHONY: bench-gaps
bench-gaps: | $(GOTESTSUM) ## How long writes pause: a table of RUNS=10 of each event, KINDS="17-async"
	@REGISTRY=$(REGISTRY) hack/bench/image.sh
	@REGISTRY=$(REGISTRY) hack/bench/next.sh $(VERSION)
	@RUNS='$(RUNS)' KINDS='$(KINDS)' FAULTS='$(FAULTS)' $(CHAOS_TEST) -run TestGaps ./test/chaos
