// Package worker runs handlers on claimed jobs.
//
// # Lanes
//
// A lane has slots and a loop of its own, which claims no more jobs than it has free slots. It looks once a poll; being
// woken, by Wake or by a slot that got free, makes it look sooner. A slot is free when the end of its job is written:
// without a database nothing new is begun. Nor is it while no beat comes through, since leases couldn't be kept then.
//
// # How a job ends
//
// Each job is a goroutine of its own. What the handler returns decides:
//
//	nil                          succeeded
//	*queue.Failure               failed when terminal or out of attempts, else queued again after a back-off or the named time
//	*queue.SnoozeError           queued again at the named time, attempt given back
//	queue.ErrStopping            released, attempt given back
//	queue.ErrCancelRequested     cancelled
//	queue.ErrUnavailable         released: the lease's own calls found no database
//	queue.ErrLeaseLost           nothing is written
//	a panic, runtime.Goexit      the attempt failed with code panic, the stack is in the log
//	any other error              the attempt failed with code handler_error
//
// A handler that ended its job inside a lease.Tx has decided already. context.Canceled stands for the context's cause.
//
// Successes are written together, those of handlers that return at about the same time; every other end, and what
// couldn't be written together, in a transaction of its own. The end is written until the database took it or the lease
// is lost: a job that finished while the database was away is recorded when it is back, if the epoch still holds. It
// isn't beaten meanwhile.
//
// A job may be put off for ever, since no attempt is spent: one that has waited for longer than the limit is logged, and
// OnWait told of it, once an hour.
//
// # Beats
//
// One statement renews all leases whose handlers run. When none came through for the TTL less a margin, the leases are
// given up before anybody else may take them. A cancel request ends the handler's context; the lease stays held, so that
// the handler can end what it started, and says so by returning the request as its error. A handler that runs on under a
// lost lease can't be ended: the fence refuses what it writes, its slot stays taken, and that is logged.
//
// A beat that finds the schema newer than the program, or a migration to a newer one waiting, begins the stop. The first
// beat comes before the first claim: a migration that began beside the start either sees the worker's row or is seen.
//
// # The stop
//
//  1. ctx is over, or the schema is newer. Under the lock that every beginning takes, the session is marked as stopping:
//     from here no job begins. A claim that is on its way is waited for, and what it brings is released without
//     starting. Stopping() of each lease is closed. Jobs may finish, their ends are written, beats go on.
//  2. The grace is over, or HurryUp was called. Each lease that is left is marked lost: none of its writes is kept from
//     now on, and its end is never recorded, even if the next step fails. The handlers' contexts end with ErrStopping.
//  3. The jobs are released, queued again at once with their attempts.
//  4. Handlers that return get a moment to do so. Others are abandoned: Run returns without them.
//  5. A last beat releases what a lost answer left behind, and the worker's row is marked as stopped.
//
// After HurryUp steps 2 to 5 take less than 2 seconds together. Nothing here needs the database: without it the stop
// takes its time limits, and whoever finds the worker dead releases its jobs.
package worker
