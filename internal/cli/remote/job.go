package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/cli/session"
	"orch/internal/cli/terminal"
	"orch/internal/cli/watch"
	"orch/internal/cli/words"
	"orch/internal/client"
)

// JobCommand is `orch job`.
type JobCommand struct {
	List   jobListCommand   `cmd:"" help:"List jobs, newest first."`
	Show   jobShowCommand   `cmd:"" help:"Show a job."`
	Log    jobLogCommand    `cmd:"" help:"Print what the job's run wrote."`
	Retry  jobRetryCommand  `cmd:"" help:"Give a job that failed or was cancelled another attempt (for a task: task retry)."`
	Cancel jobCancelCommand `cmd:"" help:"Cancel a job that belongs to no task."`
}

type jobListCommand struct {
	State string `help:"Only jobs in this state." enum:",queued,running,succeeded,failed,cancelled" default:""`
	Task  string `help:"Only jobs of this task." placeholder:"KEY"`
	Limit int    `help:"How many at most." default:"50"`
}

// Run lists jobs.
func (c *jobListCommand) Run(s *session.Session) error {
	server, err := s.Connect()
	if err != nil {
		return err
	}
	defer server.Close()
	params := api.ListJobsParams{Limit: &c.Limit}
	if c.State != "" {
		state := api.JobState(c.State)
		params.State = &state
	}
	if c.Task != "" {
		params.Task = &c.Task
	}
	list, err := server.ListJobs(s.Context, params)
	if err != nil {
		return err
	}
	if s.JSON {
		return s.PrintJSON(list)
	}
	if len(list.Items) == 0 {
		s.Print("no jobs")
		return nil
	}
	return s.Table("JOB\tKIND\tTASK\tSTATE\tATTEMPT\tAGE\tERROR", len(list.Items), func(i int) string {
		j := list.Items[i]
		return fmt.Sprintf("%d\t%s\t%s\t%s\t%d/%d\t%s\t%s", j.ID, j.Kind, value(j.Task), j.State, j.Attempt, j.MaxAttempts,
			words.Age(j.CreatedAt), value(j.ErrorCode))
	})
}

type jobShowCommand struct {
	ID int64 `arg:"" help:"Number of the job."`
}

// Run shows a job.
func (c *jobShowCommand) Run(s *session.Session) error {
	server, err := s.Connect()
	if err != nil {
		return err
	}
	defer server.Close()
	j, err := server.GetJob(s.Context, c.ID)
	if err != nil {
		return err
	}
	if s.JSON {
		return s.PrintJSON(j)
	}
	s.Print("job %d  %s in lane %s", j.ID, j.Kind, j.Lane)
	s.Print("  %s%s", j.State, words.Job(j))
	if j.Task != nil {
		s.Print("  task %s", *j.Task)
	}
	if err := showRuns(s, server, j); err != nil {
		return err
	}
	if j.Host != nil && j.State == api.JobRunning {
		s.Print("  on %s, last heartbeat %s ago, lease until %s", *j.Host, words.Age(value(j.HeartbeatAt)), value(j.LeaseExpiresAt).Local().Format("15:04:05"))
	}
	if j.Error != nil {
		s.Print("  %s: %s", value(j.ErrorCode), terminal.Printable(words.FirstLine(*j.Error)))
	}
	return nil
}

// showRuns prints the runs of a job, the oldest first, and of the newest one all there is.
func showRuns(s *session.Session, server *client.Client, j api.Job) error {
	runs, err := runsOf(s, server, j)
	if err != nil {
		return err
	}
	if len(runs) > 0 {
		if runs[0], err = server.GetRun(s.Context, runs[0].ID); err != nil {
			return err
		}
	}
	for _, run := range slices.Backward(runs) {
		for _, line := range words.Run(run) {
			s.Print("  %s", line)
		}
	}
	return nil
}

// runsOf are the runs of a job, the newest first.
func runsOf(s *session.Session, server *client.Client, j api.Job) ([]api.Run, error) {
	if j.Task == nil {
		return nil, nil
	}
	most := 200 // of one job there are a few
	list, err := server.ListTaskRuns(s.Context, *j.Task, api.ListTaskRunsParams{Job: &j.ID, Limit: &most})
	return list.Items, err
}

type jobLogCommand struct {
	ID     int64 `arg:"" help:"Number of the job."`
	Follow bool  `short:"f" help:"Stay until the run has ended, also over a restart of the server. With --json, one object a line."`

	next int64 // offset after what was printed
}

// errNoRun says that a job has no output to print.
var errNoRun = errors.New("the job has no run (yet): it was never given to an agent, or it needs none")

