// Package local lands on git repositories of this machine, bare or with a checkout.
//
// # Refs that orch has in the repository
//
//	refs/orch/gate/OWNER/TARGET   the claim of an installation on a target branch: a blob that tells its epoch
//	refs/orch/head/KEY            the head of a task that is to land, for whoever lands it
//	refs/orch/land/KEY            what was made of it
//	refs/orch/salvage/KEY/N       what would have been lost
//
// # Landing
//
// The target moves by one transaction of git's, which takes the locks of all refs in it before it looks at any: the claim
// and the heads are where they were, and the target is at the commit that was tested on. A holder that was frozen just
// before, or a git process that outlived its orch, is refused once another holder has claimed. Claims only go up, and
// stay. What the repository had to be for a checkout to follow is looked at before; the checkout itself follows by Refresh.
//
// Lock files that git left, or somebody works under, are a problem with their path in it. orch removes none of git's: git
// commit holds index.lock, closed, for as long as an editor is open.
package local
