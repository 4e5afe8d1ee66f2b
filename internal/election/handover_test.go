package election

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// handing are the facts of db-2, a primary that runs, when somebody wishes another.
func handing() Facts {
	f := facts(data(DataPrimary, 1, 100), exact(95), exact(99)).held("db-2")
	f.Lease.HolderPod, f.Lease.Members, f.Lease.Timeline = "pod-2", []string{"db-1", "db-2", "db-3"}, 1
	f.Lease.Position = postgres.Position{Timeline: 1, LSN: 100}
	f.Members[0].Streaming, f.Members[1].Streaming = true, true
	f.Server = Server{Running: true, Writable: true}
	f.Policy = Policy{MaximumLag: 20, CrashBound: 3 * time.Second, CrashFailures: 2}
	f.Request.Kind = Switchover
	return f
}

func TestBestTarget(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		wish    string
		change  func(*Facts)
		target  string
		refused []Refusal
	}{
		"the furthest":    {target: "db-3", change: func(*Facts) {}},
		"the wished":      {wish: "db-1", target: "db-1", change: func(*Facts) {}},
		"the lower name":  {target: "db-1", change: func(f *Facts) { f.Members[0].Data = exact(99) }},
		"itself":          {wish: "db-2", change: func(*Facts) {}, refused: []Refusal{{"db-2", "is the primary already"}}},
		"nobody knows it": {wish: "db-9", change: func(*Facts) {}, refused: []Refusal{{"db-9", "is no instance of this cluster"}}},
		"silent": {wish: "db-3", change: func(f *Facts) { f.Members[1] = Member{Name: "db-3"} },
			refused: []Refusal{{"db-3", "does not answer"}}},
		"answered long ago": {wish: "db-3", change: func(f *Facts) { f.Members[1].Age = time.Minute },
			refused: []Refusal{{"db-3", "does not answer"}}},
		"empty": {wish: "db-3", change: func(f *Facts) { f.Members[1].Data = none() },
			refused: []Refusal{{"db-3", "has no data yet"}}},
		"of another system": {wish: "db-3", change: func(f *Facts) { f.Members[1].Data.SystemIdentifier = "42" },
			refused: []Refusal{{"db-3", "has data of another PostgreSQL system, 42"}}},
		"new": {wish: "db-3", change: func(f *Facts) { f.Lease.Members = []string{"db-1", "db-2"} },
			refused: []Refusal{{"db-3", "is not published as a member yet"}}},
		"fenced":      {wish: "db-3", change: func(f *Facts) { f.Members[1].Fenced = true }, refused: []Refusal{{"db-3", "is fenced"}}},
		"broken":      {wish: "db-3", change: func(f *Facts) { f.Members[1].Unable = "does not start" }, refused: []Refusal{{"db-3", "does not start"}}},
		"not reached": {wish: "db-3", change: func(f *Facts) { f.Members[1].Streaming = false }, refused: []Refusal{{"db-3", "does not stream"}}},
		"diverged": {wish: "db-3", change: func(f *Facts) { f.Members[1].Data.Position.Timeline = 2 },
			refused: []Refusal{{"db-3", "is on timeline 2, the primary on 1"}}},
		"lagging": {wish: "db-3", change: func(f *Facts) { f.Data.Position.LSN = 120 }, refused: []Refusal{{"db-3", "lags behind by 21 bytes"}}},
		"one of two": {target: "db-1", change: func(f *Facts) { f.Members[1].Fenced = true },
			refused: []Refusal{{"db-3", "is fenced"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, refused := BestTarget(handing().with(test.change), test.wish)
			assert.Equal(t, test.target, target)
			assert.Equal(t, test.refused, refused)
		})
	}
}

