package database

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/process"
	"orch/internal/testdb"
	"orch/migrations"
)

// program is the migrations that an orch of some version knows.
func program(t *testing.T, newest int) *db.Migrator {
	t.Helper()
	files := fstest.MapFS{"0003_later.sql": {Data: []byte("create table later (id int);")}}
	names, err := fs.Glob(migrations.Files, "*.sql")
	if err != nil || len(names) < 2 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names[:2] { // the later one takes the place of those after
		text, err := fs.ReadFile(migrations.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	for name := range files {
		if name > "000"+string(rune('0'+newest))+"_~" {
			delete(files, name)
		}
	}
	m, err := db.NewMigrator(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// site is a database as a program of some version left it.
type site struct {
	t      *testing.T
	config *pgx.ConnConfig
	conn   *pgx.Conn
}

func newSite(t *testing.T, version int) *site {
	t.Helper()
	s := &site{t: t, config: testdb.Empty(t)}
	s.conn = s.connect()
	if version > 0 {
		if _, err := program(t, version).Apply(t.Context(), s.conn); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *site) connect() *pgx.Conn {
	s.t.Helper()
	conn, err := Connect(s.t.Context(), s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { Close(context.WithoutCancel(s.t.Context()), conn) })
	return conn
}

func (s *site) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.conn.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatal(err)
	}
}

// worker registers a worker of this very process, as programs do that know schema 1 only.
func (s *site) worker() uuid.UUID {
	s.t.Helper()
	self, err := process.Self()
	if err != nil {
		s.t.Fatal(err)
	}
	root, id := uuid.New(), uuid.New()
	s.exec(`insert into roots (id, host, path) values ($1, 'here', '/r')`, root)
	s.exec(`insert into workers (id, root_id, host, boot_id, pid_namespace, pid, pid_started_at, version, lanes)
		values ($1, $2, $3, $4, $5, $6, $7, 'v1', '{agents}')`, id, root, self.Host, self.BootID, self.PIDNamespace, self.PID, self.StartedAt)
	return id
}

// migration is a Migrate on its way.
type migration struct {
	s     *site
	log   *logged
	stop  context.CancelCauseFunc
	ended chan error
	names []string // what it applied
}

func (s *site) migrate(to int) *migration {
	s.t.Helper()
	ctx, stop := context.WithCancelCause(s.t.Context())
	m := &migration{s: s, log: &logged{}, stop: stop, ended: make(chan error, 1)}
	conn, known := s.connect(), program(s.t, to)
	go func() {
		applied, err := Migrate(ctx, conn, known, MigrateConfig{
			LeaseTTL: time.Minute, Logger: slog.New(slog.NewTextHandler(m.log, nil)),
		})
		for _, a := range applied {
			m.names = append(m.names, a.Name)
		}
		m.ended <- err
	}()
	return m
}

func (m *migration) waits() {
	m.s.t.Helper()
	eventually(m.s.t, "it says for whom it waits", func() bool { return strings.Contains(m.log.String(), "orch v1") })
	select {
	case err := <-m.ended:
		m.s.t.Fatalf("it didn't wait: %v", err)
	default:
	}
}

func (m *migration) end() error {
	m.s.t.Helper()
	select {
	case err := <-m.ended:
		return err
	case <-time.After(4 * time.Minute):
		m.s.t.Fatal("the migration doesn't end")
		return nil
	}
}

type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(4 * time.Minute)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("didn't come: %s", what)
		case <-ticker.C:
		}
	}
}

func (s *site) announced() (to int) {
	s.t.Helper()
	err := s.conn.QueryRow(s.t.Context(), `select coalesce(
		(select migrating_to from instance where migrating_until > clock_timestamp()), 0)`).Scan(&to)
	if err != nil {
		s.t.Fatal(err)
	}
	return to
}

func TestMigrateOfANewDatabaseWaitsForNobody(t *testing.T) {
	t.Parallel()
	m := newSite(t, 0).migrate(2)
	if err := m.end(); err != nil || len(m.names) != 2 {
		t.Fatalf("applied %v, %v", m.names, err)
	}
}

// The first migration of all knows no announcements: its workers have to be stopped by a person.
func TestMigrateWaitsForWorkersThatCannotBeTold(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	worker := s.worker()
	m := s.migrate(2)
	m.waits()
	s.exec(`update workers set stopped_at = clock_timestamp() where id = $1`, worker)
	if err := m.end(); err != nil || len(m.names) != 1 {
		t.Fatalf("applied %v, %v", m.names, err)
	}
	if to := s.announced(); to != 0 {
		t.Errorf("version %d is announced still", to)
	}
	if said := m.log.String(); !strings.Contains(said, "stop them, they don't know of it") {
		t.Errorf("it says\n%s", said)
	}
}

