package pgembed

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"
)

// ErrNotRunning says that nobody runs the database at the moment.
var ErrNotRunning = errors.New("the database isn't running")

// Connect returns how to reach the given database of the server that another process runs in dir (<root>/pg). It starts
// nothing; without a server that is ready it returns ErrNotRunning.
func Connect(dir, database string) (*pgx.ConnConfig, error) {
	data := filepath.Join(dir, "data")
	file, err := readPIDFile(data)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoPID) {
		return nil, fmt.Errorf("%w in %s", ErrNotRunning, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("find the database in %s: %w", dir, err)
	}
	if !file.ready || file.socket == "" || !listens(file.socket) {
		return nil, fmt.Errorf("%w in %s", ErrNotRunning, dir)
	}
	return connConfig(file.socket, database)
}

// listens says whether somebody listens on the socket in a directory. The server's pid wouldn't tell: it may be of another pid
// namespace.
func listens(dir string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return true // a connection will tell
	}
	defer func() { _ = unix.Close(fd) }()
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: filepath.Join(dir, ".s.PGSQL."+strconv.Itoa(port))})
	return !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT)
}

// connConfig builds a configuration that owes nothing to the PG* variables of our environment, which are meant for
// other servers.
func connConfig(socket, database string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig("sslmode=disable target_session_attrs=any")
	if err != nil {
		return nil, errors.New("prepare the connection to the private database: a PG… variable (PGSERVICE, PGSSL…) in the environment is invalid: unset it")
	}
	cfg.Host, cfg.Port, cfg.User, cfg.Password, cfg.Database = socket, port, Owner, "", database
	cfg.Fallbacks, cfg.TLSConfig, cfg.RuntimeParams = nil, nil, map[string]string{}
	cfg.ConnectTimeout = 10 * time.Second
	return cfg, nil
}
