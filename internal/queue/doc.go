// Package queue is the durable job queue: the table jobs and all SQL on it.
//
// # States
//
//	queued → running             Claim: attempt +1, epoch +1
//	running → succeeded          CompleteTx
//	running → queued             RetryTx: attempt spent, back-off; ReleaseTx: attempt given back
//	running → failed             FailTx, RetryTx with no attempt left
//	running → cancelled          CancelledTx, or any way back into the queue when a cancel was asked for
//	queued → cancelled           Cancel
//	running → queued, failed     ReleaseDead, by others than the holder
//	failed, cancelled → queued   Requeue: one more attempt
//
// A cancel of a running job is a note for its holder, brought by the next beat; so is one of a queued job that a run
// pins, since the run may be alive and only its root can end it. The note outlives the holder.
//
// The total of a terminal state, the wake-up of the lane, and the OnFailed hook belong to the transition's transaction.
//
// # The fence
//
// A claim raises the epoch, nothing ever lowers it. A Lease is one grant: (job, worker, epoch). Everything written for
// a running job goes through Lease.Tx, whose first statement locks the row where (id, running, worker, epoch) hold and
// renews the lease. So of two processes that both believe to hold a job, the one with the older epoch writes nothing,
// even when both are the same process under the same worker id. A process that is stopped inside a Tx holds the row
// until the server ends its idle transaction.
//
// Marked lost, a lease refuses without asking. The mark and the COMMIT are ordered by the lease's mutex: a transaction
// either saw the mark and is rolled back, or its COMMIT was on its way before, and then it counts, because the release
// that follows the mark waits for the row lock and finds the job ended.
//
// Locks are taken job first, then the rows of others (tasks, runs); several jobs in the order of their ids. Code that
// starts from a task finds its job with ActiveForTaskTx before it locks the task.
//
// # The end, exactly once
//
// A lease counts as ended when its transaction has committed, not when CompleteTx returned. If COMMIT gets no answer,
// the lease is unsure: its next Tx fences again, which waits for the transaction in doubt. If the row is still ours,
// that one did not happen, and a new end is the first. If not, pg_xact_status of the remembered transaction tells an
// own end from a loss. While unsure or committing, a beat that finds the row gone doesn't call the lease lost. A second
// end can't happen whatever the memory says: the first took the row out of (running, worker, epoch).
//
// # Orphans
//
// A claim whose answer was lost leaves rows that run under this worker and that nobody runs. Beat releases a row of its
// worker that no lease in memory answers for. Three kinds of rows only look like that:
//
//   - The claim's answer is on its way. Each claim is numbered, and known as in flight from before it is sent until
//     after its leases are registered. A row that a beat read and no lease answers for may belong to any claim that
//     was started by then; it is released once all of those are settled, at this beat or a later one. New claims don't
//     postpone that.
//   - Its end is being written, or waits for a database that is away. The lease stays registered until the end is
//     known to be committed, though it is beaten no more.
//   - Its lease was marked lost and the handler hasn't returned. The lease stays registered until Forget.
//
// The release is fenced like any other, so a row that was granted again meanwhile is safe. A lease whose end the database
// refuses again and again stays registered without beats: it runs out, and the reaper decides.
//
// # Claiming
//
// Claim reads candidates without locks, then locks and grants from that list in one statement, SKIP LOCKED, no more rows
// than there are slots. Between the two others may be faster; then the list, which is longer than the slots, has the next.
// Of a concurrency key only the first job is ever a candidate, and the partial unique index on running keys decides when
// two claimers saw different firsts: the loser's statement is undone whole and repeated.
//
// # Time
//
// Deadlines are computed and compared by the database's clock. The only local clock is the boot clock, for how long a
// lease has had no renewal: it goes on while the machine sleeps, and it is read before a renewal is sent, so a lease
// never seems younger here than there.
package queue
