package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"orch/api"
	"orch/internal/cli/exit"
	"orch/internal/cli/session"
	"orch/internal/cli/terminal"
	"orch/internal/cli/watch"
	"orch/internal/cli/words"
	"orch/internal/client"
)

// through is what takes a task to its end while somebody looks on.
type through struct {
	*session.Session

	server *client.Client
	served bool // by a server that goes on when the command has ended
}

// RunTask adds the task and shows its way to its end. An interrupted one is cancelled. Served says that the server goes on when
// the command has ended.
func RunTask(ctx context.Context, s *session.Session, server *client.Client, served bool, n api.NewTask) error {
	return through{s, server, served}.run(ctx, n)
}

func (s through) run(ctx context.Context, n api.NewTask) error {
	t, err := s.server.CreateTask(ctx, n)
	if err != nil {
		return refused(err)
	}
	repo := n.Adhoc.Path
	d, err := s.follow(ctx, t.Key)
	if err != nil && ctx.Err() != nil {
		return s.abandon(t.Key, repo) //nolint:contextcheck // ctx is over, that is why
	}
	if err != nil {
		return err
	}
	return s.conclude(d, repo)
}

func (s through) follow(ctx context.Context, key string) (api.TaskDetail, error) {
	if s.JSON {
		lines := watch.NewJSONLines(s.Out)
		d, err := watch.New(s.server, key, lines).ToEnd(ctx)
		if err == nil {
			lines.Result(d)
		}
		return d, err
	}
	shown := watch.NewPlain(terminal.New(s.Out))
	defer shown.Close()
	return watch.New(s.server, key, shown).ToEnd(ctx)
}

// abandonWait bounds how long an interrupted `orch run` waits for its task to be gone.
const abandonWait = 60 * time.Second

// abandon cancels the task of an interrupted run and waits until nothing of it is left.
func (s through) abandon(key, repo string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context), abandonWait)
	defer cancel()
	_, _ = fmt.Fprintf(s.Err, "orch: interrupted: cancelling %s\n", key)
	_, err := s.server.CancelTask(ctx, key)
	var problem *client.ProblemError
	tooLate := errors.As(err, &problem) && (problem.Code == "task_ended" || problem.Code == "landing_started")
	if err != nil && !tooLate {
		return fmt.Errorf("cancel %s: %w", key, err)
	}
	d, err := watch.New(s.server, key, watch.Silent{}).ToEnd(ctx)
	if err != nil {
		return fmt.Errorf("%s is cancelled, but its clean-up didn't end in %s: %w", key, abandonWait, err)
	}
	if d.Task.State == api.TaskDone {
		return s.conclude(d, repo)
	}
	return exit.With(exit.Failed, fmt.Errorf("%s is cancelled%s", key, keptWords(d)))
}

// conclude says how the task ended, and makes the exit code of it.
func (s through) conclude(d api.TaskDetail, repo string) error {
	t := d.Task
	switch {
	case t.State == api.TaskDone && t.LandedCommit != nil:
		s.Say("landed %s on %s of %s%s", *t.LandedCommit, t.Base, t.Repo, because(t))
		return nil
	case t.State == api.TaskDone:
		s.Say("%s is done%s", t.Key, because(t))
		return nil
	case t.State == api.TaskWaiting:
		s.Say("ready: the branch %s waits for you to land it on %s", t.Branch, t.Base)
		return nil
	}
	reason := value(t.Reason)
	if reason == "" {
		reason = "it was cancelled"
	}
	return exit.With(exit.Failed, fmt.Errorf("%s did not land: %s%s", t.Key, terminal.Printable(reason), keptLine(d, repo, s.served)))
}

// because is the reason of a task's end, to be put behind it.
func because(t api.Task) string {
	if t.Reason == nil {
		return ""
	}
	return ": " + terminal.Printable(*t.Reason)
}

// keptLine says where the work of a task is that didn't land, and how it could go on.
func keptLine(d api.TaskDetail, repo string, served bool) string {
	line, first := "", "orch serve, then "
	if served {
		first = ""
	}
	if ref := words.SalvageRef(d.Events); ref != "" {
		line = fmt.Sprintf("\nIts work is kept: git -C %s log %s", repo, ref)
	}
	if words.Asks(d.Task) {
		return line + fmt.Sprintf("\nTo answer: %sorch task answer %s \"…\"", first, d.Task.Key)
	}
	if d.Task.State == api.TaskBlocked {
		line += "\nTo let it go on: " + first + "orch task retry " + d.Task.Key
	}
	return line
}
