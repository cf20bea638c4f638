package checkout

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"orch/internal/forge"
	"orch/internal/forge/local/gitdir"
	"orch/internal/forge/local/indexlock"
	"orch/internal/forge/local/problem"
	"orch/internal/lfs"
)

// Ready refuses a landing on a branch while work trees couldn't follow it.
func (k *Keeper) Ready(ctx context.Context, all []Checkout, branch string) error {
	for _, c := range all {
		if what := unfinished(c, branch); what != "" {
			return problem.New(forge.CodeUnfinished, "finish or abort it", "%s has an unfinished %s on %s", c.WorkTree, what, branch)
		}
	}
	for _, c := range Having(all, branch) {
		if err := k.clean(ctx, c, branch); err != nil {
			return err
		}
		if err := k.unfiltered(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// unfinished names the operation that is under way in a checkout and would end on branch.
func unfinished(c Checkout, branch string) string {
	for file, what := range map[string]string{
		"MERGE_HEAD": "merge", "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert",
		"rebase-merge": "rebase", "rebase-apply": "rebase", "sequencer": "cherry-pick or revert",
	} {
		path := filepath.Join(c.GitDir, file)
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		// A rebase detaches HEAD and moves its branch at its end.
		rebased, _ := gitdir.ReadFile(filepath.Join(path, "head-name"))
		if c.Branch == "refs/heads/"+branch || strings.TrimSpace(string(rebased)) == "refs/heads/"+branch {
			return what
		}
	}
	return ""
}

// clean refuses a checkout with changes that weren't committed, or whose index is in use.
func (k *Keeper) clean(ctx context.Context, c Checkout, branch string) error {
	lock := filepath.Join(c.GitDir, "index.lock")
	if _, err := os.Lstat(lock); err == nil && !indexlock.Stale(lock) {
		return problem.Locked(lock)
	}
	flags, err := k.filterFlags(ctx, c.GitDir)
	if err != nil {
		return err
	}
	args := slices.Concat(flags, []string{"status", "--porcelain=v2", "-z", "--untracked-files=no", "--ignore-submodules=dirty", "--no-renames"})
	out, err := k.git.RunTree(ctx, c.GitDir, c.WorkTree, "", nil, args...)
	if err != nil {
		return fmt.Errorf("look for changes in %s: %w", c.WorkTree, problem.Translate(err))
	}
	changed := changedPaths(splitNUL(out))
	if len(changed) == 0 {
		return nil
	}
	return problem.New(forge.CodeDirty, "commit or stash them, or check out another branch there",
		"%s has %s checked out with uncommitted changes: %s", c.WorkTree, branch, some(changed))
}

// changedPaths are the paths in entries of git status. A submodule that isn't at the commit that is linked doesn't count:
// no landing touches it, and after one that moved the link it is so until its owner lets it follow.
func changedPaths(entries []string) []string {
	var paths []string
	for _, e := range entries {
		meta := strings.Fields(e) // kind, state in index and work tree, state of the submodule
		if len(meta) < 3 || meta[0] == "1" && meta[1] == ".M" && strings.HasPrefix(meta[2], "S") {
			continue
		}
		fields := strings.SplitN(e, " ", map[string]int{"1": 9, "u": 11}[meta[0]]) // the path is the last
		paths = append(paths, fields[len(fields)-1])
	}
	return paths
}

// lfsFilter is the one filter that orch runs, in git-lfs's own words, never the repository's.
const lfsFilter = "lfs"

// filters are the names of the filters that a repository's own configuration defines.
func (k *Keeper) filters(ctx context.Context, gitDir string) ([]string, error) {
	out, err := k.git.Run(ctx, gitDir, nil, "config", "--show-scope", "--name-only", "-z", "--get-regexp", `^filter\.`)
	if problem.ExitCode(err) == 1 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read filters of %s: %w", gitDir, err)
	}
	var names []string
	fields := splitNUL(out)
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] == "command" { // the runner's
			continue
		}
		name := strings.TrimPrefix(fields[i+1], "filter.")
		if dot := strings.LastIndexByte(name, '.'); dot > 0 {
			names = append(names, name[:dot])
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// filterFlags are flags for git with which it runs none of the repository's filters: their input would be
// what an agent wrote. Where the repository has a filter for LFS, or large files of it, git-lfs is run if it is installed: its
// filter is set up in its user's own configuration, as a rule, which git isn't given here.
func (k *Keeper) filterFlags(ctx context.Context, gitDir string) ([]string, error) {
	names, err := k.filters(ctx, gitDir)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(names, lfsFilter) && lfs.Of(gitdir.Common(gitDir)).Exists() {
		names = append(names, lfsFilter)
	}
	var flags []string
	for _, name := range names {
		if strings.Contains(name, "=") {
			return nil, problem.New(forge.CodeFilters, "rename it", "the filter %q can't be switched off", name)
		}
		settings := []string{"clean=", "smudge=", "process=", "required=false"}
		if _, err := exec.LookPath("git-lfs"); name == lfsFilter && err == nil {
			settings = []string{"clean=git-lfs clean -- %f", "smudge=git-lfs smudge -- %f", "process=git-lfs filter-process", "required=true"}
		}
		for _, setting := range settings {
			flags = append(flags, "-c", "filter."+name+"."+setting)
		}
	}
	return flags, nil
}

// unfiltered refuses a checkout whose files go through a filter, since what Follow would write isn't what is expected there.
func (k *Keeper) unfiltered(ctx context.Context, c Checkout) error {
	names, err := k.filters(ctx, c.GitDir)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == lfsFilter })
	if len(names) == 0 {
		return nil
	}
	files, err := k.git.RunTree(ctx, c.GitDir, c.WorkTree, "", nil, "ls-files", "-z")
	if err != nil {
		return fmt.Errorf("list files of %s: %w", c.WorkTree, err)
	}
	out, err := k.git.RunTree(ctx, c.GitDir, c.WorkTree, "", files, "check-attr", "-z", "--stdin", "filter")
	if err != nil {
		return fmt.Errorf("read attributes of %s: %w", c.WorkTree, err)
	}
	fields := splitNUL(out)
	for i := 0; i+2 < len(fields); i += 3 {
		if slices.Contains(names, fields[i+2]) {
			return problem.New(forge.CodeFilters, "check out another branch there, or give a bare repository",
				"%s uses the filter %q for %s, which orch does not run", c.WorkTree, fields[i+2], fields[i])
		}
	}
	return nil
}

// some names a few of many paths.
func some(paths []string) string {
	const few = 5
	if len(paths) <= few {
		return strings.Join(paths, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(paths[:few], ", "), len(paths)-few)
}

func splitNUL(out []byte) []string {
	s := strings.TrimSuffix(string(out), "\x00")
	if s == "" {
		return nil
	}
	return strings.Split(s, "\x00")
}
