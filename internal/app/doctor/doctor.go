// Package doctor looks at everything that orch needs on this machine, and says what to do.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"

	"orch/internal/app/catalog"
	"orch/internal/app/database"
	"orch/internal/client"
	"orch/internal/config"
	"orch/internal/config/orchyaml"
	"orch/internal/db"
	"orch/internal/forge"
	"orch/internal/forge/local"
	"orch/internal/git/gitcmd"
	"orch/internal/pgembed"
	"orch/internal/process"
	"orch/internal/root"
	"orch/internal/root/layout"
)

// Finding is what the doctor says of one thing.
type Finding struct {
	Name string `json:"name"`
	// Status is ok, warning or failed.
	Status string `json:"status"`
	Detail string `json:"detail"`
	// Remedy says what to do; empty when there is nothing.
	Remedy string `json:"remedy,omitempty"`
}

// Words of Finding.Status.
const (
	OK      = "ok"
	Warning = "warning"
	Failed  = "failed"
)

// lowSpace is the free space, in bytes, below which the doctor warns.
const lowSpace = 2 << 30

// Examine looks at everything that orch needs on this machine. It changes nothing but the data root's directories.
func Examine(ctx context.Context, cfg *config.Config) []Finding {
	found := []Finding{examineRoot(cfg), examineDisk(cfg)}
	found = append(found, examineServer(ctx, cfg), examineDatabase(ctx, cfg))
	if at := len(found) - 1; found[at].Detail == schemaCurrent {
		found = append(found, examinePairing(ctx, cfg))
	}
	program, err := gitcmd.New(ctx, gitcmd.Config{})
	if err != nil {
		return append(found, Finding{"git", Failed, err.Error(), "install git 2.38 or newer"})
	}
	found = append(found, Finding{Name: "git", Status: OK, Detail: program.Version()})
	file, err := catalog.LoadFile(cfg.Data)
	if err != nil {
		return append(found, Finding{"config", Failed, err.Error(), "correct " + cfg.Data.File + "; a running server keeps the last good one"})
	}
	found = append(found, examineConfig(cfg, file))
	for _, repo := range file.Repos {
		found = append(found, examineRepo(ctx, program, repo))
	}
	for _, agent := range file.Agents {
		found = append(found, examineAgent(cfg, agent)...)
	}
	return append(found, Finding{
		"isolation", Warning, "agents and tests run as the user that runs orch, and agents are told to ask for no permission: what it can do, they can do",
		"run orch as a user of its own that owns nothing else",
	})
}

func examineRoot(cfg *config.Config) Finding {
	if err := layout.Prepare(cfg.Data.Root); err != nil {
		return Finding{"root", Failed, err.Error(), "name another data root with ORCH_ROOT or --root"}
	}
	return Finding{Name: "root", Status: OK, Detail: cfg.Data.Root}
}

func examineDisk(cfg *config.Config) Finding {
	var st unix.Statfs_t
	if err := unix.Statfs(cfg.Data.Root, &st); err != nil {
		return Finding{"disk", Warning, "free space unknown: " + err.Error(), ""}
	}
	free := st.Bavail * uint64(st.Bsize) //nolint:gosec // a block size is positive
	detail := fmt.Sprintf("%.1f GiB free", float64(free)/(1<<30))
	makeRoom := "make room: agents, logs and checkouts live in " + cfg.Data.Root
	switch {
	case free < uint64(max(cfg.Disk.MinFree.Bytes(), 0)):
		return Finding{"disk", Failed, fmt.Sprintf("%s; nothing is started below ORCH_MIN_FREE_MB=%s", detail, cfg.Disk.MinFree), makeRoom}
	case free < lowSpace:
		return Finding{"disk", Warning, detail, makeRoom}
	}
	return Finding{Name: "disk", Status: OK, Detail: detail}
}

func examineServer(ctx context.Context, cfg *config.Config) Finding {
	c, err := client.Dial(ctx, client.Config{Socket: root.SocketPath(cfg.Data.Root)})
	if errors.Is(err, client.ErrNoServer) {
		return Finding{Name: "server", Status: OK, Detail: "none runs on this data root"}
	}
	if err != nil {
		return Finding{"server", Failed, err.Error(), "look at its log"}
	}
	defer c.Close()
	_, err = c.Readiness(ctx)
	if problem, ok := errors.AsType[*client.ProblemError](err); ok {
		return Finding{"server", Failed, problem.Detail, "look at its log"}
	}
	if err != nil {
		return Finding{"server", Failed, err.Error(), "look at its log"}
	}
	return Finding{Name: "server", Status: OK, Detail: "running and ready"}
}

