package git

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"orch/internal/git/gitcmd"
)

// mergeTrees is the tree of merging two commits. What git says of a conflict counts, and not its exit status alone: of a renamed
// file that conflicts and meets another one of its name, git 2.39 says that it does, calls the merge clean all the same, and
// leaves conflict markers in the tree.
func (m *Mirror) mergeTrees(ctx context.Context, ours, theirs string) (string, error) {
	out, err := m.read(ctx, "merge-tree", "--write-tree", "-z", "--name-only", "--messages", ours, theirs)
	fields := gitcmd.SplitNUL(out)
	switch {
	case err != nil && (gitcmd.ExitCode(err) != 1 || len(fields) == 0 || !gitcmd.IsID(fields[0])):
		return "", fmt.Errorf("merge trees: %w", err)
	case len(fields) == 0 || !gitcmd.IsID(fields[0]):
		return "", fmt.Errorf("merge trees: git gave no tree but %.100q", out)
	}
	if paths := conflicting(fields[1:]); err != nil || len(paths) > 0 {
		return "", &ConflictError{Paths: paths}
	}
	return fields[0], nil
}

// conflicting are the paths with conflicts of what merge-tree says after the tree: names, an empty field, and messages, each as
// a count of paths, these, its type and its text. Where there are names, they are all.
func conflicting(fields []string) []string {
	names, messages := fields, []string(nil)
	if end := slices.Index(fields, ""); end >= 0 {
		names, messages = fields[:end], fields[end+1:]
	}
	if len(names) > 0 {
		return slices.Compact(slices.Clone(names))
	}
	var paths []string
	for len(messages) > 2 {
		n, err := strconv.Atoi(messages[0])
		if err != nil || n < 0 || n > len(messages)-3 {
			break
		}
		if strings.HasPrefix(messages[n+1], "CONFLICT") {
			paths = append(paths, messages[1:n+1]...)
		}
		messages = messages[n+3:]
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
