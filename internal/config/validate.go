package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxSlots        = 1000
	beatsPerLease   = 3
	leasesPerOrphan = 3
	leastDeadTicks  = 2
	maxDeadTicks    = 1000
	ticksPerHost    = 3 // of the reaper, before a host counts as dead
	landings        = 2 // that may run their tests beside the agents
	firstOpenPort   = 1024
	maxPort         = 65535
)

// leastLockTimeout leaves a third of itself, the pause between two renewals, for a database that isn't quick to answer.
const leastLockTimeout = time.Second

// Validate names every contradiction in c, joined.
func (c *Config) Validate() error {
	return errors.Join(c.Worker.validate(), c.Runs.validate(c.Worker), c.Disk.validate(c.Runs), c.HTTP.validate(), c.Merge.validate(),
		c.Reaper.validate(c.Runs), c.Reconcile.validate(), c.Alert.validate(), c.Log.validate(), c.Database.validate())
}

func (w Worker) validate() error {
	problems := []error{
		positive("ORCH_POLL_S", w.Poll),
		positive("ORCH_HEARTBEAT_S", w.Heartbeat),
		positive("ORCH_LEASE_TTL_S", w.LeaseTTL),
		notNegative("ORCH_STOP_GRACE_S", w.StopGrace),
		notNegative("ORCH_KILL_GRACE_S", w.KillGrace),
		positive("ORCH_PRUNE_EVERY_S", w.PruneEvery),
		positive("ORCH_PRUNE_AFTER_S", w.PruneAfter),
	}
	if w.MaxConcurrency < 1 || w.MaxConcurrency > maxSlots {
		problems = append(problems, &ValueError{
			Variable: "ORCH_MAX_CONCURRENCY", Value: strconv.Itoa(int(w.MaxConcurrency)),
			Allowed: fmt.Sprintf("it takes a number from 1 to %d", maxSlots),
		})
	}
	if w.Heartbeat > 0 && w.LeaseTTL > 0 && beatsPerLease*w.Heartbeat > w.LeaseTTL {
		problems = append(problems, &ValueError{
			Variable: "ORCH_LEASE_TTL_S", Value: w.LeaseTTL.String(),
			Allowed: fmt.Sprintf("it must be at least %d times ORCH_HEARTBEAT_S=%s, that is %s, so that one late beat loses no lease",
				beatsPerLease, w.Heartbeat, beatsPerLease*w.Heartbeat),
		})
	}
	return errors.Join(problems...)
}

func (r Runs) validate(w Worker) error {
	problems := []error{
		positive("ORCH_ORPHAN_GRACE_S", r.OrphanGrace),
		positive("ORCH_HOST_DEAD_S", r.HostDead),
		atLeast("ORCH_RUN_LOG_CAP_MB", int64(r.LogCap), 1),
		r.validatePorts(w),
	}
	if least := leasesPerOrphan * w.LeaseTTL; r.OrphanGrace > 0 && r.OrphanGrace < least {
		problems = append(problems, &ValueError{
			Variable: "ORCH_ORPHAN_GRACE_S", Value: r.OrphanGrace.String(),
			Allowed: fmt.Sprintf("it must be at least %d times ORCH_LEASE_TTL_S=%s, that is %s, so that a short outage of the database ends no agent",
				leasesPerOrphan, w.LeaseTTL, least),
		})
	}
	// Until its shim has ended a run, nobody else may begin the same work.
	if least := r.OrphanGrace + 2*w.KillGrace + w.LeaseTTL; r.HostDead > 0 && r.HostDead < least {
		problems = append(problems, &ValueError{
			Variable: "ORCH_HOST_DEAD_S", Value: r.HostDead.String(),
			Allowed: fmt.Sprintf("it must be at least ORCH_ORPHAN_GRACE_S=%s plus twice ORCH_KILL_GRACE_S=%s plus ORCH_LEASE_TTL_S=%s, that is %s: "+
				"else another host gets a job whose agent still runs here", r.OrphanGrace, w.KillGrace, w.LeaseTTL, least),
		})
	}
	return errors.Join(problems...)
}

