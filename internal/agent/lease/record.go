package lease

import (
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pgsteward/pgsteward/internal/election"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// Record is what the Lease says.
type Record struct {
	// Holder is the recorded holder; empty if there is none. HolderPod is the UID of the Pod in which it may be writing; empty if
	// it has stopped, or was handed the Lease and has not begun.
	Holder    string
	HolderPod string
	// SystemIdentifier is that of the PostgreSQL system; empty if none was ever made.
	SystemIdentifier string
	// LiveVersion is the major of the live generation; empty: nobody has said.
	LiveVersion string
	// Members are the names of all members that the holder knows.
	Members []string
	// Position is how far the holder had written at its last renewal; zero if it did not say.
	Position postgres.Position
	// TimelineStart is where the holder's timeline began; Timeline is the highest that was ever given to a promotion.
	TimelineStart postgres.LSN
	Timeline      int64
	// Sync is the set of synchronous standbys, and SyncMode the mode; empty: commits wait for nobody.
	Sync     string
	SyncMode string
	// End is where the holder before this one ended, if it handed over properly and nobody has written since; nil otherwise.
	End *election.End
	// Version is the version of the object that was read.
	Version string
}

// recordOf reads a Lease. What cannot be understood is as if it were not there.
func recordOf(lease *coordinationv1.Lease) Record {
	annotations := lease.Annotations
	r := Record{
		Holder:           ptr.Deref(lease.Spec.HolderIdentity, ""),
		HolderPod:        annotations[naming.AnnotationHolderPod],
		SystemIdentifier: annotations[naming.AnnotationSystemIdentifier],
		LiveVersion:      annotations[naming.AnnotationVersion],
		Position:         parsePosition(annotations[naming.AnnotationPosition]),
		Sync:             annotations[naming.AnnotationSync],
		SyncMode:         annotations[naming.AnnotationSyncMode],
		Version:          lease.ResourceVersion,
	}
	r.TimelineStart, _ = postgres.ParseLSN(annotations[naming.AnnotationTimelineStart])
	r.Timeline, _ = strconv.ParseInt(annotations[naming.AnnotationTimeline], 10, 64)
	r.End = parseEnd(annotations[naming.AnnotationEnd], lease.Spec.RenewTime)
	if members := annotations[naming.AnnotationMembers]; members != "" {
		r.Members = strings.Split(members, ",")
	}
	return r
}

// Publication is what the holder says in the Lease beside that it is the holder.
type Publication struct {
	SystemIdentifier string
	LiveVersion      string
	Members          []string
	Position         postgres.Position
	TimelineStart    postgres.LSN
	// Sync is nil to leave it as it is in the Lease.
	Sync *Sync
}

// Generation is one that becomes the live one in a hand-over.
type Generation struct {
	Version, SystemIdentifier string
	Members                   []string
}

// putIn writes what the next holder needs, and removes what was about the last generation. It says nothing of how far the next holder has come: then
// nobody takes over from it before it has written that itself, together with who is synchronous. A standby that may lack as much as an
// asynchronous one may, and knows of no synchronous set, would lose what was acknowledged.
func (g Generation) putIn(annotations map[string]string) {
	for _, name := range []string{
		naming.AnnotationPosition, naming.AnnotationTimelineStart, naming.AnnotationTimeline, naming.AnnotationSync, naming.AnnotationSyncMode,
		naming.AnnotationEnd,
	} {
		delete(annotations, name)
	}
	annotations[naming.AnnotationVersion] = g.Version
	annotations[naming.AnnotationSystemIdentifier] = g.SystemIdentifier
	annotations[naming.AnnotationMembers] = strings.Join(g.Members, ",")
}

// Sync is a set of synchronous standbys, such as "ANY 1 (prod-db-2,prod-db-3)", and the mode.
type Sync struct{ Set, Mode string }

// putIn writes it to the annotations. What is not known here stays as it is there.
func (p Publication) putIn(annotations map[string]string) {
	put := func(name, value string) {
		if value == "" {
			delete(annotations, name)
			return
		}
		annotations[name] = value
	}
	if p.SystemIdentifier != "" {
		put(naming.AnnotationSystemIdentifier, p.SystemIdentifier)
	}
	if p.LiveVersion != "" {
		put(naming.AnnotationVersion, p.LiveVersion)
	}
	if len(p.Members) > 0 {
		put(naming.AnnotationMembers, strings.Join(p.Members, ","))
	}
	if p.Position.LSN > 0 {
		put(naming.AnnotationPosition, formatPosition(p.Position))
	}
	if p.TimelineStart > 0 {
		put(naming.AnnotationTimelineStart, p.TimelineStart.String())
	}
	if p.Sync != nil {
		put(naming.AnnotationSync, p.Sync.Set)
		put(naming.AnnotationSyncMode, p.Sync.Mode)
	}
}

func formatPosition(p postgres.Position) string {
	return strconv.FormatInt(p.Timeline, 10) + "/" + p.LSN.String()
}

func parsePosition(text string) postgres.Position {
	number, rest, _ := strings.Cut(text, "/")
	timeline, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return postgres.Position{}
	}
	lsn, err := postgres.ParseLSN(rest)
	if err != nil {
		return postgres.Position{}
	}
	return postgres.Position{Timeline: timeline, LSN: lsn}
}

// formatEnd is where an instance ended, with the time of the update that says so. Every renewal has another time, also that of an
// agent that knows nothing of this; so what is said is void when somebody has renewed the Lease since.
func formatEnd(end election.End, at *metav1.MicroTime) string {
	return strings.Join([]string{end.By, formatPosition(end.Position), formatTime(at)}, " ")
}

// parseEnd reads what formatEnd makes; nil if it is void.
func parseEnd(text string, renewed *metav1.MicroTime) *election.End {
	fields := strings.Fields(text)
	if len(fields) != 3 || renewed == nil || fields[2] != formatTime(renewed) {
		return nil
	}
	position := parsePosition(fields[1])
	if position == (postgres.Position{}) {
		return nil
	}
	return &election.End{By: fields[0], Position: position}
}

func formatTime(t *metav1.MicroTime) string { return t.UTC().Format(metav1.RFC3339Micro) }
