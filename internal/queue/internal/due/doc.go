// Package due finds the jobs that a claim may try to take, quickly, in any crowd and without locks. Whether one is granted is
// the claim's to decide, in one statement that asks for everything again.
//
// The index jobs_queued is cut into levels: lane, kind, root, with or without concurrency keys, repository, priority. In
// a level rows differ by run_at only, so what is due is its beginning. What a worker can't take is in levels that it
// doesn't read, or behind what is due, and is never walked, however much it is. A claim lists the levels that have
// rows, by one probe each, and walks each until it has enough.
//
// Only jobs with keys can hold each other up inside a level. Of a key only the first job is a candidate, and the unique
// index jobs_concurrency decides when two claimers saw different firsts: the loser's statement is undone whole and
// repeated. A level's first 500 due rows may be a crowd that waits for a few keys: when they are and hold less than the
// claim looks for, it goes from key to key by jobs_queued_keyed, a probe each, until it has enough, has seen all, or has
// seen 400; the next claim goes on from there. So every key has its turn.
//
// While any reader holds an old snapshot, rows that were claimed since stay in the index, dead, in front of those that
// are queued, and each look at the beginning of a level walks them all; after that it still reads their pages, until a
// vacuum. So a look counts the index entries and pages that it visited. As long as those are few, every claim is such a
// look at everything. After one that was expensive, claims go by what it found, until a time that is in proportion to the
// cost and at most a few seconds away: they walk the levels that it listed, each from a mark on, which is the run_at that
// it found first there, or the newest granted since, less a moment for rows that are committed after their run_at. What no
// mark leads to (a new level, a row that comes late, one that a busy key or a lock held back) is found by the next look,
// which a lane that is idle takes too: Again says when. Marks are memory of one process: nothing depends on their
// being right.
//
// The plans are pinned, because the statistics of a queue are always wrong: each statement has one right plan, along an
// index in its order, at every size, and is written so that no other index fits.
package due
