package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"orch/internal/app"
	"orch/internal/app/database"
	"orch/internal/cli/exit"
	"orch/internal/cli/remote"
	"orch/internal/cli/session"
	"orch/internal/client"
	"orch/internal/config"
	"orch/internal/db"
	"orch/internal/process"
	"orch/internal/root"
)

// Streams are what a command reads, writes and is told.
type Streams struct {
	Out, Err io.Writer
	In       io.Reader
	Signals  <-chan os.Signal // stop signals; the first asks, the second insists
}

// grammar is the command line.
type grammar struct {
	Root    string `help:"Data root (default: ORCH_ROOT, else /var/lib/orch as root, else ~/.local/state/orch)." placeholder:"DIR"`
	JSON    bool   `name:"json" help:"Print JSON, for programs."`
	Testing bool   `help:"Use a data root and a database that are marked for tests (ORCH_TESTING)."`

	Serve   serveCommand         `cmd:"" help:"Run the server: worker, API and, without ORCH_DATABASE_URL, a private PostgreSQL."`
	Worker  workerCommand        `cmd:"" help:"Run one more worker on a data root that the server has made."`
	Run     runCommand           `cmd:"" help:"Take one task through agent, gate and merge, and wait for its end."`
	Demo    demoCommand          `cmd:"" help:"Watch a scripted agent's change land, on a repository made for it."`
	Init    initCommand          `cmd:"" help:"Add a repository to orch.yaml."`
	Task    remote.TaskCommand   `cmd:"" help:"Add, list, show, retry and cancel tasks."`
	Job     remote.JobCommand    `cmd:"" help:"List, show, retry and cancel jobs, and read what they print."`
	Queue   remote.QueueCommand  `cmd:"" help:"Show what runs and what waits."`
	Why     remote.WhyCommand    `cmd:"" help:"Say why a task is where it is, and who has the next step."`
	Agent   remote.AgentCommand  `cmd:"" help:"List agents."`
	Pause   remote.PauseCommand  `cmd:"" help:"Begin nothing more in a lane, for a repository or by an agent (its fallback takes over)."`
	Resume  remote.ResumeCommand `cmd:"" help:"Let a paused lane, repository or agent go on."`
	Migrate migrateCommand       `cmd:"" help:"Bring the database's schema up to date, or say how it is."`
	Data    rootCommand          `cmd:"" name:"root" help:"Show whether data root and database belong together, and mend that after a restore."`
	Doctor  doctorCommand        `cmd:"" help:"Check database, data root, repositories, agents and disk, and say what to do."`
	Version versionCommand       `cmd:"" help:"Print the version."`
	Shim    shimCommand          `cmd:"" hidden:"" help:"Own one run (started by orch itself)."`
}

// local is what the commands of this machine work with, besides the session that all of them have.
type local struct {
	*session.Session

	hurry  <-chan struct{} // closed by the second stop signal
	global *grammar
	cfg    *config.Config
	served bool // by a server that goes on when the command has ended
	// warnings are of variables of the environment that look like orch's and aren't.
	warnings []string
}

// Main runs one command and returns the exit code of the process.
func Main(args []string, streams Streams) int {
	if len(args) == 2 && args[0] == "shim" { // as small as it can be: one stays beside every agent
		return (&shimCommand{Dir: args[1]}).exec()
	}
	if err := process.Protect(); err != nil { // a token may be in the environment, and agents of this user are about
		return report(streams.Err, err)
	}
	ctx, hurry, done := watchSignals(streams.Signals)
	defer done()
	var g grammar
	exited := -1
	parser, err := kong.New(&g,
		kong.Name("orch"),
		kong.Description("Drives coding agents unattended: tasks in, tested changes on main out."),
		kong.Writers(streams.Out, streams.Err),
		kong.Exit(func(code int) { exited = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
	)
	if err != nil {
		return report(streams.Err, err)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if exited >= 0 {
		return exited
	}
	if err != nil {
		return report(streams.Err, exit.Usagef("%w (see `%s --help`)", err, commandOf(err)))
	}
	s := &local{
		Session: &session.Session{Context: ctx, Out: streams.Out, Err: streams.Err, In: streams.In, JSON: g.JSON}, hurry: hurry, global: &g,
	}
	if err := s.configure(parsed.Command()); err != nil {
		return report(streams.Err, err)
	}
	return report(streams.Err, parsed.Run(s, s.Session))
}

// commandOf names the command whose usage was wrong.
func commandOf(err error) string {
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context != nil {
		if command := parse.Context.Selected(); command != nil {
			return command.FullPath()
		}
	}
	return "orch"
}

// configure reads the environment, unless the command needs none of it.
func (s *local) configure(command string) error {
	if command == "version" {
		return nil
	}
	overrides := map[string]string{}
	if s.global.Root != "" {
		overrides["ORCH_ROOT"] = s.global.Root
	}
	if s.global.Testing {
		overrides["ORCH_TESTING"] = "true"
	}
	cfg, warnings, err := config.Load(overrides)
	s.warnings = warnings
	if err == nil {
		s.use(cfg)
		err = errors.Join(cfg.Validate(), database.CheckURLs(cfg))
	}
	if command != "serve" && command != "worker" { // which log them
		for _, warning := range s.warnings {
			_, _ = fmt.Fprintf(s.Err, "orch: %s\n", warning)
		}
	}
	return err
}

// report prints why a command failed, in one place, and gives the exit code.
func report(out io.Writer, err error) int {
	if err == nil {
		return exit.Done
	}
	code := exit.Failed
	var coded *exit.Error
	switch {
	case errors.As(err, &coded):
		code = coded.Code
	case errors.Is(err, client.ErrNoServer):
		code = exit.NoServer
	}
	if text := strings.TrimSpace(db.Public(err).Error()); text != "" {
		for i, line := range strings.Split(text, "\n") {
			if i == 0 {
				line = "orch: " + line
			}
			_, _ = fmt.Fprintln(out, line)
		}
	}
	return code
}

var errInterrupted = errors.New("interrupted")

// watchSignals gives a context that the first stop signal cancels, and a channel that the second one closes.
func watchSignals(signals <-chan os.Signal) (ctx context.Context, hurry <-chan struct{}, done func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	insist := make(chan struct{})
	end := make(chan struct{})
	go func() {
		select {
		case <-signals:
			cancel(errInterrupted)
		case <-end:
			return
		}
		select {
		case <-signals:
			close(insist)
		case <-end:
		}
	}()
	return ctx, insist, func() {
		close(end)
		cancel(nil)
	}
}

// use takes a configuration for the one of this command.
func (s *local) use(cfg *config.Config) {
	s.cfg, s.Root = cfg, cfg.Data.Root
	s.Server = client.Config{Socket: root.SocketPath(cfg.Data.Root)}
	if cfg.HTTP.URL != "" {
		s.Server = client.Config{URL: cfg.HTTP.URL, Token: cfg.HTTP.Token.Reveal()}
	}
}

// logger writes to the error stream, as ORCH_LOG_LEVEL and ORCH_LOG_FORMAT say.
func (s *local) logger() *slog.Logger {
	log := app.NewLogger(s.Err, s.cfg.Log.SlogLevel(), s.cfg.Log.Format)
	for _, warning := range s.warnings {
		log.Warn("unknown variable in the environment", slog.String("warning", warning))
	}
	return log
}

// serverLogger is the same for what runs agents for long, which says once what it can't keep from them.
func (s *local) serverLogger() *slog.Logger {
	log := s.logger()
	log.InfoContext(s.Context, "agents run as the user that runs orch: what that user can read, they can read")
	return log
}
