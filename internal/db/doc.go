// Package db is the way to PostgreSQL: connection settings, the pool, transactions, the connection that listens for
// notifications, and the migrations.
//
// # What an error may say
//
// A connection string holds a password, so no error of this package holds one: ParseURL answers in words of its own
// and never wraps the driver's error, whose text quotes its input. Code turns any database error into a short word
// that may be logged and shown to everybody.
//
// # A server that turns read-only
//
// After a failover a pool can hold connections to a server that is now a standby. Open refuses such a server when it
// connects, and drops every connection of the pool as soon as one statement is answered with "read-only transaction".
//
// # Poolers
//
// Open sets statement_timeout as a start-up parameter. PgBouncer has to be told to let it pass
// (ignore_startup_parameters = statement_timeout). LISTEN needs a connection of its own, past a transaction pooler.
//
// # Migrations
//
// The files NNNN_name.sql are applied in order, each in a transaction of its own together with its row in
// schema_migrations, which keeps the SHA-256 of the file. Each of these transactions takes the same advisory lock
// first, so that programs which migrate at the same moment take turns and find the other's work done. A file that
// was edited after it was applied, and a database that was migrated by a newer program, are refused.
package db
