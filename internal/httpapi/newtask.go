package httpapi

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"orch/api"
	"orch/internal/httpapi/form"
	"orch/internal/httpapi/problem"
)

const (
	maxName     = 200
	maxTitle    = 300 // as in package task
	maxBodyText = 256 << 10
	maxCommand  = 8192
	maxPath     = 4096
	maxPriority = 100
	minCostUSD  = 0.01
	maxCostUSD  = 1_000_000
	// maxVariables bounds what an agent is passed on of the server's environment.
	maxVariables = 100
	maxTimeout   = 7 * 24 * time.Hour
)

// newTask checks a request's fields and translates them.
func newTask(body api.NewTask) (NewTask, error) {
	task := NewTask{
		Repo: value(body.Repo), Title: strings.TrimSpace(body.Title), Body: value(body.Body), Base: value(body.Base),
		Priority: value(body.Priority), MaxCostUSD: body.MaxCostUsd, Land: body.Land,
	}
	var c form.Checker
	c.Check(task.Repo != "" || body.Adhoc != nil, "repo", "must name a configured repository")
	c.Line("repo", task.Repo, maxName)
	c.Check(task.Title != "", "title", "must not be empty")
	c.Plain("title", task.Title, maxTitle)
	c.Text("body", task.Body, maxBodyText)
	c.Line("base", task.Base, maxName)
	c.Check(form.BranchName(task.Base), "base", "must be the name of a branch")
	c.Check(task.Priority >= -maxPriority && task.Priority <= maxPriority, "priority",
		fmt.Sprintf("must be between %d and %d", -maxPriority, maxPriority))
	c.Check(task.MaxCostUSD == nil || *task.MaxCostUSD >= minCostUSD && *task.MaxCostUSD <= maxCostUSD, "max_cost_usd",
		fmt.Sprintf("must be between %g and %d", minCostUSD, maxCostUSD))
	if body.Adhoc != nil {
		task.Adhoc = newAdhoc(&c, *body.Adhoc)
	}
	if len(c.Wrong) > 0 {
		return NewTask{}, problem.InvalidFields(problem.CodeInvalid, c.Wrong...)
	}
	return task, nil
}

func newAdhoc(c *form.Checker, body api.Adhoc) *Adhoc {
	adhoc := &Adhoc{
		Path: body.Path, TestCommand: value(body.TestCommand), NoTest: value(body.NoTest),
		Agent: value(body.Agent), AgentCommand: value(body.AgentCommand), Setup: value(body.Setup),
	}
	c.Line("adhoc.path", adhoc.Path, maxPath)
	c.Check(filepath.IsAbs(adhoc.Path), "adhoc.path", "must be an absolute path")
	c.Text("adhoc.test_command", adhoc.TestCommand, maxCommand)
	c.Check((strings.TrimSpace(adhoc.TestCommand) != "") != adhoc.NoTest, "adhoc.test_command",
		"must be given, or else no_test must be true, not both")
	c.Line("adhoc.agent", adhoc.Agent, maxName)
	c.Text("adhoc.agent_command", adhoc.AgentCommand, maxCommand)
	c.Check(adhoc.Agent == "" || adhoc.AgentCommand == "", "adhoc.agent_command", "must not be given together with agent")
	adhoc.AgentEnv = value(body.AgentEnv)
	c.Check(len(adhoc.AgentEnv) <= maxVariables, "adhoc.agent_env", fmt.Sprintf("must not name more than %d variables", maxVariables))
	c.Check(!slices.ContainsFunc(adhoc.AgentEnv, func(name string) bool { return !form.VariableName(name) }), "adhoc.agent_env",
		"must hold names of variables: letters, digits and _, not beginning with a digit")
	c.Check(!slices.ContainsFunc(adhoc.AgentEnv, form.OwnVariable), "adhoc.agent_env", "must not name orch's own variables")
	c.Text("adhoc.setup", adhoc.Setup, maxCommand)
	if body.TimeoutS != nil {
		seconds := *body.TimeoutS
		// Compared as numbers: a huge one would overflow a Duration.
		c.Check(seconds >= 1 && seconds <= maxTimeout.Seconds(), "adhoc.timeout_s",
			fmt.Sprintf("must be between 1 and %d", int(maxTimeout.Seconds())))
		if seconds >= 1 && seconds <= maxTimeout.Seconds() {
			adhoc.Timeout = time.Duration(seconds * float64(time.Second))
		}
	}
	return adhoc
}