// validatePorts lets the runs of one process have their ports; more processes on a data root need more of them.
func (r Runs) validatePorts(w Worker) error {
	problems := []error{atLeast("ORCH_PORTS_PER_RUN", int64(r.PortsPerRun), 0)}
	if r.PortBase < firstOpenPort || r.PortBase > maxPort {
		problems = append(problems, &ValueError{
			Variable: "ORCH_PORT_BASE", Value: strconv.Itoa(int(r.PortBase)),
			Allowed: fmt.Sprintf("it takes a port from %d to %d", firstOpenPort, maxPort),
		})
	} else if runs := int(w.MaxConcurrency) + landings; int(r.PortBase)+runs*int(r.PortsPerRun) > maxPort+1 {
		problems = append(problems, &ValueError{
			Variable: "ORCH_PORTS_PER_RUN", Value: strconv.Itoa(int(r.PortsPerRun)),
			Allowed: fmt.Sprintf("%d runs at the same time (ORCH_MAX_CONCURRENCY=%d and %d landings) from ORCH_PORT_BASE=%d on don't fit below %d",
				runs, w.MaxConcurrency, landings, r.PortBase, maxPort+1),
		})
	}
	return errors.Join(problems...)
}

func (d Disk) validate(r Runs) error {
	problems := []error{
		atLeast("ORCH_MIN_FREE_MB", int64(d.MinFree), 0),
		positive("ORCH_KEEP_RUNS_S", d.KeepRuns),
		atLeast("ORCH_KEEP_RUNS_MB", int64(d.KeepRunsSize), 0),
		positive("ORCH_KEEP_WORKSPACES_S", d.KeepWorkspaces),
		atLeast("ORCH_KEEP_WORKSPACES_MB", int64(d.KeepWorkspacesSize), 0),
		positive("ORCH_SWEEP_EVERY_S", d.SweepEvery),
	}
	if d.KeepRunsSize > 0 && d.KeepRunsSize < r.LogCap {
		problems = append(problems, &ValueError{
			Variable: "ORCH_KEEP_RUNS_MB", Value: d.KeepRunsSize.String(),
			Allowed: fmt.Sprintf("it must be at least ORCH_RUN_LOG_CAP_MB=%s, the size of one run, or 0 for no bound", r.LogCap),
		})
	}
	return errors.Join(problems...)
}

func (m Merge) validate() error {
	var problems []error
	if m.LockTimeout.Duration() < leastLockTimeout {
		problems = append(problems, &ValueError{
			Variable: "ORCH_MERGE_LOCK_TIMEOUT_S", Value: m.LockTimeout.String(),
			Allowed: fmt.Sprintf("it must be at least %s: a landing renews its right every third of that, and has the rest for a database "+
				"that answers late; leave it unset for the default of 300 seconds", leastLockTimeout),
		})
	}
	for _, name := range m.GateRepos {
		if !ValidName(name) {
			problems = append(problems, &ValueError{
				Variable: "ORCH_MERGE_GATE_REPOS", Value: strings.Join(m.GateRepos, ","),
				Allowed: fmt.Sprintf("it takes names of repositories separated by commas, and %q is none (%s)", name, NameRule),
			})
		}
	}
	return errors.Join(problems...)
}

func (r Reaper) validate(runs Runs) error {
	problems := []error{paced("ORCH_REAPER_INTERVAL_S", r.Interval), notNegative("ORCH_REAPER_MAX_RUNNING_S", r.MaxRunning)}
	if r.DeadTicks < leastDeadTicks || r.DeadTicks > maxDeadTicks {
		problems = append(problems, &ValueError{
			Variable: "ORCH_REAPER_DEAD_TICKS", Value: strconv.Itoa(int(r.DeadTicks)),
			Allowed: fmt.Sprintf("it takes a number from %d to %d: one wrong look must reap nothing", leastDeadTicks, maxDeadTicks),
		})
	}
	// A host is looked at with each tick, and silence counts only between looks that came in time.
	if least := ticksPerHost * r.Interval; runs.HostDead > 0 && runs.HostDead < least {
		problems = append(problems, &ValueError{
			Variable: "ORCH_HOST_DEAD_S", Value: runs.HostDead.String(),
			Allowed: fmt.Sprintf("it must be at least %d times ORCH_REAPER_INTERVAL_S=%s, that is %s: hosts are looked at that often",
				ticksPerHost, r.Interval, least),
		})
	}
	return errors.Join(problems...)
}

func (r Reconcile) validate() error { return paced("ORCH_RECONCILE_INTERVAL_S", r.Interval) }

