package agent

import (
	"context"
	"time"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/election"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// upstreamNews is what the agent of the upstream said last. It belongs to the loop; the task that asks leaves its answer behind.
type upstreamNews struct {
	of     string
	asking *task
	answer *agentapi.Status
	status *agentapi.Status
	// at is when the last question was answered, or failed.
	at time.Time
}

// askUpstream has the upstream's agent asked, no more often than the interval, and returns the last answer that is no older than
// twice that; nil if there is none.
func (a *Agent) askUpstream(ctx context.Context, now time.Time, upstream string, interval time.Duration) *agentapi.Status {
	if a.news.of != upstream {
		a.news.asking.stop()
		a.news = upstreamNews{of: upstream}
	}
	news := &a.news
	if err, isNew := news.asking.result(); isNew {
		news.at = now
		if err == nil {
			news.status = news.answer
		} else {
			a.log.Debug("Asking the upstream's agent failed", "upstream", upstream, "error", err)
		}
	}
	if news.asking.isDone() && now.Sub(news.at) >= interval {
		host := a.hostOf(upstream)
		answer := new(agentapi.Status)
		news.answer = answer
		news.asking = a.begin(ctx, upstream, func(ctx context.Context) error {
			config, err := a.certificates().Client()
			if err != nil {
				return err
			}
			client := agentapi.NewClient(config)
			client.Port = a.options.Ports.Agent
			*answer, err = client.Status(ctx, host)
			return err
		})
	}
	if now.Sub(news.at) > 2*interval {
		return nil
	}
	return news.status
}

// upstreamOf is what the upstream's agent says about the timeline that it writes; nil says nothing.
func upstreamOf(status *agentapi.Status) election.Upstream {
	if status == nil || status.Role != agentapi.RolePrimary || status.DataRole != agentapi.RolePrimary || status.Timeline == 0 {
		return election.Upstream{}
	}
	upstream := election.Upstream{Primary: true, Timeline: status.Timeline, Ends: map[int64]postgres.LSN{}}
	for _, ancestor := range status.History {
		if end, err := postgres.ParseLSN(ancestor.End); err == nil {
			upstream.Ends[ancestor.Timeline] = end
		}
	}
	return upstream
}

// historyAtMost bounds how many ancestors of a timeline are reported.
const historyAtMost = 16

// timelines keeps the history of the timeline on which the server is.
type timelines struct {
	of      int64
	history postgres.History
}

// describeHistory adds to a primary's status where its timeline came from.
func (a *Agent) describeHistory(w *world, status *agentapi.Status) {
	timeline := w.state.Timeline
	if a.timelines.of != timeline {
		history, err := a.volume.History(timeline)
		if err != nil {
			a.log.Warn("The timeline's history cannot be read", "error", err)
			return
		}
		a.timelines = timelines{of: timeline, history: history}
	}
	history := a.timelines.history
	if start := history.Start(); start != 0 {
		status.TimelineStart = start.String()
	}
	for _, fork := range history[max(0, len(history)-historyAtMost):] {
		status.History = append(status.History, agentapi.TimelineEnd{Timeline: fork.Timeline, End: fork.End.String()})
	}
}

// describeSlots adds what the instance keeps WAL from, for each member.
func (a *Agent) describeSlots(w *world, status *agentapi.Status) {
	for _, member := range a.config.Members {
		if position := w.state.Slots[naming.SlotName(member.Name)]; position != 0 {
			if status.Slots == nil {
				status.Slots = map[string]string{}
			}
			status.Slots[member.Name] = position.String()
		}
	}
}
