package metrics

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	pageSize  = 5_000
	lookBound = 30 * time.Second // of one look; what it didn't get to is the next one's
)

// tail follows the rows that end.
type tail struct {
	pool       *pgxpool.Pool
	labels     *labels
	sources    []*source
	begun      bool
	names      []string
	collectors []prometheus.Collector

	until   prometheus.Gauge
	wait    *prometheus.HistogramVec
	run     *prometheus.HistogramVec
	runs    *prometheus.CounterVec
	gate    *prometheus.HistogramVec
	landing *prometheus.HistogramVec
}

// source is a table, how far it was read, and what becomes of a row.
type source struct {
	what  string
	sql   string // rows with @at, @id < (at, id) and at < @until, in that order, at most @limit of them
	count func(ended)

	at   time.Time
	id   string
	none string // the id that is before all others
}

// ended is a row that has ended.
type ended struct {
	At      time.Time
	Key     string   // its id
	Seconds *float64 // how long it took; nil when it never began
	Labels  []string
}

// Every finished_at and at is the database's clock_timestamp(). The row comparison is for ties, the range for the index.
const (
	jobsSQL = `
select finished_at as at, id::text as key, case when started_at >= greatest(run_at, created_at)
		then extract(epoch from started_at - greatest(run_at, created_at)) end::float8 as seconds, array[lane] as labels
from jobs where state in ('succeeded', 'cancelled') and finished_at >= @at and finished_at < @until
	and (finished_at, id) > (@at, @id::text::bigint)
order by finished_at, id limit @limit`

	runsSQL = `
select finished_at as at, id::text as key, extract(epoch from finished_at - started_at)::float8 as seconds,
	array[purpose, agent, coalesce(outcome, 'unknown')] as labels
from runs where state = 'finished' and finished_at >= @at and finished_at < @until and (finished_at, id) > (@at, @id::text::uuid)
order by finished_at, id limit @limit`

	gatesSQL = `
select at, id::text as key, duration_ms / 1000.0::float8 as seconds, array[name, outcome] as labels
from gate_evidence where at >= @at and at < @until and (at, id) > (@at, @id::text::bigint)
order by at, id limit @limit`

	landingsSQL = `
select finished_at as at, id::text as key, extract(epoch from finished_at - created_at)::float8 as seconds, array[step] as labels
from merge_attempts where finished_at is not null and finished_at >= @at and finished_at < @until
	and (finished_at, id) > (@at, @id::text::bigint)
order by finished_at, id limit @limit`

	// settledSQL is the moment before which no row will end any more: whoever is about to end one has begun before its
	// transaction writes. That a transaction writes shows a little after it has read the clock, and not to other roles: hence
	// the two seconds. The settings pin what follows to the order of the indexes.
	settledSQL = `
select set_config('enable_seqscan', 'off', true) || set_config('enable_sort', 'off', true), greatest(clock_timestamp() - interval '2 minutes', least(
	clock_timestamp() - interval '2 seconds',
	(select min(xact_start) from pg_stat_activity
	 where datname = current_database() and backend_xid is not null and pid <> pg_backend_pid()))) as until`
)

