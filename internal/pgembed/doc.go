// Package pgembed runs a private PostgreSQL with the programs that the machine has installed: orch's database when it
// isn't given another one.
//
// # What lies where
//
// All is in one directory, pg under the data root. data is the cluster; run holds the socket (a short directory elsewhere
// stands in where the path would be too long for one); postgres.log is what the server says; init-* is a cluster being
// made. Two files carry locks and are never removed: lock is held by the process that Start was called in, until Stop;
// alive is inherited by the server and held until the last process of the cluster is gone.
//
// # Who runs it
//
// PostgreSQL refuses to run as root. Started by root, the server runs as the owner of the cluster, a new one as postgres
// or else nobody. It is reached over the socket only, in a directory that nobody else can enter: that is all the
// authentication there is, and as good as a password in a file that the same users could read.
//
// # What may die
//
// The server is a child of this process and gets SIGINT, its fast shutdown, from the kernel when this process dies in
// whatever way. Start takes the lock and then trusts nothing that it finds: it ends processes that stand in the data
// directory, removes lock files that died with their owner, waits for alive, and starts afresh. It doesn't adopt a
// server that still runs: restarting costs a tenth of a second and gives it a parent, current programs and settings.
// When the server dies by itself, Done is closed and Err says why; Stop and another Start bring it back.
//
// A cluster appears in its place by a rename, so half a cluster is never there. One that is there is never removed or made
// anew, whatever it looks like: another major version, a missing version file and a stranger's files are errors that say
// what to do.
package pgembed
