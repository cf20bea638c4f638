// Package worktree looks into directories in which programs worked that nobody trusts, and keeps what is in them.
//
// # Isolation
//
// What gitcmd overrules isn't all that could start a program: filter.NAME.clean or merge.NAME.driver have names of their
// own. Therefore git is never run with the configuration of a workspace, which is its agent's. A workspace is read in
// two ways: its commits are fetched through a View, a git directory of orch's own whose objects and refs are links to
// the workspace's; its files are looked at by a Scan, with the mirror's git directory and an index of orch's own. Commands
// which would start git in a repository within the work tree (status, add, diff) aren't used, or told not to look there.
//
// git waits for ever where it reads a file and finds a pipe. Such things are refused (Unblocked), or taken away (Tidy)
// where something is to be kept or made anew; what hangs all the same is stopped, and an Error.
//
// # Repositories within
//
// A submodule, or a repository that merely lies there, is read as the workspace is: by a View of its own git directory,
// provided that this is below the workspace too, and a Scan of its files. What differs from the commit by which the one
// around it names it makes that one dirty. Kept are its files, and with them those commits that it didn't fetch from
// anywhere; Leave then empties the place, which is how git leaves it in a fresh clone. To fill it is the business of the
// repository's setup command.
package worktree
