// Package telegram sends alerts to a chat of Telegram, over its Bot API.
//
// A message goes out at least once: when a process dies between the answer of Telegram and the end of the job, another one
// sends it again. A chat takes a message a second; since one job of the channel runs at a time, over all hosts, each waits
// for a second before it sends, and a death while waiting costs nothing.
//
// # What failure does
//
//	429                     the job and all others of the process wait as long as Telegram says, without an attempt spent
//	5xx, no answer          another attempt after a back-off, some thirty of them in six hours
//	400, 401, 403, 404      nothing is sent until a person has changed something: the alert is dropped
//
// What a sum meets is met by the one job whose turn it is: the others that it would have told have turns of their own.
//
// A dropped alert is a line in the log that says what to do, and GET /queue says failing until one gets through.
//
// The token is part of the address of each request, and so of what net/http says went wrong. No error of this package has
// any of that: they are codes. Redirects aren't followed, for the same reason.
package telegram
