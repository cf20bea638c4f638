package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"orch/api"
	"orch/internal/app"
	"orch/internal/cli/terminal"
	"orch/internal/cli/watch"
	"orch/internal/cli/words"
	"orch/internal/client"
	"orch/internal/root"
)

type runCommand struct {
	Repo     string        `required:"" help:"Path of the git repository, bare or normal." placeholder:"PATH"`
	Title    string        `required:"" help:"What is to be done, in one line."`
	Body     string        `help:"All that the agent should know." xor:"body"`
	BodyFile string        `help:"The same from a file; - for standard input." placeholder:"FILE" xor:"body"`
	Test     string        `help:"Command that must exit 0 before anything lands; run in a checkout of exactly the commit." placeholder:"CMD" xor:"test"`
	NoTest   bool          `help:"Land without a test." xor:"test"`
	AgentCmd string        `help:"The agent: any program that edits, commits and exits 0; run by sh -c, prompt on standard input." placeholder:"CMD" xor:"agent"`
	Agent    string        `help:"Name of an agent of orch.yaml." xor:"agent"`
	AgentEnv []string      `help:"Variables to pass on to the agent, e.g. HOME,ANTHROPIC_API_KEY; by default it gets PATH, the locale and a HOME of its own." placeholder:"NAME,..."`
	Setup    string        `help:"Command that prepares a checkout, e.g. installs dependencies." placeholder:"CMD"`
	Base     string        `help:"Branch to start from and to land on (default: the repository's own)." placeholder:"BRANCH"`
	MaxCost  float64       `help:"What all runs of the agent may cost together, in US dollars (default: budgets.task of orch.yaml)." placeholder:"USD"`
	Timeout  time.Duration `help:"How long one run of the agent may take." default:"1h"`
	NoLand   bool          `help:"Stop at a tested branch, for a person to land."`
}

// Run takes the task to its end.
func (c *runCommand) Run(s *session) error {
	n, err := c.task(s)
	if err != nil {
		return err
	}
	return s.withServer(func(ctx context.Context, server *client.Client) error { return s.runTask(ctx, server, n) })
}

// task checks what was said and puts it into the API's words.
func (c *runCommand) task(s *session) (api.NewTask, error) {
	switch {
	case c.Test == "" && !c.NoTest:
		return api.NewTask{}, usagef("say how a change is tested with --test 'CMD', or that it lands untested with --no-test")
	case c.AgentCmd == "" && c.Agent == "":
		return api.NewTask{}, usagef("say which agent works: --agent-cmd 'CMD', or --agent NAME of an agent in orch.yaml")
	case c.Timeout <= 0:
		return api.NewTask{}, usagef("--timeout must be more than nothing")
	}
	path, err := filepath.Abs(c.Repo)
	if err != nil {
		return api.NewTask{}, usagef("find the repository: %w", err)
	}
	for flag, command := range map[string]string{"--agent-cmd": c.AgentCmd, "--test": c.Test, "--setup": c.Setup} {
		if err := checkCommand(flag, command, path); err != nil {
			return api.NewTask{}, err
		}
	}
	body, err := readBody(s.In, c.Body, c.BodyFile)
	if err != nil {
		return api.NewTask{}, err
	}
	n := api.NewTask{Title: c.Title, Body: &body, Adhoc: &api.Adhoc{Path: path}}
	own := n.Adhoc
	own.TestCommand, own.AgentCommand, own.Agent, own.Setup = given(c.Test), given(c.AgentCmd), given(c.Agent), given(c.Setup)
	if c.NoTest {
		own.NoTest = &c.NoTest
	}
	if len(c.AgentEnv) > 0 {
		own.AgentEnv = &c.AgentEnv
	}
	timeout := c.Timeout.Seconds()
	own.TimeoutS = &timeout
	n.Base, n.MaxCostUsd = given(c.Base), givenCost(c.MaxCost)
	if c.NoLand {
		land := false
		n.Land = &land
	}
	return n, nil
}

func givenCost(usd float64) *float64 {
	if usd == 0 {
		return nil
	}
	return &usd
}

