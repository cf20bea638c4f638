package start

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"orch/internal/app/database"
	"orch/internal/config"
	"orch/internal/db"
	"orch/internal/pgembed"
	"orch/internal/root"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func load(t *testing.T, path string) *config.Config {
	t.Helper()
	cfg, _, err := config.Load(map[string]string{"ORCH_ROOT": path, "ORCH_POLL_S": "3600"})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestReasons(t *testing.T) {
	t.Parallel()
	cfg := Config{Config: load(t, "/r"), Join: true}
	for _, tt := range []struct {
		err    error
		reason string
	}{
		{root.ErrMissing, "root_missing"},
		{root.ErrUnbound, "root_unbound"},
		{root.ErrSetupPending, "setup_pending"},
		{root.ErrBusy, "start_busy"},
		{&root.WriteError{Err: errors.New("full")}, "marker_write_failed"},
		{db.ErrNotMigrated, "not_migrated"},
		{&db.PendingError{}, "pending_migration"},
		{database.ErrMigrating, "newer_migration_running"},
		{db.ErrReadOnly, "database_unreachable"},
		{pgembed.ErrNotRunning, "database_unreachable"},

		{root.ErrInUse, ""},
		{&root.ForeignError{}, ""},
		{&root.PairingError{}, ""},
		{&root.TestingError{}, ""},
		{&root.MarkerError{}, ""},
		{&db.AheadError{}, ""},
		{&db.DriftError{}, ""},
		{errors.New("anything else"), ""},
	} {
		if got := reasonOf(fmt.Errorf("join: %w", tt.err)); got != tt.reason {
			t.Errorf("%v: reason %q, want %q", tt.err, got, tt.reason)
		}
		if remedies(cfg)[tt.reason] == "" && tt.reason != "" {
			t.Errorf("%s: no remedy", tt.reason)
		}
	}
}

func TestRemediesOfARootThatIsNotBoundNameTheCommandsThatBindIt(t *testing.T) {
	t.Parallel()
	given := load(t, "/r")
	given.Database.URL = config.NewSecret("postgres://db/orch")
	for _, reason := range []string{"root_missing", "root_unbound"} {
		if got := remedies(Config{Config: given})[reason]; !strings.Contains(got, "`orch serve`") || !strings.Contains(got, "`orch root bind`") {
			t.Errorf("%s, with a database of others: %s", reason, got)
		}
		if got := remedies(Config{Config: load(t, "/r")})[reason]; !strings.Contains(got, "`orch serve`") || strings.Contains(got, "bind") {
			t.Errorf("%s, with a private database: %s", reason, got)
		}
	}
}

func TestOpenEndsWithItsContextAndSaysOnceWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	stopped := errors.New("stopped")
	ctx, stop := context.WithCancelCause(t.Context())
	said := sink(func(p []byte) {
		log.Write(p)
		stop(stopped)
	})
	_, _, err := Open(ctx, Config{
		Config: load(t, filepath.Join(t.TempDir(), "none")), Join: true, Logger: slog.New(slog.NewTextHandler(said, nil)),
	})
	if !errors.Is(err, stopped) || !strings.Contains(log.String(), "msg=worker_waiting reason=root_missing") {
		t.Errorf("%v:\n%s", err, log.String())
	}
}

func TestOpenFailsAtOnceWhenNothingIsToBeWaitedFor(t *testing.T) {
	t.Parallel()
	_, _, err := Open(t.Context(), Config{
		Config: load(t, filepath.Join(t.TempDir(), "none")), Join: true, FailUnready: true, Logger: slog.New(slog.DiscardHandler),
	})
	if !errors.Is(err, root.ErrMissing) {
		t.Error(err)
	}
}

type sink func(p []byte)

func (s sink) Write(p []byte) (int, error) {
	s(p)
	return len(p), nil
}
