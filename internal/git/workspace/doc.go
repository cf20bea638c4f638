// Package workspace keeps the repositories in which agents work: making them, reading them, salvaging what is in them.
//
// # Isolation
//
// What gitcmd overrules isn't all that could start a program: filter.NAME.clean or merge.NAME.driver have names of their
// own. Therefore git is never run with the configuration of a workspace, which is its agent's. A workspace is read in
// two ways: its commits are fetched through a view, a git directory of orch's own whose objects and refs are links to
// the workspace's; its files are looked at with the mirror's git directory and an index of orch's own. Commands which
// would start git in a repository within the work tree (status, add, diff) aren't used, or told not to look there.
//
// # Crashes
//
// A workspace is built beside its place and renamed. What a killed git left in its index or work tree is put right by
// Workspace.Reset; a workspace past that is salvaged and made anew by Open. At only looks at what is there. The same is
// salvaged once, and Remove takes a workspace from its place before it deletes it, so that both may be repeated. A disk that
// is full is an error like any other and never a reason to make a workspace anew, or to leave something out.
package workspace
