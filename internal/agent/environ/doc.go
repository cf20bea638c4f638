// Package environ makes the environment that a run's program starts in: its variables, its HOME and what lies there, and
// the list of the values that must not appear in its output.
//
// A program gets few variables of orch's own environment (PATH, LANG, LC_ALL, LC_CTYPE, TERM, TZ), those that its entry
// names, those that its entry sets, and TMPDIR and HOME. Variables of orch itself never reach it.
//
// # HOME
//
// An agent has one HOME for all its runs, since that is where it keeps its sessions. Files that its entry lists are copied
// there when their source has changed since it was copied last, and not otherwise: a token that the agent has refreshed
// since isn't put back. They are written below HOME only, whatever links the agent has planted there.
//
// Who names HOME among the variables to pass on gives the agent all that lies there. Entries of orch.yaml can't do that.
//
// Gate commands and tests of landings run the code of a branch. Each of their runs has a HOME of its own, made empty,
// inside its temporary directory: what one leaves there decides nothing about another. What they share by repository are
// the places where downloads and build results are kept, for the time that they save. A branch can spoil those for
// the next one; whoever doesn't want that gives the gate command a cache of its own.
//
// # Secrets
//
// Values of variables that the entry names or sets are secrets, unless they are shorter than 6 bytes or the entry says that
// they are plain. They are never part of an argument, and the shim replaces them in the output.
package environ
