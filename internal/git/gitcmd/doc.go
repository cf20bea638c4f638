// Package gitcmd runs the git program, isolated.
//
// git runs programs that configuration names: hooks, filters, a file system monitor, pagers, helpers for
// credentials and transports. So every call gets an environment made from scratch, without any file of the system or
// of the user, and configuration of its own that overrules a repository's for each key that could start something. It
// runs in a process group that ends as a whole, bounded in time and output; errors carry no credentials.
//
// Keys with names of their own (filter.NAME.clean, merge.NAME.driver) can't be overruled in general (filter.lfs is, with nothing): whoever reads a
// repository that isn't trusted must not give its configuration to git at all. Package workspace tells how.
package gitcmd
