package view

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// eventsShown is how many events of a cluster its page shows.
const eventsShown = 50

// Condition is one of a cluster's.
type Condition struct {
	Type, Status, Reason, Message string
	Since                         time.Time
	Tone                          Tone
}

// Endpoint is a name by which clients reach the cluster.
type Endpoint struct {
	Use, Host, Note string
	Port            int
}

// Parameter is one that the spec sets.
type Parameter struct {
	Name, Value string
	// Pending names the instances that have to restart before it counts.
	Pending []string
}

// Event is something that happened to a cluster.
type Event struct {
	Last    time.Time
	Count   int32
	Warning bool
	Reason  string
	Message string
}

// Instance is one of a cluster's.
type Instance struct {
	v1.InstanceStatus
	Tone Tone
}

// Cluster is the page of one cluster.
type Cluster struct {
	Row
	// Wide and Narrow are the same drawing for screens of either shape.
	Wide, Narrow Drawing
	Instances    []Instance
	Conditions   []Condition
	Endpoints    []Endpoint
	Parameters   []Parameter
	Events       []Event
	AppSecret    string
	ServiceRW    string
	Timeline     int64
	Switchover   *v1.SwitchoverStatus
	Created      time.Time
	// Seen says whether an operator has ever looked at it, and at the spec as it is now.
	Seen, UpToDate bool
}

// ClusterOf is the page of the cluster, with its events.
func ClusterOf(c *v1.PostgresCluster, events []corev1.Event) Cluster {
	page := Cluster{
		Row: RowOf(c), Wide: Draw(c, false), Narrow: Draw(c, true),
		Endpoints: endpoints(c), Parameters: parameters(c), Events: eventsOf(events),
		AppSecret: naming.AppSecret(c.Name), ServiceRW: naming.ServiceRW(c.Name), Timeline: c.Status.Timeline,
		Switchover: c.Status.Switchover, Created: c.CreationTimestamp.Time,
		Seen: len(c.Status.Conditions) > 0, UpToDate: c.Status.ObservedGeneration == c.Generation,
	}
	for _, i := range c.Status.Instances {
		page.Instances = append(page.Instances, Instance{InstanceStatus: i, Tone: instanceTone(i)})
	}
	for _, condition := range c.Status.Conditions {
		page.Conditions = append(page.Conditions, conditionOf(condition))
	}
	return page
}

// instanceTone says how good an instance is.
func instanceTone(i v1.InstanceStatus) Tone {
	switch {
	case i.State == "Failed":
		return ToneBad
	case i.Ready && i.Message == "":
		return ToneGood
	case i.Ready, i.State == "Running", i.State == "Unknown", i.State == "":
		return ToneWarn
	}
	return ToneBusy
}

func endpoints(c *v1.PostgresCluster) []Endpoint {
	host := func(service string) string { return naming.ServiceHost(service, c.Namespace) }
	list := []Endpoint{{Use: "Read and write", Host: host(naming.ServiceRW(c.Name)), Port: naming.PortPostgres, Note: "the primary"}}
	if replicas(c) > 1 {
		list = append(list, Endpoint{Use: "Read only", Host: host(naming.ServiceRO(c.Name)), Port: naming.PortPostgres, Note: "the standbys"})
	}
	return append(list, Endpoint{Use: "Any", Host: host(naming.ServiceR(c.Name)), Port: naming.PortPostgres, Note: "all instances that are ready"})
}

func parameters(c *v1.PostgresCluster) []Parameter {
	pending := map[string][]string{}
	for _, i := range c.Status.Instances {
		for _, name := range i.PendingRestart {
			pending[name] = append(pending[name], i.Name)
		}
	}
	var list []Parameter
	for name, value := range c.Spec.PostgreSQL.Parameters {
		list = append(list, Parameter{Name: name, Value: string(value), Pending: pending[name]})
	}
	slices.SortFunc(list, func(a, b Parameter) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// eventsOf are the last ones, the newest first.
func eventsOf(events []corev1.Event) []Event {
	list := make([]Event, 0, len(events))
	for _, e := range events {
		event := Event{Count: max(e.Count, 1), Warning: e.Type == corev1.EventTypeWarning, Reason: e.Reason, Message: e.Message}
		event.Last = e.LastTimestamp.Time
		if event.Last.IsZero() {
			event.Last = cmp.Or(e.EventTime.Time, e.CreationTimestamp.Time)
		}
		if e.Series != nil {
			event.Count, event.Last = e.Series.Count, e.Series.LastObservedTime.Time
		}
		list = append(list, event)
	}
	slices.SortFunc(list, func(a, b Event) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	return list[:min(len(list), eventsShown)]
}
