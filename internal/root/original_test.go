package root

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"orch/internal/root/layout"
	"orch/internal/testdb"
)

// It has the generation of its original, whose jobs it would take and whose agents it would end.
func TestStart_RefusesACopyOfARootInUse(t *testing.T) {
	t.Parallel()
	for name, start := range starts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, path := testdb.New(t), dir(t)
			original := bind(t, path, pool, Config{})
			works(t, pool, original)
			other := copied(t, path)
			if err := layout.Prepare(other); err != nil { // the copy has other modes
				t.Fatal(err)
			}
			before := untouched(t, other, pool)

			refused := func() {
				r, err := start(t.Context(), other, pool, Config{Wait: time.Minute})
				if err == nil {
					r.Close()
				}
				if living, ok := errors.AsType[*LivingError](err); !ok || living.PID != 4711 || Reason(err) != "" {
					t.Errorf("%v", err)
				}
			}
			var group sync.WaitGroup // neither may take the other for somebody who works there
			for range 4 {
				group.Go(refused)
			}
			group.Wait()
			st, err := Inspect(t.Context(), other, pool, Config{})
			if err != nil || st.Fits || !strings.Contains(st.Verdict, "alive elsewhere") {
				t.Errorf("%+v, %v", st, err)
			}
			if _, err := Accept(t.Context(), other, pool, Config{}); !isRefusal(err) {
				t.Errorf("accepted: %v", err)
			}
			if after := untouched(t, other, pool); after != before {
				t.Errorf("changed from\n%s\nto\n%s", before, after)
			}
			fits(t, path, pool, 1)

			exec(t, pool, "update workers set stopped_at = clock_timestamp()")
			if st, err := Inspect(t.Context(), other, pool, Config{}); err != nil || !st.Fits {
				t.Errorf("%+v, %v", st, err)
			}
			r, err := start(t.Context(), other, pool, Config{})
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
		})
	}
}

func TestStart_LetsTheOriginalInWhateverItIsCalled(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ends, stops bool
		rename      func(path string) (string, error)
		host        string
	}{
		"a second worker":                    {},
		"a second worker by a link":          {rename: linked},
		"a second worker, another container": {rename: linked, host: "container"},
		"moved after its stop":               {ends: true, stops: true, rename: moved, host: "another"},
		"after a crash":                      {ends: true},
		"after a crash, by a link":           {ends: true, rename: linked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, path := testdb.New(t), dir(t)
			r := bind(t, path, pool, Config{})
			works(t, pool, r)
			if tt.stops {
				exec(t, pool, "update workers set stopped_at = clock_timestamp()")
			}
			if tt.ends {
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if tt.rename != nil {
				var err error
				if path, err = tt.rename(path); err != nil {
					t.Fatal(err)
				}
			}
			if st, err := Inspect(t.Context(), path, pool, Config{Host: tt.host}); err != nil || !st.Fits {
				t.Errorf("%+v, %v", st, err)
			}
			if again := mustJoin(t, path, pool, Config{Host: tt.host}); again.Generation() != 2 || again.ID() != r.ID() {
				t.Errorf("generation %d", again.Generation())
			}
		})
	}
}

func linked(path string) (string, error) {
	to := path + "-link"
	return to, os.Symlink(path, to)
}

func moved(path string) (string, error) {
	to := path + "-moved"
	return to, os.Rename(path, to)
}

// A process that lets go of the root, or that was refused, doesn't count as one who works there.
func TestLock_EnteredEndsWithTheRoot(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	r := bind(t, path, pool, Config{})
	l, err := openLock(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if !l.entered() {
		t.Error("nobody is seen in the root")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	refuse[*TestingError](t, path, pool, Config{Testing: true})
	if l.entered() {
		t.Error("somebody is seen in a root that nobody works in")
	}
}

func TestBind_DoesNotReplaceALostMarker(t *testing.T) {
	t.Parallel()
	for _, left := range []string{layout.Runs, layout.Workspaces} {
		t.Run(left, func(t *testing.T) {
			t.Parallel()
			pool, path := testdb.New(t), dir(t)
			if err := bind(t, path, pool, Config{}).Close(); err != nil {
				t.Fatal(err)
			}
			entry := filepath.Join(path, left, "17")
			kept := filepath.Join(t.TempDir(), "kept")
			if err := errors.Join(os.Mkdir(entry, 0o700), os.Rename(markerFile(path), kept)); err != nil {
				t.Fatal(err)
			}
			refuse[*LostError](t, path, pool, Config{}, markerFile(path), filepath.Join(left, "17"), "restore", "new directory")
			if _, err := os.Stat(markerFile(path)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a marker was made: %v", err)
			}
			if err := os.Rename(kept, markerFile(path)); err != nil {
				t.Fatal(err)
			}
			bind(t, path, pool, Config{})
			fits(t, path, pool, 2)
		})
	}
}

func TestInspect_SaysWhatKeepsAStartAway(t *testing.T) {
	t.Parallel()
	pool, path := testdb.New(t), dir(t)
	bind(t, path, pool, Config{})
	if st, err := Inspect(t.Context(), path, pool, Config{Testing: true}); err != nil || st.Fits || !strings.Contains(st.Verdict, "isn't marked for testing") {
		t.Errorf("%+v, %v", st, err)
	}
	exec(t, pool, "update instance set setup = 'bootstrapping'")
	if st, err := Inspect(t.Context(), path, pool, Config{}); err != nil || !strings.Contains(st.Verdict, "set-up isn't finished") {
		t.Errorf("%+v, %v", st, err)
	}
	bind(t, path, pool, Config{})
	if st, err := Inspect(t.Context(), path, pool, Config{}); err != nil || !st.Fits || st.Verdict != "bound" {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestHolder_WithoutANameIsItsPID(t *testing.T) {
	t.Parallel()
	if got := (Holder{PID: 4424}).String(); got != "pid 4424" {
		t.Error(got)
	}
	if got := (Holder{PID: 4424, Program: "orch"}).String(); got != "orch with pid 4424" {
		t.Error(got)
	}
}