func newTail(cfg Config, shared *labels) *tail {
	t := &tail{pool: cfg.Pool, labels: shared}
	t.until = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "orch_tail_last_look_timestamp_seconds",
		Help: "Unix time by the database's clock up to which all that has ended is in the histograms; 0 before the first look.",
	})
	t.add("orch_tail_last_look_timestamp_seconds", t.until)
	t.wait = t.histogram("orch_queue_wait_seconds",
		"Seconds that jobs which succeeded or were cancelled had been due before their last attempt began.", waits(), "lane")
	t.run = t.histogram("orch_run_seconds",
		"Seconds that a program ran: an agent, a gate's command or the test of a landing. The agent is empty for the latter two.",
		lengths(), "purpose", "agent")
	t.runs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "orch_runs_total", Help: "Runs of agents that ended since this process started, by how.",
	}, []string{"agent", "outcome"})
	t.add("orch_runs_total", t.runs)
	t.gate = t.histogram("orch_gate_seconds", "Seconds that a gate took for its answer; answers that were used again don't count.",
		lengths(), "gate", "outcome")
	t.landing = t.histogram("orch_landing_seconds",
		"Seconds from when a task got in line until it landed, was parked or was returned.", lengths(), "result")

	first := uuid.UUID{}.String()
	t.sources = []*source{
		{what: "jobs", sql: jobsSQL, none: "0", count: t.job},
		{what: "runs", sql: runsSQL, none: first, count: t.ranOnce},
		{what: "gates", sql: gatesSQL, none: "0", count: t.asked},
		{what: "landings", sql: landingsSQL, none: "0", count: t.landed},
	}
	return t
}

// waits goes from a tenth of a second to three hours, lengths from half a second to nine hours.
func waits() []float64 { return []float64{.1, .25, .5, 1, 2.5, 5, 15, 60, 300, 900, 3600, 10800} }

func lengths() []float64 {
	return []float64{.5, 1, 5, 15, 60, 180, 600, 1200, 1800, 3600, 7200, 14400, 32400}
}

func (t *tail) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	t.add(name, h)
	return h
}

func (t *tail) add(name string, c prometheus.Collector) {
	t.names, t.collectors = append(t.names, name), append(t.collectors, c)
}

// look counts what has ended since the last one.
func (t *tail) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	err := pgx.BeginTxFunc(ctx, t.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var until time.Time
		if err := tx.QueryRow(ctx, settledSQL).Scan(nil, &until); err != nil {
			return err
		}
		if !t.begun {
			for _, s := range t.sources {
				s.at, s.id = until, s.none
			}
			t.begun = true
		}
		for _, s := range t.sources {
			if err := s.read(ctx, tx, until); err != nil {
				return fmt.Errorf("%s: %w", s.what, err)
			}
		}
		t.until.Set(unix(t.sources[0].at)) // until may be before it: a transaction that was only reading writes now
		return nil
	})
	if err != nil {
		return fmt.Errorf("read what has ended: %w", err)
	}
	return nil
}

// read counts, page by page. What was counted is behind it, whatever comes after.
func (s *source) read(ctx context.Context, tx pgx.Tx, until time.Time) error {
	for s.at.Before(until) {
		rows, err := tx.Query(ctx, s.sql, pgx.NamedArgs{"at": s.at, "id": s.id, "until": until, "limit": pageSize})
		if err != nil {
			return err
		}
		page, err := pgx.CollectRows(rows, pgx.RowToStructByName[ended])
		if err != nil {
			return err
		}
		for _, row := range page {
			s.at, s.id = row.At, row.Key
			s.count(row)
		}
		if len(page) < pageSize {
			s.at, s.id = until, s.none
		}
	}
	return nil
}

func (t *tail) job(e ended) { observe(t.wait, e, t.labels.lane.value(e.Labels[0])) }

func (t *tail) ranOnce(e ended) {
	purpose, agent := e.Labels[0], ""
	if purpose == "agent" {
		agent = t.labels.agent.value(e.Labels[1])
		t.runs.WithLabelValues(agent, t.labels.outcome.value(e.Labels[2])).Inc()
	}
	observe(t.run, e, purpose, agent)
}

func (t *tail) asked(e ended) { observe(t.gate, e, t.labels.gate.value(e.Labels[0]), e.Labels[1]) }

func (t *tail) landed(e ended) {
	result := e.Labels[0]
	if result == "finalised" {
		result = "landed"
	}
	observe(t.landing, e, result)
}

func observe(h *prometheus.HistogramVec, e ended, labels ...string) {
	if e.Seconds != nil {
		h.WithLabelValues(labels...).Observe(max(0, *e.Seconds))
	}
}
