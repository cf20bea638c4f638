package remote

import (
	"context"
	"fmt"
	"strings"

	"orch/api"
	"orch/internal/cli/exit"
	"orch/internal/cli/session"
	"orch/internal/cli/terminal"
	"orch/internal/cli/watch"
	"orch/internal/cli/words"
)

// TaskCommand is `orch task`.
type TaskCommand struct {
	Add    taskAddCommand    `cmd:"" help:"Add a task for a repository of orch.yaml."`
	List   taskListCommand   `cmd:"" help:"List tasks, newest first."`
	Show   taskShowCommand   `cmd:"" help:"Show a task, what happened to it, and why it is where it is."`
	Retry  taskRetryCommand  `cmd:"" help:"Let a task that needs you go on, with a hint for its agent."`
	Answer taskAnswerCommand `cmd:"" help:"Answer what the agent of a task has asked; it goes on with the answer."`
	Cancel taskCancelCommand `cmd:"" help:"Cancel a task; its agent is ended."`

	Revert  taskRevertCommand  `cmd:"" help:"Add a task that takes back what a task has landed."`
	Restore taskRestoreCommand `cmd:"" help:"Put what was kept of a task's work on a branch of its repository."`
}

type taskAddCommand struct {
	Repo     string  `required:"" help:"Name of the repository." placeholder:"NAME"`
	Title    string  `required:"" help:"What is to be done, in one line."`
	Body     string  `help:"All that the agent should know." xor:"body"`
	BodyFile string  `help:"The same from a file; - for standard input." placeholder:"FILE" xor:"body"`
	Base     string  `help:"Branch to start from and to land on (default: the repository's)." placeholder:"BRANCH"`
	Priority int     `help:"Higher runs first (-100 to 100)."`
	MaxCost  float64 `help:"What all runs of its agents may cost together, in US dollars (default: budgets.task of orch.yaml)." placeholder:"USD"`
	NoLand   bool    `help:"Stop at a tested branch, for a person to land."`
}

// Run adds the task.
func (c *taskAddCommand) Run(s *session.Session) error {
	body, err := s.Body(c.Body, c.BodyFile)
	if err != nil {
		return err
	}
	server, err := s.Connect()
	if err != nil {
		return err
	}
	defer server.Close()
	n := api.NewTask{Repo: &c.Repo, Title: c.Title, Body: &body, Priority: &c.Priority}
	if c.Base != "" {
		n.Base = &c.Base
	}
	n.MaxCostUsd = session.Given(c.MaxCost)
	if c.NoLand {
		land := false
		n.Land = &land
	}
	t, err := server.CreateTask(s.Context, n)
	if err != nil {
		return refused(err)
	}
	if s.JSON {
		return s.PrintJSON(t)
	}
	s.Print("%s added; watch it with `orch task show %s` or `orch queue --watch`", t.Key, t.Key)
	return nil
}

type taskListCommand struct {
	State []string `help:"Only tasks in these states: active, waiting, blocked, done, cancelled." enum:"active,waiting,blocked,done,cancelled"`
	Repo  string   `help:"Only tasks of this repository." placeholder:"NAME"`
	Limit int      `help:"How many at most." default:"50"`
}

// Run lists tasks.
func (c *taskListCommand) Run(s *session.Session) error {
	server, err := s.Connect()
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
	list, err := server.ListTasks(s.Context, params)
	if err != nil {
		return err
	}
	if s.JSON {
		return s.PrintJSON(list)
	}
	if len(list.Items) == 0 {
		s.Print("no tasks")
		return nil
	}
	return s.Table("KEY\tSTATE\tSTAGE\tAGE\tTITLE", len(list.Items), func(i int) string {
		t := list.Items[i]
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", t.Key, words.State(t), t.Stage, words.Age(t.CreatedAt), terminal.Fit(terminal.Printable(t.Title), 60))
	})
}

type taskShowCommand struct {
	Key string `arg:"" help:"Key of the task, e.g. app-12."`
}

// Run shows a task.
func (c *taskShowCommand) Run(s *session.Session) error {
	server, err := s.Connect()
	if err != nil {
		return err
	}
	defer server.Close()
	d, err := server.GetTask(s.Context, c.Key)
	if err != nil {
		return err
	}
	if s.JSON {
		return s.PrintJSON(d)
	}
	showTask(s, d)
	return nil
}

