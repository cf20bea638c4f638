package app

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"orch/api"
	"orch/internal/testdb"
)

// besides is the stand with another data root on the same database, as another host would have one.
func (s *stand) besides(root string) *stand {
	other := *s
	other.root = root
	other.on(testdb.ConnConfig(s.pool), quickLeases()...)
	return &other
}

// quickLeases let others find soon what a dead process has left. Half of a lease's time is what an agent has to start in.
func quickLeases() []string {
	return []string{"ORCH_LEASE_TTL_S=4", "ORCH_HEARTBEAT_S=0.3", "ORCH_POLL_S=0.2", "ORCH_REAPER_INTERVAL_S=1"}
}

// A landing whose data root is gone for good is gone on with by another one that serves the repository, from the head that
// the first has brought there, whatever it came to: the change lands once.
func TestLandingIsGoneOnWithInAnotherDataRoot(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"merge:entered", "merge:testing", "merge:ready", "merge:intended", "merge:moved", "merge:landed", "merge:refreshed"} {
		t.Run(strings.TrimPrefix(point, "merge:"), func(t *testing.T) {
			t.Parallel()
			s := newStand(t)
			s.on(testdb.ConnConfig(s.pool), quickLeases()...)
			s.write("go", "")
			s.write("pass", "")
			first := s.serve(point)
			key := first.add()
			if how := first.ended(); !strings.Contains(how, "killed") {
				t.Fatalf("orch ended with %s", how)
			}
			second := s.besides("other").serve("")
			second.at(key, "it has landed", func(d api.TaskDetail) bool {
				if d.Task.State == api.TaskBlocked {
					t.Fatalf("%s is blocked: %s", key, *d.Task.Reason)
				}
				return d.Task.State == api.TaskDone
			})
			second.end(unix.SIGTERM)
			if got := s.repo.Git("log", "--format=%s", "main"); strings.Count(got, "Do it") != 1 {
				t.Errorf("main holds %q", got)
			}
			if moves := s.repo.Git("reflog", "show", "--format=%h", "main"); strings.Count(moves, "\n") != 1 { // the first is the repository's own
				t.Errorf("main has moved: %q", moves)
			}
			if dirty := s.repo.Git("status", "--porcelain"); dirty != "" {
				t.Errorf("the checkout shows %q", dirty)
			}
			if refs := s.repo.Git("for-each-ref", "--format=%(refname)", "refs/orch/head", "refs/orch/land"); refs != "" {
				t.Errorf("left behind: %s", refs)
			}
			if n := s.count(`select count(*) from merge_leases where job_id is not null`) + s.count(`select count(*) from merge_attempts where finished_at is null`); n != 0 {
				t.Errorf("%d leases or attempts are left", n)
			}
		})
	}
}

// Who lands marks it in the repository, in the installation's name.
func TestLandingClaimsItsTarget(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.write("go", "")
	s.write("pass", "")
	srv := s.serve("")
	srv.landed(srv.add())
	q, err := srv.client.Queue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.repo.Git("for-each-ref", "--format=%(refname)", "refs/orch"), "refs/orch/gate/"+q.Instance.ID.String()+"/main"; got != want {
		t.Errorf("the repository has %q, want %q", got, want)
	}
	srv.end(unix.SIGTERM)
}
