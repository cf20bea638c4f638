package gitcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// DefaultTimeout bounds one git call that the caller left unbounded: a pipe planted where git
	// expects a file would otherwise block it for ever.
	DefaultTimeout = 15 * time.Minute

	stdoutLimit = 256 << 20
	stderrLimit = 16 << 10
	killGrace   = 2 * time.Second
)

// Config says which git program is used and how.
type Config struct {
	// Program is the git program; empty means the first git in PATH.
	Program string
	// Timeout bounds a single call; zero means DefaultTimeout.
	Timeout time.Duration
	// At is called before and after each run with git:SUBCOMMAND:before and git:SUBCOMMAND:after; nil = nobody is.
	At func(point string)
	// Logger gets what an operator would want to know of the repositories; nil discards it.
	Logger *slog.Logger
}

// Git runs the git program, isolated from the configuration of whoever runs orch.
type Git struct {
	program string
	timeout time.Duration
	log     *slog.Logger
	at      func(point string)
	env     []string
	version string
	statfs  func(dir string, fs *syscall.Statfs_t) error
}

// New finds the git program and checks that it is new enough (2.38).
func New(ctx context.Context, cfg Config) (*Git, error) {
	program := cfg.Program
	if program == "" {
		program = "git"
	}
	program, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("find the git program: %w", err)
	}
	g := &Git{program: program, timeout: cfg.Timeout, log: cfg.Logger, at: cfg.At, env: environment(os.Getenv("PATH")), statfs: syscall.Statfs}
	if g.timeout <= 0 {
		g.timeout = DefaultTimeout
	}
	if g.at == nil {
		g.at = func(string) {}
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	out, err := g.Run(ctx, "", nil, "version")
	if err != nil {
		return nil, fmt.Errorf("ask git for its version: %w", err)
	}
	g.version = strings.TrimPrefix(strings.TrimSpace(string(out)), "git version ")
	if !newEnough(g.version) {
		return nil, fmt.Errorf("%w: found %s", ErrTooOld, g.version)
	}
	return g, nil
}

// Version is what the git program says of itself, for example "2.39.5".
func (g *Git) Version() string { return g.version }

// Logger is where packages that work with g tell what an operator would want to know.
func (g *Git) Logger() *slog.Logger { return g.log }

// Run runs one git command with gitDir as its repository ("" for none) and returns what it printed.
// The call is isolated as doc.go tells; a failure is an *Error.
func (g *Git) Run(ctx context.Context, gitDir string, stdin []byte, args ...string) ([]byte, error) {
	return g.Do(ctx, Call{GitDir: gitDir, Stdin: stdin, Args: args})
}

// RunTree is Run with a work tree and, unless index is empty, an index file of the caller's own.
func (g *Git) RunTree(ctx context.Context, gitDir, workTree, index string, stdin []byte, args ...string) ([]byte, error) {
	return g.Do(ctx, Call{GitDir: gitDir, WorkTree: workTree, Index: index, Stdin: stdin, Args: args})
}

// RunHolding is RunTree for a process that shares a lock: it stays locked while the process lives, even without orch.
func (g *Git) RunHolding(ctx context.Context, lock *os.File, gitDir, workTree, index string, stdin []byte, args ...string) ([]byte, error) {
	return g.Do(ctx, Call{Hold: []*os.File{lock}, GitDir: gitDir, WorkTree: workTree, Index: index, Stdin: stdin, Args: args})
}

// Call is one run of git. What is empty isn't set.
type Call struct {
	GitDir, WorkTree, Index string
	Stdin                   []byte
	Args                    []string
	Config                  []string      // more "key=value" pairs
	Hold                    []*os.File    // locks that the process shares, so that they outlive orch with it
	Warnings                *string       // where to put what a successful call wrote to stderr
	Timeout                 time.Duration // less than what the program may take at all; zero = that
}

// Do is Run for a call that needs more than Run, RunTree and RunHolding have.
func (g *Git) Do(ctx context.Context, c Call) ([]byte, error) {
	timeout := g.timeout
	if c.Timeout > 0 {
		timeout = min(timeout, c.Timeout)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, ErrTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, g.program, c.Args...)
	cmd.Env = g.callEnv(c)
	cmd.Dir = c.WorkTree
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	if c.Stdin != nil {
		cmd.Stdin = bytes.NewReader(c.Stdin)
	}
	cmd.ExtraFiles = c.Hold
	stdout, stderr := &capped{limit: stdoutLimit}, &capped{limit: stderrLimit, truncate: true}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// A group of its own, so that an ending call takes its helpers (index-pack, upload-pack) along.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// SIGTERM first: git then removes its lock files.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = killGrace
	g.at("git:" + subcommand(c.Args) + ":before")
	err := cmd.Run()
	g.at("git:" + subcommand(c.Args) + ":after")
	if cause := context.Cause(ctx); cause != nil && err != nil {
		if cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
		return nil, fmt.Errorf("git %s: %w", subcommand(c.Args), cause)
	}
	if err != nil {
		if g.full(c.GitDir) || g.full(c.WorkTree) {
			err = errors.Join(err, syscall.ENOSPC)
		}
		return stdout.buf.Bytes(), newError(c.Args, err, stderr.buf.String())
	}
	if c.Warnings != nil {
		*c.Warnings = redact(stderr.buf.String())
	}
	return stdout.buf.Bytes(), nil
}