func showTask(s *session.Session, d api.TaskDetail) {
	t := d.Task
	s.Print("%s  %s", t.Key, terminal.Printable(t.Title))
	s.Print("  %s · stage %s · repository %s, %s → %s", words.State(t), t.Stage, t.Repo, t.Branch, t.Base)
	if t.Reason != nil {
		for i, line := range strings.Split(strings.TrimSpace(*t.Reason), "\n") {
			s.Print("  %s %s", []string{"why:", "    "}[min(i, 1)], terminal.Printable(line))
		}
	}
	if t.LandedCommit != nil {
		s.Print("  landed as %s", *t.LandedCommit)
	}
	if d.Budget.Used.Runs > 0 {
		s.Print("  used %s", words.Used(d.Budget))
	}
	if ref := words.SalvageRef(d.Events); ref != "" && t.State != api.TaskDone {
		s.Print("  work kept at %s; `orch task restore %s` puts it on a branch", ref, t.Key)
	}
	if j := d.Job; j != nil {
		s.Print("  job %d (%s) is %s%s", j.ID, j.Kind, j.State, words.Job(*j, d.Runs...))
		if waits := words.WaitsFor(j, d.Paused); waits != "" && j.State == api.JobQueued && !t.NeedsYou {
			s.Print("  %s", waits)
		}
	}
	for _, p := range d.Paused {
		s.Print("  %s", words.Paused(p))
	}
	for _, e := range d.Events {
		f := words.FactsOf(e)
		s.Print("  %s  %-14s %s", e.At.Local().Format("01-02 15:04:05"), e.Kind, strings.TrimSpace(words.Event(f)+" "+terminal.Printable(words.FirstLine(e.Reason))))
	}
}

type taskCancelCommand struct {
	Key string `arg:"" help:"Key of the task."`
}

// Run cancels a task and waits until nothing of it runs any more.
func (c *taskCancelCommand) Run(s *session.Session) error {
	server, err := s.Connect()
	if err != nil {
		return err
	}
	defer server.Close()
	t, err := server.CancelTask(s.Context, c.Key)
	if err != nil {
		return refused(err)
	}
	if s.JSON {
		return s.PrintJSON(t)
	}
	ctx, cancel := context.WithTimeout(s.Context, watch.RetireWait)
	defer cancel()
	d, err := watch.New(server, c.Key, watch.Silent{}).ToEnd(ctx)
	if err != nil {
		s.Print("%s is cancelled; its clean-up goes on", c.Key)
		return nil
	}
	s.Print("%s is cancelled%s", c.Key, keptWords(d))
	return nil
}

func keptWords(d api.TaskDetail) string {
	if ref := words.SalvageRef(d.Events); ref != "" {
		return "; its work is kept at " + ref
	}
	return ""
}

type taskRetryCommand struct {
	Key  string `arg:"" help:"Key of the task."`
	Note string `help:"What the agent is told: a hint, or the answer to its question."`
}

// Run lets a blocked task go on.
func (c *taskRetryCommand) Run(s *session.Session) error {
	server, err := s.Connect()
	if err != nil {
		return err
	}
	defer server.Close()
	t, err := server.RetryTask(s.Context, c.Key, c.Note)
	if err != nil {
		return refused(err)
	}
	if s.JSON {
		return s.PrintJSON(t)
	}
	s.Print("%s goes on with %s, try %d of %d", t.Key, t.Stage, t.Round, t.MaxRounds)
	return nil
}

type taskAnswerCommand struct {
	Key  string `arg:"" help:"Key of the task."`
	Text string `arg:"" optional:"" help:"The answer."`
	File string `help:"The answer from a file; - for standard input." placeholder:"FILE"`
}

// Run answers what the task's agent has asked.
func (c *taskAnswerCommand) Run(s *session.Session) error {
	if c.Text != "" && c.File != "" {
		return exit.Usagef("give the answer as it is or as a file, not both")
	}
	answer, err := s.Body(c.Text, c.File)
	if err != nil {
		return err
	}
	if strings.TrimSpace(answer) == "" {
		return exit.Usagef("say what the answer is: orch task answer %s \"…\", or --file FILE", c.Key)
	}
	server, err := s.Connect()
	if err != nil {
		return err
	}
	defer server.Close()
	t, err := server.AnswerTask(s.Context, c.Key, answer)
	if err != nil {
		return refused(err)
	}
	if s.JSON {
		return s.PrintJSON(t)
	}
	s.Print("%s goes on with the answer", t.Key)
	return nil
}