func examineDatabase(ctx context.Context, cfg *config.Config) Finding {
	conn, err := database.ConnConfig(cfg)
	if errors.Is(err, pgembed.ErrNotRunning) {
		install, err := pgembed.Find(ctx, cfg.Database.PostgresBin, 0)
		if err != nil {
			return Finding{"database", Failed, err.Error(), ""}
		}
		return Finding{Name: "database", Status: OK, Detail: fmt.Sprintf("private, not running now; PostgreSQL %d in %s", install.Major, install.BinDir)}
	}
	if err != nil {
		return Finding{"database", Failed, err.Error(), "correct ORCH_DATABASE_URL"}
	}
	c, err := database.Connect(ctx, conn)
	if err != nil {
		return Finding{"database", Failed, db.Code(err) + whichDatabase(cfg, conn, err), "is it up, and may this user connect?"}
	}
	defer database.Close(ctx, c)
	migrator, err := database.Migrator(slog.New(slog.DiscardHandler))
	if err != nil {
		return Finding{"database", Failed, err.Error(), ""}
	}
	status, err := migrator.Status(ctx, c)
	if err == nil {
		err = status.Err()
	}
	if err != nil {
		return Finding{"database", Failed, err.Error(), ""}
	}
	return Finding{Name: "database", Status: OK, Detail: schemaCurrent}
}

// schemaCurrent is said of a database that can be asked for more.
const schemaCurrent = "reachable, schema up to date"

// examinePairing says whether a server would start on this data root with this database.
func examinePairing(ctx context.Context, cfg *config.Config) Finding {
	err := root.Bound(cfg.Data.Root)
	if errors.Is(err, root.ErrUnbound) || errors.Is(err, root.ErrMissing) {
		return Finding{Name: "pairing", Status: OK, Detail: "the data root isn't bound to a database yet; the first `orch serve` does it"}
	}
	if err != nil {
		return Finding{"pairing", Failed, err.Error(), ""}
	}
	self, err := process.Self()
	if err != nil {
		return Finding{"pairing", Failed, err.Error(), ""}
	}
	var st root.Status
	err = database.WithPool(ctx, cfg, slog.New(slog.DiscardHandler), func(ctx context.Context, pool *pgxpool.Pool) (err error) {
		st, err = root.Inspect(ctx, cfg.Data.Root, pool, root.Config{Testing: bool(cfg.Data.Testing), Host: self.Host})
		return err
	})
	switch {
	case err != nil:
		return Finding{"pairing", Failed, "the database can't be asked about the data root: " + db.Code(err), "is it up, and may this user connect?"}
	case !st.Fits:
		return Finding{"pairing", Failed, st.Verdict, "use the data root and the database that belong together; `orch root status` shows both sides"}
	}
	return Finding{Name: "pairing", Status: OK, Detail: st.Verdict}
}

// whichDatabase says which server, user and database a connection was meant for, and what the server said, never the
// password.
func whichDatabase(cfg *config.Config, conn *pgx.ConnConfig, err error) string {
	if passwordAstray(cfg.Database.URL.Reveal()) {
		return ": an @ comes late in ORCH_DATABASE_URL: characters such as / # ? @ : % in a password must be percent-encoded"
	}
	text := fmt.Sprintf(": host %s, port %d, user %s, database %s", conn.Host, conn.Port, conn.User, conn.Database)
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		text += ": " + said.Message
	}
	return text
}

// passwordAstray says whether a URL may hold its password where host, port and database are read from: one with an
// unescaped delimiter ends the part before @ early.
func passwordAstray(url string) bool {
	_, rest, isURL := strings.Cut(url, "://")
	end := strings.IndexAny(rest, "/?#")
	return isURL && end >= 0 && strings.Contains(rest[end:], "@")
}

func examineConfig(cfg *config.Config, file *orchyaml.File) Finding {
	if _, err := catalog.Ceiling(cfg, file); err != nil {
		return Finding{"config", Failed, err.Error(), "leave ORCH_REAPER_MAX_RUNNING_S empty, or make it larger"}
	}
	if len(file.Repos) == 0 {
		return Finding{"config", Warning, "no repository is configured in " + cfg.Data.File, "add one with `orch init PATH`"}
	}
	if unknown := cfg.Merge.Unknown(file.RepoNames()); len(unknown) > 0 {
		return Finding{
			"config", Warning, "ORCH_MERGE_GATE_REPOS names what isn't configured: " + strings.Join(unknown, ", "),
			"correct the names",
		}
	}
	return Finding{Name: "config", Status: OK, Detail: fmt.Sprintf("%d repositories in %s", len(file.Repos), cfg.Data.File)}
}

func examineRepo(ctx context.Context, program *gitcmd.Git, repo orchyaml.Repo) Finding {
	name := "repository " + repo.Name
	checked, err := local.New(program, local.Config{}).Check(ctx, forge.Repo{Name: repo.Name, Location: repo.Path, Base: repo.Base})
	if problem, ok := errors.AsType[*forge.ProblemError](err); ok {
		return Finding{name, Failed, problem.Message, problem.Hint}
	}
	if err != nil {
		return Finding{name, Failed, err.Error(), ""}
	}
	return Finding{Name: name, Status: OK, Detail: fmt.Sprintf("%s, branch %s", checked.Path, checked.Base)}
}
