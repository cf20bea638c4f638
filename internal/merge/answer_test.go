package merge

import (
	"context"
	"errors"
	"testing"

	"orch/internal/forge"
	"orch/internal/git"
	"orch/internal/merge/problem"
)

// publishing notes what was published, and brings its objects.
type publishing struct {
	forge.Forge

	w       *world
	commits map[string]string
}

func (p *publishing) Publish(ctx context.Context, _ forge.Repo, mirror string, refs ...string) error {
	m, err := git.OpenMirror(ctx, p.w.git, mirror)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		if p.commits[ref], err = m.Ref(ctx, ref); err != nil {
			return err
		}
		if _, err = p.w.git.Run(ctx, p.w.repo.Dir, nil, "fetch", "-q", mirror, ref); err != nil {
			return err
		}
	}
	return nil
}

// answering is a repository whose answers to a landing are no proof of what happened to it.
type answering struct {
	forge.Forge

	lands bool
	err   error
	once  bool
}

func (a *answering) Land(ctx context.Context, repo forge.Repo, l forge.Landing) (forge.LandResult, error) {
	if a.once {
		return a.Forge.Land(ctx, repo, l)
	}
	a.once = true
	if !a.lands {
		return forge.LandResult{Certain: true}, a.err
	}
	result, err := a.Forge.Land(ctx, repo, l)
	return result, errors.Join(err, a.err)
}

func TestAnswersAreNoProof(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken pipe")
	for name, test := range map[string]struct {
		lands     bool
		err       error
		lastError string // of the first drive; "" = it lands
	}{
		"landed_and_failed":         {true, broken, ""},
		"landed_and_base_moved":     {true, forge.ErrBaseMoved, ""},
		"landed_and_refused":        {true, &forge.ProblemError{Code: forge.CodeRefused, Message: "no"}, ""},
		"not_landed_and_good":       {false, nil, problem.NotLanded},
		"not_landed_and_failed":     {false, broken, problem.Land},
		"not_landed_and_refused":    {false, &forge.ProblemError{Code: forge.CodeRefused, Message: "no"}, "ref_refused"},
		"not_landed_and_base_moved": {false, forge.ErrBaseMoved, ""}, // tried again at once
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, false)
			w.forge = &answering{Forge: w.forge, lands: test.lands, err: test.err}
			task := w.add(map[string]string{"a": "a"})
			h := w.handler(nil)
			w.drain(h)
			if test.lastError != "" {
				if got := w.step(task) + " " + w.lastError(task); got != "ready "+test.lastError {
					t.Errorf("attempt is %s, want ready %s", got, test.lastError)
				}
				w.exec(`update jobs set run_at = now() where task_id = $1`, task)
				w.drain(h)
			}
			w.landedOnce(task, "a")
			if got := len(w.tester.commits()); got != 1 {
				t.Errorf("tested %d times, want once", got)
			}
		})
	}
}
