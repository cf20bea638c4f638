// Package merge lands tested work on a target branch, one task at a time per repository and target.
//
// # Promise
//
// The commit that was tested is the commit that is landed, on the base that it was tested on, once, by the holder
// of the merge lease, whatever crashes or stalls in between.
//
// # Lease
//
// merge_leases holds one row per (repository, target branch). A holder is a merge job under one job epoch; each
// grant adds one to the lease's own epoch. The lease is free when
//
//   - nobody holds it,
//   - its job isn't running under the recorded job epoch any more, or
//   - its last renewal is older than the time to live, by the database's clock.
//
// A goroutine bound to the handler renews every third of the time to live; renewing needs the lease's epoch and a
// job that still runs under its epoch, so a holder that was reaped can't go on renewing. A holder that lives, renews
// and whose job runs is never touched. The branch that holds the lease gets it again at once (after a crash, under
// the next job epoch), with a new epoch: whatever still runs under the older one is refused.
//
// # Line
//
// Landings of one target stand in line: an intent that was left open first (it may have landed already), then by
// priority, then by the id of the attempt. Only the first in line takes a free lease; the others snooze. An attempt
// holds its place while its job is queued and was not overdue for longer than the time to live; one that backs off
// after a problem, or whose test waits for something, leaves the line until it is due. A release sets the first in line due in the same transaction and
// wakes the merge lane, so that the line moves without waiting for a poll; the snooze's end is the fall-back when
// that wake-up is lost. The decision to snooze and the release lock the same row, hence no wake-up falls between.
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
//   - preparing: fetch; find out whether the work is upstream already; replay the branch onto the target's commit;
//     keep the result as refs/orch/land/<key> in the mirror and its id in land_sha. A conflict returns the task.
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
// is still at base_old: the same land_sha is landed. Anything else: the base moved, prepare anew.
//
// # Problems
//
// base moved is tried again at once, without giving up the lease. What an operator must solve (a dirty checkout, a
// refusing hook, an unreachable repository) backs off, out of the line, with the lease released. Both count in tries;
// past the cap the attempt is parked and the task blocked with the reason, and the line goes on. A conflict and a
// red test return the task to its author. Errors of the database are the queue's to retry.
//
// # What the fences can't do
//
// Between the last check of the leases and the compare-and-swap lies a moment in which a frozen process can't know
// that it lost them. If it wakes up in just that moment, it can still move the target from the very commit that it
// tested on, to the commit that it tested. Its successor sees that in the repository and records it. It can never
// rewind, land twice, or record anything.
package merge
