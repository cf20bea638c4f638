package problem_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"orch/internal/forge"
	"orch/internal/git"
	"orch/internal/merge/problem"
)

type said string

func (s said) Error() string { return "exit status 128" }

func (s said) Said() string { return string(s) }

func TestClassOfAProblem(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken pipe")
	for name, tt := range map[string]struct {
		code string
		err  error
		want problem.Class
	}{
		"an error of git":               {problem.Mirror, broken, problem.Later},
		"a lock that isn't free":        {problem.Fetch, fmt.Errorf("wait: %w", git.ErrBusy), problem.Later},
		"a look that failed":            {problem.Look, broken, problem.Later},
		"a checkout in use":             {problem.Land, &forge.ProblemError{Code: forge.CodeDirty}, problem.Later},
		"a foreign lock":                {problem.Land, &forge.ProblemError{Code: forge.CodeLocked}, problem.Later},
		"a hook that refuses":           {problem.Land, &forge.ProblemError{Code: forge.CodeRefused}, problem.Operator},
		"a repository that is gone":     {problem.Fetch, &forge.ProblemError{Code: forge.CodeMissing}, problem.Operator},
		"no target":                     {problem.NoBase, broken, problem.Operator},
		"no branch":                     {problem.NoBranch, broken, problem.Operator},
		"a branch of something else":    {problem.Branch, broken, problem.Operator},
		"nothing in common":             {problem.Replay, git.ErrUnrelated, problem.Operator},
		"a method nobody knows":         {problem.Method, broken, problem.Operator},
		"a target that moved":           {problem.BaseMoved, broken, problem.Moved},
		"a head that changed":           {problem.Land, forge.ErrChanged, problem.Moved},
		"a disk without room":           {problem.Mirror, fmt.Errorf("write: %w", syscall.ENOSPC), problem.Waiting},
		"a quota":                       {problem.Mirror, fmt.Errorf("write: %w", syscall.EDQUOT), problem.Waiting},
		"a disk that git found full":    {problem.Fetch, fmt.Errorf("fetch: %w", said("fatal: write error: No space left on device")), problem.Waiting},
		"what git says of other things": {problem.Fetch, said("fatal: bad object"), problem.Later},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var step *problem.StepError
			if err := problem.Of(tt.code, tt.err); !errors.As(err, &step) || step.Class() != tt.want {
				t.Errorf("%v is %q, want %q", err, step.Class(), tt.want)
			}
		})
	}
}

// What only a person changes is never said to be running, and what passes is never put on a person.
func TestWhatNeedsAPerson(t *testing.T) {
	t.Parallel()
	for _, code := range []string{
		problem.NoBase, problem.NoBranch, problem.Branch, problem.Method, string(forge.CodeDirty), string(forge.CodeUnfinished), string(forge.CodeOverwrites),
		string(forge.CodeAway), string(forge.CodeFilters), string(forge.CodeRefused), string(forge.CodeMissing),
	} {
		if !problem.NeedsPerson(code) {
			t.Errorf("%s needs nobody", code)
		}
	}
	for _, code := range []string{"", "merge_lease", problem.BaseMoved, problem.FullDisk, problem.Fetch, string(forge.CodeLocked), string(forge.CodeMoved), "repo_paused:demo"} {
		if problem.NeedsPerson(code) {
			t.Errorf("%s needs a person", code)
		}
	}
}
