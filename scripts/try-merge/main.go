// Command try-merge measures the merge gate of a real orch: how many changes it lands a minute, one after the other and in
// groups, and how soon a killed holder's merge lease is free again. It is run by hand, never in CI.
//
//	go run ./scripts/try-merge [-changes 16] [-test 2s] [-batch 8] [-kills 50] [-only throughput,reclaim]
//
// It needs git and PostgreSQL's server programs. Only ratios of one run mean something on a machine that others use.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"orch/internal/pgembed"
)

func main() {
	var t try
	flag.IntVar(&t.changes, "changes", 16, "how many changes are landed each time")
	flag.DurationVar(&t.test, "test", 2*time.Second, "how long a test takes")
	flag.IntVar(&t.batch, "batch", 8, "how many are landed together, at most")
	flag.IntVar(&t.kills, "kills", 50, "how often a holder is killed each time")
	keep := flag.Bool("keep", false, "keep the directory with everything in it")
	only := flag.String("only", "throughput,reclaim", "what to measure, separated by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := t.run(ctx, os.Stdout, strings.Split(*only, ","), *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "try-merge:", err)
		os.Exit(1)
	}
}

// try is one use of the program.
type try struct {
	changes, batch, kills int
	test                  time.Duration

	out    io.Writer
	dir    string
	server *pgembed.Server
}

func (t *try) run(ctx context.Context, out io.Writer, what []string, keep bool) (err error) {
	t.out = out
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
	// As root PostgreSQL runs as another user.
	if err := os.Chmod(t.dir, 0o755); err != nil { //nolint:gosec // it holds no secrets
		return fmt.Errorf("open the directory: %w", err)
	}
	if err := command(ctx, "", "go", "build", "-o", filepath.Join(t.dir, "orch"), "./cmd/orch"); err != nil {
		return err
	}
	// Not orch's own, which would die with the orch that is killed.
	if t.server, err = pgembed.Start(ctx, pgembed.Config{Dir: filepath.Join(t.dir, "pg")}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.server.Stop(context.WithoutCancel(ctx))) }()
	if slices.Contains(what, "throughput") {
		if err := t.throughput(ctx); err != nil {
			return err
		}
	}
	if slices.Contains(what, "reclaim") {
		return t.reclaim(ctx)
	}
	return nil
}

// command runs a program to its end.
func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
