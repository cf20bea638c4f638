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

// cluster is the server of this test process. Nobody waits for its process: the watchdog ends it.
type cluster struct {
	conn   *pgx.ConnConfig
	major  int
	dir    string
	server *exec.Cmd
	leash  *os.File // the watchdog acts when this end of its pipe is closed
}

// start clones the image and runs a server on the copy.
func start() (*cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	install, err := pgembed.Find(ctx, "", 0)
	if err != nil {
		return nil, err
	}
	top, err := home()
	if err != nil {
		return nil, err
	}
	img, err := image(ctx, top, install)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(top, "run-")
	if err != nil {
		return nil, err
	}
	c := &cluster{major: install.Major, dir: dir}
	if err := c.watch(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	// From here on the watchdog cleans up, after an error at the end of the process.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	pg := filepath.Join(dir, "pg")
	if err := os.Mkdir(pg, 0o711); err != nil {
		return nil, err
	}
	if err := copyTree(img, filepath.Join(pg, "data")); err != nil {
		return nil, fmt.Errorf("copy %s: %w", img, err)
	}
	if err := c.run(ctx, pg, install); err != nil {
		return nil, err
	}
	return c, nil
}

// run starts the server and waits until it answers.
func (c *cluster) run(ctx context.Context, pg string, install pgembed.Install) error {
	cmd, conn, err := pgembed.Command(ctx, pgembed.Config{Dir: pg, BinDir: install.BinDir, Unsafe: true, Extra: settings()})
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(pg, "postgres.log"))
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