func TestHandOver(t *testing.T) {
	t.Parallel()
	stopped := func(f *Facts) {
		f.Server = Server{}
		f.Data.Clean, f.Request.Stopped = true, time.Second
		f.Members[0].Data, f.Members[0].Age = exact(100), 100*time.Millisecond
		f.Members[1].Data, f.Members[1].Age = exact(101), 100*time.Millisecond
	}
	ending := func(f *Facts) { f.Request.Kind = Termination }
	nobody := func(f *Facts) { f.Members = nil }
	untaken := func(f *Facts) { f.Lease.HolderPod = "" }
	preferring := func(name string, stopped time.Duration) func(*Facts) {
		return func(f *Facts) { f.Request.Preferred, f.Request.Stopped = name, stopped }
	}
	all := func(f *Facts) { f.Members[0].Data = exact(101) }
	late := func(f *Facts) { f.Request.Stopped = f.Request.bound() }
	for name, test := range map[string]struct {
		changes []func(*Facts)
		action  Action
		target  string
	}{
		"a target":                                {action: Stop, target: "db-3"},
		"the wished is told":                      {changes: []func(*Facts){func(f *Facts) { f.Request.Target = "db-1" }}, action: Stop, target: "db-1"},
		"no target":                               {changes: []func(*Facts){nobody}, action: RunPrimary},
		"no target, but this Pod ends":            {changes: []func(*Facts){nobody, ending}, action: Stop},
		"stopping, and the target is gone":        {changes: []func(*Facts){nobody, func(f *Facts) { f.Server.Stopping = true }}, action: Stop},
		"stopped, one has received everything":    {changes: []func(*Facts){stopped}, action: HandOver, target: "db-3"},
		"stopped, the preferred has not":          {changes: []func(*Facts){stopped, preferring("db-1", 400*time.Millisecond)}, action: Stop},
		"stopped, the preferred has not, in time": {changes: []func(*Facts){stopped, preferring("db-1", 500*time.Millisecond)}, action: HandOver, target: "db-3"},
		"stopped, the preferred cannot":           {changes: []func(*Facts){stopped, preferring("db-1", 400*time.Millisecond), func(f *Facts) { f.Members[0].Unable = "broken" }}, action: HandOver, target: "db-3"},
		"stopped, the preferred has, too": {changes: []func(*Facts){stopped, preferring("db-1", 400*time.Millisecond), all},
			action: HandOver, target: "db-1"},
		"stopped, the preferred has, and one that comes before it": {changes: []func(*Facts){stopped, all, preferring("db-3", time.Second)}, action: HandOver, target: "db-3"},
		"ending, the preferred has, and one that comes before it":  {changes: []func(*Facts){stopped, all, ending, preferring("db-3", time.Second)}, action: HandOver, target: "db-3"},
		"stopped, the preferred has, as it said before the stop": {changes: []func(*Facts){stopped, all, preferring("db-1", 400*time.Millisecond), func(f *Facts) { f.Members[0].Age = time.Second }},
			action: Stop},
		"stopped, the wished has not":                {changes: []func(*Facts){stopped, func(f *Facts) { f.Request.Target = "db-1" }}, action: Stop},
		"stopped, the wished has not, in time":       {changes: []func(*Facts){stopped, late, func(f *Facts) { f.Request.Target = "db-1" }}, action: RunPrimary},
		"ending, the wished has not, but another":    {changes: []func(*Facts){stopped, ending, func(f *Facts) { f.Request.Target = "db-1" }}, action: HandOver, target: "db-3"},
		"stopped, answered before the stop":          {changes: []func(*Facts){stopped, func(f *Facts) { f.Members[1].Age = 2 * time.Second }}, action: Stop},
		"stopped, but not properly, a moment ago":    {changes: []func(*Facts){stopped, func(f *Facts) { f.Data.Clean, f.Request.Stopped = false, UncleanBound/2 }}, action: Stop},
		"stopped, but not properly":                  {changes: []func(*Facts){stopped, func(f *Facts) { f.Data.Clean, f.Request.Stopped = false, UncleanBound }}, action: RunPrimary},
		"stopped, nobody has":                        {changes: []func(*Facts){stopped, late, nobody}, action: RunPrimary},
		"ending, nobody has":                         {changes: []func(*Facts){stopped, late, nobody, ending}, action: Release},
		"ending, not properly, to the furthest":      {changes: []func(*Facts){stopped, ending, func(f *Facts) { f.Data.Clean = false }}, action: HandOver, target: "db-3"},
		"ending, not properly, quorum is missing":    {changes: []func(*Facts){stopped, ending, late, func(f *Facts) { f.Data.Clean, f.Lease.Sync = false, set(0) }}, action: Release},
		"of a lease that this Pod has not taken":     {changes: []func(*Facts){stopped, untaken}, action: RunPrimary},
		"ending, before the lease is taken":          {changes: []func(*Facts){stopped, ending, untaken}, action: Release},
		"ending, before the lease is taken, running": {changes: []func(*Facts){ending, untaken}, action: Stop, target: "db-3"},
		"of a lease that another holds, as it was":   {changes: []func(*Facts){func(f *Facts) { f.Lease.Holder = "db-1" }}, action: RunStandby},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := handing()
			for _, change := range test.changes {
				change(&f)
			}
			decision := Decide(f)
			assert.Equal(t, test.action, decision.Action, decision)
			assert.Equal(t, test.target, decision.Target)
		})
	}
}

