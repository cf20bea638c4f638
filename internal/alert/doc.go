// Package alert tells a person of what needs one.
//
// An alert is a job (ADR-007), enqueued in the transaction of its cause: when that is undone there was nothing to tell,
// and when it is committed the message outlives whatever dies next. Each channel has a kind of jobs of its own, which only
// processes that have the channel claim. Without any channel an alert is a line in the log and no more.
//
// # One cause, one message
//
// A Key names the cause: a job and its epoch, a task and the moment it was blocked. While a message of that key waits to be
// sent, a second one isn't enqueued. No two causes share a key, so no transaction ever waits for another one's alert. What
// lasts, or happens again and again, has a Quiet too: it isn't told again within that, whichever process meets it. The
// table alerts_told remembers.
//
// # Many causes, few messages
//
// Each cause is a job, but a message may tell many. The first three of a kind and code are told by themselves, at once. Then a
// person knows, and the others wait (alert_sum) for a sum: five minutes after those, and then one every half hour as long as there
// is something to tell. What was told when is in alerts_told, by the database's clock, for all processes alike.
//
// A sum is the turn of one job. It gathers those that wait, sends, and ends their jobs together with its own, in one
// transaction under its lease. Until that is committed all of them stay queued, so that whatever dies in between has them told
// again; and since one job of a channel runs at a time, nobody else tells them meanwhile. What has no room in a sum, as when each
// is to be named, waits for the next one, which follows at once. One that the channel doesn't take for what is in it is told as the
// job's own alert alone, so that none is lost with another. The same way an agent that isn't signed in, or isn't there, is one
// message with the tasks that it has stopped.
//
// # What is in it
//
// Names, numbers, codes and sentences of orch's own; never a title, a prompt, or the text of an error, which may hold
// anything. What is foreign in a name (control characters, a novel) is taken out before it is stored.
//
// # When the queue itself is stuck
//
// Then no job can tell. Watch says it directly, past the queue: the database hasn't answered, or a due alert hasn't been
// sent, for five minutes. It is told once, and again only after it was well.
package alert
