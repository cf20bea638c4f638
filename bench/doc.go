// Command bench measures orch's queue: against River on the same PostgreSQL in the same run, and against itself as the
// table grows. It is a module of its own, so that River is no dependency of orch. Absolute figures are the machine's;
// what counts are the ratios and how flat the growth is. docs/performance.md keeps both. `bench queue` measures GET /queue.
package main
