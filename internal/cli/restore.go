package cli

import (
	"fmt"

	"orch/api"
	"orch/internal/cli/terminal"
	"orch/internal/cli/words"
)

type taskRestoreCommand struct {
	Key     string `arg:"" help:"Key of the task."`
	Salvage int    `help:"Number of the salvage (default: the newest)." placeholder:"N"`
	Branch  string `help:"The branch to make (default: orch/restored/KEY-N)." placeholder:"NAME"`
	List    bool   `help:"Only show what was kept."`
}

// Run restores a task's work, or lists what there is.
func (c *taskRestoreCommand) Run(s *session) error {
	if c.Salvage < 0 {
		return usagef("--salvage must be the number of a salvage: orch task restore %s --list shows them", c.Key)
	}
	server, err := s.connect()
	if err != nil {
		return err
	}
	defer server.Close()
	if c.List {
		list, err := server.Salvages(s.ctx, c.Key)
		if err != nil {
			return refused(err)
		}
		return s.showSalvages(c.Key, list)
	}
	r := api.RestoreTask{}
	if c.Salvage > 0 {
		r.Salvage = &c.Salvage
	}
	if c.Branch != "" {
		r.Branch = &c.Branch
	}
	restored, err := server.RestoreTask(s.ctx, c.Key, r)
	if err != nil {
		return refused(err)
	}
	if s.global.JSON {
		return s.printJSON(restored)
	}
	s.print("salvage %d of %s is on the branch %s; look at it with", restored.Salvage, c.Key, restored.Branch)
	s.print("  git -C %s switch %s", restored.Repository, restored.Branch)
	return nil
}

func (s *session) showSalvages(key string, list api.SalvageList) error {
	if s.global.JSON {
		return s.printJSON(list)
	}
	if len(list.Items) == 0 {
		s.print("nothing was kept of %s", key)
		return nil
	}
	return s.table("SALVAGE\tMADE\tCOMMIT\tSUBJECT", len(list.Items), func(i int) string {
		item := list.Items[i]
		return fmt.Sprintf("%d\t%s\t%s\t%s", item.Number, item.CommittedAt.Local().Format("2006-01-02 15:04"),
			words.ShortSHA(item.Commit), terminal.Fit(terminal.Printable(item.Subject), 60))
	})
}
