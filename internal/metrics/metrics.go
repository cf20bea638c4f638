package metrics

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"orch/api"
	"orch/internal/db"
	"orch/internal/lifespan"
)

// Config of Metrics. Interval is 5 s when zero; Beat, MassDeath and Logger may be nil.
type Config struct {
	Version   string
	Queue     func(context.Context) (api.Queue, error) // the snapshot of GET /queue, out of its cache
	Services  func() []lifespan.Status
	MassDeath func() bool // most runs seem dead at once, which isn't believed
	// Agents and Repos are the names in orch.yaml. Others are shown as "other".
	Agents, Repos func() []string

	Pool     *pgxpool.Pool
	Interval time.Duration // between two looks for rows that have ended
	Beat     func()        // called after each look
	Logger   *slog.Logger
}

const defaultInterval = 5 * time.Second

// Metrics are those of one process. Make them with New.
type Metrics struct {
	cfg      Config
	registry *prometheus.Registry
	facts    *facts
	tail     *tail
	names    []string
}

// New makes the metrics; nothing is asked before a scrape, or before Run.
func New(cfg Config) (*Metrics, error) {
	if cfg.Queue == nil || cfg.Services == nil || cfg.Agents == nil || cfg.Repos == nil || cfg.Pool == nil {
		return nil, errors.New("metrics: a part that they are read off is missing")
	}
	if cfg.Interval <= 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	shared := newLabels(cfg)
	m := &Metrics{cfg: cfg, registry: prometheus.NewRegistry(), facts: newFacts(cfg, shared), tail: newTail(cfg, shared)}
	m.names = append(m.facts.names(), m.tail.names...)
	slices.Sort(m.names)
	for _, c := range append(m.tail.collectors, m.facts,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})) {
		if err := m.registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Names of all metrics of orch, sorted; those of the Go runtime and of the process (go_…, process_…) come beside them.
func (m *Metrics) Names() []string { return slices.Clone(m.names) }

// Handler answers a scrape in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// Run looks for rows that have ended until ctx is done. It is ready at once: nobody depends on it, and a database that is away
// is an outcome, told once.
func (m *Metrics) Run(ctx context.Context, ready func()) error {
	ready()
	ticker := time.NewTicker(m.cfg.Interval)
	defer ticker.Stop()
	for last := ""; ; {
		err := m.Look(ctx)
		if code := db.Code(err); code != last && ctx.Err() == nil {
			last = code
			if err != nil {
				m.cfg.Logger.WarnContext(ctx, "metrics of what has ended not read, tried again",
					slog.String("code", code), slog.Any("error", db.Public(err)))
			}
		}
		if m.cfg.Beat != nil {
			m.cfg.Beat()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Look counts what has ended since the last look. The first one only notes from where on to count.
func (m *Metrics) Look(ctx context.Context) error {
	return lifespan.Guard(m.cfg.Logger, "read metrics of what has ended", func() error { return m.tail.look(ctx) }) //nolint:contextcheck // a guard takes no context
}
