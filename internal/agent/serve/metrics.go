package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// Numbers are what metrics need beside the status.
type Numbers struct {
	// LeaseRemaining is how long the lease is held yet, in seconds; 0 if it is not.
	LeaseRemaining float64
	// Restarts counts how often PostgreSQL ended without being told to.
	Restarts int64
}

type metric struct {
	description *prometheus.Desc
	kind        prometheus.ValueType
	value       func(agentapi.Status, Numbers) float64
}

// Metrics collects an agent's metrics from its status.
type Metrics struct {
	board   *Board
	numbers func() Numbers
	metrics []metric
}

// NewMetrics is a registry with the agent's metrics.
func NewMetrics(board *Board, numbers func() Numbers) *prometheus.Registry {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("pgsteward_instance_"+name, help, nil, nil)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(&Metrics{board: board, numbers: numbers, metrics: []metric{
		{describe("up", "Whether PostgreSQL accepts connections."), prometheus.GaugeValue,
			func(s agentapi.Status, _ Numbers) float64 { return number(s.State == agentapi.StateRunning) }},
		{describe("ready", "Whether clients should come."), prometheus.GaugeValue,
			func(s agentapi.Status, _ Numbers) float64 { return number(s.Ready) }},
		{describe("primary", "Whether the instance is the primary."), prometheus.GaugeValue,
			func(s agentapi.Status, _ Numbers) float64 { return number(s.Role == agentapi.RolePrimary) }},
		{describe("in_recovery", "Whether the instance is a running standby."), prometheus.GaugeValue,
			func(s agentapi.Status, _ Numbers) float64 {
				return number(s.State == agentapi.StateRunning && s.Role == agentapi.RoleStandby)
			}},
		{describe("streaming", "Whether a standby receives WAL from its upstream."), prometheus.GaugeValue,
			func(s agentapi.Status, _ Numbers) float64 { return number(s.Streaming) }},
		{describe("timeline", "The timeline of the data."), prometheus.GaugeValue,
			func(s agentapi.Status, _ Numbers) float64 { return float64(s.Timeline) }},
		{describe("lsn_bytes", "The position that was written or received, in bytes."), prometheus.GaugeValue,
			func(s agentapi.Status, _ Numbers) float64 {
				lsn, _ := postgres.ParseLSN(s.LSN) // 0 if there is none
				return float64(lsn)
			}},
		{describe("lag_bytes", "How far a standby's replay is behind what its upstream has sent."), prometheus.GaugeValue,
			func(s agentapi.Status, _ Numbers) float64 {
				if s.LagBytes == nil {
					return 0
				}
				return float64(*s.LagBytes)
			}},
		{describe("pending_restart", "How many parameters wait for a restart."), prometheus.GaugeValue,
			func(s agentapi.Status, _ Numbers) float64 { return float64(len(s.PendingRestart)) }},
		{describe("lease_remaining_seconds", "How long the primary lease is held yet."), prometheus.GaugeValue,
			func(_ agentapi.Status, n Numbers) float64 { return n.LeaseRemaining }},
		{describe("restarts_total", "How often PostgreSQL ended without being told to."), prometheus.CounterValue,
			func(_ agentapi.Status, n Numbers) float64 { return float64(n.Restarts) }},
	}})
	return registry
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(descriptions chan<- *prometheus.Desc) {
	for _, metric := range m.metrics {
		descriptions <- metric.description
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(values chan<- prometheus.Metric) {
	status, _ := m.board.Status()
	numbers := m.numbers()
	for _, metric := range m.metrics {
		values <- prometheus.MustNewConstMetric(metric.description, metric.kind, metric.value(status, numbers))
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