func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// runTask adds the task and shows its way to its end.
func (s *session) runTask(ctx context.Context, server *client.Client, n api.NewTask) error {
	t, err := server.CreateTask(ctx, n)
	if err != nil {
		return refused(err)
	}
	repo := n.Adhoc.Path
	d, err := s.watch(ctx, server, t.Key)
	if err != nil && ctx.Err() != nil {
		return s.abandon(server, t.Key, repo) //nolint:contextcheck // ctx is over, that is why
	}
	if err != nil {
		return err
	}
	return s.conclude(d, repo)
}

// refused takes the API's decoration off a refusal: on the command line its sentence is enough.
func refused(err error) error {
	var problem *client.ProblemError
	if errors.As(err, &problem) && problem.Status < 500 {
		return &exitError{exitFailed, errors.New(problem.Detail)}
	}
	return err
}

func (s *session) watch(ctx context.Context, server *client.Client, key string) (api.TaskDetail, error) {
	if s.global.JSON {
		lines := watch.NewJSONLines(s.Out)
		d, err := watch.New(server, key, lines).ToEnd(ctx)
		if err == nil {
			lines.Result(d)
		}
		return d, err
	}
	shown := watch.NewPlain(terminal.New(s.Out))
	defer shown.Close()
	return watch.New(server, key, shown).ToEnd(ctx)
}

// abandonWait bounds how long an interrupted `orch run` waits for its task to be gone.
const abandonWait = 60 * time.Second

// abandon cancels the task of an interrupted run and waits until nothing of it is left.
func (s *session) abandon(server *client.Client, key, repo string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), abandonWait)
	defer cancel()
	_, _ = fmt.Fprintf(s.Err, "orch: interrupted: cancelling %s\n", key)
	_, err := server.CancelTask(ctx, key)
	var problem *client.ProblemError
	tooLate := errors.As(err, &problem) && (problem.Code == "task_ended" || problem.Code == "landing_started")
	if err != nil && !tooLate {
		return fmt.Errorf("cancel %s: %w", key, err)
	}
	d, err := watch.New(server, key, watch.Silent{}).ToEnd(ctx)
	if err != nil {
		return fmt.Errorf("%s is cancelled, but its clean-up didn't end in %s: %w", key, abandonWait, err)
	}
	if d.Task.State == api.TaskDone {
		return s.conclude(d, repo)
	}
	return &exitError{exitFailed, fmt.Errorf("%s is cancelled%s", key, keptWords(d))}
}

// conclude says how the task ended, and makes the exit code of it.
func (s *session) conclude(d api.TaskDetail, repo string) error {
	t := d.Task
	switch {
	case t.State == api.TaskDone && t.LandedCommit != nil:
		s.say("landed %s on %s of %s", *t.LandedCommit, t.Base, t.Repo)
		return nil
	case t.State == api.TaskDone:
		s.say("%s is done", t.Key)
		return nil
	case t.State == api.TaskWaiting:
		s.say("ready: the branch %s waits for you to land it on %s", t.Branch, t.Base)
		return nil
	}
	reason := value(t.Reason)
	if reason == "" {
		reason = "it was cancelled"
	}
	return &exitError{exitFailed, fmt.Errorf("%s did not land: %s%s", t.Key, terminal.Printable(reason), keptLine(d, repo, s.served))}
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

// say writes a closing sentence for people; programs read the JSON.
func (s *session) say(format string, args ...any) {
	if !s.global.JSON {
		s.print(format, args...)
	}
}

// withServer runs fn with the server of this data root: the one that runs already, or one of this process's own that ends
// with it, agents included.
func (s *session) withServer(fn func(ctx context.Context, server *client.Client) error) error {
	server, err := client.Dial(s.ctx, s.clientConfig())
	if err == nil {
		defer server.Close()
		s.served = true
		return fn(s.ctx, server)
	}
	if !errors.Is(err, client.ErrNoServer) || s.cfg.HTTP.URL != "" {
		return err
	}
	if !s.cfg.Worker.Enabled {
		return &exitError{exitFailed, errors.New("ORCH_WORKER_ENABLED=false: no worker of this process would ever run the task")}
	}
	log, done, err := s.fileLogger()
	if err != nil {
		return err
	}
	defer done()
	serving, stop := context.WithCancelCause(context.WithoutCancel(s.ctx))
	defer stop(nil)
	waiting := terminal.New(s.Err)
	waiting.Progress("starting orch in " + s.cfg.Data.Root + " …")
	defer waiting.Close()
	up, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- app.Serve(serving, app.Options{
			Config: s.cfg, Logger: log, KillAgents: true, SocketOnly: true, HurryUp: s.hurry, FailUnready: true,
			Ready: func(app.Started) { close(up) },
		})
	}()
	select {
	case err := <-ended:
		return err
	case <-s.ctx.Done():
		stop(errInterrupted)
		if err := <-ended; err != nil {
			return err
		}
		return &exitError{exitFailed, errInterrupted}
	case <-up:
	}
	waiting.Close()
	err = s.asClient(fn, ended)
	stop(errCommandEnded)
	if stopped := <-ended; err == nil {
		err = stopped
	}
	return err
}

