package app

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"
)

// fault is something that goes wrong at night. do answers what it has hit; "" when nobody is there to be hit.
type fault struct {
	name string
	do   func(n *night) string
}

func (n *night) shuffled() []fault {
	all := []fault{
		{"orch killed", (*night).killOrch},
		{"agent killed", func(n *night) string { return n.shoot("agent killed", unix.SIGKILL) }},
		{"shim killed", func(n *night) string { return n.shoot("shim killed", unix.SIGKILL) }},
		{"agent stopped", func(n *night) string { return n.shoot("agent stopped", unix.SIGSTOP) }},
		{"orch stopped", (*night).stopOrch},
		{"PostgreSQL killed", (*night).killPostgres},
		{"daemon panics", (*night).panicDaemon},
		{"lease of the dead", (*night).leaveLeaseOfDead},
		{"holder's job reaped", (*night).reapHolder},
		{"namespace gone", (*night).killContainer},
		{"monitor hangs", (*night).hangMonitor},
		{"notification lost", (*night).loseNotifications},
	}
	n.dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func (n *night) killOrch() string {
	pid := n.server.cmd.Process.Pid
	n.server.client.Close()
	n.kill(n.server, pid)
	n.server = n.serveOn()
	return fmt.Sprintf("pid %d, now %d", pid, n.server.cmd.Process.Pid)
}

// living is a run of this pid namespace.
type living struct {
	ID        uuid.UUID
	Task      string
	Shim, PID int
}

// shoot sends a signal to an agent, or to its shim. They are told from later owners of their pids by the run's mark, and by
// the run's directory. Whoever is stopped goes on some faults later.
func (n *night) shoot(what string, signal unix.Signal) string {
	n.t.Helper()
	victims := list(n, pgx.RowToStructByPos[living], `select r.id, t.key, r.shim_pid, r.pid from runs r join tasks t on t.id = r.task_id
		where r.state = 'running' and r.purpose = 'agent' and r.pid is not null and r.shim_pid is not null and r.pid_namespace = $1
		order by r.id`, n.self.PIDNamespace)
	n.dice.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	for _, v := range victims {
		is := func() bool { return strings.Contains(proc(v.PID, "environ"), "ORCH_RUN="+v.ID.String()) }
		pid := v.PID
		if what == "shim killed" {
			is = func() bool { return strings.Contains(proc(v.Shim, "cmdline"), v.ID.String()) }
			pid = v.Shim
		}
		if n.hits[v.ID] != "" || !is() {
			continue
		}
		n.hits[v.ID] = what
		_ = unix.Kill(pid, signal)
		if signal == unix.SIGSTOP {
			n.let = append(n.let, later{2, func() {
				if is() {
					_ = unix.Kill(pid, unix.SIGCONT)
				}
			}})
		}
		return fmt.Sprintf("%s, run %s, pid %d", v.Task, v.ID, pid)
	}
	return ""
}

func proc(pid int, file string) string {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	return string(content)
}

// stopOrch lets orch go on only once its leases have run out for long enough for others to take what it had.
func (n *night) stopOrch() string {
	n.t.Helper()
	pid := n.server.cmd.Process.Pid
	beaten := func() int { // tenths of a second ago
		return n.ask(`select (10 * extract(epoch from clock_timestamp() - max(heartbeat_at)))::int from workers
			where pid = $1 and pid_namespace = $2`, pid, n.self.PIDNamespace)
	}
	beaten() // the database is there: nobody would start it again
	n.until("its leases have run out", func() bool {
		_ = unix.Kill(pid, unix.SIGSTOP) // again: the kernel continues a group whose session goes away
		return beaten() > int(leaseOfNight.Seconds()*10)+5
	})
	_ = unix.Kill(pid, unix.SIGCONT)
	return "pid " + strconv.Itoa(pid)
}

func (n *night) killPostgres() string {
	n.t.Helper()
	n.ask(`select 1`)
	first, _, _ := strings.Cut(n.file(filepath.Join(n.root, "pg", "data", "postmaster.pid")), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		n.t.Fatal(err)
	}
	n.outages++
	_ = unix.Kill(pid, unix.SIGKILL)
	return "pid " + first
}

// panicDaemon makes one of the daemons panic, in whichever process it gives its next sign of life.
func (n *night) panicDaemon() string {
	n.t.Helper()
	beats, err := os.ReadDir(filepath.Join(n.dir, "beats"))
	if err != nil || len(beats) == 0 {
		n.t.Fatalf("no daemon lives: %v", err)
	}
	name := beats[n.dice.IntN(len(beats))].Name()
	n.write(filepath.Join("panics", name), "")
	return name
}

// leaveLeaseOfDead leaves the target with a holder that died without a word.
func (n *night) leaveLeaseOfDead() string {
	n.t.Helper()
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		n.t.Fatal(err)
	}
	branch := fmt.Sprintf("orch/dead-%d", len(n.left)+1)
	taken := list(n, pgx.RowTo[int64], `
		insert into merge_leases as l (repo, target, epoch, branch, job_id, job_epoch, worker_id, root_id, host, boot_id, pid_namespace, pid,
			pid_started_at, acquired_at, renewed_at)
		select 'app', 'main', 1, $1, coalesce((select max(id) from jobs where kind = 'merge' and state = 'succeeded'), 1), 0, gen_random_uuid(),
			id, $2, $3, $4, $5, $6, clock_timestamp(), clock_timestamp() from roots
		on conflict (repo, target) do update set epoch = l.epoch + 1, branch = excluded.branch, job_id = excluded.job_id, job_epoch = excluded.job_epoch,
			worker_id = excluded.worker_id, root_id = excluded.root_id, host = excluded.host, boot_id = excluded.boot_id,
			pid_namespace = excluded.pid_namespace, pid = excluded.pid, pid_started_at = excluded.pid_started_at,
			acquired_at = excluded.acquired_at, renewed_at = excluded.renewed_at where l.job_id is null
		returning epoch`, branch, n.self.Host, n.self.BootID, n.self.PIDNamespace, dead.Process.Pid, n.self.StartedAt)
	if len(taken) == 0 {
		return ""
	}
	n.left = append(n.left, branch)
	return fmt.Sprintf("pid %d, branch %s", dead.Process.Pid, branch)
}

