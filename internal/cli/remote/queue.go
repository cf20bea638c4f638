package remote

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"orch/api"
	"orch/internal/cli/session"
	"orch/internal/cli/terminal"
	"orch/internal/cli/words"
	"orch/internal/client"
)

// queueRefresh is how often `orch queue --watch` looks.
const queueRefresh = time.Second

// QueueCommand is `orch queue`.
type QueueCommand struct {
	Watch bool `short:"w" help:"Stay and show it again every second."`
}

// Run shows the queue.
func (c *QueueCommand) Run(s *session.Session) error {
	server, err := s.Connect()
	if err != nil {
		return err
	}
	defer server.Close()
	if !c.Watch {
		return queueOnce(s, server)
	}
	return queueWatch(s, server)
}

func queueOnce(s *session.Session, server *client.Client) error {
	q, err := server.Queue(s.Context)
	if err != nil {
		return err
	}
	if s.JSON {
		return s.PrintJSON(q)
	}
	_, err = io.WriteString(s.Out, queueText(q))
	return err
}

// queueWatch shows it until a stop signal. A server that restarts is waited for.
func queueWatch(s *session.Session, server *client.Client) error {
	ticker := time.NewTicker(queueRefresh)
	defer ticker.Stop()
	wipe := ""
	if terminal.New(s.Out).Interactive() {
		wipe = "\x1b[H\x1b[2J"
	}
	for {
		ctx, cancel := context.WithTimeout(s.Context, 10*time.Second)
		q, err := server.Queue(ctx)
		cancel()
		text := queueText(q)
		if err != nil {
			text = "orch: " + err.Error() + "; trying again\n"
		}
		if s.Context.Err() != nil {
			return nil
		}
		if s.JSON && err == nil {
			err = s.PrintJSON(q)
		} else {
			_, err = io.WriteString(s.Out, wipe+text)
		}
		if err != nil {
			return err
		}
		select {
		case <-s.Context.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// queueText is the snapshot for a person.
func queueText(q api.Queue) string {
	var b strings.Builder
	c := q.Counts
	fmt.Fprintf(&b, "%d running, %d queued · tasks: %d active, %d waiting, %d need you, %d landed · worker %s%s\n",
		c.Running, c.Queued, q.Tasks.Active, q.Tasks.Waiting, q.Tasks.NeedsYou, q.Tasks.LandedTotal, q.Worker.Status, lanesText(q.Worker.Lanes))
	if q.Snapshot.Status != "ok" {
		fmt.Fprintf(&b, "the database doesn't answer (%s): this is how it was %s ago\n", value(q.Snapshot.ErrorCode), words.Age(q.GeneratedAt))
	}
	if q.Config.Status == "error" {
		b.WriteString("orch.yaml can't be used, the last good one is in force: see the log, or `orch doctor`\n")
	}
	b.WriteString(daemonsText(q))
	for _, p := range q.Paused {
		b.WriteString(words.Paused(p) + "\n")
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if len(q.Running) > 0 {
		_, _ = fmt.Fprintln(w, "\nJOB\tTASK\tSTAGE\tAGENT\tATTEMPT\tPHASE\tRUNS FOR\tPID\tHEARTBEAT")
		for _, r := range q.Running {
			_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d/%d\t%s\t%s\t%s\t%s\n", r.JobID, orDash(value(r.Task)), orDash(value(r.Stage)),
				orDash(value(r.Agent)), r.Attempt, r.MaxAttempts, orDash(value(r.Phase)), words.Age(value(r.StartedAt)), number(r.Pid), seconds(r.HeartbeatAgeS))
		}
	}
	if len(q.MergeQueue) > 0 {
		_, _ = fmt.Fprintln(w, "\nLANDING ON\tTASK\tPLACE\tSTEP\tBASE\tHEAD\tLAND\tGROUP\tTRIES\tLAST ERROR\tNEXT LOOK")
		for _, m := range q.MergeQueue {
			_, _ = fmt.Fprintf(w, "%s %s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", m.Repo, m.Target, m.Task, m.Position, m.Step,
				brief(m.Base), brief(m.Head), brief(m.Land), orDash(value(m.Group)), m.Attempt, lastError(m), until(m.NextLookAt, q.GeneratedAt))
		}
	}
	if len(q.Leases) > 0 {
		_, _ = fmt.Fprintln(w, "\nLEASE\tTASK\tHELD BY\tHOLDER\tEPOCH\tSTEP\tHELD FOR\tEXPIRES")
		for _, l := range q.Leases {
			_, _ = fmt.Fprintf(w, "%s %s\t%s\t%s:%s\t%s\t%d\t%s\t%s\t%s\n", l.Repo, l.Target, orDash(value(l.Task)), orDash(value(l.Host)),
				number(l.Pid), l.Holder, l.Epoch, orDash(value(l.Step)), words.Elapsed(time.Duration(l.AgeS*float64(time.Second))), until(&l.ExpiresAt, q.GeneratedAt))
		}
	}
	_ = w.Flush()
	return b.String()
}

// massDeath is what the reaper meets when too many runs seem dead.
const massDeath = "mass_death"

// daemonsText says which daemon isn't well, or is switched off, and whether alerts get through. Nothing to say is no line.
func daemonsText(q api.Queue) string {
	var b strings.Builder
	for _, d := range []struct {
		name, status string
		enabled      bool
		failed       *string
	}{
		{"reaper", q.Reaper.Status, q.Reaper.Enabled, q.Reaper.LastError},
		{"reconciler", q.Reconcile.Status, q.Reconcile.Enabled, q.Reconcile.LastError},
	} {
		switch {
		case !d.enabled:
			fmt.Fprintf(&b, "the %s is switched off\n", d.name)
		case d.status != "ok": // an error that it came back from is no reason
			fmt.Fprintf(&b, "the %s is not well (%s): see the log and `orch doctor`\n", d.name, d.status)
		case value(d.failed) == massDeath:
			b.WriteString("more runs seem dead at once than is believed, none is ended or reaped on it: is the disk of the data root there?\n")
		}
	}
	if a := q.Alerts; a.Status == "failing" {
		fmt.Fprintf(&b, "alerts don't get through (%s, %s), %d wait: see the log\n", a.Channel, orDash(value(a.LastError)), a.Pending)
	}
	return b.String()
}

func lastError(m api.QueueMerge) string {
	if m.NeedsYou {
		return "needs you: " + value(m.LastError)
	}
	return orDash(value(m.LastError))
}

func lanesText(lanes map[string]api.QueueLane) string {
	names := make([]string, 0, len(lanes))
	for name := range lanes {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, " · %s %d/%d", name, lanes[name].Busy, lanes[name].Slots)
	}
	return b.String()
}

// brief is the beginning of a commit's name.
func brief(commit *string) string {
	const digits = 8
	name := orDash(value(commit))
	return name[:min(len(name), digits)]
}

// until says how long a moment was away when the snapshot was made.
func until(moment *time.Time, then time.Time) string {
	switch {
	case moment == nil:
		return "-"
	case !moment.After(then):
		return "now"
	}
	return "in " + moment.Sub(then).Round(time.Second).String()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func number(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

func seconds(s *float64) string {
	if s == nil {
		return "-"
	}
	return fmt.Sprintf("%.1fs", *s)
}
