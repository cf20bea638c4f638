package orchyaml

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"orch/internal/config"
)

func known(words []string) string {
	words = slices.Clone(words)
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// resolver turns a document into a File and collects what is wrong with it.
type resolver struct {
	doc      *document
	dir      string // that relative paths start from
	check    PromptCheck
	file     *File
	problems []error
}

// at gathers a problem's place; its result is called with the message.
func (r *resolver) at(path ...any) func(format string, args ...any) {
	return func(format string, args ...any) {
		r.problems = append(r.problems, &ProblemError{File: r.doc.path, Line: r.doc.line(path...), Message: fmt.Sprintf(format, args...)})
	}
}

func (r *resolver) duration(text string, path ...any) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		r.at(path...)("%s: %q is no duration above zero, such as 90s, 45m or 2h", path[len(path)-1], text)
		return 0
	}
	return d
}

func (r *resolver) choice(value, fallback string, allowed []string, path ...any) string {
	if value == "" {
		return fallback
	}
	if !slices.Contains(allowed, value) {
		r.at(path...)("%s: %q isn't known here; allowed: %s", path[len(path)-1], value, known(allowed))
	}
	return value
}

func (r *resolver) repos() {
	lines, places := map[string]int{}, map[string]string{}
	for i, raw := range r.doc.data.Repos {
		if !config.ValidName(raw.Name) {
			r.at("repos", i, "name")("repository %d needs a name: %s; it says %q", i+1, config.NameRule, raw.Name)
			continue
		}
		if line, twice := lines[raw.Name]; twice {
			r.at("repos", i, "name")("repository %s was defined on line %d already", raw.Name, line)
			continue
		}
		lines[raw.Name] = r.doc.line("repos", i, "name")
		repo := r.repo(i, raw)
		place := repo.Path + "\x00" + repo.Base
		if other, twice := places[place]; twice && repo.Path != "" {
			r.at("repos", i, "path")("repositories %s and %s are the same: branch %s of %s", other, repo.Name, repo.Base, repo.Path)
		}
		places[place] = repo.Name
		r.file.Repos = append(r.file.Repos, repo)
	}
}

func (r *resolver) repo(i int, raw repoYAML) Repo {
	repo := Repo{
		Name:     raw.Name,
		Forge:    r.choice(raw.Forge, ForgeLocal, []string{ForgeLocal}, "repos", i, "forge"),
		Path:     r.repoPath(i, raw),
		Base:     raw.Base,
		Pipeline: raw.Pipeline,
		Setup:    raw.Setup,
		Test:     raw.Test,
		Land:     r.choice(raw.Land, LandAuto, []string{LandAuto, LandManual}, "repos", i, "land"),
		Batch:    r.batch(i, raw),
	}
	if repo.Base == "" {
		repo.Base = defaultBase
	}
	if repo.Pipeline == "" {
		repo.Pipeline = DefaultPipeline
	}
	switch strings.TrimSpace(raw.Test) {
	case "":
		r.at("repos", i, "test")("repository %s has no test: give the command that decides whether a change may land, or say `test: %s`", raw.Name, TestNone)
		return repo
	case TestNone:
		repo.Test = ""
	}
	// A pipeline that is broken itself has been reported where it stands.
	if _, defined := r.doc.data.Pipelines[repo.Pipeline]; defined {
		if _, resolved := r.file.pipelines[repo.Pipeline]; !resolved {
			return repo
		}
	}
	if _, err := r.file.ResolvePipeline(repo, repo.Pipeline); err != nil {
		r.at("repos", i, "pipeline")("repository %s: %v", raw.Name, err)
	}
	return repo
}

// batch is how many changes of a repository may be tested and landed together.
func (r *resolver) batch(i int, raw repoYAML) int {
	if raw.Batch == nil {
		return 1
	}
	n, is := raw.Batch.(uint64)
	if !is || n < 1 || n > maxBatch {
		r.at("repos", i, "batch")("repository %s: batch must be from 1 to %d, and it says %s", raw.Name, maxBatch, written(raw.Batch))
		return 1
	}
	return int(n)
}

func (r *resolver) repoPath(i int, raw repoYAML) string {
	switch {
	case raw.Path == "":
		r.at("repos", i, "path")("repository %s needs a path: a bare or normal git repository on this machine", raw.Name)
		return ""
	case strings.HasPrefix(raw.Path, "~"):
		r.at("repos", i, "path")("repository %s: ~ has no meaning here; write the path out", raw.Name)
		return ""
	case strings.Contains(raw.Path, "://"):
		r.at("repos", i, "path")("repository %s: path takes a directory on this machine, not a URL", raw.Name)
		return ""
	case filepath.IsAbs(raw.Path):
		return filepath.Clean(raw.Path)
	}
	return filepath.Join(r.dir, raw.Path)
}
