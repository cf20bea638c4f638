package orchyaml

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// ErrRepoExists says that the file has that repository, be it by another name.
var ErrRepoExists = errors.New("the repository is configured already")

// NameTakenError says that the file has another repository of that name.
type NameTakenError struct{ Name, File string }

// Error implements error.
func (e *NameTakenError) Error() string {
	return fmt.Sprintf("the name %s is taken in %s; choose another with --name", e.Name, e.File)
}

// RepoEntry is a repository as AddRepo writes it; empty fields are left out and get their defaults when read.
type RepoEntry struct {
	Name     string
	Path     string
	Base     string
	Pipeline string
	Setup    string
	Test     string // TestNone when there is none on purpose
	Land     string
}

const newFile = `# What orch works on. docs/configuration.md explains every key.

agents:
  # The agent program. It starts in a checkout of its own, reads its task from standard input, and commits its work.
  coder:
    preset: command
    command: %s
    timeout: 1h

`

// Template is the beginning of a new orch.yaml, with one agent that runs agentCommand. When that is empty the agent
// fails with a message that says what to edit.
func Template(agentCommand string) string {
	if agentCommand == "" {
		agentCommand = placeholder
	}
	return fmt.Sprintf(newFile, scalar(agentCommand))
}

// placeholder stands in files that were made long ago too: what is recognised may grow, not change.
const placeholder = "echo 'edit agents.coder.command in orch.yaml: it does not say yet which agent program to run' >&2; exit 1"

// Placeholder says whether the agent is still the one of Template(""), which does nothing but fail.
func (a Agent) Placeholder() bool { return strings.TrimSpace(a.Command.Shell) == placeholder }

// AddRepo adds entry to the repositories in the file at path and changes nothing else in it, comments included. A
// file that doesn't exist is made from Template(""). The result is read back as LoadFile does, with check, before it
// replaces the file, so that what AddRepo writes can be loaded.
func AddRepo(path string, entry RepoEntry, check PromptCheck) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // replace the file, not the link to it
	}
	content, err := readLimited(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		content = []byte(Template(""))
	case err != nil:
		return fmt.Errorf("add repository: %w", err)
	}
	changed, err := withRepo(path, content, entry, check)
	if err != nil {
		return fmt.Errorf("add repository %s: %w", entry.Name, err)
	}
	if err := replaceFile(path, changed); err != nil {
		return fmt.Errorf("add repository %s: %w", entry.Name, err)
	}
	return nil
}

func withRepo(path string, content []byte, entry RepoEntry, check PromptCheck) ([]byte, error) {
	doc, err := decodeFile(path, content)
	if err != nil {
		return nil, err
	}
	for _, repo := range doc.data.Repos {
		same := entry.sameAs(repo, filepath.Dir(path))
		switch {
		case same && repo.Name == entry.Name:
			return nil, fmt.Errorf("%w: %s", ErrRepoExists, path)
		case same:
			return nil, fmt.Errorf("%w, as %s: %s", ErrRepoExists, repo.Name, path)
		case repo.Name == entry.Name:
			return nil, &NameTakenError{Name: entry.Name, File: path}
		}
	}
	changed, err := doc.insert(content, entry)
	if err != nil {
		return nil, err
	}
	file, err := parseFile(path, changed, check)
	if err != nil {
		return nil, err
	}
	after, err := decodeFile(path, changed)
	if err != nil {
		return nil, err
	}
	// Text was put into text: prove that the file says what it said before, and one repository more.
	n := len(doc.data.Repos)
	if len(file.Repos) != n+1 || !reflect.DeepEqual(append(doc.data.Repos, entry.raw()), after.data.Repos) ||
		!reflect.DeepEqual(doc.data.Agents, after.data.Agents) || !reflect.DeepEqual(doc.data.Budgets, after.data.Budgets) ||
		!reflect.DeepEqual(doc.data.Pipelines, after.data.Pipelines) {
		return nil, handMade(path, entry)
	}
	return changed, nil
}

func handMade(path string, entry RepoEntry) error {
	return fmt.Errorf("the repositories in %s are written in a way that can't be added to automatically; add this to the list under repos:\n%s",
		path, entry.block(defaultIndent))
}

const defaultIndent = "  "

// insert puts entry after the last repository, or under a new repos: at the end.
func (d *document) insert(content []byte, entry RepoEntry) ([]byte, error) {
	lines := bytes.SplitAfter(content, []byte("\n"))
	if last := len(lines) - 1; len(lines[last]) == 0 {
		lines = lines[:last]
	} else {
		lines[last] = append(bytes.Clone(lines[last]), '\n')
	}
	at, list := d.repos()
	switch {
	case at == 0:
		return join(lines, []byte("repos:\n"+entry.block(defaultIndent))), nil
	case list == nil || len(list.Values) == 0:
		// `repos:` with nothing in it, or with an empty list on the same line.
		head := []byte("repos:\n" + entry.block(defaultIndent))
		if comment := bytes.IndexByte(lines[at-1], '#'); comment >= 0 {
			head = append(bytes.Clone(lines[at-1][comment:]), head...)
		}
		return join(lines[:at-1], head, bytes.Join(lines[at:], nil)), nil
	case list.IsFlowStyle:
		return nil, handMade(d.path, entry)
	}
	indent := list.Start.Position.Column - 1
	end := endOfList(lines, at, indent)
	return join(lines[:end], []byte(entry.block(strings.Repeat(" ", indent))), bytes.Join(lines[end:], nil)), nil
}

