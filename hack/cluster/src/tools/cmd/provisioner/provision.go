package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// mountPoint is where a node sees its volumes.
const mountPoint = "/var/lib/pv"

// disks runs volume.sh.
type disks struct{ script, state string }

func (d disks) run(ctx context.Context, command, node, volume string, more ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	args := append([]string{d.script, d.state, command, node, volume}, more...)
	out, err := exec.CommandContext(ctx, "bash", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot %s volume %s on %s: %w: %s", command, volume, node, err, strings.TrimSpace(string(out)))
	}
	return nil
}

type provisioner struct{ disks disks }

func (p provisioner) Provision(ctx context.Context, o controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	node := o.SelectedNodeName
	if node == "" {
		return nil, controller.ProvisioningFinished, errors.New("no node selected: the StorageClass needs volumeBindingMode WaitForFirstConsumer")
	}
	for _, mode := range o.PVC.Spec.AccessModes {
		if mode != v1.ReadWriteOnce && mode != v1.ReadWriteOncePod {
			return nil, controller.ProvisioningFinished, fmt.Errorf("access mode %s is not supported", mode)
		}
	}
	size := o.PVC.Spec.Resources.Requests[v1.ResourceStorage]
	if err := p.disks.run(ctx, "create", node, o.PVName, strconv.FormatInt(size.Value(), 10)); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	fileSystem := v1.PersistentVolumeFilesystem
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			AccessModes:                   o.PVC.Spec.AccessModes,
			VolumeMode:                    &fileSystem,
			Capacity:                      v1.ResourceList{v1.ResourceStorage: size},
			PersistentVolumeSource:        v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path.Join(mountPoint, o.PVName)}},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}, controller.ProvisioningFinished, nil
}

func (p provisioner) Delete(ctx context.Context, pv *v1.PersistentVolume) error {
	return p.disks.run(ctx, "remove", nodeOf(pv), pv.Name)
}
