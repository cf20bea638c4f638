// Package testdb gives each test a PostgreSQL database of its own.
//
// The first test of a process starts a throw-away cluster; it is a copy of an image that holds a template with all
// migrations applied, so a test's database is a copy of files: some 20 ms. Images lie in /dev/shm where that is roomy, else in
// the temporary directory, one for each combination of user, server version and migrations. One process builds an image,
// under a file lock, beside its place, and renames it there: an aborted build leaves nothing that anyone would use.
//
// A cluster belongs to one test process. A watchdog, a shell that reads a pipe whose other end only the test process
// holds, ends the server and removes its directory as soon as the process is gone, whether it returned, was killed or
// timed out. The test process itself keeps no goroutine for the cluster, so leak detectors see nothing of it.
//
// A test that is about a whole server (its settings, its end, a failover) runs one of its own with NewServer or NewPrimary.
//
// Durability is off. Autovacuum too: a test that wants statistics runs ANALYZE.
package testdb
