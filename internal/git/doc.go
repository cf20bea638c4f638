// Package git is orch's git, by way of the git program: mirrors, workspaces, replays, salvage.
//
// # Isolation
//
// git runs programs that configuration names: hooks, filters, a file system monitor, pagers, helpers for
// credentials and transports. So every call gets an environment made from scratch, without any file of the system or
// of the user, and configuration of its own that overrules a repository's for each key that could start something. It
// runs in a process group that ends as a whole, bounded in time and output; errors carry no credentials.
//
// Keys with names of their own (filter.NAME.clean, merge.NAME.driver) can't be overruled in general. Therefore git is
// never run with the configuration of a workspace, which is its agent's. A workspace is read in two ways: its commits
// are fetched through a view, a git directory of orch's own whose objects and refs are links to the workspace's; its
// files are looked at with the mirror's git directory and an index of orch's own. Commands which would start git in
// a repository within the work tree (status, add, diff) aren't used, or told not to look there.
//
// # Refs of a mirror
//
//	refs/remotes/origin/BRANCH   the real repository's branches, as of the last Fetch
//	refs/heads/orch/KEY          the branch of a task, as of the last Workspace.Head
//	refs/orch/start/BRANCH       where that branch was started
//	refs/orch/land/KEY           the commit that would land
//	refs/orch/salvage/KEY/N      what would have been lost
//
// Nothing collects garbage in a mirror: workspaces, checkouts and views borrow its objects, also such as no ref has yet.
//
// # Crashes
//
// Mirrors, workspaces and checkouts are built beside their place and renamed. Git processes which write to a mirror
// share the lock orch-writers with the orch that started them, and keep it when that one is killed; so whoever has it
// alone may remove git's lock files. Fetches take turns by orch-fetch. Both locks go with their processes.
//
// What a killed git left in a workspace's index or work tree is put right by Workspace.Reset; a workspace past that is
// salvaged and made anew by Mirror.Workspace.
package git
