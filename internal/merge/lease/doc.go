// Package lease says whose turn it is to land on a target branch: one merge lease per repository and target, and the line
// of those who wait for it. It knows the database only; what a landing does is in package merge.
//
// The line is read from merge_attempts, which package merge writes.
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
// after a problem, or whose test waits for something, leaves the line until it is due. A release sets the first in line
// due in the same transaction and wakes the merge lane, so that the line moves without waiting for a poll; the snooze's
// end is the fall-back when that wake-up is lost. The decision to snooze and the release lock the same row, hence no
// wake-up falls between.
package lease
