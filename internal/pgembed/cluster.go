package pgembed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Owner and Database are the names that Start gives the cluster's superuser and orch's database.
const (
	Owner    = "orch"
	Database = "orch"
)

// cluster is what one directory holds, and who runs it with which programs.
type cluster struct {
	cfg     Config
	dir     string // absolute
	data    string // dir/data
	log     *slog.Logger
	install Install
	account account
	socket  string
}

func newCluster(cfg Config) (*cluster, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &cluster{cfg: cfg, dir: dir, data: filepath.Join(dir, "data"), log: log}, nil
}

// makeDir makes the directory itself. The server's user has to pass through it, its content is closed by its own modes.
func (c *cluster) makeDir() error {
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	if err := os.MkdirAll(c.dir, mode); err != nil {
		return err
	}
	return os.Chmod(c.dir, mode)
}

// major returns the version that made the cluster, 0 when there is none yet. Whatever else lies in its place is left alone.
func (c *cluster) major() (int, error) {
	text, err := os.ReadFile(filepath.Join(c.data, "PG_VERSION"))
	if err == nil {
		major, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return 0, fmt.Errorf("%s doesn't hold a version: restore the database from a backup, or move %s away to begin with an empty one",
				filepath.Join(c.data, "PG_VERSION"), c.data)
		}
		return major, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	entries, err := os.ReadDir(c.data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	case len(entries) > 0:
		return 0, fmt.Errorf("%s isn't empty, but holds no PostgreSQL cluster: restore it from a backup, or move it away to begin with an empty database", c.data)
	}
	return 0, nil
}

// resolve finds programs, user and socket for the cluster of that major (0: one that is to be made).
func (c *cluster) resolve(ctx context.Context, major int) error {
	var err error
	if c.install, err = find(ctx, c.cfg.BinDir, major, places); err != nil {
		if major != 0 && errors.Is(err, ErrNoPrograms) {
			return fmt.Errorf("the database in %s was made by PostgreSQL %d, which alone can run it (or move it to another version with pg_dumpall and psql): %w", c.dir, major, err)
		}
		return err
	}
	if c.account, err = accountFor(c.data, major != 0); err != nil {
		return err
	}
	if err := c.account.checkAccess(ctx, c.program("postgres"), c.dir); err != nil {
		return err
	}
	c.socket = socketDir(c.dir)
	if err := makeSocketDir(c.socket, c.account); err != nil {
		return fmt.Errorf("make the socket directory: %w", err)
	}
	return nil
}

func (c *cluster) program(name string) string { return filepath.Join(c.install.BinDir, name) }

// initialise makes the cluster beside its place and renames it there, so that a cluster is there whole or not at all.
func (c *cluster) initialise(ctx context.Context) error {
	began := time.Now()
	tmp, err := os.MkdirTemp(c.dir, "init-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := c.account.own(tmp); err != nil {
		return err
	}
	if err := c.initdb(ctx, tmp); err != nil {
		return err
	}
	if !c.cfg.Unsafe {
		if err := syncFS(tmp); err != nil { // much cheaper than initdb's own sync of each of its 900 files
			return err
		}
	}
	if err := os.Remove(c.data); err != nil && !errors.Is(err, fs.ErrNotExist) { // an empty one, or this fails
		return err
	}
	if err := os.Rename(tmp, c.data); err != nil {
		return err
	}
	if err := syncDir(c.dir); err != nil {
		return err
	}
	c.log.LogAttrs(ctx, slog.LevelInfo, "database cluster created",
		slog.String("dir", c.data), slog.String("version", c.install.Version), slog.Duration("took", time.Since(began)))
	return nil
}

func (c *cluster) initdb(ctx context.Context, dir string) error {
	// The locale C keeps indexes independent of the system's collations, which change with its upgrades. TCP is
	// refused and the socket trusted: who can reach it has the files anyway.
	args := []string{"-D", dir, "-U", Owner, "--auth-local=trust", "--auth-host=reject", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"}
	if !c.cfg.Unsafe {
		args = append(args, "--data-checksums")
	}
	cmd := exec.CommandContext(ctx, c.program("initdb"), append(args, c.cfg.InitArgs...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env, cmd.SysProcAttr = environment(), c.account.attributes()
	cmd.Dir = dir // marks it for the sweep of a later start
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	runtime.LockOSThread() // the death signal follows the thread that forks
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("run initdb: %w: %s", err, strings.TrimSpace(out.String()))
	}
	return nil
}

// removeLeftovers removes what an interrupted initialise left behind.
func (c *cluster) removeLeftovers(ctx context.Context) error {
	left, err := filepath.Glob(filepath.Join(c.dir, "init-*"))
	if err != nil {
		return err
	}
	for _, dir := range left {
		if err := c.end(ctx, dir, 0); err != nil {
			return err
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		c.log.LogAttrs(ctx, slog.LevelInfo, "left-over of an interrupted database creation removed", slog.String("dir", dir))
	}
	return nil
}

func syncFS(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
