package gate

import (
	"context"
	"fmt"
	"strings"

	"orch/internal/queue"
)

// maxNamedPaths bounds how many paths a reason names.
const maxNamedPaths = 10

// commits passes when the branch holds work of its own and the workspace holds nothing that isn't committed.
func (r *Registry) commits(ctx context.Context, l *queue.Lease, d Definition, s Subject) (Result, error) {
	result := Result{Name: d.Name, Outcome: Pass}
	if reason := commitsReason(s); reason != "" {
		result.Outcome, result.Reason = Fail, Tail(reason, r.cfg.TailBytes)
	}
	return r.keep(ctx, l, d, s, result)
}

func commitsReason(s Subject) string {
	nothing := s.Commit == "" || s.Upstream || s.Commit == s.BaseCommit
	dirty := namePaths(s.Dirty)
	switch {
	case nothing && dirty == "":
		return "the branch has no commit of its own: make the change and commit it on the current branch"
	case nothing:
		return "nothing was committed: commit the work on the current branch. Changed but not committed: " + dirty
	case dirty != "":
		return "the workspace has changes that aren't committed: commit them on the current branch, or remove or ignore what doesn't belong to the change. Paths: " + dirty
	}
	return ""
}

// namePaths lists the first paths, quoted where a name holds anything that could be taken for more than a name.
func namePaths(paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	shown := make([]string, 0, maxNamedPaths)
	for _, path := range paths[:min(len(paths), maxNamedPaths)] {
		if quoted := fmt.Sprintf("%q", path); quoted != `"`+path+`"` || strings.ContainsAny(path, " ,") {
			path = quoted
		}
		shown = append(shown, path)
	}
	list := strings.Join(shown, ", ")
	if more := len(paths) - len(shown); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}
