# The operator in a cluster: that of KUBECONFIG, or the local one.

.PHONY: deploy
deploy: | $(KUSTOMIZE) ## Install or update the operator in the cluster, with the images of bin/images.env
	@hack/deploy/deploy.sh

.PHONY: undeploy
undeploy: | $(KUSTOMIZE) ## Remove the operator and its CRDs (refused while PostgresClusters exist; FORCE=1 deletes them)
	@FORCE=$(FORCE) hack/deploy/undeploy.sh
