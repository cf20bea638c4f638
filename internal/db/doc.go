// Package db is the way to PostgreSQL: connection settings, the pool, transactions, the connection that listens for
// notifications, and the migrations.
//
// # What an error may say
//
// A connection string holds a password, so no error of this package holds one: ParseURL answers in words of its own
// and never wraps the driver's error, whose text quotes its input. Code turns any database error into a short word
// that may be logged and shown to everybody. A failure to connect names user, database, host and port, which are parts of
// a password with an unescaped delimiter: Connect says UnusableError instead. A pool's error can't be caught where it comes
// to be, so whoever shows one shows Public of it, and a log has LogHandler in front.
//
// # Limits
//
// Open and Connect give every connection the same ones: 10 s to connect to one address and as long to find it, 30 s for
// a statement, 60 s for a transaction that is open while nothing is said (so that a process that was stopped holds no
// locks), and 30 s for a peer whose machine acknowledges nothing. What the URL says about the server's part of it wins.
// A server that is stopped, or a network that swallows, keeps none of its limits: a pool gives a statement up by itself a
// little after the server should have, unless the URL sets statement_timeout to 0. The driver may take another 15 s to
// get rid of a connection that it gave up, and that long its place in the pool is taken.
//
// # A server that turns read-only, or is gone
//
// A server that accepts no writes is refused, so that of several hosts in a URL the primary is found whatever their order.
// After a failover a pool can hold connections to a server that is now a standby: all connections are dropped as soon
// as one statement is answered with "read-only transaction", and also when one that was idle doesn't answer within 3 s
// before it is used again.
//
// # Notifications
//
// A notification is a hint. Whoever relies on it polls as well, so that a Listener without a connection costs time and
// nothing else. A Listener goes through these phases, again and again, with a back-off of 0.25 to 15 s:
//
//   - It connects, and LISTENs to its channels and to one of its own.
//   - It has another connection notify it, one made as those who enqueue make theirs. If that doesn't arrive, the listener is
//     behind a transaction pooler or in another database: it says so once, loudly, and isn't trusted. A notification from
//     its own connection proves nothing here: a pooler with few clients delivers that one, and no other.
//   - OnConnect: whatever was sent until now may have been missed. From here on it counts as Connected.
//   - Every 10 s it notifies itself. No answer within 10 s, or no notification within 10 s of it, ends the connection: one
//     whose peer is gone without a word (a firewall forgot it, a machine lost power) is found within 30 s.
//
// Run returns at once when its context ends, in whatever phase; closing takes a second at most.
//
// The server keeps notifications until every session that listens has taken them, and a session can't while it is in a
// transaction. A listener of anybody's, in any database of the server, that never ends its transaction fills that queue
// (8 GB by default), and a full queue fails every COMMIT that notifies. Therefore nothing of orch notifies without
// NotifyRoom, a condition that is false while the queue is half full: work is still enqueued then, and found by the poll.
// The Listener looks at the queue with every ping. From a tenth on it logs notify_queue_filling with the session that is
// probably in the way; from half on it counts as not connected (notify_queue_full). Should a COMMIT fail all the same,
// Code says notify_queue_full, nothing was kept, and it may be tried again. A Listener itself is never in a transaction
// for longer than a ping takes.
//
// # Poolers
//
// A pool may go through a transaction pooler such as PgBouncer, the listener may not: ORCH_DATABASE_LISTEN_URL is the way
// around it, to the same database.
//
//   - The limits are start-up parameters, which PgBouncer refuses unless told ignore_startup_parameters =
//     statement_timeout, idle_in_transaction_session_timeout (Code: startup_parameter_refused). Ignored, they are without
//     effect: set them for the role, with ALTER ROLE … SET.
//   - The driver prepares statements, which another server connection doesn't know (Code: prepared_statement_lost). Put
//     default_query_exec_mode=cache_describe into the URL; PgBouncer from 1.21 can keep track of them instead
//     (max_prepared_statements).
//
// # Migrations
//
// The files NNNN_name.sql are applied in order, each in a transaction of its own together with its row in
// schema_migrations, which keeps the SHA-256 of the file. Each of these transactions takes the same advisory lock
// first, so that programs which migrate at the same moment take turns and find the other's work done. A file that
// was edited after it was applied, and a database that was migrated by a newer program, are refused.
package db
