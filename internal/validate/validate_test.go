package validate

import (
	"math/rand"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/build"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/plan"
)

// cluster is a PostgresCluster of PostgreSQL 16 with three instances, changed by the functions.
func cluster(changes ...func(*v1.PostgresCluster)) *v1.PostgresCluster {
	c := &v1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "x"},
		Spec:       v1.PostgresClusterSpec{Replicas: new(int32(3)), Version: "16"},
	}
	for _, change := range changes {
		change(c)
	}
	return c
}

func sized(size string) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) { c.Spec.Storage.Size = new(resource.MustParse(size)) }
}

func inClass(name string) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) { c.Spec.Storage.StorageClassName = &name }
}

func ofImage(name string) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) { c.Spec.Image = name }
}

func with(parameter string) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) {
		c.Spec.PostgreSQL.Parameters = map[string]v1.ParameterValue{parameter: "on"}
	}
}

func lenient(c *v1.PostgresCluster) {
	c.Annotations = map[string]string{naming.AnnotationValidation: naming.ValidationWarn}
}

func deleted(c *v1.PostgresCluster) { c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func scaled(c *v1.PostgresCluster) { c.Spec.Replicas = new(int32(5)) }

var (
	standard = Facts{Classes: facts.Know([]facts.StorageClass{{Name: "standard", Default: true}, {Name: "elastic", Expands: true}})}
	noClass  = Facts{Classes: facts.Know([]facts.StorageClass(nil))}
)

// volume of 1Gi.
func volume(class string, bound bool) facts.Volume {
	return facts.Volume{Instance: "db-1", Ordinal: 1, Bound: bound, Class: class, Bytes: 1 << 30}
}

func (f Facts) having(v ...facts.Volume) Facts { f.Volumes = v; return f }

func (f Facts) taken(kind, name, cluster string) Facts {
	f.Taken = []facts.Object{{Kind: kind, Name: name, Cluster: cluster}}
	return f
}

func buffers(size string) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) {
		c.Spec.PostgreSQL.Parameters = map[string]v1.ParameterValue{"shared_buffers": v1.ParameterValue(size)}
	}
}

func limited(memory string) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) {
		c.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}}
	}
}

func synchronous(mode v1.SynchronousMode, number int32) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) {
		c.Spec.Availability.Synchronous = v1.SynchronousSpec{Mode: mode, Number: number}
	}
}

func timed(interval, deadline, duration v1.Duration) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) {
		c.Spec.Availability.RenewInterval, c.Spec.Availability.RenewDeadline, c.Spec.Availability.LeaseDuration = interval, deadline, duration
	}
}

// running has the instances db-1, which is primary, to db-3.
func running(c *v1.PostgresCluster) {
	c.Status.CurrentPrimary = "db-1"
	for _, name := range []string{"db-1", "db-2", "db-3"} {
		c.Status.Instances = append(c.Status.Instances, v1.InstanceStatus{Name: name})
	}
}

// verified has backups that are verified by that schedule.
func verified(schedule string) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) {
		c.Spec.Backup = &v1.BackupSpec{Verify: &v1.VerifySpec{Schedule: schedule}}
	}
}

