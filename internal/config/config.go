package config

import (
	"log/slog"
	"slices"
)

// Config is the environment, read. Its sections follow who uses them.
type Config struct {
	Data      Data
	Database  Database
	HTTP      HTTP
	Worker    Worker
	Runs      Runs
	Disk      Disk
	Merge     Merge
	Reaper    Reaper
	Reconcile Reconcile
	Alert     Alert
	Log       Log
}

// Data says where orch keeps its things.
type Data struct {
	Root    string `envconfig:"ORCH_ROOT" shown:"/var/lib/orch as root, else $XDG_STATE_HOME/orch"`
	File    string `envconfig:"ORCH_CONFIG" shown:"<root>/orch.yaml, if there"`
	Testing Flag   `envconfig:"ORCH_TESTING" default:"false"`

	// FileGiven tells an ORCH_CONFIG that was set, whose file must exist, from the default.
	FileGiven bool `ignored:"true"`
}

// Database says which PostgreSQL is used. An empty URL means the private one.
type Database struct {
	URL         Secret `envconfig:"ORCH_DATABASE_URL" shown:"empty: a private PostgreSQL"`
	AutoMigrate Flag   `envconfig:"ORCH_AUTO_MIGRATE" shown:"true for the private database, false for a given one"`
	ListenURL   Secret `envconfig:"ORCH_DATABASE_LISTEN_URL" shown:"ORCH_DATABASE_URL"`
	PostgresBin string `envconfig:"ORCH_POSTGRES_BIN" shown:"found by itself"`
}

// Private says that orch runs a PostgreSQL of its own.
func (d Database) Private() bool { return d.URL.Empty() }

// HTTP is the server's interface, and for client commands the way to it.
type HTTP struct {
	Addr        string `envconfig:"ORCH_HTTP_ADDR" default:"127.0.0.1:8047"`
	Token       Secret `envconfig:"ORCH_API_TOKEN" shown:"empty"`
	QueuePublic Flag   `envconfig:"ORCH_QUEUE_PUBLIC" default:"false"`
	URL         string `envconfig:"ORCH_URL" shown:"empty: the socket in the data root"`
}

// Worker bounds the work that this process does.
type Worker struct {
	Enabled        Flag    `envconfig:"ORCH_WORKER_ENABLED" default:"true"`
	MaxConcurrency Count   `envconfig:"ORCH_MAX_CONCURRENCY" shown:"half the processors, 1 to 4"`
	Poll           Seconds `envconfig:"ORCH_POLL_S" default:"5"`
	Heartbeat      Seconds `envconfig:"ORCH_HEARTBEAT_S" default:"15"`
	LeaseTTL       Seconds `envconfig:"ORCH_LEASE_TTL_S" default:"60"`
	StopGrace      Seconds `envconfig:"ORCH_STOP_GRACE_S" default:"30"`
	KillGrace      Seconds `envconfig:"ORCH_KILL_GRACE_S" default:"10"`
	PruneEvery     Seconds `envconfig:"ORCH_PRUNE_EVERY_S" default:"3600"`
	PruneAfter     Seconds `envconfig:"ORCH_PRUNE_AFTER_S" default:"604800"`
}

// Runs bounds the programs that are run under shims: agents, gate commands, tests.
type Runs struct {
	// OrphanGrace is how long a run goes on while no orch of its data root reaches the database, HostDead after how long of
	// that another host may have its job.
	OrphanGrace Seconds   `envconfig:"ORCH_ORPHAN_GRACE_S" default:"7200"`
	HostDead    Seconds   `envconfig:"ORCH_HOST_DEAD_S" default:"10800"`
	LogCap      Megabytes `envconfig:"ORCH_RUN_LOG_CAP_MB" default:"64"`
	PortBase    Count     `envconfig:"ORCH_PORT_BASE" default:"20000"`
	PortsPerRun Count     `envconfig:"ORCH_PORTS_PER_RUN" default:"20"`
}

