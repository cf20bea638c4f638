package environ

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"orch/internal/process/durable"
)

const (
	// seedsDir is beside the homes, out of the agents' way: what was copied last.
	seedsDir = ".seeds"
	maxSeed  = 1 << 20
)

// ErrSeed means that a file that an agent's HOME is to hold can't be copied there.
var ErrSeed = errors.New("agent's file can't be copied")

// Seed is a file that an agent's HOME is to hold.
type Seed struct {
	// From is absolute, or begins with ~/ for the HOME of this process.
	From string
	// To is the path below HOME.
	To string
}

// sow copies the files whose source has changed since they were copied last. It may be called again, and at the same time.
func (e Environment) sow(seeds []Seed) error {
	if len(seeds) == 0 || e.agents == "" {
		return nil
	}
	home, err := os.OpenRoot(e.agents)
	if err != nil {
		return fmt.Errorf("open home: %w", err)
	}
	defer func() { _ = home.Close() }()
	records := filepath.Join(filepath.Dir(e.agents), seedsDir, filepath.Base(e.agents))
	if err := os.MkdirAll(records, 0o700); err != nil {
		return fmt.Errorf("make home: %w", err)
	}
	for _, seed := range seeds {
		if err := plant(home, records, seed); err != nil {
			return fmt.Errorf("%w: %s to %s: %w", ErrSeed, seed.From, filepath.Join(e.agents, seed.To), err)
		}
	}
	return nil
}

func plant(home *os.Root, records string, seed Seed) error {
	to := filepath.Clean(seed.To)
	if !filepath.IsLocal(to) || to == "." {
		return errors.New("it has to stay below the home")
	}
	content, err := source(seed.From)
	if err != nil {
		return err
	}
	sum := digest(content)
	record := filepath.Join(records, digest([]byte(to)))
	if before, err := durable.ReadFile(record); err == nil && string(before) == sum {
		return nil
	}
	if err := place(home, to, content); err != nil {
		return err
	}
	// After the copy: who dies between the two copies again.
	return replace(record, sum)
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// source reads a file of the operator's.
func source(path string) ([]byte, error) {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		path = filepath.Join(home, rest)
	}
	if !filepath.IsAbs(path) {
		return nil, errors.New("its path isn't absolute")
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would block
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	case info.Size() > maxSeed:
		return nil, fmt.Errorf("it has more than %d bytes", maxSeed)
	}
	return io.ReadAll(io.LimitReader(f, maxSeed))
}

// place writes a file below the home. The agent may have planted anything there: nothing is followed out of it, and what is
// at the place itself is replaced, not written through.
func place(home *os.Root, to string, content []byte) error {
	if dir := filepath.Dir(to); dir != "." {
		if err := home.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	tmp := to + ".orch-" + rand.Text()
	f, err := home.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = home.Rename(tmp, to)
	}
	if err != nil {
		_ = home.Remove(tmp)
	}
	return err
}

func replace(path, content string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
