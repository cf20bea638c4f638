// Package transcript reads what agent programs print: who speaks, what it has cost, whether it ended well.
package transcript