var (
	errCommandEnded = errors.New("the command has ended")
	errServerEnded  = errors.New("orch's own server ended by itself; see its log")
)

// asClient runs fn against the server of this process, and ends it when that server does.
func (s *session) asClient(fn func(ctx context.Context, server *client.Client) error, ended chan error) error {
	server, err := client.Dial(s.ctx, s.clientConfig())
	if err != nil {
		return err
	}
	defer server.Close()
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	defer close(watched)
	go func() {
		select {
		case err := <-ended:
			ended <- err
			cancel(errServerEnded)
		case <-watched:
		}
	}()
	return fn(ctx, server)
}

// maxLogFile is the size beyond which the log of commands is begun anew; the one before is kept.
const maxLogFile = 10 << 20

// fileLogger logs to <root>/orch.log: a command's own screen is for the task.
func (s *session) fileLogger() (log *slog.Logger, done func(), err error) {
	if err := root.Prepare(s.cfg.Data.Root); err != nil {
		return nil, nil, err
	}
	path := filepath.Join(s.cfg.Data.Root, "orch.log")
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogFile {
		_ = os.Rename(path, path+".1") // a log that can't be turned goes on growing
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open the log: %w", err)
	}
	return app.NewLogger(f, s.cfg.Log.SlogLevel(), "json"), func() { _ = f.Close() }, nil
}

// quietLogger shows warnings only: for commands whose result is what counts.
func (s *session) quietLogger() *slog.Logger {
	return app.NewLogger(s.Err, max(slog.LevelWarn, s.cfg.Log.SlogLevel()), s.cfg.Log.Format)
}

// checkCommand refuses a command whose program doesn't exist, before an agent costs money. Only a plain first word is
// looked at: what a shell makes of anything else can't be known here. A path is looked for in the repository.
func checkCommand(flag, command, repo string) error {
	word, _, _ := strings.Cut(strings.TrimSpace(command), " ")
	if word == "" || strings.ContainsAny(word, "\"'\\$`=;&|<>(){}[]*?!#~\n\t") {
		return nil
	}
	if shellBuiltin(word) {
		return nil
	}
	if !strings.Contains(word, "/") {
		if lookPath(word) {
			return nil
		}
		return usagef("%s: there is no program %q on PATH", flag, word)
	}
	if filepath.IsAbs(word) {
		if _, err := os.Stat(word); err != nil {
			return usagef("%s: there is no program %s", flag, word)
		}
		return nil
	}
	if flag == "--agent-cmd" || flag == "--test" || flag == "--setup" {
		return checkInRepo(flag, word, repo)
	}
	return nil
}

// checkInRepo looks for a relative program in a normal repository's files. In a bare one it is left to the run itself.
func checkInRepo(flag, word, repo string) error {
	if _, err := os.Stat(filepath.Join(repo, ".git")); err != nil {
		return nil //nolint:nilerr // bare, or not a repository at all, which is refused elsewhere
	}
	if _, err := os.Stat(filepath.Join(repo, word)); err != nil {
		return usagef("%s: there is no program %s in %s", flag, word, repo)
	}
	return nil
}

func lookPath(program string) bool {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		info, err := os.Stat(filepath.Join(dir, program)) //nolint:gosec // PATH is the operator's
		if err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}

func shellBuiltin(word string) bool {
	switch word {
	case ".", ":", "cd", "command", "eval", "exec", "exit", "export", "false", "if", "for", "case", "read", "set", "test", "trap",
		"true", "type", "ulimit", "umask", "unset", "until", "while", "echo", "printf":
		return true
	default:
		return false
	}
}
