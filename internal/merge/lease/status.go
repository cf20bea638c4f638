package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Lease is a held merge lease, as /queue shows it and as a reclaim reports it.
type Lease struct {
	Repo       string
	Target     string
	Epoch      int64
	TaskID     int64
	Task       string // the task's key
	Branch     string
	JobID      int64
	JobEpoch   int
	RunID      *uuid.UUID // the run that its job follows
	Holder     Holder
	AcquiredAt time.Time
	RenewedAt  time.Time
	ExpiresAt  time.Time
	Age        time.Duration // since it was acquired, by the database's clock
	Step       string        // of the holder's attempt
}

// Waiting is an attempt in the line of a target, the holder's included.
type Waiting struct {
	Repo       string
	Target     string
	TaskID     int64
	Task       string
	JobID      int64
	Position   int    // 1 is the holder, or the next to try when no one holds the lease
	Step       string // of the attempt
	Tries      int
	LastError  *string // a code
	NextLookAt *time.Time
	Branch     string
	Method     string
	Base       *string // the target's commit that it was prepared on
	Head       *string // what its gates passed
	Land       *string // what is tested, and lands
	Group      *string // key of the task that leads its group; nil: it is alone
	RestsFor   *string // what its job was put off for; nil: it runs, or wasn't
}

// Leases returns the merge leases that are held, by repository and target.
func (s *Store) Leases(ctx context.Context) ([]Lease, error) {
	states, err := s.leaseStates(ctx, s.pool, `l.job_id is not null`)
	if err != nil {
		return nil, err
	}
	leases := make([]Lease, len(states))
	for i, state := range states {
		leases[i] = state.Lease
	}
	return leases, nil
}

// leaseState is a row of merge_leases with what the database's clock and the queue say about it.
type leaseState struct {
	Lease

	Expired bool // the last renewal is older than the time to live
	Running bool // its job runs under the recorded job epoch
}

func (s leaseState) held() bool { return s.JobID != 0 }

// free says that anyone may take the lease. A holder that renews and whose job runs is never touched.
func (s leaseState) free() bool { return !s.held() || s.Expired || !s.Running }

// reason says why a held lease is free.
func (s leaseState) reason() string {
	if !s.Running {
		return ReasonJobEnded
	}
	return ReasonExpired
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// leaseStates reads leases; $1 in where is taken by the time to live.
func (s *Store) leaseStates(ctx context.Context, q querier, where string, args ...any) ([]leaseState, error) {
	rows, err := q.Query(ctx, `
		select l.repo, l.target, l.epoch, coalesce(l.task_id, 0), coalesce(t.key, ''), coalesce(l.branch, ''),
			coalesce(l.job_id, 0), coalesce(l.job_epoch, 0), j.run_id,
			coalesce(l.worker_id, z.id), coalesce(l.root_id, z.id), coalesce(l.host, ''),
			coalesce(l.boot_id, ''), coalesce(l.pid_namespace, ''), coalesce(l.pid, 0), coalesce(l.pid_started_at, 0),
			coalesce(l.acquired_at, 'epoch'), coalesce(l.renewed_at, 'epoch'),
			coalesce(l.renewed_at + make_interval(secs => $1), 'epoch'),
			coalesce(extract(epoch from clock_timestamp() - l.acquired_at), 0)::float8,
			coalesce(a.step, ''),
			coalesce(l.renewed_at + make_interval(secs => $1) <= clock_timestamp(), false),
			coalesce(j.state = 'running' and j.epoch = l.job_epoch, false)
		from merge_leases l
			cross join (select '00000000-0000-0000-0000-000000000000'::uuid as id) z
			left join jobs j on j.id = l.job_id
			left join tasks t on t.id = l.task_id
			left join merge_attempts a on a.task_id = l.task_id and a.finished_at is null
		where `+where+` order by l.repo, l.target`, append([]any{s.ttl.Seconds()}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("read merge leases: %w", err)
	}
	states, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (leaseState, error) {
		var l leaseState
		var age float64
		h := &l.Holder
		err := row.Scan(&l.Repo, &l.Target, &l.Epoch, &l.TaskID, &l.Task, &l.Branch, &l.JobID, &l.JobEpoch, &l.RunID,
			&h.WorkerID, &h.RootID, &h.Host, &h.BootID, &h.PIDNamespace, &h.PID, &h.PIDStartedAt,
			&l.AcquiredAt, &l.RenewedAt, &l.ExpiresAt, &age, &l.Step, &l.Expired, &l.Running)
		l.Age = time.Duration(age * float64(time.Second))
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("read merge leases: %w", err)
	}
	return states, nil
}

// Queue returns the attempts whose job waits or runs, target by target in the order of their turn. One that waits
// for a person (published and ready, without a job) isn't in it.
func (s *Store) Queue(ctx context.Context) ([]Waiting, error) {
	rows, err := s.pool.Query(ctx, `
		select a.repo, a.target, a.task_id, t.key as task, a.job_id,
			row_number() over (partition by a.repo, a.target order by
				coalesce(l.job_id = a.job_id, false) desc,
				(a.last_error is not null and coalesce(a.next_look_at > clock_timestamp(), false)),
				a.step not in ('landing', 'landed'), -j.priority, a.id)::integer as position,
			a.step, a.tries, a.last_error, a.next_look_at, a.branch, a.method, a.base_old as base, a.head_sha as head, a.land_sha as land,
			(select key from merge_attempts g join tasks on tasks.id = g.task_id where g.id = a.group_id) as group,
			case when j.state = 'queued' then j.phase end as rests_for
		from merge_attempts a
			join jobs j on j.id = a.job_id and j.state in ('queued', 'running')
			join tasks t on t.id = a.task_id
			left join merge_leases l on l.repo = a.repo and l.target = a.target
		where a.finished_at is null
		order by a.repo, a.target, position`)
	if err != nil {
		return nil, fmt.Errorf("read the merge queue: %w", err)
	}
	waiting, err := pgx.CollectRows(rows, pgx.RowToStructByName[Waiting])
	if err != nil {
		return nil, fmt.Errorf("read the merge queue: %w", err)
	}
	return waiting, nil
}

// Landed is what a task's landing did to its target.
type Landed struct {
	Base   string // the commit of the target before
	Method string
	Mates  []string // keys of the tasks that landed in the same move
}

// Landed tells how commit, which the task landed, came to its target; false when it wasn't orch that put it there.
func (s *Store) Landed(ctx context.Context, taskID int64, commit string) (Landed, bool, error) {
	rows, err := s.pool.Query(ctx, `
		select a.base_old as base, a.method, array(select t.key from merge_attempts b join tasks t on t.id = b.task_id
			where b.group_id = a.group_id and b.id <> a.id and b.step = 'finalised' and b.tip_sha = a.tip_sha order by t.id) as mates
		from merge_attempts a where a.task_id = $1 and a.land_sha = $2 and a.step = 'finalised' and a.base_old is not null
		order by a.id desc limit 1`, taskID, commit)
	if err != nil {
		return Landed{}, false, fmt.Errorf("look how task %d landed: %w", taskID, err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[Landed])
	if err != nil {
		return Landed{}, false, fmt.Errorf("look how task %d landed: %w", taskID, err)
	}
	if len(found) == 0 {
		return Landed{}, false, nil
	}
	return found[0], true, nil
}
