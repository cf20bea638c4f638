package pgembed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The major versions of PostgreSQL that orch runs on.
const (
	MinMajor = 14
	MaxMajor = 18
)

// ErrNoPrograms says that this machine has no PostgreSQL server programs that would do. The error that matches it is a
// *NoProgramsError, whose text says what to install.
var ErrNoPrograms = errors.New("no PostgreSQL server programs found")

// NoProgramsError says what was looked for and how to get it.
type NoProgramsError struct {
	Want  int    // the major version needed, 0 for any supported one
	Found []int  // majors that are installed and don't do
	Hint  string // how to install a server on this system
}

func (e *NoProgramsError) Error() string {
	what := fmt.Sprintf("PostgreSQL %d to %d", MinMajor, MaxMajor)
	if e.Want != 0 {
		what = fmt.Sprintf("PostgreSQL %d", e.Want)
	}
	found := ""
	if len(e.Found) > 0 {
		found = fmt.Sprintf(" (installed: %s)", joinInts(e.Found))
	}
	return fmt.Sprintf("no server programs of %s found%s: %s; or set ORCH_POSTGRES_BIN to the directory that holds postgres and initdb, or ORCH_DATABASE_URL to a server of yours",
		what, found, e.Hint)
}

// Is makes the error match ErrNoPrograms.
func (e *NoProgramsError) Is(target error) bool { return target == ErrNoPrograms }

// Install is one installation of the server programs.
type Install struct {
	BinDir  string // the directory of postgres and initdb, links resolved
	Major   int
	Version string // as postgres -V prints it
}

// Find returns the installation to run a cluster with: the one in the directory override if that isn't empty, else the
// newest supported one of this machine, or exactly wantMajor if that isn't 0 (an existing cluster can be run by no other).
func Find(ctx context.Context, override string, wantMajor int) (Install, error) {
	return find(ctx, override, wantMajor, places)
}

// find is Find with the places to look at injected; the dear ones are asked only when the cheap ones had nothing.
func find(ctx context.Context, override string, want int, places func(ctx context.Context, dear bool) []string) (Install, error) {
	if override != "" {
		return findIn(ctx, override, want)
	}
	var (
		seen = map[string]bool{}
		all  []Install
	)
	for _, dear := range []bool{false, true} {
		for _, dir := range places(ctx, dear) {
			// PATH mostly holds links to what the globs find too: ask each real directory once, since asking means to run it.
			bin, err := resolve(dir)
			if err != nil || seen[bin] {
				continue
			}
			seen[bin] = true
			if in, err := probe(ctx, bin); err == nil {
				all = append(all, in)
			}
		}
		if in, ok := choose(all, want); ok {
			return in, nil
		}
		if ctx.Err() != nil { // then nobody was asked properly
			return Install{}, fmt.Errorf("look for PostgreSQL: %w", context.Cause(ctx))
		}
	}
	var found []int
	for _, in := range all {
		found = append(found, in.Major)
	}
	return Install{}, &NoProgramsError{Want: want, Found: found, Hint: installHint(osRelease(), want)}
}

func findIn(ctx context.Context, dir string, want int) (Install, error) {
	bin, err := resolve(dir)
	if err != nil {
		return Install{}, fmt.Errorf("ORCH_POSTGRES_BIN: %w", err)
	}
	in, err := probe(ctx, bin)
	if err != nil {
		return Install{}, fmt.Errorf("ORCH_POSTGRES_BIN: %w", err)
	}
	if _, ok := choose([]Install{in}, want); !ok {
		return Install{}, &NoProgramsError{Want: want, Found: []int{in.Major}, Hint: installHint(osRelease(), want)}
	}
	return in, nil
}

// choose picks the newest supported installation, or the first of exactly the major that is wanted.
func choose(all []Install, want int) (Install, bool) {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b Install) int { return b.Major - a.Major })
	for _, in := range sorted {
		if in.Major >= MinMajor && in.Major <= MaxMajor && (want == 0 || in.Major == want) {
			return in, true
		}
	}
	return Install{}, false
}

// resolve returns the real directory of the programs that dir holds or links to: postgres finds its other files
// relative to it. Both programs must be there, since client packages bring parts of them only.
func resolve(dir string) (string, error) {
	program, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil {
		return "", err
	}
	bin := filepath.Dir(program)
	if _, err := os.Stat(filepath.Join(bin, "initdb")); err != nil {
		return "", err
	}
	return filepath.Abs(bin)
}

// probe asks the program for its version; unlike all else it does, it answers that to root too.
func probe(ctx context.Context, bin string) (Install, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	program := filepath.Join(bin, "postgres")
	cmd := exec.CommandContext(ctx, program, "-V")
	cmd.Env = environment()
	out, err := cmd.Output()
	if err != nil {
		return Install{}, fmt.Errorf("ask %s for its version: %w", program, err)
	}
	version := strings.TrimSpace(string(out))
	major, err := parseMajor(version)
	if err != nil {
		return Install{}, fmt.Errorf("ask %s for its version: %w", program, err)
	}
	return Install{BinDir: bin, Major: major, Version: version}, nil
}

// parseMajor reads "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "… 18beta1" or "… 9.6.24".
func parseMajor(version string) (int, error) {
	_, rest, ok := strings.Cut(version, "(PostgreSQL) ")
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	if !ok || digits == 0 {
		return 0, fmt.Errorf("unknown version %q", version)
	}
	return strconv.Atoi(rest[:digits])
}

// places lists directories that may hold the programs, in order of preference among equals.
func places(ctx context.Context, dear bool) []string {
	if dear {
		// Also there without a server (it belongs to the client library), often as a script: hence last.
		out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output()
		if err != nil {
			return nil
		}
		return []string{strings.TrimSpace(string(out))}
	}
	var dirs []string
	if exe, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Join(filepath.Dir(exe), "..", "lib", "orch", "postgres", "bin")) // a bundle of ours
	}
	for _, program := range []string{"postgres", "initdb"} {
		if path, err := exec.LookPath(program); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", // Debian, Ubuntu: never on PATH
		"/usr/pgsql-*/bin",          // the project's rpm packages
		"/usr/libexec/postgresql*",  // Alpine
		"/usr/lib/postgresql*/bin",  // SUSE, Gentoo
		"/usr/local/pgsql/bin",      // built from source
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
		"/nix/var/nix/profiles/default/bin",
		"/run/current-system/sw/bin",
	} {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			continue // only a malformed pattern does that
		}
		dirs = append(dirs, matches...)
	}
	return dirs
}

func joinInts(ns []int) string {
	var parts []string
	for _, n := range ns {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, ", ")
}
