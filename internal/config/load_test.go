package config_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"orch/internal/config"
)

func TestDefaults(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	cfg := load(t, nil)
	if err := cfg.Validate(); err != nil {
		t.Errorf("the defaults contradict each other: %v", err)
	}
	root := "/var/lib/orch"
	if os.Geteuid() != 0 {
		root = "/state/orch"
	}
	if cfg.Data.Root != root || cfg.Data.File != root+"/orch.yaml" || cfg.Data.FileGiven || bool(cfg.Data.Testing) {
		t.Errorf("data %+v", cfg.Data)
	}
	if !cfg.Database.Private() || !bool(cfg.Database.AutoMigrate) || !cfg.Database.ListenURL.Empty() {
		t.Errorf("database %+v", cfg.Database)
	}
	if cfg.HTTP.Addr != "127.0.0.1:8047" || bool(cfg.HTTP.QueuePublic) || !cfg.HTTP.Token.Empty() {
		t.Errorf("http %+v", cfg.HTTP)
	}
	w := cfg.Worker
	if !bool(w.Enabled) || w.MaxConcurrency < 1 || w.MaxConcurrency > 4 || w.Poll.Duration() != 5*time.Second ||
		w.Heartbeat.Duration() != 15*time.Second || w.LeaseTTL.Duration() != time.Minute ||
		w.PruneEvery.Duration() != time.Hour || w.PruneAfter.Duration() != 7*24*time.Hour {
		t.Errorf("worker %+v", w)
	}
	r, d := cfg.Runs, cfg.Disk
	if r.OrphanGrace.Duration() != 2*time.Hour || r.HostDead.Duration() != 3*time.Hour || r.LogCap.Bytes() != 64<<20 ||
		r.PortBase != 20000 || r.PortsPerRun != 20 {
		t.Errorf("runs %+v", r)
	}
	if d.MinFree.Bytes() != 1<<30 || d.KeepRuns.Duration() != 14*24*time.Hour || d.KeepRunsSize.Bytes() != 10<<30 ||
		d.KeepWorkspaces.Duration() != 7*24*time.Hour || d.KeepWorkspacesSize.Bytes() != 50<<30 || d.SweepEvery.Duration() != 10*time.Minute {
		t.Errorf("disk %+v", d)
	}
	if cfg.Merge.LockTimeout.Duration() != 5*time.Minute || !cfg.Merge.Repo("any") {
		t.Errorf("merge %+v", cfg.Merge)
	}
	if cfg.Log.SlogLevel() != slog.LevelInfo || cfg.Log.Format != config.FormatAuto {
		t.Errorf("log %+v", cfg.Log)
	}
}

func TestEnvironmentIsRead(t *testing.T) {
	t.Setenv("ORCH_ROOT", "relative/root")
	t.Setenv("ORCH_DATABASE_URL", "postgres://u:hunter2@h/d")
	t.Setenv("ORCH_POLL_S", "0.25")
	t.Setenv("ORCH_MAX_CONCURRENCY", "7")
	t.Setenv("ORCH_MERGE_GATE_REPOS", " demo , other,")
	t.Setenv("ORCH_LOG_LEVEL", "warn")
	t.Setenv("ORCH_HEARTBEAT_S", "") // set to nothing is not set
	t.Setenv("ORCH_WORKER_ENABLED", "")
	t.Setenv("ORCH_TESTING", "")
	cfg := load(t, map[string]string{"ORCH_LOG_LEVEL": "error", "ORCH_TESTING": "true", "ORCH_ROOT": ""})
	if !filepath.IsAbs(cfg.Data.Root) || !strings.HasSuffix(cfg.Data.Root, "/relative/root") || !bool(cfg.Data.Testing) {
		t.Errorf("data %+v", cfg.Data)
	}
	if cfg.Database.URL.Reveal() != "postgres://u:hunter2@h/d" || cfg.Database.ListenURL != cfg.Database.URL || bool(cfg.Database.AutoMigrate) {
		t.Error("database")
	}
	w := cfg.Worker
	if w.Poll.Duration() != 250*time.Millisecond || w.MaxConcurrency != 7 || w.Heartbeat.Duration() != 15*time.Second || !bool(w.Enabled) {
		t.Errorf("worker %+v", w)
	}
	if !slices.Equal(cfg.Merge.GateRepos, config.List{"demo", "other"}) || cfg.Merge.Repo("any") || !cfg.Merge.Repo("other") {
		t.Errorf("merge %+v", cfg.Merge)
	}
	if cfg.Log.SlogLevel() != slog.LevelError {
		t.Error("an override doesn't win")
	}
	t.Setenv("ORCH_AUTO_MIGRATE", "true")
	if !load(t, nil).Database.AutoMigrate {
		t.Error("ORCH_AUTO_MIGRATE isn't read")
	}
}

