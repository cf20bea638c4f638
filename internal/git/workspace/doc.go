// Package workspace keeps the repositories in which agents work: making them, reading them, salvaging what is in them.
// How they are read without running anything of theirs is worktree's.
//
// # Crashes
//
// A workspace is built beside its place and renamed. What a killed git left in its index or work tree, and its locks, are
// put right by Workspace.Reset, or by Workspace.Continue where an agent goes on as it was; a workspace past that is
// salvaged and made anew by Open. At only looks at what is there. The same is salvaged once, and Remove takes a workspace
// from its place before it deletes it, so that both may be repeated. A disk that is full is an error like any other and
// never a reason to make a workspace anew, or to leave something out.
package workspace
