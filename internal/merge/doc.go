// Package merge lands tested work on a target branch, one move at a time per repository and target.
//
// # Promise
//
// The commit that was tested is the commit that is landed, on the base that it was tested on, once, by the holder
// of the merge lease, whatever crashes or stalls in between.
//
// The lease and the line of those who wait for it are in package lease. A handler that doesn't get the lease snoozes;
// one that gets it walks the steps while the lease is renewed.
//
// # Steps
//
//	queued → preparing → testing → ready → landing → landed → finalised
//	                                                       ↘ parked | returned
//
// A step is a row state in merge_attempts. Each write is one transaction that is fenced twice: queue.Lease.Tx locks
// the job's row under its epoch, then the lease's row is locked under its epoch. Up to ready, a re-drive prepares
// again: the same base, head and method give the same commit, and a result whose key (base, commit, definition)
// didn't change is not asked for twice.
//
//   - preparing: claim the target, fetch; refuse a branch that isn't at the commit which the task's gates passed; find out
//     whether the work is upstream already; bring it onto the target's commit by the method (package build); keep the result
//     as refs/orch/land/<key> in the mirror and its id in land_sha; stack the work of mates on it, up to tip_sha. A conflict
//     returns the task, as does work that stands on commits which somebody took off the target.
//   - testing: the injected Tester tests exactly tip_sha, which is land_sha of one that is alone. Red returns the task.
//   - landing: the intent. One transaction locks the task's row (a cancel that came first wins), and records what
//     will be landed on what. From here on cancelling is refused, and the handler no longer listens to a cancel.
//   - landed: the target was moved by compare-and-swap from base_old to tip_sha, and the repository, read again
//     after the answer, has it in the target's history. A checked-out target is then refreshed.
//   - finalised: task, attempt, lease and job change in one transaction. Clean-up after it changes no result.
//
// # Groups
//
// With a batch above one, the job that has the lease leads: it takes mates from the line, in its order, as many as its batch
// and each of them allow. Their jobs aren't touched; they wait in the line as ever. The leader writes the attempts of its mates, under its
// lease, whose row whoever changes the line locks before; each attempt then tells its own job all there is to know. The
// intents of a group are written, withdrawn and found to have landed in one transaction. A member whose turn comes with an
// open intent resolves it for all. A mate that was cancelled or moved on is found when the intent locks its task's row, and the
// group is made anew without it.
//
// A group that is red is tested once more. Red again, all its members are marked with half its size as the most that they
// may be tested in, and the group is made anew from the line: the mark is all that is left of a bisection, so that nothing
// forgets it. A moved target makes the group anew, marks and all. Rows are locked in this order: own job, lease, tasks by
// their ids, attempts.
//
// # Elsewhere
//
// A head that is to land is offered as refs/orch/head/<key> of the repository, and then the job is pinned to no data root
// while it has no run: any root that serves the repository makes the same commit from it. There the branch isn't asked. An
// offer that is gone ties the job to the task's own root again. A repository that only that root knows keeps its landings
// there (Definition.Home).
//
// # Freeze
//
// A person's pause of the repository is asked for before each step up to the intent: the lease is given back and the job is due,
// which no claim takes while the pause lasts. What was tested stays tested. A run that lives is followed to its end first.
//
// # After a crash
//
// An open intent is resolved by looking at the repository. tip_sha is in the target's history: landed, with all mates. The target
// is still at base_old: the same tip_sha is landed. Anything else: the base moved, prepare anew. The configuration
// isn't asked before that: a repository that it has lost meanwhile doesn't keep a landing from being recorded. Where
// the repository is comes from the task's row, the rest from the attempt.
//
// # Cancel
//
// Up to the intent a cancel wins. Whoever cancels the task closes the attempt (AbandonTx), so the handler may learn of
// it from its next write before the job is told; both end the job as cancelled. A run that the job is still pinned by
// is ended then, and also when the task has moved on: no later job would follow it.
//
// # Problems
//
// Each class of problems has a count and a cap of its own (package problem). What has moved is made anew, without giving up
// the lease. What time may cure, and what an operator must change (a dirty checkout, a refusing hook), backs off, out of
// the line, with the lease released. What is nobody's fault and over by itself, as a full disk, counts nothing. Past a cap
// the attempt is parked and the task blocked with the reason, and the line goes on. An attempt whose intent is open isn't
// parked: only its task is blocked, cancelling stays refused, and the next job of the task, which the reconciler
// enqueues or a person asks for, looks again. A conflict and a red test return the task to its author. Errors of the
// database are the queue's to retry.
//
// # What the fences can't do
//
// Between the last check of the leases and the compare-and-swap lies a moment in which a frozen process can't know that it
// lost them. The swap is bound to the claim that it made in the repository, under its lease's epoch: once a successor
// has claimed, which is the first thing it does there, the swap is refused. Until then it can still move the target from the
// very commit that it tested on, to the commit that it tested. Its successor sees that in the repository and records it. It
// can never rewind, land twice, or record anything. Claims of two installations don't fence each other.
package merge