// validate quotes no chat: it tells where a person can be reached.
func (a Alert) validate() error {
	var problems []error
	switch {
	case a.Token.Empty() && a.ChatID != "":
		problems = append(problems, errors.New("ORCH_TELEGRAM_CHAT_ID is set without ORCH_TELEGRAM_BOT_TOKEN: set both to be told of what needs you, or neither"))
	case !a.Token.Empty() && a.ChatID == "":
		problems = append(problems, errors.New("ORCH_TELEGRAM_BOT_TOKEN is set without ORCH_TELEGRAM_CHAT_ID: set both to be told of what needs you, or neither"))
	}
	if token := a.Token.Reveal(); !a.Token.Empty() && !regexp.MustCompile(`^[0-9]+:[A-Za-z0-9_-]+$`).MatchString(token) {
		problems = append(problems, errors.New("ORCH_TELEGRAM_BOT_TOKEN can't be used: it takes what BotFather gave, a number, a colon and letters"))
	}
	if a.ChatID != "" && !regexp.MustCompile(`^(-?[0-9]+|@[A-Za-z][A-Za-z0-9_]*)$`).MatchString(a.ChatID) {
		problems = append(problems, errors.New("ORCH_TELEGRAM_CHAT_ID can't be used: it takes the number of a chat, such as -1001234567890, or @channel"))
	}
	return errors.Join(append(problems, validURL("ORCH_TELEGRAM_API_URL", a.APIURL))...)
}

func (l Log) validate() error {
	return errors.Join(
		oneOf("ORCH_LOG_LEVEL", l.Level, "debug", "info", "warn", "error"),
		oneOf("ORCH_LOG_FORMAT", l.Format, FormatAuto, FormatText, FormatJSON),
	)
}

func (d Database) validate() error {
	if d.URL.Empty() && !d.ListenURL.Empty() {
		return errors.New("ORCH_DATABASE_LISTEN_URL is set without ORCH_DATABASE_URL: the private database needs neither, a given one needs the latter")
	}
	return nil
}

func (h HTTP) validate() error {
	var problems []error
	host, port, err := net.SplitHostPort(h.Addr)
	number, portErr := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || portErr != nil:
		problems = append(problems, &ValueError{
			Variable: "ORCH_HTTP_ADDR", Value: h.Addr,
			Allowed: "it takes address:port, such as 127.0.0.1:8047 or [::1]:8047",
		})
	case !loopback(host) && h.Token.Empty():
		problems = append(problems, &ValueError{
			Variable: "ORCH_HTTP_ADDR", Value: net.JoinHostPort(host, strconv.FormatUint(number, 10)),
			Allowed: "an address that others can reach needs ORCH_API_TOKEN; without a token only loopback is allowed, such as 127.0.0.1:8047",
		})
	}
	if strings.ContainsFunc(h.Token.Reveal(), func(r rune) bool { return r <= ' ' || r > '~' }) {
		problems = append(problems, errors.New("ORCH_API_TOKEN can't be used: it takes visible ASCII characters without blanks, since it travels in a header"))
	}
	return errors.Join(append(problems, validURL("ORCH_URL", h.URL))...)
}

// loopback is true for addresses only this machine can reach. A name other than localhost may resolve to anything.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// validURL doesn't quote a value that it refuses: somebody may have put a password into it.
func validURL(variable, value string) error {
	if value == "" {
		return nil
	}
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%s can't be used: it takes a URL such as https://orch.example.org:8047, without user, password or query", variable)
	}
	return nil
}

func positive(variable string, s Seconds) error {
	if s > 0 {
		return nil
	}
	return &ValueError{Variable: variable, Value: s.String(), Allowed: "it must be more than 0 seconds"}
}

// paced leaves a daemon time to breathe.
func paced(variable string, s Seconds) error {
	if s.Duration() >= 10*time.Millisecond {
		return nil
	}
	return &ValueError{Variable: variable, Value: s.String(), Allowed: "it must be at least 0.01 seconds"}
}

func notNegative(variable string, s Seconds) error {
	if s >= 0 {
		return nil
	}
	return &ValueError{Variable: variable, Value: s.String(), Allowed: "it must not be negative"}
}

func atLeast(variable string, value, least int64) error {
	if value >= least {
		return nil
	}
	return &ValueError{Variable: variable, Value: strconv.FormatInt(value, 10), Allowed: fmt.Sprintf("it must be at least %d", least)}
}

func oneOf(variable, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return &ValueError{Variable: variable, Value: value, Allowed: "it takes one of " + strings.Join(allowed, ", ")}
}
