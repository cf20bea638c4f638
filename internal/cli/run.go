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
	"orch/internal/cli/exit"
	"orch/internal/cli/remote"
	"orch/internal/cli/session"
	"orch/internal/cli/terminal"
	"orch/internal/client"
	"orch/internal/root/layout"
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
func (c *runCommand) Run(s *local) error {
	n, err := c.task(s)
	if err != nil {
		return err
	}
	return s.withServer(func(ctx context.Context, server *client.Client) error {
		return remote.RunTask(ctx, s.Session, server, s.served, n)
	})
}

// task checks what was said and puts it into the API's words.
func (c *runCommand) task(s *local) (api.NewTask, error) {
	switch {
	case c.Test == "" && !c.NoTest:
		return api.NewTask{}, exit.Usagef("say how a change is tested with --test 'CMD', or that it lands untested with --no-test")
	case c.AgentCmd == "" && c.Agent == "":
		return api.NewTask{}, exit.Usagef("say which agent works: --agent-cmd 'CMD', or --agent NAME of an agent in orch.yaml")
	case c.Timeout <= 0:
		return api.NewTask{}, exit.Usagef("--timeout must be more than nothing")
	}
	path, err := filepath.Abs(c.Repo)
	if err != nil {
		return api.NewTask{}, exit.Usagef("find the repository: %w", err)
	}
	for flag, command := range map[string]string{"--agent-cmd": c.AgentCmd, "--test": c.Test, "--setup": c.Setup} {
		if err := checkCommand(flag, command, path); err != nil {
			return api.NewTask{}, err
		}
	}
	body, err := s.Body(c.Body, c.BodyFile)
	if err != nil {
		return api.NewTask{}, err
	}
	n := api.NewTask{Title: c.Title, Body: &body, Adhoc: &api.Adhoc{Path: path}}
	own := n.Adhoc
	own.TestCommand, own.AgentCommand, own.Agent, own.Setup = session.Given(c.Test), session.Given(c.AgentCmd), session.Given(c.Agent), session.Given(c.Setup)
	if c.NoTest {
		own.NoTest = &c.NoTest
	}
	if len(c.AgentEnv) > 0 {
		own.AgentEnv = &c.AgentEnv
	}
	timeout := c.Timeout.Seconds()
	own.TimeoutS = &timeout
	n.Base, n.MaxCostUsd = session.Given(c.Base), session.Given(c.MaxCost)
	if c.NoLand {
		land := false
		n.Land = &land
	}
	return n, nil
}

// withServer runs fn with the server of this data root: the one that runs already, or one of this process's own that ends
// with it, agents included.
func (s *local) withServer(fn func(ctx context.Context, server *client.Client) error) error {
	server, err := client.Dial(s.Context, s.Server)
	if err == nil {
		defer server.Close()
		s.served = true
		return fn(s.Context, server)
	}
	if !errors.Is(err, client.ErrNoServer) || s.cfg.HTTP.URL != "" {
		return err
	}
	if !s.cfg.Worker.Enabled {
		return exit.With(exit.Failed, errors.New("ORCH_WORKER_ENABLED=false: no worker of this process would ever run the task"))
	}
	log, done, err := s.fileLogger()
	if err != nil {
		return err
	}
	defer done()
	serving, stop := context.WithCancelCause(context.WithoutCancel(s.Context))
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
	case <-s.Context.Done():
		stop(errInterrupted)
		if err := <-ended; err != nil {
			return err
		}
		return exit.With(exit.Failed, errInterrupted)
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
func (s *local) asClient(fn func(ctx context.Context, server *client.Client) error, ended chan error) error {
	server, err := client.Dial(s.Context, s.Server)
	if err != nil {
		return err
	}
	defer server.Close()
	ctx, cancel := context.WithCancelCause(s.Context)
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
func (s *local) fileLogger() (log *slog.Logger, done func(), err error) {
	if err := layout.Prepare(s.cfg.Data.Root); err != nil {
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
func (s *local) quietLogger() *slog.Logger {
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
		return exit.Usagef("%s: there is no program %q on PATH", flag, word)
	}
	if filepath.IsAbs(word) {
		if _, err := os.Stat(word); err != nil {
			return exit.Usagef("%s: there is no program %s", flag, word)
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
		return exit.Usagef("%s: there is no program %s in %s", flag, word, repo)
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
