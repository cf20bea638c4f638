// Package root owns the data root: the directory where orch keeps whatever isn't in its database, and its bond to that
// database.
//
// A root without its database is a heap of files, and a database without its root has jobs whose agents nobody finds.
// Worse, a copy of either that runs against the living other would run agents and merges a second time. So each root
// carries a marker, orch-root.json, with the id of the database's instance, an id of its own, a generation and whether
// it is for testing; the database holds a row per root with the same id and generation. Bind compares them and refuses
// what doesn't fit; no error of it is worth retrying except an unreachable database and ErrInUse.
//
// # Lock
//
// root.lock is held shared by every process that works in the root, for as long as it does, and exclusively by who
// creates the marker or does maintenance. A lock can't be turned from exclusive to shared in one step, so a creator lets
// go of it and then does what everyone does: take it shared, and read and check the marker under it. Whoever came
// between has found the marker and created none. The file is never removed.
//
// # Creation
//
// Under the exclusive lock and with the row of the instance locked, which makes creators on other hosts wait:
//
//  1. the instance goes from unconfigured to bootstrapping and gets its testing mark; committed by itself
//  2. the marker is written, with generation 0: temporary file, sync, rename, sync of the directory
//  3. the root's row is inserted, the instance becomes ready; committed
//
// A crash after 1 leaves a set-up that the next Bind goes on with. After 2 it leaves a marker without a row; generation 0
// says that no worker ever claimed under it, so the next Bind inserts the row. A marker of a later generation without a
// row means that the database was put back to an earlier day, which is refused, as is any difference of generations.
package root