func TestMigrateThatNeverAnnouncedItselfHasNothingToWithdraw(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s.worker()
	m := s.migrate(2)
	m.waits()
	s.exec(`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`)
	if err := m.end(); err == nil {
		t.Fatal("it didn't fail")
	}
	if said := m.log.String(); strings.Contains(said, "withdrawn") {
		t.Errorf("it says\n%s", said)
	}
}

func TestMigrateAnnouncesItselfUntilOlderWorkersAreGone(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2)
	older, current := s.worker(), s.worker()
	s.exec(`update workers set schema = case when id = $1 then 2 else 3 end`, older)
	m := s.migrate(3)
	m.waits()
	if to := s.announced(); to != 3 {
		t.Errorf("version %d is announced, want 3", to)
	}
	if err := refuseAnnounced(t.Context(), s.conn, 2); !errors.Is(err, ErrMigrating) {
		t.Errorf("an older program may start: %v", err)
	}
	if err := refuseAnnounced(t.Context(), s.conn, 3); err != nil {
		t.Errorf("the program that is coming may not start: %v", err)
	}
	s.exec(`update workers set stopped_at = clock_timestamp() where id = $1`, older)
	if err := m.end(); err != nil || len(m.names) != 1 || s.announced() != 0 {
		t.Fatalf("applied %v, announced %d, %v", m.names, s.announced(), err)
	}
	if strings.Count(m.log.String(), "waits for") != 1 || strings.Contains(m.log.String(), "don't know of it") {
		t.Errorf("said more than once, or also for worker %s that knows the schema:\n%s", current, m.log)
	}
}

func TestMigrateGivesUpItsAnnouncementWhenItIsStopped(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2)
	s.worker()
	m := s.migrate(3)
	m.waits()
	stopped := errors.New("stopped")
	m.stop(stopped)
	if err := m.end(); !errors.Is(err, stopped) && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if to := s.announced(); to != 0 && s.withdrawable(m) {
		t.Errorf("version %d is announced still", to)
	}
	status, err := program(t, 3).Status(t.Context(), s.conn)
	if err != nil || len(status.Pending) != 1 {
		t.Errorf("%+v, %v", status, err)
	}
}

// withdrawable says whether the stop came between two statements: in the middle of one it costs the connection, and the
// announcement runs out instead.
func (s *site) withdrawable(m *migration) bool { return !strings.Contains(m.log.String(), "runs out") }

func TestMigrateDoesNotWaitForTheDead(t *testing.T) {
	t.Parallel()
	for name, died := range map[string]string{
		"its last beat is older than a lease": `update workers set heartbeat_at = clock_timestamp() - interval '2 minutes'`,
		"its process is gone":                 `update workers set pid_started_at = pid_started_at + 1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 2)
			s.worker()
			s.exec(died)
			m := s.migrate(3)
			if err := m.end(); err != nil || len(m.names) != 1 {
				t.Fatalf("applied %v, %v", m.names, err)
			}
		})
	}
}

func TestMigrateRefusesADatabaseThatIsAheadOrDrifted(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	_, ahead := errors.AsType[*db.AheadError](s.migrate(2).end())
	s.exec(`update schema_migrations set sha256 = 'x' where version = 1`)
	_, drifted := errors.AsType[*db.DriftError](s.migrate(3).end())
	if !ahead || !drifted {
		t.Errorf("refused as ahead: %v, as drifted: %v", ahead, drifted)
	}
}

func TestEnsureSchemaMigratesOnlyWhenAllowed(t *testing.T) {
	t.Parallel()
	s := newSite(t, 0)
	ensure := func(migrate bool) error {
		return EnsureSchema(t.Context(), s.conn, migrate, MigrateConfig{LeaseTTL: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	}
	if err := ensure(false); !errors.Is(err, db.ErrNotMigrated) {
		t.Fatal(err)
	}
	for range 2 {
		if err := ensure(true); err != nil {
			t.Fatal(err)
		}
	}
	s.exec(`update instance set migrating_to = 99, migrating_until = clock_timestamp() + interval '1 minute'`)
	if err := ensure(true); !errors.Is(err, ErrMigrating) {
		t.Fatal(err)
	}
	s.exec(`update instance set migrating_until = clock_timestamp()`)
	if err := ensure(true); err != nil {
		t.Fatal("an announcement that has run out:", err)
	}
}