func annotated(key, value string) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) { c.Annotations = map[string]string{key: value} }
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	kept := volume("standard", true)
	kept.Version = "15"
	for what, c := range map[string]struct {
		before, after *v1.PostgresCluster
		facts         Facts
		want, warning string // parts of the one error and the one warning; empty: none
	}{
		"a cluster that names nothing":               {after: cluster(), facts: standard},
		"what nothing converted":                     {after: cluster(func(c *v1.PostgresCluster) { c.Spec.Version = "" }), facts: standard, want: "spec.version: Required value: nothing converts between v1alpha1 and v1"},
		"nothing is known":                           {after: cluster(inClass("gone"), sized("9Gi"))},
		"a class that exists":                        {after: cluster(inClass("elastic")), facts: standard},
		"a class that does not exist":                {after: cluster(inClass("gone")), facts: standard, want: `spec.storage.storageClassName: Invalid value: "gone": there is no StorageClass "gone"; name one that exists (elastic, standard) or create it`},
		"no default class":                           {after: cluster(), facts: noClass, want: "no default StorageClass"},
		"the class goes, the cluster is scaled":      {before: cluster(inClass("gone")), after: cluster(inClass("gone"), scaled), facts: standard},
		"a change to a class that does not exist":    {before: cluster(), after: cluster(inClass("gone")), facts: standard, want: `"gone"`},
		"a bad cluster may be deleted":               {before: cluster(), after: cluster(inClass("gone"), deleted), facts: standard},
		"warned instead":                             {after: cluster(inClass("gone"), lenient), facts: standard, warning: `spec.storage.storageClassName: Invalid value: "gone"`},
		"growth that the class allows":               {before: cluster(sized("1Gi")), after: cluster(sized("2Gi")), facts: standard.having(volume("elastic", true))},
		"growth that the class refuses":              {before: cluster(sized("1Gi")), after: cluster(sized("2Gi")), facts: standard.having(volume("standard", true)), want: `spec.storage.size: Invalid value: "2Gi": PersistentVolumeClaim db-1-data cannot grow, since StorageClass standard does not expand volumes; keep 1Gi`},
		"growth of a volume that was not bound":      {before: cluster(sized("1Gi")), after: cluster(sized("2Gi")), facts: standard.having(volume("standard", false))},
		"growth in a class that is gone":             {before: cluster(sized("1Gi")), after: cluster(sized("2Gi")), facts: standard.having(volume("gone", true))},
		"growth up to what the volume has":           {before: cluster(sized("512Mi")), after: cluster(sized("1Gi")), facts: standard.having(volume("standard", true))},
		"growth from the default":                    {before: cluster(), after: cluster(sized("2Gi")), facts: standard.having(volume("standard", true)), want: "cannot grow"},
		"the size stays":                             {before: cluster(sized("2Gi")), after: cluster(sized("2Gi"), scaled), facts: standard.having(volume("standard", true))},
		"an image":                                   {after: cluster(ofImage("127.0.0.1:5000/pg/postgres:16-0a1b2c"))},
		"an image with a digest":                     {after: cluster(ofImage("docker.io/library/postgres@sha256:" + strings.Repeat("0a", 32)))},
		"an image of another major":                  {after: cluster(ofImage("postgres:17.2-bookworm")), warning: `spec.image: the tag "17.2-bookworm" looks like PostgreSQL 17`},
		"an image of a date":                         {after: cluster(ofImage("postgres:20261129"))},
		"an image of a commit":                       {after: cluster(ofImage("postgres:17ab3f"))},
		"an image that is none":                      {after: cluster(ofImage("postgres:16 ")), want: "spec.image"},
		"an image in upper case":                     {after: cluster(ofImage("ghcr.io/Team/postgres:16")), want: "in lower case; use ghcr.io/team/postgres:16"},
		"an image that stays":                        {before: cluster(ofImage("postgres:17")), after: cluster(ofImage("postgres:17"), scaled)},
		"a volume of another major":                  {after: cluster(), facts: standard.having(kept), want: `create the cluster with version "15"`},
		"a volume of another major, already running": {before: cluster(), after: cluster(scaled), facts: standard.having(kept)},
		"a name that is somebody else's":             {after: cluster(), facts: standard.taken("Service", "db-rw", ""), want: `metadata.name: Invalid value: "db": Service db-rw, whose name this cluster needs, exists and does not belong to a PostgresCluster`},
		"a name of another cluster":                  {after: cluster(), facts: standard.taken("Service", "db-rw", "other"), want: "belongs to PostgresCluster other"},
		"a parameter":                                {after: cluster(with("work_mem"))},
		"a parameter of an extension":                {after: cluster(with("auto_explain.log_min_durations"))},
		"a parameter that is like none":              {after: cluster(with("wholly_of_my_own_making"))},
		"a parameter that is misspelt":               {after: cluster(with("max_conections")), warning: "spec.postgresql.parameters[max_conections]: PostgreSQL may have no such parameter; did you mean max_connections?"},
		"a parameter of ours":                        {after: cluster(with("wal_log_hints")), want: "spec.postgresql.parameters[wal_log_hints]: Invalid value: \"on\": is set by pgsteward itself; remove it"},
		"shared buffers within the limit":            {after: cluster(buffers("256MB"), limited("1Gi"))},
		"shared buffers without a limit":             {after: cluster(buffers("256GB"))},
		"a verification every Sunday":                {after: cluster(verified("0 4 * * 0"))},
		"a verification that never comes":            {after: cluster(verified("0 0 30 2 *")), want: `spec.backup.verify.schedule: Invalid value: "0 0 30 2 *": never fires`},
		"a window on Mars": {
			after: cluster(func(c *v1.PostgresCluster) {
				c.Spec.Upgrade.SwitchoverWindow = &v1.SwitchoverWindow{Schedule: "0 2 * * 6", TimeZone: "Mars/Olympus"}
			}),
			want: `spec.upgrade.switchoverWindow.timeZone: Invalid value: "Mars/Olympus": "Mars/Olympus" is not the name`,
		},
		"a window that never opens": {
			after: cluster(func(c *v1.PostgresCluster) {
				c.Spec.Upgrade.SwitchoverWindow = &v1.SwitchoverWindow{Schedule: "0 0 30 2 *"}
			}),
			want: `spec.upgrade.switchoverWindow.schedule: Invalid value: "0 0 30 2 *": never fires`,
		},
		"a verification at minute 61":               {after: cluster(verified("61 * * * *")), want: `spec.backup.verify.schedule: Invalid value: "61 * * * *": end of range (61)`},
		"no room for the name of a verification":    {after: cluster(verified("@weekly"), func(c *v1.PostgresCluster) { c.Name = strings.Repeat("x", 46) }), want: "must have at most 45 characters with spec.backup.verify"},
		"shared buffers over the limit":             {after: cluster(buffers("2GB"), limited("1Gi")), want: `spec.resources.limits.memory: Invalid value: "1Gi": PostgreSQL would need about 20`},
		"a limit below the shared buffers":          {before: cluster(buffers("2GB"), limited("4Gi")), after: cluster(buffers("2GB"), limited("1Gi")), want: "lower them or raise the limit"},
		"shared buffers that stay":                  {before: cluster(buffers("2GB"), limited("1Gi")), after: cluster(buffers("2GB"), limited("1Gi"), scaled)},
		"fewer synchronous standbys than instances": {after: cluster(synchronous(v1.SynchronousRequired, 2))},
		"as many synchronous standbys as instances": {after: cluster(synchronous(v1.SynchronousRequired, 3)), want: "spec.availability.synchronous.number: Invalid value: 3: must be less than spec.replicas (3)"},
		"a number that is not in force":             {after: cluster(synchronous(v1.SynchronousNone, 5))},
		"timings in the right relation":             {after: cluster(timed("2s", "5s", "8s"))},
		"a deadline that is too late":               {after: cluster(timed("2s", "7s", "8s")), want: `spec.availability.renewDeadline: Invalid value: "7s"`},
		"an interval that is too long":              {after: cluster(timed("3s", "5s", "8s")), want: "at least twice renewInterval (3s)"},
		"a switchover to a standby":                 {before: cluster(running), after: cluster(running, annotated(naming.AnnotationSwitchover, "db-2"))},
		"a switchover to the best":                  {before: cluster(running), after: cluster(running, annotated(naming.AnnotationSwitchover, "best"))},
		"a switchover to nobody":                    {before: cluster(running), after: cluster(running, annotated(naming.AnnotationSwitchover, "db-7")), want: `metadata.annotations[pgsteward.io/switchover]: Invalid value: "db-7": there is no such instance; name one of db-2, db-3, or best`},
		"a switchover to the primary":               {before: cluster(running), after: cluster(running, annotated(naming.AnnotationSwitchover, "db-1")), want: "is the primary already; name one of db-2, db-3"},
		"a switchover that stays":                   {before: cluster(running, annotated(naming.AnnotationSwitchover, "db-7")), after: cluster(running, annotated(naming.AnnotationSwitchover, "db-7"), scaled)},
		"a switchover before there is a standby":    {after: cluster(annotated(naming.AnnotationSwitchover, "best")), want: "there is no standby"},
		"a fence":                                   {before: cluster(running), after: cluster(running, annotated(naming.AnnotationFenced, "db-1, db-3"))},
		"a fence of nobody":                         {before: cluster(running), after: cluster(running, annotated(naming.AnnotationFenced, "db-1,db-9")), want: `"db-9": there is no such instance; name some of db-1, db-2, db-3, separated by commas, or * for all`},
		"a fence of all":                            {before: cluster(running), after: cluster(running, annotated(naming.AnnotationFenced, "*")), warning: "nothing serves until the annotation is removed"},
		"a fence of each":                           {before: cluster(running), after: cluster(running, annotated(naming.AnnotationFenced, "db-1,db-2,db-3")), warning: "every instance is fenced"},
		"a forced failover":                         {before: cluster(running), after: cluster(running, annotated(naming.AnnotationForceFailover, "db-2"))},
		"a forced failover to nobody":               {before: cluster(running), after: cluster(running, annotated(naming.AnnotationForceFailover, "2")), want: `metadata.annotations[pgsteward.io/force-failover]: Invalid value: "2"`},
		"a parameter that was there before":         {before: cluster(with("wal_log_hints")), after: cluster(with("wal_log_hints"), scaled)},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var v Verdict
			if c.before == nil {
				v = Create(c.after, c.facts)
			} else {
				v = Update(c.before, c.after, c.facts)
			}
			if c.want == "" {
				require.Empty(t, v.Errors)
			} else {
				require.Len(t, v.Errors, 1)
				require.Contains(t, v.Errors[0].Error(), c.want)
			}
			if c.warning == "" {
				require.Empty(t, v.Warnings)
			} else {
				require.Len(t, v.Warnings, 1)
				require.Contains(t, v.Warnings[0], c.warning)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		cluster *v1.PostgresCluster
		facts   Facts
		reason  string
	}{
		"nothing":                               {cluster(), standard, ""},
		"a missing class while a volume waits":  {cluster(inClass("gone")), standard.having(volume("gone", false)), v1.ReasonStorageClassNotFound},
		"a missing class that nobody waits for": {cluster(inClass("gone")), standard.having(volume("gone", true)), ""},
		"volumes that cannot grow":              {cluster(sized("2Gi")), standard.having(volume("standard", true)), v1.ReasonVolumeNotExpandable},
		"volumes that can":                      {cluster(sized("2Gi")), standard.having(volume("elastic", true)), ""},
		"an image that is none":                 {cluster(ofImage("a b")), standard, v1.ReasonInvalidSpec},
		"more memory than the limit":            {cluster(buffers("2GB"), limited("1Gi")), standard, v1.ReasonInvalidSpec},
		"too many synchronous standbys":         {cluster(synchronous(v1.SynchronousRequired, 3)), standard, v1.ReasonInvalidSpec},
		"timings in the wrong relation":         {cluster(timed("2s", "8s", "8s")), standard, v1.ReasonInvalidSpec},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			found := Problems(c.cluster, c.facts)
			if c.reason == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Equal(t, c.reason, found[0].Reason)
			require.True(t, strings.HasPrefix(found[0].Message, "spec."), found[0].Message)
		})
	}
}

