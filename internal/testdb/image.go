package testdb

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"orch/internal/db"
	"orch/internal/pgembed"
	"orch/migrations"
)

// template is the name of the migrated database that an image holds.
const template = "migrated"

// format is part of an image's key: count it up when the way images are built changes.
const format = "2"

// settings of image and clusters.
func settings() []string {
	return []string{"max_connections=200", "shared_buffers=64MB", "min_wal_size=2MB", "max_wal_size=512MB"}
}

// home returns the directory of this user's images and clusters.
func home() (string, error) {
	base := os.TempDir()
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err == nil && st.Bavail*uint64(st.Bsize) > 1<<30 && unix.Access("/dev/shm", unix.W_OK) == nil {
		base = "/dev/shm" // creating some thousand small files is what takes time elsewhere
	}
	dir := filepath.Join(base, fmt.Sprintf("orch-testdb-%d", os.Geteuid()))
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(st.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s isn't a directory of ours", dir)
	}
	return dir, os.Chmod(dir, 0o711) // the server runs as another user when we are root
}

// image returns the data directory to copy for a cluster, built if it isn't there.
func image(ctx context.Context, dir string, install pgembed.Install) (string, error) {
	migrator, err := db.NewMigrator(migrations.Files, nil)
	if err != nil {
		return "", err
	}
	key := sha256.Sum256([]byte(format + "\n" + install.Version + "\n" + install.BinDir + "\n" + migrator.Hash() + "\n" + fmt.Sprint(settings())))
	img := filepath.Join(dir, fmt.Sprintf("image-%x", key[:8]))
	lock, err := os.OpenFile(img+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	now := time.Now()
	if err := os.Chtimes(lock.Name(), now, now); err != nil {
		return "", err
	}
	if _, err := os.Stat(img); err == nil {
		return img, nil
	}
	purge(dir, now.Add(-24*time.Hour))
	if err := build(ctx, img, migrator); err != nil {
		return "", fmt.Errorf("build %s: %w", img, err)
	}
	return img, nil
}

// purge removes images that nobody used since then, and clusters whose watchdog was killed: the directory may be memory.
func purge(dir string, since time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		info, err := entry.Info()
		if err != nil || info.ModTime().After(since) {
			continue
		}
		if strings.HasPrefix(entry.Name(), "run-") {
			_ = os.RemoveAll(path) // what fails now is tried again another day
		}
		if img, ok := strings.CutSuffix(path, ".lock"); ok {
			purgeImage(img)
		}
	}
}

func purgeImage(img string) {
	lock, err := os.Open(img + ".lock")
	if err != nil {
		return
	}
	defer lock.Close()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return // being built
	}
	_ = os.RemoveAll(img)
	_ = os.RemoveAll(img + ".new")
}

// build makes the image beside its place. A build that was interrupted left a server that dies with its process, and a directory
// that nobody looks for.
func build(ctx context.Context, img string, migrator *db.Migrator) error {
	work := img + ".new"
	if err := removeLeft(ctx, work); err != nil {
		return err
	}
	if err := os.Mkdir(work, 0o711); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	pg := filepath.Join(work, "pg")
	server, err := pgembed.Start(ctx, pgembed.Config{Dir: pg, Unsafe: true, InitArgs: []string{"--wal-segsize=1"}, Extra: settings()})
	if err != nil {
		return err
	}
	err = fill(ctx, server, migrator)
	if err := errors.Join(err, server.Stop(ctx)); err != nil {
		return err
	}
	return os.Rename(filepath.Join(pg, "data"), img)
}

// removeLeft removes what an interrupted build left, where its server may still be writing its last for a moment.
func removeLeft(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := os.RemoveAll(dir)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}

// fill makes the template and applies the migrations to it.
func fill(ctx context.Context, server *pgembed.Server, migrator *db.Migrator) error {
	admin, err := pgx.ConnectConfig(ctx, server.ConnConfig("postgres"))
	if err != nil {
		return err
	}
	defer admin.Close(ctx)
	if _, err := admin.Exec(ctx, "create database "+template+" is_template true"); err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, server.ConnConfig(template))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = migrator.Apply(ctx, conn)
	return err
}

// copyTree copies directories and plain files with their modes and, as root, their owners: a cluster holds nothing else.
func copyTree(src, dst string) error {
	return filepath.WalkDir(src, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		if entry.IsDir() {
			err = os.Mkdir(to, info.Mode().Perm())
		} else {
			err = copyFile(path, to, info.Mode().Perm())
		}
		if err != nil || os.Geteuid() != 0 {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: owner unknown", path)
		}
		return os.Lchown(to, int(st.Uid), int(st.Gid))
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
