package alert

import (
	"cmp"
	"strings"
)

const (
	codeNeedsInput = "needs_input"
	codeAuth       = "auth"
	codeNotFound   = "not_found"
)

// Meaning is a code in a sentence; "" for one that isn't known here, which is shown as it is.
func Meaning(code string) string { return known()[code].meaning }

// MeaningOfPause is the code of an agent's pause in a sentence whose subject is the agent.
func MeaningOfPause(code string) string {
	switch code {
	case codeAuth:
		return "it isn't signed in, or its key is refused"
	case "quota":
		return "its quota is used up"
	case "rate_limited":
		return "it is asked to slow down"
	case codeNotFound:
		return "its program isn't there"
	default:
		return cmp.Or(Meaning(code), strings.ReplaceAll(code, "_", " "))
	}
}

// Hint is what a person does before anything is tried again; "" when that depends.
func Hint(code string) string { return known()[code].hint }

// said is what is known of a code.
type said struct{ meaning, hint string }

// known are the codes of jobs, runs, gates and landings that a person may be told of.
func known() map[string]said {
	const (
		why    = "see `orch doctor`, and put right what it says"
		agents = "sign its agent in, or give it a key that is good, and resume it as `orch agent list` says"
	)
	return map[string]said{
		codeNeedsInput:     {"its agent asks something", ""},
		"rounds_exhausted": {"its gates stayed red until all rounds were used up; a retry grants one more", ""},
		"stage_unknown":    {"its pipeline has lost the stage that it is at", "put the stage back into orch.yaml"},
		"repo_unknown":     {"no server has its repository in orch.yaml", "put the repository back into orch.yaml"},
		"hosts_lost":       {"host after host died while working on it", "see what it needs of a host: memory, disk"},
		"crash_loop":       {"whatever works on it dies again and again", "see the memory of its host, and its log: `orch job list`"},
		"task_not_found":   {"its task isn't there", ""},
		"bad_args":         {"what it is to do can't be read", ""},
		"panic":            {"orch met a bug of its own, which is in its log", "see the log of orch"},
		"handler_error":    {"orch met something unforeseen, which is in its log", "see the log of orch"},
		"prompt":           {"its prompt can't be made", "correct the prompt in orch.yaml"},
		"workspace":        {"its workspace can't be made ready", why},

		"agent_failed":  {"its agent gave up, and no attempt is left", ""},
		"setup_failed":  {"the set-up of its workspace fails", "see the setup command in orch.yaml"},
		"timeout":       {"its agent didn't come to an end in time, and no attempt is left", ""},
		"stalled":       {"its agent fell silent, and no attempt is left", ""},
		codeAuth:        {"its agent isn't signed in, or its key is refused", agents},
		"quota":         {"the quota of its agent is used up", ""},
		"rate_limited":  {"its agent is asked to slow down", ""},
		"killed":        {"its agent was killed, and no attempt is left", "see the memory of its host"},
		"crashed":       {"its agent or what watched it died, and no attempt is left", "see the memory of its host"},
		codeNotFound:    {"the program of its agent isn't there", "install it, or correct the agent's command in orch.yaml, and resume the agent as `orch agent list` says"},
		"agent_unknown": {"orch.yaml has no agent of that name", "define the agent in orch.yaml"},
		"agent_command": {"the command of its agent can't be used", "correct the agent in orch.yaml"},
		"agent_home":    {"the home of its agent can't be made ready", "correct the agent's home in orch.yaml"},

		"runs_exhausted": {"it has used up the runs that a task may have", ""},
		"budget_run":     {"one run of it has used up its budget", "see budgets in orch.yaml"},
		"budget_task":    {"it has used up its budget", "see budgets in orch.yaml"},
		"budget_day":     {"the budget of the day is used up", "see budgets in orch.yaml"},

		"merge_conflict":        {"its change doesn't fit the target branch any more", ""},
		"test_red":              {"the test on the target branch is red", ""},
		"base_missing":          {"its target branch isn't there", "make the branch again, or cancel the task"},
		"branch_missing":        {"its branch isn't there", ""},
		"branch_changed":        {"its branch isn't at the commit that passed the gates", ""},
		"base_moved":            {"its target branch moved again and again while it was tested", ""},
		"mirror_failed":         {"the repository can't be read", why},
		"fetch_failed":          {"the repository can't be read", why},
		"look_failed":           {"the repository can't be read", why},
		"claim_failed":          {"the repository can't be written", why},
		"land_failed":           {"the repository can't be written", why},
		"publish_failed":        {"the repository can't be written", why},
		"refresh_failed":        {"a checkout of the target branch can't be brought up to date", why},
		"not_landed":            {"the repository took it and doesn't have it", why},
		"replay_failed":         {"its commits can't be put on the target branch", ""},
		"method_unsupported":    {"it can't be landed by the method in orch.yaml", "correct the method in orch.yaml"},
		"test_not_run":          {"its test can't be run", why},
		"disk_space":            {"a disk is full", "make room on the disk of the data root"},
		"repository_away":       {"the repository isn't there for now, or can't be read", "bring it back, or let the user that runs orch read it"},
		"repository_missing":    {"the repository isn't where orch.yaml says", "correct its path in orch.yaml"},
		"not_a_repository":      {"what orch.yaml names isn't a repository", "correct its path in orch.yaml"},
		"not_the_toplevel":      {"the path in orch.yaml is inside a repository", "correct its path in orch.yaml"},
		"repository_shallow":    {"the repository is a shallow clone", "fetch all of its history"},
		"linked_worktree":       {"the path in orch.yaml is a linked worktree", "name the repository itself in orch.yaml"},
		"repository_of_another": {"the repository belongs to another user", "see who owns it"},
		"repository_locked":     {"something else holds a lock of the repository", "if no git works there, remove the lock file that is named"},
		"no_commits":            {"the repository has no commit", "make the first commit"},
		"unknown_branch":        {"a branch isn't there", "make the branch again, or cancel the task"},
		"checkout_dirty":        {"a checkout of the target branch has changes that nobody committed", "commit them, or put them away"},
		"checkout_unfinished":   {"a checkout of the target branch is in the middle of a merge or rebase", "end it"},
		"checkout_overwrites":   {"a checkout of the target branch has files in the way", "put them away"},
		"checkout_filters":      {"a checkout of the target branch has filters that orch doesn't run", why},
		"checkout_away":         {"the disk with a checkout of the target branch isn't there", "bring it back"},
		"checkout_moved":        {"a checkout of the target branch moved meanwhile", ""},
		"not_a_descendant":      {"the landing would take commits off the target branch", ""},
		"ref_refused":           {"orch may not write to the repository", "let the user that runs orch write there"},

		"job_ended":     {"its job doesn't run any more", ""},
		"ttl_expired":   {"it wasn't renewed in time", ""},
		"process_dead":  {"its process is gone", ""},
		"worker_dead":   {"the process that worked on it is gone", ""},
		"lease_expired": {"what worked on it gave no sign of life for too long", "see that host"},
		"run_finished":  {"its run has ended, and what should go on with it doesn't", "see the log of orch"},
		"host_dead":     {"its host gave no sign of life for too long", "see that host"},
		"ceiling":       {"it ran for longer than anything may", ""},

		"database_unreachable": {"no connection can be made", ""},
		"database_read_only":   {"it takes no writes", ""},
		"database_auth":        {"it refuses the user or the password", ""},
		"database_missing":     {"it isn't there", ""},
		"database_timeout":     {"it doesn't answer in time", ""},
	}
}