// TestNames: they are those that build gives the objects. Two clusters in one namespace never need the same name, even if one is
// called like an object of the other.
func TestNames(t *testing.T) {
	t.Parallel()
	c := cluster()
	input := build.Input{Cluster: c, Settings: build.Settings{ServiceAccount: "operator", Namespace: "operators"}}
	for n := 1; n <= 3; n++ {
		input.Members = append(input.Members, plan.Member{Name: naming.Instance(c.Name, n), Ordinal: n})
	}
	var built []facts.Object
	for _, object := range build.Objects(input) {
		meta, ok := object.(interface {
			GetKind() *string
			GetName() *string
		})
		require.True(t, ok, "%T", object)
		built = append(built, facts.Object{Kind: *meta.GetKind(), Name: *meta.GetName(), Cluster: c.Name})
	}
	require.ElementsMatch(t, built, Names(c))

	owner := map[facts.Object]string{}
	for _, name := range []string{"db", "db-1", "db-1-1", "db-rw", "db-r", "db-ca", "db-instances", "db-1-data", "db-primary", "db-app"} {
		c := cluster(func(c *v1.PostgresCluster) { c.Name, c.Spec.Replicas = name, new(int32(9)) })
		for _, n := range Names(c) {
			n.Cluster = ""
			require.Empty(t, owner[n], "%s needs %s", name, n)
			owner[n] = name
		}
	}
}