func TestUnreadableValues(t *testing.T) {
	t.Setenv("ORCH_POLL_S", "5s")
	t.Setenv("ORCH_TESTING", "maybe")
	_, _, err := config.Load(map[string]string{"ORCH_MAX_CONCURRENCY": "2.5", "ORCH_NOTHING": "1", "ORCH_MIN_FREE_MB": "1G"})
	for _, want := range []string{
		`ORCH_POLL_S="5s" can't be used: it takes a number of seconds without a unit`,
		`ORCH_TESTING="maybe" can't be used: it takes true or false`,
		`ORCH_MAX_CONCURRENCY="2.5" can't be used: it takes a whole number`,
		`ORCH_MIN_FREE_MB="1G" can't be used: it takes a whole number of megabytes`,
		"ORCH_NOTHING",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %v", want, err)
		}
	}
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"0": 0, "5": 5 * time.Second, "0.5": 500 * time.Millisecond, "-1": -time.Second, "86400": 24 * time.Hour, "010": 10 * time.Second,
	} {
		var s config.Seconds
		if err := s.Decode(text); err != nil || s.Duration() != want {
			t.Errorf("%q is %v, %v", text, s.Duration(), err)
		}
	}
	for _, text := range []string{"5s", "1e3", "inf", "NaN", "0x10", "1,5", ".5", "5.", "99999999999", "9999999999", " 5", "1_000", "+5"} {
		var s config.Seconds
		if err := s.Decode(text); err == nil {
			t.Errorf("%q was read as %v", text, s.Duration())
		}
	}
	if got := config.Seconds(1500 * time.Millisecond).String(); got != "1.5" {
		t.Errorf("String %q", got)
	}
}

func TestSecretsComeFromFiles(t *testing.T) {
	t.Setenv("ORCH_API_TOKEN_FILE", write(t, "token", "hunter2\r\n"))
	if got := load(t, nil).HTTP.Token.Reveal(); got != "hunter2" {
		t.Errorf("token %q", got)
	}
	// The command line wins over the file.
	if got := load(t, map[string]string{"ORCH_API_TOKEN": "mine"}).HTTP.Token.Reveal(); got != "mine" {
		t.Errorf("token %q", got)
	}
	t.Setenv("ORCH_API_TOKEN", "hunter3")
	refuse := func(want string) {
		t.Helper()
		_, _, err := config.Load(nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	refuse("both set")
	t.Setenv("ORCH_API_TOKEN", "")
	t.Setenv("ORCH_API_TOKEN_FILE", write(t, "empty", "\n"))
	refuse("empty")
	t.Setenv("ORCH_API_TOKEN_FILE", write(t, "large", strings.Repeat("hunter2", 10000)))
	refuse("larger")
	t.Setenv("ORCH_API_TOKEN_FILE", "/no/such/file")
	refuse(`ORCH_API_TOKEN_FILE="/no/such/file" can't be used: no such file`)
	t.Setenv("ORCH_API_TOKEN_FILE", t.TempDir())
	refuse("ORCH_API_TOKEN_FILE")
}

func TestSecretsDontShow(t *testing.T) {
	t.Parallel()
	secret := config.NewSecret("hunter2")
	holder := struct {
		Token config.Secret `json:"token"`
	}{secret}
	var texts []string
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X", "%T"} {
		for _, value := range []any{secret, &secret, holder, &holder, []config.Secret{secret}, load(t, map[string]string{"ORCH_API_TOKEN": "hunter2"}).HTTP} {
			texts = append(texts, fmt.Sprintf(format, value))
		}
	}
	encoded, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", slog.Any("a", secret), slog.Any("b", holder))
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", slog.Any("a", secret), slog.Any("b", holder))
	for _, text := range append(texts, string(encoded), log.String()) {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "68756e74657232") || strings.Contains(text, "68756E74657232") {
			t.Errorf("it shows: %s", text)
		}
	}
	if config.NewSecret("").String() != "" || secret.String() == "" {
		t.Error("given and not given look alike")
	}
}

