package db

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	resetInterval = time.Second
	pingTimeout   = 3 * time.Second
	trustedIdle   = time.Second // an idle connection is tried before use when it was idle for longer
)

var (
	errNoAnswer = errors.New("the database didn't answer, not even that the statement took too long")
	errNoPong   = errors.New("an idle connection to the database doesn't answer")
)

// guard looks at everything a pool's connections are asked and answer. A statement that the server's own limit should
// have ended is given up: a server that is stopped, or behind a network that swallows, never ends anything. Once a server
// turns read-only, or an idle connection is found dead, all connections of the pool are dropped: the others are no better.
type guard struct {
	log   *slog.Logger
	limit time.Duration // 0 = none
	pool  atomic.Pointer[pgxpool.Pool]
	reset atomic.Int64 // unix nanoseconds of the last reset: one failover, one reset
}

// answerLimit is the time after which a statement has failed, whatever the server says: a little longer than the server's
// own limit, and 0 where that has none.
func answerLimit(statementTimeout string) time.Duration {
	limit, err := time.ParseDuration(strings.Replace(statementTimeout, "min", "m", 1)) // as an operator may write it
	if ms, notNumber := strconv.Atoi(statementTimeout); notNumber == nil {
		limit, err = time.Duration(ms)*time.Millisecond, nil
	}
	if err != nil || limit <= 0 {
		return 0
	}
	return limit + limit/5 + time.Second
}

type guardKey struct{}

func (g *guard) begin(ctx context.Context) context.Context {
	if g.limit == 0 {
		return ctx
	}
	ctx, cancel := context.WithTimeoutCause(ctx, g.limit, errNoAnswer)
	return context.WithValue(ctx, guardKey{}, cancel)
}

func (g *guard) end(ctx context.Context, err error) {
	if cancel, ok := ctx.Value(guardKey{}).(context.CancelFunc); ok {
		cancel()
	}
	g.judge(ctx, err)
}

func (g *guard) judge(ctx context.Context, err error) {
	if Code(err) == CodeReadOnly {
		g.drop(ctx, err)
	}
}

// drop closes the pool's idle connections now, and those in use when they come back.
func (g *guard) drop(ctx context.Context, why error) {
	pool := g.pool.Load()
	now, last := time.Now().UnixNano(), g.reset.Load()
	if pool == nil || now-last < int64(resetInterval) || !g.reset.CompareAndSwap(last, now) {
		return
	}
	g.log.WarnContext(ctx, "dropping the connections to the database", slog.String("code", Code(why)), slog.Any("error", why))
	pool.Reset()
}

// probe is the pool's ShouldPing. It pings by itself, to see what becomes of it; a connection that failed here is
// closed, which the pool's own ping finds at once.
func (g *guard) probe(ctx context.Context, idle pgxpool.ShouldPingParams) bool {
	if idle.IdleDuration < trustedIdle {
		return false
	}
	ping, cancel := context.WithTimeoutCause(ctx, pingTimeout, errNoPong)
	defer cancel()
	err := idle.Conn.Ping(ping)
	if err != nil && ctx.Err() == nil && ping.Err() != nil {
		g.drop(ctx, errNoPong)
	}
	return err != nil
}

// TraceQueryStart implements pgx.QueryTracer.
func (g *guard) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return g.begin(ctx)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (g *guard) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	g.end(ctx, data.Err)
}

// TraceBatchStart implements pgx.BatchTracer.
func (g *guard) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return g.begin(ctx)
}

// TraceBatchQuery implements pgx.BatchTracer.
func (g *guard) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	g.judge(ctx, data.Err)
}

// TraceBatchEnd implements pgx.BatchTracer.
func (g *guard) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	g.end(ctx, data.Err)
}

// TraceCopyFromStart implements pgx.CopyFromTracer.
func (g *guard) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return g.begin(ctx)
}

// TraceCopyFromEnd implements pgx.CopyFromTracer.
func (g *guard) TraceCopyFromEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceCopyFromEndData) {
	g.end(ctx, data.Err)
}
