package reconcile_test

import (
	"slices"
	"testing"

	"orch/internal/db"
	"orch/internal/queue/queuetest"
	"orch/internal/task"
	"orch/internal/task/flow"
	"orch/internal/testdb"
)

func TestOneTaskThatCannotBeMendedStarvesNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const all = 110 // two pages
	var tasks []task.Task
	for range all {
		tasks = append(tasks, w.create(demo))
	}
	w.exec(`update jobs set state = 'cancelled', finished_at = now()`)
	w.exec(`create function refuse() returns trigger language plpgsql as $$ begin
		if new.task_id = 3 then raise exception 'no' using errcode = 'check_violation'; end if; return new; end $$`)
	w.exec(`create trigger refuse before insert on jobs for each row execute function refuse()`)
	w.pipeline = func(t task.Task) (flow.Pipeline, error) {
		if t.Key == "demo-7" {
			panic("this one is broken")
		}
		return flow.Short("default", "coder", "true"), nil
	}
	for range 5 {
		if err := w.rec.Tick(t.Context()); err == nil {
			t.Error("a failure isn't answered")
		}
	}
	for _, tt := range tasks {
		if got := w.job(tt.ID); (got == "") != (tt.Key == "demo-3" || tt.Key == "demo-7") {
			t.Errorf("%s has job %q", tt.Key, got)
		}
	}
	want := []string{
		"WARN repair failed, tried again job_missing demo-3 check_violation",
		"ERROR recovered from a panic",
		"WARN repair failed, tried again job_missing demo-7 panicked",
	}
	if got := w.log.complaints(); !slices.Equal(got, want) {
		t.Errorf("told %q", got)
	}
	if s := w.rec.Snapshot(); s.Failing != 2 || s.LastError != "panicked" || s.LastRun.IsZero() {
		t.Errorf("%+v", s)
	}
	w.exec(`create or replace function refuse() returns trigger language plpgsql as $$ begin
		if new.task_id = 3 then raise exception 'no' using errcode = 'not_null_violation'; end if; return new; end $$`)
	_ = w.rec.Tick(t.Context())
	if got := w.log.complaints(); len(got) != 4 || got[3] != "WARN repair failed, tried again job_missing demo-3 not_null_violation" {
		t.Errorf("after another cause told %q", got)
	}
	w.exec(`drop trigger refuse on jobs`)
	w.pipeline = func(task.Task) (flow.Pipeline, error) { return flow.Short("default", "coder", "true"), nil }
	w.tick()
	if got := w.log.repaired(); len(got) != all {
		t.Errorf("%d repaired of %d", len(got), all)
	}
	if s := w.rec.Snapshot(); s.Failing != 0 || s.LastError != "" {
		t.Errorf("%+v", s)
	}
}

func TestOutageIsOneLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := queuetest.NewProxy(t, testdb.ConnConfig(w.pool))
	rec := w.reconcilerOn(queuetest.Pool(t, proxy.Config()))
	if err := rec.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Set(queuetest.Refuse, "")
	for range 5 {
		_ = rec.Tick(t.Context())
	}
	if got := rec.Snapshot().LastError; got != db.CodeUnreachable {
		t.Errorf("last error is %q", got)
	}
	proxy.Set(queuetest.Pass, "")
	queuetest.Until(t, "it is well again", func() bool { return rec.Tick(t.Context()) == nil })
	if got := w.log.complaints(); len(got) != 1 || got[0] != "WARN nothing repaired, tried again database_unreachable" {
		t.Errorf("told %q", got)
	}
}