// Disk bounds what is kept in the data root. No megabytes mean no bound.
type Disk struct {
	MinFree            Megabytes `envconfig:"ORCH_MIN_FREE_MB" default:"1024"`
	KeepRuns           Seconds   `envconfig:"ORCH_KEEP_RUNS_S" default:"1209600"`
	KeepRunsSize       Megabytes `envconfig:"ORCH_KEEP_RUNS_MB" default:"10240"`
	KeepWorkspaces     Seconds   `envconfig:"ORCH_KEEP_WORKSPACES_S" default:"604800"`
	KeepWorkspacesSize Megabytes `envconfig:"ORCH_KEEP_WORKSPACES_MB" default:"51200"`
	SweepEvery         Seconds   `envconfig:"ORCH_SWEEP_EVERY_S" default:"600"`
}

// Merge bounds the landing of changes. Empty GateRepos means every configured repository.
type Merge struct {
	LockTimeout    Seconds `envconfig:"ORCH_MERGE_LOCK_TIMEOUT_S" default:"300"`
	ReclaimEnabled Flag    `envconfig:"ORCH_LEASE_RECLAIM_ENABLED" default:"true"`
	GateRepos      List    `envconfig:"ORCH_MERGE_GATE_REPOS" shown:"empty: every repository in orch.yaml"`
}

// Reaper bounds the search for jobs whose work is dead. MaxRunning 0 means the longest that orch.yaml allows.
type Reaper struct {
	Enabled    Flag    `envconfig:"ORCH_REAPER_ENABLED" default:"true"`
	Interval   Seconds `envconfig:"ORCH_REAPER_INTERVAL_S" default:"60"`
	DeadTicks  Count   `envconfig:"ORCH_REAPER_DEAD_TICKS" default:"2"`
	MaxRunning Seconds `envconfig:"ORCH_REAPER_MAX_RUNNING_S" shown:"the longest that orch.yaml allows, at least 3600"`
}

// Reconcile bounds the search for work that nothing would go on with.
type Reconcile struct {
	Enabled  Flag    `envconfig:"ORCH_RECONCILE_ENABLED" default:"true"`
	Interval Seconds `envconfig:"ORCH_RECONCILE_INTERVAL_S" default:"60"`
}

// Alert says where a person is told of what needs one. Without a token nobody is.
type Alert struct {
	Token  Secret `envconfig:"ORCH_TELEGRAM_BOT_TOKEN" shown:"empty: alerts are logged only"`
	ChatID string `envconfig:"ORCH_TELEGRAM_CHAT_ID" shown:"empty"`
	APIURL string `envconfig:"ORCH_TELEGRAM_API_URL" default:"https://api.telegram.org"`
}

// Telegram says that alerts go there.
func (a Alert) Telegram() bool { return !a.Token.Empty() }

// Log says how much is logged, and in which form.
type Log struct {
	Level  string `envconfig:"ORCH_LOG_LEVEL" default:"info"`
	Format string `envconfig:"ORCH_LOG_FORMAT" default:"auto"`
}

// Formats of the log. Auto means text for a terminal and JSON for everything else.
const (
	FormatAuto = "auto"
	FormatText = "text"
	FormatJSON = "json"
)

// SlogLevel is Level for slog; info when Level is none of the known ones.
func (l Log) SlogLevel() slog.Level {
	switch l.Level {
	case "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	}
	return slog.LevelInfo
}

// Repo says whether changes to the repository of that name are landed.
func (m Merge) Repo(name string) bool {
	return len(m.GateRepos) == 0 || slices.Contains(m.GateRepos, name)
}

func (c *Config) sections() []any {
	return []any{&c.Data, &c.Database, &c.HTTP, &c.Worker, &c.Runs, &c.Disk, &c.Merge, &c.Reaper, &c.Reconcile, &c.Alert, &c.Log}
}
