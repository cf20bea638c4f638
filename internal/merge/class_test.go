package merge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"orch/internal/forge"
	"orch/internal/merge/problem"
)

// failing is a repository on which nothing lands.
type failing struct {
	forge.Forge

	err error
}

func (f *failing) Land(ctx context.Context, repo forge.Repo, l forge.Landing) (forge.LandResult, error) {
	if f.err != nil {
		return forge.LandResult{Certain: true}, f.err
	}
	return f.Forge.Land(ctx, repo, l)
}

func TestEachErrorClassHasItsCap(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err   error
		drive int // how many drives it takes to park
		tries string
	}{
		"refused": {&forge.ProblemError{Code: forge.CodeRefused, Message: "no"}, 2, "0 0 2"},
		"later":   {errors.New("broken pipe"), 3, "0 3 0"},
		"moved":   {forge.ErrBaseMoved, 1, "4 0 0"}, // all at once
		"changed": {forge.ErrChanged, 1, "4 0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			w.forge = &failing{Forge: w.forge, err: tt.err}
			cfg := w.config()
			cfg.MaxRefused, cfg.MaxLater, cfg.MaxMoved = 2, 3, 4
			h, err := NewHandler(cfg)
			if err != nil {
				t.Fatal(err)
			}
			task := w.add(map[string]string{"a": "a"})
			for range tt.drive {
				if got := w.state(task); got != "active" {
					t.Fatalf("task is %s too early", got)
				}
				w.exec(`update jobs set run_at = now() where task_id = $1`, task)
				w.drain(h)
			}
			if got := w.step(task) + " " + w.state(task); got != "parked blocked" {
				t.Errorf("attempt and task are %s", got)
			}
			if got := w.text(`select moved || ' ' || later || ' ' || refused from merge_attempts where task_id = $1`, task); got != tt.tries {
				t.Errorf("counted %s, want %s", got, tt.tries)
			}
			if got := len(w.tester.commits()); got != 1 {
				t.Errorf("tested %d times", got)
			}
		})
	}
}

// A disk without room is nobody's fault: however long it lasts, the landing goes on when there is some.
func TestFullDiskCountsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	full := &failing{Forge: w.forge, err: fmt.Errorf("land: %w", syscall.ENOSPC)}
	w.forge = full
	cfg := w.config()
	cfg.MaxRefused, cfg.MaxLater, cfg.MaxMoved = 1, 1, 1
	h, err := NewHandler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	task := w.add(map[string]string{"a": "a"})
	for range 3 {
		w.exec(`update jobs set run_at = now() where task_id = $1`, task)
		w.drain(h)
	}
	if got := w.step(task) + " " + w.lastError(task) + " " + w.text(`select tries from merge_attempts`); got != "ready "+problem.FullDisk+" 0" {
		t.Errorf("attempt is %s", got)
	}
	if w.dueIn(task) <= 0 {
		t.Error("it is looked at again without a pause")
	}
	if got := w.text(`select error_code || ' ' || error from jobs where kind = 'merge'`); got != problem.FullDisk+" land: no space left on device" {
		t.Errorf("people are told %q", got)
	}
	full.err = nil
	w.exec(`update jobs set run_at = now() where task_id = $1`, task)
	w.drain(h)
	w.landedOnce(task, "a")
}

// Whoever is to make a target branch again has to know which one, and where.
func TestTargetThatIsGoneIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	task := w.add(map[string]string{"a": "a"})
	w.repo.Git("update-ref", "-d", "refs/heads/main")
	w.drain(w.handler(nil))
	told := w.text(`select error from jobs where kind = 'merge'`)
	if w.lastError(task) != problem.NoBase || !strings.Contains(told, "branch main in "+w.repo.Dir) {
		t.Errorf("%s: people are told %q", w.lastError(task), told)
	}
}
