# The Kubernetes cluster that everything runs on: a local one (hack/cluster), or the one that KUBECONFIG names.
# Other topics use $(KUBECONFIG), which is exported, and $(REGISTRY), where images are pushed to and pulled from.
CLUSTER_DIR := $(or $(CL),$(PGSTEWARD_CLUSTER_DIR),/var/lib/pgsteward-cluster)
LOCAL_KUBECONFIG := $(CLUSTER_DIR)/admin.kubeconfig
NODES ?= 3

ifeq ($(or $(KUBECONFIG),$(LOCAL_KUBECONFIG)),$(LOCAL_KUBECONFIG))
CLUSTER_IS := local
KUBECONFIG := $(LOCAL_KUBECONFIG)
REGISTRY ?= 127.0.0.1:$(shell . $(CLUSTER_DIR)/settings 2>/dev/null; echo $$((5000 + $${OFF:-0})))
else
CLUSTER_IS := other
# expanded only where it is used
REGISTRY ?= $(error KUBECONFIG names another cluster: set REGISTRY to a registry that it can pull from, as in REGISTRY=ghcr.io/you)
endif
export KUBECONFIG
KUBECONFIG_PATH := $(KUBECONFIG)

.PHONY: cluster
cluster: ## A local Kubernetes with NODES=3 nodes (AUDIT=1: with an audit log), unless KUBECONFIG names another
ifeq ($(CLUSTER_IS),local)
	@AUDIT=$(AUDIT) hack/cluster/up.sh $(NODES)
else
	@hack/cluster/other.sh
endif

.PHONY: cluster-down
cluster-down: ## Stop the local cluster and remove what it holds; images and programs stay cached
ifeq ($(CLUSTER_IS),local)
	@hack/cluster/down.sh
else
	@echo "KUBECONFIG names another cluster, $(KUBECONFIG): nothing to stop" >&2
endif

.PHONY: cluster-check
cluster-check: ## Check that the local cluster does what a cluster does (about 5 minutes; kills nodes 2 and 3)
	@hack/cluster/check.sh

.PHONY: kubeconfig
kubeconfig: ## Print the path of the kubeconfig in use
	@echo "$(KUBECONFIG)"
