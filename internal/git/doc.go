// Package git is what orch keeps of repositories, by way of the git program: mirrors, their refs, replays, checkouts.
// Running the program is gitcmd's; the repositories that agents work in are workspace's.
//
// # Refs of a mirror
//
//	refs/remotes/origin/BRANCH   the real repository's branches, as of the last Fetch
//	refs/heads/orch/KEY          the branch of a task, as of the last Workspace.Head
//	refs/orch/start/BRANCH       where that branch was started
//	refs/orch/head/KEY           the head of a task that is to land, to be published
//	refs/orch/land/KEY           the commit that would land
//	refs/orch/salvage/KEY/N      what would have been lost
//	refs/orch/published/KEY/N    what the real repository has of such refs, as of the last Fetch: perhaps by another mirror
//	refs/orch/offered/head/KEY   what it has of such heads, likewise
//	refs/orch/offered/land/KEY   what it has of such commits, likewise
//
// The reflogs of refs/remotes/origin/ tell where branches were at each Fetch, so that what was taken back is known (ForkPoint).
//
// Nothing collects garbage in a mirror: workspaces, checkouts and views borrow its objects, also such as no ref has yet.
//
// # Crashes
//
// Mirrors, workspaces and checkouts are built beside their place and renamed. Git processes which write to a mirror
// share the lock orch-writers with the orch that started them, and keep it when that one is killed; so whoever has it
// alone may remove git's lock files. Fetches take turns by orch-fetch. Both locks go with their processes, and nobody waits
// for one for ever: a process that was stopped keeps its locks (ErrBusy).
package git
