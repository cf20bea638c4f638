package db

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

// notifyFilling is the share of the server's notification queue from which on somebody must be keeping it from being
// emptied: normally next to nothing is in use.
const notifyFilling = 0.1

// NotifyRoom is a condition in SQL, for every statement that calls pg_notify: `case when … and ` + NotifyRoom + ` then
// pg_notify(…) end`, or in its WHERE.
//
// It is false while the server's notification queue is half full, which is also where the server begins to warn: a full
// one fails every COMMIT that notifies, and with it whatever the transaction is about. Those who listen find the work with
// their next poll. The share is asked for once in a statement, and only where the condition is looked at.
const NotifyRoom = `((select pg_notification_queue_usage()) < 0.5)`

var errNotifyFull = errors.New("the server's notification queue is half full, so nobody is notified")

// holderSQL finds the session that most likely keeps the queue from being emptied. The server knows which one listens and
// is behind, but only tells its log. It is in a transaction, or its client takes nothing.
const holderSQL = `
select pid, coalesce(datname, ''), coalesce(usename, ''), application_name, coalesce(state, ''),
	extract(epoch from clock_timestamp() - coalesce(xact_start, state_change))::float8
from pg_stat_activity
where backend_type = 'client backend' and pid <> pg_backend_pid() and (xact_start is not null or wait_event = 'ClientWrite')
order by coalesce(xact_start, state_change)
limit 1`

const (
	codeNotifyFilling = "notify_queue_filling"
	notifyAdvice      = "the server's notification queue fills up: a session that listens doesn't end its transaction, or its client " +
		"takes nothing; end that session, probably the one named here (select pg_terminate_backend(pid)), else nobody can be notified soon"
)

// notifyWatch tells once when the notification queue fills up, and once when it is emptied again.
type notifyWatch struct {
	log     *slog.Logger
	filling bool
}

func (w *notifyWatch) saw(ctx context.Context, conn *pgx.Conn, usage float64) {
	switch filling := usage >= notifyFilling; {
	case filling == w.filling:
	case filling:
		w.filling = true
		attrs := append([]any{slog.String("code", codeNotifyFilling), slog.Float64("usage", usage)}, notifyHolder(ctx, conn)...)
		w.log.ErrorContext(ctx, notifyAdvice, attrs...)
	default:
		w.filling = false
		w.log.InfoContext(ctx, "the server's notification queue is emptied again", slog.Float64("usage", usage))
	}
}

// notifyHolder is what is known of the session in the way; nothing of what it does, which may hold anybody's data.
func notifyHolder(ctx context.Context, conn *pgx.Conn) []any {
	var holder struct {
		pid                         int32
		database, user, application string
		state                       string
		seconds                     float64
	}
	err := conn.QueryRow(ctx, holderSQL, pgx.QueryExecModeExec).Scan(&holder.pid, &holder.database, &holder.user,
		&holder.application, &holder.state, &holder.seconds)
	if err != nil { // nobody, or not for our eyes
		return []any{slog.String("pid_unknown", Code(err))}
	}
	return []any{
		slog.Int("pid", int(holder.pid)), slog.String("database", holder.database), slog.String("user", holder.user),
		slog.String("application", holder.application), slog.String("state", holder.state),
		slog.Duration("since", time.Duration(holder.seconds*float64(time.Second)).Round(time.Second)),
	}
}
