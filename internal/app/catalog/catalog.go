// Package catalog knows how each task is to be done: by orch.yaml as it is now, or by what the task brought along.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"orch/internal/config"
	"orch/internal/config/orchyaml"
	"orch/internal/stage/prompt"
	"orch/internal/task"
	"orch/internal/task/flow"
)

// Catalog knows how each task is to be done: by orch.yaml as it is now, or by what the task brought along. An orch.yaml
// that was edited is read again; a bad edit leaves the last good one in force.
type Catalog struct {
	data  config.Data
	gated config.Merge // a repository that it leaves out is never landed
	log   *slog.Logger

	mu     sync.Mutex
	file   *orchyaml.File
	stamp  stamp
	status Status
}

// stamp tells whether a file may have changed.
type stamp struct {
	modified time.Time
	size     int64
}

// Status is what /queue says about orch.yaml.
type Status struct {
	Status   string // ok, none or error
	LoadedAt time.Time
	Err      error
}

// New reads orch.yaml. A file that can't be used stops the start.
func New(data config.Data, gated config.Merge, log *slog.Logger) (*Catalog, error) {
	c := &Catalog{data: data, gated: gated, log: log}
	file, err := LoadFile(data)
	if err != nil {
		return nil, err
	}
	c.stamp = c.look()
	c.take(file)
	return c, nil
}

// LoadFile reads orch.yaml. Without one, and none asked for by ORCH_CONFIG, it answers an empty File.
func LoadFile(data config.Data) (*orchyaml.File, error) {
	file, err := orchyaml.LoadFile(data.File, prompt.Check)
	if errors.Is(err, fs.ErrNotExist) && !data.FileGiven {
		return &orchyaml.File{Path: data.File}, nil
	}
	return file, err
}

func (c *Catalog) look() stamp {
	info, err := os.Stat(c.data.File)
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size()}
}

func (c *Catalog) take(file *orchyaml.File) {
	c.file = file
	c.status = Status{Status: "ok", LoadedAt: time.Now()}
	if c.stamp == (stamp{}) {
		c.status.Status = "none"
	}
	// A mistyped name would leave every task to a person, and nobody would know why.
	if unknown := c.gated.Unknown(file.RepoNames()); len(unknown) > 0 {
		c.log.Warn("ORCH_MERGE_GATE_REPOS names repositories that orch.yaml doesn't have: what is left out isn't landed",
			slog.String("file", c.data.File), slog.Any("unknown", unknown))
	}
}

// Current is orch.yaml as it is in force.
func (c *Catalog) Current(ctx context.Context) *orchyaml.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.look()
	if now == c.stamp {
		return c.file
	}
	c.stamp = now
	file, err := LoadFile(c.data)
	if err == nil && now == (stamp{}) {
		err = fmt.Errorf("%s is gone", c.data.File) // an editor may be about to put the new one there
	}
	if err != nil {
		c.status.Status, c.status.Err = "error", err
		c.log.ErrorContext(ctx, "orch.yaml can't be used: the last good one stays in force",
			slog.String("file", c.data.File), slog.Any("error", err))
		return c.file
	}
	c.take(file)
	c.log.InfoContext(ctx, "orch.yaml read again", slog.String("file", c.data.File), slog.Int("repositories", len(file.Repos)))
	return c.file
}

// State says how orch.yaml is.
func (c *Catalog) State(ctx context.Context) Status {
	c.Current(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Pipeline implements task.Catalog.
func (c *Catalog) Pipeline(ctx context.Context, t task.Task) (flow.Pipeline, error) {
	p, err := c.Plan(ctx, t)
	return p.Pipeline, err
}

// RepoName makes a name for keys, branches and paths from where a repository is.
func RepoName(location string) string {
	name := strings.TrimSuffix(filepath.Base(location), ".git")
	name = regexp.MustCompile(`[^a-z0-9_-]+`).ReplaceAllString(strings.ToLower(name), "-")
	name = strings.Trim(name, "-_")
	if name == "" {
		return "repo"
	}
	return name[:min(len(name), 40)]
}
