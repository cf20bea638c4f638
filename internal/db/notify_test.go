package db_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"orch/internal/db"
	"orch/internal/testdb"
)

// pretendUsage puts a function of the test's own in the place of the server's, in all sessions of that database that begin
// from now on: the real queue holds 8 GB. The function counts its calls.
func pretendUsage(t *testing.T, admin *pgx.Conn) (set func(usage float64), calls func() int) {
	t.Helper()
	exec(t, admin, fmt.Sprintf(`
		create schema pretended;
		create table pretended.usage as select 0::float8 as share;
		create sequence pretended.calls;
		create function pretended.pg_notification_queue_usage() returns float8 language sql volatile
			as 'select share from pretended.usage, (select nextval(''pretended.calls'')) called';
		alter database %s set search_path = pretended, pg_catalog, public`, pgx.Identifier{admin.Config().Database}.Sanitize()))
	set = func(usage float64) {
		t.Helper()
		exec(t, admin, "update pretended.usage set share = $1", usage)
	}
	calls = func() (n int) {
		t.Helper()
		if err := admin.QueryRow(t.Context(), "select case when is_called then last_value else 0 end from pretended.calls").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	return set, calls
}

func TestNotifyRoomLeavesAFullQueueAlone(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	set, calls := pretendUsage(t, connect(t, cfg))
	conn := connect(t, cfg)
	exec(t, conn, "listen orch_jobs")
	told := func(where string) (n int) {
		t.Helper()
		before := calls()
		query := "select count(case when i > 0 and " + db.NotifyRoom + " then pg_notify('orch_jobs', 'lane ' || i)::text end) from generate_series(1, 5) i where " + where
		if err := conn.QueryRow(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if asked, most := calls()-before, 1+strings.Count(where, "usage"); asked > most || (where == "false" && asked != 0) {
			t.Errorf("where %s: the queue was asked for %d times", where, asked)
		}
		return n
	}
	if n := told("true"); n != 5 {
		t.Errorf("%d of 5 were told", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for n := range 5 {
		got, err := conn.WaitForNotification(ctx)
		if err != nil || got.Payload != fmt.Sprint("lane ", n+1) {
			t.Fatalf("%v, %v", got, err)
		}
	}
	told("false")
	if n := told("i > 0 and " + db.NotifyRoom); n != 5 {
		t.Errorf("%d of 5 were told by a WHERE", n)
	}
	set(0.5)
	if n := told("true") + told(db.NotifyRoom); n != 0 {
		t.Errorf("%d were told while the queue is half full", n)
	}
}

// TestFullNotifyQueueIsNoFault: the COMMIT that the server refuses then may be repeated, and leaves out the notification.
func TestFullNotifyQueueIsNoFault(t *testing.T) {
	t.Parallel()
	full := fmt.Errorf("commit: %w", &pgconn.PgError{Code: "54000", Routine: "PreCommit_Notify", Message: "in any language"})
	wantCode(t, full, db.CodeNotifyFull)
	if !db.Unreachable(full) {
		t.Error("a COMMIT that could be repeated")
	}
	wantCode(t, &pgconn.PgError{Code: "54000", Routine: "index_form_tuple"}, db.CodeInternal)
}

// TestNotifyQueueThatFillsUpIsTold has a session in the way: it listens and doesn't end its transaction.
func TestNotifyQueueThatFillsUpIsTold(t *testing.T) {
	t.Parallel()
	cfg := testdb.NewServer(t).ConnConfig() // with nobody else's transactions
	set, _ := pretendUsage(t, connect(t, cfg))
	culprit := cfg.Copy()
	culprit.RuntimeParams["application_name"] = "culprit"
	holder := connect(t, culprit)
	exec(t, holder, "listen anything")
	exec(t, holder, "begin; select 'a secret'")
	log, lines := newLog()
	l := listen(t, cfg, db.ListenerConfig{Ping: 5 * time.Millisecond, Logger: log})
	receive(t, l.connects, "the connection")

	set(0.2)
	line := lines.await(t, "notify_queue_filling")
	if line["level"] != "ERROR" || line["application"] != "culprit" || line["state"] != "idle in transaction" ||
		line["pid"] != float64(holder.PgConn().PID()) {
		t.Errorf("told of %v", line)
	}
	set(0.5)
	if line := lines.await(t, db.CodeNotifyFull); line["level"] != "ERROR" {
		t.Errorf("not loud: %v", line)
	}
	if l.Connected() {
		t.Error("connected, though nobody notifies any more")
	}
	set(0.01)
	receive(t, l.connects, "a new connection once there is room")
	if n := lines.count("notify_queue_filling") + lines.count(db.CodeNotifyFull); n != 0 {
		t.Errorf("told %d times more", n)
	}
	exec(t, holder, "rollback")
}

// TestRealNotifyQueueIsHeldByATransaction shows what the queue's share is about: the server's own function sees it grow
// under a session that listens in a transaction, and not under our listener, which is in none.
func TestRealNotifyQueueIsHeldByATransaction(t *testing.T) {
	t.Parallel()
	cfg := testdb.NewServer(t).ConnConfig()
	conn, holder := connect(t, cfg), connect(t, cfg)
	l := listen(t, cfg, db.ListenerConfig{Ping: 5 * time.Millisecond})
	receive(t, l.connects, "the connection")
	usage := func() (share float64) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), "select pg_notification_queue_usage()").Scan(&share); err != nil {
			t.Fatal(err)
		}
		return share
	}
	const pages = "select count(pg_notify('noise', repeat('x', 7000) || i)) from generate_series(1, 50) i"
	exec(t, conn, pages)
	eventually(t, "the listener lets go of the queue", func() bool { return usage() == 0 })
	exec(t, holder, "listen noise")
	exec(t, holder, "begin; select 1")
	exec(t, conn, pages)
	exec(t, conn, "select pg_sleep(0.1)") // for the listener, many pings
	if usage() == 0 {
		t.Error("a transaction doesn't hold the queue")
	}
	exec(t, holder, "rollback")
	eventually(t, "the queue is emptied", func() bool { return usage() == 0 })
	if err := l.stop(); err != nil {
		t.Error(err)
	}
}
