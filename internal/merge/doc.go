// Package merge lands tested work on a target branch, one task at a time per repository and target.
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
//   - preparing: fetch; refuse a branch that isn't at the commit which the task's gates passed; find out whether the
//     work is upstream already; replay the branch onto the target's commit; keep the result as refs/orch/land/<key> in
//     the mirror and its id in land_sha. A conflict returns the task.
//   - testing: the injected Tester tests exactly land_sha. Red returns the task.
//   - landing: the intent. One transaction locks the task's row (a cancel that came first wins), and records what
//     will be landed on what. From here on cancelling is refused, and the handler no longer listens to a cancel.
//   - landed: the target was moved by compare-and-swap from base_old to land_sha, and the repository, read again
//     after the answer, has land_sha in the target's history. A checked-out target is then refreshed.
//   - finalised: task, attempt, lease and job change in one transaction. Clean-up after it changes no result.
//
// # After a crash
//
// An open intent is resolved by looking at the repository. land_sha is in the target's history: landed. The target
// is still at base_old: the same land_sha is landed. Anything else: the base moved, prepare anew. The configuration
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
// base moved is tried again at once, without giving up the lease. What an operator must solve (a dirty checkout, a
// refusing hook, an unreachable repository) backs off, out of the line, with the lease released. Both count in tries;
// past the cap the attempt is parked and the task blocked with the reason, and the line goes on. An attempt whose intent is
// open isn't parked: only its task is blocked, cancelling stays refused, and the next job of the task, which a person asks for,
// looks again. A conflict and a red test return the task to its author. Errors of the database are the queue's to retry.
//
// # What the fences can't do
//
// Between the last check of the leases and the compare-and-swap lies a moment in which a frozen process can't know
// that it lost them. If it wakes up in just that moment, it can still move the target from the very commit that it
// tested on, to the commit that it tested. Its successor sees that in the repository and records it. It can never
// rewind, land twice, or record anything.
package merge