// full says whether the filesystem of dir has no room left. Git itself doesn't always say why it couldn't write, e.g. a ref.
func (g *Git) full(dir string) bool {
	const least = 16 // blocks
	var fs syscall.Statfs_t
	return dir != "" && g.statfs(dir, &fs) == nil && fs.Blocks > 0 && fs.Bavail < least
}

// noGrafts has a repository's history be what its commits say: grafts would hide or add parents, in that repository only.
const noGrafts = "GIT_GRAFT_FILE=/nonexistent"

// environment is what every git process gets: nothing of orch's own environment but PATH.
func environment(path string) []string {
	return []string{
		"PATH=" + path,
		"HOME=/nonexistent",
		"LC_ALL=C",
		"TZ=UTC",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_NO_REPLACE_OBJECTS=1",
		noGrafts,
		"GIT_NO_LAZY_FETCH=1",
		"GIT_ASKPASS=true",
		"SSH_ASKPASS=true",
		"GIT_SSH_COMMAND=ssh -oBatchMode=yes",
		"GIT_EDITOR=false",
		"GIT_PAGER=cat",
		"GIT_AUTHOR_NAME=orch", "GIT_AUTHOR_EMAIL=orch@localhost",
		"GIT_COMMITTER_NAME=orch", "GIT_COMMITTER_EMAIL=orch@localhost",
	}
}

// pinned is configuration that no repository may overrule: it is given as the command's own.
func pinned() []string {
	return []string{
		"safe.directory=*",
		"core.hooksPath=/dev/null",
		"core.fsmonitor=false",
		"core.pager=cat",
		"core.editor=false",
		"core.askPass=true",
		"core.gitProxy=",
		"core.alternateRefsCommand=:",
		"core.attributesFile=/dev/null",
		"core.excludesFile=/dev/null",
		"core.quotePath=false",
		"credential.helper=",
		"diff.external=",
		// The one filter with a well-known name. Whoever works in a checkout that has it says so with -c.
		"filter.lfs.clean=",
		"filter.lfs.smudge=",
		"filter.lfs.process=",
		"filter.lfs.required=false",
		"diff.ignoreSubmodules=dirty",
		"protocol.version=2", // lets commits be fetched by their id
		"protocol.allow=never",
		"protocol.file.allow=always",
		"protocol.http.allow=always",
		"protocol.https.allow=always",
		"protocol.ssh.allow=always",
		"protocol.ext.allow=never",
		"submodule.recurse=false",
		"fetch.recurseSubmodules=false",
		"fetch.writeCommitGraph=false",
		// What orch says it kept, landed or salvaged has to survive a power cut.
		"core.fsync=committed,loose-object,reference",
		"core.fsyncMethod=batch",
		"gc.auto=0",
		"maintenance.auto=false",
		"commit.gpgSign=false",
		"tag.gpgSign=false",
		"log.showSignature=false",
		"advice.detachedHead=false",
		"init.defaultBranch=main",
	}
}

func (g *Git) callEnv(c Call) []string {
	env := append([]string(nil), g.env...)
	pairs := append(pinned(), c.Config...)
	env = append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(len(pairs)))
	for i, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		n := strconv.Itoa(i)
		env = append(env, "GIT_CONFIG_KEY_"+n+"="+key, "GIT_CONFIG_VALUE_"+n+"="+value)
	}
	if c.GitDir != "" {
		env = append(env, "GIT_DIR="+c.GitDir)
	} else {
		env = append(env, "GIT_CEILING_DIRECTORIES=/")
	}
	if c.WorkTree != "" {
		env = append(env, "GIT_WORK_TREE="+c.WorkTree)
	}
	if c.Index != "" {
		env = append(env, "GIT_INDEX_FILE="+c.Index)
	}
	return env
}

// UploadPack has what a fetch from source needs so that its other side, if that is a directory, is as isolated as this
// one: git passes it neither configuration nor, therefore, the permission to read repositories of other users.
func (g *Git) UploadPack(source string) []string {
	if !filepath.IsAbs(source) {
		return nil
	}
	var b strings.Builder
	b.WriteString(noGrafts + " " + shellQuote(g.program))
	for _, pair := range []string{"safe.directory=*", "core.hooksPath=/dev/null", "core.fsmonitor=false", "protocol.ext.allow=never"} {
		b.WriteString(" -c " + shellQuote(pair))
	}
	b.WriteString(" upload-pack")
	return []string{"--upload-pack=" + b.String()}
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func newEnough(version string) bool {
	m := regexp.MustCompile(`^(\d+)\.(\d+)`).FindStringSubmatch(version)
	if m == nil {
		return false
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return major > 2 || major == 2 && minor >= 38
}

// capped keeps at most limit bytes; past it, it either drops the rest or fails the writer.
type capped struct {
	buf      bytes.Buffer
	limit    int
	truncate bool
}

func (c *capped) Write(p []byte) (int, error) {
	room := c.limit - c.buf.Len()
	if len(p) <= room {
		return c.buf.Write(p)
	}
	if !c.truncate {
		return 0, errOutput
	}
	c.buf.Write(p[:max(room, 0)])
	return len(p), nil
}

var errOutput = errors.New("git printed more than it may")