// repos finds the key repos: its line, counted from 1 (0: there is none), and its list.
func (d *document) repos() (int, *ast.SequenceNode) {
	mapping, ok := d.root.(*ast.MappingNode)
	if !ok {
		return 0, nil
	}
	for _, value := range mapping.Values {
		if keyOf(value) == "repos" {
			list, _ := unwrap(value.Value).(*ast.SequenceNode)
			return lineOf(value.Key), list
		}
	}
	return 0, nil
}

// endOfList answers the number of lines up to the end of the list that begins after line at and whose dashes are
// indented by indent. Comments that are indented no deeper than the dashes, and empty lines, belong to what follows
// when they are last.
func endOfList(lines [][]byte, at, indent int) int {
	end := at
	for i := at; i < len(lines); i++ {
		text := bytes.TrimRight(lines[i], " \t\r\n")
		trimmed := bytes.TrimLeft(text, " ")
		depth := len(text) - len(trimmed)
		switch {
		case len(trimmed) == 0:
		case trimmed[0] == '#' && depth <= indent:
		case depth > indent, depth == indent && (bytes.HasPrefix(trimmed, []byte("- ")) || string(trimmed) == "-"):
			end = i + 1
		default:
			return end
		}
	}
	return end
}

func join(lines [][]byte, more ...[]byte) []byte {
	return append(bytes.Join(lines, nil), bytes.Join(more, nil)...)
}

func (e RepoEntry) raw() repoYAML {
	return repoYAML{Name: e.Name, Forge: ForgeLocal, Path: e.Path, Base: e.Base, Pipeline: e.Pipeline, Setup: e.Setup, Test: e.Test, Land: e.Land}
}

// sameAs says whether two entries of a file in dir are the same branch of the same repository.
func (e RepoEntry) sameAs(other repoYAML, dir string) bool {
	place := func(path, base string) string {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		return filepath.Clean(path) + "\x00" + cmp.Or(base, defaultBase)
	}
	return place(e.Path, e.Base) == place(other.Path, other.Base)
}

func (e RepoEntry) block(indent string) string {
	raw := e.raw()
	var b strings.Builder
	lead := "- "
	for _, pair := range [][2]string{
		{"name", raw.Name},
		{"forge", raw.Forge},
		{"path", raw.Path},
		{"base", raw.Base},
		{"pipeline", raw.Pipeline},
		{"setup", raw.Setup},
		{"test", raw.Test},
		{"land", raw.Land},
	} {
		if pair[1] == "" {
			continue
		}
		fmt.Fprintf(&b, "%s%s%s: %s\n", indent, lead, pair[0], scalar(pair[1])) // a Builder never fails
		lead = "  "
	}
	return b.String()
}

// scalar writes text so that YAML reads exactly it, plainly where that is possible.
func scalar(text string) string {
	var read map[string]any
	err := yaml.Unmarshal([]byte("key: "+text+"\n"), &read)
	if got, ok := read["key"].(string); err == nil && ok && got == text && len(read) == 1 && !strings.ContainsAny(text, "#&*!|>'\"%@`{}[]\n\t\\") {
		return text
	}
	var quoted strings.Builder // a JSON string is a YAML string
	enc := json.NewEncoder(&quoted)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(text); err != nil {
		return "''" // strings always encode
	}
	return strings.TrimSuffix(quoted.String(), "\n")
}

// replaceFile writes content beside path and renames it over, so that a reader sees the old or the new file whole.
func replaceFile(path string, content []byte) (err error) {
	mode := os.FileMode(0o600)
	if info, statErr := os.Stat(path); statErr == nil {
		mode = info.Mode().Perm()
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".orch.yaml-*")
	if err != nil {
		return fmt.Errorf("write beside it: %w", err)
	}
	defer func() {
		if err != nil {
			_ = tmp.Close() // closed already when the rename failed
			_ = os.Remove(tmp.Name())
		}
	}()
	if _, err = tmp.Write(content); err != nil {
		return fmt.Errorf("write beside it: %w", err)
	}
	if err = tmp.Chmod(mode); err != nil {
		return fmt.Errorf("set its mode: %w", err)
	}
	if err = tmp.Sync(); err != nil {
		return fmt.Errorf("flush it: %w", err)
	}
	if err = tmp.Close(); err != nil {
		return fmt.Errorf("close it: %w", err)
	}
	return os.Rename(tmp.Name(), path)
}
