package checkout

import (
	"context"
	"fmt"
	"strings"
)

// change is one path that differs between two commits.
type change struct {
	status byte   // A, D, M or T
	mode   string // in the newer one; all zeros when it isn't there
	id     string
	path   string
}

func (k *Keeper) changes(ctx context.Context, gitDir, old, to string) ([]change, error) {
	out, err := k.git.Run(ctx, gitDir, nil, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--no-ext-diff", old, to)
	if err != nil {
		return nil, fmt.Errorf("compare %.12s with %.12s: %w", old, to, err)
	}
	fields := splitNUL(out)
	var changes []change
	for i := 0; i+1 < len(fields); i += 2 {
		meta := strings.Fields(fields[i])
		if len(meta) != 5 {
			return nil, fmt.Errorf("compare %.12s with %.12s: unexpected %q", old, to, fields[i])
		}
		changes = append(changes, change{status: meta[4][0], mode: meta[1], id: meta[3], path: fields[i+1]})
	}
	return changes, nil
}
