package alert

import (
	"strings"
	"time"
	"unicode"

	"orch/internal/queue"
)

// Kind says what happened.
type Kind string

// The kinds. The last two are never jobs: a Watch says them directly.
const (
	JobReaped           Kind = "job_reaped"      // a job failed because what worked on it is dead
	LeaseReclaimed      Kind = "lease_reclaimed" // a merge lease was taken from its holder
	TaskBlocked         Kind = "task_blocked"    // a task needs a person
	AgentPaused         Kind = "agent_paused"    // an agent is paused for all tasks
	LandingParked       Kind = "landing_parked"  // a landing needs a person
	DaemonRestarts      Kind = "daemon_restarts" // a service of the process ends again and again
	MassDeath           Kind = "mass_death"      // too many runs seem dead at once for that to be believed
	JobWaits            Kind = "job_waits"       // a job is put off again and again
	JobFailed           Kind = "job_failed"      // a job that moves no task failed for good
	QueueStuck          Kind = "queue_stuck"
	DatabaseUnreachable Kind = "database_unreachable"
)

// Kinds lists all of them.
func Kinds() []Kind {
	return []Kind{
		JobReaped, LeaseReclaimed, TaskBlocked, AgentPaused, LandingParked, DaemonRestarts, MassDeath, JobWaits, JobFailed,
		QueueStuck, DatabaseUnreachable,
	}
}

// Alert is one thing that a person should know. All but Kind and Key may be zero: what isn't known isn't said.
type Alert struct {
	Kind Kind `json:"kind"`
	// Key names the cause among those of the kind, such as a job and its epoch.
	Key string `json:"key"`
	// Quiet is for how long it isn't told again under the same key; zero: for as long as it waits to be sent.
	Quiet time.Duration `json:"-"`

	Task   string    `json:"task,omitempty"`
	Repo   string    `json:"repo,omitempty"`
	Branch string    `json:"branch,omitempty"`
	Agent  string    `json:"agent,omitempty"`
	Code   string    `json:"code,omitempty"`   // why, for programs
	Reason string    `json:"reason,omitempty"` // why, in words of orch's own; empty: what is known of Code is said
	Host   string    `json:"host,omitempty"`
	JobID  int64     `json:"job_id,omitempty"`
	RunID  string    `json:"run_id,omitempty"`
	PID    int       `json:"pid,omitempty"`
	At     time.Time `json:"at"` // zero = when it is enqueued
}

const (
	// KindPrefix begins the kind of every job that sends an alert. No alert is made of the failure of such a job.
	KindPrefix = "alert."

	lane        = "system"
	maxAttempts = 30 // some six hours of back-off
	maxName     = 120
	maxReason   = 400
)

// JobKind is the kind of the jobs that send alerts over a channel.
func JobKind(channel string) string { return KindPrefix + channel }

// ChannelOf says which channel the jobs of a kind send over; false for jobs that send none.
func ChannelOf(kind string) (string, bool) { return strings.CutPrefix(kind, KindPrefix) }

// Insert is the job that sends an alert over a channel. One job of a channel runs at a time, over all hosts.
func Insert(channel string, a Alert) queue.Insert {
	a = a.clean()
	return queue.Insert{
		Kind: JobKind(channel), Lane: lane, Args: a, MaxAttempts: maxAttempts,
		DedupeKey: JobKind(channel) + ":" + string(a.Kind) + ":" + a.Key, ConcurrencyKey: JobKind(channel),
	}
}

// clean makes the strings storable and short, and takes out what could pass for more than a name.
func (a Alert) clean() Alert {
	if a.At.IsZero() {
		a.At = time.Now()
	}
	a.At = a.At.UTC().Truncate(time.Second)
	for _, name := range []*string{&a.Key, &a.Task, &a.Repo, &a.Branch, &a.Agent, &a.Code, &a.Host, &a.RunID} {
		*name = printable(*name, maxName)
	}
	a.Reason = printable(a.Reason, maxReason)
	return a
}

// printable is at most limit characters of one line. Back-quotes mean a command in a message, so names have none.
func printable(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '`':
			return '\''
		case r == unicode.ReplacementChar || !unicode.IsPrint(r):
			return ' '
		default:
			return r
		}
	}, s)
	return shorten(strings.TrimSpace(s), limit)
}

// shorten cuts a text to limit characters, and says so.
func shorten(s string, limit int) string {
	n := 0
	for i := range s {
		if n++; n == limit && len(s) > i {
			if rest := []rune(s[i:]); len(rest) > 1 {
				return s[:i] + "…"
			}
		}
	}
	return s
}
