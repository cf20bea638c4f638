// Package lfs knows how git-lfs keeps large files beside a repository, without git-lfs: in commits there are pointers, small
// texts that name a content by its SHA-256, and below lfs/objects of a git directory the contents.
package lfs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// MaxPointer bounds a pointer's text, in bytes, as git-lfs does.
const MaxPointer = 1024

// Pointer names a content.
type Pointer struct {
	OID  string // SHA-256, in hex
	Size int64
}

// Parse reads the text of a pointer.
func Parse(text []byte) (Pointer, bool) {
	const version = "version https://git-lfs.github.com/spec/v1\n"
	if len(text) > MaxPointer || !bytes.HasPrefix(text, []byte(version)) {
		return Pointer{}, false
	}
	p := Pointer{Size: -1}
	for line := range strings.Lines(string(text[len(version):])) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch key {
		case "oid":
			p.OID = strings.TrimPrefix(value, "sha256:")
		case "size":
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				p.Size = n
			}
		}
	}
	return p, p.Size >= 0 && len(p.OID) == hex.EncodedLen(sha256.Size) && strings.Trim(p.OID, "0123456789abcdef") == ""
}

// Pointers finds the pointers among objects as `git cat-file --batch` prints them, each once.
func Pointers(batch []byte) []Pointer {
	var found []Pointer
	for kind, content := range Objects(batch) {
		if p, is := Parse(content); is && kind == "blob" && !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	return found
}

// Objects takes apart what `git cat-file --batch` prints: kinds and contents. One that is missing has neither.
func Objects(batch []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for len(batch) > 0 {
			line, rest, _ := bytes.Cut(batch, []byte("\n"))
			fields := strings.Fields(string(line))
			if len(fields) != 3 {
				if !yield("", nil) {
					return
				}
				batch = rest
				continue
			}
			size, err := strconv.Atoi(fields[2])
			if err != nil || size < 0 || size >= len(rest) || !yield(fields[1], rest[:size]) {
				return
			}
			batch = rest[size+1:]
		}
	}
}

// Matches says whether the regular file at path has the content that p names.
func (p Pointer) Matches(ctx context.Context, path string) (bool, error) {
	file, err := open(path, p)
	if err != nil || file == nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, reader{ctx, file}); err != nil {
		return false, err
	}
	return p.named(sum), nil
}

func (p Pointer) named(sum hash.Hash) bool { return hex.EncodeToString(sum.Sum(nil)) == p.OID }

// open opens a file that may have the content of p; nil when it can't.
func open(path string, p Pointer) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() != p.Size {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Store is the directory lfs of a git directory.
type Store string

// Of is the store of a git directory.
func Of(gitDir string) Store { return Store(filepath.Join(gitDir, "lfs")) }

// Exists says whether anything was ever stored there.
func (s Store) Exists() bool {
	info, err := os.Lstat(filepath.Join(string(s), "objects"))
	return err == nil && info.IsDir()
}

// Path is where the content of p is, or would be.
func (s Store) Path(p Pointer) string {
	return filepath.Join(string(s), "objects", p.OID[:2], p.OID[2:4], p.OID)
}

// Has says whether the content of p is there, by its size.
func (s Store) Has(p Pointer) bool {
	info, err := os.Lstat(s.Path(p))
	return err == nil && info.Mode().IsRegular() && info.Size() == p.Size
}

// Carry copies the contents of pointers to s from a store that isn't trusted: what isn't what its name says stays there.
// It returns those that s still hasn't.
func (s Store) Carry(ctx context.Context, from Store, pointers []Pointer) (missing []Pointer, err error) {
	for _, p := range pointers {
		if s.Has(p) {
			continue
		}
		there, err := s.take(ctx, from.Path(p), p)
		if err != nil {
			return missing, fmt.Errorf("copy LFS object %.12s: %w", p.OID, err)
		}
		if !there {
			missing = append(missing, p)
		}
	}
	return missing, nil
}

// take copies one content beside its place, and puts it there when it is what it should be.
func (s Store) take(ctx context.Context, path string, p Pointer) (there bool, err error) {
	source, err := open(path, p)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) || err == nil && source == nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = source.Close() }()
	to := s.Path(p)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // as git-lfs itself does
		return false, err
	}
	temp, err := os.CreateTemp(filepath.Dir(to), ".new-*")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(temp, sum), reader{ctx, source})
	if err == nil {
		err = errors.Join(temp.Chmod(0o444), temp.Sync())
	}
	if err = errors.Join(err, temp.Close()); err != nil || !p.named(sum) {
		return false, err
	}
	return true, os.Rename(temp.Name(), to)
}

// reader ends with its context.
type reader struct {
	ctx context.Context //nolint:containedctx // io.Reader has none
	io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}
