// Command provisioner makes, grows and removes the "local" PersistentVolumes of the cluster's StorageClasses.
// All nodes lie on this machine, so that one process can reach the disks and the mount namespaces of every node;
// what it does there is in a script, hack/cluster/volume.sh.
package main

import (
	"context"
	"flag"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func main() {
	klog.InitFlags(nil)
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig `FILE`")
	script := flag.String("script", "", "the script volume.sh (`FILE`)")
	state := flag.String("state", "", "`DIR` of the cluster, the script's first argument")
	name := flag.String("name", "cluster.local/volume", "provisioner `NAME` in the StorageClasses")
	flag.Parse()

	cfg, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		klog.Fatal(err)
	}
	cfg.QPS, cfg.Burst = 50, 100
	client := kubernetes.NewForConfigOrDie(cfg)
	disks := disks{script: *script, state: *state}

	ctx := context.Background()
	factory := informers.NewSharedInformerFactory(client, 5*time.Minute)
	claims, volumes := factory.Core().V1().PersistentVolumeClaims(), factory.Core().V1().PersistentVolumes()
	provisioning := controller.NewProvisionController(ctx, client, *name, provisioner{disks},
		controller.LeaderElection(false),
		controller.RateLimiter(retries()),
		controller.ClaimsInformer(claims.Informer()),
		controller.VolumesInformer(volumes.Informer()))
	resizing := newResizer(client, *name, disks, claims, volumes.Lister())

	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	go resizing.run(ctx)
	provisioning.Run(ctx)
}

// retries waits 1 s after the first failure and 15 s at most: a node that was killed comes back.
func retries() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, 15*time.Second)
}

// nodeOf returns the name of the node that a volume lies on.
func nodeOf(pv *v1.PersistentVolume) string {
	return pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
}
