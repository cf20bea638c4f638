// Package contact keeps, for all runs of a data root, when an orch of it was last known to the database.
//
// One file for the root says so: a process of orch writes it after each heartbeat that the database has acknowledged,
// with the moment before it was sent. What extends a run is thus never more than what other hosts can see. Shims read it
// only when their patience is over, so it wakes nobody.
//
// The file is written in place and never grows: a full disk doesn't keep an orch in contact from saying so. Whoever reads
// it in the middle of a write sees a wrong checksum and reads again.
package contact

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"orch/internal/process/durable"
)

// name is the file in the directory of the runs.
const name = "contact"

// tries bounds how often a reader that sees a write in the middle looks again.
const tries = 5

var (
	// ErrNone means that there was no contact since the machine has booted.
	ErrNone = errors.New("no contact since the boot")
	// errTorn means that the file holds something else.
	errTorn = errors.New("contact: wrong checksum")
)

// Write notes a contact at a moment of CLOCK_BOOTTIME, in nanoseconds. One that is noted already and was later stays.
func Write(runsDir string, at int64) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	if last, err := Read(runsDir); err == nil && last >= at {
		return nil
	}
	line := encode(boot, at)
	path := filepath.Join(runsDir, name)
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() { // a pipe would block
		return create(path, line)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("note contact: %w", err)
	}
	_, err = f.WriteAt(line, 0)
	if err == nil {
		err = f.Truncate(int64(len(line))) // whatever somebody else left there
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("note contact: %w", err)
	}
	return nil
}

// create makes the file with its content: one without would look torn.
func create(path string, line []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+name+"-*")
	if err == nil {
		_, err = f.Write(line)
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Rename(f.Name(), path)
		}
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}
	if err != nil {
		return fmt.Errorf("note contact: %w", err)
	}
	return nil
}

// Read gives the last contact, in nanoseconds of CLOCK_BOOTTIME; [ErrNone] when there was none in this boot.
func Read(runsDir string) (at int64, err error) {
	boot, err := bootID()
	if err != nil {
		return 0, err
	}
	for range tries {
		var id string
		if id, at, err = read(filepath.Join(runsDir, name)); err == nil && id != boot {
			return 0, ErrNone // clocks of two boots have nothing to do with each other
		}
		if !errors.Is(err, errTorn) {
			break
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return 0, ErrNone
	}
	return at, err
}

func read(path string) (boot string, at int64, err error) {
	raw, err := durable.ReadFile(path)
	if err != nil {
		return "", 0, fmt.Errorf("read contact: %w", err)
	}
	if _, err := fmt.Sscanf(string(raw), "%36s %d", &boot, &at); err != nil || !bytes.Equal(raw, encode(boot, at)) {
		return "", 0, errTorn
	}
	return boot, at, nil
}

// encode makes a line of always the same length.
func encode(boot string, at int64) []byte {
	line := fmt.Sprintf("%-36s %019d", boot, at)
	return fmt.Appendf(nil, "%s %08x\n", line, crc32.ChecksumIEEE([]byte(line)))
}

func bootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return string(bytes.TrimSpace(raw)), nil
}
