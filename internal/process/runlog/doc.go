// Package runlog writes and reads the output of a run, which has a bound.
//
// The output lies in files of the run directory: log, then log.<offset of its first byte>. Offsets are logical: the first
// byte ever written has offset 0, and a byte keeps its offset when older segments are dropped to stay within the cap. A
// reader that is too late is moved to the oldest byte there is and can tell by the offset.
//
// # Without room
//
// A full disk ends no program and doesn't end the log. While nothing can be written the newest output is kept in memory,
// and written as soon as there is room again. What doesn't fit there is lost: the log has a hole, and goes on in a segment
// whose name tells the later offset. When the output ends while there is no room, its last bytes go to a file that was
// given its room at the beginning.
package runlog
