package view

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"orch/api"
	"orch/internal/app/catalog"
	"orch/internal/git"
	"orch/internal/httpapi"
	"orch/internal/merge/lease"
	"orch/internal/task"
)

// longestTitle is what a task's title may have, in bytes.
const longestTitle = 300

// RevertTask implements httpapi.Tasks. The new task goes through the pipeline of the one that it takes back.
func (a Tasks) RevertTask(ctx context.Context, key, actor string) (api.Task, error) {
	t, err := a.find(ctx, key)
	if err != nil {
		return api.Task{}, err
	}
	if t.State != task.Done || t.LandedCommit == "" {
		return api.Task{}, httpapi.Conflict("task_not_landed", key+" hasn't landed anything: there is nothing to revert")
	}
	landed, known, err := a.Leases.Landed(ctx, t.ID, t.LandedCommit)
	if err != nil {
		return api.Task{}, err
	}
	add := task.Add{
		Repo: t.Repo, Location: t.Location, Title: cut("Revert "+key+": "+t.Title, longestTitle), Body: revertText(t, landed, known),
		Source: actor, BaseBranch: t.BaseBranch, Pipeline: t.Pipeline, Priority: t.Priority, MaxCostUSD: t.MaxCostUSD, Land: t.Land,
	}
	var own catalog.Adhoc
	if err := json.Unmarshal(t.Overrides, &own); err != nil {
		return api.Task{}, fmt.Errorf("read what task %s brought along: %w", key, err)
	}
	if own.Path != "" && t.RootID != nil { // nobody else has the repository
		add.Root = *t.RootID
	}
	add.Overrides = t.Overrides
	created, err := a.Tasks.Create(ctx, add)
	if err != nil {
		return api.Task{}, refusedTask(err)
	}
	return a.shown(ctx, created, nil), nil
}

// revertText tells the agent what is to be taken back.
func revertText(t task.Task, landed lease.Landed, known bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Take back what task %s (%s) landed on %s, with a commit that says why, and change nothing else.\n\n", t.Key, t.Title, t.BaseBranch)
	fmt.Fprintf(&b, "It landed as %s.", t.LandedCommit)
	switch {
	case !known:
		b.WriteString(" Find out which commits before it belong to the task.\n")
	case landed.Method == string(git.Merge):
		fmt.Fprintf(&b, " That is a merge commit: `git revert -m 1 %s`.\n", t.LandedCommit)
	case landed.Method == string(git.Squash):
		fmt.Fprintf(&b, " That is all of it: `git revert %s`.\n", t.LandedCommit)
	case len(landed.Mates) > 0:
		fmt.Fprintf(&b, " Its commits are among those of %s..%s, where those of %s are, too, which landed together with it and stay: "+
			"revert only its own, the newest first.\n", landed.Base, t.LandedCommit, strings.Join(landed.Mates, ", "))
	default:
		fmt.Fprintf(&b, " Its commits are %s..%s: `git revert %[1]s..%[2]s`.\n", landed.Base, t.LandedCommit)
	}
	b.WriteString("Where later work builds on it, keep that work going, and say what you had to change for it.\n")
	return b.String()
}

// cut shortens text to most bytes, between characters.
func cut(text string, most int) string {
	for len(text) > most {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}
