package testdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/pgembed"
)

// cluster is a server of this test process. Nobody waits for its process: the watchdog ends it.
type cluster struct {
	conn    *pgx.ConnConfig
	install pgembed.Install
	extra   []string // settings beside the usual ones
	dir     string
	server  *exec.Cmd
	leash   *os.File // the watchdog acts when this end of its pipe is closed
}

// start clones the image and runs a server on the copy.
func start() (*cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	c, err := prepare(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.copyFrom(ctx, ""); err != nil {
		return nil, err
	}
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

const bootTimeout = 2 * time.Minute

// prepare makes the directory of a cluster and sets its watchdog on it.
func prepare(ctx context.Context) (*cluster, error) {
	install, err := pgembed.Find(ctx, "", 0)
	if err != nil {
		return nil, err
	}
	top, err := home()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(top, "run-")
	if err != nil {
		return nil, err
	}
	c := &cluster{install: install, dir: dir}
	if err := c.watch(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	// From here on the watchdog cleans up, after an error at the end of the process.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	return c, os.Mkdir(c.pg(), 0o711)
}

func (c *cluster) pg() string   { return filepath.Join(c.dir, "pg") }
func (c *cluster) data() string { return filepath.Join(c.pg(), "data") }

// copyFrom fills the data directory with the files of another one that no server runs on, or with the image's.
func (c *cluster) copyFrom(ctx context.Context, data string) error {
	if data == "" {
		top, err := home()
		if err != nil {
			return err
		}
		if data, err = image(ctx, top, c.install); err != nil {
			return err
		}
	}
	if err := copyTree(data, c.data()); err != nil {
		return fmt.Errorf("copy %s: %w", data, err)
	}
	return nil
}

// run starts the server and waits until it answers.
func (c *cluster) run(ctx context.Context) error {
	cmd, conn, err := pgembed.Command(ctx, pgembed.Config{
		Dir: c.pg(), BinDir: c.install.BinDir, Unsafe: true, Extra: append(settings(), c.extra...),
	})
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(c.pg(), "postgres.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	c.server, c.conn = cmd, conn
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		err := c.exec(ctx, "select 1")
		if err == nil {
			return nil
		}
		if exited(cmd.Process.Pid) {
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("postgres ended at its start:\n%s", text)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for postgres: %w", err)
		case <-tick.C:
		}
	}
}

// exited says whether a child has ended, and reaps it then.
func exited(pid int) bool {
	got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	return got == pid || err != nil
}

// watch starts the watchdog. Whoever stands in the data directory is a process of the cluster; a postmaster that comes
// up only now finds no data any more.
func (c *cluster) watch() error {
	const script = `
read -r _
i=0
while [ $i -lt 500 ]; do
  i=$((i+1)) left=
  for p in /proc/[0-9]*; do
    if [ "$p/cwd" -ef "$1/pg/data" ]; then
      left=1
      if [ $i -gt 100 ]; then kill -KILL "${p#/proc/}"; else kill -QUIT "${p#/proc/}"; fi
    fi
  done 2>/dev/null
  [ -z "$left" ] && rm -rf "$1" 2>/dev/null && exit
  sleep 0.02
done`
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	cmd := exec.Command("/bin/sh", "-c", script, "sh", c.dir)
	cmd.Dir, cmd.Stdin = "/", read
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C on the test is not for it
	if err := cmd.Start(); err != nil {
		return errors.Join(err, write.Close())
	}
	c.leash = write
	return nil
}
