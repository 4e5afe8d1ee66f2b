# The simulation of internal/election. A seed that fails is printed with what happened; run it alone with FIRST=seed SEEDS=1 TRACE=1.

SEEDS ?= 100000
FIRST ?= 0
# how many seeds are tried for each rule and condition that is left out
MUTANT_SEEDS ?= 20000

.PHONY: simulate
simulate: ## Simulate SEEDS=100000 clusters in which everything goes wrong, on all cores (MUTATIONS=1: leave out each rule once, too)
	@go test -count 1 -timeout 6h ./internal/election -run '^TestSimulation$$' -v -args -first $(FIRST) -seeds $(SEEDS) $(if $(TRACE),-trace)
ifdef MUTATIONS
	@go test -count 1 -timeout 6h ./internal/election -run '^TestFind(Mutations|Courses)$$' -v -args -mutate $(MUTANT_SEEDS)
endif