// TestDocumentation: doc.go lists the rules that there are, in their order.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	var inOrder []string
	for _, r := range rules {
		inOrder = append(inOrder, r.name)
	}
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var documented []string
	for _, found := range regexp.MustCompile(`(?m)^//   - ([a-z-]+):`).FindAllSubmatch(text, -1) {
		documented = append(documented, string(found[1]))
	}
	require.Equal(t, inOrder, documented)
}

// TestNeverPanics: whatever the spec and however little is known. What was not changed is never refused.
func TestNeverPanics(t *testing.T) {
	t.Parallel()
	random := randfill.NewWithSeed(1).NilChance(0.3).NumElements(0, 3).Funcs(func(q *resource.Quantity, c randfill.Continue) {
		*q = *resource.NewQuantity(c.Int63n(1<<40)-1<<10, resource.BinarySI)
	})
	for range 10_000 {
		before, after := &v1.PostgresCluster{}, &v1.PostgresCluster{}
		random.Fill(&before.Spec)
		random.Fill(&after.Spec)
		f := standard.having(volume("standard", rand.Intn(2) == 0))
		Create(after, f)
		Update(before, after, f)
		Problems(after, f)
		require.Empty(t, Update(after, after.DeepCopy(), f).Errors)
	}
}

// TestDelete: only a deletion that would take the instances from under the last backup is refused, unless there is to be none.
func TestDelete(t *testing.T) {
	t.Parallel()
	c := &v1.PostgresCluster{}
	require.Empty(t, Delete(c, true).Errors)
	c.Spec.Backup = &v1.BackupSpec{}
	require.Empty(t, Delete(c, true).Errors)
	c.Spec.Deletion.FinalBackup = true
	require.Empty(t, Delete(c, false).Errors)
	require.ErrorContains(t, Delete(c, true).Errors.ToAggregate(), "spec.deletion.finalBackup: Forbidden: a deletion in the foreground")
	c.Annotations = map[string]string{naming.AnnotationSkipFinalBackup: "true"}
	require.Empty(t, Delete(c, true).Errors)
}
