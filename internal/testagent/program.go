package testagent

import (
	_ "embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

//go:embed script.sh
var script string

// Kind is how a run of a program goes.
type Kind string

// The kinds. Each program has its own way to say them.
const (
	Works       Kind = "ok"           // it ends well
	Asks        Kind = "question"     // it ends with the question Question, by the way that the program has
	Quota       Kind = "quota"        // the account's limit is met; it is over when Turn.Lasts is
	RateLimited Kind = "rate_limited" // too many requests
	Auth        Kind = "auth"         // no login
	NoResult    Kind = "no_result"    // it ends with 0 and doesn't say how the work ended
)

// Question is what programs ask.
const Question = "Which way?"

// Turn is what a program does in one start: it prints the transcript up to its middle, waits, works, and prints the rest.
type Turn struct {
	Kind Kind
	// Print names another transcript than that of the kind, Code is its exit code.
	Print string
	Code  int
	// Replace are pairs of what is said instead of something in the transcript.
	Replace []string
	// Lasts makes the turn one of each start until so long after the first of them, in whole seconds; limits name that time
	// as the one of their reset. Without it a turn is for one start. The last turn is for all further ones.
	Lasts time.Duration
	// Split is how many lines come before the work; zero is all but the last. InTool is the first line that tells of a tool
	// instead: with Hold or Sleep, the tool is a slow one.
	Split  int
	InTool bool
	// Hold is a file that is waited for after the first part, Sleep a time.
	Hold  string
	Sleep time.Duration
	// Work is a shell script, run in the working directory between the parts.
	Work string
}

// Agent is a program that tells of its runs as the program of a format does.
type Agent struct {
	// Format is claude, codex, gemini, opencode, aider or command.
	Format string
	Turns  []Turn
	// PerDir counts the starts of each working directory for itself.
	PerDir bool
}

// Program is an Agent that was installed.
type Program struct {
	Path  string
	state string
}

// Call is one start of a program.
type Call struct {
	// Args are those after the program's name.
	Args   []string
	Dir    string
	Prompt string
	Env    []string
	// Session is empty when one was to be resumed that isn't there.
	Session string
}

// Install writes the program into a directory, by its name: something to put on a PATH. It keeps its state beside it,
// until the directory is removed.
func Install(tb testing.TB, dir, name string, a Agent) *Program {
	tb.Helper()
	p := &Program{Path: filepath.Join(dir, name), state: filepath.Join(dir, "."+name)}
	for _, sub := range []string{"calls", "sessions", "turns"} {
		mkdir(tb, filepath.Join(p.state, sub))
	}
	if a.PerDir {
		write(tb, filepath.Join(p.state, "per-dir"), "")
	}
	manner, known := manners()[a.Format]
	if !known {
		tb.Fatalf("no program of format %q", a.Format)
	}
	lost := ""
	if manner.lost.print != "" {
		lost = manner.general(string(Recorded(tb, a.Format, manner.lost.print)))
	}
	write(tb, filepath.Join(p.state, "lost"), lost)
	write(tb, filepath.Join(p.state, "lost.code"), strconv.Itoa(manner.lost.code))
	for i, turn := range a.Turns {
		turn.write(tb, filepath.Join(p.state, "turns", strconv.Itoa(i)), a.Format, manner)
	}
	text := strings.NewReplacer("@STATE@", quote(p.state), "@FORMAT@", quote(a.Format)).Replace(script)
	executable(tb, p.Path, text)
	return p
}

// Calls are the starts so far, in their order.
func (p *Program) Calls(tb testing.TB) []Call {
	tb.Helper()
	var calls []Call
	for n := 0; ; n++ {
		dir := filepath.Join(p.state, "calls", strconv.Itoa(n))
		if _, err := os.Stat(filepath.Join(dir, "ready")); errors.Is(err, fs.ErrNotExist) {
			return calls
		}
		call := Call{
			Dir: strings.TrimSuffix(read(tb, dir, "dir"), "\n"), Prompt: read(tb, dir, "prompt"),
			Env: strings.Split(strings.TrimSpace(read(tb, dir, "env")), "\n"), Session: strings.TrimSpace(read(tb, dir, "session")),
		}
		if args := read(tb, dir, "argv"); args != "\x00" { // printf prints an empty word when there is none
			call.Args = strings.Split(strings.TrimSuffix(args, "\x00"), "\x00")
		}
		calls = append(calls, call)
	}
}

// write writes what the script reads of a turn.
func (t Turn) write(tb testing.TB, dir, format string, m manner) {
	tb.Helper()
	mkdir(tb, dir)
	way, known := m.ways[t.Kind]
	if t.Print != "" {
		way, known = says(t.Print, t.Code), true
	}
	if !known {
		tb.Fatalf("%s has no turn of kind %q", format, t.Kind)
	}
	first, rest := t.parts(tb, format, way, m)
	var sums strings.Builder
	for name, sum := range m.sums {
		sums.WriteString(name + " " + strconv.Itoa(sum.each) + "\n")
	}
	files := map[string]string{"first": first, "rest": rest, "code": strconv.Itoa(way.code), "sums": sums.String()}
	if t.Hold != "" {
		files["hold"] = t.Hold
	}
	if t.Work != "" {
		files["work"] = t.Work + "\n"
	}
	if t.Lasts > 0 {
		files["lasts"] = strconv.Itoa(int(t.Lasts.Seconds()))
	}
	if t.Sleep > 0 {
		files["sleep"] = strconv.FormatFloat(t.Sleep.Seconds(), 'f', 3, 64)
	} else if way.sleeps {
		files["sleep"] = "36000"
	}
	for name, content := range files {
		write(tb, filepath.Join(dir, name), content)
	}
}

// parts is what is printed before and after the work.
func (t Turn) parts(tb testing.TB, format string, w way, m manner) (first, rest string) {
	tb.Helper()
	text := strings.NewReplacer(append(w.replace, t.Replace...)...).Replace(string(Recorded(tb, format, w.print)))
	lines := strings.SplitAfter(m.general(text), "\n")
	lines = lines[:len(lines)-1] // each line has its newline
	split := len(lines) - 1
	switch {
	case t.InTool:
		split = 1 + slices.IndexFunc(lines, func(line string) bool {
			return strings.Contains(line, `"tool_use"`) || strings.Contains(line, `"item.started"`)
		})
	case t.Split > 0:
		split = min(t.Split, len(lines))
	case w.sleeps:
		split = len(lines)
	}
	return strings.Join(lines[:split], ""), strings.Join(lines[split:], "")
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func mkdir(tb testing.TB, dir string) {
	tb.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
}

func write(tb testing.TB, path, content string) {
	tb.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// executable writes a script while nobody forks: a child would hold it open for writing until its exec, and what is
// open for writing can't be run.
func executable(tb testing.TB, path, text string) {
	tb.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		tb.Fatal(err)
	}
}

func read(tb testing.TB, dir, name string) string {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		tb.Fatal(err)
	}
	return string(raw)
}
