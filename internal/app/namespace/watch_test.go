package namespace

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"orch/internal/process"
	"orch/internal/testdb"
)

func TestNamespaceIsGone(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	root := uuid.New()
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`insert into roots (id, host, path) values ($1, 'here', '/somewhere')`, root)
	exec(`insert into workers (id, root_id, host, boot_id, pid_namespace, pid, pid_started_at, version, lanes)
		values ($1, $2, 'here', 'boot', 'pid:[1]', 1, 1, 'test', '{}')`, uuid.New(), root)
	other := process.Identity{BootID: "boot", PIDNamespace: "pid:[1]"}
	now, others := int64(0), true
	w := New(Config{Pool: pool, Others: func() bool { return others }, Silence: time.Minute, now: func() int64 { return now }})
	want := func(what string, of process.Identity, want bool) {
		t.Helper()
		if gone, err := w.Gone(t.Context(), of); err != nil || gone != want {
			t.Errorf("%s: %v, %v", what, gone, err)
		}
	}
	want("first look", other, false)
	now += int64(time.Minute) - 1
	want("silent for a moment less than it must be", other, false)
	exec(`update workers set heartbeat_at = heartbeat_at + interval '1 second'`)
	now++
	want("it has beaten", other, false)
	now += int64(time.Minute)
	want("silent for long enough", other, true)
	want("another namespace, first look", process.Identity{BootID: "boot", PIDNamespace: "pid:[2]"}, false)
	others = false
	third := process.Identity{BootID: "boot", PIDNamespace: "pid:[3]"}
	want("alone in the root, first look", third, false)
	now += int64(time.Minute)/4 - 1
	want("alone, and silent for a moment less than it must be", third, false)
	now++
	want("alone, and silent for long enough", third, true)
}

func TestAnOutageIsNoSilence(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	other := process.Identity{BootID: "boot", PIDNamespace: "pid:[1]"}
	now := int64(0)
	w := New(Config{Pool: pool, Others: func() bool { return true }, Silence: time.Minute, now: func() int64 { return now }})
	if gone, err := w.Gone(t.Context(), other); err != nil || gone {
		t.Fatal(gone, err)
	}
	pool.Close()
	now += int64(time.Hour)
	if gone, err := w.Gone(t.Context(), other); err == nil || gone {
		t.Fatal(gone, err)
	}
	if len(w.silent) != 0 {
		t.Error("the silence goes on over the outage")
	}
}
