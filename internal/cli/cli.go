package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"orch/internal/app"
	"orch/internal/app/database"
	"orch/internal/client"
	"orch/internal/config"
	"orch/internal/db"
	"orch/internal/process"
	"orch/internal/root"
)

// Exit codes.
const (
	exitDone     = 0
	exitFailed   = 1
	exitUsage    = 2
	exitNoServer = 4
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

	Serve   serveCommand   `cmd:"" help:"Run the server: worker, API and, without ORCH_DATABASE_URL, a private PostgreSQL."`
	Worker  workerCommand  `cmd:"" help:"Run one more worker on a data root that the server has made."`
	Run     runCommand     `cmd:"" help:"Take one task through agent, gate and merge, and wait for its end."`
	Demo    demoCommand    `cmd:"" help:"Watch a scripted agent's change land, on a repository made for it."`
	Init    initCommand    `cmd:"" help:"Add a repository to orch.yaml."`
	Task    taskCommand    `cmd:"" help:"Add, list, show, retry and cancel tasks."`
	Job     jobCommand     `cmd:"" help:"List, show, retry and cancel jobs, and read what they print."`
	Queue   queueCommand   `cmd:"" help:"Show what runs and what waits."`
	Why     whyCommand     `cmd:"" help:"Say why a task is where it is, and who has the next step."`
	Agent   agentCommand   `cmd:"" help:"List agents."`
	Pause   pauseCommand   `cmd:"" help:"Begin nothing more in a lane, for a repository or by an agent (its fallback takes over)."`
	Resume  resumeCommand  `cmd:"" help:"Let a paused lane, repository or agent go on."`
	Migrate migrateCommand `cmd:"" help:"Bring the database's schema up to date, or say how it is."`
	Data    rootCommand    `cmd:"" name:"root" help:"Show whether data root and database belong together, and mend that after a restore."`
	Doctor  doctorCommand  `cmd:"" help:"Check database, data root, repositories, agents and disk, and say what to do."`
	Version versionCommand `cmd:"" help:"Print the version."`
	Shim    shimCommand    `cmd:"" hidden:"" help:"Own one run (started by orch itself)."`
}

// session is what a command works with.
type session struct {
	Streams
	ctx    context.Context //nolint:containedctx // made for one command, passed to its Run by kong
	hurry  <-chan struct{} // closed by the second stop signal
	global *grammar
	cfg    *config.Config
	served bool // by a server that goes on when the command has ended
	// warnings name variables of the environment that look like orch's and aren't.
	warnings []string
}

// exitError ends a command with a code; its text, if any, is what the person reads.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef refuses what was said on the command line.
func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
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
		return report(streams.Err, &exitError{exitUsage, fmt.Errorf("%w (see `%s --help`)", err, commandOf(err))})
	}
	s := &session{Streams: streams, ctx: ctx, hurry: hurry, global: &g}
	if err := s.configure(parsed.Command()); err != nil {
		return report(streams.Err, err)
	}
	return report(streams.Err, parsed.Run(s))
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
func (s *session) configure(command string) error {
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
	var err error
	s.cfg, s.warnings, err = config.Load(overrides)
	if err == nil {
		err = errors.Join(s.cfg.Validate(), database.CheckURLs(s.cfg))
	}
	if command != "serve" && command != "worker" { // which log them
		for _, name := range s.warnings {
			_, _ = fmt.Fprintf(s.Err, "orch: %s in the environment is no variable of orch's: is it misspelt?\n", name)
		}
	}
	return err
}

// report prints why a command failed, in one place, and gives the exit code.
func report(out io.Writer, err error) int {
	if err == nil {
		return exitDone
	}
	code := exitFailed
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		code = exit.code
	case errors.Is(err, client.ErrNoServer):
		code = exitNoServer
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

// connect finds the server: by ORCH_URL, else on the data root's socket.
func (s *session) connect() (*client.Client, error) { return s.connectFor(func(*client.Config) {}) }

// connectFor is connect with more to be said to the client.
func (s *session) connectFor(adjust func(*client.Config)) (*client.Client, error) {
	cfg := s.clientConfig()
	adjust(&cfg)
	c, err := client.Dial(s.ctx, cfg)
	if errors.Is(err, client.ErrNoServer) {
		where := s.cfg.Data.Root
		if s.cfg.HTTP.URL != "" {
			where = s.cfg.HTTP.URL
		}
		return nil, &exitError{exitNoServer, fmt.Errorf("no server runs on %s: start one with `orch serve`, or name another with --root or ORCH_URL; "+
			"one that was started may still wait for its database, see its log", where)}
	}
	return c, err
}

func (s *session) clientConfig() client.Config {
	if s.cfg.HTTP.URL != "" {
		return client.Config{URL: s.cfg.HTTP.URL, Token: s.cfg.HTTP.Token.Reveal()}
	}
	return client.Config{Socket: root.SocketPath(s.cfg.Data.Root)}
}

// logger writes to the error stream, as ORCH_LOG_LEVEL and ORCH_LOG_FORMAT say.
func (s *session) logger() *slog.Logger {
	log := app.NewLogger(s.Err, s.cfg.Log.SlogLevel(), s.cfg.Log.Format)
	for _, warning := range s.warnings {
		log.Warn("unknown variable in the environment", slog.String("variable", warning))
	}
	return log
}

// serverLogger is the same for what runs agents for long, which says once what it can't keep from them.
func (s *session) serverLogger() *slog.Logger {
	log := s.logger()
	log.InfoContext(s.ctx, "agents run as the user that runs orch: what that user can read, they can read")
	return log
}

// print writes a line of the command's result.
func (s *session) print(format string, args ...any) {
	_, _ = fmt.Fprintf(s.Out, format+"\n", args...)
}

// printJSON writes a result for programs.
func (s *session) printJSON(v any) error {
	encoder := json.NewEncoder(s.Out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
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

func value[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}
