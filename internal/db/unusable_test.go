package db_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"orch/internal/db"
	"orch/internal/testdb"
)

func TestAFailureToConnectNamesNoPartOfTheURL(t *testing.T) {
	t.Parallel()
	nobody, err := db.ParseURL("postgres://hunter2user:hunter2@127.0.0.1:1/hunter2db")
	if err != nil {
		t.Fatal(err)
	}
	stranger := testdb.Empty(t)
	missing := stranger.Copy()
	stranger.User, stranger.Password = "hunter2user", "hunter2"
	missing.Database = "hunter2db"
	behind := newProxy(t, missing).config(missing)
	for name, test := range map[string]struct {
		conn *pgx.ConnConfig
		says string
	}{
		"refused":          {nobody, "the database of ORCH_DATABASE_URL can't be used: database_unreachable: is it up, can it be reached from here?"},
		"unknown user":     {stranger, "the database can't be used: database_auth: "},
		"unknown database": {missing, "the database can't be used: database_missing: create it or correct the name"},
		"the same by TCP":  {behind, "the database of ORCH_DATABASE_URL can't be used: database_missing: create it or correct the name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, connect := db.Connect(t.Context(), db.Config{Conn: test.conn})
			pool, err := db.Open(t.Context(), db.Config{Conn: test.conn})
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			pinged := pool.Ping(t.Context())
			var log bytes.Buffer
			logger := slog.New(db.LogHandler(slog.NewTextHandler(&log, nil)))
			logger.With(slog.Any("before", pinged)).WithGroup("group").Error("failed", slog.Any("error", pinged), slog.Int("count", 1))
			for how, text := range map[string]string{
				"Connect": connect.Error(), "Public": db.Public(fmt.Errorf("ping: %w", pinged)).Error(), "a log": log.String(),
			} {
				if !strings.Contains(text, test.says) || strings.Contains(text, "hunter2") || strings.Contains(text, "127.0.0.1") {
					t.Errorf("%s says %s", how, text)
				}
			}
			if !strings.Contains(log.String(), "group.count=1") {
				t.Errorf("the log lost something: %s", log.String())
			}
			if _, is := errors.AsType[*pgconn.ConnectError](connect); !is || db.Code(connect) != db.Code(pinged) {
				t.Errorf("the cause is lost: %s and %s", db.Code(connect), db.Code(pinged))
			}
		})
	}
}

func TestPublicLeavesOtherErrorsAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, db.ErrReadOnly, fmt.Errorf("ask: %w", errors.New("anything"))} {
		if got := db.Public(err); got != err { //nolint:errorlint // the very same
			t.Errorf("%v became %v", err, got)
		}
	}
}

func TestALostConnectionNamesNoAddress(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	p := newProxy(t, cfg)
	conn, err := db.Connect(t.Context(), db.Config{Conn: p.config(cfg)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	// Closed from below, so that reading and writing fail with an error of package net.
	if outer, ok := conn.PgConn().Conn().(interface{ NetConn() net.Conn }); !ok || outer.NetConn().Close() != nil {
		t.Fatal("not closed")
	}
	_, err = conn.Exec(t.Context(), "select 1")
	if db.Code(err) != db.CodeUnreachable || strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("%s: %v", db.Code(err), err)
	}
}

func TestAListenerThatCannotConnectNamesNoPartOfTheURL(t *testing.T) {
	t.Parallel()
	cfg := testdb.Empty(t)
	cfg.Database = "hunter2db"
	log, lines := newLog()
	listen(t, newProxy(t, cfg).config(cfg), db.ListenerConfig{Logger: log})
	line := lines.await(t, db.CodeMissing)
	if said := fmt.Sprint(line); line["remedy"] != "create it or correct the name" || strings.Contains(said, "hunter2") || strings.Contains(said, "ORCH_DATABASE_URL") {
		t.Errorf("it says %s", said)
	}
}
