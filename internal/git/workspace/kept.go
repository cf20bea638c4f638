package workspace

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"orch/internal/git"
)

// Kept is one salvage that a mirror holds.
type Kept struct {
	Ref    string
	Commit string
	n      int
}

func salvagePrefix(key string) string { return "refs/orch/salvage/" + key + "/" }

// Salvages has what the mirror keeps of the task with that key, the oldest first.
func Salvages(ctx context.Context, m *git.Mirror, key string) ([]Kept, error) {
	list, err := salvagesBelow(ctx, m, salvagePrefix(key))
	if err != nil {
		return nil, fmt.Errorf("list salvages of %s: %w", key, err)
	}
	return list, nil
}

// NextSalvageRef names the salvage after the last one that the mirror has of the task with that key.
func NextSalvageRef(ctx context.Context, m *git.Mirror, key string) (string, error) {
	list, err := Salvages(ctx, m, key)
	if err != nil {
		return "", err
	}
	last := 0
	if len(list) > 0 {
		last = list[len(list)-1].n
	}
	return salvagePrefix(key) + strconv.Itoa(last+1), nil
}

func salvagesBelow(ctx context.Context, m *git.Mirror, prefix string) ([]Kept, error) {
	out, err := m.Git().Run(ctx, m.Dir(), nil, "for-each-ref", "--format=%(objectname) %(refname)", prefix)
	if err != nil {
		return nil, err
	}
	var list []Kept
	for line := range strings.Lines(string(out)) {
		id, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.Atoi(strings.TrimPrefix(ref, prefix)); err == nil {
			list = append(list, Kept{Ref: ref, Commit: id, n: n})
		}
	}
	slices.SortFunc(list, func(a, b Kept) int { return cmp.Compare(a.n, b.n) })
	return list, nil
}