func TestUnknownVariables(t *testing.T) {
	t.Setenv("ORCH_POL_S", "5")
	t.Setenv("ORCH_API_TOKEN_FILE", write(t, "token", "x"))
	t.Setenv("ORCH_POLL_S_FILE", "x")
	t.Setenv("ORCH_COMPLETELY_DIFFERENT", "hunter2")
	t.Setenv("ORCHESTRA", "x")
	_, warnings, err := config.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ORCH_COMPLETELY_DIFFERENT is set, but orch knows no such variable",
		"ORCH_POLL_S_FILE is set, but orch knows no such variable",
		"ORCH_POL_S is set, but orch knows no such variable (did you mean ORCH_POLL_S?)",
	}
	if !slices.Equal(warnings, want) {
		t.Errorf("warnings %q", warnings)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		set  map[string]string
		want []string // nothing: it is allowed
	}{
		"several at once": {
			map[string]string{"ORCH_POLL_S": "0", "ORCH_LOG_LEVEL": "loud", "ORCH_MERGE_LOCK_TIMEOUT_S": "-1"},
			[]string{`ORCH_POLL_S="0"`, `ORCH_LOG_LEVEL="loud" can't be used: it takes one of debug, info, warn, error`, `ORCH_MERGE_LOCK_TIMEOUT_S="-1"`},
		},
		"lost before it is renewed": {
			map[string]string{"ORCH_MERGE_LOCK_TIMEOUT_S": "0.999"},
			[]string{`ORCH_MERGE_LOCK_TIMEOUT_S="0.999" can't be used: it must be at least 1s: a landing renews its right every third of that`, "default of 300 seconds"},
		},
		"renewed in time": {map[string]string{"ORCH_MERGE_LOCK_TIMEOUT_S": "1"}, nil},
		"beats":           {map[string]string{"ORCH_HEARTBEAT_S": "20.5"}, []string{`ORCH_LEASE_TTL_S="60"`, "ORCH_HEARTBEAT_S=20.5", "61.5"}},
		"beats that fit":  {map[string]string{"ORCH_HEARTBEAT_S": "20"}, nil},
		"no beat":         {map[string]string{"ORCH_HEARTBEAT_S": "0", "ORCH_LEASE_TTL_S": "-5"}, []string{`ORCH_HEARTBEAT_S="0"`, `ORCH_LEASE_TTL_S="-5"`}},
		"no grace":        {map[string]string{"ORCH_STOP_GRACE_S": "0", "ORCH_KILL_GRACE_S": "0"}, nil},
		"negative grace":  {map[string]string{"ORCH_STOP_GRACE_S": "-1", "ORCH_KILL_GRACE_S": "-0.5"}, []string{"ORCH_STOP_GRACE_S", "ORCH_KILL_GRACE_S"}},
		"never pruned":    {map[string]string{"ORCH_PRUNE_EVERY_S": "0", "ORCH_PRUNE_AFTER_S": "-1"}, []string{`ORCH_PRUNE_EVERY_S="0"`, `ORCH_PRUNE_AFTER_S="-1"`}},
		"pruned soon":     {map[string]string{"ORCH_PRUNE_EVERY_S": "0.5", "ORCH_PRUNE_AFTER_S": "0.001"}, nil},
		"orphaned too soon": {
			map[string]string{"ORCH_ORPHAN_GRACE_S": "100", "ORCH_HOST_DEAD_S": "10000"},
			[]string{`ORCH_ORPHAN_GRACE_S="100" can't be used: it must be at least 3 times ORCH_LEASE_TTL_S=60, that is 180`},
		},
		"dead before orphaned": {
			map[string]string{"ORCH_HOST_DEAD_S": "7279.5"},
			[]string{`ORCH_HOST_DEAD_S="7279.5" can't be used: it must be at least ORCH_ORPHAN_GRACE_S=7200 plus twice ORCH_KILL_GRACE_S=10 plus ORCH_LEASE_TTL_S=60, that is 7280`},
		},
		"dead just after orphaned": {map[string]string{"ORCH_HOST_DEAD_S": "7280"}, nil},
		"in a hurry": {
			map[string]string{
				"ORCH_HEARTBEAT_S": "0.3", "ORCH_LEASE_TTL_S": "1", "ORCH_KILL_GRACE_S": "1", "ORCH_ORPHAN_GRACE_S": "3", "ORCH_HOST_DEAD_S": "6",
				"ORCH_REAPER_INTERVAL_S": "2",
			}, nil,
		},
		"never orphaned":     {map[string]string{"ORCH_ORPHAN_GRACE_S": "0", "ORCH_HOST_DEAD_S": "-1"}, []string{`ORCH_ORPHAN_GRACE_S="0"`, `ORCH_HOST_DEAD_S="-1"`}},
		"no log":             {map[string]string{"ORCH_RUN_LOG_CAP_MB": "0"}, []string{`ORCH_RUN_LOG_CAP_MB="0" can't be used: it must be at least 1`}},
		"closed ports":       {map[string]string{"ORCH_PORT_BASE": "80", "ORCH_PORTS_PER_RUN": "-1"}, []string{`ORCH_PORT_BASE="80"`, `ORCH_PORTS_PER_RUN="-1"`}},
		"too many ports":     {map[string]string{"ORCH_PORT_BASE": "65000", "ORCH_MAX_CONCURRENCY": "30"}, []string{"32 runs at the same time", "ORCH_PORT_BASE=65000", "below 65536"}},
		"ports that fit":     {map[string]string{"ORCH_PORT_BASE": "65496", "ORCH_MAX_CONCURRENCY": "2", "ORCH_PORTS_PER_RUN": "10"}, nil},
		"no ports":           {map[string]string{"ORCH_PORTS_PER_RUN": "0"}, nil},
		"everything is kept": {map[string]string{"ORCH_MIN_FREE_MB": "0", "ORCH_KEEP_RUNS_MB": "0", "ORCH_KEEP_WORKSPACES_MB": "0"}, nil},
		"nothing is kept": {
			map[string]string{"ORCH_KEEP_RUNS_S": "0", "ORCH_KEEP_WORKSPACES_S": "0", "ORCH_SWEEP_EVERY_S": "0", "ORCH_KEEP_WORKSPACES_MB": "-1"},
			[]string{`ORCH_KEEP_RUNS_S="0"`, `ORCH_KEEP_WORKSPACES_S="0"`, `ORCH_SWEEP_EVERY_S="0"`, `ORCH_KEEP_WORKSPACES_MB="-1"`},
		},
		"no room for one run": {map[string]string{"ORCH_KEEP_RUNS_MB": "63"}, []string{`ORCH_KEEP_RUNS_MB="63" can't be used: it must be at least ORCH_RUN_LOG_CAP_MB=64`}},
		"no slots":            {map[string]string{"ORCH_MAX_CONCURRENCY": "0"}, []string{`ORCH_MAX_CONCURRENCY="0"`}},
		"many slots":          {map[string]string{"ORCH_MAX_CONCURRENCY": "1001"}, []string{"1 to 1000"}},
		"format":              {map[string]string{"ORCH_LOG_FORMAT": "xml"}, []string{"auto, text, json"}},
		"repositories":        {map[string]string{"ORCH_MERGE_GATE_REPOS": "demo,De mo"}, []string{"ORCH_MERGE_GATE_REPOS", "De mo"}},
		"every address":       {map[string]string{"ORCH_HTTP_ADDR": ":8047"}, []string{"needs ORCH_API_TOKEN"}},
		"address":             {map[string]string{"ORCH_HTTP_ADDR": "0.0.0.0:1"}, []string{"needs ORCH_API_TOKEN"}},
		"name":                {map[string]string{"ORCH_HTTP_ADDR": "orch.internal:1"}, []string{"needs ORCH_API_TOKEN"}},
		"with token":          {map[string]string{"ORCH_HTTP_ADDR": "[::]:8047", "ORCH_API_TOKEN": "abc"}, nil},
		"loopback":            {map[string]string{"ORCH_HTTP_ADDR": "[::1]:0"}, nil},
		"mapped loopback":     {map[string]string{"ORCH_HTTP_ADDR": "[::ffff:127.0.0.1]:80"}, nil},
		"localhost":           {map[string]string{"ORCH_HTTP_ADDR": "localhost:80"}, nil},
		"no port":             {map[string]string{"ORCH_HTTP_ADDR": "127.0.0.1"}, []string{"address:port"}},
		"bad port":            {map[string]string{"ORCH_HTTP_ADDR": "127.0.0.1:99999"}, []string{"address:port"}},
		"token with blank":    {map[string]string{"ORCH_API_TOKEN": "hunter2 hunter2"}, []string{"ORCH_API_TOKEN can't be used"}},
		"server":              {map[string]string{"ORCH_URL": "https://orch.example.org/base"}, nil},
		"server with secret":  {map[string]string{"ORCH_URL": "https://u:hunter2@orch.example.org"}, []string{"ORCH_URL can't be used"}},
		"server without":      {map[string]string{"ORCH_URL": "orch.example.org"}, []string{"ORCH_URL can't be used"}},
		"one look":            {map[string]string{"ORCH_REAPER_DEAD_TICKS": "1"}, []string{`ORCH_REAPER_DEAD_TICKS="1" can't be used: it takes a number from 2 to 1000`}},
		"no looks":            {map[string]string{"ORCH_REAPER_INTERVAL_S": "0", "ORCH_RECONCILE_INTERVAL_S": "-1"}, []string{"ORCH_REAPER_INTERVAL_S", "ORCH_RECONCILE_INTERVAL_S"}},
		"negative ceiling":    {map[string]string{"ORCH_REAPER_MAX_RUNNING_S": "-1"}, []string{"ORCH_REAPER_MAX_RUNNING_S"}},
		"hosts seldom looked at": {
			map[string]string{"ORCH_REAPER_INTERVAL_S": "3601"},
			[]string{`ORCH_HOST_DEAD_S="10800" can't be used: it must be at least 3 times ORCH_REAPER_INTERVAL_S=3601, that is 10803`},
		},
		"telegram":               {map[string]string{"ORCH_TELEGRAM_BOT_TOKEN": "123:hunter2", "ORCH_TELEGRAM_CHAT_ID": "-100123"}, nil},
		"telegram, a channel":    {map[string]string{"ORCH_TELEGRAM_BOT_TOKEN": "123:hunter2", "ORCH_TELEGRAM_CHAT_ID": "@night_watch"}, nil},
		"telegram without token": {map[string]string{"ORCH_TELEGRAM_CHAT_ID": "-100123"}, []string{"without ORCH_TELEGRAM_BOT_TOKEN"}},
		"telegram without chat":  {map[string]string{"ORCH_TELEGRAM_BOT_TOKEN": "123:hunter2"}, []string{"without ORCH_TELEGRAM_CHAT_ID"}},
		"telegram, no token":     {map[string]string{"ORCH_TELEGRAM_BOT_TOKEN": "hunter2", "ORCH_TELEGRAM_CHAT_ID": "hunter2"}, []string{"BotFather", "the number of a chat"}},
		"telegram elsewhere":     {map[string]string{"ORCH_TELEGRAM_API_URL": "localhost:8081"}, []string{"ORCH_TELEGRAM_API_URL can't be used"}},
		"listen only":            {map[string]string{"ORCH_DATABASE_LISTEN_URL": "postgres://hunter2"}, []string{"without ORCH_DATABASE_URL"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := load(t, test.set).Validate()
			if len(test.want) == 0 && err != nil {
				t.Errorf("refused: %v", err)
			}
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("want %q in %v", want, err)
				}
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("it shows: %v", err)
			}
		})
	}
}

func TestMergeUnknown(t *testing.T) {
	t.Parallel()
	m := config.Merge{GateRepos: config.List{"demo", "typo"}}
	if got := m.Unknown([]string{"other", "demo"}); !slices.Equal(got, []string{"typo"}) {
		t.Errorf("unknown %q", got)
	}
}
