# The operator in a cluster: that of KUBECONFIG, or the local one.

.PHONY: deploy
deploy: | $(KUSTOMIZE) ## Install or update the operator in the cluster, with the images of bin/images.env
	@hack/deploy/deploy.sh

.PHONY: deploy-release
deploy-release: ## Install a release, RELEASE= (the last one), as kubectl apply -k config/default of its tag does; undeploy comes first
	@REGISTRY=$(REGISTRY) hack/deploy/release.sh $(RELEASE)

.PHONY: undeploy
undeploy: | $(KUSTOMIZE) ## Remove the operator and its CRDs (refused while PostgresClusters exist; FORCE=1 deletes them)
	@FORCE=$(FORCE) hack/deploy/undeploy.sh
