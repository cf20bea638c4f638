package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"orch/internal/process"
)

// A merge lease of a process that is gone is free as soon as another one is up, long before it runs out.
func TestLeaseOfAKilledHolderIsFreeOnceAnotherProcessIsUp(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.leaveLease()
	srv := s.serve("")
	if n := s.count(`select count(*) from merge_leases where job_id is not null`); n != 0 {
		t.Error("the lease is held by a process that is gone")
	}
	srv.end(unix.SIGTERM)
	if !s.said("merge lease reclaimed", "reason=process_dead", "target=main", "branch=orch/app-9") {
		t.Error("the log doesn't tell of the reclaim")
	}
}

func TestSwitchedOffReclaimLeavesALeaseUntilItIsAskedFor(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.env = append(s.env, "ORCH_LEASE_RECLAIM_ENABLED=false")
	s.leaveLease()
	s.write("go", "")
	s.write("pass", "")
	srv := s.serve("")
	if n := s.count(`select count(*) from merge_leases where job_id is not null`); n != 1 {
		t.Error("the lease was taken from its holder")
	}
	srv.landed(srv.add())
	srv.end(unix.SIGTERM)
}

// leaveLease has the target of the stand's repository held by a process that ended without a word. The lease runs out
// in five minutes.
func (s *stand) leaveLease() {
	s.t.Helper()
	first := s.serve("") // makes the database and the root
	self, err := process.Self()
	if err != nil {
		s.t.Fatal(err)
	}
	pid := first.cmd.Process.Pid
	s.until("its worker is known", func() bool { return s.count(`select count(*) from workers where pid = $1`, pid) == 1 })
	_, err = s.pool.Exec(s.t.Context(), `
		with job as (
			insert into jobs (kind, lane, repo, state, epoch, max_attempts, args, worker_id, root_id, lease_expires_at, started_at)
			select 'merge', 'merge', 'app', 'running', 1, 3, '{}', id, root_id, now() + interval '5 minutes', now() from workers where pid = $1
			returning id, worker_id, root_id)
		insert into merge_leases (repo, target, epoch, branch, job_id, job_epoch, worker_id, root_id, host, boot_id, pid_namespace, pid,
			pid_started_at, acquired_at, renewed_at)
		select 'app', 'main', 3, 'orch/app-9', job.id, 1, w.id, w.root_id, w.host, $2, w.pid_namespace, w.pid, w.pid_started_at, now(), now()
		from job join workers w on w.id = job.worker_id`, pid, self.BootID)
	if err != nil {
		s.t.Fatal(err)
	}
	first.end(unix.SIGKILL)
}

// said looks for a line of any process's log with all of the words.
func (s *stand) said(words ...string) bool {
	s.t.Helper()
	logs, err := filepath.Glob(filepath.Join(s.dir, "log-*"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, name := range logs {
		content, err := os.ReadFile(name)
		if err != nil {
			s.t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			has := true
			for _, word := range words {
				has = has && strings.Contains(line, word)
			}
			if has {
				return true
			}
		}
	}
	return false
}
