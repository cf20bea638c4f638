// Command try-agent tries real agent programs: it installs them from the npm registry into a directory of its own, has orch
// start each by its preset against a stub model server on loopback, and prints what came of it. It is run by hand, never
// in CI; docs/agents.md keeps what it found.
//
//	go run ./scripts/try-agent [-keep] [-only edit,401] [codex@0.171.0 opencode ...]
//
// It needs npm, Node.js, git and PostgreSQL's server programs. Nothing but the registry is asked of the network, and
// nothing of the user's own configuration is read: each agent has a HOME of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"orch/internal/client"
	"orch/internal/testagent/stub"
)

func main() {
	keep := flag.Bool("keep", false, "keep the directory with everything in it")
	only := flag.String("only", "", "scenarios to try, separated by commas (default: all)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, flag.Args(), *only, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "try-agent:", err)
		os.Exit(1)
	}
}

// try is one use of the program.
type try struct {
	out    io.Writer
	dir    string
	agents []agent
	trials []trial
	client *client.Client
}

func run(ctx context.Context, out io.Writer, words []string, only string, keep bool) (err error) {
	if len(words) == 0 {
		words = []string{"codex", "opencode"}
	}
	t := try{out: out}
	for _, word := range words {
		a, err := agentCalled(word)
		if err != nil {
			return err
		}
		t.agents = append(t.agents, a)
	}
	if t.dir, err = os.MkdirTemp("", "try-"); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() {
		if keep {
			fmt.Fprintln(out, "Everything is in", t.dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(t.dir))
	}()
	if err := t.prepare(ctx, only); err != nil {
		return err
	}
	stop, err := t.serve(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for _, trial := range t.trials {
		row, err := t.attempt(ctx, trial)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", trial.agent.preset, trial.scenario.name, err)
		}
		fmt.Fprintln(out, row)
	}
	return nil
}

// prepare installs the agents, builds orch, starts the model server and writes orch.yaml.
func (t *try) prepare(ctx context.Context, only string) error {
	// As root the private PostgreSQL runs as another user.
	if err := os.Chmod(t.dir, 0o755); err != nil { //nolint:gosec // it holds no secrets
		return fmt.Errorf("open the directory: %w", err)
	}
	if err := t.command(ctx, "go", "build", "-o", filepath.Join(t.dir, "orch"), "./cmd/orch").Run(); err != nil {
		return fmt.Errorf("build orch: %w", err)
	}
	settings := []byte(`{"security":{"auth":{"selectedType":"gemini-api-key"}}}`)
	if err := os.WriteFile(filepath.Join(t.dir, geminiSettings), settings, 0o600); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	mux, url, err := listen(ctx)
	if err != nil {
		return err
	}
	var entries strings.Builder
	for i := range t.agents {
		a := &t.agents[i]
		if err := t.install(ctx, a); err != nil {
			return err
		}
		for _, s := range scenarios(a.preset) {
			if only != "" && !slices.Contains(strings.Split(only, ","), s.name) {
				continue
			}
			name := a.preset + "-" + s.name
			server := stub.New(s.script)
			mux.Handle("/"+name+"/", server)
			entries.WriteString(a.entry(name, url+"/"+name, t.dir, s))
			t.trials = append(t.trials, trial{name: name, agent: *a, scenario: s, server: server})
		}
	}
	return os.WriteFile(filepath.Join(t.dir, "orch.yaml"), []byte("agents:\n"+entries.String()), 0o600)
}

func (t *try) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	for _, entry := range os.Environ() { // whoever runs this may have an orch of their own
		if !strings.HasPrefix(entry, "ORCH_") || strings.HasPrefix(entry, "ORCH_POSTGRES_BIN=") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, "ORCH_CONFIG="+filepath.Join(t.dir, "orch.yaml"), "ORCH_ROOT="+filepath.Join(t.dir, "root"),
		"ORCH_HTTP_ADDR=127.0.0.1:0", "ORCH_MAX_CONCURRENCY=1")
	return cmd
}

func listen(ctx context.Context) (*http.ServeMux, string, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", fmt.Errorf("listen: %w", err)
	}
	mux := http.NewServeMux()
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // until the process ends
	return mux, "http://" + listener.Addr().String(), nil
}

// install gets the agent from the registry.
func (t *try) install(ctx context.Context, a *agent) error {
	prefix := filepath.Join(t.dir, "npm", a.preset)
	if err := os.MkdirAll(prefix, 0o755); err != nil { //nolint:gosec // programs that agents run
		return fmt.Errorf("install %s: %w", a.preset, err)
	}
	npm := t.command(ctx, "npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", prefix, a.pack+"@"+a.version)
	if err := npm.Run(); err != nil {
		return fmt.Errorf("install %s: %w", a.preset, err)
	}
	a.program = filepath.Join(prefix, "node_modules", ".bin", a.preset)
	home := filepath.Join(t.dir, "home")
	version := t.command(ctx, a.program, "--version")
	version.Env, version.Stderr = append(version.Env, "HOME="+home), nil
	said, err := version.Output()
	if err != nil {
		return fmt.Errorf("ask %s for its version: %w", a.preset, err)
	}
	fmt.Fprintf(t.out, "%s: %s\n", a.preset, strings.TrimSpace(string(said)))
	return nil
}

// serve starts orch and waits until it answers.
func (t *try) serve(ctx context.Context) (stop func(), err error) {
	log, err := os.Create(filepath.Join(t.dir, "serve.log"))
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	// It isn't bound to ctx: it is to end everything in its own way.
	server := t.command(context.WithoutCancel(ctx), filepath.Join(t.dir, "orch"), "serve", "--kill-agents")
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		return nil, fmt.Errorf("start orch: %w", err)
	}
	over := make(chan struct{})
	go func() {
		_ = server.Wait()
		close(over)
	}()
	stop = func() {
		_ = server.Process.Signal(os.Interrupt)
		<-over
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	socket := filepath.Join(t.dir, "root", "orch.sock")
	for {
		if t.client, err = client.Dial(ctx, client.Config{Socket: socket}); err == nil {
			if ready, err := t.client.Readiness(ctx); err == nil && ready.Status == "ready" {
				return stop, nil
			}
		}
		select {
		case <-over:
			return nil, fmt.Errorf("orch ended: see %s", log.Name())
		case <-ctx.Done():
			stop()
			return nil, fmt.Errorf("orch isn't ready: see %s", log.Name())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
