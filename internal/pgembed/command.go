package pgembed

import (
	"context"
	"os/exec"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Command returns a command that runs the server on the existing cluster in cfg.Dir, and how to reach it, for a caller
// that looks after the process and the directory itself (test clusters do): no lock, no sweep, no signal at our death.
func Command(ctx context.Context, cfg Config) (*exec.Cmd, *pgx.ConnConfig, error) {
	c, err := newCluster(cfg)
	if err != nil {
		return nil, nil, err
	}
	major, err := c.major()
	if err != nil {
		return nil, nil, err
	}
	if err := c.resolve(ctx, major); err != nil {
		return nil, nil, err
	}
	conn, err := connConfig(c.socket, Database)
	if err != nil {
		return nil, nil, err
	}
	return c.command(ctx), conn, nil
}

// command runs postgres itself, since pg_ctl would detach it from us. It outlives ctx: Stop ends it properly.
func (c *cluster) command(ctx context.Context) *exec.Cmd {
	args := []string{"-D", c.data, "-k", quoteDirectory(c.socket), "-p", strconv.Itoa(port)}
	for _, setting := range c.settings() {
		args = append(args, "-c", setting)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), c.program("postgres"), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", environment(), c.account.attributes()
	return cmd
}

// quoteDirectory makes one entry of the list that the server expects, whatever characters the path holds.
func quoteDirectory(path string) string { return `"` + strings.ReplaceAll(path, `"`, `""`) + `"` }

// settings are given at each start, so that they follow this program and not the file that some version wrote once.
// They make a server that is small when idle: no replication, no parallel queries, no compiler.
func (c *cluster) settings() []string {
	settings := []string{
		"listen_addresses=", "unix_socket_permissions=0700", "ssl=off",
		"max_connections=100", "shared_buffers=128MB", "huge_pages=off", "jit=off",
		"wal_level=minimal", "max_wal_senders=0", "max_replication_slots=0", "max_logical_replication_workers=0",
		"min_wal_size=32MB", "max_wal_size=256MB",
		"max_worker_processes=4", "max_parallel_workers=2", "max_parallel_workers_per_gather=0",
		"timezone=UTC", "log_timezone=UTC", "log_line_prefix=%m [%p] ", "log_checkpoints=off", "logging_collector=off",
		"cluster_name=orch",
		// Files instead of /dev/shm: that may be tiny in a container, and logind empties it when a user logs out (RemoveIPC).
		"dynamic_shared_memory_type=mmap",
	}
	if c.install.Major >= 18 {
		settings = append(settings, "io_method=sync") // no pool of I/O processes
	}
	if c.cfg.Unsafe {
		settings = append(settings, "fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off")
	}
	return append(settings, c.cfg.Extra...)
}
