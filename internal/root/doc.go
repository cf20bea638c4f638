// Package root owns the data root: the directory where orch keeps whatever isn't in its database, and its bond to that
// database.
//
// A root without its database is a heap of files, and a database without its root has jobs whose agents nobody finds.
// Worse, a copy of either that runs against the living other would run agents and merges a second time. So each root
// carries a marker, orch-root.json, with the id of the database's instance, an id of its own, whether it is for testing,
// and its last start: a generation and a nonce. The database has a row per root with the same generation and nonce.
// Each start compares them, refuses what doesn't fit, and moves both on by one, so that whatever was copied or put back
// earlier fits no more. A copy of the generation that still runs can't be told from the living side by this; see below.
//
// Bind (orch serve) makes the root and its marker where they lack; Join (orch worker) creates and changes nothing in a root
// that isn't bound. Both end alike: root.lock shared, comparison, repair, one bump of the generation. Accept is for a person
// who put one side back on purpose. Reason tells the errors that go away by waiting from the refusals.
//
// # Lock
//
// root.lock is held shared by every process that works in the root, for as long as it does, and exclusively by who
// creates the marker or does maintenance. A lock can't be turned from exclusive to shared in one step, so a creator lets
// go of it and then does what everyone does: take it shared, and read and compare under it. Whoever came between has found
// the marker and created none. The file is never removed.
//
// # Creation
//
// Under the exclusive lock the instance goes from unconfigured to bootstrapping and gets its testing mark; then the marker
// is written, with generation 0 and no row. Generation 0 says that nobody ever claimed under it, so a crash after either step
// is gone on from by the next Bind. A root whose runs or workspaces aren't empty has lost its marker, and gets no new one: under
// a new id nobody would find what runs there. The first bump inserts the row and makes the instance ready, in one
// transaction. A marker of a later generation without a row means that the database was put back to an earlier day, which is
// refused.
//
// # Bump
//
// From generation n with nonce M, under the start key, which is the lock of the root's row (of the instance's row while
// there is none); a key in use is ErrBusy, nobody waits in the database:
//
//	            marker               row
//	before      n, M                 n, M
//	1 intent    n, M, next N         n, M      temporary file, sync, rename, sync of the directory
//	2 row       n, M, next N         n+1, N    commit
//	3 confirm   n+1, N               n+1, N    rename, sync of the directory
//
// N is new for each bump. Whoever dies after 1 leaves an intent that the next bump replaces; after 2, a row that is the
// marker's successor under the marker's own nonce, which the next starter takes for what it is and goes on from, to n+2. Any
// other difference is a refusal: a marker behind its row (a copy, a restored root), ahead of it (a restored database), or
// of the same generation with another nonce (each side went on without the other). A generation that is interrupted after 2 is spent and
// never given to the next starter, since the one that stopped there may still wake up and work under it. So a starter that
// loses its connection in the COMMIT and tries again may bump twice.
//
// Both files of a bump are written and synced before the intent: a full disk fails it before anything has changed.
//
// # Copies of a root in use
//
// A copy has the generation of its original until either starts again, and the original doesn't notice a start of the copy. So
// a start, once the pair fits, looks whether the last one was elsewhere (another host, or a path of another directory),
// whether a worker of the root beats, and whether nobody works in this directory: all three together are LivingError. The last
// is told by a second, shared lock of root.lock (an open file description lock), which a process takes once its start has
// succeeded and keeps as long as the first. It is looked for without being taken, in whatever container its owner is, so that
// two starts on one copy never take each other for its workers. A root moved after its stop has no worker that beats, one with two
// names has somebody in it; one moved after a crash is refused for as long as its dead worker counts as alive. Not told apart
// are a copy that has the very host and path of its original (in another container, or put in its place), and one of a root without workers.
//
// # Signs of life
//
// Each process of a root says again and again that it is alive (Sight): others count the death of its host from the last time,
// and the shims of its runs are told the same moment, so that no host is given up whose agents still work. A process that
// waits on a bound root says so too (SightWaiting), because it will look after what runs there as soon as it can: that is
// all it writes, and it moves no generation.
//
// # Starters that stop
//
// A starter can be stopped (SIGSTOP, a frozen container) at any point and go on an hour later. It can't hold the key for
// ever, because its transaction is ended by idle_in_transaction_session_timeout; until then others get ErrBusy. Its late
// COMMIT fails with the session. Its late writes to the marker, which no database can refuse, fail because of its fence: a
// directory root.start-N that it makes before it asks for the key, and that its files are written to and renamed from.
// Whoever gets the key first moves all other fences into its own, and only then reads the marker. From then on every
// write of the stopped starter fails for want of the directory, whichever it was about to make; what it wrote earlier has
// been read. After 2, where the key is free before the marker is confirmed, the same may happen to a starter that is merely
// slow: its generation is its own, and the marker has been confirmed, or will be, by who took its fence away.
//
// A starter that is stopped while it holds root.lock keeps maintenance out (and a creator everyone) until it goes on or
// ends; ErrInUse names it.
package root
