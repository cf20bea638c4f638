package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"orch/api"
	"orch/internal/client"
	"orch/internal/testdb"
)

// What a URL says is printed by no command, whatever is wrong with it: any part of it may be a part of the password.
func TestNoPartOfADatabaseURLIsPrinted(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	url := testdb.Empty(t)
	p.onDatabase(url, "ORCH_LOG_LEVEL=debug")
	p.bound()
	stranger, missing := url.Copy(), url.Copy()
	stranger.User, missing.Database = "somebody", "nowhere"

	for name, test := range map[string]struct{ url, code string }{
		"refused":                 {"postgres://somebody:hunter2@127.0.0.1:1/nowhere", "database_unreachable"},
		"wrong user or password":  {testdb.URL(stranger) + "&password=hunter2", "database_auth"},
		"unknown database":        {testdb.URL(missing) + "&password=hunter2", "database_missing"},
		"a delimiter unescaped":   {"postgres://127.0.0.1:1/hunter2@127.0.0.1:1/d1", "database_unreachable"},
		"it can't be parsed":      {"postgres://somebody:hunter2@127.0.0.1:port/nowhere", "ORCH_DATABASE_URL can't be used"},
		"it can't be parsed, too": {"hunter2", "ORCH_DATABASE_URL can't be used"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := p.with("ORCH_DATABASE_URL=" + test.url)
			p.t = t
			quiet := func(command, said string, words ...string) {
				t.Helper()
				if !strings.Contains(said, test.code) {
					t.Errorf("orch %s doesn't say %s:\n%s", command, test.code, said)
				}
				for _, word := range append(words, "hunter2") {
					if strings.Contains(said, word) {
						t.Errorf("orch %s says %q:\n%s", command, word, said)
					}
				}
			}
			for _, command := range []string{"serve", "worker"} {
				d := p.start(command)
				if test.code == "database_unreachable" {
					d.waits(test.code)
					d.stops()
				} else {
					d.refuses()
				}
				quiet(command, d.text(), "somebody", "nowhere", "127.0.0.1:1", url.Host)
			}
			quiet("root bind", p.at(t.Name()).fails("root", "bind"), "somebody", "nowhere", "127.0.0.1:1", url.Host)
			quiet("migrate", p.fails("migrate"), "somebody", "nowhere", "127.0.0.1:1", url.Host)
			if out, _ := p.command("doctor").CombinedOutput(); strings.Contains(string(out), "hunter2") { // says where it looked
				t.Errorf("orch doctor says\n%s", out)
			}
		})
	}
}

func TestAListenURLThatCannotBeParsedIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	p.onDatabase(testdb.Empty(t), "ORCH_DATABASE_LISTEN_URL=postgres://orch:hunter2@localhost:port/orch")
	for _, command := range []string{"serve", "worker"} {
		if said := p.start(command).refuses("ORCH_DATABASE_LISTEN_URL can't be used"); strings.Contains(said, "hunter2") {
			t.Errorf("orch %s says\n%s", command, said)
		}
	}
}

func TestAServerWithoutItsDatabaseLogsNoPartOfItsURL(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	url := testdb.Empty(t)
	data := p.onDatabase(url)
	by := newDoor(t, url)
	user := strings.TrimSpace(data.value(`select current_user`))
	s := p.with("ORCH_LOG_LEVEL=debug", "ORCH_DATABASE_URL=postgres://"+user+":hunter2@"+by.addr+"/"+url.Database+"?sslmode=disable").serve()
	by.shut()
	s.says("the listener's line", func(l line) bool { return strings.HasPrefix(l.Msg, "not listening for notifications") })
	s.says("the worker's line", func(l line) bool { return strings.HasPrefix(l.Msg, "queue call failed") })
	eventually(t, "a request is answered with 503", func(ctx context.Context) bool {
		_, err := s.client.ListTasks(ctx, api.ListTasksParams{})
		problem, ok := errors.AsType[*client.ProblemError](err)
		return ok && problem.Status == http.StatusServiceUnavailable && problem.Code == "database_unreachable"
	})
	said := s.text()
	for _, word := range []string{"hunter2", by.addr, url.Database, "user="} {
		if strings.Contains(said, word) {
			t.Errorf("the log has %q", word)
		}
	}
	if strings.Contains(said, `"msg":"request failed"`) {
		t.Error("a database that is away is an error of the server's")
	}
}

// door is a way to the database's socket file by TCP, which can be shut.
type door struct {
	addr     string
	listener net.Listener
	mu       sync.Mutex
	open     []net.Conn
}

func newDoor(t *testing.T, url *pgx.ConnConfig) *door {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{addr: l.Addr().String(), listener: l}
	t.Cleanup(d.shut)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", filepath.Join(url.Host, ".s.PGSQL."+strconv.Itoa(int(url.Port))))
			if err != nil {
				_ = conn.Close()
				continue
			}
			d.mu.Lock()
			d.open = append(d.open, conn, server)
			d.mu.Unlock()
			go func() { _, _ = io.Copy(server, conn) }()
			go func() { _, _ = io.Copy(conn, server) }()
		}
	}()
	return d
}

func (d *door) shut() {
	_ = d.listener.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, conn := range d.open {
		_ = conn.Close()
	}
}
