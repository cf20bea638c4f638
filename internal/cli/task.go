package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"orch/api"
)

type taskCommand struct {
	Add    taskAddCommand    `cmd:"" help:"Add a task for a repository of orch.yaml."`
	List   taskListCommand   `cmd:"" help:"List tasks, newest first."`
	Show   taskShowCommand   `cmd:"" help:"Show a task, what happened to it, and why it is where it is."`
	Retry  taskRetryCommand  `cmd:"" help:"Let a task that needs you go on, with a hint or an answer for its agent."`
	Cancel taskCancelCommand `cmd:"" help:"Cancel a task; its agent is ended."`
}

type taskAddCommand struct {
	Repo     string `required:"" help:"Name of the repository." placeholder:"NAME"`
	Title    string `required:"" help:"What is to be done, in one line."`
	Body     string `help:"All that the agent should know." xor:"body"`
	BodyFile string `help:"The same from a file; - for standard input." placeholder:"FILE" xor:"body"`
	Base     string `help:"Branch to start from and to land on (default: the repository's)." placeholder:"BRANCH"`
	Priority int    `help:"Higher runs first (-100 to 100)."`
	NoLand   bool   `help:"Stop at a tested branch, for a person to land."`
}

// Run adds the task.
func (c *taskAddCommand) Run(s *session) error {
	body, err := readBody(s.In, c.Body, c.BodyFile)
	if err != nil {
		return err
	}
	server, err := s.connect()
	if err != nil {
		return err
	}
	defer server.Close()
	n := api.NewTask{Repo: &c.Repo, Title: c.Title, Body: &body, Priority: &c.Priority}
	if c.Base != "" {
		n.Base = &c.Base
	}
	if c.NoLand {
		land := false
		n.Land = &land
	}
	t, err := server.CreateTask(s.ctx, n)
	if err != nil {
		return refused(err)
	}
	if s.global.JSON {
		return s.printJSON(t)
	}
	s.print("%s added; watch it with `orch task show %s` or `orch queue --watch`", t.Key, t.Key)
	return nil
}

// readBody gives a task's text from where it was said to be.
func readBody(in io.Reader, text, file string) (string, error) {
	const limit = 1 << 20
	if file == "" {
		return text, nil
	}
	from := in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", usagef("read the task's text: %w", err)
		}
		defer func() { _ = f.Close() }()
		from = f
	}
	content, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err != nil {
		return "", usagef("read the task's text: %w", err)
	}
	if len(content) > limit {
		return "", usagef("the task's text in %s is longer than 1 MiB", file)
	}
	return string(content), nil
}

type taskListCommand struct {
	State []string `help:"Only tasks in these states: active, waiting, blocked, done, cancelled." enum:"active,waiting,blocked,done,cancelled"`
	Repo  string   `help:"Only tasks of this repository." placeholder:"NAME"`
	Limit int      `help:"How many at most." default:"50"`
}

// Run lists tasks.
func (c *taskListCommand) Run(s *session) error {
	server, err := s.connect()
	if err != nil {
		return err
	}
	defer server.Close()
	params := api.ListTasksParams{Limit: &c.Limit}
	if c.Repo != "" {
		params.Repo = &c.Repo
	}
	if len(c.State) > 0 {
		states := make([]api.TaskState, 0, len(c.State))
		for _, state := range c.State {
			states = append(states, api.TaskState(state))
		}
		params.State = &states
	}
	list, err := server.ListTasks(s.ctx, params)
	if err != nil {
		return err
	}
	if s.global.JSON {
		return s.printJSON(list)
	}
	if len(list.Items) == 0 {
		s.print("no tasks")
		return nil
	}
	return s.table("KEY\tSTATE\tSTAGE\tAGE\tTITLE", len(list.Items), func(i int) string {
		t := list.Items[i]
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", t.Key, stateWords(t), t.Stage, age(t.CreatedAt), fit(printable(t.Title), 60))
	})
}

// table prints rows in columns.
func (s *session) table(head string, rows int, row func(i int) string) error {
	w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, head)
	for i := range rows {
		_, _ = fmt.Fprintln(w, row(i))
	}
	return w.Flush()
}

// stateWords is a task's state in the few words that people see.
func stateWords(t api.Task) string {
	switch t.State {
	case api.TaskActive:
		if t.Round > 1 {
			return fmt.Sprintf("running, try %d of %d", t.Round, t.MaxRounds)
		}
		return "running"
	case api.TaskWaiting:
		return "waiting for " + waitingWords(value(t.WaitingFor))
	case api.TaskBlocked:
		return "needs you"
	case api.TaskDone:
		if t.LandedCommit != nil {
			return "landed"
		}
		return "done"
	default:
		return string(t.State)
	}
}