// maxOutage is how long a log that is followed waits for its server: as long as a person may take to bring it back.
const maxOutage = 15 * time.Minute

// Run prints the log of the job's newest run.
func (c *jobLogCommand) Run(s *session.Session) error {
	server, err := s.ConnectFor(func(cfg *client.Config) {
		cfg.MaxOutage = maxOutage
		cfg.OnOutage = func(err error) {
			_, _ = fmt.Fprintf(s.Err, "orch: %s; waiting %s for it, the log goes on then\n", terminal.Printable(err.Error()), maxOutage)
		}
	})
	if err != nil {
		return err
	}
	defer server.Close()
	id, err := c.run(s, server)
	if err != nil {
		return err
	}
	switch {
	case s.JSON && c.Follow:
		return c.followJSON(s, server, id)
	case s.JSON:
		return c.printJSON(s, server, id)
	case c.Follow:
		return c.follow(s, server, id)
	}
	return c.print(s, server, id)
}

func (c *jobLogCommand) follow(s *session.Session, server *client.Client, id uuid.UUID) error {
	out := terminal.Safe(s.Out)
	end, err := server.FollowLog(s.Context, id, 0, func(chunk client.Chunk) error {
		dropped(s, chunk.Offset, &c.next)
		c.next = chunk.End
		_, err := io.WriteString(out, chunk.Text)
		return err
	})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(s.Err, "orch: the run ended: %s\n", words.Ended(end))
	return nil
}

func (c *jobLogCommand) print(s *session.Session, server *client.Client, id uuid.UUID) error {
	out := terminal.Safe(s.Out)
	return readLog(s.Context, server, id, func(part client.Log) error {
		dropped(s, part.Offset, &c.next)
		c.next = part.Next
		_, err := out.Write(part.Text)
		return err
	})
}

// readLog gives a log, as long as it is by now, to take.
func readLog(ctx context.Context, server *client.Client, id uuid.UUID, take func(client.Log) error) error {
	for offset := int64(0); ; {
		part, err := server.ReadLog(ctx, id, offset, 0)
		if err != nil {
			return err
		}
		if err := take(part); err != nil {
			return err
		}
		if part.Next >= part.End || len(part.Text) == 0 {
			return nil
		}
		offset = part.Next
	}
}

// dropped tells that bytes are missing: a log that grew beyond its cap has lost its oldest ones.
func dropped(s *session.Session, offset int64, next *int64) {
	if offset > *next {
		_, _ = fmt.Fprintf(s.Err, "orch: %d bytes were dropped here, the log had grown beyond its cap\n", offset-*next)
		*next = offset
	}
}

// run finds the run: the job's own, else the newest one that the job started for its task.
func (c *jobLogCommand) run(s *session.Session, server *client.Client) (uuid.UUID, error) {
	j, err := server.GetJob(s.Context, c.ID)
	if err != nil {
		return uuid.Nil, err
	}
	if j.RunID != nil {
		return *j.RunID, nil
	}
	runs, err := runsOf(s, server, j)
	if err != nil {
		return uuid.Nil, err
	}
	if len(runs) == 0 {
		return uuid.Nil, errNoRun
	}
	for _, run := range runs { // the agent's own run tells more than a gate's
		if run.Purpose == watch.PurposeAgent {
			return run.ID, nil
		}
	}
	return runs[0].ID, nil
}

type jobRetryCommand struct {
	ID int64 `arg:"" help:"Number of the job."`
}

// Run queues a job once more.
func (c *jobRetryCommand) Run(s *session.Session) error {
	server, err := s.Connect()
	if err != nil {
		return err
	}
	defer server.Close()
	j, err := server.RetryJob(s.Context, c.ID)
	if err != nil {
		return refused(err)
	}
	if s.JSON {
		return s.PrintJSON(j)
	}
	s.Print("job %d is %s%s", j.ID, j.State, words.Job(j))
	return nil
}

type jobCancelCommand struct {
	ID int64 `arg:"" help:"Number of the job."`
}

// Run cancels a job.
func (c *jobCancelCommand) Run(s *session.Session) error {
	server, err := s.Connect()
	if err != nil {
		return err
	}
	defer server.Close()
	j, err := server.CancelJob(s.Context, c.ID)
	if err != nil {
		return err
	}
	if s.JSON {
		return s.PrintJSON(j)
	}
	if j.State == api.JobRunning {
		s.Print("job %d was asked to stop", j.ID)
	} else {
		s.Print("job %d is %s", j.ID, j.State)
	}
	return nil
}
