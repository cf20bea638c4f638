// Package transcript reads what agent programs print: who speaks, what it has cost, whether it ended well.
//
// A Parser is fed the output of one run as it comes, stdout and stderr together, and keeps a Said. It lives in the shim
// of the run, which alone sees every byte: what was summed up survives a capped log and an orch that wasn't there.
//
// # What it promises
//
// Output is foreign: a Parser takes any bytes in any cutting, never fails, and gives the same Said for every cutting. Its
// memory is bounded, whatever is printed:
//   - The fields that a format looks at are found while the bytes pass (package line, by the structure that an event is
//     decoded into); everything else is skipped. What is kept of one line has at most 256 KiB.
//   - Of a long string the beginning and the end are kept: the last line of a final message may be a question to orch.
//   - A line of more than 10 MB, or one that can't be decoded, is dropped and counted in Said.Bad. Unknown events and
//     fields are none of its business.
//   - A line counts when its newline has come, or when Finish says that nothing more comes.
//   - Texts in Said are valid UTF-8 without control characters other than newline and tab, and short: encoded as JSON a
//     Said has at most 32 KiB.
//
// # How the formats are read
//
// An error stands until progress follows: programs retry by themselves and say so. Only what stands at the end is in
// Said.Error; the same holds for Said.Limit. An end without the format's own event of an end is EndNone.
//
// Only the final message of an agent may hold orch's own line {"orch":{…}}, as its last line, and there it may only say
// ok, failed or needs_input, with a summary and a question: a file that an agent prints is no word of the agent, and a
// word of the agent is no proof of what it has cost (package report). The format Command has no messages: its last such line
// counts whole.
//
// Tools are in flight from the event that names their id until the event that names it again. Where a format tells of a
// tool only when it has ended (opencode), none is ever open.
package transcript