func waitingWords(code string) string {
	if code == waitingForPerson {
		return "you to land it"
	}
	return strings.ReplaceAll(code, "_", " ")
}

func value[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}

func age(since time.Time) string { return elapsed(time.Since(since)) }

type taskShowCommand struct {
	Key string `arg:"" help:"Key of the task, e.g. app-12."`
}

// Run shows a task.
func (c *taskShowCommand) Run(s *session) error {
	server, err := s.connect()
	if err != nil {
		return err
	}
	defer server.Close()
	d, err := server.GetTask(s.ctx, c.Key)
	if err != nil {
		return err
	}
	if s.global.JSON {
		return s.printJSON(d)
	}
	s.showTask(d)
	return nil
}

func (s *session) showTask(d api.TaskDetail) {
	t := d.Task
	s.print("%s  %s", t.Key, printable(t.Title))
	s.print("  %s · stage %s · repository %s, %s → %s", stateWords(t), t.Stage, t.Repo, t.Branch, t.Base)
	if t.Reason != nil {
		s.print("  why: %s", printable(firstLine(*t.Reason)))
	}
	if t.LandedCommit != nil {
		s.print("  landed as %s", *t.LandedCommit)
	}
	if ref := salvageRef(d.Events); ref != "" && t.State != api.TaskDone {
		s.print("  work kept at %s", ref)
	}
	if j := d.Job; j != nil {
		s.print("  job %d (%s) is %s%s", j.ID, j.Kind, j.State, jobWords(*j))
	}
	for _, e := range d.Events {
		f := factsOf(e)
		s.print("  %s  %-14s %s", e.At.Local().Format("01-02 15:04:05"), e.Kind, strings.TrimSpace(eventWords(f)+" "+printable(firstLine(e.Reason))))
	}
}

func jobWords(j api.Job) string {
	var b strings.Builder
	if j.Phase != nil && j.State == api.JobRunning {
		fmt.Fprintf(&b, ", %s", phaseWords(*j.Phase))
	}
	if j.Pid != nil {
		fmt.Fprintf(&b, ", pid %d", *j.Pid)
	}
	if j.State == api.JobQueued && time.Until(j.RunAt) > time.Second {
		fmt.Fprintf(&b, ", next look in %s", elapsed(time.Until(j.RunAt)))
	}
	fmt.Fprintf(&b, "; attempt %d of %d", j.Attempt, j.MaxAttempts)
	return b.String()
}

func eventWords(f facts) string {
	var words []string
	if f.Stage != "" {
		words = append(words, f.Stage)
	}
	if f.From != "" && f.To != "" {
		words = append(words, f.From+" → "+f.To)
	}
	for _, word := range []string{f.Gate, f.Outcome, f.Code, shortSHA(f.Commit), f.Ref} {
		if word != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// salvageRef is where the newest salvage of a task is.
func salvageRef(events []api.TaskEvent) string {
	ref := ""
	for _, e := range events {
		if f := factsOf(e); f.Ref != "" {
			ref = f.Ref
		}
	}
	return ref
}

type taskCancelCommand struct {
	Key string `arg:"" help:"Key of the task."`
}

// Run cancels a task and waits until nothing of it runs any more.
func (c *taskCancelCommand) Run(s *session) error {
	server, err := s.connect()
	if err != nil {
		return err
	}
	defer server.Close()
	t, err := server.CancelTask(s.ctx, c.Key)
	if err != nil {
		return refused(err)
	}
	if s.global.JSON {
		return s.printJSON(t)
	}
	ctx, cancel := context.WithTimeout(s.ctx, retireWait)
	defer cancel()
	d, err := newWatcher(server, c.Key, silent{}).toEnd(ctx)
	if err != nil {
		s.print("%s is cancelled; its clean-up goes on", c.Key)
		return nil
	}
	s.print("%s is cancelled%s", c.Key, keptWords(d))
	return nil
}

func keptWords(d api.TaskDetail) string {
	if ref := salvageRef(d.Events); ref != "" {
		return "; its work is kept at " + ref
	}
	return ""
}

type taskRetryCommand struct {
	Key  string `arg:"" help:"Key of the task."`
	Note string `help:"What the agent is told: the answer to its question, or a hint."`
}

// Run lets a blocked task go on.
func (c *taskRetryCommand) Run(s *session) error {
	server, err := s.connect()
	if err != nil {
		return err
	}
	defer server.Close()
	t, err := server.RetryTask(s.ctx, c.Key, c.Note)
	if err != nil {
		return refused(err)
	}
	if s.global.JSON {
		return s.printJSON(t)
	}
	s.print("%s goes on with %s, try %d of %d", t.Key, t.Stage, t.Round, t.MaxRounds)
	return nil
}
