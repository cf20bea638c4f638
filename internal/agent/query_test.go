package agent

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/uuid"

	"orch/internal/agent/outcome"
	"orch/internal/process"
)

// planted is a run as a process leaves it that died before it noted anything but the intent. Its program has ended, or
// has written the file started.
func (b *bench) planted(t *testing.T, key, script string) uuid.UUID {
	t.Helper()
	id := b.intended(t, key)
	dir := b.made(t, id, script)
	shim, err := process.Launch(t.Context(), b.runs.cfg.Shim, dir, process.Bundle{Env: shimEnv()})
	if err != nil {
		t.Fatal(err)
	}
	if script == waiting {
		if st, err := shim.WaitStarted(bound(t)); err != nil || st.Status != process.StatusAlive {
			t.Fatalf("%+v, %v", st, err)
		}
		return id
	}
	if _, err := shim.Wait(bound(t)); err != nil {
		t.Fatal(err)
	}
	<-shim.ShimGone()
	return id
}

func (b *bench) intended(t *testing.T, key string) uuid.UUID {
	t.Helper()
	id := b.insertIntent(t, 0)
	self := b.runs.cfg.Self
	b.exec(t, `update runs set key = $2, host = $3, boot_id = $4, pid_namespace = $5 where id = $1`,
		id, key, self.Host, self.BootID, self.PIDNamespace)
	return id
}

func (b *bench) made(t *testing.T, id uuid.UUID, script string) (dir string) {
	t.Helper()
	dir = filepath.Join(b.dir, id.String())
	spec := process.Spec{RunID: id.String(), Argv: []string{"sh", "-c", script}, Dir: b.work, KillGrace: b.runs.cfg.KillGrace}
	if err := process.Create(dir, spec, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestEndTask(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	noteRunning := func(id uuid.UUID) {
		b.exec(t, `update runs set state = 'running', started_at = now() where id = $1`, id)
	}
	want := map[uuid.UUID]outcome.Outcome{}
	want[b.intended(t, "intended")] = outcome.NeverStarted
	made := b.intended(t, "intended, its directory made")
	b.made(t, made, waiting)
	want[made] = outcome.NeverStarted
	want[b.planted(t, "alive, not noted", waiting)] = outcome.Cancelled
	alive := b.planted(t, "alive", waiting)
	noteRunning(alive)
	want[alive] = outcome.Cancelled
	want[b.planted(t, "finished, its start not noted", "exit 3")] = outcome.AgentFailed
	finished := b.planted(t, "finished, its end not noted", "true")
	noteRunning(finished)
	want[finished] = outcome.OK
	dead := b.planted(t, "shim killed", waiting)
	b.killShim(t, dead)
	want[dead] = outcome.Crashed
	restarted := b.planted(t, "container restarted", waiting)
	b.killShim(t, restarted)
	b.moved(t, restarted, otherNamespace)
	want[restarted] = outcome.Interrupted
	lost := b.intended(t, "directory lost")
	noteRunning(lost)
	want[lost] = outcome.Crashed
	other := uuid.New()
	b.exec(t, `insert into roots (id, host, path) values ($1, 'there', '/x')`, other)
	elsewhere := b.intended(t, "of another root")
	b.exec(t, `update runs set root_id = $1 where id = $2`, other, elsewhere)

	var both sync.WaitGroup
	for range 2 { // at the same time
		both.Go(func() {
			if err := b.runs.EndTask(bound(t), b.task); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	before := b.list(t)
	for _, run := range before {
		if run.ID == elsewhere {
			if run.State != StateIntended {
				t.Errorf("%s: %+v", run.Key, run)
			}
			continue
		}
		if run.State != StateFinished || run.ConsumedAt != nil || *run.Outcome != want[run.ID] {
			t.Errorf("%s: want %s: %+v", run.Key, want[run.ID], run)
		}
	}
	if err := b.runs.EndTask(bound(t), b.task); err != nil { // once more
		t.Fatal(err)
	}
	for i, run := range b.list(t) {
		if run.State == StateFinished && !run.FinishedAt.Equal(*before[i].FinishedAt) {
			t.Errorf("%s: noted again: %+v", run.Key, run)
		}
	}
	all, err := os.ReadDir(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		shim, err := process.OpenRun(filepath.Join(b.dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if st, err := shim.State(); err != nil || st.Status == process.StatusAlive || st.Status == process.StatusPending {
			t.Errorf("%s: %+v, %v", entry.Name(), st, err)
		}
	}
}
