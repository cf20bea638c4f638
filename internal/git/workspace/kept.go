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

// NextSalvageRef names the salvage after the last one of the task with that key that the mirror has, or the real repository
// had at the last Fetch: a mirror that was made anew, or another one, doesn't begin again at the first.
func NextSalvageRef(ctx context.Context, m *git.Mirror, key string) (string, error) {
	last := 0
	for _, prefix := range []string{salvagePrefix(key), git.PublishedPrefix + key + "/"} {
		list, err := salvagesBelow(ctx, m, prefix)
		if err != nil {
			return "", fmt.Errorf("number the next salvage of %s: %w", key, err)
		}
		if len(list) > 0 {
			last = max(last, list[len(list)-1].n)
		}
	}
	return salvagePrefix(key) + strconv.Itoa(last+1), nil
}

// Renumber gives a salvage of the task with that key the next free name, since the real repository has something else
// under its own. It returns the new name.
func Renumber(ctx context.Context, m *git.Mirror, key, ref string) (string, error) {
	commit, err := m.Ref(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("rename salvage: %w", err)
	}
	next, err := NextSalvageRef(ctx, m, key)
	if err != nil {
		return "", err
	}
	list, err := Salvages(ctx, m, key)
	if err != nil {
		return "", err
	}
	if last := list[len(list)-1]; last.Commit == commit && last.Ref != ref { // renamed by half, before a crash
		next = last.Ref
	} else if err := m.SetRef(ctx, next, commit, git.Absent); err != nil {
		return "", fmt.Errorf("rename salvage %s: %w", ref, err)
	}
	if err := m.DeleteRef(ctx, ref, commit); err != nil {
		return "", fmt.Errorf("rename salvage %s: %w", ref, err)
	}
	return next, nil
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