func TestUnconfirmed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		wish    string
		change  func(*Facts)
		refused []Refusal
	}{
		"has it":       {wish: "db-3", change: func(*Facts) {}},
		"has not":      {wish: "db-1", refused: []Refusal{{"db-1", "has received everything before 0/5F, and the last record is at 0/64"}}, change: func(*Facts) {}},
		"fenced":       {wish: "db-1", refused: []Refusal{{"db-1", "is fenced"}}, change: func(f *Facts) { f.Members[0].Fenced = true }},
		"not answered": {wish: "db-3", refused: []Refusal{{"db-3", "has not answered since"}}, change: func(f *Facts) { f.Request.Stopped, f.Members[1].Age = time.Second, 2*time.Second }},
		"not clean": {wish: "db-3", change: func(f *Facts) { f.Data.Clean = false },
			refused: []Refusal{{"db-3", "would lack what PostgreSQL did not write: it was not shut down cleanly"}}},
		"all": {change: func(f *Facts) { f.Members[1].Data = exact(90) }, refused: []Refusal{
			{"db-1", "has received everything before 0/5F, and the last record is at 0/64"},
			{"db-3", "has received everything before 0/5A, and the last record is at 0/64"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := handing()
			f.Server, f.Data.Clean, f.Request.Stopped = Server{}, true, SwitchoverBound
			f.Members[1].Data = exact(101)
			test.change(&f)
			assert.Equal(t, test.refused, Unconfirmed(f, test.wish))
		})
	}
}

