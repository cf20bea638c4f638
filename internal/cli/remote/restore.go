package remote

import (
	"fmt"

	"orch/api"
	"orch/internal/cli/exit"
	"orch/internal/cli/session"
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
func (c *taskRestoreCommand) Run(s *session.Session) error {
	if c.Salvage < 0 {
		return exit.Usagef("--salvage must be the number of a salvage: orch task restore %s --list shows them", c.Key)
	}
	server, err := s.Connect()
	if err != nil {
		return err
	}
	defer server.Close()
	if c.List {
		list, err := server.Salvages(s.Context, c.Key)
		if err != nil {
			return refused(err)
		}
		return showSalvages(s, c.Key, list)
	}
	r := api.RestoreTask{}
	if c.Salvage > 0 {
		r.Salvage = &c.Salvage
	}
	if c.Branch != "" {
		r.Branch = &c.Branch
	}
	restored, err := server.RestoreTask(s.Context, c.Key, r)
	if err != nil {
		return refused(err)
	}
	if s.JSON {
		return s.PrintJSON(restored)
	}
	s.Print("salvage %d of %s is on the branch %s; look at it with", restored.Salvage, c.Key, restored.Branch)
	s.Print("  git -C %s switch %s", restored.Repository, restored.Branch)
	return nil
}

func showSalvages(s *session.Session, key string, list api.SalvageList) error {
	if s.JSON {
		return s.PrintJSON(list)
	}
	if len(list.Items) == 0 {
		s.Print("nothing was kept of %s", key)
		return nil
	}
	return s.Table("SALVAGE\tMADE\tCOMMIT\tSUBJECT", len(list.Items), func(i int) string {
		item := list.Items[i]
		return fmt.Sprintf("%d\t%s\t%s\t%s", item.Number, item.CommittedAt.Local().Format("2006-01-02 15:04"),
			words.ShortSHA(item.Commit), terminal.Fit(terminal.Printable(item.Subject), 60))
	})
}
