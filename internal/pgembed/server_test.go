package pgembed

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestStart_ColdThenWarm(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	cfg := Config{Dir: dir} // durable, as in real life
	s, err := Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := execute(s, "create table kept (n int); insert into kept values (42)"); err != nil {
		t.Error(err)
	}
	before, err := os.Stat(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	stop(t, s)
	if s.Err() != nil || alive(s.PID()) {
		t.Errorf("after Stop: %v, alive %v", s.Err(), alive(s.PID()))
	}
	stop(t, s) // again: nothing

	if s, err = Start(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	wantKept(t, s.ConnConfig(Database))
	if after, err := os.Stat(filepath.Join(dir, "data")); err != nil || !os.SameFile(before, after) {
		t.Errorf("another data directory: %v", err)
	}
	stop(t, s)
	if left, err := filepath.Glob(filepath.Join(dir, "init-*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

func TestStart_IsPrivate(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	s := start(t, dir)
	for _, name := range []string{"data", "run"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %o", name, info.Mode().Perm())
		}
	}
	env, err := os.ReadFile("/proc/" + strconv.Itoa(s.PID()) + "/environ")
	if err != nil {
		t.Fatal(err)
	}
	for variable := range strings.SplitSeq(strings.TrimRight(string(env), "\x00"), "\x00") {
		if name, _, _ := strings.Cut(variable, "="); name != "LC_ALL" && name != "TZ" && name != "PATH" && name != "PGLOCALEDIR" && name != "PGSYSCONFDIR" && name != "" {
			t.Errorf("the server got %s", name)
		}
	}
	// No socket of its network namespace listens for it: the setting is the proof that doesn't depend on the machine.
	if err := execute(s, "do $$ begin if current_setting('listen_addresses') <> '' then raise exception 'listens'; end if; end $$"); err != nil {
		t.Error(err)
	}
}

func TestStart_SecondIsRefused(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	s := start(t, dir)
	err := refused(t, Config{Dir: dir}, "pid "+strconv.Itoa(os.Getpid()), dir)
	if e, ok := errors.AsType[*InUseError](err); !ok || e.PID != os.Getpid() {
		t.Errorf("%#v", err)
	}
	wantKept(t, s.ConnConfig(Database))

	// Those who can't see the processes find the file that the server inherited locked.
	f, err := os.Open(filepath.Join(dir, "alive"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if free, err := lockWithin(context.Background(), f, time.Millisecond); free || err != nil {
		t.Errorf("not locked by the server: %v", err)
	}
	stop(t, s)
	if free, err := lockWithin(context.Background(), f, time.Second); !free || err != nil {
		t.Errorf("still locked: %v", err)
	}
}

func TestStart_ManyAtOnceOnAFreshDirectory(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	var (
		group   sync.WaitGroup
		mutex   sync.Mutex
		servers []*Server
	)
	for range 4 {
		group.Go(func() {
			s, err := Start(context.Background(), Config{Dir: dir, Unsafe: true})
			mutex.Lock()
			defer mutex.Unlock()
			if err == nil {
				servers = append(servers, s)
			} else if _, ok := errors.AsType[*InUseError](err); !ok {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if len(servers) != 1 {
		t.Errorf("%d started", len(servers))
	}
	for _, s := range servers {
		stop(t, s)
	}
}

func TestStart_Cancelled(t *testing.T) {
	t.Parallel()
	cause := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(context.Background())
	dir := newDir(t)
	cold := make(chan error)
	go func() {
		s, err := Start(ctx, Config{Dir: dir, Unsafe: true})
		if err == nil {
			err = errors.Join(errors.New("started"), s.Stop(ctx))
		}
		cold <- err
	}()
	eventually(t, "initdb runs", func() bool {
		running, _ := filepath.Glob(filepath.Join(dir, "init-*", "PG_VERSION"))
		return len(running) > 0
	})
	cancel(cause)
	if err := <-cold; !errors.Is(err, cause) {
		t.Error(err)
	}
	start(t, dir)
}

func TestServer_DiesByItself(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	s := start(t, dir)
	if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if s.Err() == nil || !strings.Contains(s.Err().Error(), "killed") {
		t.Error(s.Err())
	}
	stop(t, s)
	wantKept(t, start(t, dir).ConnConfig(Database))
}

func TestServer_StopHurries(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	s := start(t, dir)
	// A shutdown that is told to hurry is an immediate one, and the next start recovers.
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(nil)
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	wantKept(t, start(t, dir).ConnConfig(Database))
}

func TestServer_StopWithClients(t *testing.T) {
	t.Parallel()
	dir := oldDir(t)
	s := start(t, dir)
	busy := make(chan error)
	go func() { busy <- execute(s, "select pg_sleep(3600)") }()
	eventually(t, "the query runs", func() bool {
		return execute(s, "do $$ begin if not exists (select from pg_stat_activity where wait_event = 'PgSleep') then raise exception 'not yet'; end if; end $$") == nil
	})
	stop(t, s)
	if err := <-busy; err == nil {
		t.Error("the query ended well")
	}
}

func TestStart_SettingsOfTheCaller(t *testing.T) {
	t.Parallel()
	_ = refused(t, Config{Dir: oldDir(t), Unsafe: true, Extra: []string{"no_such_setting=1"}}, "no_such_setting")
	s, err := Start(context.Background(), Config{Dir: oldDir(t), Unsafe: true, Extra: []string{"max_connections=17"}})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, s)
	if err := execute(s, "do $$ begin if current_setting('max_connections') <> '17' then raise exception 'no'; end if; end $$"); err != nil {
		t.Error(err)
	}
}

func TestStart_LongPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(filepath.Dir(oldDir(t)), strings.Repeat("long", 25), "pg")
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "..", "..", "pg"), dir); err != nil {
		t.Fatal(err)
	}
	s := start(t, dir)
	wantKept(t, s.ConnConfig(Database))
	socket := s.ConnConfig(Database).Host
	t.Cleanup(func() {
		stop(t, s)
		if err := os.Remove(socket); err != nil { // nothing is left in it
			t.Error(err)
		}
	})
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o700 || strings.HasPrefix(socket, dir) {
		t.Errorf("%s: %v, %v", socket, info, err)
	}
	cfg, err := Connect(dir, Database)
	if err != nil {
		t.Fatal(err)
	}
	wantKept(t, cfg)
}

func TestConnect(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	if _, err := Connect(dir, Database); !errors.Is(err, ErrNotRunning) {
		t.Errorf("no cluster: %v", err)
	}
	dir = oldDir(t)
	if _, err := Connect(dir, Database); !errors.Is(err, ErrNotRunning) {
		t.Errorf("stopped: %v", err)
	}
	for _, text := range []string{"", "\n", "garbage"} { // a postmaster that begins makes the file first, and then fills it
		if err := os.WriteFile(filepath.Join(dir, "data", "postmaster.pid"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Connect(dir, Database); !errors.Is(err, ErrNotRunning) {
			t.Errorf("pid file %q: %v", text, err)
		}
	}
	s := start(t, dir)
	cfg, err := Connect(dir, Database)
	if err != nil {
		t.Fatal(err)
	}
	wantKept(t, cfg)
	if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if _, err := Connect(dir, Database); !errors.Is(err, ErrNotRunning) {
		t.Errorf("killed: %v", err)
	}
}