func TestHolderFailing(t *testing.T) {
	t.Parallel()
	down := func(change func(*Facts)) Facts {
		f := handing()
		f.Request = Request{}
		f.Server = Server{Down: 3 * time.Second, Failures: 1, Ended: 3 * time.Second}
		change(&f)
		return f
	}
	for name, test := range map[string]struct {
		facts  Facts
		action Action
		target string
	}{
		"down for long":     {down(func(*Facts) {}), HandOver, "db-3"},
		"down for a moment": {down(func(f *Facts) { f.Server.Down = time.Second }), RunPrimary, ""},
		"failed twice":      {down(func(f *Facts) { f.Server.Down, f.Server.Failures = time.Second, 2 }), HandOver, "db-3"},
		"still runs":        {down(func(f *Facts) { f.Server.Running, f.Server.Ended = true, 0 }), Stop, "db-3"},
		"it lived for a moment since they said how far they are": {down(func(f *Facts) {
			f.Server.Ended, f.Members[0].Age, f.Members[1].Age = 100*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond
		}), Stop, ""},
		"it lived for a moment, and one has said since how far it is": {down(func(f *Facts) {
			f.Server.Ended, f.Members[0].Age, f.Members[1].Age = 100*time.Millisecond, 90*time.Millisecond, 200*time.Millisecond
		}), HandOver, "db-1"},
		"it lived for a moment, and nobody says anything since": {down(func(f *Facts) {
			f.Server.Ended, f.Members[0].Age, f.Members[1].Age = AnswerWait, 2*time.Second, 2*time.Second
		}), RunPrimary, ""},
		"nobody else":              {down(func(f *Facts) { f.Members = nil }), RunPrimary, ""},
		"asked before it went":     {down(func(f *Facts) { f.Members[0].Age, f.Members[1].Age = time.Minute, time.Minute }), RunPrimary, ""},
		"lacks too much":           {down(func(f *Facts) { f.Lease.Position.LSN = 200 }), RunPrimary, ""},
		"quorum":                   {down(func(f *Facts) { f.Lease.Sync = set(1, "db-1", "db-3") }), HandOver, "db-3"},
		"quorum is missing":        {down(func(f *Facts) { f.Lease.Sync = set(0) }), RunPrimary, ""},
		"the volume is lost":       {down(func(f *Facts) { f.Data = none() }), HandOver, "db-3"},
		"lost, and nobody else":    {down(func(f *Facts) { f.Data, f.Members = none(), nil }), Refuse, ""},
		"lost, found just now":     {down(func(f *Facts) { f.Data, f.Server = none(), Server{Ended: time.Second} }), HandOver, "db-3"},
		"lost, and not looked yet": {down(func(f *Facts) { f.Data, f.Server = none(), Server{} }), Refuse, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range test.facts.Members {
				if test.facts.Members[i].Age == 0 {
					test.facts.Members[i].Age = time.Millisecond
				}
			}
			decision := Decide(test.facts)
			assert.Equal(t, test.action, decision.Action, decision)
			assert.Equal(t, test.target, decision.Target)
		})
	}
}

func TestComeBack(t *testing.T) {
	t.Parallel()
	upstream := Upstream{Primary: true, Timeline: 3, Ends: map[int64]postgres.LSN{1: 100, 2: 200}}
	clean := func(timeline int64, lsn postgres.LSN) Data {
		d := data(DataPrimary, timeline, lsn)
		d.Clean = true
		return d
	}
	refused := upstream
	refused.Refused = true
	for name, test := range map[string]struct {
		own      Data
		upstream Upstream
		rewind   bool
		way      Way
	}{
		"a standby of the same timeline":                  {exact(1), Upstream{Primary: true, Timeline: 1}, true, Follow},
		"a standby that had less":                         {data(DataStandby, 2, 200), upstream, true, Follow},
		"a standby that had more":                         {data(DataStandby, 2, 201), upstream, true, Rewind},
		"a standby that had more, without the program":    {data(DataStandby, 2, 201), upstream, false, Reclone},
		"a standby of a timeline that is not in there":    {data(DataStandby, 4, 1), upstream, true, Rewind},
		"a standby, and nobody is primary":                {data(DataStandby, 4, 1), Upstream{Timeline: 3}, true, Follow},
		"a standby, and nothing is known":                 {data(DataStandby, 4, 1), Upstream{}, true, Follow},
		"a standby that was refused":                      {data(DataStandby, 2, 1), refused, true, Rewind},
		"a standby of the same timeline that was refused": {data(DataStandby, 3, 1), refused, true, Rewind},
		"a primary that handed over":                      {clean(2, 199), upstream, true, Follow},
		"a primary whose last record nobody has":          {clean(2, 200), upstream, true, Rewind},
		"a primary that crashed":                          {data(DataPrimary, 2, 1), upstream, true, Rewind},
		"a primary that crashed, without the program":     {data(DataPrimary, 2, 1), upstream, false, Reclone},
		"a primary, and nobody is primary yet":            {clean(2, 199), Upstream{Timeline: 2}, true, Follow},
		"a primary that crashed, and nobody is yet":       {data(DataPrimary, 2, 1), Upstream{Timeline: 2}, true, WaitForUpstream},
		"a primary of the same timeline":                  {clean(3, 1), upstream, true, Reclone},
		"nothing":                                         {none(), upstream, true, WaitForUpstream},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.way, ComeBack(test.own, test.upstream, test.rewind))
		})
	}
}
