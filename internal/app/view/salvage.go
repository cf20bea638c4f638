package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"orch/api"
	"orch/internal/app/place"
	"orch/internal/forge"
	"orch/internal/httpapi"
	"orch/internal/stage"
	"orch/internal/task"
)

// Salvages implements httpapi.Tasks.
func (a Tasks) Salvages(ctx context.Context, key string) ([]api.Salvage, error) {
	_, all, err := a.kept(ctx, key)
	if err != nil {
		return nil, err
	}
	shown := make([]api.Salvage, 0, len(all))
	for _, k := range all {
		shown = append(shown, api.Salvage{Number: k.Number, Ref: k.Ref, Commit: k.Commit, CommittedAt: k.At, Subject: k.Subject})
	}
	return shown, nil
}

// RestoreTask implements httpapi.Tasks.
func (a Tasks) RestoreTask(ctx context.Context, key, actor string, r httpapi.Restore) (api.Restored, error) {
	t, all, err := a.kept(ctx, key)
	if err != nil {
		return api.Restored{}, err
	}
	if len(all) == 0 {
		return api.Restored{}, noSalvage("nothing was salvaged of " + key + ", or its clean-up hasn't come to it yet")
	}
	chosen := all[len(all)-1]
	if r.Salvage > 0 {
		i := slices.IndexFunc(all, func(k place.Kept) bool { return k.Number == r.Salvage })
		if i < 0 {
			return api.Restored{}, noSalvage(fmt.Sprintf("%s has no salvage %d: `orch task restore %s --list` shows which it has", key, r.Salvage, key))
		}
		chosen = all[i]
	}
	branch := r.Branch
	if branch == "" {
		branch = fmt.Sprintf("orch/restored/%s-%d", key, chosen.Number)
	}
	if err := a.Places.Restore(ctx, t, chosen, branch); err != nil {
		return api.Restored{}, refusedBranch(err, t, branch)
	}
	err = a.Tasks.NoteBy(ctx, t.ID, actor, task.EventRestored, fmt.Sprintf("salvage %d is on the branch %s", chosen.Number, branch),
		map[string]any{"salvage": chosen.Ref, "commit": chosen.Commit, "branch": branch})
	if err != nil {
		return api.Restored{}, err
	}
	return api.Restored{Salvage: chosen.Number, Ref: chosen.Ref, Commit: chosen.Commit, Branch: branch, Repository: t.Location}, nil
}

func noSalvage(detail string) error {
	return &httpapi.RefusedError{Status: http.StatusNotFound, Code: "no_salvage", Detail: detail}
}

func refusedBranch(err error, t task.Task, branch string) error {
	if errors.Is(err, forge.ErrRefTaken) {
		return httpapi.Conflict("branch_taken", fmt.Sprintf("%s has something else on the branch %s: give another name", t.Location, branch))
	}
	if problem, ok := errors.AsType[*forge.ProblemError](err); ok {
		return httpapi.Refuse(string(problem.Code), problem.Error())
	}
	return err
}

// kept is what can be restored of a task whose files are here.
func (a Tasks) kept(ctx context.Context, key string) (task.Task, []place.Kept, error) {
	t, err := a.find(ctx, key)
	if err != nil {
		return task.Task{}, nil, err
	}
	if t.RootID != nil && *t.RootID != a.Root {
		return task.Task{}, nil, httpapi.Conflict("task_elsewhere",
			key+" was worked on in another data root, which has what was kept of it: ask the server there")
	}
	events, err := a.Tasks.EventsOf(ctx, t.ID, task.EventSalvaged)
	if err != nil {
		return task.Task{}, nil, err
	}
	var told []stage.Salvaged
	for _, event := range events {
		var s struct {
			Ref    string `json:"ref"`
			Commit string `json:"commit"`
		}
		if json.Unmarshal(event.Data, &s) == nil && s.Ref != "" {
			told = append(told, stage.Salvaged(s))
		}
	}
	all, err := a.Places.Kept(ctx, t, told)
	return t, all, err
}
