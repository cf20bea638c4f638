// Package queue is the durable job queue: the table jobs, and all that moves a job through its states. Beside it is what needs
// none of the protocol: bulk and schedule queue jobs, pause holds them back, look and overview read them, tally keeps what
// happened, prune deletes what ended long ago.
//
// # States
//
//	queued → running             Claim: attempt +1, epoch +1
//	running → succeeded          CompleteTx, or together with others: Completer
//	running → queued             RetryTx: attempt spent, back-off; ReleaseTx: attempt given back
//	running → failed             FailTx, RetryTx with no attempt left
//	running → cancelled          CancelledTx, or any way back into the queue when a cancel was asked for
//	queued → cancelled           Cancel
//	running → queued, failed     Take, by others than the holder; cancelled when that was asked for
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
// A Completer writes plain successes of one worker together. It waits until 500 are pending, or no handler is at work
// whose end might still come, or the oldest has waited for 50 ms; one transaction is on its way at a time, and those
// that come meanwhile are the next. Nothing of the above changes with that:
//
//   - The rows are taken out of (running, worker, epoch) by one UPDATE for each epoch, in the order of their ids. A row
//     that it doesn't find is no longer this lease's, or was ended by a COMMIT without an answer: its lease tries alone,
//     in a Tx, which tells the two apart. So a late completion is refused, and no other with it.
//   - Between the last statement and COMMIT each lease is asked for its mark, under its mutex. If one was marked lost,
//     the transaction is undone and repeated without it. A mark that comes later finds COMMIT on its way.
//   - If COMMIT gets no answer, all leases of the batch are unsure, and each finds out alone, as above.
//   - If the server refuses, for one row's sake or because a row's lock can't be had in a second, each is tried alone.
//     If it is away, each caller is told so, and sends its end again when it likes: the lease stays held until then.
//   - Totals are added up, one row for each kind, and written last, in the order of the kinds, since they are
//     everybody's. Each worker has a shard of its own for that. Lanes that hold a due job which a key of the batch kept
//     back are woken.
//
// A process that is stopped in the middle of a batch holds its rows until the server ends the idle transaction, after
// five seconds.
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
// # Taking
//
// Who isn't the holder takes a running job with Take, by what package look has found (Seen): in one transaction, under the worker,
// epoch and run that were seen, so that of any number who saw the same one comes first and the others change nothing. Either
// the attempt is given back and the run stays, for whoever can follow it; or the attempt is spent and the run let go of,
// and then Within uses up the run's result in the same transaction, or the next grant would spend a second attempt for it.
//
// A worker may die with thousands of jobs: those without a run, a cancel or a crash loop are given back together with TakeMany,
// under the same fence for each, what is left by Take.
//
// A death of the worker is counted (recoveries) when no run lives under the job: new output and five healthy minutes make
// it naught again, and after five in a row the job fails as a crash loop. So is work that was cut short together with its
// container or machine (RecoverTx). While a run lives nothing is counted, however often orch is restarted.
//
// # Claiming
//
// Claim finds candidates without locks, then locks and grants from their list in one statement, SKIP LOCKED, no more rows
// than there are slots. Between the two others may be faster; then the list, which is longer than the slots, has the
// next. That one statement asks for everything again that allows a job to be begun: due, not pinned elsewhere, of a
// repository that is served, not paused, its key free. How candidates are found quickly, whatever crowd there is, is told in
// internal/due: nothing depends on that being right.
//
// The order is: jobs that a run pins, which may be alive and is followed even while paused; jobs pinned to this root,
// since work on them has begun here, whatever their repository; then the rest. Within each, priority, run_at and id.
//
// # Time
//
// Deadlines are computed and compared by the database's clock. The only local clock is the boot clock, for how long a
// lease has had no renewal: it goes on while the machine sleeps, and it is read before a renewal is sent, so a lease
// never seems younger here than there. The wall clock of a worker decides nothing.
//
// Every statement has a bound, QueryTimeout here and the connection's statement_timeout on the server. Beats have a
// connection of their own, on which the two are the same: one that was given up doesn't renew anything later.
package queue
