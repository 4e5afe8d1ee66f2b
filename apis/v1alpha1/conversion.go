package v1alpha1

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/conversion"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// AnnotationV1 has, on a v1alpha1 object, what of v1 it has no fields for. It is written by the conversion alone.
const AnnotationV1 = v1.Group + "/v1"

// What v1alpha1 shows where v1 leaves the choice to a default.
const (
	defaultReplicas = 3
	defaultSize     = "1Gi"
)

// carried is the content of AnnotationV1.
type carried struct {
	Spec   v1.PostgresClusterSpec   `json:"spec"`
	Status v1.PostgresClusterStatus `json:"status"`
}

// withMinor is a version that v1 has no field for.
var withMinor = regexp.MustCompile(`^1[3-8]\.[0-9]+$`)

// ConvertTo makes the v1 object of this one.
func (c *PostgresCluster) ConvertTo(hub conversion.Hub) error {
	to, ok := hub.(*v1.PostgresCluster)
	if !ok {
		return fmt.Errorf("converting PostgresCluster v1alpha1: no conversion to %T", hub)
	}
	in := c.DeepCopy() // the result shares nothing with what it was made from
	base := carried{}
	content, found := in.Annotations[AnnotationV1]
	if found {
		if err := json.Unmarshal([]byte(content), &base); err != nil {
			return fmt.Errorf("metadata.annotations[%s]: was changed and cannot be read (%w); restore what you read, or remove it and lose what only v1 has", AnnotationV1, err)
		}
		delete(in.Annotations, AnnotationV1)
	}
	to.ObjectMeta = in.ObjectMeta
	to.Spec, to.Status = base.Spec, base.Status
	shown := PostgresCluster{Status: showStatus(base.Status)}
	if found {
		shown.Spec = showSpec(base.Spec, "")
	}
	takeSpec(in.Spec, shown.Spec, &to.Spec)
	takeStatus(in.Status, shown.Status, &to.Status)
	keepMinor(in.Spec.PostgresVersion, to)
	return nil
}

// ConvertFrom makes this object of the v1 one.
func (c *PostgresCluster) ConvertFrom(hub conversion.Hub) error {
	from, ok := hub.(*v1.PostgresCluster)
	if !ok {
		return fmt.Errorf("converting PostgresCluster v1alpha1: no conversion from %T", hub)
	}
	in := from.DeepCopy()
	minor := minorOf(in)
	if minor != "" {
		delete(in.Annotations, v1.AnnotationPostgresVersion) // spec.postgresVersion says it
	}
	delete(in.Annotations, AnnotationV1)
	c.ObjectMeta = in.ObjectMeta
	c.Spec, c.Status = showSpec(in.Spec, minor), showStatus(in.Status)
	return c.carry(carried{Spec: in.Spec, Status: in.Status})
}

// carry writes AnnotationV1, unless the fields that this version has give back the same.
func (c *PostgresCluster) carry(all carried) error {
	back := &v1.PostgresCluster{}
	if err := c.ConvertTo(back); err != nil {
		return err
	}
	want, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("converting PostgresCluster %s/%s: %w", c.Namespace, c.Name, err)
	}
	got, err := json.Marshal(carried{Spec: back.Spec, Status: back.Status})
	if err != nil {
		return fmt.Errorf("converting PostgresCluster %s/%s: %w", c.Namespace, c.Name, err)
	}
	if string(got) == string(want) {
		return nil
	}
	annotations := map[string]string{AnnotationV1: string(want)}
	maps.Copy(annotations, c.Annotations)
	c.Annotations = annotations
	return nil
}

// showSpec is what v1alpha1 shows of a v1 spec. The minor is empty if nobody asked for one.
func showSpec(s v1.PostgresClusterSpec, minor string) PostgresClusterSpec {
	shown := PostgresClusterSpec{Replicas: defaultReplicas, PostgresVersion: s.Version}
	if s.Replicas != nil {
		shown.Replicas = *s.Replicas
	}
	if minor != "" {
		shown.PostgresVersion = minor
	}
	if s.Storage.Size != nil {
		shown.Storage.Size = *s.Storage.Size
	} else {
		shown.Storage.Size = resource.MustParse(defaultSize)
	}
	if s.Storage.StorageClassName != nil {
		shown.Storage.StorageClassName = *s.Storage.StorageClassName
	}
	return shown
}

// takeSpec changes a v1 spec wherever the v1alpha1 spec differs from what it was shown as.
func takeSpec(s, shown PostgresClusterSpec, to *v1.PostgresClusterSpec) {
	if s.Replicas != shown.Replicas {
		to.Replicas = &s.Replicas
	}
	if major, _, _ := strings.Cut(s.PostgresVersion, "."); major != shown.PostgresVersion {
		to.Version = major
	}
	if s.Storage.Size.String() != shown.Storage.Size.String() {
		to.Storage.Size = &s.Storage.Size
	}
	if s.Storage.StorageClassName != shown.Storage.StorageClassName {
		to.Storage.StorageClassName = nil
		if s.Storage.StorageClassName != "" {
			to.Storage.StorageClassName = &s.Storage.StorageClassName
		}
	}
}

// minorOf is the version with its minor that v1alpha1 asked for; empty if it did not.
func minorOf(c *v1.PostgresCluster) string {
	wanted := c.Annotations[v1.AnnotationPostgresVersion]
	if withMinor.MatchString(wanted) && strings.HasPrefix(wanted, c.Spec.Version+".") {
		return wanted
	}
	return ""
}

// keepMinor notes on the v1 object which minor was asked for.
func keepMinor(version string, to *v1.PostgresCluster) {
	switch {
	case withMinor.MatchString(version):
		if to.Annotations == nil {
			to.Annotations = map[string]string{}
		}
		to.Annotations[v1.AnnotationPostgresVersion] = version
	case minorOf(to) != "":
		delete(to.Annotations, v1.AnnotationPostgresVersion)
	}
}

// showStatus is what v1alpha1 shows of a v1 status.
func showStatus(s v1.PostgresClusterStatus) PostgresClusterStatus {
	return PostgresClusterStatus{
		Phase:        showPhase(s.Phase),
		PrimaryHost:  s.PrimaryHost,
		ReplicaHosts: s.ReplicaHosts,
		Conditions:   s.Conditions,
	}
}

// takeStatus changes a v1 status wherever the v1alpha1 status differs from what it was shown as.
func takeStatus(s, shown PostgresClusterStatus, to *v1.PostgresClusterStatus) {
	if s.Phase != shown.Phase {
		to.Phase = takePhase(s.Phase)
	}
	if s.PrimaryHost != shown.PrimaryHost {
		to.PrimaryHost = s.PrimaryHost
	}
	if !apiequality.Semantic.DeepEqual(s.ReplicaHosts, shown.ReplicaHosts) {
		to.ReplicaHosts = s.ReplicaHosts
	}
	if !apiequality.Semantic.DeepEqual(s.Conditions, shown.Conditions) {
		to.Conditions = s.Conditions
	}
}

func showPhase(p v1.Phase) Phase {
	switch p {
	case "":
		return ""
	case v1.PhaseCreating:
		return PhaseCreating
	case v1.PhaseRunning, "Upgrading": // an upgrade goes on under a serving primary
		return PhaseReady
	default:
		return PhaseFailed
	}
}

func takePhase(p Phase) v1.Phase {
	if p == PhaseReady {
		return v1.PhaseRunning
	}
	return v1.Phase(p)
}
