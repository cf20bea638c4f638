package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"orch/api"
)

const interval = 3 * time.Second // between two reclaims

// reclaim kills the holder of a merge lease again and again while its test goes on, and measures how long the lease stays with
// the dead: until another process that is there already frees it, and from the start of a process that is started then.
func (t *try) reclaim(ctx context.Context) error {
	fmt.Fprintf(t.out, "%d kills of the holder, reclaims every %s\n%-24s %8s %8s %8s\n", t.kills, interval, "", "median", "95 %", "longest")
	for _, way := range []struct {
		name   string
		second bool
	}{{"at a restart", false}, {"by another process", true}} {
		took, err := t.kill(ctx, way.second)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		slices.Sort(took)
		at := func(part float64) string {
			return took[int(part*float64(len(took)-1))].Round(time.Millisecond).String()
		}
		fmt.Fprintf(t.out, "%-24s %8s %8s %8s\n", way.name, at(0.5), at(0.95), at(1))
	}
	return nil
}

func (t *try) kill(ctx context.Context, second bool) ([]time.Duration, error) {
	s, err := t.newStand(ctx, fmt.Sprintf("kill_%t", second), 1, "while [ ! -e DIR/go ]; do sleep 0.1; done\n",
		fmt.Sprintf("ORCH_REAPER_INTERVAL_S=%g", interval.Seconds()), "ORCH_LEASE_TTL_S=3", "ORCH_HEARTBEAT_S=1", "ORCH_POLL_S=1")
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.conn.Close(context.WithoutCancel(ctx)) }()
	living, err := s.start(ctx, "serve")
	if err != nil {
		return nil, err
	}
	all := []*orch{living}
	defer func() {
		for _, o := range all {
			o.end(unix.SIGKILL)
		}
		last, err := s.start(context.WithoutCancel(ctx), "serve", "--kill-agents") // for the test that is left
		if err == nil {
			_, _ = s.client(context.WithoutCancel(ctx), last)
			last.end(unix.SIGTERM)
		}
	}()
	c, err := s.client(ctx, living)
	if err != nil {
		return nil, err
	}
	repo := "app"
	if _, err := c.CreateTask(ctx, api.NewTask{Repo: &repo, Title: "Change"}); err != nil {
		return nil, fmt.Errorf("make a task: %w", err)
	}
	c.Close()
	var took []time.Duration
	for len(took) < t.kills {
		var holder *orch
		held := func() bool {
			pid := s.count(ctx, `select l.pid from merge_leases l join merge_attempts a on a.task_id = l.task_id and a.finished_at is null
				join runs r on r.task_id = l.task_id and r.purpose = 'gate' and r.state = 'running' where step = 'testing'`)
			holder = nil
			for _, o := range all {
				if o.cmd.Process.Pid == pid {
					holder = o
				}
			}
			return holder != nil
		}
		if second && len(all) == 1 {
			o, err := s.start(ctx, "worker")
			if err != nil {
				return nil, err
			}
			all = append(all, o)
			up := func() bool {
				return s.count(ctx, `select count(*) from workers where pid = $1`, o.cmd.Process.Pid) == 1
			}
			if err := s.until(ctx, o, "the second is up", up); err != nil {
				return nil, err
			}
		}
		if err := s.until(ctx, all[len(all)-1], "the lease is held", held); err != nil {
			return nil, err
		}
		epoch := s.count(ctx, `select epoch from merge_leases`)
		began := time.Now()
		holder.end(unix.SIGKILL)
		all = slices.DeleteFunc(all, func(o *orch) bool { return o == holder })
		if !second {
			began = time.Now()
			o, err := s.start(ctx, "serve")
			if err != nil {
				return nil, err
			}
			all = append(all, o)
		}
		free := func() bool {
			return s.count(ctx, `select count(*) from merge_leases where epoch = $1 and pid = $2`, epoch, holder.cmd.Process.Pid) == 0
		}
		if err := s.until(ctx, all[0], "the lease is free", free); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