// reapHolder takes the job from a process that lands something, lives, and knows nothing of it. The job rests for as long
// as it takes others to find the lease without one.
func (n *night) reapHolder() string {
	n.t.Helper()
	const held = `select count(*) from merge_leases l join jobs j on j.id = l.job_id and j.epoch = l.job_epoch and j.state = 'running'`
	ticker := time.NewTicker(50 * time.Millisecond) // few are for long
	defer ticker.Stop()
	for end := time.Now().Add(2 * time.Second); n.ask(held) == 0 && time.Now().Before(end); {
		<-ticker.C
	}
	taken := list(n, pgx.RowTo[string], `
		with held as (select j.id from merge_leases l join jobs j on j.id = l.job_id and j.epoch = l.job_epoch and j.state = 'running' for update of j)
		update jobs set state = 'queued', worker_id = null, lease_expires_at = null, heartbeat_at = null, boot_id = null, pid = null, pid_started_at = null,
			root_id = null, host = null, phase = null, attempt = greatest(attempt - 1, 0), run_at = clock_timestamp() + interval '3 seconds'
		from held where jobs.id = held.id returning format('job %s, epoch %s', jobs.id, jobs.epoch)`)
	if len(taken) == 0 {
		return ""
	}
	return taken[0]
}

// killContainer lets everything in the container die at once: the worker, its shims, their agents. Another one comes after
// it, in a pid namespace of its own.
func (n *night) killContainer() string {
	n.t.Helper()
	namespaces := list(n, pgx.RowTo[string], `select pid_namespace from workers where pid = 1 order by started_at desc limit 1`)
	if len(namespaces) == 0 {
		return ""
	}
	namespace := namespaces[0]
	const of = `select id from runs where pid_namespace = $1 and state <> 'finished'`
	if len(list(n, pgx.RowTo[uuid.UUID], of+` and state = 'running'`, namespace)) == 0 {
		return ""
	}
	n.kill(n.container, 1)
	gone := list(n, pgx.RowTo[uuid.UUID], of, namespace)
	for _, id := range gone {
		n.hits[id] = "namespace gone"
	}
	n.container = n.contain()
	return fmt.Sprintf("%s, %d runs", namespace, len(gone))
}

// hangMonitor lets the next one who follows an agent do nothing more: from when it begins to, or from when it knows the end.
func (n *night) hangMonitor() string {
	n.t.Helper()
	if n.file("hanging") != "" {
		return ""
	}
	point := []string{hangsFollowing, hangsAtTheEnd}[n.dice.IntN(2)]
	n.hangAt(point)
	return "the next one at " + point
}

func (n *night) loseNotifications() string {
	n.t.Helper()
	lost := n.ask(`select count(*) from (select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid() and (query ilike 'listen%' or query like 'select pg_notification_queue_usage%')) gone`)
	if lost == 0 {
		return ""
	}
	return fmt.Sprintf("%d listeners", lost)
}
