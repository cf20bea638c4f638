package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"orch/api"
)

// throughput lands the same changes one after the other and in groups, all green and with a red one in the middle.
func (t *try) throughput(ctx context.Context) error {
	fmt.Fprintf(t.out, "%d changes, a test takes %s\n%-10s %5s %8s %9s %12s %7s %9s %6s\n",
		t.changes, t.test, "", "red", "landed", "took", "landed/min", "tests", "CPU", "ratio")
	for _, reds := range []int{0, 1} {
		var serial float64
		for _, batch := range []int{1, t.batch} {
			r, err := t.land(ctx, batch, reds)
			if err != nil {
				return err
			}
			name := "serial"
			if batch > 1 {
				name = fmt.Sprintf("batch %d", batch)
			} else {
				serial = r.rate()
			}
			fmt.Fprintf(t.out, "%-10s %5d %8d %8.1fs %12.1f %7d %8.1fs %5.1fx\n",
				name, reds, r.landed, r.took.Seconds(), r.rate(), r.tests, r.cpu.Seconds(), r.rate()/serial)
		}
	}
	return nil
}

// result is what came of one round.
type result struct {
	landed, tests int
	took, cpu     time.Duration // CPU of orch, its git and the database; not of the tests
}

func (r result) rate() float64 { return float64(r.landed) / r.took.Minutes() }

func (t *try) land(ctx context.Context, batch, reds int) (r result, err error) {
	s, err := t.newStand(ctx, fmt.Sprintf("batch_%d_red_%d", batch, reds), batch,
		fmt.Sprintf("echo >> DIR/tests; sleep %g; test ! -e red\n", t.test.Seconds()))
	if err != nil {
		return r, err
	}
	defer func() { _ = s.conn.Close(context.WithoutCancel(ctx)) }()
	o, err := s.start(ctx, "serve", "--kill-agents")
	if err != nil {
		return r, err
	}
	defer o.end(unix.SIGTERM)
	c, err := s.client(ctx, o)
	if err != nil {
		return r, err
	}
	defer c.Close()
	lane, repo := "merge", "app"
	if _, err := c.Pause(ctx, api.PauseRequest{Lane: &lane, Reason: "until all stand in line"}); err != nil {
		return r, fmt.Errorf("pause: %w", err)
	}
	for i := range t.changes {
		body := "do something"
		if reds > 0 && i == t.changes/2 {
			body = "make it red"
		}
		if _, err := c.CreateTask(ctx, api.NewTask{Repo: &repo, Title: fmt.Sprintf("Change %d", i), Body: &body}); err != nil {
			return r, fmt.Errorf("make a task: %w", err)
		}
	}
	inLine := func() bool {
		return s.count(ctx, `select count(*) from jobs where kind = 'merge' and state = 'queued'`) == t.changes
	}
	if err := s.until(ctx, o, "all stand in line", inLine); err != nil {
		return r, err
	}
	before, err := s.cpu(o)
	if err != nil {
		return r, err
	}
	began := time.Now()
	if _, err := c.Resume(ctx, api.ResumeRequest{Lane: &lane}); err != nil {
		return r, fmt.Errorf("resume: %w", err)
	}
	landed := func() bool {
		return s.count(ctx, `select count(*) from tasks where landed_commit is not null`) == t.changes-reds &&
			s.count(ctx, `select count(*) from task_events where kind = 'returned'`) >= reds
	}
	if err := s.until(ctx, o, "all have landed", landed); err != nil {
		return r, err
	}
	r.took, r.landed = time.Since(began), t.changes-reds
	after, err := s.cpu(o)
	if err != nil {
		return r, err
	}
	r.cpu = after - before
	r.tests = s.count(ctx, `select count(*) from runs where purpose = 'gate'`)
	return r, nil
}

// cpu is what orch and the database used until now.
func (s *stand) cpu(o *orch) (time.Duration, error) {
	own, err := cpu(o.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	database, err := cpu(s.server.PID())
	return own + database, err
}
